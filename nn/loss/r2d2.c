/* R2D2: double Q-learning over sequences, in rescaled values. */
#include <troupe/losses.h>

#include "batch_sequences.h"

float trp_value_rescale(float x, float epsilon)
{
    return rescale_f32(x, epsilon);
}

float trp_value_unscale(float y, float epsilon)
{
    return unscale_f32(y, epsilon);
}

static trp_r2d2_loss_options or_none(const trp_r2d2_loss_options *options)
{
    return options ? *options : (trp_r2d2_loss_options){0};
}

void trp_r2d2_targets(const trp_r2d2_loss_options *options, const trp_q_sequences *batch,
                      const float *online, const float *target, float *targets)
{
    trp_r2d2_loss_options o = or_none(options);
    for (uint32_t i = 0; i < batch->trajectories.sequences; i++)
        r2d2_targets_at(&o, batch, online, target, targets, i);
}

trp_loss trp_r2d2_loss(const trp_r2d2_loss_options *options, const trp_q_sequences *batch,
                       const float *q, const float *targets, float *errors, float *priorities,
                       float *dq)
{
    trp_r2d2_loss_options o = or_none(options);
    uint32_t sequences = batch->trajectories.sequences;
    assert(sequences > 0);
    struct loss_sums sums = {0};
    for (uint32_t i = 0; i < sequences; i++)
        r2d2_loss_at(&o, batch, q, targets, errors, priorities, dq, i, &sums);
    return r2d2_loss_of(&sums, sequences);
}
