/* Sequences of batches: targets over many steps (returns.h), R2D2's loss (losses.h). */
#ifndef TRP_NN_LOSS_BATCH_SEQUENCES_H
#define TRP_NN_LOSS_BATCH_SEQUENCES_H

#include <troupe/returns.h>

#include "batch.h"

/* Where a sequence begins in the arrays. */
LOSS_BODY size_t sequence_at(const trp_trajectories *trajectories, uint32_t sequence)
{
    return trajectories->by_sequence ? (size_t)sequence * trajectories->steps : sequence;
}

/* The sequence that begins there, as the bodies of columns.h see it; `values` are the trajectories'
 * own. */
LOSS_BODY struct column_f32 column_at(const trp_trajectories *all, size_t at)
{
    struct column_f32 column;
    column.steps = all->steps;
    column.stride = all->by_sequence ? 1 : all->sequences;
    column.rewards = all->rewards + at;
    column.discounts = all->discounts + at;
    column.values = all->values ? all->values + at : NULL;
    column.next_values = all->next_values ? all->next_values + at : NULL;
    column.valid = all->valid ? all->valid + at : NULL;
    column.first = all->first ? all->first + at : NULL;
    return column;
}

/* ---- targets of states ------------------------------------------------------------------------
 */

/* returns NULL: not wanted. */
LOSS_BODY void gae_at(const trp_trajectories *trajectories, float lambda, float *advantages,
                      float *returns, uint32_t sequence)
{
    size_t at = sequence_at(trajectories, sequence);
    struct column_f32 column = column_at(trajectories, at);
    gae_column_f32(&column, lambda, advantages + at);
    for (size_t step = 0; returns && step < column.steps; step++) {
        size_t row = at + step * column.stride;
        returns[row] = advantages[row] + trajectories->values[row];
    }
}

LOSS_BODY float or_one(float value)
{
    return value > 0 ? value : 1;
}

LOSS_BODY void vtrace_at(const trp_trajectories *trajectories, const trp_vtrace_options *options,
                         const float *log_ratios, float *returns, float *advantages,
                         uint32_t sequence)
{
    struct vtrace_bars_f32 bars;
    bars.rho = or_one(options->rho_bar);
    bars.trace = or_one(options->c_bar);
    bars.policy_rho = or_one(options->policy_rho_bar);
    bars.lambda = or_one(options->lambda);
    size_t at = sequence_at(trajectories, sequence);
    struct column_f32 column = column_at(trajectories, at);
    vtrace_column_f32(&column, &bars, log_ratios + at, returns + at, advantages + at);
}

/* ---- R2D2 --------------------------------------------------------------------------------------
 */

LOSS_BODY trp_r2d2_loss_options r2d2_resolved(const trp_r2d2_loss_options *options)
{
    trp_r2d2_loss_options o = *options;
    o.n_step = o.n_step > 0 ? o.n_step : 5;
    o.epsilon = o.epsilon > 0 ? o.epsilon : 1e-3f;
    o.eta = o.eta > 0 ? o.eta : o.eta < 0 ? 0 : 0.9f;
    o.huber_delta = o.huber_delta > 0 ? o.huber_delta : 1;
    return o;
}

LOSS_BODY void r2d2_targets_at(const trp_r2d2_loss_options *options, const trp_q_sequences *batch,
                               const float *online, const float *target, float *targets,
                               uint32_t sequence)
{
    trp_r2d2_loss_options o = r2d2_resolved(options);
    size_t at = sequence_at(&batch->trajectories, sequence), row = at * batch->actions;
    struct column_f32 column = column_at(&batch->trajectories, at);
    r2d2_column_f32(&column, o.n_step, o.epsilon, batch->actions,
                    batch->mask ? batch->mask + row : NULL, online + row, target + row,
                    targets + at);
}

/* Of a sequence's steps: the sum of the absolute errors, and the largest one. */
struct r2d2_errors {
    double sum, steps;
    float largest;
};

/* What a step of `row` adds; dq of its actions is written. */
LOSS_BODY void r2d2_step_at(const trp_r2d2_loss_options *o, const trp_q_sequences *batch,
                            float weight, const float *q, const float *targets, float *errors,
                            float *dq, size_t row, struct loss_sums *sums, struct r2d2_errors *all)
{
    size_t width = batch->actions;
    uint32_t taken = (uint32_t)batch->taken[row];
    float scale = weight / (float)batch->trajectories.sequences;
    LOSS_ASSERT(taken < batch->actions);
    sums->value += (double)q[row * width + taken];
    sums->loss +=
        (double)weight * (double)q_row_f32(q + row * width, batch->actions, taken, targets[row],
                                           o->huber_delta, scale, &errors[row], dq + row * width);
    sums->rows++;
    float size = fabsf(errors[row]);
    all->sum += (double)size;
    all->largest = size <= all->largest ? all->largest : size; /* NaN is the largest */
    all->steps++;
}

LOSS_BODY void r2d2_loss_at(const trp_r2d2_loss_options *options, const trp_q_sequences *batch,
                            const float *q, const float *targets, float *errors, float *priorities,
                            float *dq, uint32_t sequence, struct loss_sums *sums)
{
    trp_r2d2_loss_options o = r2d2_resolved(options);
    size_t start = sequence_at(&batch->trajectories, sequence), width = batch->actions;
    struct column_f32 column = column_at(&batch->trajectories, start);
    struct r2d2_errors all = {0, 0, 0};
    column.next_values = NULL;
    for (uint32_t step = 0; step < column.steps; step++) {
        size_t row = start + step * column.stride;
        bool learns = step >= o.burn_in && is_taken_f32(&column, step);
        errors[row] = 0;
        for (size_t i = 0; !learns && i < width; i++)
            dq[row * width + i] = 0;
        if (learns)
            r2d2_step_at(&o, batch, row_weight(batch->weights, sequence), q, targets, errors, dq,
                         row, sums, &all);
    }
    float mean = all.steps > 0 ? (float)(all.sum / all.steps) : 0;
    priorities[sequence] = o.eta * all.largest + (1 - o.eta) * mean;
}

LOSS_BODY trp_loss r2d2_loss_of(const struct loss_sums *sums, uint32_t sequences)
{
    trp_loss loss;
    loss.loss = (float)(sums->loss / sequences);
    loss.value = sums->rows > 0 ? (float)(sums->value / sums->rows) : 0;
    return loss;
}

#endif
