/* CartPole-v1 (Barto, Sutton and Anderson 1983). Ported from Gymnasium's
 * classic_control/cartpole.py (MIT; see THIRD_PARTY_NOTICES): double arithmetic in its order of
 * operations, explicit Euler, libm's sine and cosine, observations rounded to float. From the same
 * state and actions the trajectory is the same bit for bit, which contraction to FMA or
 * reciprocals would break.
 * Only the start states differ: they come from our generator. */
#include "builtin.h"

#include <math.h>
#include <string.h>

struct cartpole {
    double x, x_dot, theta, theta_dot;
};

static const double gravity = 9.8;
static const double mass_pole = 0.1;
static const double total_mass = 0.1 + 1.0;
static const double length = 0.5; /* half the pole's */
static const double pole_mass_length = 0.1 * 0.5;
static const double force_magnitude = 10.0;
static const double tau = 0.02;
static const double theta_threshold = 12 * 2 * M_PI / 360;
static const double x_threshold = 2.4;

static trp_status cartpole_reset(void *state, trp_rng *rng)
{
    struct cartpole *s = state;
    s->x = trp_rng_double(rng) * 0.1 - 0.05;
    s->x_dot = trp_rng_double(rng) * 0.1 - 0.05;
    s->theta = trp_rng_double(rng) * 0.1 - 0.05;
    s->theta_dot = trp_rng_double(rng) * 0.1 - 0.05;
    return TRP_OK;
}

static trp_status cartpole_step(void *state, trp_rng *rng, const void *action,
                                trp_env_outcome *outcome)
{
    (void)rng;
    struct cartpole *s = state;
    double force = *(const int32_t *)action == 1 ? force_magnitude : -force_magnitude;
    double cosine = cos(s->theta);
    double sine = sin(s->theta);
    double temp = (force + pole_mass_length * (s->theta_dot * s->theta_dot) * sine) / total_mass;
    double theta_acc = (gravity * sine - cosine * temp) /
                       (length * (4.0 / 3.0 - mass_pole * (cosine * cosine) / total_mass));
    double x_acc = temp - pole_mass_length * theta_acc * cosine / total_mass;

    s->x = s->x + tau * s->x_dot;
    s->x_dot = s->x_dot + tau * x_acc;
    s->theta = s->theta + tau * s->theta_dot;
    s->theta_dot = s->theta_dot + tau * theta_acc;

    outcome->terminated = s->x < -x_threshold || s->x > x_threshold ||
                          s->theta < -theta_threshold || s->theta > theta_threshold;
    outcome->reward = 1;
    return TRP_OK;
}

static void cartpole_observe(const void *state, void *const *observations)
{
    const struct cartpole *s = state;
    float *row = observations[0];
    row[0] = (float)s->x;
    row[1] = (float)s->x_dot;
    row[2] = (float)s->theta;
    row[3] = (float)s->theta_dot;
}

static void cartpole_save(const void *state, void *saved)
{
    memcpy(saved, state, sizeof(struct cartpole));
}

static trp_status cartpole_load(void *state, const void *saved)
{
    struct cartpole s;
    memcpy(&s, saved, sizeof s);
    if (!isfinite(s.x) || !isfinite(s.x_dot) || !isfinite(s.theta) || !isfinite(s.theta_dot))
        return trp_fail(TRP_INVALID_ARGUMENT, "CartPole-v1: a state of %g %g %g %g", s.x, s.x_dot,
                        s.theta, s.theta_dot);
    memcpy(state, &s, sizeof s);
    return TRP_OK;
}

const trp_env_impl cartpole_impl = {
    .spec =
        {
            .name = "CartPole-v1",
            .observations =
                {{.name = "observation", .dtype = TRP_FLOAT32, .rank = 1, .shape = {4}}},
            .action_kind = TRP_ACTION_DISCRETE,
            .action_count = 2,
            .max_episode_steps = 500,
        },
    .state_bytes = sizeof(struct cartpole),
    .reset = cartpole_reset,
    .step = cartpole_step,
    .observe = cartpole_observe,
    .saved_bytes = sizeof(struct cartpole),
    .save = cartpole_save,
    .load = cartpole_load,
};
