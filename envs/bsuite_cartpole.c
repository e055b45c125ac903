/* bsuite/cartpole, its variants cartpole_noise and cartpole_scale, and bsuite/cartpole_swingup: a
 * pole on a cart that three forces push, steps of 0.01 s for 10 s. Ported from bsuite's
 * environments/cartpole.py and experiments/cartpole_swingup.py (Apache-2.0; see
 * THIRD_PARTY_NOTICES): double arithmetic in its order of operations, libm's functions, squares by
 * pow(), so that from the same state and actions the trajectory is the same bit for bit. */
#include "builtin.h"

#include <math.h>
#include <string.h>

#include "bsuite.h"

struct cartpole_arguments {
    struct bsuite_arguments base;
    double height_threshold, x_reward_threshold; /* of the swing-up */
};

struct pole {
    struct bsuite_copy copy;
    double x, x_dot, theta, theta_dot, time;
};

enum { SAVED_BYTES = sizeof(struct pole) - BSUITE_SAVED_AT };

static const double x_threshold = 3;
static const double timescale = 0.01;
static const double time_max = 10;
static const double start = 0.05;
static const double mass_cart = 1, mass_pole = 0.1, length = 0.5;
static const double force_size = 10;
static const double gravity = 9.8;

BSUITE_OPTIONS(cartpole, struct cartpole_arguments, 19);
BSUITE_OPTIONS(cartpole_noise, struct cartpole_arguments, 19);
BSUITE_OPTIONS(cartpole_scale, struct cartpole_arguments, 19);
BSUITE_OPTIONS(cartpole_swingup, struct cartpole_arguments, 19);

static double draw_start(trp_rng *rng)
{
    return -start + trp_rng_double(rng) * (start - -start);
}

static trp_status pole_reset(void *state, trp_rng *rng)
{
    struct pole *s = state;
    s->x = draw_start(rng);
    s->x_dot = draw_start(rng);
    s->theta = draw_start(rng);
    s->theta_dot = draw_start(rng);
    s->time = 0;
    s->copy.count.running = 0;
    return TRP_OK;
}

/* Python's x % m: the sign is m's. */
static double remainder_of(double x, double m)
{
    double rest = fmod(x, m);
    return rest < 0 ? rest + m : rest;
}

static void pole_move(struct pole *s, int32_t action)
{
    double force = (action - 1) * force_size;
    double cosine = cos(s->theta), sine = sin(s->theta);
    double pole_length = mass_pole * length, mass = mass_cart + mass_pole;
    double temp = (force + pole_length * pow(s->theta_dot, 2) * sine) / mass;
    double theta_acceleration =
        (gravity * sine - cosine * temp) / (length * (4.0 / 3 - mass_pole * pow(cosine, 2) / mass));
    double x_acceleration = temp - pole_length * theta_acceleration * cosine / mass;
    s->x = s->x + timescale * s->x_dot;
    s->x_dot = s->x_dot + timescale * x_acceleration;
    s->theta = remainder_of(s->theta + timescale * s->theta_dot, 2 * M_PI);
    s->theta_dot = s->theta_dot + timescale * theta_acceleration;
    s->time = s->time + timescale;
}

static trp_status balance_step(void *state, trp_rng *rng, const void *action,
                               trp_env_outcome *outcome)
{
    struct pole *s = state;
    pole_move(s, *(const int32_t *)action);
    bool balanced = cos(s->theta) > 0.8 && fabs(s->x) < x_threshold;
    outcome->reward = bsuite_reward(&s->copy, rng, balanced);
    bsuite_add(&s->copy, balanced);
    if (s->time > time_max || !balanced)
        bsuite_end(&s->copy, outcome);
    return TRP_OK;
}

static void pole_observe(const void *state, void *const *observations)
{
    const struct pole *s = state;
    float *row = observations[0];
    row[0] = (float)(s->x / x_threshold);
    row[1] = (float)(s->x_dot / x_threshold);
    row[2] = (float)sin(s->theta);
    row[3] = (float)cos(s->theta);
    row[4] = (float)s->theta_dot;
    row[5] = (float)(s->time / time_max);
}

static void pole_save(const void *state, void *saved)
{
    memcpy(saved, (const uint8_t *)state + BSUITE_SAVED_AT, SAVED_BYTES);
}

static trp_status pole_load(void *state, const void *saved)
{
    struct pole *s = state, loaded = *s;
    memcpy((uint8_t *)&loaded + BSUITE_SAVED_AT, saved, SAVED_BYTES);
    TRP_TRY(bsuite_check_count(&loaded.copy));
    bool inside = fabs(loaded.x) <= x_threshold && isfinite(loaded.x_dot) &&
                  fabs(loaded.theta) <= 2 * M_PI && isfinite(loaded.theta_dot) &&
                  loaded.time >= 0 && loaded.time <= time_max;
    if (!inside)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "bsuite's cartpole: x %g, speed %g, angle %g, speed %g, time %g", loaded.x,
                        loaded.x_dot, loaded.theta, loaded.theta_dot, loaded.time);
    *s = loaded;
    return TRP_OK;
}

/* ---- swinging up ----------------------------------------------------------------------------- */

static const double move_cost = 0.1;
static const double speed_threshold = 1;

static trp_status swingup_configure(void *arguments, void *user, trp_env_spec *spec)
{
    struct cartpole_arguments *task = arguments;
    TRP_TRY(bsuite_configure(arguments, user, spec));
    task->height_threshold = task->base.setting / 20.0;
    task->x_reward_threshold = 1 - task->base.setting / 20.0;
    return TRP_OK;
}

static trp_status swingup_reset(void *state, trp_rng *rng)
{
    TRP_TRY(pole_reset(state, rng));
    ((struct pole *)state)->theta += M_PI;
    return TRP_OK;
}

static trp_status swingup_step(void *state, trp_rng *rng, const void *action,
                               trp_env_outcome *outcome)
{
    struct pole *s = state;
    const struct cartpole_arguments *task = (const void *)s->copy.arguments;
    int32_t choice = *(const int32_t *)action;
    (void)rng;
    pole_move(s, choice);
    bool upright = cos(s->theta) > task->height_threshold && fabs(s->theta_dot) < speed_threshold &&
                   fabs(s->x) < task->x_reward_threshold;
    double reward = -1.0 * (choice != 1) * move_cost;
    if (upright)
        reward += 1;
    outcome->reward = (float)reward;
    bsuite_add(&s->copy, reward);
    if (s->time > time_max || fabs(s->x) > x_threshold)
        bsuite_end(&s->copy, outcome);
    return TRP_OK;
}

static void swingup_observe(const void *state, void *const *observations)
{
    const struct pole *s = state;
    const struct cartpole_arguments *task = (const void *)s->copy.arguments;
    float *row = observations[0];
    pole_observe(state, observations);
    row[6] = fabs(s->x) < task->x_reward_threshold ? 1 : -1;
    row[7] = fabs(s->theta_dot) < speed_threshold ? 1 : -1;
}

#define POLE(word, task, its_configure, width)                                                     \
    {                                                                                              \
        .spec = {.name = "bsuite/" #word,                                                          \
                 .observations = {{.name = "observation",                                          \
                                   .dtype = TRP_FLOAT32,                                           \
                                   .rank = 2,                                                      \
                                   .shape = {1, width}}},                                          \
                 .action_kind = TRP_ACTION_DISCRETE,                                               \
                 .action_count = 3},                                                               \
        .state_bytes = sizeof(struct pole), .options = &word##_table, .configure = its_configure,  \
        .create = bsuite_create, .saved_bytes = SAVED_BYTES, .save = pole_save, .load = pole_load, \
        task                                                                                       \
    }
#define BALANCE .reset = pole_reset, .step = balance_step, .observe = pole_observe
#define SWINGUP .reset = swingup_reset, .step = swingup_step, .observe = swingup_observe

const trp_env_impl bsuite_cartpole_impl = POLE(cartpole, BALANCE, bsuite_configure, 6);
const trp_env_impl bsuite_cartpole_noise_impl = POLE(cartpole_noise, BALANCE, bsuite_configure, 6);
const trp_env_impl bsuite_cartpole_scale_impl = POLE(cartpole_scale, BALANCE, bsuite_configure, 6);
const trp_env_impl bsuite_cartpole_swingup_impl =
    POLE(cartpole_swingup, SWINGUP, swingup_configure, 8);
