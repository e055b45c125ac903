/* Walks over the items of a table, and the oldest of them. */
#include "table_impl.h"

#include "limits.h"

struct item *table_slot(const struct table *table, uint32_t slot)
{
    return slot < table->slot_count ? table_item(table, slot, false) : NULL;
}

uint32_t table_slots(const struct table *table)
{
    return table->slot_count;
}

static uint64_t entry_seq(const struct item *entry)
{
    return entry_stored(entry) ? (uint64_t)(uintptr_t)entry >> 1 : entry->seq;
}

/* Goes on with the search by a slice. */
static void oldest_search(struct table *table)
{
    for (uint32_t i = 0; i < OLDEST_SLOTS_MAX && i < table->slot_count; i++) {
        if (table->oldest_next >= table->slot_count)
            table->oldest_next = 0;
        const struct item *entry = table->items[table->oldest_next];
        if (entry && (table->oldest_seq == 0 || entry_seq(entry) < table->oldest_seq)) {
            table->oldest_slot = table->oldest_next;
            table->oldest_seq = entry_seq(entry);
        }
        table->oldest_next++;
    }
}

const struct item *table_oldest(struct table *table)
{
    double probability;
    if (table_size(table) == 0)
        return NULL;
    /* Picking the oldest draws nothing. */
    if (table->options->remover.kind == TRP_FIFO)
        return table_slot(table, selector_pick(table->remover, &table->rng, &probability));
    if (table->options->sampler.kind == TRP_FIFO)
        return table_slot(table, selector_pick(table->sampler, &table->rng, &probability));
    bool known = table->oldest_slot < table->slot_count && table->items[table->oldest_slot];
    if (!known || entry_seq(table->items[table->oldest_slot]) != table->oldest_seq)
        table->oldest_seq = 0;
    oldest_search(table);
    return table->oldest_seq ? table_slot(table, table->oldest_slot) : NULL;
}
