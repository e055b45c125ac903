/* Acrobot-v1 (Sutton 1996, with the equations of Sutton and Barto's book): two links, a motor at
 * the joint between them, swung up until the tip is a link's length above the bar. Ported from
 * Gymnasium's classic_control/acrobot.py (MIT; see THIRD_PARTY_NOTICES): one Runge-Kutta step of
 * fourth order in double, in its order of operations, squares by libm's pow(), which now and then
 * differs from a product in the last bit. From the same state and actions the trajectory is the
 * same bit for bit. Start states come from our generator, rounded to float as there; the sines and
 * cosines of the first observation are rounded from double, where Gymnasium has NumPy's float
 * functions, whose last bit depends on the processor. */
#include "builtin.h"

#include <math.h>
#include <string.h>

enum { ANGLE_1, ANGLE_2, VELOCITY_1, VELOCITY_2, NUMBERS };

struct acrobot {
    double s[NUMBERS];
};

/* Masses, lengths and moments of inertia are 1, a link's centre is at its half. */
static const double dt = 0.2;
static const double gravity = 9.8;
static const double centre = 0.5;
static const double velocity_max[2] = {4 * M_PI, 9 * M_PI};

static trp_status acrobot_reset(void *state, trp_rng *rng)
{
    struct acrobot *acrobot = state;
    for (int i = 0; i < NUMBERS; i++)
        acrobot->s[i] = (float)(-0.1 + trp_rng_double(rng) * (0.1 - -0.1));
    return TRP_OK;
}

static void derivatives(const double s[NUMBERS], double torque, double to[NUMBERS])
{
    double cosine = cos(s[ANGLE_2]), sine = sin(s[ANGLE_2]);
    double v1 = s[VELOCITY_1], v2 = s[VELOCITY_2];
    double d1 = centre * centre + (1 + centre * centre + 2 * centre * cosine) + 1 + 1;
    double d2 = centre * centre + centre * cosine + 1;
    double phi2 = centre * gravity * cos(s[ANGLE_1] + s[ANGLE_2] - M_PI / 2);
    double phi1 = -centre * pow(v2, 2) * sine - 2 * centre * v2 * v1 * sine +
                  (centre + 1) * gravity * cos(s[ANGLE_1] - M_PI / 2) + phi2;
    double acceleration2 = (torque + d2 / d1 * phi1 - centre * pow(v1, 2) * sine - phi2) /
                           (centre * centre + 1 - pow(d2, 2) / d1);
    to[ANGLE_1] = v1;
    to[ANGLE_2] = v2;
    to[VELOCITY_1] = -(d2 * acceleration2 + phi1) / d1;
    to[VELOCITY_2] = acceleration2;
}

static void runge_kutta(double s[NUMBERS], double torque)
{
    static const double ahead[3] = {0.2 / 2.0, 0.2 / 2.0, 0.2};
    double k[4][NUMBERS], at[NUMBERS];
    derivatives(s, torque, k[0]);
    for (int stage = 0; stage < 3; stage++) {
        for (int i = 0; i < NUMBERS; i++)
            at[i] = s[i] + ahead[stage] * k[stage][i];
        derivatives(at, torque, k[stage + 1]);
    }
    for (int i = 0; i < NUMBERS; i++)
        s[i] = s[i] + dt / 6.0 * (k[0][i] + 2 * k[1][i] + 2 * k[2][i] + k[3][i]);
}

static double wrap_angle(double angle)
{
    while (angle > M_PI)
        angle = angle - (M_PI - -M_PI);
    while (angle < -M_PI)
        angle = angle + (M_PI - -M_PI);
    return angle;
}

static double bound(double value, double limit)
{
    return value < -limit ? -limit : value > limit ? limit : value;
}

static trp_status acrobot_step(void *state, trp_rng *rng, const void *action,
                               trp_env_outcome *outcome)
{
    (void)rng;
    double *s = ((struct acrobot *)state)->s;
    runge_kutta(s, *(const int32_t *)action - 1);
    s[ANGLE_1] = wrap_angle(s[ANGLE_1]);
    s[ANGLE_2] = wrap_angle(s[ANGLE_2]);
    s[VELOCITY_1] = bound(s[VELOCITY_1], velocity_max[0]);
    s[VELOCITY_2] = bound(s[VELOCITY_2], velocity_max[1]);
    outcome->terminated = -cos(s[ANGLE_1]) - cos(s[ANGLE_2] + s[ANGLE_1]) > 1;
    outcome->reward = outcome->terminated ? 0 : -1;
    return TRP_OK;
}

static void acrobot_observe(const void *state, void *const *observations)
{
    const double *s = ((const struct acrobot *)state)->s;
    float *row = observations[0];
    row[0] = (float)cos(s[ANGLE_1]);
    row[1] = (float)sin(s[ANGLE_1]);
    row[2] = (float)cos(s[ANGLE_2]);
    row[3] = (float)sin(s[ANGLE_2]);
    row[4] = (float)s[VELOCITY_1];
    row[5] = (float)s[VELOCITY_2];
}

static void acrobot_save(const void *state, void *saved)
{
    memcpy(saved, state, sizeof(struct acrobot));
}

static trp_status acrobot_load(void *state, const void *saved)
{
    struct acrobot loaded;
    memcpy(&loaded, saved, sizeof loaded);
    const double *s = loaded.s;
    bool inside = fabs(s[ANGLE_1]) <= M_PI && fabs(s[ANGLE_2]) <= M_PI &&
                  fabs(s[VELOCITY_1]) <= velocity_max[0] && fabs(s[VELOCITY_2]) <= velocity_max[1];
    if (!inside)
        return trp_fail(TRP_INVALID_ARGUMENT, "Acrobot-v1: angles %g %g, velocities %g %g",
                        s[ANGLE_1], s[ANGLE_2], s[VELOCITY_1], s[VELOCITY_2]);
    memcpy(state, &loaded, sizeof loaded);
    return TRP_OK;
}

const trp_env_impl acrobot_impl = {
    .spec =
        {
            .name = "Acrobot-v1",
            .observations =
                {{.name = "observation", .dtype = TRP_FLOAT32, .rank = 1, .shape = {6}}},
            .action_kind = TRP_ACTION_DISCRETE,
            .action_count = 3,
            .max_episode_steps = 500,
        },
    .state_bytes = sizeof(struct acrobot),
    .reset = acrobot_reset,
    .step = acrobot_step,
    .observe = acrobot_observe,
    .saved_bytes = sizeof(struct acrobot),
    .save = acrobot_save,
    .load = acrobot_load,
};
