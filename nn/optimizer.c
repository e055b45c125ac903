/* Rules over ranges of flat vectors. A step's factors are worked out once in double; per element
 * there are only correctly rounded operations, so every backend gives the same bits. */
#include <troupe/optimizer.h>

#include <assert.h>
#include <math.h>

#include "backend.h"

static double optimizer_default(double value, double fallback)
{
    return value != 0 ? value : fallback;
}

/* ---- what it is ---------------------------------------------------------------------------- */

trp_status trp_optimizer_check(const trp_optimizer *optimizer, const char *who)
{
    const struct {
        const char *name;
        double value, low, high;
    } ranges[] = {
        {"kind", optimizer->kind, TRP_ADAM, TRP_SGD},
        {"schedule", optimizer->schedule, TRP_RATE_CONSTANT, TRP_RATE_COSINE},
        {"learning_rate", optimizer->learning_rate, 0, 1e6},
        {"final_rate", optimizer->final_rate, 0, 1e6},
        {"beta1", optimizer->beta1, 0, 0.999999},
        {"beta2", optimizer->beta2, 0, 0.99999999},
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

size_t trp_optimizer_states(const trp_optimizer *optimizer)
{
    if (optimizer->kind == TRP_ADAM)
        return 2;
    return optimizer->momentum > 0 ? 1 : 0;
}

const char *trp_optimizer_state_name(const trp_optimizer *optimizer, size_t index)
{
    static const char *const adam[] = {"adam.m", "adam.v"};
    assert(index < trp_optimizer_states(optimizer));
    return optimizer->kind == TRP_ADAM ? adam[index] : "sgd.v";
}

double trp_optimizer_rate(const trp_optimizer *optimizer, uint64_t step)
{
    double rate = optimizer_default(optimizer->learning_rate, 1e-3), done = 1;
    if (optimizer->schedule_steps)
        done = fmin(1, (double)(step - 1) / (double)optimizer->schedule_steps);
    if (optimizer->schedule == TRP_RATE_COSINE)
        done = (1 - cos(done * M_PI)) / 2;
    if (optimizer->schedule != TRP_RATE_CONSTANT)
        rate += (optimizer->final_rate - rate) * done;
    if (step < optimizer->warmup_steps)
        rate *= (double)step / (double)optimizer->warmup_steps;
    return rate;
}

/* ---- steps --------------------------------------------------------------------------------- */

static void step_adam(const trp_optimizer *optimizer, uint64_t step, struct adam_job *job)
{
    double beta1 = optimizer_default(optimizer->beta1, 0.9);
    double beta2 = optimizer_default(optimizer->beta2, 0.999);
    double rate = trp_optimizer_rate(optimizer, step);
    job->beta1 = (float)beta1;
    job->beta2 = (float)beta2;
    job->epsilon = (float)optimizer_default(optimizer->epsilon, 1e-8);
    job->one_minus_beta1 = (float)(1 - beta1);
    job->one_minus_beta2 = (float)(1 - beta2);
    job->step_size = (float)(rate / (1 - pow(beta1, (double)step)));
    job->inverse_root_bc2 = (float)(1 / sqrt(1 - pow(beta2, (double)step)));
    backend_simd()->adam(job);
}

static void step_sgd(float rate, float scale, float *params, const float *grads, size_t count)
{
    for (size_t i = 0; i < count; i++)
        params[i] -= rate * (scale * grads[i]);
}

static void step_momentum(float rate, float momentum, float scale, float *params,
                          const float *grads, float *v, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        v[i] = momentum * v[i] + scale * grads[i];
        params[i] -= rate * v[i];
    }
}

void trp_optimizer_step(const trp_optimizer *optimizer, uint64_t step, float scale, float *params,
                        const float *grads, float *const *state, size_t lo, size_t hi)
{
    assert(step > 0);
    assert(lo <= hi);
    float rate = (float)trp_optimizer_rate(optimizer, step);
    if (optimizer->kind == TRP_ADAM)
        step_adam(optimizer, step,
                  &(struct adam_job){.params = params + lo,
                                     .m = state[0] + lo,
                                     .v = state[1] + lo,
                                     .grads = grads + lo,
                                     .count = hi - lo,
                                     .scale = scale});
    else if (optimizer->momentum > 0)
        step_momentum(rate, (float)optimizer->momentum, scale, params + lo, grads + lo,
                      state[0] + lo, hi - lo);
    else
        step_sgd(rate, scale, params + lo, grads + lo, hi - lo);
}

double trp_norm2(const float *values, size_t lo, size_t hi)
{
    assert(lo <= hi);
    return backend_simd()->norm2(values + lo, hi - lo);
}

float trp_clip_scale(double norm2, float max_norm)
{
    double norm = sqrt(norm2);
    return max_norm > 0 && norm > (double)max_norm ? (float)((double)max_norm / norm) : 1;
}
