/* Rows of batches of actors that follow critics (actor_critic_losses.h). */
#ifndef TRP_NN_LOSS_BATCH_ACTOR_CRITICS_H
#define TRP_NN_LOSS_BATCH_ACTOR_CRITICS_H

#include <troupe/actor_critic_losses.h>

#include "batch.h"

/* ---- critics --------------------------------------------------------------------------------- */

LOSS_BODY float critic_target_at(const trp_critic_batch *batch, float temperature, size_t row)
{
    bool soft = batch->next_log_probs && temperature != 0;
    float q = batch->next_q[row], q2 = batch->next_q2 ? batch->next_q2[row] : q;
    return critic_target_f32(batch->rewards[row], batch->discounts[row], q, q2,
                             soft ? batch->next_log_probs[row] : 0, soft ? temperature : 0);
}

/* The action of number i in its row, with a normal number's noise on it. */
LOSS_BODY float smoothed_action(const trp_smoothing_options *options, float action, uint32_t i,
                                double normal)
{
    float deviation = options->deviation > 0 ? options->deviation : 0.2f;
    float clip = options->clip > 0 ? options->clip : 0.5f;
    float low = options->low ? options->low[i] : -1, high = options->high ? options->high[i] : 1;
    float noise = kept_within(deviation * (float)normal, -clip, clip);
    return kept_within(action + noise * (high - low) / 2, low, high);
}

/* ---- policies -------------------------------------------------------------------------------- */

LOSS_BODY void sac_at(const trp_sac_batch *batch, float temperature, float *dq, float *dq2,
                      float *dlog_probs, size_t row, struct loss_sums *sums)
{
    float share = 1.0f / (float)batch->rows;
    float q = batch->q[row], q2 = batch->q2 ? batch->q2[row] : q;
    float weight = row_weight(batch->weights, row), log_prob = batch->log_probs[row];
    bool first;
    sums->loss += (double)(weight * sac_row_f32(q, q2, log_prob, temperature, &first));
    sums->value += (double)lesser_f32(q, q2);
    dq[row] = first ? -weight * share : 0;
    if (batch->q2)
        dq2[row] = first ? 0 : -weight * share;
    dlog_probs[row] = weight * share * temperature;
}

/* Loss and derivative of a multiplier's logarithm are the same. */
LOSS_BODY float multiplier_slope(float log_multiplier, float value, float bound)
{
    return expf(log_multiplier) * (bound - value);
}

/* How much q counts beside imitation, by the sum of all sizes of q. */
LOSS_BODY float imitation_lambda(const trp_td3_batch *batch, double size)
{
    float imitation = batch->imitation > 0 ? batch->imitation : 2.5f;
    return size > 0 || size != size ? (float)((double)(imitation * (float)batch->rows) / size)
                                    : imitation;
}

LOSS_BODY void td3_at(const trp_td3_batch *batch, float lambda, float *dq, float *dactions,
                      size_t row, struct loss_sums *sums)
{
    float share = 1.0f / (float)batch->rows, near = 0;
    float weight = row_weight(batch->weights, row), q = batch->q[row];
    size_t at = row * batch->size;
    if (batch->taken)
        near = imitation_row_f32(batch->actions + at, batch->taken + at, batch->size,
                                 weight * share, dactions + at);
    sums->loss += (double)(weight * (near - lambda * q));
    sums->value += (double)q;
    dq[row] = -weight * share * lambda;
}

LOSS_BODY void d4pg_at(const trp_support *support, uint32_t rows, const float *weights,
                       const float *logits, float *dlogits, size_t row, struct loss_sums *sums)
{
    float weight = row_weight(weights, row), share = 1.0f / (float)rows;
    size_t at = row * support->atoms;
    float q = c51_mean_row_f32(logits + at, support->atoms, support->least, support->most,
                               -weight * share, dlogits + at);
    sums->loss -= (double)(weight * q);
    sums->value += (double)q;
}

/* ---- MPO ------------------------------------------------------------------------------------- */

/* Adds what trp_mpo_weights() has the means of. */
LOSS_BODY void mpo_weights_at(const trp_mpo_batch *batch, float eta, float *weights, size_t row,
                              struct loss_sums *sums)
{
    size_t at = row * batch->samples;
    float push;
    sums->loss += (double)mpo_row_f32(batch->q + at, batch->samples, eta, weights + at, &push);
    sums->value += (double)push;
}

LOSS_BODY float mpo_weights_loss(const trp_mpo_batch *batch, const struct loss_sums *sums,
                                 float *dtemperature)
{
    float slope, eta = mpo_dual_f32(batch->temperature, &slope);
    float bound = batch->bound > 0 ? batch->bound : 0.1f;
    *dtemperature = slope * (bound + (float)(sums->value / batch->rows));
    return eta * (bound + (float)(sums->loss / batch->rows));
}

/* One of the dimensions that have multipliers of their own. */
LOSS_BODY void mpo_bound_at(const trp_mpo_bound *bound, float *ddivergences, float *dmultipliers,
                            size_t k, struct loss_sums *sums)
{
    float slope, alpha = mpo_dual_f32(bound->multipliers[k], &slope);
    double sum = 0;
    for (size_t row = 0; row < bound->rows; row++) {
        sum += (double)bound->divergences[row * bound->size + k];
        ddivergences[row * bound->size + k] = alpha * (1.0f / (float)bound->rows);
    }
    float mean = (float)(sum / bound->rows);
    dmultipliers[k] = slope * (bound->bound - mean);
    sums->loss += (double)(alpha * mean);
    sums->value += (double)mean;
}

/* ---- from a data set ------------------------------------------------------------------------- */

LOSS_BODY void expectile_at(const trp_expectile_batch *batch, const float *values, float *dvalues,
                            size_t row, struct loss_sums *sums)
{
    float expectile = batch->expectile > 0 ? batch->expectile : 0.7f;
    float weight = row_weight(batch->weights, row), value = values[row], push;
    sums->loss +=
        (double)(weight * expectile_row_f32(batch->targets[row] - value, expectile, &push));
    sums->value += (double)value;
    dvalues[row] = weight * (1.0f / (float)batch->rows) * push;
}

/* `value` of the sums: gaps. */
LOSS_BODY void cql_at(const trp_cql_batch *batch, const float *sampled_q, float *dsampled_q,
                      float *dq, size_t row, struct loss_sums *sums)
{
    float scale = batch->scale > 0 ? batch->scale : 5, weight = row_weight(batch->weights, row);
    float push = weight * scale / (float)batch->rows;
    size_t at = row * batch->samples;
    uint32_t taken = batch->taken ? (uint32_t)batch->taken[row] : 0;
    LOSS_ASSERT(taken < batch->samples);
    float q = batch->taken ? sampled_q[at + taken] : batch->q[row];
    float gap = cql_row_f32(sampled_q + at, batch->log_probs ? batch->log_probs + at : NULL,
                            batch->mask ? batch->mask + at : NULL, batch->samples, push, batch->add,
                            dsampled_q + at) -
                q;
    if (batch->taken)
        dsampled_q[at + taken] -= push;
    else
        dq[row] = batch->add ? dq[row] - push : -push;
    sums->value += (double)gap;
    sums->loss += (double)(weight * scale * gap);
}

#endif
