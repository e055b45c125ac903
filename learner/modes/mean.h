/* What learners go on from that step by themselves: the mean of their vectors, of which one with
 * more batches is a larger part. */
#ifndef TRP_LEARNER_MODES_MEAN_H
#define TRP_LEARNER_MODES_MEAN_H

#include "learners.h"
#include "vectors.h"

struct mean {
    struct learners *group;
    trp_collective *circle;   /* the group's, or of some of its ranks */
    uint64_t weight, weights; /* of this rank; of all, above 0 */
};

/* All vectors become the mean. What fails leaves some of them as sums. Fails as learners_wait_in().
 */
TRP_MUST_USE trp_status mean_of_vectors(const struct mean *mean, const struct vectors *vectors);

/* The first half, for one of them: the values, times the weight, become the sum over all ranks. The
 * second one is outer_on(). */
TRP_MUST_USE trp_status mean_sum(const struct mean *mean, const struct vectors *vectors,
                                 size_t index);

#endif
