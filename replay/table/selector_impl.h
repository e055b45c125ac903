/* The interface of a selector, and the array helpers that all share. Arrays are indexed by slot
 * and grow by doubling, so an insert costs amortised constant time. */
#ifndef TRP_REPLAY_TABLE_SELECTOR_IMPL_H
#define TRP_REPLAY_TABLE_SELECTOR_IMPL_H

#include <stdbool.h>
#include <stddef.h>

#include "selector.h"

/* Contracts as in selector.h. `update` may be NULL: priorities do not matter. */
struct selector_impl {
    size_t bytes; /* of a selector, which is all zeros at first */
    void (*cleanup)(struct selector *selector);
    void (*insert)(struct selector *selector, uint32_t slot, double priority);
    void (*update)(struct selector *selector, uint32_t slot, double priority);
    void (*remove)(struct selector *selector, uint32_t slot);
    uint32_t (*pick)(struct selector *selector, trp_rng *rng, double *probability);
    /* May be NULL: then pick() is called `count` times, which gives the same. */
    void (*pick_many)(struct selector *selector, trp_rng *rng, uint32_t count, uint32_t *slots,
                      double *probabilities);
    /* May be NULL: it is not known. */
    uint32_t (*upcoming)(const struct selector *selector, uint32_t count, uint32_t *slots);
};

/* First member of every implementation. */
struct selector {
    const struct selector_impl *impl;
    trp_selector kind;
};

extern const struct selector_impl selector_list;     /* fifo, lifo: by kind */
extern const struct selector_impl selector_uniform;  /* uniform */
extern const struct selector_impl selector_sum_tree; /* prioritized: by kind's exponent */
extern const struct selector_impl selector_heap;     /* max_heap, min_heap: by kind */

/* The capacity to grow to so that `slot` is an index: a power of two, at least 64. */
uint32_t slots_capacity(uint32_t slot);

#endif
