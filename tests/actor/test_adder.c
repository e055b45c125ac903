/* The n-step transition adder: rows of known items, and every item of random episodes against the
 * definition. Observations are the numbers 1, 2, ... so that an item says where it begins and
 * ends. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/actor.h>
#include <troupe/replay.h>
#include "actor/nstep.h"
#include "core/alloc.h"
#include "actor/limits.h"
#include "core/limits.h"
#include "replay.pb-c.h"

enum { STEPS_MAX = 16, ITEMS_MAX = 64 };

struct item {
    float from, reward, discount, to;
};

struct collected {
    struct item items[ITEMS_MAX];
    int32_t actions[ITEMS_MAX];
    uint64_t versions[ITEMS_MAX];
    size_t count;
};

static void collect(void *context, const struct nstep_item *item)
{
    struct collected *collected = context;
    assert_true(collected->count < ITEMS_MAX);
    struct item *out = &collected->items[collected->count];
    memcpy(&out->from, item->observation, sizeof out->from);
    memcpy(&out->to, item->next_observation, sizeof out->to);
    memcpy(&collected->actions[collected->count], item->action, sizeof(int32_t));
    out->reward = item->reward;
    out->discount = item->discount;
    collected->versions[collected->count++] = item->version;
}

static struct nstep_window *make(uint32_t n_step, double discount)
{
    return nstep_create(&(struct nstep_sizes){.n_step = n_step,
                                              .observation_bytes = sizeof(float),
                                              .action_bytes = sizeof(int32_t),
                                              .discount = discount});
}

/* Steps `count` times from observation 1 on; action t and version 100 + t belong to step t. */
static void play(struct nstep_window *window, const float *rewards, const float *discounts,
                 size_t count, bool last, struct collected *collected)
{
    float first = 1;
    nstep_first(window, &first);
    for (size_t t = 0; t < count; t++) {
        int32_t action = (int32_t)t;
        float next = (float)t + 2;
        nstep_add(window,
                  &(trp_transition){.action = &action,
                                    .reward = rewards[t],
                                    .discount = discounts[t],
                                    .next_observation = &next,
                                    .last = last && t + 1 == count,
                                    .version = 100 + t},
                  collect, collected);
    }
}

struct vector {
    const char *what;
    uint32_t n_step;
    double discount;
    size_t steps;
    float rewards[STEPS_MAX], discounts[STEPS_MAX];
    bool running; /* the episode goes on */
    size_t count;
    struct item items[ITEMS_MAX];
};

static const struct vector vectors[] = {
    {"Acme's vector for n = 2",
     2,
     1,
     3,
     {1, 1, 1},
     {.5, .5, 0},
     false,
     4,
     {{1, 1, .5, 2}, {1, 1.5, .25, 3}, {2, 1.5, 0, 4}, {3, 1, 0, 4}}},
    {"n = 1 gives the transitions themselves",
     1,
     .5,
     3,
     {1, 2, 4},
     {1, 1, 0},
     false,
     3,
     {{1, 1, 1, 2}, {2, 2, 1, 3}, {3, 4, 0, 4}}},
    {"n = 1, an episode of one step", 1, .5, 1, {3}, {0}, false, 1, {{1, 3, 0, 2}}},
    {"n = 3, terminated",
     3,
     .5,
     4,
     {1, 2, 4, 8},
     {1, 1, 1, 0},
     false,
     6,
     {{1, 1, 1, 2}, {1, 2, .5, 3}, {1, 3, .25, 4}, {2, 6, 0, 5}, {3, 8, 0, 5}, {4, 8, 0, 5}}},
    {"n = 3, truncated: every item bootstraps",
     3,
     .5,
     4,
     {1, 2, 4, 8},
     {1, 1, 1, 1},
     false,
     6,
     {{1, 1, 1, 2}, {1, 2, .5, 3}, {1, 3, .25, 4}, {2, 6, .25, 5}, {3, 8, .5, 5}, {4, 8, 1, 5}}},
    {"n = 5, terminated before n steps: 2T - 1 items",
     5,
     .5,
     3,
     {1, 2, 4},
     {1, 1, 0},
     false,
     5,
     {{1, 1, 1, 2}, {1, 2, .5, 3}, {1, 3, 0, 4}, {2, 4, 0, 4}, {3, 4, 0, 4}}},
    {"n = 5, truncated after one step", 5, .5, 1, {7}, {1}, false, 1, {{1, 7, 1, 2}}},
    {"n = 3, exactly n steps",
     3,
     1,
     3,
     {1, 1, 1},
     {1, 1, 0},
     false,
     5,
     {{1, 1, 1, 2}, {1, 2, 1, 3}, {1, 3, 0, 4}, {2, 2, 0, 4}, {3, 1, 0, 4}}},
    {"n = 3, an episode that goes on emits one item a step",
     3,
     .5,
     4,
     {1, 2, 4, 8},
     {1, 1, 1, 1},
     true,
     4,
     {{1, 1, 1, 2}, {1, 2, .5, 3}, {1, 3, .25, 4}, {2, 6, .25, 5}}},
    {"a discount of 0 in the middle cuts rewards behind it",
     3,
     1,
     3,
     {1, 2, 4},
     {1, 0, 1},
     false,
     5,
     {{1, 1, 1, 2}, {1, 3, 0, 3}, {1, 3, 0, 4}, {2, 2, 0, 4}, {3, 4, 1, 4}}},
};

static void assert_item(const struct item *got, const struct item *wanted)
{
    assert_float_equal(got->from, wanted->from, 0);
    assert_float_equal(got->to, wanted->to, 0);
    assert_float_equal(got->reward, wanted->reward, 1e-6);
    assert_float_equal(got->discount, wanted->discount, 1e-6);
}

static void known_episodes_give_the_known_items(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        const struct vector *vector = &vectors[i];
        struct nstep_window *window = make(vector->n_step, vector->discount);
        struct collected collected = {0};
        play(window, vector->rewards, vector->discounts, vector->steps, !vector->running,
             &collected);
        print_message("%s\n", vector->what);
        assert_int_equal(collected.count, vector->count);
        for (size_t k = 0; k < vector->count; k++)
            assert_item(&collected.items[k], &vector->items[k]);
        nstep_destroy(window);
    }
}

/* The definition in include/troupe/actor.h for the window of `m` steps from `t` on. */
static struct item defined(const float *rewards, const float *discounts, double gamma, size_t t,
                           size_t m)
{
    double reward = 0, product = 1;
    for (size_t k = 0; k < m; k++) {
        reward += pow(gamma, (double)k) * product * (double)rewards[t + k];
        product *= (double)discounts[t + k];
    }
    return (struct item){.from = (float)t + 1,
                         .reward = (float)reward,
                         .discount = (float)(pow(gamma, (double)m - 1) * product),
                         .to = (float)(t + m) + 1};
}

static void check_episode(uint32_t n, size_t steps, trp_rng *rng)
{
    float rewards[STEPS_MAX], discounts[STEPS_MAX];
    for (size_t t = 0; t < steps; t++) {
        rewards[t] = (float)trp_rng_normal(rng);
        discounts[t] = (float)trp_rng_below(rng, 5) / 4;
    }
    double gamma = trp_rng_double(rng);
    struct nstep_window *window = make(n, gamma);
    struct collected collected = {0};
    play(window, rewards, discounts, steps, true, &collected);
    assert_int_equal(collected.count, steps >= n ? steps + n - 1 : 2 * steps - 1);
    for (size_t k = 0; k < collected.count; k++) {
        size_t end = k < steps ? k + 1 : steps; /* one item a step, then the tail */
        size_t begin =
            k < steps ? (end > n ? end - n : 0) : (steps > n ? steps - n : 0) + (k - steps) + 1;
        struct item wanted = defined(rewards, discounts, gamma, begin, end - begin);
        assert_item(&collected.items[k], &wanted);
        assert_int_equal(collected.actions[k], begin);
        assert_int_equal(collected.versions[k], 100 + begin);
    }
    nstep_destroy(window);
}

static void random_episodes_agree_with_the_definition(void **state)
{
    (void)state;
    trp_rng rng;
    trp_rng_init(&rng, 1, 0);
    for (uint32_t n = 1; n <= 7; n++)
        for (size_t steps = 1; steps <= STEPS_MAX; steps++)
            check_episode(n, steps, &rng);
}

static void a_new_episode_forgets_the_unfinished_one(void **state)
{
    (void)state;
    struct nstep_window *window = make(3, .5);
    struct collected collected = {0};
    float rewards[] = {1, 2}, discounts[] = {1, 1};
    play(window, rewards, discounts, 2, false, &collected);
    collected.count = 0;
    play(window, rewards, discounts, 1, true, &collected);
    assert_int_equal(collected.count, 1);
    assert_item(&collected.items[0], &(struct item){1, 1, 1, 2});
    nstep_destroy(window);
}

static const trp_env_spec discrete = {
    .name = "test",
    .observation = {.name = "o", .dtype = TRP_FLOAT32, .rank = 2, .shape = {2, 3}},
    .action_kind = TRP_ACTION_DISCRETE,
    .action_count = 4};

static void columns_are_those_of_the_environment(void **state)
{
    (void)state;
    trp_tensor_spec columns[TRP_NSTEP_COLUMNS];
    trp_nstep_columns(&discrete, columns);
    assert_int_equal(trp_tensor_bytes(&columns[TRP_NSTEP_OBSERVATION]), 24);
    assert_int_equal(trp_tensor_bytes(&columns[TRP_NSTEP_NEXT_OBSERVATION]), 24);
    assert_int_equal(columns[TRP_NSTEP_ACTION].dtype, TRP_INT32);
    assert_int_equal(columns[TRP_NSTEP_ACTION].rank, 0);
    assert_int_equal(columns[TRP_NSTEP_VERSION].dtype, TRP_INT64);
    trp_env_spec box = discrete;
    box.action_kind = TRP_ACTION_BOX;
    trp_nstep_columns(&box, columns);
    assert_int_equal(columns[TRP_NSTEP_ACTION].dtype, TRP_FLOAT32);
    assert_int_equal(columns[TRP_NSTEP_ACTION].shape[0], 4);
}

static void wrong_options_are_refused_by_name(void **state)
{
    (void)state;
    trp_env_spec empty = discrete;
    empty.observation.shape[0] = 0;
    const struct {
        trp_nstep_options options;
        const char *word;
    } rows[] = {
        {{.table = NULL, .env = &discrete}, "table"},
        {{.table = "", .env = &discrete}, "table"},
        {{.table = "t", .env = &discrete, .n_step = NSTEP_MAX + 1}, "n_step"},
        {{.table = "t", .env = &discrete, .discount = 1.5}, "discount"},
        {{.table = "t", .env = &discrete, .discount = NAN}, "discount"},
        {{.table = "t", .env = &discrete, .priority = -1}, "priority"},
        {{.table = "t", .env = &discrete, .priority = INFINITY}, "priority"},
        {{.table = "t", .env = &discrete, .copies = ACTOR_COPIES_MAX + 1}, "copies"},
        {{.table = "t", .env = &empty}, "empty observations"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        trp_adder *adder;
        assert_int_equal(trp_nstep_adder_create(&adder, &rows[i].options), TRP_INVALID_ARGUMENT);
        assert_null(adder);
        assert_non_null(strstr(trp_last_error(), rows[i].word));
    }
}

/* What a real server tells of the table that an adder wrote. */
static Troupe__ReplayTablesResponse *told_after(uint32_t copies, void (*run)(trp_adder *adder))
{
    char dir[] = "/tmp/troupe-adder-XXXXXX";
    assert_non_null(mkdtemp(dir));
    trp_table_options table = {.name = "t"};
    trp_replay_server_options options = {.dir = dir, .tables = &table, .table_count = 1};
    trp_replay_server *server;
    trp_adder *adder;
    ProtobufCService *service;
    ProtobufCMessage *reply;
    Troupe__ReplayTablesRequest request = TROUPE__REPLAY_TABLES_REQUEST__INIT;
    assert_int_equal(trp_replay_server_create(&server, &options), TRP_OK);
    trp_channel *channel = trp_channel_create_local(trp_replay_server_rpc(server));
    trp_nstep_options nstep = {.replay = channel, .table = "t", .env = &discrete, .copies = copies};
    assert_int_equal(trp_nstep_adder_create(&adder, &nstep), TRP_OK);
    run(adder);
    assert_int_equal(adder->impl->flush(adder, 10000), TRP_OK);
    assert_int_equal(trp_channel_service(channel, &troupe__replay__descriptor, &service), TRP_OK);
    assert_int_equal(trp_call(service, "Tables", &request.base, &reply, NULL), TRP_OK);
    trp_adder_destroy(adder);
    trp_channel_destroy(channel);
    trp_replay_server_destroy(server);
    char *remove = xasprintf("rm -r %s", dir);
    assert_int_equal(system(remove), 0);
    free(remove);
    return (Troupe__ReplayTablesResponse *)reply;
}

static void add_step(trp_adder *adder, uint32_t copy, uint64_t version, bool last)
{
    const float observation[6] = {0};
    int32_t action = 1;
    adder->impl->add(adder, copy,
                     &(trp_transition){.action = &action,
                                       .discount = 1,
                                       .next_observation = observation,
                                       .version = version,
                                       .last = last});
}

static void run_versions(trp_adder *adder)
{
    const float observation[6] = {0};
    adder->impl->first(adder, 0, observation);
    for (uint64_t version = 7; version <= 9; version++) {
        add_step(adder, 0, version, false);
        assert_int_equal(adder->impl->push(adder, 10000), TRP_OK);
    }
}

static void items_carry_the_version_to_the_server(void **state)
{
    (void)state;
    Troupe__ReplayTablesResponse *told = told_after(1, run_versions);
    assert_int_equal(told->tables[0]->size, 3);
    assert_int_equal(told->tables[0]->staleness->newest_version, 9);
    troupe__replay_tables_response__free_unpacked(told, NULL);
}

/* Three copies in turn: one is in its third episode, one in its second, one in its first. */
static void run_episodes(trp_adder *adder)
{
    enum { COPIES = 3, STEPS = 12 };
    const float observation[6] = {0};
    for (uint32_t copy = 0; copy < COPIES; copy++)
        adder->impl->first(adder, copy, observation);
    for (uint32_t step = 1; step <= STEPS; step++) {
        for (uint32_t copy = 0; copy < COPIES; copy++) {
            bool last = copy < 2 && step % (copy == 0 ? 5 : 7) == 0;
            add_step(adder, copy, 1, last);
            if (last)
                adder->impl->first(adder, copy, observation);
        }
        assert_int_equal(adder->impl->push(adder, 10000), TRP_OK);
    }
}

static void the_server_counts_the_episodes_of_all_copies(void **state)
{
    (void)state;
    Troupe__ReplayTablesResponse *told = told_after(3, run_episodes);
    assert_int_equal(told->tables[0]->episodes, 3 + 2 + 1);
    troupe__replay_tables_response__free_unpacked(told, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_carry_the_version_to_the_server),
        cmocka_unit_test(the_server_counts_the_episodes_of_all_copies),
        cmocka_unit_test(known_episodes_give_the_known_items),
        cmocka_unit_test(random_episodes_agree_with_the_definition),
        cmocka_unit_test(a_new_episode_forgets_the_unfinished_one),
        cmocka_unit_test(columns_are_those_of_the_environment),
        cmocka_unit_test(wrong_options_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
