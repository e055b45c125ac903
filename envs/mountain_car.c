/* MountainCar-v0 (Moore 1990; Sutton and Barto 1998): a car in a valley, too weak to drive straight
 * up the right hill. Ported from Gymnasium's classic_control/mountain_car.py (MIT; see
 * THIRD_PARTY_NOTICES): double arithmetic in its order of operations, libm's cosine, observations
 * rounded to float, so that from the same state and actions the trajectory is the same bit for bit.
 * Only the start states differ: they come from our generator. */
#include "builtin.h"

#include <math.h>
#include <string.h>

struct mountain_car {
    double position, velocity;
};

static const double position_min = -1.2, position_max = 0.6;
static const double speed_max = 0.07;
static const double goal = 0.5;
static const double force = 0.001;
static const double gravity = 0.0025;

static double clip(double value, double low, double high)
{
    return value < low ? low : value > high ? high : value;
}

static trp_status mountain_car_reset(void *state, trp_rng *rng)
{
    struct mountain_car *s = state;
    s->position = -0.6 + trp_rng_double(rng) * (-0.4 - -0.6);
    s->velocity = 0;
    return TRP_OK;
}

static trp_status mountain_car_step(void *state, trp_rng *rng, const void *action,
                                    trp_env_outcome *outcome)
{
    (void)rng;
    struct mountain_car *s = state;
    int32_t choice = *(const int32_t *)action;
    s->velocity += (choice - 1) * force + cos(3 * s->position) * -gravity;
    s->velocity = clip(s->velocity, -speed_max, speed_max);
    s->position = clip(s->position + s->velocity, position_min, position_max);
    if (s->position == position_min && s->velocity < 0)
        s->velocity = 0;
    outcome->terminated = s->position >= goal && s->velocity >= 0;
    outcome->reward = -1;
    return TRP_OK;
}

static void mountain_car_observe(const void *state, void *const *observations)
{
    const struct mountain_car *s = state;
    float *row = observations[0];
    row[0] = (float)s->position;
    row[1] = (float)s->velocity;
}

static void mountain_car_save(const void *state, void *saved)
{
    memcpy(saved, state, sizeof(struct mountain_car));
}

static trp_status mountain_car_load(void *state, const void *saved)
{
    struct mountain_car s;
    memcpy(&s, saved, sizeof s);
    if (!(fabs(s.position) <= -position_min) || !(fabs(s.velocity) <= speed_max))
        return trp_fail(TRP_INVALID_ARGUMENT, "MountainCar-v0: position %g, velocity %g",
                        s.position, s.velocity);
    memcpy(state, &s, sizeof s);
    return TRP_OK;
}

const trp_env_impl mountain_car_impl = {
    .spec =
        {
            .name = "MountainCar-v0",
            .observations =
                {{.name = "observation", .dtype = TRP_FLOAT32, .rank = 1, .shape = {2}}},
            .action_kind = TRP_ACTION_DISCRETE,
            .action_count = 3,
            .max_episode_steps = 200,
        },
    .state_bytes = sizeof(struct mountain_car),
    .reset = mountain_car_reset,
    .step = mountain_car_step,
    .observe = mountain_car_observe,
    .saved_bytes = sizeof(struct mountain_car),
    .save = mountain_car_save,
    .load = mountain_car_load,
};
