/* DQN's loss as a kernel (nn/cuda/forms.h): of each row its targets, and then the loss. */
#ifndef TRP_AGENTS_BODIES_DQN_H
#define TRP_AGENTS_BODIES_DQN_H

#include <troupe/dqn.h>

#include "nn/cuda/forms.h"
#include "nn/loss/batch_values.h"

/* What networks say, [rows][actions][atoms], and what is made of it. */
struct dqn_outputs {
    float *q; /* of the network at the states; the gradient after the loss */
    const float *next_target;
    const float *other; /* of the target network at the states, if dqn_reads_target_now(); else what
                           chooses the next actions */
    float *targets;     /* [rows][atoms], written */
    float *errors;      /* [rows], written; what priorities are made of */
};

/* Pointers are its device's. */
struct dqn_loss_arguments {
    trp_dqn_options options;
    trp_q_batch batch; /* without discounts: */
    struct dqn_outputs outputs;
    const float *item_discounts; /* [rows]; they lack the options' factor */
    float *discounts;            /* [rows], written: they have it */
    trp_loss *loss;              /* written */
};

KERNEL_BODY trp_support dqn_support(const trp_dqn_options *options)
{
    trp_support support;
    support.atoms = options->atoms;
    support.least = options->value_least;
    support.most = options->value_most;
    return support;
}

KERNEL_BODY float dqn_munchausen_target(const struct dqn_loss_arguments *a,
                                        const trp_q_batch *batch, size_t row)
{
    const trp_dqn_options *from = &a->options;
    trp_munchausen_options options;
    options.temperature = from->munchausen_temperature;
    options.scale = from->munchausen_scale > 0 ? from->munchausen_scale : -1;
    options.least = from->munchausen_least;
    return munchausen_target_at(&options, batch, a->outputs.other, a->outputs.next_target, row);
}

KERNEL_BODY size_t dqn_loss_items(const struct dqn_loss_arguments *a, uint32_t round)
{
    (void)round;
    return a->batch.rows;
}

KERNEL_BODY void dqn_loss_item(const struct dqn_loss_arguments *a, uint32_t round, size_t row,
                               const struct loss_sums *before, struct loss_sums *sums)
{
    const trp_dqn_options *options = &a->options;
    const float *other = a->outputs.other, *next = a->outputs.next_target;
    float *q = a->outputs.q, *targets = a->outputs.targets, *errors = a->outputs.errors;
    trp_support support = dqn_support(options);
    trp_q_batch batch = a->batch;
    (void)round, (void)before;
    a->discounts[row] = options->discount * a->item_discounts[row];
    batch.discounts = a->discounts;
    switch (options->loss) {
    case TRP_DQN_C51:
        c51_target_at(&support, &batch, other, next, targets, row);
        c51_loss_at(&support, &batch, q, targets, errors, q, row, sums);
        return;
    case TRP_DQN_QUANTILE:
        quantile_target_at(options->quantiles, &batch, other, next, targets, row);
        quantile_loss_at(options->quantiles, &batch, options->huber_delta, q, targets, errors, q,
                         row, sums);
        return;
    case TRP_DQN_MUNCHAUSEN:
        targets[row] = dqn_munchausen_target(a, &batch, row);
        break;
    case TRP_DQN_HUBER:
        targets[row] = double_q_target_at(&batch, other, next, row);
        break;
    }
    q_loss_at(&batch, options->huber_delta, q, targets, errors, q, row, sums);
}

KERNEL_BODY void dqn_loss_end(const struct dqn_loss_arguments *a, uint32_t round,
                              const struct loss_sums *before, struct loss_sums *totals)
{
    (void)round, (void)before;
    *a->loss = loss_mean(totals, a->batch.rows);
}

ROUNDS_KERNEL(dqn_loss, 1)

#endif
