/* Categorical policies: loops over the rows and parts of batch_distributions.h, in order. */
#include <troupe/distributions.h>

#include "batch_distributions.h"

/* The rest of a policy from a row on, part by part; false: there is none. */
struct all_parts {
    struct policy_part part;
    size_t row;
    uint32_t index; /* of the part in its row, from 1 on; 0: none was taken */
};

static bool parts_next(const trp_categorical *policy, struct all_parts *all)
{
    if (all->index == part_count(policy)) {
        assert(all->part.at + all->part.size == (all->row + 1) * policy->choices);
        all->row++;
        all->index = 0;
    }
    if (all->row == policy->rows)
        return false;
    if (all->index == 0)
        all->part = parts_of(policy, all->row);
    part_next(policy, &all->part, all->index++);
    return true;
}

void trp_categorical_sample(const trp_categorical *policy, trp_rng *rng, int32_t *actions)
{
    for (struct all_parts all = {0}; parts_next(policy, &all);)
        actions[all.part.action] = (int32_t)categorical_draw_f32(
            all.part.logits, all.part.mask, all.part.size, trp_rng_double(rng));
}

void trp_categorical_mode(const trp_categorical *policy, int32_t *actions)
{
    for (struct all_parts all = {0}; parts_next(policy, &all);)
        actions[all.part.action] =
            (int32_t)argmax_f32(all.part.logits, all.part.mask, all.part.size);
}

void trp_categorical_log_prob(const trp_categorical *policy, const int32_t *actions,
                              float *log_probs)
{
    for (size_t row = 0; row < policy->rows; row++)
        log_probs[row] = categorical_log_prob_at(policy, actions, row);
}

void trp_categorical_entropy(const trp_categorical *policy, float *entropies)
{
    for (size_t row = 0; row < policy->rows; row++)
        entropies[row] = categorical_entropy_at(policy, row);
}

void trp_categorical_backward(const trp_categorical *policy, const trp_categorical_grads *grads)
{
    for (size_t row = 0; row < policy->rows; row++)
        categorical_back_at(policy, grads, row);
}

static void assert_same_shape(const trp_categorical *p, const trp_categorical *q)
{
    assert(p->rows == q->rows && p->choices == q->choices && p->parts == q->parts);
    (void)p, (void)q;
}

/* The same part of the other one. */
static struct policy_part part_beside(const trp_categorical *q, const struct policy_part *part)
{
    struct policy_part beside = *part;
    beside.logits = q->logits + part->at;
    beside.mask = q->mask ? q->mask + part->at : NULL;
    return beside;
}

void trp_categorical_kl(const trp_categorical *p, const trp_categorical *q, float *divergences)
{
    assert_same_shape(p, q);
    for (struct all_parts all = {0}; parts_next(p, &all);) {
        struct policy_part other = part_beside(q, &all.part);
        float divergence = categorical_kl_f32(all.part.logits, all.part.mask, other.logits,
                                              other.mask, all.part.size);
        divergences[all.row] = all.index == 1 ? divergence : divergences[all.row] + divergence;
    }
}

void trp_categorical_kl_backward(const trp_categorical *p, const trp_categorical *q,
                                 const trp_categorical_kl_grads *grads)
{
    assert_same_shape(p, q);
    for (struct all_parts all = {0}; parts_next(p, &all);) {
        struct policy_part other = part_beside(q, &all.part);
        categorical_kl_back_f32(all.part.logits, all.part.mask, other.logits, other.mask,
                                all.part.size, grads->divergences[all.row], grads->add,
                                grads->p_logits ? grads->p_logits + all.part.at : NULL,
                                grads->q_logits ? grads->q_logits + all.part.at : NULL);
    }
}
