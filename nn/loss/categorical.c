/* Categorical policies: loops over the rows and parts of rows_categorical.h, in order. */
#include <troupe/distributions.h>

#include <assert.h>

#include "rows_f32.h"

/* One part of one row. */
struct policy_part {
    size_t row, at;       /* at: of its first choice, in all rows */
    uint32_t index, size; /* index: of the part in its row */
    size_t action;        /* in all rows */
};

static struct policy_part no_part(void)
{
    return (struct policy_part){.index = UINT32_MAX, .action = SIZE_MAX};
}

/* The next part, of this row or the next one; false: there is none. */
static bool part_next(const trp_categorical *policy, struct policy_part *part)
{
    uint32_t parts = policy->parts > 0 ? policy->parts : 1;
    part->at += part->size;
    part->action++;
    part->index++;
    if (part->index == parts) {
        part->index = 0;
        part->row++;
        assert(part->at == part->row * policy->choices);
    }
    if (part->row == policy->rows)
        return false;
    part->size = parts > 1 ? (uint32_t)policy->sizes[part->index] : policy->choices;
    assert(part->size > 0);
    return true;
}

static const float *part_logits(const trp_categorical *policy, const struct policy_part *part)
{
    return policy->logits + part->at;
}

static const bool *part_mask(const trp_categorical *policy, const struct policy_part *part)
{
    return policy->mask ? policy->mask + part->at : NULL;
}

static uint32_t part_action(const struct policy_part *part, const int32_t *actions)
{
    uint32_t taken = (uint32_t)actions[part->action];
    assert(taken < part->size);
    return taken;
}

/* A row's number is the sum of its parts'. */
static void part_sum(const struct policy_part *part, float value, float *rows)
{
    rows[part->row] = part->index == 0 ? value : rows[part->row] + value;
}

void trp_categorical_sample(const trp_categorical *policy, trp_rng *rng, int32_t *actions)
{
    for (struct policy_part part = no_part(); part_next(policy, &part);)
        actions[part.action] = (int32_t)categorical_draw_f32(
            part_logits(policy, &part), part_mask(policy, &part), part.size, trp_rng_double(rng));
}

void trp_categorical_mode(const trp_categorical *policy, int32_t *actions)
{
    for (struct policy_part part = no_part(); part_next(policy, &part);)
        actions[part.action] =
            (int32_t)argmax_f32(part_logits(policy, &part), part_mask(policy, &part), part.size);
}

void trp_categorical_log_prob(const trp_categorical *policy, const int32_t *actions,
                              float *log_probs)
{
    for (struct policy_part part = no_part(); part_next(policy, &part);)
        part_sum(&part,
                 categorical_log_prob_f32(part_logits(policy, &part), part_mask(policy, &part),
                                          part.size, part_action(&part, actions)),
                 log_probs);
}

void trp_categorical_entropy(const trp_categorical *policy, float *entropies)
{
    for (struct policy_part part = no_part(); part_next(policy, &part);)
        part_sum(&part,
                 categorical_entropy_f32(part_logits(policy, &part), part_mask(policy, &part),
                                         part.size),
                 entropies);
}

void trp_categorical_backward(const trp_categorical *policy, const trp_categorical_grads *grads)
{
    for (struct policy_part part = no_part(); part_next(policy, &part);)
        categorical_back_f32(part_logits(policy, &part), part_mask(policy, &part), part.size,
                             grads->log_probs ? part_action(&part, grads->actions) : 0,
                             grads->log_probs ? grads->log_probs[part.row] : 0,
                             grads->entropies ? grads->entropies[part.row] : 0, grads->add,
                             grads->logits + part.at);
}

static void assert_same_shape(const trp_categorical *p, const trp_categorical *q)
{
    assert(p->rows == q->rows && p->choices == q->choices && p->parts == q->parts);
    (void)p, (void)q;
}

void trp_categorical_kl(const trp_categorical *p, const trp_categorical *q, float *divergences)
{
    assert_same_shape(p, q);
    for (struct policy_part part = no_part(); part_next(p, &part);)
        part_sum(&part,
                 categorical_kl_f32(part_logits(p, &part), part_mask(p, &part),
                                    part_logits(q, &part), part_mask(q, &part), part.size),
                 divergences);
}

void trp_categorical_kl_backward(const trp_categorical *p, const trp_categorical *q,
                                 const trp_categorical_kl_grads *grads)
{
    assert_same_shape(p, q);
    for (struct policy_part part = no_part(); part_next(p, &part);)
        categorical_kl_back_f32(part_logits(p, &part), part_mask(p, &part), part_logits(q, &part),
                                part_mask(q, &part), part.size, grads->divergences[part.row],
                                grads->add, grads->p_logits ? grads->p_logits + part.at : NULL,
                                grads->q_logits ? grads->q_logits + part.at : NULL);
}
