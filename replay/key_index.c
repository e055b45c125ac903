/* Keys are 64 random bits from clients, or, from a client with other ideas, anything. Open
 * addressing with linear probing over the items' addresses, 8 bytes an entry: the upper 16 bits of
 * an entry, which no address uses, are bits of the hash, so that an item is hardly ever looked at
 * in vain. A removal moves later entries of the run back instead of leaving a mark, so tables that
 * live long do not slow down. Keys are multiplied, which spreads counters too, and the product as a
 * fraction of 2^64 is the place: growing then writes in order, and it fetches the items' keys
 * ahead. The last growth is to what the table's max_size needs: 10 bytes an item when full. */
#include "key_index.h"

#include <assert.h>
#include <stdlib.h>

#include "core/alloc.h"

enum { CAPACITY_MIN = 64, TAG_SHIFT = 48, AHEAD = 32 };

static uint64_t key_hash(uint64_t key)
{
    return (key ^ (key >> 32)) * 0x9e3779b97f4a7c15u;
}

static uint64_t hash_tag(uint64_t hash)
{
    return hash << 24 >> TAG_SHIFT << TAG_SHIFT; /* below the bits of its place */
}

static struct item *entry_item(uint64_t entry)
{
    return (struct item *)(uintptr_t)(entry << (64 - TAG_SHIFT) >> (64 - TAG_SHIFT));
}

static size_t key_index_home(const struct key_index *index, uint64_t key)
{
    return (size_t)((unsigned __int128)key_hash(key) * index->capacity >> 64);
}

static size_t key_index_next(const struct key_index *index, size_t at)
{
    return at + 1 < index->capacity ? at + 1 : 0;
}

/* Where `key` is, or the free entry where it belongs. */
static size_t key_index_seek(const struct key_index *index, uint64_t key)
{
    uint64_t tag = hash_tag(key_hash(key)), entry;
    size_t at = key_index_home(index, key);
    while ((entry = index->entries[at]) != 0 &&
           ((entry ^ tag) >> TAG_SHIFT != 0 || entry_item(entry)->key != key))
        at = key_index_next(index, at);
    return at;
}

/* An entry of the half as large index into the first free place. */
static void key_index_move(struct key_index *index, uint64_t entry)
{
    size_t at = key_index_home(index, entry_item(entry)->key);
    while (index->entries[at] != 0)
        at = key_index_next(index, at);
    index->entries[at] = entry;
}

static size_t grown_capacity(const struct key_index *index)
{
    size_t doubled = index->capacity ? index->capacity * 2 : CAPACITY_MIN;
    size_t enough = index->expected / 4 * 5 + CAPACITY_MIN;
    return index->capacity < enough && enough < doubled ? enough : doubled;
}

static void key_index_grow(struct key_index *index)
{
    struct key_index old = *index;
    index->capacity = grown_capacity(index);
    index->entries = xcalloc(index->capacity, sizeof *index->entries);
    for (size_t i = 0; i < old.capacity; i++) {
        if (i + AHEAD < old.capacity)
            __builtin_prefetch(entry_item(old.entries[i + AHEAD]));
        if (old.entries[i] != 0)
            key_index_move(index, old.entries[i]);
    }
    free(old.entries);
}

void key_index_put(struct key_index *index, struct item *item)
{
    uint64_t address = (uint64_t)(uintptr_t)item;
    assert(address != 0 && address >> TAG_SHIFT == 0);
    if (index->count >= index->capacity / 5 * 4)
        key_index_grow(index);
    size_t at = key_index_seek(index, item->key);
    if (index->entries[at] == 0)
        index->count++;
    index->entries[at] = hash_tag(key_hash(item->key)) | address;
}

struct item *key_index_find(const struct key_index *index, uint64_t key)
{
    return index->count ? entry_item(index->entries[key_index_seek(index, key)]) : NULL;
}

void key_index_find_many(const struct key_index *index, const uint64_t *keys, uint32_t count,
                         struct item **items)
{
    for (uint32_t i = 0; i < count && index->count > 0; i++)
        __builtin_prefetch(&index->entries[key_index_home(index, keys[i])]);
    for (uint32_t i = 0; i < count && index->count > 0; i++)
        __builtin_prefetch(entry_item(index->entries[key_index_home(index, keys[i])]));
    for (uint32_t i = 0; i < count; i++)
        items[i] = key_index_find(index, keys[i]);
}

/* Steps from `from` to `to`. */
static size_t distance(const struct key_index *index, size_t from, size_t to)
{
    return to >= from ? to - from : to + index->capacity - from;
}

void key_index_remove(struct key_index *index, const struct item *item)
{
    if (key_index_find(index, item->key) != item)
        return;
    size_t hole = key_index_seek(index, item->key);
    for (size_t at = key_index_next(index, hole); index->entries[at] != 0;
         at = key_index_next(index, at)) {
        size_t home = key_index_home(index, entry_item(index->entries[at])->key);
        if (distance(index, home, at) >= distance(index, hole, at)) {
            /* its run began at the hole or before it */
            index->entries[hole] = index->entries[at];
            hole = at;
        }
    }
    index->entries[hole] = 0;
    index->count--;
}

void key_index_clear(struct key_index *index)
{
    free(index->entries);
    *index = (struct key_index){.expected = index->expected};
}
