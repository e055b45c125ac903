/* Moments, and the wrappers that normalise with them, against two passes over the same numbers. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/env.h>

enum { NUMBERS = 3, STEPS = 500, COPIES = 2 };

/* ---- walks that say what they showed ------------------------------------------------------------
 */

struct walk {
    float numbers[NUMBERS];
};

static float shown[NUMBERS][2 * COPIES * (STEPS + 1)];
static float paid[2 * COPIES * (STEPS + 1)];
static size_t shown_count, paid_count;
static float break_reward, break_number;

static void walk_draw(struct walk *walk, trp_rng *rng)
{
    for (size_t i = 0; i < NUMBERS; i++) {
        walk->numbers[i] = 1000 * (float)i + (float)trp_rng_normal(rng);
        shown[i][shown_count] = walk->numbers[i];
    }
    shown_count++;
    walk->numbers[0] += break_number;
}

static trp_status walk_reset(void *state, trp_rng *rng)
{
    walk_draw(state, rng);
    return TRP_OK;
}

static trp_status walk_step(void *state, trp_rng *rng, const void *action, trp_env_outcome *outcome)
{
    (void)action;
    walk_draw(state, rng);
    outcome->reward = 3 + (float)trp_rng_normal(rng);
    paid[paid_count++] = outcome->reward;
    outcome->reward += break_reward;
    return TRP_OK;
}

static void walk_observe(const void *state, void *const *observations)
{
    memcpy(observations[0], ((const struct walk *)state)->numbers, NUMBERS * sizeof(float));
}

static const trp_env_impl walk_impl = {
    .spec = {.name = "Walk",
             .observations = {{.dtype = TRP_FLOAT32, .rank = 1, .shape = {NUMBERS}}},
             .action_count = 2},
    .state_bytes = sizeof(struct walk),
    .reset = walk_reset,
    .step = walk_step,
    .observe = walk_observe,
};

static void dots_observe(const void *state, void *const *observations)
{
    (void)state;
    *(uint8_t *)observations[0] = 0;
}

static const trp_env_impl dots_impl = {
    .spec = {.name = "Dots", .observations = {{.dtype = TRP_UINT8}}, .action_count = 2},
    .state_bytes = sizeof(struct walk),
    .reset = walk_reset,
    .step = walk_step,
    .observe = dots_observe,
};

struct play {
    trp_env *env;
    float numbers[COPIES][NUMBERS], rewards[COPIES];
    bool terminated[COPIES], truncated[COPIES];
    void *rows[1];
    int32_t actions[COPIES];
};

static struct play play_begin(const char *name, bool read_only)
{
    struct play play = {0};
    shown_count = paid_count = 0;
    break_reward = break_number = 0;
    assert_int_equal(
        trp_env_create(&play.env, name,
                       &(trp_env_options){.count = COPIES, .seed = 7, .read_only = read_only}),
        TRP_OK);
    return play;
}

static void play_reset(struct play *play)
{
    play->rows[0] = play->numbers;
    assert_int_equal(trp_env_reset(play->env, play->rows), TRP_OK);
}

static trp_status play_step(struct play *play)
{
    play->rows[0] = play->numbers;
    return trp_env_step(play->env, play->actions,
                        &(trp_env_buffers){.observations = play->rows,
                                           .rewards = play->rewards,
                                           .terminated = play->terminated,
                                           .truncated = play->truncated});
}

/* Two passes, the second about the mean of the first. */
static trp_moments two_passes(const double *numbers, size_t count)
{
    long double sum = 0, squares = 0;
    for (size_t i = 0; i < count; i++)
        sum += numbers[i];
    long double mean = sum / count;
    for (size_t i = 0; i < count; i++)
        squares += (numbers[i] - mean) * (numbers[i] - mean);
    return (trp_moments){(double)count, (double)mean, (double)squares};
}

static trp_moments two_passes_float(const float *numbers, size_t count)
{
    double wide[2 * COPIES * (STEPS + 1)];
    for (size_t i = 0; i < count; i++)
        wide[i] = (double)numbers[i];
    return two_passes(wide, count);
}

/* A mean is off by rounding at its own size each time; squares by that of what is subtracted. */
static void assert_same(const trp_moments *got, const trp_moments *expected)
{
    double spread = sqrt(trp_moments_variance(expected));
    double slack = 1e-15 * expected->count * (fabs(expected->mean) + spread);
    assert_float_equal(got->count, expected->count, 0);
    assert_float_equal(got->mean, expected->mean, slack);
    assert_float_equal(got->squares, expected->squares,
                       expected->count * slack * (2 * spread + slack));
}

/* ---- moments ------------------------------------------------------------------------------------
 */

static void
parts_have_the_spread_of_the_whole_where_the_mean_is_a_hundred_million_times_it(void **state)
{
    (void)state;
    enum { COUNT = 4000, PARTS = 7 };
    static double numbers[COUNT];
    trp_moments parts[PARTS] = {0}, whole = {0};
    trp_rng rng;
    trp_rng_init(&rng, 1, 0);
    for (size_t i = 0; i < COUNT; i++) {
        numbers[i] = 1e6 + 1e-2 * trp_rng_normal(&rng);
        trp_moments_add(&parts[i * i % PARTS], numbers[i]);
    }
    for (size_t i = 0; i < PARTS; i++)
        trp_moments_merge(&whole, &parts[i], 1);
    trp_moments expected = two_passes(numbers, COUNT);
    assert_float_equal(whole.count, COUNT, 0);
    assert_float_equal(whole.mean, expected.mean, 1e-8);
    /* A number is rounded by 1e-10, a deviation is 1e-2: a relative error of about 1e-8 each. */
    assert_float_equal(whole.squares, expected.squares, 1e-6 * expected.squares);
    assert_float_equal(sqrt(trp_moments_variance(&whole)), 1e-2, 5e-4);
}

static void nothing_merged_into_something_changes_nothing(void **state)
{
    (void)state;
    const trp_moments before = {3, -2, 5};
    trp_moments some = before, none = {0}, sum = {0};
    trp_moments_merge(&some, &none, 1);
    assert_memory_equal(&some, &before, sizeof some);
    trp_moments_merge(&sum, &some, 1);
    assert_memory_equal(&sum, &some, sizeof some);
    trp_moments_merge(&none, &(trp_moments){0}, 1);
    assert_float_equal(none.mean, 0, 0);
}

static void moments_of_no_numbers_are_refused(void **state)
{
    (void)state;
    static const trp_moments wrong[] = {{-1, 0, 0},       {NAN, 0, 0},  {INFINITY, 0, 0},
                                        {2, NAN, 0},      {2, 0, -1},   {2, 0, INFINITY},
                                        {2, INFINITY, 1}, {1e300, 0, 0}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        trp_moments both[2] = {{1, 1, 0}, wrong[i]};
        assert_int_equal(trp_moments_check(both, 2), TRP_INVALID_ARGUMENT);
        assert_non_null(strstr(trp_last_error(), "statistic 1 has count "));
    }
}

static void moments_that_are_believed_give_what_is_believed(void **state)
{
    (void)state;
    static const double means[] = {1e60, -1e60, 3e38, 1e60};
    trp_moments sum = {0};
    for (size_t i = 0; i < 64; i++) {
        trp_moments part = {0x1p53, means[i % 4], 1e140};
        assert_int_equal(trp_moments_check(&part, 1), TRP_OK);
        trp_moments_merge(&sum, &part, 1);
        assert_int_equal(trp_moments_check(&sum, 1), TRP_OK);
        assert_true(isfinite(trp_moments_variance(&sum)));
    }
}

static void moments_too_large_to_be_added_are_refused(void **state)
{
    (void)state;
    static const trp_moments wrong[] = {{0x1p53, 1e308, 1}, {0x1p53, -1e308, 1}, {2, 0, 1e308}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(trp_moments_check(&wrong[i], 1), TRP_INVALID_ARGUMENT);
}

/* ---- the wrappers -------------------------------------------------------------------------------
 */

static void statistics_are_those_of_all_that_the_copies_showed(void **state)
{
    (void)state;
    struct play play = play_begin("Walk?time_limit=9&normalize_observation=2&frame_stack=1", false);
    assert_int_equal(trp_env_statistics_count(play.env), NUMBERS);
    play_reset(&play);
    for (size_t i = 0; i < STEPS / 2; i++)
        assert_int_equal(play_step(&play), TRP_OK);
    for (size_t i = 0; i < NUMBERS; i++) {
        trp_moments expected = two_passes_float(shown[i], shown_count);
        assert_same(&trp_env_statistics(play.env)[i], &expected);
    }
    trp_env_destroy(play.env);
}

static void observations_are_normalised_and_held_to_the_bound(void **state)
{
    (void)state;
    static const trp_moments given[NUMBERS] = {{100, 0.5, 400}, {100, 990, 100}, {100, 2000, 0}};
    struct play play = play_begin("Walk?normalize_observation=3", false);
    assert_int_equal(trp_env_use_statistics(play.env, given, NUMBERS), TRP_OK);
    play_reset(&play);
    for (size_t copy = 0; copy < COPIES; copy++) {
        assert_float_equal(play.numbers[copy][0], (shown[0][copy] - 0.5F) / 2, 1e-6);
        assert_float_equal(play.numbers[copy][1], 3, 0);        /* ten deviations away */
        assert_float_equal(fabsf(play.numbers[copy][2]), 3, 0); /* there was no deviation */
    }
    trp_env_destroy(play.env);
}

static void rewards_are_divided_by_the_spread_of_returns(void **state)
{
    (void)state;
    static double returns[COPIES * STEPS];
    struct play play = play_begin("Walk?time_limit=10&normalize_return=0.9", false);
    double sums[COPIES] = {0};
    play_reset(&play);
    for (size_t i = 0; i < STEPS; i++) {
        assert_int_equal(play_step(&play), TRP_OK);
        for (size_t copy = 0; copy < COPIES; copy++) {
            size_t at = i * COPIES + copy;
            sums[copy] = (i % 10 == 0 ? 0 : 0.9 * sums[copy]) + (double)paid[at];
            returns[at] = sums[copy];
        }
    }
    trp_moments expected = two_passes(returns, COPIES * STEPS);
    assert_same(trp_env_statistics(play.env), &expected);
    double spread = sqrt(trp_moments_variance(&expected) + 1e-8);
    assert_float_equal(play.rewards[COPIES - 1], (double)paid[paid_count - 1] / spread, 1e-5);
    trp_env_destroy(play.env);
}

static void one_that_is_read_only_adds_nothing_and_pays_what_the_task_pays(void **state)
{
    (void)state;
    static const trp_moments given[NUMBERS + 1] = {
        {10, 0, 40}, {10, 1000, 10}, {10, 2000, 10}, {10, 0, 1e6}};
    struct play play = play_begin("Walk?normalize_observation=10&normalize_return=0.9", true);
    assert_int_equal(trp_env_use_statistics(play.env, given, NUMBERS + 1), TRP_OK);
    play_reset(&play);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(play_step(&play), TRP_OK);
    assert_float_equal(play.rewards[1], paid[paid_count - 1], 0);
    assert_float_equal(play.numbers[1][0], shown[0][shown_count - 1] / 2, 1e-6);
    for (size_t i = 0; i < NUMBERS + 1; i++)
        assert_float_equal(trp_env_statistics(play.env)[i].count, 0, 0);
    trp_env_destroy(play.env);
}

static void what_is_no_number_is_refused_and_not_counted(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct play play = play_begin("Walk?normalize_observation=10&normalize_return=0.9", false);
        play_reset(&play);
        if (i == 0)
            break_number = INFINITY;
        else
            break_reward = NAN;
        assert_int_equal(play_step(&play), TRP_OUT_OF_RANGE);
        assert_non_null(strstr(trp_last_error(), i == 0 ? "is inf" : "is nan"));
        assert_int_equal(
            trp_moments_check(trp_env_statistics(play.env), trp_env_statistics_count(play.env)),
            TRP_OK);
        trp_env_destroy(play.env);
    }
}

static void wrong_statistics_and_pictures_are_refused_by_name(void **state)
{
    (void)state;
    static const trp_moments given[NUMBERS + 1] = {{1, NAN, 0}};
    struct play play = play_begin("Walk?normalize_observation=10", false);
    assert_int_equal(trp_env_use_statistics(play.env, given, NUMBERS + 1), TRP_FAILED_PRECONDITION);
    assert_non_null(strstr(trp_last_error(), "normalise 3 numbers, but statistics of 4"));
    assert_int_equal(trp_env_use_statistics(play.env, given, NUMBERS), TRP_INVALID_ARGUMENT);
    trp_env_destroy(play.env);
    trp_env *env;
    assert_int_equal(trp_env_create(&env, "Dots?normalize_observation=10", NULL),
                     TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "no observation is of float32"));
}

static void a_state_goes_from_one_object_to_another(void **state)
{
    (void)state;
    struct play one = play_begin("Walk?normalize_observation=10&normalize_return=0.9", false);
    play_reset(&one);
    assert_int_equal(play_step(&one), TRP_OK);
    struct play other = play_begin("Walk?normalize_observation=10&normalize_return=0.9", false);
    play_reset(&other);
    uint8_t *saved = malloc(trp_env_state_bytes(one.env));
    trp_env_progress progress;
    assert_non_null(saved);
    assert_int_equal(trp_env_get_state(one.env, 0, &progress, saved), TRP_OK);
    trp_env_destroy(one.env);
    assert_int_equal(trp_env_set_state(other.env, 0, &progress, saved, NULL), TRP_OK);
    assert_int_equal(play_step(&other), TRP_OK);
    assert_float_equal(trp_env_statistics(other.env)[0].count, 2 * COPIES, 0);
    free(saved);
    trp_env_destroy(other.env);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            parts_have_the_spread_of_the_whole_where_the_mean_is_a_hundred_million_times_it),
        cmocka_unit_test(nothing_merged_into_something_changes_nothing),
        cmocka_unit_test(moments_of_no_numbers_are_refused),
        cmocka_unit_test(moments_that_are_believed_give_what_is_believed),
        cmocka_unit_test(moments_too_large_to_be_added_are_refused),
        cmocka_unit_test(statistics_are_those_of_all_that_the_copies_showed),
        cmocka_unit_test(observations_are_normalised_and_held_to_the_bound),
        cmocka_unit_test(rewards_are_divided_by_the_spread_of_returns),
        cmocka_unit_test(one_that_is_read_only_adds_nothing_and_pays_what_the_task_pays),
        cmocka_unit_test(what_is_no_number_is_refused_and_not_counted),
        cmocka_unit_test(wrong_statistics_and_pictures_are_refused_by_name),
        cmocka_unit_test(a_state_goes_from_one_object_to_another),
    };
    if (trp_env_register(&walk_impl) != TRP_OK || trp_env_register(&dots_impl) != TRP_OK)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
