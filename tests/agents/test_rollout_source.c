/* Learners that step their own environments: DQN on Catch, batches of rollouts. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/dqn.h>
#include <troupe/publisher.h>
#include "core/alloc.h"

enum { COPIES = 8, STEPS = 60 };

/* ---- an updater that looks on ---------------------------------------------------------------- */

static trp_status looking_step(trp_updater *updater, const trp_update *update)
{
    const trp_batch *batch = &update->batches[0];
    (void)updater;
    assert_int_equal(batch->rows, COPIES);
    for (uint32_t row = 0; row < batch->rows; row++)
        assert_int_equal(batch->policy_versions[row], update->step);
    update->grads[0][0] = 1; /* the parameters change in every step */
    return trp_update_apply(update, 0);
}

static trp_agent dqn;
static const trp_updater_impl looking_updater = {.step = looking_step};

/* DQN's own, but for the updater. */
static trp_status looking_make(const trp_agent *agent, const trp_env_spec *env,
                               const trp_updater_options *options, trp_updater **out)
{
    trp_updater *inner;
    (void)agent;
    TRP_TRY(dqn.impl->updater(&dqn, env, options, &inner));
    trp_updater *updater = calloc(1, sizeof *updater);
    *updater = (trp_updater){.impl = &looking_updater, .source_count = 1, .vector_count = 1};
    updater->sources[0] = (trp_batch_spec){.table = "looked at", .batch_size = COPIES};
    trp_columns_add_all(&updater->sources[0].columns, &inner->sources[0].columns);
    updater->vectors[0] =
        (trp_vector_spec){.name = "params", .count = inner->vectors[0].count, .learned = true};
    trp_updater_destroy(inner);
    *out = updater;
    return TRP_OK;
}

/* ---- learners -------------------------------------------------------------------------------- */

static trp_learner *make_learner(const trp_agent *agent, const char *dir, bool resume,
                                 uint64_t steps)
{
    trp_learner *learner;
    assert_int_equal(
        trp_agent_learner_create(
            &learner, agent,
            &(trp_agent_learner_options){
                .env = "Catch",
                .batch_size = COPIES,
                .rollout = {.name = "learner", .copies = COPIES},
                .seed = 3,
                .loop = {.checkpoint_dir = dir, .resume = resume, .max_steps = steps}}),
        TRP_OK);
    return learner;
}

static double reported(const trp_learner_counters *counters, const char *name)
{
    for (size_t i = 0; i < counters->metric_count; i++)
        if (strcmp(counters->metrics[i].name, name) == 0)
            return counters->metrics[i].value;
    return NAN;
}

static void every_batch_is_made_with_the_parameters_of_the_last_step(void **state)
{
    (void)state;
    trp_agent_impl impl = *dqn.impl;
    trp_agent looking = dqn;
    impl.updater = looking_make;
    looking.impl = &impl;
    trp_learner *learner = make_learner(&looking, NULL, false, STEPS);
    assert_int_equal(trp_learner_run(learner), TRP_OK);
    trp_learner_counters counters = trp_learner_read(learner);
    assert_int_equal(counters.steps, STEPS);
    assert_int_equal(counters.version, STEPS + 1);
    trp_learner_destroy(learner);
}

static void steps_and_episodes_count_as_an_actors(void **state)
{
    (void)state;
    trp_learner *learner = make_learner(&dqn, NULL, false, STEPS);
    assert_int_equal(trp_learner_run(learner), TRP_OK);
    trp_learner_counters counters = trp_learner_read(learner);
    assert_true(reported(&counters, "actor_steps") >= STEPS * COPIES);
    assert_true(reported(&counters, "episodes") > 0);
    assert_true(fabs(reported(&counters, "return")) <= 1);
    assert_false(isnan(reported(&counters, "epsilon")));
    assert_false(isnan(reported(&counters, "loss")));
    /* Reported before the last batch was made. */
    assert_true(counters.actor_steps >= (STEPS - 1) * COPIES);
    assert_true((double)counters.actor_steps < reported(&counters, "actor_steps"));
    trp_learner_destroy(learner);
}

static void a_resumed_learner_counts_on(void **state)
{
    (void)state;
    char dir[] = "/tmp/troupe-rollout-XXXXXX";
    assert_non_null(mkdtemp(dir));
    trp_learner *learner = make_learner(&dqn, dir, false, STEPS);
    assert_int_equal(trp_learner_run(learner), TRP_OK);
    uint64_t before = trp_learner_read(learner).actor_steps;
    trp_learner_destroy(learner);
    learner = make_learner(&dqn, dir, true, 2 * STEPS);
    assert_int_equal(trp_learner_run(learner), TRP_OK);
    trp_learner_counters counters = trp_learner_read(learner);
    assert_int_equal(counters.resumed_from, STEPS);
    assert_int_equal(counters.steps, 2 * STEPS);
    assert_true(counters.actor_steps >= before + (STEPS - 1) * COPIES);
    trp_learner_destroy(learner);
    char *remove = xasprintf("rm -r %s", dir);
    assert_int_equal(system(remove), 0);
    free(remove);
}

static void what_does_not_fit_is_refused_before_the_first_step(void **state)
{
    (void)state;
    trp_source *source;
    trp_agent_rollout_options options = {.copies = COPIES};
    assert_int_equal(trp_agent_rollout_source_create(&source, &dqn, "Nowhere-v1", 1, &options),
                     TRP_NOT_FOUND);
    assert_null(source);
    options.copies = 1 << 20;
    assert_int_equal(trp_agent_rollout_source_create(&source, &dqn, "Catch", 1, &options), TRP_OK);
    trp_learner *learner;
    trp_updater *updater;
    const trp_env_spec *spec;
    assert_int_equal(trp_env_find("Catch", &spec), TRP_OK);
    assert_int_equal(dqn.impl->updater(&dqn, spec, &(trp_updater_options){0}, &updater), TRP_OK);
    assert_int_equal(trp_learner_create(&learner, &(trp_learner_loop_options){.updater = updater,
                                                                              .sources = &source,
                                                                              .source_count = 1}),
                     TRP_OK);
    assert_int_equal(trp_learner_run(learner), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "1048576"));
    trp_learner_destroy(learner);
}

static void a_batch_that_is_not_full_in_time_is_gone_on_with(void **state)
{
    (void)state;
    enum { ITEMS = 50 * COPIES };
    trp_source *source;
    trp_updater *updater;
    const trp_env_spec *env;
    assert_int_equal(trp_env_find("Catch", &env), TRP_OK);
    assert_int_equal(dqn.impl->updater(&dqn, env, &(trp_updater_options){0}, &updater), TRP_OK);
    updater->sources[0].batch_size = ITEMS;
    size_t count = updater->vectors[0].count;
    float *params = xcalloc(count, sizeof *params);
    trp_publisher *publisher = trp_publisher_create(count);
    trp_publisher_publish(publisher, params, 1, 0);
    assert_int_equal(trp_agent_rollout_source_create(
                         &source, &dqn, "Catch", 1,
                         &(trp_agent_rollout_options){.name = "learner", .copies = COPIES}),
                     TRP_OK);
    trp_source_use use = {
        .spec = &updater->sources[0], .held = 1, .params = trp_publisher_service(publisher)};
    assert_int_equal(source->impl->open(source, &use), TRP_OK);
    trp_batch batch;
    trp_status status = TRP_DEADLINE_EXCEEDED;
    int calls = 0;
    while (status == TRP_DEADLINE_EXCEEDED) {
        status = source->impl->next(source, &batch, 0);
        calls++;
    }
    assert_int_equal(status, TRP_OK);
    assert_true(calls > 10); /* each makes a step of every copy, at least */
    assert_int_equal(batch.rows, ITEMS);
    for (uint32_t row = 0; row < ITEMS; row++)
        assert_int_equal(batch.keys[row], row + 1); /* none was thrown away */
    trp_source_destroy(source);
    trp_publisher_destroy(publisher);
    trp_updater_destroy(updater);
    free(params);
}

int main(void)
{
    dqn = trp_dqn(&(trp_dqn_options){.n_step = 1, .hidden = {16}});
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_batch_is_made_with_the_parameters_of_the_last_step),
        cmocka_unit_test(steps_and_episodes_count_as_an_actors),
        cmocka_unit_test(a_resumed_learner_counts_on),
        cmocka_unit_test(what_does_not_fit_is_refused_before_the_first_step),
        cmocka_unit_test(a_batch_that_is_not_full_in_time_is_gone_on_with),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
