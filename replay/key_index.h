/* Items of a table by key: a hash map. A zeroed struct is an empty one. One thread. */
#ifndef TRP_REPLAY_KEY_INDEX_H
#define TRP_REPLAY_KEY_INDEX_H

#include <stddef.h>

#include "item.h"

struct key_index_entry {
    uint64_t key;
    struct item *item; /* NULL: free */
};

struct key_index {
    struct key_index_entry *entries;
    size_t count, capacity; /* capacity: 0 or a power of two */
    uint32_t shift;         /* a hash's upper log2(capacity) bits are its place */
};

/* Adds the item, or replaces the one with its key. */
void key_index_put(struct key_index *index, struct item *item);

struct item *key_index_find(const struct key_index *index, uint64_t key); /* NULL: unknown */

/* Takes this very item out; nothing happens when it is not inside. */
void key_index_remove(struct key_index *index, const struct item *item);

void key_index_clear(struct key_index *index); /* frees the memory */

#endif
