/* Adam over a range of the flat vector. The step's factors are worked out once in double; per
 * element there are only correctly rounded operations, so every backend gives the same bits. */
#include <troupe/nn.h>

#include <assert.h>
#include <math.h>

#include "backend.h"

static double adam_default(double value, double fallback)
{
    return value != 0 ? value : fallback;
}

void trp_adam_step(const trp_adam_options *options, uint64_t step, float scale, float *params,
                   const float *grads, float *m, float *v, size_t lo, size_t hi)
{
    static const trp_adam_options defaults;
    const trp_adam_options *o = options ? options : &defaults;
    assert(step > 0);
    assert(lo <= hi);
    double beta1 = adam_default(o->beta1, 0.9), beta2 = adam_default(o->beta2, 0.999);
    double rate = adam_default(o->learning_rate, 1e-3);
    struct adam_job job = {
        .params = params + lo,
        .m = m + lo,
        .v = v + lo,
        .grads = grads + lo,
        .count = hi - lo,
        .scale = scale,
        .beta1 = (float)beta1,
        .beta2 = (float)beta2,
        .epsilon = (float)adam_default(o->epsilon, 1e-8),
        .one_minus_beta1 = (float)(1 - beta1),
        .one_minus_beta2 = (float)(1 - beta2),
        .step_size = (float)(rate / (1 - pow(beta1, (double)step))),
        .inverse_root_bc2 = (float)(1 / sqrt(1 - pow(beta2, (double)step))),
    };
    backend_simd()->adam(&job);
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
