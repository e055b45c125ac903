/* The inside of a table, shared by table.c, draw.c and teardown.c. */
#ifndef TRP_REPLAY_TABLE_TABLE_IMPL_H
#define TRP_REPLAY_TABLE_TABLE_IMPL_H

#include "key_index.h"
#include "selector.h"
#include "table.h"

struct table {
    struct table_facts facts;
    struct selector *sampler, *remover;
    struct map episodes;               /* how many chunks of its items are of which */
    uint32_t oldest_slot, oldest_next; /* the best so far; where the search goes on */
    uint64_t oldest_seq;               /* of what was in oldest_slot; 0: nothing */

    struct item **items; /* by slot; NULL: free; odd: see entry_stored() */
    table_lazy_load *lazy_load;
    void *lazy_load_arg;
    uint32_t *free_slots;
    uint32_t free_count, slot_count, capacity;
    uint32_t torn; /* slots below have given up their items: the table is being destroyed */

    struct key_index index;
    uint32_t unindexed_from; /* restored items in slots from here to unindexed_end */
    uint32_t unindexed_end;  /* are not in the index yet */
};

static inline bool entry_stored(const struct item *entry)
{
    return (uintptr_t)entry & 1;
}

/* NULL: the slot is free, or the item cannot be had. */
struct item *table_item(const struct table *table, uint32_t slot, bool in_turn);

/* The selector may be another than the one that accepted the item. */
double priority_for(trp_selector selector, double priority);

#endif
