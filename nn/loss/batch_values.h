/* Rows of batches of values: of actions, of distributions, of states (losses.h). */
#ifndef TRP_NN_LOSS_BATCH_VALUES_H
#define TRP_NN_LOSS_BATCH_VALUES_H

#include "batch.h"

LOSS_BODY const bool *next_mask_at(const trp_q_batch *batch, size_t row)
{
    return batch->next_mask ? batch->next_mask + row * batch->actions : NULL;
}

/* NULL taken: the only one. */
LOSS_BODY uint32_t taken_at(const trp_q_batch *batch, size_t row)
{
    uint32_t taken = batch->taken ? (uint32_t)batch->taken[row] : 0;
    LOSS_ASSERT(taken < batch->actions);
    return taken;
}

/* ---- values of actions --------------------------------------------------------------------- */

LOSS_BODY float double_q_target_at(const trp_q_batch *batch, const float *next_online,
                                   const float *next_target, size_t row)
{
    size_t at = row * batch->actions;
    return double_q_target_f32(batch->rewards[row], batch->discounts[row], next_online + at,
                               next_target + at, next_mask_at(batch, row), batch->actions);
}

LOSS_BODY float munchausen_target_at(const trp_munchausen_options *options,
                                     const trp_q_batch *batch, const float *target,
                                     const float *next_target, size_t row)
{
    float temperature = options->temperature > 0 ? options->temperature : 0.03f;
    float scale = options->scale > 0 ? options->scale : options->scale < 0 ? 0 : 0.9f;
    float least = options->least < 0 ? options->least : -1;
    size_t at = row * batch->actions;
    float next =
        soft_value_f32(next_target + at, next_mask_at(batch, row), batch->actions, temperature);
    float bonus = munchausen_f32(target + at, batch->mask ? batch->mask + at : NULL, batch->actions,
                                 taken_at(batch, row), temperature, scale, least);
    return batch->rewards[row] + bonus + batch->discounts[row] * next;
}

LOSS_BODY void q_loss_at(const trp_q_batch *batch, float huber_delta, const float *q,
                         const float *targets, float *errors, float *dq, size_t row,
                         struct loss_sums *sums)
{
    float delta = huber_delta > 0 ? huber_delta : 1, share = 1.0f / (float)batch->rows;
    float weight = row_weight(batch->weights, row);
    size_t at = row * batch->actions;
    uint32_t taken = taken_at(batch, row);
    sums->value += (double)q[at + taken];
    sums->loss += (double)(weight * q_row_f32(q + at, batch->actions, taken, targets[row], delta,
                                              weight * share, &errors[row], dq + at));
}

/* ---- distributions of values ----------------------------------------------------------------- */

LOSS_BODY void c51_target_at(const trp_support *support, const trp_q_batch *batch,
                             const float *next_online, const float *next_target, float *targets,
                             size_t row)
{
    size_t atoms = support->atoms, width = batch->actions * atoms;
    uint32_t best = best_mean_f32(next_online + row * width, next_mask_at(batch, row),
                                  batch->actions, support->atoms, support->least, support->most);
    c51_project_f32(next_target + row * width + best * atoms, support->atoms, support->least,
                    support->most, batch->rewards[row], batch->discounts[row],
                    targets + row * atoms);
}

LOSS_BODY void c51_loss_at(const trp_support *support, const trp_q_batch *batch,
                           const float *logits, const float *targets, float *divergences,
                           float *dlogits, size_t row, struct loss_sums *sums)
{
    size_t atoms = support->atoms, width = batch->actions * atoms;
    uint32_t taken = taken_at(batch, row);
    const float *now = logits + row * width;
    float weight = row_weight(batch->weights, row), share = 1.0f / (float)batch->rows;
    sums->value +=
        (double)c51_mean_f32(now + taken * atoms, support->atoms, support->least, support->most);
    sums->loss += (double)(weight * c51_row_f32(now, batch->actions, support->atoms, taken,
                                                targets + row * atoms, weight * share,
                                                &divergences[row], dlogits + row * width));
}

LOSS_BODY void quantile_target_at(uint32_t quantiles, const trp_q_batch *batch,
                                  const float *next_online, const float *next_target,
                                  float *targets, size_t row)
{
    size_t atoms = quantiles, width = batch->actions * atoms;
    uint32_t best = best_mean_f32(next_online + row * width, next_mask_at(batch, row),
                                  batch->actions, quantiles, 0, 0);
    for (size_t i = 0; i < atoms; i++)
        targets[row * atoms + i] =
            batch->rewards[row] +
            batch->discounts[row] * next_target[row * width + best * atoms + i];
}

LOSS_BODY void quantile_loss_at(uint32_t quantiles, const trp_q_batch *batch, float kappa,
                                const float *theta, const float *targets, float *errors,
                                float *dtheta, size_t row, struct loss_sums *sums)
{
    size_t atoms = quantiles, width = batch->actions * atoms;
    float delta = kappa > 0 ? kappa : 1, share = 1.0f / (float)batch->rows;
    uint32_t taken = taken_at(batch, row);
    const float *now = theta + row * width;
    float weight = row_weight(batch->weights, row);
    sums->value += (double)quantile_mean_f32(now + taken * atoms, quantiles);
    sums->loss += (double)(weight * quantile_row_f32(now, batch->actions, quantiles, taken,
                                                     targets + row * atoms, delta, weight * share,
                                                     &errors[row], dtheta + row * width));
}

/* ---- values of states ------------------------------------------------------------------------ */

/* errors may be NULL. Returns the row's part of the loss. */
LOSS_BODY double value_loss_at(const trp_value_batch *batch, const float *values, float *errors,
                               float *dvalues, size_t row)
{
    float delta = batch->huber_delta > 0 ? batch->huber_delta : INFINITY;
    float clip = batch->old_values ? batch->clip : 0, share = 1.0f / (float)batch->rows;
    float weight = row_weight(batch->weights, row), value = values[row], push;
    float old = clip > 0 ? batch->old_values[row] : 0;
    float loss = weight * value_row_f32(value, batch->targets[row], delta, old, clip, &push);
    if (errors)
        errors[row] = batch->targets[row] - value;
    dvalues[row] = weight * share * push;
    return (double)loss;
}

#endif
