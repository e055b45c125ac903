/* Fifo and lifo: a doubly linked list in insertion order, its links in an array by slot + 1; the
 * first one joins its ends. Every operation is O(1); updates move nothing. */
#include "selector_impl.h"

#include <assert.h>
#include <stdlib.h>

#include "core/alloc.h"

struct slot_link {
    uint32_t older, newer; /* 0 at the ends */
};

struct list_selector {
    struct selector base;
    struct slot_link *links; /* [0]: `newer` is the oldest, `older` the newest */
    uint32_t capacity;
};

static void list_cleanup(struct selector *selector)
{
    free(((struct list_selector *)selector)->links);
}

static void list_insert(struct selector *selector, uint32_t slot, double priority)
{
    struct list_selector *list = (struct list_selector *)selector;
    uint32_t at = slot + 1, before = list->capacity;
    (void)priority;
    if (at >= before) {
        list->capacity = slots_capacity(at);
        list->links = xrealloc(list->links, list->capacity * sizeof *list->links);
        if (before == 0)
            list->links[0] = (struct slot_link){0};
    }
    uint32_t newest = list->links[0].older;
    list->links[at] = (struct slot_link){.older = newest};
    list->links[newest].newer = at;
    list->links[0].older = at;
}

static void list_selector_remove(struct selector *selector, uint32_t slot)
{
    struct slot_link *links = ((struct list_selector *)selector)->links, link = links[slot + 1];
    links[link.older].newer = link.newer;
    links[link.newer].older = link.older;
}

/* The one that is picked after `at`; of 0, the first. */
static uint32_t list_next(const struct list_selector *list, uint32_t at)
{
    const struct slot_link *link = &list->links[at];
    return list->base.kind.kind == TRP_FIFO ? link->newer : link->older;
}

static uint32_t list_pick(struct selector *selector, trp_rng *rng, double *probability)
{
    (void)rng;
    uint32_t at = list_next((struct list_selector *)selector, 0);
    assert(at != 0);
    *probability = 1;
    return at - 1;
}

static uint32_t list_upcoming(const struct selector *selector, uint32_t count, uint32_t *slots)
{
    const struct list_selector *list = (const struct list_selector *)selector;
    uint32_t written = 0, at = 0;
    while (written < count && list->links && (at = list_next(list, at)) != 0)
        slots[written++] = at - 1;
    return written;
}

const struct selector_impl selector_list = {
    .bytes = sizeof(struct list_selector),
    .cleanup = list_cleanup,
    .insert = list_insert,
    .remove = list_selector_remove,
    .pick = list_pick,
    .upcoming = list_upcoming,
};
