/* R2D2: double Q-learning over sequences, in rescaled values. */
#include <troupe/losses.h>

#include <assert.h>
#include <string.h>

#include "trajectories.h"

static trp_r2d2_loss_options resolved(const trp_r2d2_loss_options *options)
{
    trp_r2d2_loss_options o = options ? *options : (trp_r2d2_loss_options){0};
    o.n_step = o.n_step > 0 ? o.n_step : 5;
    o.epsilon = o.epsilon > 0 ? o.epsilon : 1e-3f;
    o.eta = o.eta > 0 ? o.eta : o.eta < 0 ? 0 : 0.9f;
    o.huber_delta = o.huber_delta > 0 ? o.huber_delta : 1;
    return o;
}

float trp_value_rescale(float x, float epsilon)
{
    return rescale_f32(x, epsilon);
}

float trp_value_unscale(float y, float epsilon)
{
    return unscale_f32(y, epsilon);
}

void trp_r2d2_targets(const trp_r2d2_loss_options *options, const trp_q_sequences *batch,
                      const float *online, const float *target, float *targets)
{
    trp_r2d2_loss_options o = resolved(options);
    for (uint32_t i = 0; i < batch->trajectories.sequences; i++) {
        size_t at = sequence_at(&batch->trajectories, i), row = at * batch->actions;
        struct column_f32 column = column_at(&batch->trajectories, at);
        r2d2_column_f32(&column, o.n_step, o.epsilon, batch->actions,
                        batch->mask ? batch->mask + row : NULL, online + row, target + row,
                        targets + at);
    }
}

/* What the steps of one sequence add up to. */
struct r2d2_sums {
    double loss, value, errors;
    float largest;
    uint32_t steps;
};

static struct r2d2_sums sequence_loss(const trp_r2d2_loss_options *o, const trp_q_sequences *batch,
                                      uint32_t sequence, float scale, const float *q,
                                      const float *targets, float *errors, float *dq)
{
    struct r2d2_sums sums = {0};
    size_t start = sequence_at(&batch->trajectories, sequence), width = batch->actions;
    struct column_f32 column = column_at(&batch->trajectories, start);
    column.next_values = NULL;
    for (uint32_t step = 0; step < column.steps; step++) {
        size_t at = start + step * column.stride;
        errors[at] = 0;
        if (step < o->burn_in || !is_taken_f32(&column, step)) {
            memset(dq + at * width, 0, width * sizeof *dq);
            continue;
        }
        uint32_t taken = (uint32_t)batch->taken[at];
        assert(taken < batch->actions);
        sums.value += (double)q[at * width + taken];
        sums.loss += (double)q_row_f32(q + at * width, batch->actions, taken, targets[at],
                                       o->huber_delta, scale, &errors[at], dq + at * width);
        float size = fabsf(errors[at]);
        sums.errors += (double)size;
        sums.largest = size <= sums.largest ? sums.largest : size; /* NaN is the largest */
        sums.steps++;
    }
    return sums;
}

trp_loss trp_r2d2_loss(const trp_r2d2_loss_options *options, const trp_q_sequences *batch,
                       const float *q, const float *targets, float *errors, float *priorities,
                       float *dq)
{
    trp_r2d2_loss_options o = resolved(options);
    uint32_t sequences = batch->trajectories.sequences;
    assert(sequences > 0);
    double loss = 0, value = 0, steps = 0;
    for (uint32_t i = 0; i < sequences; i++) {
        float weight = batch->weights ? batch->weights[i] : 1;
        struct r2d2_sums sums =
            sequence_loss(&o, batch, i, weight / (float)sequences, q, targets, errors, dq);
        float mean = sums.steps > 0 ? (float)(sums.errors / sums.steps) : 0;
        priorities[i] = o.eta * sums.largest + (1 - o.eta) * mean;
        loss += (double)weight * sums.loss;
        value += sums.value;
        steps += sums.steps;
    }
    return (trp_loss){.loss = (float)(loss / sequences),
                      .value = steps > 0 ? (float)(value / steps) : 0};
}
