/* Vectors of ranks on devices: what each gives to an operation, and what comes of it. */
#ifndef TRP_TESTS_LEARNER_VECTORS_H
#define TRP_TESTS_LEARNER_VECTORS_H

#include "tests/nn/nn_tools.h"

#include <troupe/collective.h>

#include "core/bfloat16.h"

static const size_t counts[] = {1, 31, 128, 1000, 4096};
enum { COUNTS = sizeof counts / sizeof *counts, LARGEST = 4096 };

/* A rank's vector: on its device, beside what it is on the host. */
struct vector {
    trp_queue *queue;
    char *there, *here;
};

static inline void vector_create(struct vector *vector, trp_device *device)
{
    OR_FAIL(trp_queue_create(&vector->queue, device));
    OR_FAIL(trp_device_alloc(device, LARGEST * 8, (void **)&vector->there));
    vector->here = xcalloc(LARGEST, 8);
}

static inline void vector_destroy(struct vector *vector, trp_device *device)
{
    trp_status synced = trp_queue_sync(vector->queue, trp_queue_mark(vector->queue));
    (void)synced;
    trp_queue_destroy(vector->queue);
    trp_device_free(device, vector->there);
    free(vector->here);
}

static inline size_t width_of(trp_collective_type type)
{
    return type == TRP_COLLECTIVE_BF16 ? 2 : type == TRP_COLLECTIVE_U64 ? 8 : 4;
}

static inline void store(char *at, trp_collective_type type, size_t i, uint32_t number)
{
    float real = (float)number;
    uint64_t wide = number;
    uint16_t half = bf16_half(real);
    const void *from = type == TRP_COLLECTIVE_F32    ? (const void *)&real
                       : type == TRP_COLLECTIVE_BF16 ? (const void *)&half
                       : type == TRP_COLLECTIVE_U64  ? (const void *)&wide
                                                     : (const void *)&number;
    memcpy(at + i * width_of(type), from, width_of(type));
}

static inline uint32_t given(uint32_t rank, size_t i)
{
    return (uint32_t)((i * 7 + rank * 3) % 23);
}

static inline uint32_t summed(uint32_t size, size_t i, trp_collective_op op)
{
    uint32_t sum = 0;
    for (uint32_t rank = 0; rank < size; rank++) {
        uint32_t one = given(rank, i);
        sum = op == TRP_COLLECTIVE_SUM ? sum + one : one > sum ? one : sum;
    }
    return sum;
}

enum what { ALLREDUCE, SCATTER, GATHER, BROADCAST, WHATS };

static inline uint64_t begin(trp_collective *group, struct vector *vector, enum what what,
                             size_t count, trp_collective_type type, trp_collective_op op)
{
    uint32_t root = trp_collective_size(group) - 1;
    switch (what) {
    case ALLREDUCE:
        return trp_collective_allreduce(group, vector->queue, vector->there, count, type, op);
    case SCATTER:
        return trp_collective_reduce_scatter(group, vector->queue, vector->there, count, type, op);
    case GATHER:
        return trp_collective_all_gather(group, vector->queue, vector->there, count, type);
    default:
        return trp_collective_broadcast(group, vector->queue, vector->there, count, type, root);
    }
}

static inline uint32_t owner_of(const trp_collective *group, size_t count, size_t i)
{
    for (uint32_t rank = 0;; rank++) {
        size_t low, high;
        trp_collective_range(group, count, rank, &low, &high);
        if (i >= low && i < high)
            return rank;
    }
}

/* What this rank gives to the next operation. */
static inline void vector_give(struct vector *vector, uint32_t rank, size_t count,
                               trp_collective_type type)
{
    for (size_t i = 0; i < count; i++)
        store(vector->here, type, i, given(rank, i));
    trp_queue_copy(vector->queue, vector->there, vector->here, count * width_of(type));
}

/* How many numbers of it are wrong. */
static inline uint64_t vector_wrong(struct vector *vector, const trp_collective *group,
                                    enum what what, size_t count, trp_collective_type type,
                                    trp_collective_op op)
{
    size_t width = width_of(type);
    uint32_t size = trp_collective_size(group);
    uint64_t wrong = 0;
    memset(vector->here, 0, count * width);
    trp_queue_copy(vector->queue, vector->here, vector->there, count * width);
    OR_FAIL(trp_queue_sync(vector->queue, trp_queue_mark(vector->queue)));
    for (size_t i = 0; i < count; i++) {
        char expected[8];
        uint32_t owner = owner_of(group, count, i);
        if (what == SCATTER && owner != trp_collective_rank(group))
            continue;
        store(expected, type, 0,
              what == GATHER      ? given(owner, i)
              : what == BROADCAST ? given(size - 1, i)
                                  : summed(size, i, op));
        wrong += memcmp(expected, vector->here + i * width, width) != 0;
    }
    return wrong;
}

#endif
