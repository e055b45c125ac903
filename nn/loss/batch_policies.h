/* Rows of batches of actions that were taken (policy_losses.h). */
#ifndef TRP_NN_LOSS_BATCH_POLICIES_H
#define TRP_NN_LOSS_BATCH_POLICIES_H

#include <troupe/policy_losses.h>

#include "batch.h"

/* ---- policy gradients ------------------------------------------------------------------------ */

/* A row without weight: whatever its numbers are. */
LOSS_BODY bool policy_leaves_out(const trp_policy_batch *batch, const float *entropies,
                                 float *dlog_probs, float *dentropies, size_t row)
{
    if (row_weight(batch->weights, row) != 0)
        return false;
    dlog_probs[row] = 0;
    if (entropies)
        dentropies[row] = 0;
    return true;
}

/* What is left to do of a row whose loss is known, but for its bonus of entropy. */
LOSS_BODY void policy_row_end(const trp_policy_batch *batch, float loss, const float *entropies,
                              float *dentropies, size_t row, struct loss_sums *sums)
{
    float weight = row_weight(batch->weights, row), scale = weight * (1.0f / (float)batch->rows);
    if (entropies) {
        sums->entropy += (double)entropies[row];
        loss -= batch->entropy * entropies[row];
        dentropies[row] = -scale * batch->entropy;
    }
    sums->loss += (double)(weight * loss);
    sums->rows++;
}

LOSS_BODY void policy_gradient_at(const trp_policy_batch *batch, const float *log_probs,
                                  const float *entropies, float *dlog_probs, float *dentropies,
                                  size_t row, struct loss_sums *sums)
{
    if (policy_leaves_out(batch, entropies, dlog_probs, dentropies, row))
        return;
    float scale = row_weight(batch->weights, row) * (1.0f / (float)batch->rows);
    float loss = -batch->advantages[row] * log_probs[row];
    dlog_probs[row] = -scale * batch->advantages[row];
    policy_row_end(batch, loss, entropies, dentropies, row, sums);
}

LOSS_BODY void ppo_at(const trp_policy_batch *batch, const float *log_probs, const float *entropies,
                      float *dlog_probs, float *dentropies, size_t row, struct loss_sums *sums)
{
    if (policy_leaves_out(batch, entropies, dlog_probs, dentropies, row))
        return;
    float scale = row_weight(batch->weights, row) * (1.0f / (float)batch->rows), push;
    float clip = batch->clip > 0 ? batch->clip : 0.2f;
    float log_ratio = log_probs[row] - batch->old_log_probs[row];
    float loss = ppo_row_f32(log_ratio, batch->advantages[row], clip, &push);
    dlog_probs[row] = scale * push;
    sums->divergence += (double)divergence_of_ratio_f32(log_ratio);
    sums->clipped += fabsf(expf(log_ratio) - 1) > clip ? 1 : 0;
    policy_row_end(batch, loss, entropies, dentropies, row, sums);
}

LOSS_BODY trp_policy_loss policy_loss_of(const trp_policy_batch *batch,
                                         const struct loss_sums *sums)
{
    double rows = sums->rows > 0 ? sums->rows : 1;
    trp_policy_loss loss;
    loss.loss = (float)(sums->loss / batch->rows);
    loss.entropy = (float)(sums->entropy / rows);
    loss.divergence = (float)(sums->divergence / rows);
    loss.clipped = (float)(sums->clipped / rows);
    return loss;
}

/* ---- advantages: their sum, then that of squares of what they are off the mean, then the rows --
 */

LOSS_BODY double advantages_mean(const struct loss_sums *sums)
{
    return sums->rows > 0 ? sums->value / sums->rows : 0;
}

LOSS_BODY double advantages_scale(double squares, double rows)
{
    return 1 / ((rows > 0 ? sqrt(squares / rows) : 0) + 1e-8);
}

LOSS_BODY float advantage_normalized(float advantage, double mean, double scale)
{
    return (float)(((double)advantage - mean) * scale);
}

/* ---- imitation ------------------------------------------------------------------------------- */

LOSS_BODY void cloning_at(uint32_t rows, const float *weights, const float *log_probs,
                          float *dlog_probs, size_t row, struct loss_sums *sums)
{
    float weight = row_weight(weights, row);
    sums->loss -= weight == 0 ? 0 : (double)(weight * log_probs[row]);
    dlog_probs[row] = -weight * (1.0f / (float)rows);
}

LOSS_BODY float crr_weight_at(const trp_crr_batch *batch, size_t row)
{
    float temperature = batch->temperature > 0 ? batch->temperature : 1;
    float most = batch->most > 0 ? batch->most : 20, weight = row_weight(batch->weights, row);
    return weight == 0
               ? 0
               : weight * crr_weight_f32(batch->q[row], batch->policy_q + row * batch->samples,
                                         batch->samples, batch->max, batch->binary, temperature,
                                         most);
}

#endif
