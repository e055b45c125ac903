/* Steps of optimizers next to moving what they read and write, and training steps on a machine
 * whose cores are taken.
 *
 * Adam reads four vectors and writes three of them, 28 bytes a parameter. The ceiling is the faster
 * one of two ways to move as many in as much memory with as many threads: the same reads and writes
 * without the arithmetic, and memcpy of 14 bytes a parameter. Adam may be above it, because it has
 * four streams on their way at once. All three take turns over memory of their own, which the
 * others have driven out of the cache, in the time of the slowest thread; the median counts. Beside
 * two busy loops, steps are counted in wall time, in turns with the loops stopped: only on a
 * machine without other work does that say something. */
#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <troupe/nn.h>
#include <troupe/optimizer.h>
#include "bench/median.h"
#include "core/alloc.h"
#include "core/clock.h"
#include "core/thread.h"
#include "core/team.h"
#include "nn/backend.h"

enum { PARAMETERS = 1693362, TURNS = 41, VECTORS = 4, THREADS_MAX = 64, LOOPS = 2 };

/* This thread's own time: the machine may be shared. */
static double own_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static double now_us(void)
{
    return (double)clock_now_ns(&clock_monotonic) / 1e3;
}

static void check(trp_status status)
{
    if (status == TRP_OK)
        return;
    fprintf(stderr, "bench_steps: %s\n", trp_last_error());
    exit(1);
}

/* ---- work of some threads ---------------------------------------------------------------------
 */

struct crew {
    struct team *team; /* NULL: this thread alone */
    uint32_t threads;
};

static struct crew crew_create(uint32_t threads)
{
    struct crew crew = {.threads = threads};
    if (threads > 1)
        check(team_join(&crew.team, threads));
    return crew;
}

static void crew_run(const struct crew *crew, void (*work)(void *arg, uint32_t index), void *arg)
{
    if (crew->team)
        team_run(crew->team, work, arg);
    else
        work(arg, 0);
}

/* ---- an optimizer and a copy -------------------------------------------------------------------
 */

struct steps {
    struct crew crew;
    trp_optimizer optimizer;
    float *vectors[VECTORS]; /* parameters, gradients, state */
    float *copied, *moved;   /* [VECTORS][PARAMETERS] of zeros, each */
    uint64_t step;
    double us[THREADS_MAX]; /* of each thread's own time, for its part of the last piece of work */
};

static void step_work(void *arg, uint32_t index)
{
    struct steps *s = arg;
    size_t lo = team_share(PARAMETERS, index, s->crew.threads);
    size_t hi = team_share(PARAMETERS, index + 1, s->crew.threads);
    trp_optimizer_step(&s->optimizer, s->step, 1, s->vectors[0], s->vectors[1], s->vectors + 2, lo,
                       hi);
}

/* Two vectors become two others, and three quarters of them once more. */
static void copy_work(void *arg, uint32_t index)
{
    struct steps *s = arg;
    size_t lo = team_share(2 * PARAMETERS, index, s->crew.threads);
    size_t whole = team_share(2 * PARAMETERS, index + 1, s->crew.threads) - lo;
    memcpy(s->copied + 2 * PARAMETERS + lo, s->copied + lo, whole * sizeof(float));
    memcpy(s->copied + 2 * PARAMETERS + lo, s->copied + lo, whole / 4 * 3 * sizeof(float));
}

static void move_rows(float *to, const float *more, size_t count)
{
    backend_simd()->activation->add(
        &(struct add_job){.a = to, .b = more, .y = to, .rows = 1, .columns = (uint32_t)count});
}

/* Two read and one written, and twice one read and written. */
static void move_work(void *arg, uint32_t index)
{
    struct steps *s = arg;
    size_t lo = team_share(PARAMETERS, index, s->crew.threads),
           count = team_share(PARAMETERS, index + 1, s->crew.threads) - lo;
    move_rows(s->moved + lo, s->moved + PARAMETERS + lo, count);
    move_rows(s->moved + 2 * PARAMETERS + lo, NULL, count);
    move_rows(s->moved + 3 * PARAMETERS + lo, NULL, count);
}

static void steps_init(struct steps *s, trp_optimizer_kind kind, uint32_t threads)
{
    *s = (struct steps){.crew = crew_create(threads), .optimizer = {.kind = kind}};
    for (size_t i = 0; i < VECTORS; i++) {
        s->vectors[i] = trp_floats_create(PARAMETERS);
        for (size_t k = 0; k < PARAMETERS && i < 2; k++)
            s->vectors[i][k] = (float)(k * 2654435761u % 1000) / 5000 - 0.1f;
    }
    s->copied = trp_floats_create((size_t)VECTORS * PARAMETERS);
    s->moved = trp_floats_create((size_t)VECTORS * PARAMETERS);
}

static void steps_cleanup(struct steps *s)
{
    team_leave(s->crew.team);
    for (size_t i = 0; i < VECTORS; i++)
        trp_floats_destroy(s->vectors[i]);
    trp_floats_destroy(s->copied);
    trp_floats_destroy(s->moved);
}

struct timed_work {
    struct steps *steps;
    void (*work)(void *arg, uint32_t index);
};

static void timed_work(void *arg, uint32_t index)
{
    struct timed_work *timed = arg;
    double start = own_us();
    timed->work(timed->steps, index);
    timed->steps->us[index] = own_us() - start;
}

/* The slowest thread's. */
static double timed(struct steps *s, void (*work)(void *arg, uint32_t index))
{
    double most = 0;
    crew_run(&s->crew, timed_work, &(struct timed_work){s, work});
    for (uint32_t i = 0; i < s->crew.threads; i++)
        most = fmax(most, s->us[i]);
    return most;
}

static void against_a_copy(const char *name, trp_optimizer_kind kind, uint32_t threads)
{
    static double ours[TURNS], copies[2][TURNS];
    struct steps s;
    steps_init(&s, kind, threads);
    for (int turn = -3; turn < TURNS; turn++) {
        s.step++;
        double us[] = {timed(&s, step_work), timed(&s, copy_work), timed(&s, move_work)};
        if (turn < 0)
            continue;
        ours[turn] = us[0];
        copies[0][turn] = us[1];
        copies[1][turn] = us[2];
    }
    double us = median(ours, TURNS), copy = median(copies[0], TURNS);
    copy = fmin(copy, median(copies[1], TURNS));
    printf("%s, %.1f M parameters, %u thread%s (%.1f GB/s)\t%.0f\tus\t%.0f\tmoving as many bytes\n",
           name, PARAMETERS / 1e6, threads, threads > 1 ? "s" : "", 28e-3 * PARAMETERS / us, us,
           copy);
    fflush(stdout);
    steps_cleanup(&s);
}

/* ---- beside busy loops --------------------------------------------------------------------------
 */

static atomic_bool loops_stop;

static void loop_busily(void *arg)
{
    (void)arg;
    while (!atomic_load_explicit(&loops_stop, memory_order_relaxed))
        ;
}

static void loops_start(struct thread loops[LOOPS])
{
    atomic_store(&loops_stop, false);
    for (int i = 0; i < LOOPS; i++) {
        loops[i] = (struct thread){0};
        check(thread_start(&loops[i], "busy", loop_busily, NULL));
    }
}

static void loops_end(struct thread loops[LOOPS])
{
    atomic_store(&loops_stop, true);
    for (int i = 0; i < LOOPS; i++)
        thread_stop(&loops[i]);
}

/* Steps a second. */
static double pace(void (*step)(void *arg), void *arg)
{
    enum { PACE_US = 400000 };
    double start = now_us(), end = start;
    uint64_t steps = 0;
    for (; end - start < PACE_US; end = now_us(), steps++)
        step(arg);
    return 1e6 * (double)steps / (end - start);
}

static void beside_loops(const char *name, uint32_t threads, void (*step)(void *arg), void *arg)
{
    enum { ROUNDS = 5 };
    double alone[ROUNDS], beside[ROUNDS];
    step(arg);
    for (int round = 0; round < ROUNDS; round++) {
        struct thread loops[LOOPS];
        alone[round] = pace(step, arg);
        loops_start(loops);
        beside[round] = pace(step, arg);
        loops_end(loops);
    }
    printf("%s, %u thread%s, beside two busy loops\t%.0f\tsteps/s\t%.0f\talone\n", name, threads,
           threads > 1 ? "s" : "", median(beside, ROUNDS), median(alone, ROUNDS));
    fflush(stdout);
}

static void adam_step(void *arg)
{
    struct steps *s = arg;
    s->step++;
    crew_run(&s->crew, step_work, s);
}

struct training {
    trp_net *net;
    size_t count;
    uint32_t batch;
    void *input;
    float *output, *vectors[VECTORS];
    uint64_t step;
};

static void training_init(struct training *t, const trp_net_spec *spec, uint32_t batch,
                          uint32_t threads)
{
    *t = (struct training){.count = trp_net_param_count(spec), .batch = batch};
    check(trp_net_create(&t->net,
                         &(trp_net_options){.spec = spec, .batch = batch, .threads = threads}));
    for (size_t i = 0; i < VECTORS; i++)
        t->vectors[i] = trp_floats_create(t->count);
    size_t width = trp_net_input_width(spec, 0);
    t->input = trp_floats_create(batch * width); /* bytes have room, too */
    t->output = trp_floats_create((size_t)batch * trp_net_output_width(spec, 0));
    trp_rng rng;
    trp_rng_init(&rng, 1, 0);
    trp_net_init(spec, &rng, t->vectors[0]);
    for (size_t i = 0; i < batch * width; i++)
        if (spec->layers[0].dtype == TRP_UINT8)
            ((uint8_t *)t->input)[i] = (uint8_t)trp_rng_below(&rng, 256);
        else
            ((float *)t->input)[i] = (float)trp_rng_normal(&rng);
}

static void training_cleanup(struct training *t)
{
    trp_net_destroy(t->net);
    for (size_t i = 0; i < VECTORS; i++)
        trp_floats_destroy(t->vectors[i]);
    trp_floats_destroy(t->input);
    trp_floats_destroy(t->output);
}

/* Pulls all outputs to 0. */
static void training_step(void *arg)
{
    struct training *t = arg;
    memset(t->vectors[1], 0, t->count * sizeof(float));
    trp_net_rows rows = {.rows = t->batch, .inputs = {t->input}, .outputs = {t->output}};
    trp_net_forward(t->net, t->vectors[0], &rows);
    trp_net_backward(t->net, t->vectors[0], &rows,
                     &(trp_net_grads){.outputs = {t->output}, .params = t->vectors[1]});
    trp_optimizer_step(&(trp_optimizer){0}, ++t->step, 1, t->vectors[0], t->vectors[1],
                       t->vectors + 2, 0, t->count);
}

static void training_run(const char *name, const trp_net_spec *spec, uint32_t batch,
                         uint32_t threads)
{
    struct training t;
    training_init(&t, spec, batch, threads);
    beside_loops(name, threads, training_step, &t);
    training_cleanup(&t);
}

int main(void)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t all = online < 1 ? 1 : online > THREADS_MAX ? THREADS_MAX : (uint32_t)online;
    const trp_net_spec small =
        trp_mlp(&(trp_mlp_options){.inputs = 4, .hidden = {64, 64}, .outputs = 2});
    const trp_net_spec large =
        trp_mlp(&(trp_mlp_options){.inputs = 17, .hidden = {256, 256}, .outputs = 6});
    const trp_net_spec nature =
        trp_nature_cnn(&(trp_cnn_options){.height = 84, .width = 84, .channels = 4, .outputs = 18});
    for (uint32_t threads = 1; threads <= all; threads += all > 1 ? all - 1 : 1) {
        against_a_copy("Adam", TRP_ADAM, threads);
        struct steps s;
        steps_init(&s, TRP_ADAM, threads);
        beside_loops("Adam, 1.7 M parameters", threads, adam_step, &s);
        steps_cleanup(&s);
        training_run("train step, MLP 17-256-256-6, batch 256", &large, 256, threads);
        training_run("train step, Nature CNN, batch 32", &nature, 32, threads);
    }
    training_run("train step, MLP 4-64-64-2, batch 128", &small, 128, 1);
    return 0;
}
