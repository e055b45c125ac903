/* Groups of learners that could not learn are refused before anything starts, with what is wrong;
 * those that can are not. */
#include "graph_fixture.h"

#include <troupe/impala.h>
#include <troupe/learner.h>
#include <troupe/ppo.h>
#include <troupe/td3.h>
#include "core/option_table.h"

struct wish {
    const char *env; /* NULL: CartPole-v1 */
    trp_agent agent;
    trp_learner_options learning;
    trp_actor_options acting;
    uint32_t actors;
    bool served; /* on a server with this rule: */
    uint32_t rule, idle_hosts;
};

/* The status of a program of these, whose words are to have `words`. */
static void check_wish(const struct wish *wish, const char *words)
{
    trp_program *program = trp_program_create("cartpole");
    trp_learner_options learning = wish->learning;
    trp_actor_options acting = wish->acting;
    trp_node replay =
        trp_add_replay(program, "replay", &(trp_replay_options){.agent = &wish->agent});
    if (wish->served)
        learning.server = trp_add_parameter_server(
            program, "server", 2,
            &(trp_parameter_server_options){.rule = wish->rule, .idle_hosts = wish->idle_hosts});
    learning.agent = acting.agent = &wish->agent;
    learning.replay = acting.replay = replay;
    acting.env = wish->env ? wish->env : "CartPole-v1";
    acting.params = trp_add_learner(program, "learner", &learning);
    trp_add_actors(program, "actor", wish->actors ? wish->actors : 1, &acting);
    trp_status status = program_check(program);
    if (!words && status != TRP_OK)
        fail_msg("%s", trp_last_error());
    if (words) {
        assert_int_equal(status, TRP_INVALID_ARGUMENT);
        if (!strstr(trp_last_error(), words))
            fail_msg("%s", trp_last_error());
    }
    trp_program_destroy(program);
}

static trp_agent dqn_with(trp_optimizer_kind optimizer)
{
    return trp_dqn(&(trp_dqn_options){.optimizer = optimizer});
}

static void who_normalises_by_a_dataset_has_one(void **state)
{
    (void)state;
    const trp_td3_options options = {.normalize_states = true};
    check_wish(&(struct wish){.env = "Pendulum-v1", .agent = trp_td3(&options)},
               "learner 'learner': agent.normalize_states takes means and deviations of a dataset, "
               "and it has no .dataset");
    check_wish(&(struct wish){.env = "Pendulum-v1", .agent = trp_td3(NULL)}, NULL);
}

static void an_optimizer_of_whole_tensors_has_no_ranges(void **state)
{
    (void)state;
    struct wish wish = {.agent = dqn_with(TRP_LAMB),
                        .learning = {.count = 2, .mode = TRP_LEARNERS_SHARDED}};
    check_wish(&wish, "learner 'learner': the optimizer lamb steps whole tensors, and with the "
                      "mode sharded each has a range");
    wish.learning.count = 1; /* which has all of it */
    check_wish(&wish, NULL);
    wish.learning = (trp_learner_options){.count = 2};
    check_wish(&wish, NULL);
    wish.learning = (trp_learner_options){.mode = TRP_LEARNERS_SERVER};
    wish.served = true;
    check_wish(&wish,
               "learner 'learner' at 'server': the optimizer lamb steps whole tensors, and a "
               "server has a range");
}

static void a_rule_that_takes_steps_back_is_for_plain_sgd(void **state)
{
    (void)state;
    struct wish wish = {.agent = dqn_with(TRP_ADAM),
                        .learning = {.mode = TRP_LEARNERS_SERVER},
                        .served = true,
                        .rule = TRP_SERVER_DYNSGD};
    check_wish(
        &wish,
        "learner 'learner' at 'server': the rule dynsgd takes steps back, which adam cannot");
    wish.agent = dqn_with(TRP_SGD);
    check_wish(&wish, NULL);
    wish.agent = dqn_with(TRP_ADAM);
    wish.rule = TRP_SERVER_SSP;
    check_wish(&wish, NULL);
}

static void modes_that_share_by_steps_have_optimizers_for_it(void **state)
{
    (void)state;
    struct wish wish = {.agent = dqn_with(TRP_ADAGRAD), .learning = {.count = 2}};
    check_wish(&wish, NULL);
    wish.learning.mode = TRP_LEARNERS_DOGWILD;
    check_wish(&wish, "learner 'learner': the optimizer is adagrad, and the mode dogwild has");
    wish.learning.mode = TRP_LEARNERS_HOGWILD;
    check_wish(&wish, "the mode hogwild has rmsprop, adam");
    wish.agent = dqn_with(TRP_RMSPROP);
    check_wish(&wish, NULL);
}

static void parameters_in_memory_of_hosts_are_on_no_gpu(void **state)
{
    (void)state;
    struct wish wish = {.agent = dqn_with(TRP_ADAM), .learning = {.count = 2, .device = "cuda:0"}};
    check_wish(&wish, NULL);
    wish.learning.mode = TRP_LEARNERS_GAIA;
    check_wish(&wish, "learner 'learner': .device is cuda:0, and learners of the mode gaia keep");
    wish.learning.mode = TRP_LEARNERS_SERVER;
    wish.served = true;
    check_wish(&wish, "learners of the mode server keep");
    wish.learning.device = "auto"; /* who finds out says so */
    check_wish(&wish, NULL);
}

static void hosts_of_learners_and_idle_ones_have_a_server_each(void **state)
{
    (void)state;
    struct wish wish = {.agent = dqn_with(TRP_ADAM),
                        .learning = {.count = 2, .mode = TRP_LEARNERS_SERVER},
                        .served = true,
                        .idle_hosts = 1};
    check_wish(&wish,
               "learner 'learner' at 'server': 2 learners, 2 servers and idle_hosts=1 do not go");
    wish.learning.count = 1;
    check_wish(&wish, NULL);
    wish.learning.count = 3;
    check_wish(&wish, "3 learners, 2 servers");
    wish.idle_hosts = 0;
    check_wish(&wish, NULL);
}

/* Each of what a mode may not have, and of all modes that there are. */
static void each_pair_that_cannot_be_is_refused_by_name(void **state)
{
    static const struct {
        uint32_t mode, compression;
        trp_optimizer_kind optimizer;
        const char *device, *words;
    } rows[] = {
#define SUM(MODE) "compression is bf16, which the mode " MODE " has not"
        {TRP_LEARNERS_SHARDED, TRP_COMPRESSION_POWERSGD, 0, NULL, NULL},
        {TRP_LEARNERS_HOGWILD, TRP_COMPRESSION_BF16, 0, NULL, SUM("hogwild")},
        {TRP_LEARNERS_GOSSIP, TRP_COMPRESSION_POWERSGD, 0, NULL,
         "compression is powersgd, which the mode gossip has not: its factors"},
        {TRP_LEARNERS_GOSSIP, TRP_COMPRESSION_ONE_BIT, 0, NULL, NULL},
        {TRP_LEARNERS_DOGWILD, TRP_COMPRESSION_POWERSGD, 0, NULL,
         "compression is powersgd, which the mode dogwild has not: the numbers of a datagram"},
        {TRP_LEARNERS_GAIA, TRP_COMPRESSION_POWERSGD, 0, NULL,
         "compression is powersgd, which the mode gaia has not: numbers that matter"},
        {TRP_LEARNERS_DOGWILD, TRP_COMPRESSION_BF16, 0, NULL, NULL},
        {TRP_LEARNERS_GAIA, TRP_COMPRESSION_TOP_K, 0, NULL, NULL},
        {TRP_LEARNERS_SYNCHRONOUS, TRP_COMPRESSION_POWERSGD, 0, NULL, NULL},
        {TRP_LEARNERS_LOCAL_SGD, TRP_COMPRESSION_TOP_K, 0, NULL, NULL},
        {TRP_LEARNERS_SHARDED, 0, TRP_LAMB, NULL, "with the mode sharded each has a range"},
        {TRP_LEARNERS_SHARDED, 0, TRP_ADAGRAD, NULL, NULL},
        {TRP_LEARNERS_SYNCHRONOUS, 0, TRP_LAMB, NULL, NULL},
        {TRP_LEARNERS_GOSSIP, 0, TRP_LAMB, NULL, NULL},
        {TRP_LEARNERS_LOCAL_SGD, 0, TRP_LAMB, NULL, NULL},
        {TRP_LEARNERS_GAIA, 0, TRP_LAMB, NULL, NULL},
        {TRP_LEARNERS_HOGWILD, 0, TRP_ADAMW, NULL, "the optimizer is adamw, and the mode hogwild"},
        {TRP_LEARNERS_DOGWILD, 0, TRP_LAMB, NULL, "the optimizer is lamb, and the mode dogwild"},
        {TRP_LEARNERS_DOGWILD, 0, TRP_SGD, NULL, NULL},
        {TRP_LEARNERS_HOGWILD, 0, 0, "cuda:1",
         ".device is cuda:1, and learners of the mode hogwild"},
        {TRP_LEARNERS_DOGWILD, 0, 0, "cuda:1",
         ".device is cuda:1, and learners of the mode dogwild"},
        {TRP_LEARNERS_GAIA, 0, 0, "cuda:1", ".device is cuda:1, and learners of the mode gaia"},
        {TRP_LEARNERS_SHARDED, 0, 0, "cuda:1", NULL},
        {TRP_LEARNERS_GOSSIP, 0, 0, "cuda:1", NULL},
        {TRP_LEARNERS_LOCAL_SGD, 0, 0, "cuda:1", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct wish wish = {.agent = dqn_with(rows[i].optimizer),
                            .learning = {.count = 2,
                                         .mode = rows[i].mode,
                                         .compression = rows[i].compression,
                                         .device = rows[i].device}};
        check_wish(&wish, rows[i].words);
    }
    struct wish wish = {.agent = dqn_with(TRP_ADAM),
                        .learning = {.count = 2, .mode = TRP_LEARNERS_SERVER},
                        .served = true};
    wish.learning.compression = TRP_COMPRESSION_POWERSGD;
    check_wish(&wish, "compression is powersgd, which the mode server has not");
    wish.learning.compression = TRP_COMPRESSION_QSGD;
    check_wish(&wish, NULL);
}

/* As the option itself says, of whom no learner is asked. */
static void compression_is_read_where_a_mode_has_some(void **state)
{
    (void)state;
    trp_agent agent = dqn_with(TRP_ADAM);
    trp_program *program = trp_program_create("cartpole");
    trp_learner_options learning = {
        .agent = &agent,
        .replay = trp_add_replay(program, "replay", &(trp_replay_options){.agent = &agent})};
    trp_node learner = trp_add_learner(program, "learner", &learning);
    const struct node_group *group = program_group(program, learner);
    const trp_option *option = option_find(group->table, "compression");
    const char *const *modes = option_find(group->table, "mode")->choices;
    for (uint32_t mode = 0; modes[mode]; mode++) {
        trp_learner_options options = {.mode = mode, .compression = TRP_COMPRESSION_BF16};
        trp_learner_mode_use use = {.mode = modes[mode], .compression.kind = "bf16"};
        bool has = trp_learner_mode_check(&use) == TRP_OK;
        if (option_is_idle(group->table, option, &options) == has)
            fail_msg("%s", modes[mode]);
    }
    trp_program_destroy(program);
}

/* 2 actors of 4 copies that wait after 4 items each, and batches of 8. */
static void actors_that_wait_insert_what_a_version_is_made_of(void **state)
{
    (void)state;
    struct wish wish = {.agent = trp_ppo(&(trp_ppo_options){.batch_size = 8}),
                        .learning = {.publish_every = 1},
                        .acting = {.envs = 4, .sync_every_items = 4},
                        .actors = 2};
    check_wish(&wish, NULL);
    wish.learning.count = 2;
    check_wish(&wish, "learner 'learner': its actors wait for a version after 8 items "
                      "(sync_every_items), and one is made of 16 (2 learners, batch_size 8, "
                      "publish_every 1): everybody would wait for everybody");
    wish.learning.batch_size = 4;
    check_wish(&wish, NULL);
    wish.learning = (trp_learner_options){.publish_every = 2};
    check_wish(&wish, "one is made of 16 (1 learner, batch_size 8, publish_every 2)");
    wish.acting.max_lag = 1;
    check_wish(&wish, NULL);
}

static void who_does_not_wait_or_learns_of_items_again_needs_no_more(void **state)
{
    (void)state;
    struct wish wish = {.agent = trp_impala(NULL), .learning = {.count = 4}};
    check_wish(&wish, NULL); /* actors do not wait */
    wish.agent = dqn_with(TRP_ADAM);
    wish.acting.sync_every_items = 1;
    check_wish(&wish, NULL); /* items are sampled again and again */
}

/* Of which a copy each inserts an item before the actor looks. */
static void all_copies_of_an_actor_act_before_it_waits(void **state)
{
    (void)state;
    struct wish wish = {.agent = trp_ppo(&(trp_ppo_options){.batch_size = 8}),
                        .learning = {.publish_every = 1},
                        .acting = {.envs = 8, .sync_every_items = 1}};
    check_wish(&wish, NULL);
    wish.acting.envs = 4;
    check_wish(&wish, "its actors wait for a version after 4 items");
}

/* What a program with such learners is told at its start; NULL: nothing. */
static void check_remark(const trp_learner_options *learning, const char *words)
{
    struct fixture *fixture;
    setup((void **)&fixture);
    struct nodes nodes = add_all(fixture->program, &fixture->agent);
    trp_learner_options options = *learning;
    options.agent = &fixture->agent;
    options.env = "CartPole-v1";
    options.replay = nodes.replay;
    trp_node pair = trp_add_learner(fixture->program, "pair", &options);
    if (program_check(fixture->program) != TRP_OK)
        fail_msg("%s", trp_last_error());
    char *remark = learner_remark(program_group(fixture->program, pair));
    if (words && remark)
        assert_string_equal(remark, words);
    assert_int_equal(words != NULL, remark != NULL);
    free(remark);
    teardown((void **)&fixture);
}

static void sites_that_change_nothing_are_told_of(void **state)
{
    (void)state;
    const char one[] = "learner 'pair': .sites is a,a, which is one site: it changes nothing";
    check_remark(&(trp_learner_options){.count = 2, .sites = "a,a"}, one);
    check_remark(&(trp_learner_options){.count = 1, .sites = "a"},
                 "learner 'pair': .sites is a, which is one site: it changes nothing");
    check_remark(&(trp_learner_options){.count = 3, .sites = "a,b,ab"},
                 "learner 'pair': .sites is a,b,ab, of which each has one learner: sums go round "
                 "one ring, as without it");
    check_remark(&(trp_learner_options){.count = 3, .sites = "a,b,a"}, NULL);
    check_remark(&(trp_learner_options){.count = 3}, NULL);
    /* Nobody reads these, which is said with what they need. */
    check_remark(&(trp_learner_options){.count = 2, .sites = "a,a", .mode = TRP_LEARNERS_HOGWILD},
                 NULL);
}

static void gaia_at_one_site_is_told_of(void **state)
{
    (void)state;
    trp_learner_options gaia = {.count = 2, .mode = TRP_LEARNERS_GAIA};
    check_remark(&gaia, "learner 'pair': the mode is gaia, and all learners are at one site, this "
                        "host, as .sites is not set: they go on from their mean after every step, "
                        "and nothing goes between sites");
    gaia.sites = "a,a";
    check_remark(&gaia, "learner 'pair': the mode is gaia, and all learners are at one site: they "
                        "go on from their mean after every step, and nothing goes between sites");
    gaia.sites = "a,b";
    check_remark(&gaia, NULL);
}

/* No option can. */
static void what_a_server_is_set_by_is_said(void **state)
{
    (void)state;
    struct wish wish = {.agent = dqn_with(TRP_ADAM), .learning = {.mode = TRP_LEARNERS_SERVER}};
    check_wish(&wish, "learner 'learner': the mode is server, and .server is not set: the launch "
                      "file sets it, in C, to what trp_add_parameter_server() returned");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_normalises_by_a_dataset_has_one),
        cmocka_unit_test(an_optimizer_of_whole_tensors_has_no_ranges),
        cmocka_unit_test(a_rule_that_takes_steps_back_is_for_plain_sgd),
        cmocka_unit_test(modes_that_share_by_steps_have_optimizers_for_it),
        cmocka_unit_test(parameters_in_memory_of_hosts_are_on_no_gpu),
        cmocka_unit_test(hosts_of_learners_and_idle_ones_have_a_server_each),
        cmocka_unit_test(each_pair_that_cannot_be_is_refused_by_name),
        cmocka_unit_test(compression_is_read_where_a_mode_has_some),
        cmocka_unit_test(actors_that_wait_insert_what_a_version_is_made_of),
        cmocka_unit_test(who_does_not_wait_or_learns_of_items_again_needs_no_more),
        cmocka_unit_test(all_copies_of_an_actor_act_before_it_waits),
        cmocka_unit_test(sites_that_change_nothing_are_told_of),
        cmocka_unit_test(gaia_at_one_site_is_told_of),
        cmocka_unit_test(what_a_server_is_set_by_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
