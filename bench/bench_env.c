/* Environments through the public interface with automatic reset, 1024 copies on one core, next to
 * CartPole's bare dynamics in a loop over an array: same arithmetic, same resets, no interface; and
 * what normalising wrappers cost, in turn with the environment that they are around. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <troupe/env.h>
#include "core/alloc.h"
#include "core/clock.h"

enum {
    COPIES = 1024,
    STEPS = 100,  /* a run is 100 k steps of single copies: short, so that the best of them */
    REPEATS = 60, /* had the processor for itself */
    ROW_MAX = 64,
};

struct bench {
    trp_env *env;
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

static double best_rate(void (*run)(struct bench *bench), struct bench *bench)
{
    int64_t best = INT64_MAX;
    for (int i = 0; i < REPEATS; i++) {
        int64_t ns = time_ns(run, bench);
        best = ns < best ? ns : best;
    }
    return rate_of(best);
}

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

static void run_bare(struct bench *bench)
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

static void run_env(struct bench *bench)
{
    void *rows[] = {bench->observations}, *finals[] = {bench->finals};
    const trp_env_buffers buffers = {
        rows, finals, bench->rewards, bench->terminated, bench->truncated, NULL, NULL};
    for (int step = 0; step < STEPS; step++) {
        if (trp_env_step(bench->env, bench->actions + step * COPIES, &buffers) != TRP_OK) {
            fprintf(stderr, "bench_env: %s\n", trp_last_error());
            exit(1);
        }
    }
}

static trp_env *env_open(struct bench *bench, const char *name)
{
    trp_env *env;
    const trp_env_options options = {.count = COPIES, .seed = 1};
    if (trp_env_create(&env, name, &options) != TRP_OK ||
        trp_env_reset(env, (void *[]){bench->observations}) != TRP_OK) {
        fprintf(stderr, "bench_env: %s\n", trp_last_error());
        exit(1);
    }
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

static double env_rate(struct bench *bench, const char *name)
{
    bench->env = env_open(bench, name);
    uint32_t choices = (uint32_t)trp_env_get_spec(bench->env)->action_count;
    for (int i = 0; i < STEPS * COPIES; i++)
        bench->actions[i] = (int32_t)trp_rng_below(&bench->rng, choices);
    double rate = best_rate(run_env, bench);
    trp_env_destroy(bench->env);
    return rate;
}

int main(void)
{
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
    double cartpole = env_rate(&bench, "CartPole-v1"); /* its actions serve the bare loop too */
    double bare = best_rate(run_bare, &bench);
    printf("CartPole-v1, 1024 copies\t%.2f\tM steps/s\t%.2f\tbare dynamics\n", cartpole, bare);
    normalizing_rows(&bench);
    printf("Catch, 1024 copies\t%.2f\tM steps/s\n", env_rate(&bench, "Catch"));

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
