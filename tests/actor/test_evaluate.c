/* Evaluation, on a task small enough to predict: it observes the number of steps so far, ends after
 * its action's number of steps, and pays 1 a step. A limit cuts it off after five. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/actor.h>
#include <troupe/stop.h>
#include "actor/limits.h"
#include "tests/core/captured.h"

struct walk {
    int32_t steps;
};

static trp_status walk_reset(void *state, trp_rng *rng)
{
    (void)rng;
    *(struct walk *)state = (struct walk){0};
    return TRP_OK;
}

static trp_status walk_step(void *state, trp_rng *rng, const void *action, trp_env_outcome *outcome)
{
    (void)rng;
    struct walk *walk = state;
    int32_t length = *(const int32_t *)action;
    if (length == 9)
        return trp_fail(TRP_INTERNAL, "walk: broken");
    outcome->reward = 1;
    outcome->terminated = ++walk->steps >= length;
    return TRP_OK;
}

static void walk_observe(const void *state, void *const *observations)
{
    float *at = observations[0];
    at[0] = (float)((const struct walk *)state)->steps;
    at[1] = -at[0];
}

static const trp_env_impl walk_impl = {
    .spec = {.name = "EvaluatedWalk",
             .observations = {{.name = "o", .dtype = TRP_FLOAT32, .rank = 1, .shape = {2}}},
             .action_kind = TRP_ACTION_DISCRETE,
             .action_count = 10,
             .max_episode_steps = 5},
    .state_bytes = sizeof(struct walk),
    .reset = walk_reset,
    .step = walk_step,
    .observe = walk_observe,
};

/* Nothing but this ends it. */
static int32_t long_walk_steps;

static trp_status long_walk_step(void *state, trp_rng *rng, const void *action,
                                 trp_env_outcome *outcome)
{
    (void)rng, (void)action;
    outcome->terminated = ++((struct walk *)state)->steps >= long_walk_steps;
    return TRP_OK;
}

static const trp_env_impl long_walk_impl = {
    .spec = {.name = "LongWalk",
             .observations = {{.name = "o", .dtype = TRP_FLOAT32, .rank = 1, .shape = {2}}},
             .action_kind = TRP_ACTION_DISCRETE,
             .action_count = 10},
    .state_bytes = sizeof(struct walk),
    .reset = walk_reset,
    .step = long_walk_step,
    .observe = walk_observe,
};

/* A policy that always answers `action`, or each row's copy number + 1. */
struct constant {
    trp_policy base;
    int32_t action; /* 0: copy number + 1 */
    uint64_t steps; /* of its schedules, as it last heard */
};

static trp_status constant_act(trp_policy *base, const trp_act *act)
{
    struct constant *policy = (struct constant *)base;
    int32_t *actions = act->actions;
    policy->steps = act->steps;
    for (uint32_t row = 0; row < act->rows; row++)
        actions[row] = policy->action ? policy->action : (int32_t)act->slots[row] + 1;
    return TRP_OK;
}

static const trp_policy_impl constant_impl = {.act = constant_act};

static struct constant answers(int32_t action)
{
    return (struct constant){.base = {.impl = &constant_impl}, .action = action};
}

static trp_evaluation evaluated(struct constant policy, trp_evaluate_options options)
{
    trp_evaluation result;
    options.env = "EvaluatedWalk";
    if (trp_evaluate(&policy.base, &options, &result) != TRP_OK)
        fail_msg("%s", trp_last_error());
    return result;
}

static void evaluation_gives_mean_deviation_and_extremes(void **state)
{
    (void)state;
    /* Copy i plays episodes of i + 1 steps. */
    trp_evaluation result =
        evaluated(answers(0), (trp_evaluate_options){.episodes = 8, .copies = 4});
    assert_int_equal(result.episodes, 8);
    assert_float_equal(result.mean, 2.5, 1e-12); /* 1, 2, 3, 4, twice each */
    assert_float_equal(result.min, 1, 0);
    assert_float_equal(result.max, 4, 0);
    assert_float_equal(result.std, sqrt(10. / 7), 1e-12);
    assert_float_equal(result.lower, 2.5 - 2 * sqrt(10. / 7 / 8), 1e-12);
    assert_int_equal(result.steps, 20);
}

/* numpy.percentile([1, 1, 2, 2, 3, 3, 4, 4], [5, 25, 50, 75, 95]) */
static void percentiles_are_those_of_numpy(void **state)
{
    (void)state;
    trp_evaluation result =
        evaluated(answers(0), (trp_evaluate_options){.episodes = 8, .copies = 4});
    assert_float_equal(result.p5, 1, 1e-12);
    assert_float_equal(result.p25, 1.75, 1e-12);
    assert_float_equal(result.median, 2.5, 1e-12);
    assert_float_equal(result.p75, 3.25, 1e-12);
    assert_float_equal(result.p95, 4, 1e-12);
}

static void returns_come_in_the_order_in_which_episodes_ended(void **state)
{
    (void)state;
    double returns[6];
    evaluated(answers(0), (trp_evaluate_options){.episodes = 6, .copies = 3, .returns = returns});
    /* The first copy ends after steps 1 and 2, the second after 2 and 4, the third after 3 and 6.
     */
    const double want[] = {1, 1, 2, 3, 2, 3};
    assert_memory_equal(returns, want, sizeof want);
}

static const void *column_of(const trp_episode *episode, const char *name, size_t bytes)
{
    size_t place = trp_columns_find(&episode->columns, name);
    assert_true(place < episode->columns.count);
    assert_int_equal(trp_tensor_bytes(&episode->columns.specs[place]), bytes);
    return episode->data[place];
}

static void check_episode(int32_t action, uint64_t steps, float last_discount)
{
    trp_episode episode = {.rows = 0};
    evaluated(answers(action),
              (trp_evaluate_options){.episodes = 6, .copies = 2, .episode = &episode});
    assert_int_equal(episode.rows, steps + 1);
    assert_int_equal(episode.columns.count, 4);
    const float *observations = column_of(&episode, "observation", 2 * sizeof(float));
    const int32_t *actions = column_of(&episode, "action", sizeof(int32_t));
    const float *rewards = column_of(&episode, "reward", sizeof(float));
    const float *discounts = column_of(&episode, "discount", sizeof(float));
    for (uint64_t row = 0; row <= steps; row++) {
        assert_float_equal(observations[2 * row], (float)row, 0);
        assert_float_equal(observations[2 * row + 1], -(float)row, 0);
        assert_int_equal(actions[row], row < steps ? action : 0);
        assert_float_equal(rewards[row], row < steps ? 1 : 0, 0);
        if (row + 1 < steps)
            assert_float_equal(discounts[row], 1, 0);
    }
    assert_float_equal(discounts[steps - 1], last_discount, 0);
    assert_float_equal(discounts[steps], 0, 0);
    trp_episode_cleanup(&episode);
    assert_null(episode.data);
    trp_episode_cleanup(&episode);
}

static void an_episode_is_recorded_with_its_final_observation(void **state)
{
    (void)state;
    check_episode(3, 3, 0); /* terminated */
    check_episode(8, 5, 1); /* cut off */
}

static void a_policy_that_explores_is_at_the_end_of_its_schedules(void **state)
{
    (void)state;
    struct constant policy = answers(2);
    trp_evaluation result;
    assert_int_equal(trp_evaluate(&policy.base,
                                  &(trp_evaluate_options){.env = "EvaluatedWalk", .episodes = 1},
                                  &result),
                     TRP_OK);
    assert_true(policy.steps == UINT64_MAX);
}

static void every_copy_has_its_share_of_the_episodes(void **state)
{
    (void)state;
    trp_evaluation result =
        evaluated(answers(0), (trp_evaluate_options){.episodes = 5, .copies = 3});
    assert_float_equal(result.mean, (1 + 1 + 2 + 2 + 3) / 5., 1e-12);
}

static void one_episode_has_no_deviation(void **state)
{
    (void)state;
    trp_evaluation result = evaluated(answers(2), (trp_evaluate_options){.episodes = 1});
    assert_float_equal(result.std, 0, 0);
    assert_float_equal(result.lower, 2, 0);
    assert_float_equal(result.p5, 2, 0);
    assert_float_equal(result.p95, 2, 0);
}

static void assert_fails(int32_t action, trp_evaluate_options options, trp_status status)
{
    struct constant policy = answers(action);
    trp_evaluation result;
    assert_int_equal(trp_evaluate(&policy.base, &options, &result), status);
}

static void evaluation_says_what_is_wrong(void **state)
{
    (void)state;
    trp_episode episode = {.rows = 0};
    trp_stop *stop = trp_stop_create();
    trp_stop_request(stop);
    assert_fails(1, (trp_evaluate_options){.env = "NoSuchEnv"}, TRP_NOT_FOUND);
    assert_fails(1, (trp_evaluate_options){.env = "EvaluatedWalk", .episodes = 2000000000},
                 TRP_INVALID_ARGUMENT);
    assert_fails(9, (trp_evaluate_options){.env = "EvaluatedWalk", .episode = &episode},
                 TRP_INTERNAL);
    trp_episode_cleanup(&episode);
    assert_fails(1, (trp_evaluate_options){.env = "EvaluatedWalk", .stop = stop}, TRP_CANCELLED);
    trp_stop_destroy(stop);
}

static unsigned complaints_of(int32_t steps)
{
    struct captured captured;
    struct constant policy = answers(1);
    trp_evaluation result;
    long_walk_steps = steps;
    capture_begin(&captured);
    trp_status status = trp_evaluate(
        &policy.base, &(trp_evaluate_options){.env = "LongWalk", .episodes = 2, .copies = 1},
        &result);
    capture_end(&captured);
    assert_int_equal(status, TRP_OK);
    assert_int_equal(result.steps, 2 * steps);
    return captured_count(&captured, "no episode has ended in the last");
}

static void episodes_without_an_end_are_told(void **state)
{
    (void)state;
    assert_int_equal(complaints_of(EVALUATE_LONG_STEPS), 0);
    assert_int_equal(complaints_of(EVALUATE_LONG_STEPS + 1), 2); /* once of each */
}

int main(void)
{
    if (trp_env_register(&walk_impl) != TRP_OK || trp_env_register(&long_walk_impl) != TRP_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(evaluation_gives_mean_deviation_and_extremes),
        cmocka_unit_test(percentiles_are_those_of_numpy),
        cmocka_unit_test(returns_come_in_the_order_in_which_episodes_ended),
        cmocka_unit_test(an_episode_is_recorded_with_its_final_observation),
        cmocka_unit_test(a_policy_that_explores_is_at_the_end_of_its_schedules),
        cmocka_unit_test(every_copy_has_its_share_of_the_episodes),
        cmocka_unit_test(one_episode_has_no_deviation),
        cmocka_unit_test(evaluation_says_what_is_wrong),
        cmocka_unit_test(episodes_without_an_end_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
