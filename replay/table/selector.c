/* One interface over four data structures: a list (fifo, lifo), a dense vector (uniform), a sum
 * tree (prioritized) and a heap (max_heap, min_heap). This file has their common parts: dispatch,
 * the check of priorities, growth, and the search for the best few. */
#include "selector_impl.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "core/alloc.h"

struct selector *selector_create(trp_selector kind)
{
    static const struct selector_impl *const impls[] = {
        [TRP_UNIFORM] = &selector_uniform, [TRP_FIFO] = &selector_list,
        [TRP_LIFO] = &selector_list,       [TRP_PRIORITIZED] = &selector_sum_tree,
        [TRP_MAX_HEAP] = &selector_heap,   [TRP_MIN_HEAP] = &selector_heap,
    };
    struct selector *selector = xcalloc(1, impls[kind.kind]->bytes);
    selector->impl = impls[kind.kind];
    selector->kind = kind;
    return selector;
}

void selector_destroy(struct selector *selector)
{
    if (selector)
        selector->impl->cleanup(selector);
    free(selector);
}

trp_status selector_check(trp_selector selector, double priority)
{
    bool prioritized = selector.kind == TRP_PRIORITIZED;
    if (isnan(priority)) /* by every kind: nothing can order or store it */
        return trp_fail(TRP_INVALID_ARGUMENT, "Priority must not be NaN.");
    if (prioritized && priority < 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "Priority must not be negative.");
    if (prioritized && isinf(priority))
        return trp_fail(TRP_INVALID_ARGUMENT, "Priority must be finite.");
    return TRP_OK;
}

void selector_insert(struct selector *selector, uint32_t slot, double priority)
{
    selector->impl->insert(selector, slot, priority);
}

void selector_update(struct selector *selector, uint32_t slot, double priority)
{
    if (selector->impl->update)
        selector->impl->update(selector, slot, priority);
}

void selector_remove(struct selector *selector, uint32_t slot)
{
    selector->impl->remove(selector, slot);
}

uint32_t selector_pick(struct selector *selector, trp_rng *rng, double *probability)
{
    return selector->impl->pick(selector, rng, probability);
}

void selector_pick_many(struct selector *selector, trp_rng *rng, uint32_t count, uint32_t *slots,
                        double *probabilities)
{
    if (selector->impl->pick_many) {
        selector->impl->pick_many(selector, rng, count, slots, probabilities);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        slots[i] = selector->impl->pick(selector, rng, &probabilities[i]);
}

uint32_t slots_capacity(uint32_t slot)
{
    assert(slot < UINT32_C(1) << 31); /* TABLE_ITEMS_MAX */
    uint32_t capacity = 64;
    while (capacity <= slot)
        capacity *= 2;
    return capacity;
}

uint32_t selector_upcoming(const struct selector *selector, uint32_t count, uint32_t *slots)
{
    return selector->impl->upcoming ? selector->impl->upcoming(selector, count, slots) : 0;
}
