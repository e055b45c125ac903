/* A loss is the mean over the rows of a batch. Headers that include this one have what happens in
 * one row, as a function of the batch and the row's number: the public functions call it for all
 * rows, in order, and kernels (nn/cuda/forms.h) in any order. What rows add up to is in double. */
#ifndef TRP_NN_LOSS_BATCH_H
#define TRP_NN_LOSS_BATCH_H

#include <troupe/losses.h>

#include "rows_f32.h"

#ifdef __CUDACC__
#define LOSS_ASSERT(condition) ((void)0) /* who puts it on a queue has checked that */
#else
#include <assert.h>
#define LOSS_ASSERT(condition) assert(condition)
#endif

struct loss_sums {
    double loss, value;
    double rows; /* of those that count */
    double entropy, divergence, clipped;
};

LOSS_BODY void loss_sums_add(struct loss_sums *to, const struct loss_sums *more)
{
    to->loss += more->loss;
    to->value += more->value;
    to->rows += more->rows;
    to->entropy += more->entropy;
    to->divergence += more->divergence;
    to->clipped += more->clipped;
}

/* A NaN stays one, for what is learned from it to say so. */
LOSS_BODY float kept_within(float x, float least, float most)
{
    return x < least ? least : x > most ? most : x;
}

LOSS_BODY float row_weight(const float *weights, size_t row)
{
    return weights ? weights[row] : 1;
}

LOSS_BODY trp_loss loss_mean(const struct loss_sums *sums, uint32_t rows)
{
    trp_loss mean;
    mean.loss = (float)(sums->loss / rows);
    mean.value = (float)(sums->value / rows);
    return mean;
}

#endif
