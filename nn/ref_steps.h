/* Steps of optimizers, for REAL and NAME(). */

static REAL NAME(step_gradient)(const struct step_job *job, size_t i)
{
    REAL g = (REAL)job->scale * ((const REAL *)job->grads)[i];
    if (job->weight_decay > 0)
        g += (REAL)job->weight_decay * ((const REAL *)job->params)[i];
    return g;
}

static void NAME(step_sgd)(const struct step_job *job)
{
    REAL *params = job->params, *velocity = job->velocity, momentum = (REAL)job->momentum;
    for (size_t i = 0; i < job->count; i++) {
        REAL g = NAME(step_gradient)(job, i);
        if (velocity) {
            velocity[i] = momentum * velocity[i] + g;
            g = job->nesterov ? g + momentum * velocity[i] : velocity[i];
        }
        params[i] -= (REAL)job->rate * g;
    }
}

static void NAME(step_means)(const struct step_job *job, size_t i, REAL g)
{
    REAL *mean = job->mean, *square = job->square;
    if (mean)
        mean[i] = (REAL)job->beta1 * mean[i] + (REAL)job->one_minus_beta1 * g;
    square[i] = (REAL)job->beta2 * square[i] + (REAL)job->one_minus_beta2 * (g * g);
}

/* Adam's change of a parameter. */
static REAL NAME(step_adaptive)(const struct step_job *job, size_t i)
{
    REAL m = ((const REAL *)job->mean)[i], v = ((const REAL *)job->square)[i];
    return (REAL)job->size * m / (MATH(sqrt)(v) * (REAL)job->root + (REAL)job->epsilon);
}

static void NAME(step_adam)(const struct step_job *job)
{
    REAL *params = job->params;
    for (size_t i = 0; i < job->count; i++) {
        NAME(step_means)(job, i, NAME(step_gradient)(job, i));
        if (job->keep < 1)
            params[i] *= (REAL)job->keep;
        params[i] -= NAME(step_adaptive)(job, i);
    }
}

static void NAME(step_rmsprop)(const struct step_job *job)
{
    REAL *params = job->params, *velocity = job->velocity;
    const REAL *mean = job->mean, *square = job->square, epsilon = (REAL)job->epsilon;
    for (size_t i = 0; i < job->count; i++) {
        REAL g = NAME(step_gradient)(job, i);
        NAME(step_means)(job, i, g);
        REAL v = mean ? square[i] - mean[i] * mean[i] : square[i];
        v = v < 0 ? 0 : v; /* the means are rounded */
        g /= job->epsilon_inside ? MATH(sqrt)(v + epsilon) : MATH(sqrt)(v) + epsilon;
        if (velocity)
            g = velocity[i] = (REAL)job->momentum * velocity[i] + g;
        params[i] -= (REAL)job->rate * g;
    }
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
