/* All environments that come with Troupe through the public interface with automatic reset, 1024
 * copies on one core, in turn with a bare loop over an array of states (the environment's own step,
 * reset and observation, no checks, no flags, no final observations) and, with --peer DIR, with
 * Gymnasium's vector environment of as many copies; CartPole's dynamics written into the loop; and
 * what normalising wrappers cost, in turn with the environment that they are around. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/env.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "envs/class.h"
#include "torch_peer.h"

enum {
    COPIES = 1024,
    STEPS = 100,  /* a run is 100 k steps of single copies: short, so that the best of them */
    REPEATS = 60, /* had the processor for itself */
    TURNS = 3,    /* of a peer, which needs a second */
    ROW_MAX = 128,
};

struct bench {
    trp_env *env;
    const struct env_class *class; /* of the bare loop, whose copies follow */
    uint8_t *bare;
    size_t stride;
    int64_t bare_steps[COPIES];
    double (*states)[4];
    float *observations, *finals, *rewards, *discounts;
    bool *terminated, *truncated;
    int32_t *actions; /* STEPS rows of COPIES */
    trp_rng rng;
};

static int64_t time_ns(void (*run)(struct bench *bench), struct bench *bench)
{
    int64_t start = clock_now_ns(&clock_monotonic);
    run(bench);
    return clock_now_ns(&clock_monotonic) - start;
}

static double rate_of(int64_t ns)
{
    return (double)COPIES * STEPS / (double)ns * 1e3;
}

static void check(trp_status status)
{
    if (status == TRP_OK)
        return;
    fprintf(stderr, "bench_env: %s\n", trp_last_error());
    exit(1);
}

/* The best of many runs of each, in turn. */
static void best_rates(struct bench *bench, void (*const runs[2])(struct bench *bench),
                       double rates[2])
{
    int64_t best[2] = {INT64_MAX, INT64_MAX};
    for (int i = 0; i < 2 * REPEATS; i++) {
        int64_t ns = time_ns(runs[i % 2], bench);
        best[i % 2] = ns < best[i % 2] ? ns : best[i % 2];
    }
    for (int i = 0; i < 2; i++)
        rates[i] = fmax(rates[i], rate_of(best[i]));
}

/* ---- CartPole's dynamics in the loop ------------------------------------------------------ */

static void bare_reset(double s[4], trp_rng *rng)
{
    for (int i = 0; i < 4; i++)
        s[i] = trp_rng_double(rng) * 0.1 - 0.05;
}

static bool bare_step(double s[4], int32_t action)
{
    double force = action == 1 ? 10.0 : -10.0;
    double cosine = cos(s[2]);
    double sine = sin(s[2]);
    double temp = (force + 0.05 * (s[3] * s[3]) * sine) / 1.1;
    double theta_acc =
        (9.8 * sine - cosine * temp) / (0.5 * (4.0 / 3.0 - 0.1 * (cosine * cosine) / 1.1));
    double x_acc = temp - 0.05 * theta_acc * cosine / 1.1;
    s[0] += 0.02 * s[1];
    s[1] += 0.02 * x_acc;
    s[2] += 0.02 * s[3];
    s[3] += 0.02 * theta_acc;
    return fabs(s[0]) > 2.4 || fabs(s[2]) > 12 * 2 * M_PI / 360;
}

static void run_dynamics(struct bench *bench)
{
    for (int step = 0; step < STEPS; step++) {
        const int32_t *actions = bench->actions + step * COPIES;
        for (int i = 0; i < COPIES; i++) {
            if (bare_step(bench->states[i], actions[i]))
                bare_reset(bench->states[i], &bench->rng);
            for (int j = 0; j < 4; j++)
                bench->observations[i * 4 + j] = (float)bench->states[i][j];
        }
    }
}

/* ---- the interface ------------------------------------------------------------------------ */

static void run_env(struct bench *bench)
{
    void *rows[] = {bench->observations}, *finals[] = {bench->finals};
    const trp_env_buffers buffers = {
        rows, finals, bench->rewards, bench->terminated, bench->truncated, NULL, NULL};
    for (int step = 0; step < STEPS; step++)
        check(trp_env_step(bench->env, bench->actions + step * COPIES, &buffers));
}

static trp_env *env_open(struct bench *bench, const char *name)
{
    trp_env *env;
    const trp_env_options options = {.count = COPIES, .seed = 1};
    check(trp_env_create(&env, name, &options));
    check(trp_env_reset(env, (void *[]){bench->observations}));
    return env;
}

/* After CartPole's actions were drawn. */
static void normalizing_rows(struct bench *bench)
{
    enum { KINDS = 4 };
    static const char *const keys[KINDS] = {"", "?normalize_observation=10",
                                            "?normalize_return=0.99",
                                            "?normalize_observation=10&normalize_return=0.99"};
    trp_env *envs[KINDS];
    int64_t best[KINDS];
    for (int k = 0; k < KINDS; k++) {
        char name[96];
        snprintf(name, sizeof name, "CartPole-v1%s", keys[k]);
        envs[k] = env_open(bench, name);
        best[k] = INT64_MAX;
    }
    for (int i = 0; i < REPEATS * KINDS; i++) {
        bench->env = envs[i % KINDS];
        int64_t ns = time_ns(run_env, bench);
        best[i % KINDS] = ns < best[i % KINDS] ? ns : best[i % KINDS];
    }
    for (int k = 0; k < KINDS; k++)
        trp_env_destroy(envs[k]);
    for (int k = 1; k < KINDS; k++)
        printf("CartPole-v1%s\t%.2f\tM steps/s\t%.2f\twithout\n", keys[k], rate_of(best[k]),
               rate_of(best[0]));
}

/* ---- the bare loop ------------------------------------------------------------------------ */

static void run_bare(struct bench *bench)
{
    const trp_env_impl *impl = &bench->class->impl;
    int64_t limit = impl->spec.max_episode_steps ? impl->spec.max_episode_steps : INT64_MAX;
    size_t row = trp_tensor_bytes(&impl->spec.observations[0]);
    double infos[TRP_INFOS_MAX];
    for (int step = 0; step < STEPS; step++) {
        const int32_t *actions = bench->actions + step * COPIES;
        for (int i = 0; i < COPIES; i++) {
            void *state = bench->bare + (size_t)i * bench->stride;
            trp_env_outcome outcome = {.discount = 1, .infos = infos};
            check(impl->step(state, &bench->rng, &actions[i], &outcome));
            if (outcome.terminated || ++bench->bare_steps[i] == limit) {
                check(impl->reset(state, &bench->rng));
                bench->bare_steps[i] = 0;
            }
            impl->observe(state, (void *[]){(uint8_t *)bench->observations + (size_t)i * row});
            bench->rewards[i] = outcome.reward;
        }
    }
}

static void bare_create(struct bench *bench, const char *name)
{
    check(env_class_find(name, &bench->class));
    const trp_env_impl *impl = &bench->class->impl;
    bench->stride = (impl->state_bytes + 15) / 16 * 16;
    bench->bare = xcalloc(COPIES, bench->stride);
    for (int i = 0; i < COPIES; i++) {
        void *state = bench->bare + (size_t)i * bench->stride;
        if (impl->create)
            check(impl->create(state, bench->class->arguments, impl->user));
        check(impl->reset(state, &bench->rng));
        bench->bare_steps[i] = 0;
    }
}

static void bare_destroy(struct bench *bench)
{
    const trp_env_impl *impl = &bench->class->impl;
    for (int i = 0; impl->destroy && i < COPIES; i++)
        impl->destroy(bench->bare + (size_t)i * bench->stride);
    free(bench->bare);
}

/* ---- all of them -------------------------------------------------------------------------- */

static void draw_actions(struct bench *bench, const trp_env_spec *spec)
{
    bool box = spec->action_kind == TRP_ACTION_BOX;
    for (int i = 0; i < STEPS * COPIES; i++) {
        if (box) {
            float span = spec->action_high[0] - spec->action_low[0];
            float number = spec->action_low[0] + span * (float)trp_rng_double(&bench->rng);
            memcpy(&bench->actions[i], &number, sizeof number);
        } else {
            bench->actions[i] = (int32_t)trp_rng_below(&bench->rng, (uint64_t)spec->action_count);
        }
    }
}

/* One action of four bytes, one observation that fits: as all built-in ones have. */
static void env_row(struct bench *bench, const char *name, const char *peer)
{
    double rates[2] = {0}, theirs = 0;
    bench->env = env_open(bench, name);
    bare_create(bench, name);
    draw_actions(bench, &bench->class->impl.spec);
    for (int turn = 0; turn < TURNS; turn++) {
        best_rates(bench, (void (*const[2])(struct bench *)){run_env, run_bare}, rates);
        char *words = xasprintf("gymnasium_vector.py '%s' %d", name, COPIES);
        theirs = fmax(theirs, peer_script(peer, "gym", words));
        free(words);
    }
    printf("%s, 1024 copies\t%.2f\tM steps/s\t%.2f\tbare step loop", name, rates[0], rates[1]);
    if (theirs > 0)
        printf("\t%.4f\tGymnasium's vector environment", theirs / 1e6);
    puts("");
    fflush(stdout);
    trp_env_destroy(bench->env);
    bare_destroy(bench);
}

static void dynamics_row(struct bench *bench)
{
    double rates[2] = {0};
    bench->env = env_open(bench, "CartPole-v1");
    draw_actions(bench, trp_env_get_spec(bench->env));
    best_rates(bench, (void (*const[2])(struct bench *)){run_env, run_dynamics}, rates);
    printf("CartPole-v1, beside its dynamics alone\t%.2f\tM steps/s\t%.2f\tbare dynamics\n",
           rates[0], rates[1]);
    trp_env_destroy(bench->env);
}

int main(int argc, char **argv)
{
    const char *peer = torch_peer_dir(argc, argv);
    struct bench bench = {
        .states = xcalloc(COPIES, sizeof *bench.states),
        .observations = xcalloc(COPIES * ROW_MAX, sizeof(float)),
        .finals = xcalloc(COPIES * ROW_MAX, sizeof(float)),
        .rewards = xcalloc(COPIES, sizeof(float)),
        .discounts = xcalloc(COPIES, sizeof(float)),
        .terminated = xcalloc(COPIES, sizeof(bool)),
        .truncated = xcalloc(COPIES, sizeof(bool)),
        .actions = xcalloc(COPIES * STEPS, sizeof(int32_t)),
    };
    trp_rng_init(&bench.rng, 1, 0);
    dynamics_row(&bench); /* its actions serve the wrappers, too */
    normalizing_rows(&bench);
    const trp_env_spec *spec;
    for (size_t i = 0; (spec = trp_env_at(i)); i++)
        env_row(&bench, spec->name, peer);

    free(bench.states);
    free(bench.observations);
    free(bench.finals);
    free(bench.rewards);
    free(bench.discounts);
    free(bench.terminated);
    free(bench.truncated);
    free(bench.actions);
    return 0;
}
