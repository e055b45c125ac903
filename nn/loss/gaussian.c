/* Gaussian policies: loops over the rows of batch_distributions.h, in order. A log_std that all
 * rows share has its gradient added up row by row. */
#include <troupe/distributions.h>

#include <string.h>

#include "batch_distributions.h"

void trp_gaussian_transform(const trp_gaussian *policy, const float *noise, float *actions,
                            float *log_probs)
{
    for (size_t row = 0; row < policy->rows; row++) {
        float log_prob = gaussian_transform_at(policy, noise, actions, row);
        if (log_probs)
            log_probs[row] = log_prob;
    }
}

void trp_gaussian_sample(const trp_gaussian *policy, trp_rng *rng, float *noise, float *actions,
                         float *log_probs)
{
    for (size_t i = 0; i < (size_t)policy->rows * policy->size; i++)
        noise[i] = (float)trp_rng_normal(rng);
    trp_gaussian_transform(policy, noise, actions, log_probs);
}

void trp_gaussian_mode(const trp_gaussian *policy, float *actions)
{
    for (size_t row = 0; row < policy->rows; row++) {
        struct gaussian_f32 g = gaussian_at(policy, row);
        float *to = actions + row * policy->size;
        for (uint32_t i = 0; i < policy->size; i++)
            to[i] = policy->squashed ? squash_f32(&g, g.mean[i], i) : g.mean[i];
    }
}

void trp_gaussian_log_prob(const trp_gaussian *policy, const float *actions, float *log_probs)
{
    for (size_t row = 0; row < policy->rows; row++)
        log_probs[row] = gaussian_log_prob_at(policy, actions, row);
}

void trp_gaussian_entropy(const trp_gaussian *policy, const float *noise, float *entropies)
{
    assert(noise || !policy->squashed);
    for (size_t row = 0; row < policy->rows; row++)
        entropies[row] = gaussian_entropy_at(policy, noise, row);
}

/* What all rows add to begins as zeros, unless it is added to what is there. */
static void shared_begin(const trp_gaussian *policy, float *log_std, bool add)
{
    if (policy->shared && !add)
        memset(log_std, 0, policy->size * sizeof *log_std);
}

void trp_gaussian_backward(const trp_gaussian *policy, const trp_gaussian_grads *grads)
{
    bool samples = grads->sample_actions || grads->sample_log_probs;
    assert(grads->noise || !(samples || (policy->squashed && grads->entropies)));
    assert(grads->actions || !grads->log_probs);
    shared_begin(policy, grads->log_std, grads->add);
    for (size_t row = 0; row < policy->rows; row++)
        gaussian_back_at(policy, grads, row);
}

/* ---- divergences --------------------------------------------------------------------------- */

void trp_gaussian_kl(const trp_gaussian *p, const trp_gaussian *q, float *divergences)
{
    assert(p->rows == q->rows && p->size == q->size);
    for (size_t row = 0; row < p->rows; row++) {
        struct gaussian_f32 of_p = gaussian_at(p, row), of_q = gaussian_at(q, row);
        divergences[row] = gaussian_kl_f32(&of_p, &of_q);
    }
}

void trp_gaussian_decoupled_kl(const trp_gaussian *p, const trp_gaussian *q, float *means,
                               float *stds)
{
    assert(p->rows == q->rows && p->size == q->size);
    for (size_t row = 0; row < p->rows; row++)
        decoupled_kl_at(p, q, means, stds, row);
}

void trp_gaussian_kl_backward(const trp_gaussian *p, const trp_gaussian *q,
                              const trp_gaussian_kl_grads *grads)
{
    assert(p->rows == q->rows && p->size == q->size);
    if (grads->p.log_std)
        shared_begin(p, grads->p.log_std, grads->add);
    if (grads->q.log_std)
        shared_begin(q, grads->q.log_std, grads->add);
    for (size_t row = 0; row < p->rows; row++)
        gaussian_kl_back_at(p, q, grads, row);
}
