/* Phases of learning: measured, stepped, ended (nn/phase.c). A step is of correctly rounded
 * operations, compiled without contraction: its bits are the host's. */
#ifndef TRP_NN_CUDA_BODIES_STEPS_H
#define TRP_NN_CUDA_BODIES_STEPS_H

#define FACTOR KERNEL_BODY
#define PHASE  KERNEL_BODY
#include "nn/cuda/kernel.h"
#include "nn/optimizer_factors.h"
#include "nn/phase.h"
#undef FACTOR
#undef PHASE

#define REAL       float
#define NAME(name) name##_cuda
#define MATH(name) name##f
#define SCALAR     KERNEL_BODY
#include "nn/steps_scalar.h"
#undef REAL
#undef NAME
#undef MATH
#undef SCALAR

enum { MEASURE_THREADS = 256 };

/* ---- phase.measure: norms of parts, and then all -----------------------------------------------
 */

static inline struct kernel_shape phase_measure_shape(const struct phase_measure_arguments *a)
{
    struct kernel_shape shape = {TRP_PHASE_PARTS, MEASURE_THREADS, 2,
                                 MEASURE_THREADS * sizeof(double)};
    (void)a;
    return shape;
}

KERNEL_BODY double measured_total(const double *sums, uint32_t count)
{
    double total = 0;
    for (uint32_t i = 0; i < count; i++)
        total += sums[i];
    return total;
}

KERNEL_BODY void phase_measure_body(const struct phase_measure_arguments *a,
                                    const struct kernel_at *at, void *shared)
{
    double *sums = (double *)shared, sum = 0;
    size_t step = (size_t)at->blocks * at->threads;
    if (at->phase == 0) {
        for (size_t i = thread_index(at); i < a->count; i += step)
            sum += (double)a->grads[i] * (double)a->grads[i];
        sums[at->thread] = sum;
    } else if (at->thread == 0) {
        a->phases->parts[at->block] = measured_total(sums, at->threads);
    }
}

/* The first number of those at hand that is not finite; `count`: there is none. */
KERNEL_BODY uint64_t first_odd(const float *numbers, size_t count, uint32_t thread,
                               uint32_t threads)
{
    for (size_t i = thread; i < count; i += threads)
        if (!isfinite(numbers[i]))
            return i;
    return count;
}

KERNEL_BODY uint64_t least_of(const uint64_t *places, uint32_t count)
{
    uint64_t least = places[0];
    for (uint32_t i = 1; i < count; i++)
        least = places[i] < least ? places[i] : least;
    return least;
}

#define phase_decide_arguments phase_measure_arguments

static inline struct kernel_shape phase_decide_shape(const struct phase_measure_arguments *a)
{
    struct kernel_shape shape = {1, MEASURE_THREADS, 2, MEASURE_THREADS * sizeof(uint64_t)};
    (void)a;
    return shape;
}

KERNEL_BODY void phase_decide_body(const struct phase_measure_arguments *a,
                                   const struct kernel_at *at, void *shared)
{
    uint64_t *places = (uint64_t *)shared;
    double norm2 = measured_total(a->phases->parts, TRP_PHASE_PARTS);
    bool finite = isfinite(norm2), odd_watched = a->watched && !isfinite(*a->watched);
    if (at->phase == 0) {
        places[at->thread] =
            finite ? a->count : first_odd(a->grads, a->count, at->thread, at->threads);
        return;
    }
    if (at->thread > 0)
        return;
    struct odd odd = {a->count, NAN};
    if (odd_watched)
        odd.value = *a->watched;
    else if (!finite)
        odd.place = least_of(places, at->threads);
    if (!odd_watched && odd.place < a->count)
        odd.value = a->grads[odd.place];
    a->phases->norm2 = norm2;
    decide(a->phases, finite && !odd_watched, a->leaves_out, odd);
}

/* ---- of several learners: one block, as the range is one of several
 * ------------------------------ */

static inline struct kernel_shape measure_range_shape(const struct measure_range_arguments *a)
{
    struct kernel_shape shape = {1, KERNEL_THREADS_MAX, 2,
                                 KERNEL_THREADS_MAX * (sizeof(double) + sizeof(uint64_t))};
    (void)a;
    return shape;
}

KERNEL_BODY double double_of_bits(uint64_t bits)
{
    union {
        uint64_t bits;
        double number;
    } u = {bits};
    return u.number;
}

KERNEL_BODY uint64_t bits_of_double(double number)
{
    union {
        double number;
        uint64_t bits;
    } u = {number};
    return u.bits;
}

/* A float is in the lower bytes, as memcpy() leaves it. */
union float_bits {
    uint64_t bits;
    float number;
};

KERNEL_BODY void measure_range_body(const struct measure_range_arguments *a,
                                    const struct kernel_at *at, void *shared)
{
    double *sums = (double *)shared, sum = 0;
    uint64_t *places = (uint64_t *)(sums + at->threads);
    if (at->phase == 0) {
        float divisor = *a->rows / a->batch_size;
        for (size_t i = at->thread; i < a->count; i += at->threads) {
            a->grads[i] /= divisor;
            sum += (double)a->grads[i] * (double)a->grads[i];
        }
        sums[at->thread] = sum;
        places[at->thread] =
            isfinite(sum) ? a->count : first_odd(a->grads, a->count, at->thread, at->threads);
        return;
    }
    if (at->thread > 0)
        return;
    double norm2 = double_of_bits(a->part->norm2) + measured_total(sums, at->threads);
    a->part->norm2 = bits_of_double(norm2);
    if (isfinite(norm2) || a->part->place > 0)
        return;
    uint64_t place = least_of(places, at->threads);
    a->part->place = place < a->count ? a->first + place + 1 : 0;
    union float_bits value = {a->part->value};
    value.number = place < a->count ? a->grads[place] : NAN;
    a->part->value = value.bits;
}

static inline struct kernel_shape measure_parts_shape(const struct measure_parts_arguments *a)
{
    struct kernel_shape shape = {1, 1, 1, 0};
    (void)a;
    return shape;
}

KERNEL_BODY void measure_parts_body(const struct measure_parts_arguments *a,
                                    const struct kernel_at *at, void *shared)
{
    struct odd odd = {a->count, NAN};
    double norm2 = 0;
    (void)at, (void)shared;
    for (size_t i = 0; i < a->part_count; i++) {
        const trp_phase_part *part = &a->parts[i];
        norm2 += double_of_bits(part->norm2);
        if (part->place > 0 && part->place - 1 < odd.place) {
            odd.place = part->place - 1;
            union float_bits value = {part->value};
            odd.value = value.number;
        }
    }
    bool odd_watched = a->watched && !isfinite(*a->watched);
    if (odd_watched) {
        odd.place = a->count;
        odd.value = *a->watched;
    }
    a->phases->norm2 = norm2;
    decide(a->phases, isfinite(norm2) && !odd_watched, a->leaves_out, odd);
}

/* ---- steps ---------------------------------------------------------------------------------- */

KERNEL_BODY bool phase_step_fits(const struct phase_step_arguments *a)
{
    return a->optimizer.kind != TRP_LAMB;
}

static inline struct kernel_shape phase_step_shape(const struct phase_step_arguments *a)
{
    struct kernel_shape shape = kernel_of(a->count);
    shape.phases = 2;
    shape.shared_bytes = sizeof(struct step_job);
    return shape;
}

KERNEL_BODY struct step_job job_of_phase(const struct phase_step_arguments *a)
{
    void *state[TRP_OPTIMIZER_STATES_MAX];
    for (size_t i = 0; i < TRP_OPTIMIZER_STATES_MAX; i++)
        state[i] = a->state[i];
    struct step_job job = step_job_of(&a->optimizer, a->phases->steps + 1, state);
    job.params = a->params;
    job.grads = a->grads;
    job.count = a->count;
    job.scale = (double)clip_scale(a->phases->norm2, (float)a->optimizer.max_norm);
    return job;
}

KERNEL_BODY void phase_step_body(const struct phase_step_arguments *a, const struct kernel_at *at,
                                 void *shared)
{
    struct step_job *job = (struct step_job *)shared;
    size_t i = thread_index(at);
    if (a->phases->skipped)
        return;
    if (at->phase == 0) {
        if (at->thread == 0)
            *job = job_of_phase(a);
        return;
    }
    if (i >= a->count)
        return;
    if (a->optimizer.kind == TRP_SGD)
        sgd_at_cuda(job, i);
    else if (a->optimizer.kind == TRP_RMSPROP || a->optimizer.kind == TRP_ADAGRAD)
        rmsprop_at_cuda(job, i);
    else
        adam_at_cuda(job, i);
}

/* ---- LAMB's: the sums of a tensor's parts, in their order, say how far it goes ----------------
 */

#define lamb_measure_arguments phase_step_arguments
#define lamb_step_arguments    phase_step_arguments

enum { LAMB_BLOCKS = TRP_PHASE_PARTS / 2 }; /* two sums each */

struct lamb_memory {
    struct step_job job;
    double sums[2][KERNEL_THREADS];
};

KERNEL_BODY uint32_t lamb_blocks(const struct phase_step_arguments *a)
{
    size_t blocks = (a->count + KERNEL_THREADS - 1) / KERNEL_THREADS;
    return blocks < LAMB_BLOCKS ? (uint32_t)blocks : (uint32_t)LAMB_BLOCKS;
}

static inline struct kernel_shape lamb_measure_shape(const struct phase_step_arguments *a)
{
    struct kernel_shape shape = {a->count > 0 ? lamb_blocks(a) : 1, KERNEL_THREADS, 3,
                                 sizeof(struct lamb_memory)};
    return shape;
}

KERNEL_BODY void lamb_measure_body(const struct phase_step_arguments *a, const struct kernel_at *at,
                                   void *shared)
{
    struct lamb_memory *memory = (struct lamb_memory *)shared;
    double sums[2] = {0, 0};
    size_t step = (size_t)at->blocks * at->threads;
    if (a->phases->skipped)
        return;
    if (at->phase == 0 && at->thread == 0)
        memory->job = job_of_phase(a);
    if (at->phase == 1) {
        for (size_t i = thread_index(at); i < a->count; i += step)
            lamb_means_at_cuda(&memory->job, i, sums);
        memory->sums[0][at->thread] = sums[0];
        memory->sums[1][at->thread] = sums[1];
    }
    if (at->phase == 2 && at->thread < 2)
        a->phases->parts[2 * at->block + at->thread] =
            measured_total(memory->sums[at->thread], at->threads);
}

static inline struct kernel_shape lamb_step_shape(const struct phase_step_arguments *a)
{
    return phase_step_shape(a);
}

KERNEL_BODY void lamb_step_body(const struct phase_step_arguments *a, const struct kernel_at *at,
                                void *shared)
{
    struct step_job *job = (struct step_job *)shared;
    const double *parts = a->phases->parts;
    double norms2[2] = {0, 0};
    size_t i = thread_index(at);
    if (a->phases->skipped)
        return;
    if (at->phase == 1 && i < a->count)
        lamb_at_cuda(job, i);
    if (at->phase == 1 || at->thread > 0)
        return;
    for (uint32_t block = 0; block < lamb_blocks(a); block++) {
        norms2[0] += parts[2 * block];
        norms2[1] += parts[2 * block + 1];
    }
    *job = job_of_phase(a);
    job->rate = trusted_rate(job->rate, norms2[0], norms2[1]);
}

static inline struct kernel_shape phase_end_shape(const struct phase_end_arguments *a)
{
    struct kernel_shape shape = {1, 1, 1, 0};
    (void)a;
    return shape;
}

KERNEL_BODY void phase_end_body(const struct phase_end_arguments *a, const struct kernel_at *at,
                                void *shared)
{
    (void)at, (void)shared;
    a->phases->steps += !a->phases->skipped;
}

static inline struct kernel_shape polyak_shape(const struct polyak_arguments *a)
{
    return kernel_of(a->count);
}

KERNEL_BODY void polyak_body(const struct polyak_arguments *a, const struct kernel_at *at,
                             void *shared)
{
    size_t i = thread_index(at);
    (void)shared;
    if (i < a->count)
        a->target[i] += a->rate * (a->params[i] - a->target[i]);
}

#endif
