/* Fifo and lifo: a doubly linked list in insertion order, its links in arrays by slot. Every
 * operation is O(1); updates move nothing. */
#include "selector_impl.h"

#include <assert.h>
#include <stdlib.h>

#include "core/alloc.h"
#include "replay/model/item.h"

struct slot_link {
    uint32_t older, newer; /* SLOT_NONE at the ends */
};

struct list_selector {
    struct selector base;
    struct slot_link *links;
    uint32_t capacity;
    uint32_t oldest, newest; /* SLOT_NONE when empty */
};

static void list_destroy(struct selector *selector)
{
    struct list_selector *list = (struct list_selector *)selector;
    free(list->links);
    free(list);
}

static void list_insert(struct selector *selector, uint32_t slot, double priority)
{
    (void)priority;
    struct list_selector *list = (struct list_selector *)selector;
    if (slot >= list->capacity) {
        list->capacity = slots_capacity(slot);
        list->links = xrealloc(list->links, list->capacity * sizeof *list->links);
    }
    list->links[slot] = (struct slot_link){.older = list->newest, .newer = SLOT_NONE};
    if (list->newest == SLOT_NONE)
        list->oldest = slot;
    else
        list->links[list->newest].newer = slot;
    list->newest = slot;
}

static void list_selector_remove(struct selector *selector, uint32_t slot)
{
    struct list_selector *list = (struct list_selector *)selector;
    struct slot_link link = list->links[slot];
    if (link.older == SLOT_NONE)
        list->oldest = link.newer;
    else
        list->links[link.older].newer = link.newer;
    if (link.newer == SLOT_NONE)
        list->newest = link.older;
    else
        list->links[link.newer].older = link.older;
}

static uint32_t list_first(const struct list_selector *list)
{
    return list->base.kind.kind == TRP_FIFO ? list->oldest : list->newest;
}

static uint32_t list_pick(struct selector *selector, trp_rng *rng, double *probability)
{
    (void)rng;
    uint32_t slot = list_first((struct list_selector *)selector);
    assert(slot != SLOT_NONE);
    *probability = 1;
    return slot;
}

static uint32_t list_upcoming(const struct selector *selector, uint32_t count, uint32_t *slots)
{
    const struct list_selector *list = (const struct list_selector *)selector;
    bool fifo = list->base.kind.kind == TRP_FIFO;
    uint32_t written = 0;
    for (uint32_t slot = list_first(list); slot != SLOT_NONE && written < count; written++) {
        slots[written] = slot;
        slot = fifo ? list->links[slot].newer : list->links[slot].older;
    }
    return written;
}

static const struct selector_impl list_impl = {
    .destroy = list_destroy,
    .insert = list_insert,
    .remove = list_selector_remove,
    .pick = list_pick,
    .upcoming = list_upcoming,
};

struct selector *selector_list_create(void)
{
    struct list_selector *list = xcalloc(1, sizeof *list);
    list->base.impl = &list_impl;
    list->oldest = list->newest = SLOT_NONE;
    return &list->base;
}
