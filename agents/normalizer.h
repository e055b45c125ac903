/* Normalising of states by a dataset, whose numbers have mean 0 and deviation 1 then: (s - mean) /
 * (deviation + 1e-3), number by number (Fujimoto and Gu 2021, equation 4). Means and deviations are
 * the first numbers of the vector "params", ahead of the policy's network: actors pull them,
 * checkpoints have them; no gradient goes to them. */
#ifndef TRP_AGENTS_NORMALIZER_H
#define TRP_AGENTS_NORMALIZER_H

#include <troupe/env.h>
#include <troupe/nn.h>
#include <troupe/updater.h>

struct normalizer {
    uint32_t size; /* numbers of a state; 0: states are as they are */
};

/* `normalizes`: what agents' options say. */
struct normalizer normalizer_of(const trp_env_spec *env, bool normalizes);

/* Its numbers, [2][size]: means, then deviations to divide by. */
static inline size_t normalizer_count(const struct normalizer *normalizer)
{
    return 2 * (size_t)normalizer->size;
}

/* "states.mean" and "states.deviation"; returns how many. */
size_t normalizer_tensors(const struct normalizer *normalizer, trp_net_tensor *tensors);

/* Reads all items of `source` in the store `dir` (NULL: there is none, which is INVALID_ARGUMENT).
 * Fails as a dataset source; INVALID_ARGUMENT: means or deviations are not finite. `who` begins
 * messages. */
TRP_MUST_USE trp_status normalizer_read(const struct normalizer *normalizer, const char *who,
                                        const char *dir, const trp_batch_spec *source,
                                        float *numbers);

/* [rows][size], of a host's memory and on a queue. */
void normalizer_rows(const struct normalizer *normalizer, const float *numbers, uint32_t rows,
                     const float *states, float *normal);
void normalizer_rows_on(trp_queue *queue, const struct normalizer *normalizer, const float *numbers,
                        uint32_t rows, const float *states, float *normal);

#endif
