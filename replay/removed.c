/* A ring in the order of removal, and where in it each key is: open addressing with linear probing,
 * half empty, of hashes and places. The hashes tell other keys without a look at the ring, so that
 * a key that is not there, as most are not, costs one access to memory, which removed_prefetch()
 * can make early. An entry that leaves the ring lets those behind its place move up. */
#include "removed.h"

#include <stdlib.h>

#include "core/alloc.h"
#include "core/hash.h"
#include "core/limits.h"

enum { CAPACITY_MIN = 256 };

struct removed_entry {
    uint64_t key;
    int64_t at_ns;
    uint32_t table_id, print;
};

static struct removed_entry *entry_at(const struct removed_ring *ring, uint64_t number)
{
    return &ring->entries[number & (ring->capacity - 1)];
}

static uint32_t places_mask(const struct removed_ring *ring)
{
    return 2 * ring->capacity - 1;
}

/* What stands for entry `number`, if `key` is its key. */
static struct removed_place place_of(const struct removed_ring *ring, uint64_t key, uint64_t number)
{
    return (struct removed_place){.hash = (uint32_t)(hash_u64(key) >> 32),
                                  .entry = 1 + (uint32_t)(number & (ring->capacity - 1))};
}

/* The key's place, or the free one where it belongs. */
static struct removed_place *place_find(const struct removed_ring *ring, uint32_t table_id,
                                        uint64_t key)
{
    uint32_t hash = place_of(ring, key, 0).hash, at = hash & places_mask(ring);
    for (;; at = (at + 1) & places_mask(ring)) {
        struct removed_place *place = &ring->places[at];
        if (place->entry == 0)
            return place;
        const struct removed_entry *entry = &ring->entries[place->entry - 1];
        if (place->hash == hash && entry->key == key && entry->table_id == table_id)
            return place;
    }
}

static void entry_link(struct removed_ring *ring, uint64_t number)
{
    const struct removed_entry *entry = entry_at(ring, number);
    *place_find(ring, entry->table_id, entry->key) = place_of(ring, entry->key, number);
}

static void place_free(struct removed_ring *ring, uint32_t hole)
{
    struct removed_place *places = ring->places;
    uint32_t mask = places_mask(ring);
    for (uint32_t at = (hole + 1) & mask; places[at].entry != 0; at = (at + 1) & mask) {
        /* May it move to the hole? Not if its own place lies behind it. */
        if (((at - places[at].hash) & mask) < ((at - hole) & mask))
            continue;
        places[hole] = places[at];
        hole = at;
    }
    places[hole] = (struct removed_place){0};
}

/* A newer entry of its key may have its place. */
static void oldest_drop(struct removed_ring *ring)
{
    struct removed_place oldest = place_of(ring, entry_at(ring, ring->first)->key, ring->first);
    uint32_t mask = places_mask(ring), at = oldest.hash & mask;
    while (ring->places[at].entry != 0 && ring->places[at].entry != oldest.entry)
        at = (at + 1) & mask;
    if (ring->places[at].entry != 0)
        place_free(ring, at);
    ring->first++;
    removed_prefetch(ring, entry_at(ring, ring->first)->key);
}

static void ring_grow(struct removed_ring *ring)
{
    struct removed_ring old = *ring;
    ring->capacity = old.capacity ? 2 * old.capacity : CAPACITY_MIN;
    ring->entries = xmalloc(ring->capacity * sizeof *ring->entries);
    ring->places = xcalloc(2 * ring->capacity, sizeof *ring->places);
    for (uint64_t number = old.first; number < old.end; ++number) {
        *entry_at(ring, number) = *entry_at(&old, number);
        entry_link(ring, number);
    }
    free(old.entries);
    free(old.places);
}

static void table_forget(struct removed_ring *ring, uint32_t table_id)
{
    for (uint64_t number = ring->first; number < ring->end; ++number)
        if (entry_at(ring, number)->table_id == table_id)
            entry_at(ring, number)->table_id = 0; /* which no table has */
}

void removed_push(struct removed_ring *ring, const struct store_removed *removed)
{
    if (removed->at_ns == 0) {
        table_forget(ring, removed->table_id);
        return;
    }
    if (ring->end - ring->first == ring->capacity && ring->capacity < REMOVED_KEYS_MAX)
        ring_grow(ring);
    if (ring->end - ring->first == ring->capacity)
        oldest_drop(ring);
    *entry_at(ring, ring->end) = (struct removed_entry){.key = removed->key,
                                                        .at_ns = removed->at_ns,
                                                        .table_id = removed->table_id,
                                                        .print = removed->print};
    entry_link(ring, ring->end++);
}

void removed_prefetch(const struct removed_ring *ring, uint64_t key)
{
    if (ring->capacity > 0)
        __builtin_prefetch(&ring->places[place_of(ring, key, 0).hash & places_mask(ring)], 1);
}

bool removed_find(const struct removed_ring *ring, uint32_t table_id, uint64_t key, uint32_t print,
                  int64_t now_ns)
{
    if (ring->end == ring->first)
        return false;
    const struct removed_place *place = place_find(ring, table_id, key);
    if (place->entry == 0)
        return false;
    const struct removed_entry *entry = &ring->entries[place->entry - 1];
    return entry->print == print && now_ns - entry->at_ns <= REMOVED_KEYS_MS * INT64_C(1000000);
}

void removed_cleanup(struct removed_ring *ring)
{
    free(ring->entries);
    free(ring->places);
    *ring = (struct removed_ring){0};
}
