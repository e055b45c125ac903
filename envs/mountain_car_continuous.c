/* MountainCarContinuous-v0: the mountain car that is pushed with any force. Ported from
 * Gymnasium's classic_control/continuous_mountain_car.py (MIT; see THIRD_PARTY_NOTICES), the same
 * bit for bit from the same state and actions. There, an episode starts with doubles and goes on
 * with what the first step rounded to floats; NumPy then computes in float, where a Python number
 * beside a float is rounded to one first, and an action outside of its bounds becomes a Python
 * number. Only the start states differ: they come from our generator. */
#include "builtin.h"

#include <math.h>
#include <string.h>

struct car {
    double position, velocity;
    int64_t moved; /* 0 or 1: both are floats from then on */
};

static const double position_min = -1.2, position_max = 0.6;
static const double speed_max = 0.07;
static const double goal = 0.45;
static const double power = 0.0015;

static trp_status continuous_reset(void *state, trp_rng *rng)
{
    struct car *s = state;
    s->position = -0.6 + trp_rng_double(rng) * (-0.4 - -0.6);
    s->velocity = 0;
    s->moved = 0;
    return TRP_OK;
}

/* What a step adds to the velocity. */
static double acceleration(float action, double cosine)
{
    double pull = 0.0025 * cosine;
    if (action < -1 || action > 1)
        return (action > 1 ? power : -power) - pull;
    return action * (float)power - (float)pull;
}

static bool move_doubles(struct car *s, float action)
{
    double velocity = s->velocity + acceleration(action, cos(3 * s->position));
    velocity = fmax(fmin(velocity, speed_max), -speed_max);
    double position = s->position + velocity;
    position = fmax(fmin(position, position_max), position_min);
    if (position == position_min && velocity < 0)
        velocity = 0;
    s->position = (float)position;
    s->velocity = (float)velocity;
    return position >= goal && velocity >= 0;
}

static bool move_floats(struct car *s, float action)
{
    float position = (float)s->position;
    double cosine = cos((double)(3 * position));
    float velocity = (float)s->velocity + (float)acceleration(action, cosine);
    velocity = fmaxf(fminf(velocity, (float)speed_max), (float)-speed_max);
    position += velocity;
    position = fmaxf(fminf(position, (float)position_max), (float)position_min);
    if (position == (float)position_min && velocity < 0)
        velocity = 0;
    s->position = position;
    s->velocity = velocity;
    return position >= (float)goal && velocity >= 0;
}

static trp_status continuous_step(void *state, trp_rng *rng, const void *action,
                                  trp_env_outcome *outcome)
{
    (void)rng;
    struct car *s = state;
    float push = *(const float *)action;
    outcome->terminated = s->moved ? move_floats(s, push) : move_doubles(s, push);
    outcome->reward =
        (float)((outcome->terminated ? 100.0 : 0.0) - (double)push * (double)push * 0.1);
    s->moved = 1;
    return TRP_OK;
}

static void continuous_observe(const void *state, void *const *observations)
{
    const struct car *s = state;
    float *row = observations[0];
    row[0] = (float)s->position;
    row[1] = (float)s->velocity;
}

static void continuous_save(const void *state, void *saved)
{
    memcpy(saved, state, sizeof(struct car));
}

static trp_status continuous_load(void *state, const void *saved)
{
    struct car s;
    memcpy(&s, saved, sizeof s);
    bool inside = fabs(s.position) <= (double)(float)-position_min &&
                  fabs(s.velocity) <= (double)(float)speed_max && (s.moved == 0 || s.moved == 1);
    if (!inside)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "MountainCarContinuous-v0: position %g, velocity %g, moved %lld",
                        s.position, s.velocity, (long long)s.moved);
    memcpy(state, &s, sizeof s);
    return TRP_OK;
}

const trp_env_impl mountain_car_continuous_impl = {
    .spec =
        {
            .name = "MountainCarContinuous-v0",
            .observations =
                {{.name = "observation", .dtype = TRP_FLOAT32, .rank = 1, .shape = {2}}},
            .action_kind = TRP_ACTION_BOX,
            .action_count = 1,
            .action_low = (const float[]){-1},
            .action_high = (const float[]){1},
            .max_episode_steps = 999,
        },
    .state_bytes = sizeof(struct car),
    .reset = continuous_reset,
    .step = continuous_step,
    .observe = continuous_observe,
    .saved_bytes = sizeof(struct car),
    .save = continuous_save,
    .load = continuous_load,
};
