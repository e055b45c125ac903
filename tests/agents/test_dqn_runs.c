/* Whole runs of DQN, with a replay server, a learner and actors in one process: they learn Catch,
 * honour masks, and repeat bit for bit. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <troupe/dqn.h>
#include <troupe/log.h>
#include "core/alloc.h"
#include "core/thread.h"

enum { ACTORS = 2 };

struct run {
    trp_agent agent;
    const char *env;
    uint64_t seed, max_steps;
    char dir[32];
    trp_replay_server *server;
    trp_channel *channel;
    trp_stop *stop;
    struct turns *turns;
    trp_learner *learner;
    trp_actor *actors[ACTORS];
    trp_status status[1 + ACTORS];
    trp_actor_counters counters[ACTORS];
    float *params; /* what was learned */
    size_t count;
    trp_evaluation evaluation;
};

struct part {
    struct run *run;
    uint32_t index; /* 0: the learner */
    struct thread thread;
};

static void run_learner(void *arg)
{
    struct part *part = arg;
    struct run *run = part->run;
    turns_join(run->turns, 0);
    run->status[0] = trp_learner_run(run->learner);
    trp_stop_request(run->stop);
    turns_leave();
}

static void run_actor(void *arg)
{
    struct part *part = arg;
    struct run *run = part->run;
    turns_join(run->turns, part->index);
    trp_actor *actor;
    char name[16];
    snprintf(name, sizeof name, "actor/%" PRIu32, part->index - 1);
    trp_status status = trp_agent_actor_create(
        &actor, &run->agent,
        &(trp_agent_actor_options){.name = name,
                                   .env = run->env,
                                   .index = part->index - 1,
                                   .count = ACTORS,
                                   .replay = run->channel,
                                   .params = trp_learner_service(run->learner),
                                   .stop = run->stop,
                                   .seed = run->seed});
    if (status == TRP_OK)
        status = trp_actor_run(actor);
    if (status == TRP_OK)
        run->counters[part->index - 1] = trp_actor_read(actor);
    trp_actor_destroy(actor);
    run->status[part->index] = status;
    if (status != TRP_OK)
        trp_stop_request(run->stop);
    turns_leave();
}

static void run_start(struct run *run)
{
    memcpy(run->dir, "/tmp/test_dqn.XXXXXX", sizeof "/tmp/test_dqn.XXXXXX");
    assert_non_null(mkdtemp(run->dir));
    trp_agent_table_list tables;
    assert_int_equal(trp_agent_tables(&run->agent, run->env, &tables), TRP_OK);
    char *store = xasprintf("%s/store", run->dir);
    trp_status status = trp_replay_server_create(
        &run->server,
        &(trp_replay_server_options){
            .dir = store, .tables = tables.tables, .table_count = tables.count, .seed = run->seed});
    assert_int_equal(status, TRP_OK);
    run->channel = trp_channel_create_local(trp_replay_server_rpc(run->server));
    run->stop = trp_stop_create();
    run->turns = turns_create(1 + ACTORS);
    status = trp_agent_learner_create(
        &run->learner, &run->agent,
        &(trp_agent_learner_options){.env = run->env,
                                     .seed = run->seed,
                                     .replays = &run->channel,
                                     .replay_count = 1,
                                     .loop = {.stop = run->stop, .max_steps = run->max_steps}});
    assert_int_equal(status, TRP_OK);
    trp_agent_table_list_cleanup(&tables);
    free(store);
}

static void run_keep_results(struct run *run)
{
    trp_params_client *client;
    assert_int_equal(
        trp_params_client_create(
            &client, &(trp_params_client_options){.service = trp_learner_service(run->learner)}),
        TRP_OK);
    assert_int_equal(trp_params_client_pull(client, 0, 0, NULL), TRP_OK);
    trp_params_state state = trp_params_client_state(client);
    run->count = state.count;
    run->params = trp_floats_create(state.count);
    memcpy(run->params, state.params, state.count * sizeof *run->params);
    trp_params_client_destroy(client);
    trp_policy *policy;
    assert_int_equal(trp_agent_policy_create(&policy, &run->agent, run->env,
                                             &(trp_policy_options){.rows = 100, .greedy = true}),
                     TRP_OK);
    assert_int_equal(policy->impl->load(policy, run->params, run->count), TRP_OK);
    assert_int_equal(trp_evaluate(policy, &(trp_evaluate_options){.env = run->env, .seed = 77},
                                  &run->evaluation),
                     TRP_OK);
    trp_policy_destroy(policy);
}

static void run_end(struct run *run)
{
    trp_learner_destroy(run->learner);
    trp_channel_destroy(run->channel);
    trp_replay_server_destroy(run->server);
    trp_stop_destroy(run->stop);
    turns_destroy(run->turns);
    char *command = xasprintf("rm -rf %s", run->dir);
    assert_int_equal(system(command), 0);
    free(command);
}

static struct run run_whole(const trp_dqn_options *options, const char *env, uint64_t seed,
                            uint64_t max_steps)
{
    struct run run = {.agent = trp_dqn(options), .env = env, .seed = seed, .max_steps = max_steps};
    run_start(&run);
    struct part parts[1 + ACTORS] = {0};
    for (uint32_t i = 0; i <= ACTORS; i++) {
        parts[i] = (struct part){.run = &run, .index = i};
        assert_int_equal(thread_start(&parts[i].thread, i ? "actor" : "learner",
                                      i ? run_actor : run_learner, &parts[i]),
                         TRP_OK);
    }
    for (uint32_t i = 0; i <= ACTORS; i++)
        thread_stop(&parts[i].thread);
    for (uint32_t i = 0; i <= ACTORS; i++)
        assert_int_equal(run.status[i], TRP_OK);
    run_keep_results(&run);
    run_end(&run);
    return run;
}

static const trp_dqn_options small = {.hidden = {32},
                                      .batch_size = 32,
                                      .min_replay_size = 200,
                                      .replay_size = 5000,
                                      .epsilon_steps = 2000,
                                      .target_period = 50};

static void catch_is_learned(void **state)
{
    (void)state;
    struct run run = run_whole(&small, "Catch", 1, 1500);
    print_message("mean return %.2f\n", run.evaluation.mean);
    assert_true(run.evaluation.mean >= 0.9); /* of 1; random play has -0.6 */
    assert_true(run.counters[0].episodes > 0);
    trp_floats_destroy(run.params);
}

/* ---- masks -------------------------------------------------------------------------------------
 */

/* An episode begins in A or C. A looks like nothing else: there 1 pays 0.5 and ends it, 0 leads to
 * B. B looks like C; in B only 0 may be done, in C 1 pays 1: all these end it. So 0 is worth
 * nothing in A, although 1 is worth 1 in all that looks like B: who does not ask what may be done
 * in B goes there. */
enum place { A, B, C };

static trp_status gate_reset(void *state, trp_rng *rng)
{
    *(enum place *)state = trp_rng_below(rng, 2) ? A : C;
    return TRP_OK;
}

static trp_status gate_step(void *state, trp_rng *rng, const void *action, trp_env_outcome *outcome)
{
    enum place *place = state;
    int32_t choice = *(const int32_t *)action;
    (void)rng;
    outcome->terminated = *place != A || choice == 1;
    if (choice == 1)
        outcome->reward = *place == A ? 0.5F : 1;
    *place = B;
    return TRP_OK;
}

static void gate_observe(const void *state, void *const *observations)
{
    float *row = observations[0];
    row[0] = *(const enum place *)state == A;
    row[1] = 1 - row[0];
}

static void gate_mask(const void *state, bool *allowed)
{
    allowed[0] = true;
    allowed[1] = *(const enum place *)state != B;
}

static const trp_env_impl gate_impl = {
    .spec = {.name = "Gate",
             .observations = {{.dtype = TRP_FLOAT32, .rank = 1, .shape = {2}}},
             .action_count = 2},
    .state_bytes = sizeof(enum place),
    .reset = gate_reset,
    .step = gate_step,
    .observe = gate_observe,
    .mask = gate_mask,
};

static void a_target_counts_only_what_may_be_done_next(void **state)
{
    /* Where the limit cuts, B is the final observation, and nobody ever acts in it. */
    static const char *const envs[] = {"Gate", "Gate?time_limit=1"};
    (void)state;
    for (size_t i = 0; i < sizeof envs / sizeof *envs; i++) {
        trp_dqn_options options = small;
        options.n_step = 1;
        struct run run = run_whole(&options, envs[i], 2, 800);
        print_message("%s: mean return %.2f\n", envs[i], run.evaluation.mean);
        /* The mean of 0.5 and 1; with 0 in A it is that of 0 and 1. */
        assert_true(run.evaluation.mean > 0.65);
        assert_float_equal(run.evaluation.min, 0.5, 0);
        trp_floats_destroy(run.params);
    }
}

static void a_run_in_turns_repeats_bit_for_bit(void **state)
{
    (void)state;
    struct run first = run_whole(&small, "CartPole-v1", 3, 150);
    struct run second = run_whole(&small, "CartPole-v1", 3, 150);
    struct run other = run_whole(&small, "CartPole-v1", 4, 150);
    assert_int_equal(first.count, second.count);
    assert_memory_equal(first.params, second.params, first.count * sizeof *first.params);
    for (size_t i = 0; i < ACTORS; i++) {
        assert_int_equal(first.counters[i].steps, second.counters[i].steps);
        assert_int_equal(first.counters[i].episodes, second.counters[i].episodes);
        assert_float_equal(first.counters[i].mean_return, second.counters[i].mean_return, 0);
    }
    assert_memory_not_equal(first.params, other.params, first.count * sizeof *first.params);
    trp_floats_destroy(first.params);
    trp_floats_destroy(second.params);
    trp_floats_destroy(other.params);
}

int main(void)
{
    trp_log_set_level(TRP_WARN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(catch_is_learned),
        cmocka_unit_test(a_target_counts_only_what_may_be_done_next),
        cmocka_unit_test(a_run_in_turns_repeats_bit_for_bit),
    };
    if (trp_env_register(&gate_impl) != TRP_OK)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
