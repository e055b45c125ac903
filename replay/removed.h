/* Keys of items that left their tables of late: the last REMOVED_KEYS_MAX, for REMOVED_KEYS_MS. In
 * memory; the store keeps them for the next life. A zeroed struct is an empty ring. One thread. */
#ifndef TRP_REPLAY_REMOVED_H
#define TRP_REPLAY_REMOVED_H

#include <stdbool.h>
#include <stdint.h>

#include "store.h"

struct removed_entry;

struct removed_place {
    uint32_t hash;  /* of its key */
    uint32_t entry; /* its place in the ring + 1; 0: free */
};

struct removed_ring {
    struct removed_entry *entries;
    struct removed_place *places; /* by hash: the newest entry of each key; 2 * capacity */
    uint32_t capacity;            /* 0 or a power of two */
    uint64_t first, end;          /* numbers; the place is the number modulo capacity */
};

/* One with at_ns 0 forgets its table's. */
void removed_push(struct removed_ring *ring, const struct store_removed *removed);

/* Fetches from memory what removed_find() looks at first. */
void removed_prefetch(const struct removed_ring *ring, uint64_t key);

/* Is the item with this key and print, which comes now, one that left the table of late? */
bool removed_find(const struct removed_ring *ring, uint32_t table_id, uint64_t key, uint32_t print,
                  int64_t now_ns);
void removed_cleanup(struct removed_ring *ring);

#endif
