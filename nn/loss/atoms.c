/* Distributions of values: loops over the rows of batch_values.h. */
#include <troupe/losses.h>

#include "batch_values.h"

/* ---- C51 --------------------------------------------------------------------------------- */

static void check_support(const trp_support *support)
{
    assert(support->atoms >= 2);
    assert(support->least < support->most);
}

void trp_c51_values(const trp_support *support, size_t count, const float *logits, float *values)
{
    check_support(support);
    for (size_t i = 0; i < count; i++)
        values[i] = c51_mean_f32(logits + i * support->atoms, support->atoms, support->least,
                                 support->most);
}

void trp_c51_targets(const trp_support *support, const trp_q_batch *batch, const float *next_online,
                     const float *next_target, float *targets)
{
    check_support(support);
    for (size_t row = 0; row < batch->rows; row++)
        c51_target_at(support, batch, next_online, next_target, targets, row);
}

trp_loss trp_c51_loss(const trp_support *support, const trp_q_batch *batch, const float *logits,
                      const float *targets, float *divergences, float *dlogits)
{
    assert(batch->rows > 0);
    check_support(support);
    struct loss_sums sums = {0};
    for (size_t row = 0; row < batch->rows; row++)
        c51_loss_at(support, batch, logits, targets, divergences, dlogits, row, &sums);
    return loss_mean(&sums, batch->rows);
}

/* ---- QR-DQN ------------------------------------------------------------------------------ */

void trp_quantile_values(uint32_t quantiles, size_t count, const float *theta, float *values)
{
    assert(quantiles > 0);
    for (size_t i = 0; i < count; i++)
        values[i] = quantile_mean_f32(theta + i * quantiles, quantiles);
}

void trp_quantile_targets(uint32_t quantiles, const trp_q_batch *batch, const float *next_online,
                          const float *next_target, float *targets)
{
    assert(quantiles > 0);
    for (size_t row = 0; row < batch->rows; row++)
        quantile_target_at(quantiles, batch, next_online, next_target, targets, row);
}

trp_loss trp_quantile_loss(uint32_t quantiles, const trp_q_batch *batch, float kappa,
                           const float *theta, const float *targets, float *errors, float *dtheta)
{
    assert(batch->rows > 0);
    assert(quantiles > 0);
    struct loss_sums sums = {0};
    for (size_t row = 0; row < batch->rows; row++)
        quantile_loss_at(quantiles, batch, kappa, theta, targets, errors, dtheta, row, &sums);
    return loss_mean(&sums, batch->rows);
}
