#include "mean.h"

#include "kernels.h"

trp_status mean_sum(const struct mean *mean, const struct vectors *vectors, size_t index)
{
    const struct vector *vector = &vectors->each[index];
    if (mean->weight != 1)
        weigh_on(vectors->queue, vector->values.there, vector->spec->count, (float)mean->weight,
                 NULL);
    return learners_wait_in(mean->group, mean->circle,
                            trp_collective_allreduce(mean->circle, vectors->queue,
                                                     vector->values.there, vector->spec->count,
                                                     TRP_COLLECTIVE_F32, TRP_COLLECTIVE_SUM));
}

trp_status mean_of_vectors(const struct mean *mean, const struct vectors *vectors)
{
    for (size_t i = 0; i < vectors->count; i++) {
        TRP_TRY(mean_sum(mean, vectors, i));
        outer_on(vectors->queue,
                 &(struct mode_outer_arguments){.values = vectors->each[i].values.there,
                                                .count = vectors->each[i].spec->count,
                                                .batches = (float)mean->weights});
    }
    return TRP_OK;
}
