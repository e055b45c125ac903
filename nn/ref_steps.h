/* Steps of optimizers, for REAL and NAME(). */

#include "steps_scalar.h"

static void NAME(step_sgd)(const struct step_job *job)
{
    for (size_t i = 0; i < job->count; i++)
        NAME(sgd_at)(job, i);
}

static void NAME(step_adam)(const struct step_job *job)
{
    for (size_t i = 0; i < job->count; i++)
        NAME(adam_at)(job, i);
}

static void NAME(step_rmsprop)(const struct step_job *job)
{
    for (size_t i = 0; i < job->count; i++)
        NAME(rmsprop_at)(job, i);
}

static REAL NAME(step_lamb_update)(const struct step_job *job, size_t i)
{
    REAL decay = (REAL)job->weight_decay * ((const REAL *)job->params)[i];
    return NAME(step_adaptive)(job, i) + decay;
}

static void NAME(step_lamb_means)(const struct step_job *job, double norms2[2])
{
    const REAL *params = job->params, *grads = job->grads;
    norms2[0] = norms2[1] = 0;
    for (size_t i = 0; i < job->count; i++) {
        NAME(step_means)(job, i, (REAL)job->scale * grads[i]);
        double update = (double)NAME(step_lamb_update)(job, i);
        norms2[0] += (double)params[i] * (double)params[i];
        norms2[1] += update * update;
    }
}

static void NAME(step_lamb)(const struct step_job *job)
{
    REAL *params = job->params;
    for (size_t i = 0; i < job->count; i++)
        params[i] -= (REAL)job->rate * NAME(step_lamb_update)(job, i);
}

static const struct step_kernels NAME(step_kernels) = {
    .sgd = NAME(step_sgd),
    .adam = NAME(step_adam),
    .rmsprop = NAME(step_rmsprop),
    .lamb_means = NAME(step_lamb_means),
    .lamb = NAME(step_lamb),
};
