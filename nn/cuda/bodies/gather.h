/* trp_queue_gather() as a kernel: a thread moves a word. */
#ifndef TRP_NN_CUDA_BODIES_GATHER_H
#define TRP_NN_CUDA_BODIES_GATHER_H

#include <stdbool.h>

#include "nn/cuda/kernel.h"

struct gather_arguments {
    const int32_t *order;
    const uint8_t *from;
    uint8_t *to;
    size_t bytes; /* of a row */
    uint32_t count;
};

/* Rows of whole words are moved word by word. */
KERNEL_BODY bool gathers_words(const struct gather_arguments *a)
{
    return ((uintptr_t)a->from | (uintptr_t)a->to | a->bytes) % sizeof(uint32_t) == 0;
}

static inline struct kernel_shape gather_shape(const struct gather_arguments *a)
{
    return kernel_of(a->count * (gathers_words(a) ? a->bytes / sizeof(uint32_t) : a->bytes));
}

KERNEL_BODY void gather_body(const struct gather_arguments *a, const struct kernel_at *at,
                             void *shared)
{
    bool words = gathers_words(a);
    size_t units = words ? a->bytes / sizeof(uint32_t) : a->bytes, i = thread_index(at);
    (void)shared;
    if (i >= a->count * units)
        return;
    size_t from = (size_t)a->order[i / units] * units + i % units;
    if (words)
        ((uint32_t *)(void *)a->to)[i] = ((const uint32_t *)(const void *)a->from)[from];
    else
        a->to[i] = a->from[from];
}

#endif
