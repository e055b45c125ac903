/* Distributions of values: loops over the rows of rows_atoms.h. */
#include <troupe/losses.h>

#include <assert.h>

#include "mean.h"
#include "rows_f32.h"

static const bool *mask_at(const trp_q_batch *batch, size_t row)
{
    return batch->next_mask ? batch->next_mask + row * batch->actions : NULL;
}

static uint32_t taken_at(const trp_q_batch *batch, size_t row)
{
    uint32_t taken = batch->taken ? (uint32_t)batch->taken[row] : 0;
    assert(taken < batch->actions);
    return taken;
}

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
    size_t atoms = support->atoms, width = batch->actions * atoms;
    for (size_t row = 0; row < batch->rows; row++) {
        uint32_t best =
            best_mean_f32(next_online + row * width, mask_at(batch, row), batch->actions,
                          support->atoms, support->least, support->most);
        c51_project_f32(next_target + row * width + best * atoms, support->atoms, support->least,
                        support->most, batch->rewards[row], batch->discounts[row],
                        targets + row * atoms);
    }
}

trp_loss trp_c51_loss(const trp_support *support, const trp_q_batch *batch, const float *logits,
                      const float *targets, float *divergences, float *dlogits)
{
    assert(batch->rows > 0);
    check_support(support);
    size_t atoms = support->atoms, width = batch->actions * atoms;
    float share = 1.0f / (float)batch->rows;
    double loss = 0, value = 0;
    for (size_t row = 0; row < batch->rows; row++) {
        uint32_t taken = taken_at(batch, row);
        const float *now = logits + row * width;
        float weight = row_weight(batch->weights, row);
        value += (double)c51_mean_f32(now + taken * atoms, support->atoms, support->least,
                                      support->most);
        loss += (double)(weight * c51_row_f32(now, batch->actions, support->atoms, taken,
                                              targets + row * atoms, weight * share,
                                              &divergences[row], dlogits + row * width));
    }
    return loss_mean(loss, value, batch->rows);
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
    size_t atoms = quantiles, width = batch->actions * atoms;
    for (size_t row = 0; row < batch->rows; row++) {
        uint32_t best = best_mean_f32(next_online + row * width, mask_at(batch, row),
                                      batch->actions, quantiles, 0, 0);
        for (size_t i = 0; i < atoms; i++)
            targets[row * atoms + i] =
                batch->rewards[row] +
                batch->discounts[row] * next_target[row * width + best * atoms + i];
    }
}

trp_loss trp_quantile_loss(uint32_t quantiles, const trp_q_batch *batch, float kappa,
                           const float *theta, const float *targets, float *errors, float *dtheta)
{
    assert(batch->rows > 0);
    assert(quantiles > 0);
    size_t atoms = quantiles, width = batch->actions * atoms;
    float delta = kappa > 0 ? kappa : 1, share = 1.0f / (float)batch->rows;
    double loss = 0, value = 0;
    for (size_t row = 0; row < batch->rows; row++) {
        uint32_t taken = taken_at(batch, row);
        const float *now = theta + row * width;
        float weight = row_weight(batch->weights, row);
        value += (double)quantile_mean_f32(now + taken * atoms, quantiles);
        loss += (double)(weight * quantile_row_f32(now, batch->actions, quantiles, taken,
                                                   targets + row * atoms, delta, weight * share,
                                                   &errors[row], dtheta + row * width));
    }
    return loss_mean(loss, value, batch->rows);
}
