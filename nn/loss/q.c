/* Losses on values of actions: loops over the rows of rows_q.h, in order, with sums in double. */
#include <troupe/losses.h>

#include <assert.h>

#include "mean.h"
#include "rows_f32.h"

uint32_t trp_argmax(const float *values, const bool *mask, uint32_t count)
{
    return argmax_f32(values, mask, count);
}

void trp_double_q_targets(const trp_q_batch *batch, const float *next_online,
                          const float *next_target, float *targets)
{
    for (size_t row = 0; row < batch->rows; row++) {
        size_t at = row * batch->actions;
        targets[row] = double_q_target_f32(
            batch->rewards[row], batch->discounts[row], next_online + at, next_target + at,
            batch->next_mask ? batch->next_mask + at : NULL, batch->actions);
    }
}

void trp_munchausen_targets(const trp_munchausen_options *options, const trp_q_batch *batch,
                            const float *target, const float *next_target, float *targets)
{
    trp_munchausen_options o = options ? *options : (trp_munchausen_options){0};
    float temperature = o.temperature > 0 ? o.temperature : 0.03f;
    float scale = o.scale > 0 ? o.scale : o.scale < 0 ? 0 : 0.9f;
    float least = o.least < 0 ? o.least : -1;
    for (size_t row = 0; row < batch->rows; row++) {
        size_t at = row * batch->actions;
        uint32_t taken = (uint32_t)batch->taken[row];
        assert(taken < batch->actions);
        float next =
            soft_value_f32(next_target + at, batch->next_mask ? batch->next_mask + at : NULL,
                           batch->actions, temperature);
        float bonus = munchausen_f32(target + at, batch->mask ? batch->mask + at : NULL,
                                     batch->actions, taken, temperature, scale, least);
        targets[row] = batch->rewards[row] + bonus + batch->discounts[row] * next;
    }
}

trp_loss trp_q_loss(const trp_q_batch *batch, float huber_delta, const float *q,
                    const float *targets, float *errors, float *dq)
{
    assert(batch->rows > 0);
    float delta = huber_delta > 0 ? huber_delta : 1, share = 1.0f / (float)batch->rows;
    double loss = 0, value = 0;
    for (size_t row = 0; row < batch->rows; row++) {
        size_t at = row * batch->actions;
        uint32_t taken = (uint32_t)batch->taken[row];
        assert(taken < batch->actions);
        float weight = row_weight(batch->weights, row);
        value += (double)q[at + taken];
        loss += (double)(weight * q_row_f32(q + at, batch->actions, taken, targets[row], delta,
                                            weight * share, &errors[row], dq + at));
    }
    return loss_mean(loss, value, batch->rows);
}
