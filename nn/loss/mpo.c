/* MPO: what sampled actions weigh, and what keeps the policy near. */
#include <troupe/actor_critic_losses.h>

#include "batch_actor_critics.h"

float trp_mpo_dual(float number)
{
    float slope;
    return mpo_dual_f32(number, &slope);
}

float trp_mpo_weights(const trp_mpo_batch *batch, float *weights, float *dtemperature)
{
    assert(batch->rows > 0 && batch->samples > 0);
    float eta = trp_mpo_dual(batch->temperature);
    struct loss_sums sums = {0};
    for (size_t row = 0; row < batch->rows; row++)
        mpo_weights_at(batch, eta, weights, row, &sums);
    return mpo_weights_loss(batch, &sums, dtemperature);
}

trp_loss trp_mpo_bound_loss(const trp_mpo_bound *bound, float *ddivergences, float *dmultipliers)
{
    assert(bound->rows > 0 && bound->size > 0);
    struct loss_sums sums = {0};
    for (size_t k = 0; k < bound->size; k++)
        mpo_bound_at(bound, ddivergences, dmultipliers, k, &sums);
    return loss_mean(&sums, 1);
}
