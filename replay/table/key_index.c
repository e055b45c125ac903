/* Keys are 64 random bits from clients, or, from a client with other ideas, anything. Open
 * addressing with linear probing, 8 bytes an entry: an item's address, and in the bits that no
 * address uses, how many places the entry is behind the one that its key belongs to, and a tag,
 * some bits of the key's hash. An entry that has another distance than the key one looks for has
 * another key, and of those that have the same, all but one in four thousand have another tag:
 * items, which lie anywhere in memory, are hardly ever looked at in vain. The distances also let a
 * removal move later entries of the run back (no marks are left: tables that live long do not slow
 * down) without looking at items at all. A key's hash as a fraction of 2^64 is its place: growing
 * then writes in order, and it fetches the items' keys ahead. The last growth is to what the
 * table's max_size needs: 10.4 bytes an item when full. */
#include "key_index.h"

#include <assert.h>
#include <stdlib.h>

#include "core/alloc.h"
#include "core/hash.h"

enum {
    CAPACITY_MIN = 64,
    AHEAD = 32,
    ALIGN_BITS = 3, /* of an item's address, that are 0 */
    ADDRESS_BITS = 48 - ALIGN_BITS,
    DISTANCE_BITS = 7,
    TAG_BITS = 64 - ADDRESS_BITS - DISTANCE_BITS,
    FAR = (1 << DISTANCE_BITS) - 1, /* stands for itself and every greater distance */
};

#define ADDRESS_MASK ((UINT64_C(1) << ADDRESS_BITS) - 1)
#define DISTANCE_ONE (UINT64_C(1) << ADDRESS_BITS)

static struct item *entry_item(uint64_t entry)
{
    return (struct item *)(uintptr_t)((entry & ADDRESS_MASK) << ALIGN_BITS);
}

static size_t entry_distance(uint64_t entry)
{
    return entry >> ADDRESS_BITS & FAR;
}

/* Everything but the address; the lower bits of a hash, which do not say its place. */
static uint64_t entry_marks(uint64_t key, size_t distance)
{
    return hash_u64(key) << (64 - TAG_BITS) | (distance < FAR ? distance : FAR) * DISTANCE_ONE;
}

static uint64_t entry_make(const struct item *item, uint64_t marks)
{
    uint64_t address = (uint64_t)(uintptr_t)item;
    assert(address != 0 && address >> (ADDRESS_BITS + ALIGN_BITS) == 0);
    assert(address % (1 << ALIGN_BITS) == 0);
    return marks | address >> ALIGN_BITS;
}

static size_t key_index_home(const struct key_index *index, uint64_t key)
{
    return (size_t)((unsigned __int128)hash_u64(key) * index->capacity >> 64);
}

static size_t key_index_next(const struct key_index *index, size_t at)
{
    return at + 1 < index->capacity ? at + 1 : 0;
}

/* Where `key` is, or the free entry where it belongs; *marks: what an entry has there. */
static size_t key_index_seek(const struct key_index *index, uint64_t key, uint64_t *marks)
{
    size_t at = key_index_home(index, key), distance = 0;
    uint64_t wanted = entry_marks(key, 0);
    for (uint64_t entry; (entry = index->entries[at]) != 0; distance++) {
        if ((entry & ~ADDRESS_MASK) == wanted && entry_item(entry)->key == key)
            break;
        wanted += distance < FAR ? DISTANCE_ONE : 0;
        at = key_index_next(index, at);
    }
    *marks = wanted;
    return at;
}

/* An item whose key is not inside into the first free place. */
static void key_index_add(struct key_index *index, struct item *item)
{
    size_t at = key_index_home(index, item->key), distance = 0;
    for (; index->entries[at] != 0; distance++)
        at = key_index_next(index, at);
    index->entries[at] = entry_make(item, entry_marks(item->key, distance));
}

static size_t grown_capacity(const struct key_index *index)
{
    size_t doubled = index->capacity ? index->capacity * 2 : CAPACITY_MIN;
    size_t enough = index->expected / 10 * 13 + CAPACITY_MIN;
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
            key_index_add(index, entry_item(old.entries[i]));
    }
    free(old.entries);
}

void key_index_put(struct key_index *index, struct item *item)
{
    uint64_t marks;
    if (index->count >= index->capacity / 5 * 4)
        key_index_grow(index);
    size_t at = key_index_seek(index, item->key, &marks);
    if (index->entries[at] == 0)
        index->count++;
    index->entries[at] = entry_make(item, marks);
}

struct item *key_index_find(const struct key_index *index, uint64_t key)
{
    uint64_t marks;
    return index->count ? entry_item(index->entries[key_index_seek(index, key, &marks)]) : NULL;
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

void key_index_prefetch(const struct key_index *index, uint64_t key)
{
    if (index->capacity == 0)
        return;
    size_t at = key_index_home(index, key), line = 64 / sizeof *index->entries;
    __builtin_prefetch(&index->entries[at], 1);
    __builtin_prefetch(&index->entries[at + line < index->capacity ? at + line : 0], 1);
}

/* How far the entry at `at` is behind its home. */
static size_t distance_at(const struct key_index *index, size_t at)
{
    uint64_t entry = index->entries[at];
    size_t distance = entry_distance(entry);
    if (distance < FAR)
        return distance;
    size_t home = key_index_home(index, entry_item(entry)->key);
    return at >= home ? at - home : at + index->capacity - home;
}

/* The entry from `distance` behind its home, `back` places nearer to it. */
static uint64_t entry_moved(uint64_t entry, size_t distance, size_t back)
{
    if (distance < FAR)
        return entry - back * DISTANCE_ONE;
    size_t left = distance - back < FAR ? distance - back : FAR;
    return entry - (FAR - left) * DISTANCE_ONE;
}

void key_index_remove(struct key_index *index, const struct item *item)
{
    uint64_t marks;
    if (index->count == 0)
        return;
    size_t gap = key_index_seek(index, item->key, &marks);
    if (entry_item(index->entries[gap]) != item)
        return;
    size_t at = key_index_next(index, gap);
    for (size_t back = 1; index->entries[at] != 0; at = key_index_next(index, at), back++) {
        size_t distance = distance_at(index, at);
        if (distance < back)
            continue; /* its home is behind the gap */
        index->entries[gap] = entry_moved(index->entries[at], distance, back);
        gap = at;
        back = 0;
    }
    index->entries[gap] = 0;
    index->count--;
}

void key_index_clear(struct key_index *index)
{
    free(index->entries);
    *index = (struct key_index){.expected = index->expected};
}
