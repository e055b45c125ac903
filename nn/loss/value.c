/* Losses of one value a row. */
#include <troupe/losses.h>

#include <assert.h>

#include "mean.h"
#include "rows_f32.h"

trp_loss trp_value_loss(const trp_value_batch *batch, const float *values, float *errors,
                        float *dvalues)
{
    assert(batch->rows > 0);
    float delta = batch->huber_delta > 0 ? batch->huber_delta : INFINITY;
    float clip = batch->old_values ? batch->clip : 0, share = 1.0f / (float)batch->rows;
    double loss = 0, sum = 0;
    for (size_t row = 0; row < batch->rows; row++) {
        float weight = row_weight(batch->weights, row), value = values[row], push;
        float old = clip > 0 ? batch->old_values[row] : 0;
        loss +=
            (double)(weight * value_row_f32(value, batch->targets[row], delta, old, clip, &push));
        sum += (double)value;
        if (errors)
            errors[row] = batch->targets[row] - value;
        dvalues[row] = weight * share * push;
    }
    return loss_mean(loss, sum, batch->rows);
}
