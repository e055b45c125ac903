/* A table that is emptied or dropped is put aside whole and then taken apart in steps, because it
 * may be as large as memory: nobody waits longer for it than for a group. */
#include "table_impl.h"

#include <stdlib.h>

enum {
    AHEAD = 16,
    WEIGHT_BYTES = 4096,   /* of chunks: as much work as an item */
    LARGE_SLOTS = 1 << 20, /* to free an array of so many takes its time */
};

uint64_t table_weight(const struct item *item)
{
    return 1 + item_chunk_bytes(item) / WEIGHT_BYTES;
}

struct table *table_successor(const struct table *table, uint32_t id)
{
    struct table *next = table_create(table->facts.options, id, 0);
    next->facts.rng = table->facts.rng;
    return next;
}

/* Frees one of the arrays that are of no use without the items; false: all are gone. */
static bool array_free(struct table *table)
{
    if (table->sampler) {
        selector_destroy(table->sampler);
        table->sampler = NULL;
    } else if (table->remover) {
        selector_destroy(table->remover);
        table->remover = NULL;
    } else if (table->index.capacity > 0) {
        key_index_clear(&table->index);
    } else if (table->episodes.capacity > 0) {
        map_cleanup(&table->episodes);
    } else {
        return false;
    }
    return true;
}

static void ahead_prefetch(const struct table *table, uint32_t slot)
{
    if (slot + 2 * AHEAD < table->slot_count)
        __builtin_prefetch(table->items[slot + 2 * AHEAD], 1);
    const struct item *item = slot + AHEAD < table->slot_count ? table->items[slot + AHEAD] : NULL;
    if (item && !entry_stored(item) && item->trajectory->chunk_count > 0)
        __builtin_prefetch(item->chunks[0], 1);
}

/* False: there are no more. */
static bool items_release(struct table *table, uint64_t *weight, table_release *release, void *arg)
{
    while (*weight > 0 && table->torn < table->slot_count) {
        ahead_prefetch(table, table->torn);
        struct item *item = table->items[table->torn++];
        bool there = item && !entry_stored(item);
        uint64_t cost = there ? table_weight(item) : 1;
        *weight -= cost < *weight ? cost : *weight;
        if (!there)
            continue;
        item->slot = SLOT_NONE;
        release(arg, item);
    }
    return table->torn < table->slot_count;
}

bool table_destroy_step(struct table *table, uint64_t *weight, table_release *release, void *arg)
{
    while (array_free(table)) {
        if (table->capacity >= LARGE_SLOTS) {
            *weight = 0;
            return true;
        }
    }
    if (items_release(table, weight, release, arg))
        return true;
    trp_table_options_destroy(table->facts.options);
    free(table->items);
    free(table->free_slots);
    free(table);
    return false;
}

void table_destroy(struct table *table, table_release *release, void *arg)
{
    uint64_t weight = UINT64_MAX;
    while (table && table_destroy_step(table, &weight, release, arg))
        weight = UINT64_MAX;
}
