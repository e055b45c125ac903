/* Learners that learn together as threads of one process: one fails, the others go on, it comes
 * back, and whoever pulls follows the one that publishes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/troupe.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "core/log.h"

enum { FAILING_STEP = 40, STEPS = 400 };

/* ---- a DQN of which one learner fails ----------------------------------------------------------
 */

static char failing[32]; /* the node that fails once, in its step FAILING_STEP or later; "": none */
static atomic_int failures;
static bool comes_back; /* it begins again */
static trp_updater_impl failing_updater;
static trp_agent_impl failing_agent;
static const trp_agent_impl *honest;
static trp_status (*honest_step)(trp_updater *updater, const trp_update *update);

static trp_status step_or_fail(trp_updater *updater, const trp_update *update)
{
    if (update->step >= FAILING_STEP && strcmp(log_origin_get().node, failing) == 0 &&
        atomic_fetch_add(&failures, 1) == 0)
        return trp_fail(TRP_DATA_LOSS, "asked to fail");
    if (comes_back && atomic_load(&failures) == 1)
        poll(NULL, 0, 20); /* the others are not to be done before it is there */
    return honest_step(updater, update);
}

static trp_status make_failing_updater(const trp_agent *agent, const trp_env_spec *env,
                                       const trp_updater_options *options, trp_updater **out)
{
    TRP_TRY(honest->updater(agent, env, options, out));
    (*out)->impl = &failing_updater;
    return TRP_OK;
}

static trp_agent agent_that_fails(const char *node)
{
    trp_agent agent =
        trp_dqn(&(trp_dqn_options){.hidden = {8}, .min_replay_size = 64, .samples_per_insert = 64});
    trp_updater *updater;
    const trp_env_spec *env;
    assert_int_equal(trp_env_find("Catch", &env), TRP_OK);
    honest = agent.impl;
    assert_int_equal(honest->updater(&agent, env, &(trp_updater_options){0}, &updater), TRP_OK);
    failing_updater = *updater->impl;
    honest_step = failing_updater.step;
    trp_updater_destroy(updater);
    failing_updater.step = step_or_fail;
    failing_agent = *honest;
    failing_agent.updater = make_failing_updater;
    agent.impl = &failing_agent;
    snprintf(failing, sizeof failing, "%s", node);
    atomic_store(&failures, 0);
    return agent;
}

/* ---- a program ---------------------------------------------------------------------------------
 */

static uint64_t watched_version;
static atomic_bool went_back;

/* Pulls until the end: versions only grow, whoever publishes. */
static trp_status watch(trp_context *context, const void *arg)
{
    trp_params_client *client;
    TRP_TRY(trp_context_params(context, *(const trp_node *)arg, 0, &client));
    while (!trp_stop_wait(trp_context_stop(context), 1)) {
        trp_status status = trp_params_client_pull(client, 1, 0, NULL);
        if (status != TRP_OK)
            return status;
        uint64_t version = trp_params_client_state(client).version;
        if (version < watched_version)
            atomic_store(&went_back, true);
        watched_version = version;
    }
    return TRP_OK;
}

static trp_program *gang_program(const trp_agent *agent, const trp_learner_options *learning)
{
    trp_program *program = trp_program_create("gang");
    trp_node replay = trp_add_replay(program, "replay", &(trp_replay_options){.agent = agent});
    trp_learner_options options = *learning;
    options.agent = agent;
    options.replay = replay;
    options.max_steps = STEPS;
    options.publish_every = 1;
    trp_node learner = trp_add_learner(program, "learner", &options);
    trp_add_actors(
        program, "actor", 1,
        &(trp_actor_options){.agent = agent, .env = "Catch", .replay = replay, .params = learner});
    trp_add_node(program, "watch",
                 &(trp_node_options){.run = watch,
                                     .arg = &learner,
                                     .arg_size = sizeof learner,
                                     .uses = &learner,
                                     .use_count = 1});
    watched_version = 0;
    return program;
}

struct scratch {
    char dir[32];
    char *run;
};

static int setup(void **state)
{
    struct scratch *scratch = xcalloc(1, sizeof *scratch);
    strcpy(scratch->dir, "/tmp/test_gangs.XXXXXX");
    assert_non_null(mkdtemp(scratch->dir));
    scratch->run = xasprintf("%s/run", scratch->dir);
    *state = scratch;
    return 0;
}

static int teardown(void **state)
{
    struct scratch *scratch = *state;
    char *command = xasprintf("rm -rf %s", scratch->dir);
    assert_int_equal(system(command), 0);
    free(command);
    free(scratch->run);
    free(scratch);
    return 0;
}

/* One more is kept. */
static uint64_t last_generation(const struct scratch *scratch)
{
    char *path = xasprintf("%s/generations", scratch->run);
    FILE *file = fopen(path, "re");
    uint64_t number = 0;
    assert_non_null(file);
    assert_int_equal(fscanf(file, "learner %lu", &number), 1);
    fclose(file);
    free(path);
    return number - 1;
}

static trp_status run(const struct scratch *scratch, const trp_agent *agent,
                      const trp_learner_options *learning, trp_run_result *result)
{
    trp_program *program = gang_program(agent, learning);
    trp_status status =
        trp_run(program, &(trp_run_options){.run_dir = scratch->run, .seed = 1}, result);
    trp_program_destroy(program);
    return status;
}

/* ---- tests -------------------------------------------------------------------------------------
 */

static void a_thread_that_fails_begins_again(void **state)
{
    struct scratch *scratch = *state;
    static const char *const nodes[] = {"learner/0", "learner/1"};
    comes_back = true;
    for (size_t i = 0; i < 2; i++) {
        trp_agent agent = agent_that_fails(nodes[i]);
        trp_run_result result;
        assert_int_equal(run(scratch, &agent,
                             &(trp_learner_options){
                                 .count = 2, .on_failure = TRP_ON_FAILURE_CONTINUE, .restarts = 1},
                             &result),
                         TRP_OK);
        assert_non_null(strstr(result.reason, "400 learner steps done"));
        assert_true(atomic_load(&failures) > 1); /* it made steps again */
        assert_int_equal(last_generation(scratch), 3);
        assert_false(atomic_load(&went_back));
        assert_true(watched_version > FAILING_STEP);
        teardown(state);
        setup(state);
        scratch = *state;
    }
    comes_back = false;
}

/* One more has to be left, and none is below 0. */
static void numbers_of_generations_that_cannot_be_are_refused(void **state)
{
    static const char *const numbers[] = {"18446744073709551615", "-5", "many"};
    struct scratch *scratch = *state;
    trp_agent agent = agent_that_fails("nobody");
    trp_learner_options learning = {.count = 2};
    trp_run_result result;
    assert_int_equal(run(scratch, &agent, &learning, &result), TRP_OK);
    for (size_t i = 0; i < 3; i++) {
        char *command = xasprintf("echo learner %s >%s/generations", numbers[i], scratch->run);
        assert_int_equal(system(command), 0);
        free(command);
        trp_program *program = gang_program(&agent, &learning);
        trp_run_options again = {.run_dir = scratch->run, .resume = true, .max_seconds = 60};
        assert_int_not_equal(trp_run(program, &again, &result), TRP_OK);
        trp_program_destroy(program);
    }
}

static void a_thread_that_fails_may_stay_away(void **state)
{
    struct scratch *scratch = *state;
    trp_agent agent = agent_that_fails("learner/0");
    trp_run_result result;
    assert_int_equal(run(scratch, &agent,
                         &(trp_learner_options){.count = 3, .on_failure = TRP_ON_FAILURE_CONTINUE},
                         &result),
                     TRP_OK);
    assert_int_equal(last_generation(scratch), 2);
    assert_int_equal(atomic_load(&failures), 1);
    assert_true(watched_version > FAILING_STEP);
}

static void a_thread_that_fails_may_end_the_program(void **state)
{
    struct scratch *scratch = *state;
    trp_agent agent = agent_that_fails("learner/1");
    trp_run_result result;
    assert_int_equal(run(scratch, &agent, &(trp_learner_options){.count = 2}, &result),
                     TRP_DATA_LOSS);
    assert_string_equal(result.reason, "learner/1: asked to fail");
}

static void too_few_threads_end_the_program(void **state)
{
    struct scratch *scratch = *state;
    trp_agent agent = agent_that_fails("learner/1");
    trp_run_result result;
    assert_int_equal(run(scratch, &agent,
                         &(trp_learner_options){
                             .count = 2, .on_failure = TRP_ON_FAILURE_CONTINUE, .min_learners = 2},
                         &result),
                     TRP_DATA_LOSS);
    assert_non_null(strstr(result.reason, "1 of 2 members of learner are left, it needs 2: "
                                          "learner/1: asked to fail"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_thread_that_fails_begins_again, setup, teardown),
        cmocka_unit_test_setup_teardown(numbers_of_generations_that_cannot_be_are_refused, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_thread_that_fails_may_stay_away, setup, teardown),
        cmocka_unit_test_setup_teardown(a_thread_that_fails_may_end_the_program, setup, teardown),
        cmocka_unit_test_setup_teardown(too_few_threads_end_the_program, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
