/* Actors that follow critics: loops over the rows, in order, with sums in double. */
#include <troupe/actor_critic_losses.h>

#include <assert.h>

#include "mean.h"
#include "rows_f32.h"

/* ---- critics ----------------------------------------------------------------------------- */

void trp_critic_targets(const trp_critic_batch *batch, float *targets)
{
    bool soft = batch->next_log_probs && batch->temperature != 0;
    for (size_t row = 0; row < batch->rows; row++) {
        float q = batch->next_q[row], q2 = batch->next_q2 ? batch->next_q2[row] : q;
        targets[row] =
            critic_target_f32(batch->rewards[row], batch->discounts[row], q, q2,
                              soft ? batch->next_log_probs[row] : 0, soft ? batch->temperature : 0);
    }
}

static float kept(float x, float least, float most)
{
    return x < least ? least : x > most ? most : x;
}

void trp_smooth_actions(const trp_smoothing_options *options, uint32_t rows, uint32_t size,
                        trp_rng *rng, float *actions)
{
    trp_smoothing_options o = options ? *options : (trp_smoothing_options){0};
    float deviation = o.deviation > 0 ? o.deviation : 0.2f, clip = o.clip > 0 ? o.clip : 0.5f;
    for (size_t i = 0; i < (size_t)rows * size; i++) {
        float low = o.low ? o.low[i % size] : -1, high = o.high ? o.high[i % size] : 1;
        float noise = kept(deviation * (float)trp_rng_normal(rng), -clip, clip);
        actions[i] = kept(actions[i] + noise * (high - low) / 2, low, high);
    }
}

/* ---- policies ---------------------------------------------------------------------------- */

trp_loss trp_sac_policy_loss(const trp_sac_batch *batch, float *dq, float *dq2, float *dlog_probs)
{
    assert(batch->rows > 0);
    float share = 1.0f / (float)batch->rows;
    double loss = 0, value = 0;
    for (size_t row = 0; row < batch->rows; row++) {
        float q = batch->q[row], q2 = batch->q2 ? batch->q2[row] : q;
        float weight = row_weight(batch->weights, row), log_prob = batch->log_probs[row];
        bool first;
        loss += (double)(weight * sac_row_f32(q, q2, log_prob, batch->temperature, &first));
        value += (double)lesser_f32(q, q2);
        dq[row] = first ? -weight * share : 0;
        if (batch->q2)
            dq2[row] = first ? 0 : -weight * share;
        dlog_probs[row] = weight * share * batch->temperature;
    }
    return loss_mean(loss, value, batch->rows);
}

float trp_multiplier_loss(float log_multiplier, float value, float bound, float *dlog)
{
    *dlog = expf(log_multiplier) * (bound - value);
    return *dlog;
}

/* How much q counts beside imitation. */
static float imitation_lambda(const trp_td3_batch *batch)
{
    double size = 0;
    for (size_t row = 0; row < batch->rows; row++)
        size += fabs((double)batch->q[row]);
    float imitation = batch->imitation > 0 ? batch->imitation : 2.5f;
    return size > 0 || size != size ? (float)(imitation * batch->rows / size) : imitation;
}

trp_loss trp_td3_policy_loss(const trp_td3_batch *batch, float *dq, float *dactions)
{
    assert(batch->rows > 0);
    float share = 1.0f / (float)batch->rows, lambda = batch->taken ? imitation_lambda(batch) : 1;
    double loss = 0, value = 0;
    for (size_t row = 0; row < batch->rows; row++) {
        float weight = row_weight(batch->weights, row), q = batch->q[row], near = 0;
        size_t at = row * batch->size;
        if (batch->taken)
            near = imitation_row_f32(batch->actions + at, batch->taken + at, batch->size,
                                     weight * share, dactions + at);
        loss += (double)(weight * (near - lambda * q));
        value += (double)q;
        dq[row] = -weight * share * lambda;
    }
    return loss_mean(loss, value, batch->rows);
}

trp_loss trp_d4pg_policy_loss(const trp_support *support, uint32_t rows, const float *weights,
                              const float *logits, float *dlogits)
{
    assert(rows > 0);
    assert(support->atoms >= 2 && support->least < support->most);
    float share = 1.0f / (float)rows;
    double loss = 0, value = 0;
    for (size_t row = 0; row < rows; row++) {
        float weight = row_weight(weights, row);
        size_t at = row * support->atoms;
        float q = c51_mean_row_f32(logits + at, support->atoms, support->least, support->most,
                                   -weight * share, dlogits + at);
        loss -= (double)(weight * q);
        value += (double)q;
    }
    return loss_mean(loss, value, rows);
}

/* ---- from a data set --------------------------------------------------------------------- */

trp_loss trp_expectile_loss(const trp_expectile_batch *batch, const float *values, float *dvalues)
{
    assert(batch->rows > 0);
    float share = 1.0f / (float)batch->rows;
    float expectile = batch->expectile > 0 ? batch->expectile : 0.7f;
    double loss = 0, sum = 0;
    for (size_t row = 0; row < batch->rows; row++) {
        float weight = row_weight(batch->weights, row), value = values[row], push;
        loss += (double)(weight * expectile_row_f32(batch->targets[row] - value, expectile, &push));
        sum += (double)value;
        dvalues[row] = weight * share * push;
    }
    return loss_mean(loss, sum, batch->rows);
}

trp_cql trp_cql_loss(const trp_cql_batch *batch, const float *sampled_q, float *dsampled_q,
                     float *dq)
{
    assert(batch->rows > 0 && batch->samples > 0);
    float scale = batch->scale > 0 ? batch->scale : 5;
    double loss = 0, gaps = 0;
    for (size_t row = 0; row < batch->rows; row++) {
        size_t at = row * batch->samples;
        float push = row_weight(batch->weights, row) * scale / (float)batch->rows;
        uint32_t taken = batch->taken ? (uint32_t)batch->taken[row] : 0;
        assert(taken < batch->samples);
        float q = batch->taken ? sampled_q[at + taken] : batch->q[row];
        float gap = cql_row_f32(sampled_q + at, batch->log_probs ? batch->log_probs + at : NULL,
                                batch->mask ? batch->mask + at : NULL, batch->samples, push,
                                batch->add, dsampled_q + at) -
                    q;
        if (batch->taken)
            dsampled_q[at + taken] -= push;
        else
            dq[row] = batch->add ? dq[row] - push : -push;
        gaps += (double)gap;
        loss += (double)(row_weight(batch->weights, row) * scale * gap);
    }
    return (trp_cql){.loss = (float)(loss / batch->rows), .gap = (float)(gaps / batch->rows)};
}
