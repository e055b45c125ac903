/* Means of losses over the rows of a batch, which have weights or all count as one. */
#ifndef TRP_NN_LOSS_MEAN_H
#define TRP_NN_LOSS_MEAN_H

#include <troupe/losses.h>

static inline float row_weight(const float *weights, size_t row)
{
    return weights ? weights[row] : 1;
}

static inline trp_loss loss_mean(double loss, double value, uint32_t rows)
{
    return (trp_loss){.loss = (float)(loss / rows), .value = (float)(value / rows)};
}

#endif
