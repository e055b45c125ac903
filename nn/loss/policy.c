/* Policy gradients: loops over the rows of batch_policies.h, in order. */
#include <troupe/policy_losses.h>

#include "batch_policies.h"

trp_policy_loss trp_policy_gradient_loss(const trp_policy_batch *batch, const float *log_probs,
                                         const float *entropies, float *dlog_probs,
                                         float *dentropies)
{
    assert(batch->rows > 0);
    struct loss_sums sums = {0};
    for (size_t row = 0; row < batch->rows; row++)
        policy_gradient_at(batch, log_probs, entropies, dlog_probs, dentropies, row, &sums);
    return policy_loss_of(batch, &sums);
}

trp_policy_loss trp_ppo_loss(const trp_policy_batch *batch, const float *log_probs,
                             const float *entropies, float *dlog_probs, float *dentropies)
{
    assert(batch->rows > 0);
    struct loss_sums sums = {0};
    for (size_t row = 0; row < batch->rows; row++)
        ppo_at(batch, log_probs, entropies, dlog_probs, dentropies, row, &sums);
    return policy_loss_of(batch, &sums);
}

static bool counts(const float *weights, size_t row)
{
    return !weights || weights[row] != 0;
}

void trp_normalize_advantages(uint32_t rows, const float *weights, const float *advantages,
                              float *normalized)
{
    struct loss_sums sums = {0};
    double squares = 0;
    for (size_t row = 0; row < rows; row++)
        if (counts(weights, row)) {
            sums.value += (double)advantages[row];
            sums.rows++;
        }
    double mean = advantages_mean(&sums);
    for (size_t row = 0; row < rows; row++)
        if (counts(weights, row))
            squares += ((double)advantages[row] - mean) * ((double)advantages[row] - mean);
    double scale = advantages_scale(squares, sums.rows);
    for (size_t row = 0; row < rows; row++)
        normalized[row] =
            counts(weights, row) ? advantage_normalized(advantages[row], mean, scale) : 0;
}
