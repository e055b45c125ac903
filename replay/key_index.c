/* Keys are 64 random bits from clients, or, from a client with other ideas, anything. Open
 * addressing with linear probing over (key, item) pairs: a look-up is one cache miss. A removal
 * moves later entries of the run back instead of leaving a mark, so tables that live long do not
 * slow down. Keys are multiplied, which spreads counters too, and the upper bits are the place:
 * growing then reads and writes in order, 10 ms instead of 130 for a million keys. */
#include "key_index.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"

enum { CAPACITY_MIN = 64, SHIFT_MAX = 64 - 6 };

static size_t key_index_home(const struct key_index *index, uint64_t key)
{
    return (size_t)(((key ^ (key >> 32)) * 0x9e3779b97f4a7c15u) >> index->shift);
}

static size_t key_index_next(const struct key_index *index, size_t at)
{
    return (at + 1) & (index->capacity - 1);
}

/* Where `key` is, or the free entry where it belongs. */
static size_t key_index_seek(const struct key_index *index, uint64_t key)
{
    size_t at = key_index_home(index, key);
    while (index->entries[at].item && index->entries[at].key != key)
        at = key_index_next(index, at);
    return at;
}

static void key_index_grow(struct key_index *index)
{
    struct key_index old = *index;
    index->capacity = old.capacity ? old.capacity * 2 : CAPACITY_MIN;
    index->shift = old.capacity ? old.shift - 1 : SHIFT_MAX;
    index->entries = xcalloc(index->capacity, sizeof *index->entries);
    for (size_t i = 0; i < old.capacity; i++) {
        if (old.entries[i].item)
            index->entries[key_index_seek(index, old.entries[i].key)] = old.entries[i];
    }
    free(old.entries);
}

void key_index_put(struct key_index *index, struct item *item)
{
    if (index->count >= index->capacity / 4 * 3)
        key_index_grow(index);
    size_t at = key_index_seek(index, item->key);
    if (!index->entries[at].item)
        index->count++;
    index->entries[at] = (struct key_index_entry){.key = item->key, .item = item};
}

struct item *key_index_find(const struct key_index *index, uint64_t key)
{
    return index->count ? index->entries[key_index_seek(index, key)].item : NULL;
}

void key_index_remove(struct key_index *index, const struct item *item)
{
    if (key_index_find(index, item->key) != item)
        return;
    size_t mask = index->capacity - 1;
    size_t hole = key_index_seek(index, item->key);
    for (size_t at = key_index_next(index, hole); index->entries[at].item;
         at = key_index_next(index, at)) {
        size_t home = key_index_home(index, index->entries[at].key);
        if (((at - home) & mask) >=
            ((at - hole) & mask)) { /* its run began at or before the hole */
            index->entries[hole] = index->entries[at];
            hole = at;
        }
    }
    index->entries[hole].item = NULL;
    index->count--;
}

void key_index_clear(struct key_index *index)
{
    free(index->entries);
    memset(index, 0, sizeof *index);
}
