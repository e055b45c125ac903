/* Items of a table by key: a hash map. A zeroed struct is an empty one. One thread. */
#ifndef TRP_REPLAY_TABLE_KEY_INDEX_H
#define TRP_REPLAY_TABLE_KEY_INDEX_H

#include <stddef.h>

#include "replay/model/item.h"

struct key_index {
    uint64_t *entries;      /* an item's address and what tells it from others; 0: free */
    size_t count, capacity; /* capacity: 0 or anything above 5/4 of count */
    size_t expected;        /* the owner's: about the most items there will be; 0: not known */
};

/* Adds the item, or replaces the one with its key. */
void key_index_put(struct key_index *index, struct item *item);

struct item *key_index_find(const struct key_index *index, uint64_t key); /* NULL: unknown */

/* The same for many keys, whose entries and items are fetched from memory side by side. */
void key_index_find_many(const struct key_index *index, const uint64_t *keys, uint32_t count,
                         struct item **items);

/* Fetches the memory that a put or find of `key` will look at first. */
void key_index_prefetch(const struct key_index *index, uint64_t key);

/* Takes this very item out; nothing happens when it is not inside. */
void key_index_remove(struct key_index *index, const struct item *item);

void key_index_clear(struct key_index *index); /* frees the memory, keeps `expected` */

#endif
