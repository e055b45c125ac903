/* One interface over four data structures: a list (fifo, lifo), a dense vector (uniform), a sum
 * tree (prioritized) and a heap (max_heap, min_heap). This file has their common parts: dispatch,
 * the check of priorities, growth, and the search for the best few. */
#include "selector_impl.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

struct selector *selector_create(trp_selector kind)
{
    struct selector *selector = NULL;
    switch (kind.kind) {
    case TRP_FIFO:
    case TRP_LIFO:
        selector = selector_list_create();
        break;
    case TRP_UNIFORM:
        selector = selector_uniform_create();
        break;
    case TRP_PRIORITIZED:
        selector = selector_sum_tree_create();
        break;
    case TRP_MAX_HEAP:
    case TRP_MIN_HEAP:
        selector = selector_heap_create();
        break;
    }
    assert(selector);
    selector->kind = kind;
    return selector;
}

void selector_destroy(struct selector *selector)
{
    if (selector)
        selector->impl->destroy(selector);
}

trp_status selector_check(const struct selector *selector, double priority)
{
    trp_selector_kind kind = selector->kind.kind;
    if (isnan(priority)) /* by every kind: nothing can order or store it */
        return trp_fail(TRP_INVALID_ARGUMENT, "Priority must not be NaN.");
    if (kind == TRP_PRIORITIZED && priority < 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "Priority must not be negative.");
    if (kind == TRP_PRIORITIZED && isinf(priority))
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
