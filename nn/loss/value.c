/* Losses of one value a row. */
#include <troupe/losses.h>

#include "batch_values.h"

trp_loss trp_value_loss(const trp_value_batch *batch, const float *values, float *errors,
                        float *dvalues)
{
    assert(batch->rows > 0);
    struct loss_sums sums = {0};
    for (size_t row = 0; row < batch->rows; row++) {
        sums.value += (double)values[row];
        sums.loss += value_loss_at(batch, values, errors, dvalues, row);
    }
    return loss_mean(&sums, batch->rows);
}
