/* Imitation: behaviour cloning, and the weights that a critic gives to it. */
#include <troupe/policy_losses.h>

#include "batch_policies.h"

float trp_cloning_loss(uint32_t rows, const float *weights, const float *log_probs,
                       float *dlog_probs)
{
    assert(rows > 0);
    struct loss_sums sums = {0};
    for (size_t row = 0; row < rows; row++)
        cloning_at(rows, weights, log_probs, dlog_probs, row, &sums);
    return loss_mean(&sums, rows).loss;
}

void trp_crr_weights(const trp_crr_batch *batch, float *weights)
{
    assert(batch->samples > 0);
    for (size_t row = 0; row < batch->rows; row++)
        weights[row] = crr_weight_at(batch, row);
}
