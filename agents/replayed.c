#include "replayed.h"

#include <math.h>

#include "options.h"

trp_status replayed_check(const struct replayed *replayed, const char *who)
{
    if (replayed->min_size <= replayed->size)
        return TRP_OK;
    return trp_fail(TRP_INVALID_ARGUMENT,
                    "%s: min_replay_size is %lld, must be in [1, %lld], which is replay_size", who,
                    (long long)replayed->min_size, (long long)replayed->size);
}

/* Acme's rule for the error buffer, but never narrower than one insert is worth. */
static trp_rate_limiter limiter(const struct replayed *replayed)
{
    double ratio = option_decimal(replayed->samples_per_insert);
    if (ratio == 0)
        return trp_limiter_min_size(replayed->min_size);
    double buffer = (double)replayed->min_size * option_decimal(replayed->insert_tolerance) * ratio;
    double least = 2 * fmax(1, ratio);
    return trp_limiter_samples_per_insert(ratio, replayed->min_size, fmax(buffer, least));
}

trp_table_options replayed_table(const struct replayed *replayed, const char *name)
{
    trp_table_options table = {
        .name = (char *)(uintptr_t)name,
        .sampler = {.kind = TRP_UNIFORM},
        .max_size = replayed->size,
        .limiter = limiter(replayed),
    };
    if (replayed->priority_exponent > 0)
        table.sampler =
            (trp_selector){TRP_PRIORITIZED, option_decimal(replayed->priority_exponent)};
    return table;
}

/* All of them, not yet over the largest, which is returned. */
static double find_weights(const trp_batch *batch, double beta, float *weights)
{
    double largest = 0;
    for (uint32_t row = 0; row < batch->rows; row++) {
        double share = (double)batch->table_sizes[row] * batch->probabilities[row];
        double weight = share > 0 ? pow(share, -beta) : 1;
        weights[row] = (float)weight;
        largest = fmax(largest, weight);
    }
    return largest;
}

trp_status replayed_weights(const trp_update *update, double beta, float *weights, float *device,
                            const float **out)
{
    *out = NULL;
    if (beta == 0 || !update->priorities[0])
        return TRP_OK;
    uint32_t rows = update->batches->rows;
    double largest = find_weights(update->batches, beta, weights);
    TRP_TRY(trp_update_max(update, &largest));
    for (uint32_t row = 0; row < rows; row++)
        weights[row] /= (float)largest;
    *out = trp_queue_upload(update->queue, device, weights, rows * sizeof *weights);
    return TRP_OK;
}
