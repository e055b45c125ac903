/* Items and trajectories in memory. Trajectories are interned: items of one shape share theirs. */
#include "internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"

/* ---- trajectories --------------------------------------------------------------------------- */

struct trajectory *store_trajectory(struct store *store, trp_bytes bytes, uint32_t chunk_count)
{
    assert(bytes.size <= UINT32_MAX);
    uint32_t hash = hash_seeded(bytes.data, bytes.size);
    struct trajectory *first = (struct trajectory *)(uintptr_t)map_get(&store->trajectories, hash);
    for (struct trajectory *at = first; at; at = at->next) {
        if (at->chunk_count == chunk_count &&
            bytes_equal((trp_bytes){at->bytes, at->size}, bytes)) {
            at->refs++;
            return at;
        }
    }
    struct trajectory *made = xmalloc(sizeof *made + bytes.size);
    *made = (struct trajectory){.refs = 1,
                                .hash = hash,
                                .size = (uint32_t)bytes.size,
                                .chunk_count = chunk_count,
                                .next = first};
    if (bytes.size)
        memcpy(made->bytes, bytes.data, bytes.size);
    *map_at(&store->trajectories, hash) = (uintptr_t)made;
    return made;
}

static void trajectory_unref(struct map *trajectories, struct trajectory *trajectory)
{
    assert(trajectory->refs > 0);
    if (--trajectory->refs > 0)
        return;
    uint64_t *first = map_at(trajectories, trajectory->hash);
    struct trajectory *before = (struct trajectory *)(uintptr_t)*first;
    while (before != trajectory && before->next != trajectory)
        before = before->next;
    if (before != trajectory)
        before->next = trajectory->next;
    else if (trajectory->next)
        *first = (uintptr_t)trajectory->next;
    else
        map_remove(trajectories, trajectory->hash);
    free(trajectory);
}

/* ---- items ---------------------------------------------------------------------------------- */

static size_t item_memory(const struct trajectory *trajectory)
{
    return sizeof(struct item) + sizeof(struct chunk *) * (size_t)trajectory->chunk_count;
}

struct item *store_item_create(struct store *store, struct trajectory *trajectory,
                               struct chunk *const *chunks)
{
    size_t bytes = item_memory(trajectory);
    struct item *item = memset(slab_take(&store->chunks.slabs, bytes), 0, bytes);
    item->trajectory = trajectory;
    item->slot = SLOT_NONE;
    for (uint32_t index = 0; chunks && index < trajectory->chunk_count; index++) {
        chunk_ref(chunks[index]);
        item->chunks[index] = chunks[index];
    }
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
