/* R2D2's loss as a kernel (nn/cuda/forms.h): sequence by sequence. */
#ifndef TRP_AGENTS_BODIES_R2D2_H
#define TRP_AGENTS_BODIES_R2D2_H

#include "nn/cuda/forms.h"
#include "nn/loss/batch_sequences.h"

/* Pointers are the device's, of the rows behind the burn-in. */
struct r2d2_loss_arguments {
    trp_r2d2_loss_options options;
    trp_q_sequences batch; /* without discounts and mask: */
    float gamma;
    const float *item_discounts;
    float *discounts;
    bool *mask; /* becomes all set where no step was taken */
    float *q;   /* the gradient after it */
    const float *target_q;
    float *targets, *errors, *priorities;
    trp_loss *loss;
};

KERNEL_BODY size_t r2d2_loss_items(const struct r2d2_loss_arguments *a, uint32_t round)
{
    (void)round;
    return a->batch.trajectories.sequences;
}

KERNEL_BODY void r2d2_prepare_row(const struct r2d2_loss_arguments *a, size_t row)
{
    size_t actions = a->batch.actions;
    a->discounts[row] = a->gamma * a->item_discounts[row];
    for (size_t i = 0; i < actions && a->mask && !a->batch.trajectories.valid[row]; i++)
        a->mask[row * actions + i] = true;
}

KERNEL_BODY void r2d2_loss_item(const struct r2d2_loss_arguments *a, uint32_t round,
                                size_t sequence, const struct loss_sums *before,
                                struct loss_sums *sums)
{
    trp_q_sequences batch = a->batch;
    (void)round, (void)before;
    batch.trajectories.discounts = a->discounts;
    batch.mask = a->mask;
    for (size_t step = 0; step < batch.trajectories.steps; step++)
        r2d2_prepare_row(a, step * batch.trajectories.sequences + sequence);
    r2d2_targets_at(&a->options, &batch, a->q, a->target_q, a->targets, (uint32_t)sequence);
    r2d2_loss_at(&a->options, &batch, a->q, a->targets, a->errors, a->priorities, a->q,
                 (uint32_t)sequence, sums);
}

KERNEL_BODY void r2d2_loss_end(const struct r2d2_loss_arguments *a, uint32_t round,
                               const struct loss_sums *before, struct loss_sums *totals)
{
    (void)round, (void)before;
    *a->loss = r2d2_loss_of(totals, a->batch.trajectories.sequences);
}

ROUNDS_KERNEL(r2d2_loss, 1)

#endif
