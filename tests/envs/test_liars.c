/* Environments that say what cannot be, and those that promise not to. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/env.h>
#include "envs/class.h"

/* What is wrong with the next step; the action says it. */
enum lie {
    LIE_NONE,
    LIE_NAN_REWARD,
    LIE_INFINITE_REWARD,
    LIE_LARGE_DISCOUNT,
    LIE_SMALL_DISCOUNT,
    LIE_NAN_DISCOUNT,
    LIE_OBSERVATION,
    LIE_LAST_OBSERVATION,
    LIE_FIRST_OBSERVATION,
    LIES
};

enum { NUMBERS = 11 };

static size_t lie_at; /* which number of the observation */

struct liar {
    enum lie lie;
};

static trp_status liar_reset(void *state, trp_rng *rng)
{
    struct liar *liar = state;
    (void)rng;
    liar->lie = liar->lie == LIE_FIRST_OBSERVATION ? LIE_OBSERVATION : LIE_NONE;
    return TRP_OK;
}

static trp_status liar_step(void *state, trp_rng *rng, const void *action, trp_env_outcome *outcome)
{
    static const float rewards[LIES] = {1, NAN, INFINITY, 1, 1, 1, 1, 1, 1};
    static const float discounts[LIES] = {1, 1, 1, 1.5F, -0.5F, NAN, 1, 1, 1};
    struct liar *liar = state;
    (void)rng;
    liar->lie = (enum lie) * (const int32_t *)action;
    outcome->reward = rewards[liar->lie];
    outcome->discount = discounts[liar->lie];
    outcome->terminated = liar->lie == LIE_LAST_OBSERVATION || liar->lie == LIE_FIRST_OBSERVATION;
    return TRP_OK;
}

static void liar_observe(const void *state, void *const *observations)
{
    enum lie lie = ((const struct liar *)state)->lie;
    float *numbers = observations[0];
    for (size_t i = 0; i < NUMBERS; i++)
        numbers[i] = FLT_MAX;
    if (lie == LIE_OBSERVATION || lie == LIE_LAST_OBSERVATION)
        numbers[lie_at] = lie_at % 2 ? -INFINITY : NAN;
}

#define LIAR(word, promise)                                                                        \
    {                                                                                              \
        .spec = {.name = word,                                                                     \
                 .observations =                                                                   \
                     {{.name = "numbers", .dtype = TRP_FLOAT32, .rank = 1, .shape = {NUMBERS}}},   \
                 .action_kind = TRP_ACTION_DISCRETE,                                               \
                 .action_count = LIES},                                                            \
        .state_bytes = sizeof(struct liar), .reset = liar_reset, .step = liar_step,                \
        .observe = liar_observe, .finite = promise,                                                \
    }

static const trp_env_impl liar_impl = LIAR("Liar", false), perjurer_impl = LIAR("Perjurer", true);

/* One step as it should be, then one in which the second of two copies lies. */
static trp_status step_of(const char *name, enum lie lie)
{
    trp_env *env;
    const trp_env_spec *spec;
    if (trp_env_find("Liar", &spec) != TRP_OK) {
        assert_int_equal(trp_env_register(&liar_impl), TRP_OK);
        assert_int_equal(trp_env_register(&perjurer_impl), TRP_OK);
    }
    assert_int_equal(trp_env_create(&env, name, &(trp_env_options){.count = 2}), TRP_OK);
    float observations[2 * NUMBERS], finals[2 * NUMBERS], rewards[2];
    bool terminated[2], truncated[2];
    void *rows[] = {observations}, *final_rows[] = {finals};
    trp_env_buffers buffers = {rows, final_rows, rewards, terminated, truncated, NULL, NULL};
    assert_int_equal(trp_env_reset(env, rows), TRP_OK);
    assert_int_equal(trp_env_step(env, (const int32_t[]){0, 0}, &buffers), TRP_OK);
    trp_status status = trp_env_step(env, (const int32_t[]){0, (int32_t)lie}, &buffers);
    trp_env_destroy(env);
    return status;
}

static void
a_reward_that_is_no_number_and_a_discount_out_of_range_are_refused_by_copy_and_step(void **state)
{
    static const char *const words[LIE_OBSERVATION] = {
        [LIE_NAN_REWARD] = "Liar: the reward of copy 1 is nan at step 2 of its episode",
        [LIE_INFINITE_REWARD] = "Liar: the reward of copy 1 is inf at step 2",
        [LIE_LARGE_DISCOUNT] = "the discount of copy 1 is 1.5 at step 2 of its episode: outside of "
                               "its range [0, 1]",
        [LIE_SMALL_DISCOUNT] = "is -0.5 at step 2 of its episode: outside of its range [0, 1]",
        [LIE_NAN_DISCOUNT] = "the discount of copy 1 is nan at step 2",
    };
    (void)state;
    assert_int_equal(step_of("Liar", LIE_NONE), TRP_OK);
    for (int lie = LIE_NONE + 1; lie < LIE_OBSERVATION; lie++) {
        assert_int_equal(step_of("Liar", (enum lie)lie), TRP_OUT_OF_RANGE);
        if (!strstr(trp_last_error(), words[lie]))
            fail_msg("'%s' is not in '%s'", words[lie], trp_last_error());
    }
}

static void every_number_of_an_observation_is_looked_at(void **state)
{
    static const enum lie lies[] = {LIE_OBSERVATION, LIE_LAST_OBSERVATION, LIE_FIRST_OBSERVATION};
    (void)state;
    for (lie_at = 0; lie_at < NUMBERS; lie_at++) {
        for (size_t i = 0; i < 3; i++) {
            char words[128];
            snprintf(words, sizeof words,
                     "Liar: number %zu of the observation of copy 1 is %s, at step %d of its "
                     "episode",
                     lie_at, lie_at % 2 ? "-inf" : "nan", i < 2 ? 2 : 0);
            assert_int_equal(step_of("Liar", lies[i]), TRP_OUT_OF_RANGE);
            assert_string_equal(trp_last_error(), words);
        }
    }
}

static void who_promises_finite_numbers_is_believed_but_in_a_wrapper(void **state)
{
    static const enum lie lies[] = {LIE_OBSERVATION, LIE_LAST_OBSERVATION, LIE_FIRST_OBSERVATION};
    (void)state;
    lie_at = 0;
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(step_of("Perjurer", lies[i]), TRP_OK);
        assert_int_equal(step_of("Perjurer?clip_reward=1", lies[i]), TRP_OUT_OF_RANGE);
    }
    assert_int_equal(step_of("Perjurer", LIE_NAN_REWARD), TRP_OUT_OF_RANGE);
}

/* Of one copy, over a few episodes of random play. */
static void assert_finite_play(const char *name)
{
    enum { NUMBERS_MAX = 2500, STEPS = 500 };
    static float observation[NUMBERS_MAX], final[NUMBERS_MAX];
    float reward;
    bool terminated, truncated;
    void *rows[] = {observation}, *finals[] = {final};
    const trp_env_buffers buffers = {rows, finals, &reward, &terminated, &truncated, NULL, NULL};
    trp_env *env;
    trp_rng rng;
    trp_rng_init(&rng, 1, 0);
    assert_int_equal(trp_env_create(&env, name, &(trp_env_options){.seed = 1}), TRP_OK);
    const trp_env_spec *spec = trp_env_get_spec(env);
    size_t numbers = trp_tensor_bytes(&spec->observations[0]) / sizeof(float);
    assert_in_range(numbers, 1, NUMBERS_MAX);
    assert_int_equal(trp_env_reset(env, rows), TRP_OK);
    for (int step = 0; step < STEPS; step++) {
        for (size_t i = 0; i < numbers; i++)
            assert_true(isfinite(observation[i]) && isfinite(final[i]));
        int32_t action = (int32_t)trp_rng_below(&rng, (uint64_t)spec->action_count);
        assert_int_equal(trp_env_step(env, &action, &buffers), TRP_OK);
    }
    trp_env_destroy(env);
}

static void promises_of_finite_numbers_are_kept(void **state)
{
    (void)state;
    int promises = 0;
    const trp_env_spec *spec;
    for (size_t i = 0; (spec = trp_env_at(i)) && strcmp(spec->name, "Perjurer") != 0; i++) {
        const struct env_class *class;
        assert_int_equal(env_class_find(spec->name, &class), TRP_OK);
        if (!class->impl.finite)
            continue;
        promises++;
        for (uint32_t setting = 0; class->impl.options && setting < 23; setting += 11) {
            char name[96];
            snprintf(name, sizeof name, "%s?setting=%u", spec->name,
                     setting < (uint32_t) class->impl.options->options[0].max
                         ? setting
                         : (uint32_t) class->impl.options->options[0].max);
            assert_finite_play(name);
        }
        if (!class->impl.options)
            assert_finite_play(spec->name);
    }
    assert_true(promises >= 13);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            a_reward_that_is_no_number_and_a_discount_out_of_range_are_refused_by_copy_and_step),
        cmocka_unit_test(every_number_of_an_observation_is_looked_at),
        cmocka_unit_test(who_promises_finite_numbers_is_believed_but_in_a_wrapper),
        cmocka_unit_test(promises_of_finite_numbers_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
