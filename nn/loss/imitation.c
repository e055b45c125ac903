/* Imitation: behaviour cloning, and the weights that a critic gives to it. */
#include <troupe/policy_losses.h>

#include <assert.h>

#include "mean.h"
#include "rows_f32.h"

float trp_cloning_loss(uint32_t rows, const float *weights, const float *log_probs,
                       float *dlog_probs)
{
    assert(rows > 0);
    float share = 1.0f / (float)rows;
    double loss = 0;
    for (size_t row = 0; row < rows; row++) {
        float weight = row_weight(weights, row);
        loss -= weight == 0 ? 0 : (double)(weight * log_probs[row]);
        dlog_probs[row] = -weight * share;
    }
    return (float)(loss / rows);
}

void trp_crr_weights(const trp_crr_batch *batch, float *weights)
{
    assert(batch->samples > 0);
    float temperature = batch->temperature > 0 ? batch->temperature : 1;
    float most = batch->most > 0 ? batch->most : 20;
    for (size_t row = 0; row < batch->rows; row++) {
        float weight = row_weight(batch->weights, row);
        weights[row] = weight == 0 ? 0
                                   : weight * crr_weight_f32(batch->q[row],
                                                             batch->policy_q + row * batch->samples,
                                                             batch->samples, batch->max,
                                                             batch->binary, temperature, most);
    }
}
