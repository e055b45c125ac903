/* MPO: what sampled actions weigh, and what keeps the policy near. */
#include <troupe/actor_critic_losses.h>

#include <assert.h>

#include "rows_f32.h"

float trp_mpo_dual(float number)
{
    float slope;
    return mpo_dual_f32(number, &slope);
}

float trp_mpo_weights(const trp_mpo_batch *batch, float *weights, float *dtemperature)
{
    assert(batch->rows > 0 && batch->samples > 0);
    float slope, eta = mpo_dual_f32(batch->temperature, &slope);
    float bound = batch->bound > 0 ? batch->bound : 0.1f;
    double log_means = 0, pushes = 0;
    for (size_t row = 0; row < batch->rows; row++) {
        size_t at = row * batch->samples;
        float push;
        log_means += (double)mpo_row_f32(batch->q + at, batch->samples, eta, weights + at, &push);
        pushes += (double)push;
    }
    *dtemperature = slope * (bound + (float)(pushes / batch->rows));
    return eta * (bound + (float)(log_means / batch->rows));
}

trp_loss trp_mpo_bound_loss(const trp_mpo_bound *bound, float *ddivergences, float *dmultipliers)
{
    assert(bound->rows > 0 && bound->size > 0);
    float share = 1.0f / (float)bound->rows;
    trp_loss total = {0};
    for (size_t k = 0; k < bound->size; k++) {
        float slope, alpha = mpo_dual_f32(bound->multipliers[k], &slope);
        double sum = 0;
        for (size_t row = 0; row < bound->rows; row++) {
            sum += (double)bound->divergences[row * bound->size + k];
            ddivergences[row * bound->size + k] = alpha * share;
        }
        float mean = (float)(sum / bound->rows);
        dmultipliers[k] = slope * (bound->bound - mean);
        total.loss += alpha * mean;
        total.value += mean;
    }
    return total;
}
