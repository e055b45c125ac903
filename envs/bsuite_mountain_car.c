/* bsuite/mountain_car, mountain_car_noise and mountain_car_scale: the car in the valley, with a
 * clock of 1000 steps that it sees and that terminates. Ported from bsuite's
 * environments/mountain_car.py (Apache-2.0; see THIRD_PARTY_NOTICES): double arithmetic in its
 * order of operations, libm's cosine, so that from the same state and actions the trajectory is
 * the same bit for bit. */
#include "builtin.h"

#include <math.h>
#include <string.h>

#include "bsuite.h"

struct car_arguments {
    struct bsuite_arguments base;
};

struct timed_car {
    struct bsuite_copy copy;
    double position, velocity;
    int64_t time;
};

enum { SAVED_BYTES = sizeof(struct timed_car) - BSUITE_SAVED_AT, STEPS_MAX = 1000 };

static const double position_min = -1.2, position_max = 0.6;
static const double speed_max = 0.07;
static const double goal = 0.5;
static const double force = 0.001;
static const double gravity = 0.0025;

BSUITE_OPTIONS(mountain_car, struct car_arguments, 19);
BSUITE_OPTIONS(mountain_car_noise, struct car_arguments, 19);
BSUITE_OPTIONS(mountain_car_scale, struct car_arguments, 19);

static trp_status timed_car_reset(void *state, trp_rng *rng)
{
    struct timed_car *s = state;
    s->position = -0.6 + trp_rng_double(rng) * (-0.4 - -0.6);
    s->velocity = 0;
    s->time = 0;
    return TRP_OK;
}

static double hold(double value, double low, double high)
{
    return value < low ? low : value > high ? high : value;
}

static trp_status timed_car_step(void *state, trp_rng *rng, const void *action,
                                 trp_env_outcome *outcome)
{
    struct timed_car *s = state;
    s->time++;
    outcome->reward = bsuite_reward(&s->copy, rng, -1);
    bsuite_add(&s->copy, -1);
    s->velocity += (*(const int32_t *)action - 1) * force + cos(3 * s->position) * -gravity;
    s->velocity = hold(s->velocity, -speed_max, speed_max);
    s->position = hold(s->position + s->velocity, position_min, position_max);
    if (s->position == position_min)
        s->velocity = hold(s->velocity, 0, speed_max);
    if (s->position >= goal || s->time >= STEPS_MAX)
        bsuite_end(&s->copy, outcome);
    return TRP_OK;
}

static void timed_car_observe(const void *state, void *const *observations)
{
    const struct timed_car *s = state;
    float *row = observations[0];
    row[0] = (float)s->position;
    row[1] = (float)s->velocity;
    row[2] = (float)((double)s->time / STEPS_MAX);
}

static void timed_car_save(const void *state, void *saved)
{
    memcpy(saved, (const uint8_t *)state + BSUITE_SAVED_AT, SAVED_BYTES);
}

static trp_status timed_car_load(void *state, const void *saved)
{
    struct timed_car *s = state, loaded = *s;
    memcpy((uint8_t *)&loaded + BSUITE_SAVED_AT, saved, SAVED_BYTES);
    TRP_TRY(bsuite_check_count(&loaded.copy));
    bool inside = loaded.position >= position_min && loaded.position <= position_max &&
                  fabs(loaded.velocity) <= speed_max && loaded.time >= 0 && loaded.time < STEPS_MAX;
    if (!inside)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "bsuite's mountain car: position %g, velocity %g, time %lld",
                        loaded.position, loaded.velocity, (long long)loaded.time);
    *s = loaded;
    return TRP_OK;
}

#define TIMED_CAR(word)                                                                            \
    {                                                                                              \
        .spec = {.name = "bsuite/" #word,                                                          \
                 .observations =                                                                   \
                     {{.name = "observation", .dtype = TRP_FLOAT32, .rank = 2, .shape = {1, 3}}},  \
                 .action_kind = TRP_ACTION_DISCRETE,                                               \
                 .action_count = 3},                                                               \
        .state_bytes = sizeof(struct timed_car), .options = &word##_table,                         \
        .configure = bsuite_configure, .create = bsuite_create, .reset = timed_car_reset,          \
        .step = timed_car_step, .observe = timed_car_observe, .saved_bytes = SAVED_BYTES,          \
        .save = timed_car_save, .load = timed_car_load,                                            \
    }

const trp_env_impl bsuite_mountain_car_impl = TIMED_CAR(mountain_car);
const trp_env_impl bsuite_mountain_car_noise_impl = TIMED_CAR(mountain_car_noise);
const trp_env_impl bsuite_mountain_car_scale_impl = TIMED_CAR(mountain_car_scale);
