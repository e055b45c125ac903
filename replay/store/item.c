/* Items and trajectories in memory. Trajectories are interned: items of one shape share theirs. */
#include "internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"

/* ---- trajectories --------------------------------------------------------------------------- */

static uint32_t bytes_hash(trp_bytes bytes)
{
    uint64_t hash = UINT64_C(0x9E3779B97F4A7C15) ^ bytes.size;
    size_t at = 0;
    for (; at + 8 <= bytes.size; at += 8) {
        uint64_t word;
        memcpy(&word, bytes.data + at, sizeof word);
        hash = (hash ^ word) * UINT64_C(0xD6E8FEB86659FD93);
        hash ^= hash >> 32;
    }
    for (; at < bytes.size; at++)
        hash = (hash ^ bytes.data[at]) * UINT64_C(0x100000001B3);
    return (uint32_t)(hash ^ hash >> 32);
}

static void trajectories_grow(struct trajectories *table)
{
    uint32_t slots = table->slots * 2;
    struct trajectory **chains = xcalloc(slots, sizeof *chains);
    for (uint32_t slot = 0; slot < table->slots; slot++) {
        for (struct trajectory *next, *at = table->chains[slot]; at; at = next) {
            next = at->next;
            at->next = chains[at->hash & (slots - 1)];
            chains[at->hash & (slots - 1)] = at;
        }
    }
    free(table->chains);
    table->chains = chains;
    table->slots = slots;
}

struct trajectory *store_trajectory(struct store *store, trp_bytes bytes, uint32_t chunk_count)
{
    struct trajectories *table = &store->trajectories;
    assert(bytes.size <= UINT32_MAX);
    uint32_t hash = bytes_hash(bytes);
    struct trajectory *at = table->chains[hash & (table->slots - 1)];
    for (; at; at = at->next) {
        if (at->hash == hash && at->size == bytes.size && at->chunk_count == chunk_count &&
            (bytes.size == 0 || memcmp(at->bytes, bytes.data, bytes.size) == 0)) {
            at->refs++;
            return at;
        }
    }
    if (table->count == table->slots)
        trajectories_grow(table);
    at = xmalloc(sizeof *at + bytes.size);
    struct trajectory **chain = &table->chains[hash & (table->slots - 1)];
    *at = (struct trajectory){.refs = 1,
                              .hash = hash,
                              .size = (uint32_t)bytes.size,
                              .chunk_count = chunk_count,
                              .next = *chain};
    if (bytes.size)
        memcpy(at->bytes, bytes.data, bytes.size);
    *chain = at;
    table->count++;
    return at;
}

static void trajectory_unref(struct trajectories *table, struct trajectory *trajectory)
{
    assert(trajectory->refs > 0);
    if (--trajectory->refs > 0)
        return;
    struct trajectory **link = &table->chains[trajectory->hash & (table->slots - 1)];
    while (*link != trajectory)
        link = &(*link)->next;
    *link = trajectory->next;
    table->count--;
    free(trajectory);
}

/* ---- items ---------------------------------------------------------------------------------- */

static size_t item_memory(const struct trajectory *trajectory)
{
    return sizeof(struct item) + sizeof(struct chunk *) * (size_t)trajectory->chunk_count;
}

struct item *store_item_create(struct store *store, struct trajectory *trajectory)
{
    size_t bytes = item_memory(trajectory);
    struct item *item = memset(slab_take(&store->chunks.slabs, bytes), 0, bytes);
    item->trajectory = trajectory;
    item->slot = SLOT_NONE;
    return item;
}

void store_item_destroy(struct store *store, struct item *item)
{
    if (!item)
        return;
    for (uint32_t index = 0; index < item->trajectory->chunk_count; index++)
        if (item->chunks[index])
            store_chunk_unref(store, item->chunks[index]);
    size_t bytes = item_memory(item->trajectory);
    trajectory_unref(&store->trajectories, item->trajectory);
    slab_give(&store->chunks.slabs, item, bytes);
}
