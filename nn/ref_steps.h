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

static void NAME(step_lamb_means)(const struct step_job *job, double norms2[2])
{
    norms2[0] = norms2[1] = 0;
    for (size_t i = 0; i < job->count; i++)
        NAME(lamb_means_at)(job, i, norms2);
}

static void NAME(step_lamb)(const struct step_job *job)
{
    for (size_t i = 0; i < job->count; i++)
        NAME(lamb_at)(job, i);
}

static const struct step_kernels NAME(step_kernels) = {
    .sgd = NAME(step_sgd),
    .adam = NAME(step_adam),
    .rmsprop = NAME(step_rmsprop),
    .lamb_means = NAME(step_lamb_means),
    .lamb = NAME(step_lamb),
};
