/* What a step makes of one number, for REAL, NAME() and MATH(): correctly rounded operations alone.
 * Who compiles it for a device defines SCALAR. */

#ifndef SCALAR
#define SCALAR static
#endif

SCALAR REAL NAME(step_gradient)(const struct step_job *job, size_t i)
{
    REAL g = (REAL)job->scale * ((const REAL *)job->grads)[i];
    if (job->weight_decay > 0)
        g += (REAL)job->weight_decay * ((const REAL *)job->params)[i];
    return g;
}

/* See nn/steps.h; momentum's vector is NULL where there is none. */
SCALAR void NAME(sgd_at)(const struct step_job *job, size_t i)
{
    REAL *params = (REAL *)job->params, *velocity = (REAL *)job->velocity,
         momentum = (REAL)job->momentum;
    REAL g = NAME(step_gradient)(job, i);
    if (velocity) {
        velocity[i] = momentum * velocity[i] + g;
        g = job->nesterov ? g + momentum * velocity[i] : velocity[i];
    }
    params[i] -= (REAL)job->rate * g;
}

SCALAR void NAME(step_means)(const struct step_job *job, size_t i, REAL g)
{
    REAL *mean = (REAL *)job->mean, *square = (REAL *)job->square;
    if (mean)
        mean[i] = (REAL)job->beta1 * mean[i] + (REAL)job->one_minus_beta1 * g;
    square[i] = (REAL)job->beta2 * square[i] + (REAL)job->one_minus_beta2 * (g * g);
}

/* Adam's change of a parameter. */
SCALAR REAL NAME(step_adaptive)(const struct step_job *job, size_t i)
{
    REAL m = ((const REAL *)job->mean)[i], v = ((const REAL *)job->square)[i];
    return (REAL)job->size * m / (MATH(sqrt)(v) * (REAL)job->root + (REAL)job->epsilon);
}

SCALAR void NAME(adam_at)(const struct step_job *job, size_t i)
{
    REAL *params = (REAL *)job->params;
    NAME(step_means)(job, i, NAME(step_gradient)(job, i));
    if (job->keep < 1)
        params[i] *= (REAL)job->keep;
    params[i] -= NAME(step_adaptive)(job, i);
}

SCALAR REAL NAME(lamb_update)(const struct step_job *job, size_t i)
{
    REAL decay = (REAL)job->weight_decay * ((const REAL *)job->params)[i];
    return NAME(step_adaptive)(job, i) + decay;
}

/* The means, and what the parameter and its update add to the sums of squares. */
SCALAR void NAME(lamb_means_at)(const struct step_job *job, size_t i, double *norms2)
{
    double param = (double)((const REAL *)job->params)[i];
    NAME(step_means)(job, i, (REAL)job->scale * ((const REAL *)job->grads)[i]);
    double update = (double)NAME(lamb_update)(job, i);
    norms2[0] += param * param;
    norms2[1] += update * update;
}

SCALAR void NAME(lamb_at)(const struct step_job *job, size_t i)
{
    ((REAL *)job->params)[i] -= (REAL)job->rate * NAME(lamb_update)(job, i);
}

SCALAR void NAME(rmsprop_at)(const struct step_job *job, size_t i)
{
    REAL *params = (REAL *)job->params, *velocity = (REAL *)job->velocity;
    const REAL *mean = (REAL *)job->mean, *square = (REAL *)job->square,
               epsilon = (REAL)job->epsilon;
    REAL g = NAME(step_gradient)(job, i);
    NAME(step_means)(job, i, g);
    REAL v = mean ? square[i] - mean[i] * mean[i] : square[i];
    v = v < 0 ? 0 : v; /* the means are rounded */
    g /= job->epsilon_inside ? MATH(sqrt)(v + epsilon) : MATH(sqrt)(v) + epsilon;
    if (velocity)
        g = velocity[i] = (REAL)job->momentum * velocity[i] + g;
    params[i] -= (REAL)job->rate * g;
}
