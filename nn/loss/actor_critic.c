/* Actors that follow critics: loops over the rows of batch_actor_critics.h, in order. */
#include <troupe/actor_critic_losses.h>

#include "batch_actor_critics.h"

/* ---- critics ----------------------------------------------------------------------------- */

void trp_critic_targets(const trp_critic_batch *batch, float *targets)
{
    for (size_t row = 0; row < batch->rows; row++)
        targets[row] = critic_target_at(batch, batch->temperature, row);
}

void trp_smooth_actions(const trp_smoothing_options *options, uint32_t rows, uint32_t size,
                        trp_rng *rng, float *actions)
{
    trp_smoothing_options o = options ? *options : (trp_smoothing_options){0};
    for (size_t i = 0; i < (size_t)rows * size; i++)
        actions[i] = smoothed_action(&o, actions[i], (uint32_t)(i % size), trp_rng_normal(rng));
}

/* ---- policies ---------------------------------------------------------------------------- */

trp_loss trp_sac_policy_loss(const trp_sac_batch *batch, float *dq, float *dq2, float *dlog_probs)
{
    assert(batch->rows > 0);
    struct loss_sums sums = {0};
    for (size_t row = 0; row < batch->rows; row++)
        sac_at(batch, batch->temperature, dq, dq2, dlog_probs, row, &sums);
    return loss_mean(&sums, batch->rows);
}

float trp_multiplier_loss(float log_multiplier, float value, float bound, float *dlog)
{
    *dlog = multiplier_slope(log_multiplier, value, bound);
    return *dlog;
}

trp_loss trp_td3_policy_loss(const trp_td3_batch *batch, float *dq, float *dactions)
{
    assert(batch->rows > 0);
    struct loss_sums sums = {0};
    double size = 0;
    for (size_t row = 0; row < batch->rows && batch->taken; row++)
        size += fabs((double)batch->q[row]);
    float lambda = batch->taken ? imitation_lambda(batch, size) : 1;
    for (size_t row = 0; row < batch->rows; row++)
        td3_at(batch, lambda, dq, dactions, row, &sums);
    return loss_mean(&sums, batch->rows);
}

trp_loss trp_d4pg_policy_loss(const trp_support *support, uint32_t rows, const float *weights,
                              const float *logits, float *dlogits)
{
    assert(rows > 0);
    assert(support->atoms >= 2 && support->least < support->most);
    struct loss_sums sums = {0};
    for (size_t row = 0; row < rows; row++)
        d4pg_at(support, rows, weights, logits, dlogits, row, &sums);
    return loss_mean(&sums, rows);
}

/* ---- from a data set --------------------------------------------------------------------- */

trp_loss trp_expectile_loss(const trp_expectile_batch *batch, const float *values, float *dvalues)
{
    assert(batch->rows > 0);
    struct loss_sums sums = {0};
    for (size_t row = 0; row < batch->rows; row++)
        expectile_at(batch, values, dvalues, row, &sums);
    return loss_mean(&sums, batch->rows);
}

trp_cql trp_cql_loss(const trp_cql_batch *batch, const float *sampled_q, float *dsampled_q,
                     float *dq)
{
    assert(batch->rows > 0 && batch->samples > 0);
    struct loss_sums sums = {0};
    for (size_t row = 0; row < batch->rows; row++)
        cql_at(batch, sampled_q, dsampled_q, dq, row, &sums);
    trp_loss mean = loss_mean(&sums, batch->rows);
    return (trp_cql){.loss = mean.loss, .gap = mean.value};
}
