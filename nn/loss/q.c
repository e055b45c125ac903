/* Losses on values of actions: loops over the rows of batch_values.h, in order. */
#include <troupe/losses.h>

#include "batch_values.h"

uint32_t trp_argmax(const float *values, const bool *mask, uint32_t count)
{
    return argmax_f32(values, mask, count);
}

void trp_double_q_targets(const trp_q_batch *batch, const float *next_online,
                          const float *next_target, float *targets)
{
    for (size_t row = 0; row < batch->rows; row++)
        targets[row] = double_q_target_at(batch, next_online, next_target, row);
}

void trp_munchausen_targets(const trp_munchausen_options *options, const trp_q_batch *batch,
                            const float *target, const float *next_target, float *targets)
{
    trp_munchausen_options o = options ? *options : (trp_munchausen_options){0};
    for (size_t row = 0; row < batch->rows; row++)
        targets[row] = munchausen_target_at(&o, batch, target, next_target, row);
}

trp_loss trp_q_loss(const trp_q_batch *batch, float huber_delta, const float *q,
                    const float *targets, float *errors, float *dq)
{
    assert(batch->rows > 0);
    struct loss_sums sums = {0};
    for (size_t row = 0; row < batch->rows; row++)
        q_loss_at(batch, huber_delta, q, targets, errors, dq, row, &sums);
    return loss_mean(&sums, batch->rows);
}
