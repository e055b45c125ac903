/* Gaussian policies: loops over the rows of rows_gaussian.h, in order. A log_std that all rows
 * share has its gradient added up row by row. */
#include <troupe/distributions.h>

#include <assert.h>
#include <string.h>

#include "rows_f32.h"

/* Where a row's log_std is. */
static size_t log_std_at(const trp_gaussian *policy, size_t row)
{
    return policy->shared ? 0 : row * policy->size;
}

static struct gaussian_f32 gaussian_at(const trp_gaussian *policy, size_t row)
{
    bool bounded = policy->least_log_std < 0 || policy->least_log_std > 0 ||
                   policy->most_log_std < 0 || policy->most_log_std > 0;
    return (struct gaussian_f32){
        .size = policy->size,
        .mean = policy->mean + row * policy->size,
        .log_std = policy->log_std + log_std_at(policy, row),
        .least = bounded ? policy->least_log_std : -INFINITY,
        .most = bounded ? policy->most_log_std : INFINITY,
        .squashed = policy->squashed,
        .low = policy->low,
        .high = policy->high,
    };
}

/* A row of an array of [rows][size]; NULL stays NULL. */
static const float *row_of(const trp_gaussian *policy, const float *array, size_t row)
{
    return array ? array + row * policy->size : NULL;
}

void trp_gaussian_transform(const trp_gaussian *policy, const float *noise, float *actions,
                            float *log_probs)
{
    for (size_t row = 0; row < policy->rows; row++) {
        struct gaussian_f32 g = gaussian_at(policy, row);
        size_t at = row * policy->size;
        float log_prob = gaussian_transform_f32(&g, noise + at, actions + at);
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
    for (size_t row = 0; row < policy->rows; row++) {
        struct gaussian_f32 g = gaussian_at(policy, row);
        log_probs[row] = gaussian_log_prob_f32(&g, actions + row * policy->size);
    }
}

void trp_gaussian_entropy(const trp_gaussian *policy, const float *noise, float *entropies)
{
    assert(noise || !policy->squashed);
    for (size_t row = 0; row < policy->rows; row++) {
        struct gaussian_f32 g = gaussian_at(policy, row);
        entropies[row] = gaussian_entropy_f32(&g, row_of(policy, noise, row));
    }
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
    for (size_t row = 0; row < policy->rows; row++) {
        struct gaussian_f32 g = gaussian_at(policy, row);
        struct gaussian_slopes_f32 by = {
            .actions = grads->log_probs ? row_of(policy, grads->actions, row) : NULL,
            .noise = row_of(policy, grads->noise, row),
            .by_sample_action = row_of(policy, grads->sample_actions, row),
            .by_log_prob = grads->log_probs ? grads->log_probs[row] : 0,
            .by_sample_log_prob = grads->sample_log_probs ? grads->sample_log_probs[row] : 0,
            .by_entropy = grads->entropies ? grads->entropies[row] : 0,
        };
        gaussian_back_f32(&g, &by, grads->add, grads->add || policy->shared,
                          grads->mean + row * policy->size,
                          grads->log_std + log_std_at(policy, row));
    }
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
    for (size_t row = 0; row < p->rows; row++) {
        struct gaussian_f32 of_p = gaussian_at(p, row), of_q = gaussian_at(q, row);
        decoupled_kl_f32(&of_p, &of_q, means + row * p->size, stds + row * p->size);
    }
}

/* One dimension's gradients to where they go. */
static void push_out(const trp_gaussian *policy, const struct gaussian_f32 *g,
                     const struct gaussian_push_f32 *push, const trp_gaussian_outputs *out,
                     bool add, size_t row, uint32_t i)
{
    if (out->mean) {
        float *mean = out->mean + row * policy->size + i;
        *mean = (add ? *mean : 0) + push->mean;
    }
    if (out->log_std) {
        float *log_std = out->log_std + log_std_at(policy, row) + i;
        *log_std = (add || policy->shared ? *log_std : 0) + bounded_slope_f32(g, i) * push->log_std;
    }
}

void trp_gaussian_kl_backward(const trp_gaussian *p, const trp_gaussian *q,
                              const trp_gaussian_kl_grads *grads)
{
    assert(p->rows == q->rows && p->size == q->size);
    if (grads->p.log_std)
        shared_begin(p, grads->p.log_std, grads->add);
    if (grads->q.log_std)
        shared_begin(q, grads->q.log_std, grads->add);
    for (size_t row = 0; row < p->rows; row++) {
        struct gaussian_f32 of_p = gaussian_at(p, row), of_q = gaussian_at(q, row);
        struct kl_slopes_f32 by = {
            .by_divergence = grads->divergences ? grads->divergences[row] : 0,
            .by_means = row_of(p, grads->means, row),
            .by_stds = row_of(p, grads->stds, row),
        };
        for (uint32_t i = 0; i < p->size; i++) {
            struct gaussian_push_f32 to_p, to_q;
            gaussian_kl_push_at_f32(&of_p, &of_q, &by, i, &to_p, &to_q);
            push_out(p, &of_p, &to_p, &grads->p, grads->add, row, i);
            push_out(q, &of_q, &to_q, &grads->q, grads->add, row, i);
        }
    }
}
