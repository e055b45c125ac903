/* Vectors of several ranks, all in one device's memory, as a kernel (nn/cuda/kernel.h): each number
 * is made of all of theirs, in the order of ranks, and written to all of them or to one. */
#ifndef TRP_LEARNER_SUM_KERNEL_H
#define TRP_LEARNER_SUM_KERNEL_H

#include <troupe/collective.h>

#include "nn/cuda/kernel.h"

#define SCALAR KERNEL_BODY
#include "reduce_scalar.h"

enum { SUM_RANKS_MAX = 16 }; /* operands of a kernel */

struct collective_sum_arguments {
    void *values[SUM_RANKS_MAX];
    uint64_t count;
    uint32_t ranks;
    uint32_t only; /* the rank that gets it, from 1 on; 0: all do */
    uint32_t type, op;
};

#define SUM_NUMBERS(name, type)                                                                    \
    KERNEL_BODY void name##_numbers(const struct collective_sum_arguments *a, size_t i)            \
    {                                                                                              \
        type number = ((const type *)a->values[0])[i];                                             \
        for (uint32_t rank = 1; rank < a->ranks; rank++)                                           \
            number = name(number, ((const type *)a->values[rank])[i]);                             \
        for (uint32_t rank = 0; rank < a->ranks; rank++)                                           \
            if (a->only == 0 || a->only == rank + 1)                                               \
                ((type *)a->values[rank])[i] = number;                                             \
    }

SUM_NUMBERS(f32_sum, float)
SUM_NUMBERS(f32_max, float)
SUM_NUMBERS(bf16_sum, uint16_t)
SUM_NUMBERS(bf16_max, uint16_t)
SUM_NUMBERS(i32_sum, uint32_t)
SUM_NUMBERS(i32_max, uint32_t)
SUM_NUMBERS(u64_sum, uint64_t)
SUM_NUMBERS(u64_max, uint64_t)

#undef SUM_NUMBERS

/* The number of each vector at that place. */
KERNEL_BODY void collective_sum_at(const struct collective_sum_arguments *a, size_t i)
{
    bool sum = a->op == TRP_COLLECTIVE_SUM;
    switch (a->type) {
    case TRP_COLLECTIVE_F32:
        if (sum)
            f32_sum_numbers(a, i);
        else
            f32_max_numbers(a, i);
        break;
    case TRP_COLLECTIVE_BF16:
        if (sum)
            bf16_sum_numbers(a, i);
        else
            bf16_max_numbers(a, i);
        break;
    case TRP_COLLECTIVE_I32:
        if (sum)
            i32_sum_numbers(a, i);
        else
            i32_max_numbers(a, i);
        break;
    default:
        if (sum)
            u64_sum_numbers(a, i);
        else
            u64_max_numbers(a, i);
        break;
    }
}

static inline struct kernel_shape collective_sum_shape(const struct collective_sum_arguments *a)
{
    return kernel_of(a->count);
}

KERNEL_BODY void collective_sum_body(const struct collective_sum_arguments *a,
                                     const struct kernel_at *at, void *shared)
{
    size_t i = thread_index(at);
    (void)shared;
    if (i < a->count)
        collective_sum_at(a, i);
}

#endif
