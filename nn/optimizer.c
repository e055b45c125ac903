/* Rules over ranges of flat vectors. A step's factors are worked out once in double; per element
 * there are only correctly rounded operations, so every backend gives the same bits (LAMB's ratio
 * is of sums, whose order is a backend's own). */
#include "optimizer.h"

#include <assert.h>
#include <math.h>

#include "backend.h"
#include "flush.h"
#include "optimizer_factors.h"

/* ---- what it is ---------------------------------------------------------------------------- */

static const char *const kinds[TRP_OPTIMIZER_KINDS] = {
    [TRP_ADAM] = "adam",       [TRP_ADAMW] = "adamw", [TRP_SGD] = "sgd",
    [TRP_RMSPROP] = "rmsprop", [TRP_LAMB] = "lamb",   [TRP_ADAGRAD] = "adagrad",
};

const char *trp_optimizer_name(trp_optimizer_kind kind)
{
    assert((unsigned)kind < TRP_OPTIMIZER_KINDS);
    return kinds[kind];
}

static trp_status check_ranges(const trp_optimizer *optimizer, const char *who)
{
    const struct {
        const char *name;
        double value, low, high;
    } ranges[] = {
        {"kind", optimizer->kind, TRP_ADAM, TRP_OPTIMIZER_KINDS - 1},
        {"schedule", optimizer->schedule, TRP_RATE_CONSTANT, TRP_RATE_COSINE},
        {"learning_rate", optimizer_default(optimizer->learning_rate, 0), 0, 1e6},
        {"final_rate", optimizer->final_rate, 0, 1e6},
        {"weight_decay", optimizer->weight_decay, 0, 1e6},
        {"beta1", optimizer_default(optimizer->beta1, 0), 0, 0.999999},
        {"beta2", optimizer_default(optimizer->beta2, 0), 0, 0.99999999},
        {"alpha", optimizer_default(optimizer->alpha, 0), 0, 0.99999999},
        {"epsilon", optimizer->epsilon, 0, 1},
        {"momentum", optimizer->momentum, 0, 0.999999},
        {"max_norm", optimizer->max_norm, 0, 1e30},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (!(ranges[i].value >= ranges[i].low && ranges[i].value <= ranges[i].high))
            return trp_fail(TRP_INVALID_ARGUMENT,
                            "%s: the optimizer's %s is %g, must be in [%g, %g]", who,
                            ranges[i].name, ranges[i].value, ranges[i].low, ranges[i].high);
    return TRP_OK;
}

/* What would be left alone silently. */
static trp_status check_kind(const trp_optimizer *optimizer, const char *who)
{
    bool sgd = optimizer->kind == TRP_SGD, rmsprop = optimizer->kind == TRP_RMSPROP;
    const struct {
        const char *name;
        bool given, read;
    } options[] = {
        {"momentum", optimizer->momentum > 0, sgd || rmsprop},
        {"nesterov", optimizer->nesterov, sgd},
        {"centered", optimizer->centered, rmsprop},
        {"epsilon_inside", optimizer->epsilon_inside, rmsprop},
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (options[i].given && !options[i].read)
            return trp_fail(TRP_INVALID_ARGUMENT, "%s: the optimizer %s has no option %s", who,
                            trp_optimizer_name(optimizer->kind), options[i].name);
    if (optimizer->nesterov && optimizer->momentum == 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: the optimizer's nesterov needs a momentum", who);
    if (optimizer->schedule != TRP_RATE_CONSTANT && optimizer->schedule_steps == 0)
        return trp_fail(
            TRP_INVALID_ARGUMENT,
            "%s: the optimizer's schedule_steps is 0, must be how long its rate changes", who);
    return TRP_OK;
}

trp_status trp_optimizer_check(const trp_optimizer *optimizer, const char *who)
{
    TRP_TRY(check_ranges(optimizer, who));
    return check_kind(optimizer, who);
}

/* The names of its state, in order; returns how many. */
static size_t state_names(const trp_optimizer *optimizer,
                          const char *names[TRP_OPTIMIZER_STATES_MAX])
{
    size_t count = 0;
    switch (optimizer->kind) {
    case TRP_ADAM:
        names[count++] = "adam.m";
        names[count++] = "adam.v";
        break;
    case TRP_ADAMW:
        names[count++] = "adamw.m";
        names[count++] = "adamw.v";
        break;
    case TRP_SGD:
        if (optimizer->momentum > 0)
            names[count++] = "sgd.v";
        break;
    case TRP_RMSPROP:
        names[count++] = "rmsprop.square";
        if (optimizer->centered)
            names[count++] = "rmsprop.mean";
        if (optimizer->momentum > 0)
            names[count++] = "rmsprop.v";
        break;
    case TRP_LAMB:
        names[count++] = "lamb.m";
        names[count++] = "lamb.v";
        break;
    case TRP_ADAGRAD:
        names[count++] = "adagrad.square";
        break;
    }
    return count;
}

size_t trp_optimizer_states(const trp_optimizer *optimizer)
{
    const char *names[TRP_OPTIMIZER_STATES_MAX];
    return state_names(optimizer, names);
}

const char *trp_optimizer_state_name(const trp_optimizer *optimizer, size_t index)
{
    const char *names[TRP_OPTIMIZER_STATES_MAX];
    size_t count = state_names(optimizer, names);
    assert(index < count);
    return names[index];
}

bool trp_optimizer_is_layerwise(const trp_optimizer *optimizer)
{
    return optimizer->kind == TRP_LAMB;
}

double trp_optimizer_rate(const trp_optimizer *optimizer, uint64_t step)
{
    return step_rate(optimizer, step);
}

/* ---- steps --------------------------------------------------------------------------------- */

static void run_lamb(const struct step_kernels *kernels, struct step_job *job)
{
    double norms2[2];
    kernels->lamb_means(job, norms2);
    job->rate = trusted_rate(job->rate, norms2[0], norms2[1]);
    kernels->lamb(job);
}

void optimizer_run(const struct step_kernels *kernels, const trp_optimizer *optimizer,
                   uint64_t step, const struct optimizer_range *range)
{
    assert(step > 0);
    uint32_t before = flush_begin();
    struct step_job job = step_job_of(optimizer, step, range->state);
    job.params = range->params;
    job.grads = range->grads;
    job.count = range->count;
    job.scale = range->scale;
    switch (optimizer->kind) {
    case TRP_ADAM:
    case TRP_ADAMW:
        kernels->adam(&job);
        break;
    case TRP_SGD:
        kernels->sgd(&job);
        break;
    case TRP_RMSPROP:
    case TRP_ADAGRAD:
        kernels->rmsprop(&job);
        break;
    case TRP_LAMB:
        run_lamb(kernels, &job);
        break;
    }
    flush_end(before);
}

void trp_optimizer_step(const trp_optimizer *optimizer, uint64_t step, float scale, float *params,
                        const float *grads, float *const *state, size_t lo, size_t hi)
{
    assert(lo <= hi);
    struct optimizer_range range = {
        .params = params + lo, .grads = grads + lo, .count = hi - lo, .scale = (double)scale};
    for (size_t i = 0; i < trp_optimizer_states(optimizer); i++)
        range.state[i] = state[i] + lo;
    optimizer_run(backend_simd()->step, optimizer, step, &range);
}

double trp_norm2(const float *values, size_t lo, size_t hi)
{
    assert(lo <= hi);
    uint32_t before = flush_begin();
    double norm2 = backend_simd()->norm2(values + lo, hi - lo);
    flush_end(before);
    return norm2;
}

float trp_clip_scale(double norm2, float max_norm)
{
    return clip_scale(norm2, max_norm);
}
