/* The factors of an optimizer's step (struct step_job), worked out in double; in the part of C that
 * is C++, too. Who compiles it for a device defines FACTOR. */
#ifndef TRP_NN_OPTIMIZER_FACTORS_H
#define TRP_NN_OPTIMIZER_FACTORS_H

#include <math.h>

#include <troupe/optimizer.h>

#include "steps.h"

#ifndef FACTOR
#define FACTOR static inline
#endif

/* Zero stands for the default, a negative number for zero. */
FACTOR double optimizer_default(double value, double fallback)
{
    if (value == 0)
        return fallback;
    return value < 0 ? 0 : value;
}

FACTOR double step_rate(const trp_optimizer *optimizer, uint64_t step)
{
    double rate = optimizer_default(optimizer->learning_rate, 1e-3), done = 1;
    if (optimizer->schedule_steps)
        done = fmin(1.0, (double)(step - 1) / (double)optimizer->schedule_steps);
    if (optimizer->schedule == TRP_RATE_COSINE)
        done = (1 - cos(done * M_PI)) / 2;
    if (optimizer->schedule != TRP_RATE_CONSTANT)
        rate += (optimizer->final_rate - rate) * done;
    if (step < optimizer->warmup_steps)
        rate *= (double)step / (double)optimizer->warmup_steps;
    return rate;
}

FACTOR float clip_scale(double norm2, float max_norm)
{
    double norm = sqrt(norm2);
    return max_norm > 0 && norm > (double)max_norm ? (float)((double)max_norm / norm) : 1;
}

/* LAMB's: by the trust ratio, of the sums of squares of a tensor and of its update. */
FACTOR double trusted_rate(double rate, double params2, double updates2)
{
    return params2 > 0 && updates2 > 0 ? rate * (sqrt(params2) / sqrt(updates2)) : rate;
}

FACTOR void set_means(struct step_job *job, double beta1, double beta2)
{
    job->beta1 = beta1;
    job->beta2 = beta2;
    job->one_minus_beta1 = 1 - beta1;
    job->one_minus_beta2 = 1 - beta2;
}

/* Adam's factors, whose size is of `rate`, and its vectors. */
FACTOR void set_adaptive(struct step_job *job, const trp_optimizer *optimizer, uint64_t step,
                         double rate, void *const *state)
{
    double beta1 = optimizer_default(optimizer->beta1, 0.9);
    double beta2 = optimizer_default(optimizer->beta2, 0.999);
    set_means(job, beta1, beta2);
    job->size = rate / (1 - pow(beta1, (double)step));
    job->root = 1 / sqrt(1 - pow(beta2, (double)step));
    job->mean = state[0];
    job->square = state[1];
}

FACTOR void set_rmsprop(struct step_job *job, const trp_optimizer *optimizer, void *const *state)
{
    double alpha = optimizer_default(optimizer->alpha, 0.99);
    size_t next = 0;
    job->square = state[next++];
    if (optimizer->centered)
        job->mean = state[next++];
    if (optimizer->momentum > 0)
        job->velocity = state[next++];
    set_means(job, alpha, alpha);
}

/* RMSProp's step, where the mean square is a sum. */
FACTOR void set_adagrad(struct step_job *job, void *const *state)
{
    job->square = state[0];
    set_means(job, 1, 1);
    job->one_minus_beta1 = job->one_minus_beta2 = 1;
}

/* All of a job but what it works on: params, grads, count and scale. */
FACTOR struct step_job step_job_of(const trp_optimizer *optimizer, uint64_t step,
                                   void *const *state)
{
    double epsilon = optimizer->kind == TRP_LAMB      ? 1e-6
                     : optimizer->kind == TRP_SGD     ? 0.0
                     : optimizer->kind == TRP_ADAGRAD ? 1e-10
                                                      : 1e-8;
    struct step_job job = {};
    job.weight_decay = optimizer->weight_decay;
    job.keep = 1;
    job.rate = step_rate(optimizer, step);
    job.momentum = optimizer->momentum;
    job.epsilon = optimizer_default(optimizer->epsilon, epsilon);
    job.nesterov = optimizer->nesterov;
    job.epsilon_inside = optimizer->epsilon_inside;
    switch (optimizer->kind) {
    case TRP_ADAM:
        set_adaptive(&job, optimizer, step, job.rate, state);
        break;
    case TRP_ADAMW:
        set_adaptive(&job, optimizer, step, job.rate, state);
        job.keep = 1 - job.rate * job.weight_decay;
        job.weight_decay = 0;
        break;
    case TRP_SGD:
        job.velocity = optimizer->momentum > 0 ? state[0] : NULL;
        break;
    case TRP_RMSPROP:
        set_rmsprop(&job, optimizer, state);
        break;
    case TRP_LAMB:
        set_adaptive(&job, optimizer, step, 1, state);
        break;
    case TRP_ADAGRAD:
        set_adagrad(&job, state);
        break;
    }
    return job;
}

#endif
