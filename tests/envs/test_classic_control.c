/* Classic control moves as Gymnasium's, bit for bit. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/env.h>
#include "tests/golden/classic_control.h"

enum { NUMBERS_MAX = 6, STATE_BYTES_MAX = 64 };

struct copy {
    trp_env *env;
    float observation[NUMBERS_MAX], last[NUMBERS_MAX], reward;
    bool terminated, truncated;
    void *rows[1], *lasts[1];
};

static void copy_create(struct copy *copy, const char *name)
{
    *copy = (struct copy){.rows = {copy->observation}, .lasts = {copy->last}};
    assert_int_equal(trp_env_create(&copy->env, name, NULL), TRP_OK);
    assert_true(trp_env_state_bytes(copy->env) <= STATE_BYTES_MAX);
}

static void copy_step(struct copy *copy, float number)
{
    int32_t choice = (int32_t)number;
    bool box = trp_env_get_spec(copy->env)->action_kind == TRP_ACTION_BOX;
    const trp_env_buffers buffers = {
        copy->rows, copy->lasts, &copy->reward, &copy->terminated, &copy->truncated, NULL, NULL};
    const void *action = box ? (const void *)&number : &choice;
    assert_int_equal(trp_env_step(copy->env, action, &buffers), TRP_OK);
}

/* A state begins with the doubles of a golden one; what follows is 0 at the start of an episode. */
static void copy_start(struct copy *copy, const double *state, size_t numbers)
{
    uint8_t bytes[STATE_BYTES_MAX] = {0};
    memcpy(bytes, state, numbers * sizeof *state);
    assert_int_equal(trp_env_set_state(copy->env, 0, NULL, bytes, copy->rows), TRP_OK);
}

static void assert_state(const struct copy *copy, const double *state, size_t numbers)
{
    uint8_t bytes[STATE_BYTES_MAX];
    assert_int_equal(trp_env_get_state(copy->env, 0, NULL, bytes), TRP_OK);
    assert_memory_equal(bytes, state, numbers * sizeof *state);
}

struct golden {
    const char *name;
    const struct golden_step *rows;
    size_t count, numbers;             /* rows; doubles of a state */
    int starts, terminated, truncated; /* how many there must be */
};

static void assert_moves_as(const struct golden *golden)
{
    struct copy copy;
    int starts = 0, terminated = 0, truncated = 0;
    copy_create(&copy, golden->name);
    size_t bytes = trp_tensor_bytes(&trp_env_get_spec(copy.env)->observations[0]);
    for (size_t i = 0; i < golden->count; i++) {
        const struct golden_step *row = &golden->rows[i];
        if (row->steps == 0) {
            copy_start(&copy, row->state, golden->numbers);
            starts++;
            continue;
        }
        for (int32_t k = 0; k < row->steps; k++) {
            copy_step(&copy, row->action);
            assert_true(k + 1 == row->steps || (!copy.terminated && !copy.truncated));
        }
        bool end = row->terminated || row->truncated;
        assert_memory_equal(end ? copy.last : copy.observation, row->observation, bytes);
        assert_memory_equal(&copy.reward, &row->reward, sizeof(float));
        assert_int_equal(copy.terminated, row->terminated);
        assert_int_equal(copy.truncated, row->truncated);
        if (!end)
            assert_state(&copy, row->state, golden->numbers);
        terminated += row->terminated;
        truncated += row->truncated;
    }
    assert_int_equal(starts, golden->starts);
    assert_int_equal(terminated, golden->terminated);
    assert_int_equal(truncated, golden->truncated);
    trp_env_destroy(copy.env);
}

#define GOLDEN(rows) golden_##rows, sizeof golden_##rows / sizeof golden_##rows[0]

static void mountain_car_moves_as_gymnasiums_bit_for_bit(void **state)
{
    (void)state;
    assert_moves_as(&(struct golden){"MountainCar-v0", GOLDEN(mountain_car), 2, 8, 3, 1});
}

static void continuous_mountain_car_moves_as_gymnasiums_bit_for_bit(void **state)
{
    (void)state;
    assert_moves_as(
        &(struct golden){"MountainCarContinuous-v0", GOLDEN(mountain_car_continuous), 2, 11, 4, 1});
}

static void acrobot_moves_as_gymnasiums_bit_for_bit(void **state)
{
    (void)state;
    assert_moves_as(&(struct golden){"Acrobot-v1", GOLDEN(acrobot), 4, 13, 10, 1});
}

static void pendulum_moves_as_gymnasiums_bit_for_bit(void **state)
{
    (void)state;
    assert_moves_as(&(struct golden){"Pendulum-v1", GOLDEN(pendulum), 2, 17, 0, 4});
    assert_moves_as(&(struct golden){"Pendulum-v1?g=1.62", GOLDEN(moon_pendulum), 2, 2, 0, 0});
}

/* ---- starts ------------------------------------------------------------------------------- */

enum { STARTS = 2000 };

/* First states of many episodes: each number within [low, high], and their mean in the middle. */
static void assert_starts(const char *name, size_t at, double low, double high)
{
    struct copy copy;
    double sum = 0, spread = high - low, middle = (low + high) / 2, least = high, most = low;
    copy_create(&copy, name);
    for (int i = 0; i < STARTS; i++) {
        double numbers[STATE_BYTES_MAX / sizeof(double)];
        assert_int_equal(trp_env_reset(copy.env, copy.rows), TRP_OK);
        assert_int_equal(trp_env_get_state(copy.env, 0, NULL, numbers), TRP_OK);
        assert_true(numbers[at] >= low && numbers[at] <= high);
        sum += numbers[at];
        least = fmin(least, numbers[at]);
        most = fmax(most, numbers[at]);
    }
    assert_true(fabs(sum / STARTS - middle) <= 0.05 * spread);
    assert_true(most - least >= 0.98 * spread);
    trp_env_destroy(copy.env);
}

static void episodes_start_where_gymnasiums_do(void **state)
{
    (void)state;
    assert_starts("MountainCar-v0", 0, -0.6, -0.4);
    assert_starts("MountainCar-v0", 1, 0, 0);
    assert_starts("MountainCarContinuous-v0", 0, -0.6, -0.4);
    assert_starts("MountainCarContinuous-v0", 1, 0, 0);
    for (size_t i = 0; i < 4; i++)
        assert_starts("Acrobot-v1", i, -0.1f, 0.1f);
    assert_starts("Pendulum-v1", 0, -M_PI, M_PI);
    assert_starts("Pendulum-v1", 1, -1, 1);
}

static void acrobots_first_state_is_rounded_to_floats(void **state)
{
    (void)state;
    struct copy copy;
    double numbers[4];
    copy_create(&copy, "Acrobot-v1");
    assert_int_equal(trp_env_reset(copy.env, copy.rows), TRP_OK);
    assert_int_equal(trp_env_get_state(copy.env, 0, NULL, numbers), TRP_OK);
    for (int i = 0; i < 4; i++)
        assert_true(numbers[i] == (float)numbers[i]);
    trp_env_destroy(copy.env);
}

static void states_that_cannot_be_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double numbers[4];
    } cases[] = {
        {"MountainCar-v0", {1.3, 0}},
        {"MountainCar-v0", {NAN, 0}},
        {"MountainCar-v0", {0, 0.08}},
        {"MountainCarContinuous-v0", {-1.3, 0}},
        {"MountainCarContinuous-v0", {0, NAN}},
        {"MountainCarContinuous-v0", {0, 0, 1}}, /* no flag */
        {"Acrobot-v1", {1e9, 0, 0, 0}},
        {"Acrobot-v1", {0, 0, NAN, 0}},
        {"Acrobot-v1", {0, 0, 0, 29}},
        {"Pendulum-v1", {INFINITY, 0}},
        {"Pendulum-v1", {NAN, 0}},
        {"Pendulum-v1", {0, 8.1}},
        {"Pendulum-v1", {0, NAN}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct copy copy;
        uint8_t bytes[STATE_BYTES_MAX] = {0};
        copy_create(&copy, cases[i].name);
        memcpy(bytes, cases[i].numbers, sizeof cases[i].numbers);
        assert_int_equal(trp_env_set_state(copy.env, 0, NULL, bytes, copy.rows),
                         TRP_INVALID_ARGUMENT);
        trp_env_destroy(copy.env);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mountain_car_moves_as_gymnasiums_bit_for_bit),
        cmocka_unit_test(continuous_mountain_car_moves_as_gymnasiums_bit_for_bit),
        cmocka_unit_test(acrobot_moves_as_gymnasiums_bit_for_bit),
        cmocka_unit_test(pendulum_moves_as_gymnasiums_bit_for_bit),
        cmocka_unit_test(episodes_start_where_gymnasiums_do),
        cmocka_unit_test(acrobots_first_state_is_rounded_to_floats),
        cmocka_unit_test(states_that_cannot_be_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
