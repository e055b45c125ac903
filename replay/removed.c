/* A ring in the order of removal, with a chain of the entries of each hash: a new entry becomes its
 * chain's head, so that the oldest of the ring is always the last of its chain. */
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
    uint64_t next; /* number + 1 of the next older one of its chain; 0, or below `first`: none */
};

static struct removed_entry *entry_at(const struct removed_ring *ring, uint64_t number)
{
    return &ring->entries[number & (ring->capacity - 1)];
}

static uint32_t key_slot(const struct removed_ring *ring, uint64_t key)
{
    return hash_place(key, ring->capacity);
}

static void entry_link(struct removed_ring *ring, uint64_t number)
{
    struct removed_entry *entry = entry_at(ring, number);
    uint64_t *head = &ring->heads[key_slot(ring, entry->key)];
    entry->next = *head;
    *head = number + 1;
}

static void ring_grow(struct removed_ring *ring)
{
    struct removed_ring old = *ring;
    ring->capacity = old.capacity ? 2 * old.capacity : CAPACITY_MIN;
    ring->entries = xmalloc(ring->capacity * sizeof *ring->entries);
    ring->heads = xcalloc(ring->capacity, sizeof *ring->heads);
    for (uint64_t number = old.first; number < old.end; ++number) {
        *entry_at(ring, number) = *entry_at(&old, number);
        entry_link(ring, number);
    }
    free(old.entries);
    free(old.heads);
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
        ring->first++;
    *entry_at(ring, ring->end) = (struct removed_entry){.key = removed->key,
                                                        .at_ns = removed->at_ns,
                                                        .table_id = removed->table_id,
                                                        .print = removed->print};
    entry_link(ring, ring->end++);
}

void removed_prefetch(const struct removed_ring *ring, uint64_t key)
{
    if (ring->capacity > 0)
        __builtin_prefetch(&ring->heads[key_slot(ring, key)]);
}

bool removed_find(const struct removed_ring *ring, uint32_t table_id, uint64_t key, uint32_t print,
                  int64_t now_ns)
{
    if (ring->end == ring->first)
        return false;
    for (uint64_t next = ring->heads[key_slot(ring, key)]; next > ring->first;) {
        const struct removed_entry *entry = entry_at(ring, next - 1);
        if (entry->key == key && entry->table_id == table_id)
            return entry->print == print &&
                   now_ns - entry->at_ns <= REMOVED_KEYS_MS * INT64_C(1000000);
        next = entry->next;
    }
    return false;
}

void removed_cleanup(struct removed_ring *ring)
{
    free(ring->entries);
    free(ring->heads);
    *ring = (struct removed_ring){0};
}
