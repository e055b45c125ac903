/* Policy gradients: loops over the rows, in order, with sums in double. */
#include <troupe/policy_losses.h>

#include <assert.h>

#include "mean.h"
#include "rows_f32.h"

/* What the reported means are made of. */
struct policy_sums {
    double loss, entropy, divergence;
    uint64_t rows, clipped;
};

/* A row without weight: whatever its numbers are. */
static void leave_out(size_t row, float *dlog_probs, float *dentropies)
{
    dlog_probs[row] = 0;
    if (dentropies)
        dentropies[row] = 0;
}

/* The bonus of a row; returns what it adds to the loss. */
static float entropy_row(const trp_policy_batch *batch, float scale, float entropy, float *dentropy,
                         struct policy_sums *sums)
{
    sums->entropy += (double)entropy;
    *dentropy = -scale * batch->entropy;
    return -batch->entropy * entropy;
}

static trp_policy_loss policy_loss(const trp_policy_batch *batch, const struct policy_sums *sums)
{
    double rows = sums->rows > 0 ? (double)sums->rows : 1;
    return (trp_policy_loss){.loss = (float)(sums->loss / batch->rows),
                             .entropy = (float)(sums->entropy / rows),
                             .divergence = (float)(sums->divergence / rows),
                             .clipped = (float)((double)sums->clipped / rows)};
}

trp_policy_loss trp_policy_gradient_loss(const trp_policy_batch *batch, const float *log_probs,
                                         const float *entropies, float *dlog_probs,
                                         float *dentropies)
{
    assert(batch->rows > 0);
    float share = 1.0f / (float)batch->rows;
    struct policy_sums sums = {0};
    for (size_t row = 0; row < batch->rows; row++) {
        float weight = row_weight(batch->weights, row), scale = weight * share;
        if (weight == 0) {
            leave_out(row, dlog_probs, entropies ? dentropies : NULL);
            continue;
        }
        float loss = -batch->advantages[row] * log_probs[row];
        dlog_probs[row] = -scale * batch->advantages[row];
        if (entropies)
            loss += entropy_row(batch, scale, entropies[row], &dentropies[row], &sums);
        sums.loss += (double)(weight * loss);
        sums.rows++;
    }
    return policy_loss(batch, &sums);
}

trp_policy_loss trp_ppo_loss(const trp_policy_batch *batch, const float *log_probs,
                             const float *entropies, float *dlog_probs, float *dentropies)
{
    assert(batch->rows > 0);
    float share = 1.0f / (float)batch->rows, clip = batch->clip > 0 ? batch->clip : 0.2f;
    struct policy_sums sums = {0};
    for (size_t row = 0; row < batch->rows; row++) {
        float weight = row_weight(batch->weights, row), scale = weight * share, push;
        if (weight == 0) {
            leave_out(row, dlog_probs, entropies ? dentropies : NULL);
            continue;
        }
        float log_ratio = log_probs[row] - batch->old_log_probs[row];
        float loss = ppo_row_f32(log_ratio, batch->advantages[row], clip, &push);
        dlog_probs[row] = scale * push;
        if (entropies)
            loss += entropy_row(batch, scale, entropies[row], &dentropies[row], &sums);
        sums.loss += (double)(weight * loss);
        sums.divergence += (double)divergence_of_ratio_f32(log_ratio);
        sums.clipped += fabsf(expf(log_ratio) - 1) > clip;
        sums.rows++;
    }
    return policy_loss(batch, &sums);
}

void trp_normalize_advantages(uint32_t rows, const float *weights, const float *advantages,
                              float *normalized)
{
    double count = 0, sum = 0, squares = 0;
    for (size_t row = 0; row < rows; row++)
        if (!weights || weights[row] != 0) {
            sum += (double)advantages[row];
            count++;
        }
    double mean = count > 0 ? sum / count : 0;
    for (size_t row = 0; row < rows; row++)
        if (!weights || weights[row] != 0)
            squares += ((double)advantages[row] - mean) * ((double)advantages[row] - mean);
    double scale = 1 / ((count > 0 ? sqrt(squares / count) : 0) + 1e-8);
    for (size_t row = 0; row < rows; row++) {
        bool read = !weights || weights[row] != 0;
        normalized[row] = read ? (float)(((double)advantages[row] - mean) * scale) : 0;
    }
}
