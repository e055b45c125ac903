/* Rows of policies' distributions (distributions.h). */
#ifndef TRP_NN_LOSS_BATCH_DISTRIBUTIONS_H
#define TRP_NN_LOSS_BATCH_DISTRIBUTIONS_H

#include <troupe/distributions.h>

#include "batch.h"

/* ---- Gaussian -------------------------------------------------------------------------------- */

/* Where a row's log_std is. */
LOSS_BODY size_t log_std_at(const trp_gaussian *policy, size_t row)
{
    return policy->shared ? 0 : row * policy->size;
}

LOSS_BODY struct gaussian_f32 gaussian_at(const trp_gaussian *policy, size_t row)
{
    bool bounded = policy->least_log_std < 0 || policy->least_log_std > 0 ||
                   policy->most_log_std < 0 || policy->most_log_std > 0;
    struct gaussian_f32 g;
    g.size = policy->size;
    g.mean = policy->mean + row * policy->size;
    g.log_std = policy->log_std + log_std_at(policy, row);
    g.least = bounded ? policy->least_log_std : -INFINITY;
    g.most = bounded ? policy->most_log_std : INFINITY;
    g.squashed = policy->squashed;
    g.low = policy->low;
    g.high = policy->high;
    return g;
}

/* A row of an array of [rows][size]; NULL stays NULL. */
LOSS_BODY const float *row_of(const trp_gaussian *policy, const float *array, size_t row)
{
    return array ? array + row * policy->size : NULL;
}

LOSS_BODY float gaussian_log_prob_at(const trp_gaussian *policy, const float *actions, size_t row)
{
    struct gaussian_f32 g = gaussian_at(policy, row);
    return gaussian_log_prob_f32(&g, actions + row * policy->size);
}

LOSS_BODY float gaussian_entropy_at(const trp_gaussian *policy, const float *noise, size_t row)
{
    struct gaussian_f32 g = gaussian_at(policy, row);
    return gaussian_entropy_f32(&g, row_of(policy, noise, row));
}

LOSS_BODY float gaussian_transform_at(const trp_gaussian *policy, const float *noise,
                                      float *actions, size_t row)
{
    struct gaussian_f32 g = gaussian_at(policy, row);
    return gaussian_transform_f32(&g, noise + row * policy->size, actions + row * policy->size);
}

LOSS_BODY void gaussian_back_at(const trp_gaussian *policy, const trp_gaussian_grads *grads,
                                size_t row)
{
    struct gaussian_f32 g = gaussian_at(policy, row);
    struct gaussian_slopes_f32 by;
    by.actions = grads->log_probs ? row_of(policy, grads->actions, row) : NULL;
    by.noise = row_of(policy, grads->noise, row);
    by.by_sample_action = row_of(policy, grads->sample_actions, row);
    by.by_log_prob = grads->log_probs ? grads->log_probs[row] : 0;
    by.by_sample_log_prob = grads->sample_log_probs ? grads->sample_log_probs[row] : 0;
    by.by_entropy = grads->entropies ? grads->entropies[row] : 0;
    gaussian_back_f32(&g, &by, grads->add, grads->add || policy->shared,
                      grads->mean + row * policy->size, grads->log_std + log_std_at(policy, row));
}

LOSS_BODY void decoupled_kl_at(const trp_gaussian *p, const trp_gaussian *q, float *means,
                               float *stds, size_t row)
{
    struct gaussian_f32 of_p = gaussian_at(p, row), of_q = gaussian_at(q, row);
    decoupled_kl_f32(&of_p, &of_q, means + row * p->size, stds + row * p->size);
}

/* One dimension's gradients to where they go. */
LOSS_BODY void push_out(const trp_gaussian *policy, const struct gaussian_f32 *g,
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

LOSS_BODY void gaussian_kl_back_at(const trp_gaussian *p, const trp_gaussian *q,
                                   const trp_gaussian_kl_grads *grads, size_t row)
{
    struct gaussian_f32 of_p = gaussian_at(p, row), of_q = gaussian_at(q, row);
    struct kl_slopes_f32 by;
    by.by_divergence = grads->divergences ? grads->divergences[row] : 0;
    by.by_means = row_of(p, grads->means, row);
    by.by_stds = row_of(p, grads->stds, row);
    for (uint32_t i = 0; i < p->size; i++) {
        struct gaussian_push_f32 to_p, to_q;
        gaussian_kl_push_at_f32(&of_p, &of_q, &by, i, &to_p, &to_q);
        push_out(p, &of_p, &to_p, &grads->p, grads->add, row, i);
        push_out(q, &of_q, &to_q, &grads->q, grads->add, row, i);
    }
}

/* ---- categorical ----------------------------------------------------------------------------- */

/* One part of one row. */
struct policy_part {
    const float *logits;
    const bool *mask;
    size_t at;     /* of its first choice, in all rows */
    size_t action; /* in all rows */
    uint32_t size;
};

LOSS_BODY uint32_t part_count(const trp_categorical *policy)
{
    return policy->parts > 0 ? policy->parts : 1;
}

/* Before the first part of a row. */
LOSS_BODY struct policy_part parts_of(const trp_categorical *policy, size_t row)
{
    struct policy_part part = {NULL, NULL, row * policy->choices, row * part_count(policy) - 1, 0};
    return part;
}

/* The next part, which is number `index` of its row. */
LOSS_BODY void part_next(const trp_categorical *policy, struct policy_part *part, uint32_t index)
{
    part->at += part->size;
    part->action++;
    part->size = part_count(policy) > 1 ? (uint32_t)policy->sizes[index] : policy->choices;
    part->logits = policy->logits + part->at;
    part->mask = policy->mask ? policy->mask + part->at : NULL;
    LOSS_ASSERT(part->size > 0);
}

LOSS_BODY uint32_t part_action(const struct policy_part *part, const int32_t *actions)
{
    uint32_t taken = (uint32_t)actions[part->action];
    LOSS_ASSERT(taken < part->size);
    return taken;
}

LOSS_BODY float categorical_log_prob_at(const trp_categorical *policy, const int32_t *actions,
                                        size_t row)
{
    struct policy_part part = parts_of(policy, row);
    float sum = 0;
    for (uint32_t i = 0; i < part_count(policy); i++) {
        part_next(policy, &part, i);
        sum += categorical_log_prob_f32(part.logits, part.mask, part.size,
                                        part_action(&part, actions));
    }
    return sum;
}

LOSS_BODY float categorical_entropy_at(const trp_categorical *policy, size_t row)
{
    struct policy_part part = parts_of(policy, row);
    float sum = 0;
    for (uint32_t i = 0; i < part_count(policy); i++) {
        part_next(policy, &part, i);
        sum += categorical_entropy_f32(part.logits, part.mask, part.size);
    }
    return sum;
}

LOSS_BODY void categorical_back_at(const trp_categorical *policy,
                                   const trp_categorical_grads *grads, size_t row)
{
    struct policy_part part = parts_of(policy, row);
    for (uint32_t i = 0; i < part_count(policy); i++) {
        part_next(policy, &part, i);
        categorical_back_f32(part.logits, part.mask, part.size,
                             grads->log_probs ? part_action(&part, grads->actions) : 0,
                             grads->log_probs ? grads->log_probs[row] : 0,
                             grads->entropies ? grads->entropies[row] : 0, grads->add,
                             grads->logits + part.at);
    }
}

#endif
