/* Pendulum-v1: a rod that a weak motor at its joint swings up and holds. Ported from Gymnasium's
 * classic_control/pendulum.py (MIT; see THIRD_PARTY_NOTICES), with its argument g; from the same
 * state and actions the trajectory is the same bit for bit. There, states are doubles and torques
 * floats, which NumPy squares by libm's powf() and multiplies as floats; squares of doubles are
 * libm's pow(). Both differ now and then from a product in the last bit. Start states come from
 * our generator. */
#include "builtin.h"

#include <math.h>
#include <string.h>

struct pendulum_arguments {
    double g;
};

struct pendulum {
    double angle, velocity; /* first: what is saved */
    double pull;            /* what gravity accelerates the rod by when it is level */
};

static const double dt = 0.05;
static const double speed_max = 8;
static const float torque_max = 2;
static const double start_speed = 1;

static const trp_option rows[] = {
    {TRP_OPTION(struct pendulum_arguments, g), .fallback = "10", .min = -1e6, .max = 1e6,
     .unit = "m/s^2", .help = "gravity"},
};
static const trp_option_table table =
    TRP_OPTION_TABLE("Pendulum-v1", rows, struct pendulum_arguments);

static trp_status pendulum_create(void *state, const void *arguments, void *user)
{
    (void)user;
    ((struct pendulum *)state)->pull = 3 * ((const struct pendulum_arguments *)arguments)->g / 2;
    return TRP_OK;
}

static trp_status pendulum_reset(void *state, trp_rng *rng)
{
    struct pendulum *s = state;
    s->angle = -M_PI + trp_rng_double(rng) * (M_PI - -M_PI);
    s->velocity = -start_speed + trp_rng_double(rng) * (start_speed - -start_speed);
    return TRP_OK;
}

/* Python's x % m: the sign is m's. */
static double modulo(double x, double m)
{
    double rest = fmod(x, m);
    return rest < 0 ? rest + m : rest;
}

static trp_status pendulum_step(void *state, trp_rng *rng, const void *action,
                                trp_env_outcome *outcome)
{
    (void)rng;
    struct pendulum *s = state;
    float torque = fmaxf(-torque_max, fminf(*(const float *)action, torque_max));
    double upright = modulo(s->angle + M_PI, 2 * M_PI) - M_PI;
    double cost = pow(upright, 2) + 0.1 * pow(s->velocity, 2) + (double)(0.001F * powf(torque, 2));
    double velocity = s->velocity + (s->pull * sin(s->angle) + (double)(3 * torque)) * dt;
    s->velocity = fmax(-speed_max, fmin(velocity, speed_max));
    s->angle += s->velocity * dt;
    outcome->reward = (float)-cost;
    return TRP_OK;
}

static void pendulum_observe(const void *state, void *const *observations)
{
    const struct pendulum *s = state;
    float *row = observations[0];
    row[0] = (float)cos(s->angle);
    row[1] = (float)sin(s->angle);
    row[2] = (float)s->velocity;
}

enum { SAVED_BYTES = 2 * sizeof(double) };

static void pendulum_save(const void *state, void *saved)
{
    memcpy(saved, state, SAVED_BYTES);
}

static trp_status pendulum_load(void *state, const void *saved)
{
    double numbers[2];
    memcpy(numbers, saved, sizeof numbers);
    if (!isfinite(numbers[0]) || !(fabs(numbers[1]) <= speed_max))
        return trp_fail(TRP_INVALID_ARGUMENT, "Pendulum-v1: angle %g, velocity %g", numbers[0],
                        numbers[1]);
    memcpy(state, numbers, sizeof numbers);
    return TRP_OK;
}

const trp_env_impl pendulum_impl = {
    .spec =
        {
            .name = "Pendulum-v1",
            .observations =
                {{.name = "observation", .dtype = TRP_FLOAT32, .rank = 1, .shape = {3}}},
            .action_kind = TRP_ACTION_BOX,
            .action_count = 1,
            .action_low = (const float[]){-2},
            .action_high = (const float[]){2},
            .max_episode_steps = 200,
        },
    .state_bytes = sizeof(struct pendulum),
    .options = &table,
    .create = pendulum_create,
    .reset = pendulum_reset,
    .step = pendulum_step,
    .observe = pendulum_observe,
    .saved_bytes = SAVED_BYTES,
    .save = pendulum_save,
    .load = pendulum_load,
};
