/* A list in order of arrival, and a map over it. Nearly all items wait alone, so an item that was
 * sent once has its owner in itself. */
#include "pending.h"

#include <assert.h>
#include <stdlib.h>

#include "core/alloc.h"
#include "core/hash.h"

/* Clients choose both, but not the key's hash. Where two items have one mark after all, the
 * older is not found any more, and is inserted twice if it comes again. */
static uint64_t item_mark(const struct item *item)
{
    return hash_u64(item->key) + item->fingerprint;
}

static struct pending_insert *newest_with_mark(const struct pending_queue *queue, uint64_t mark)
{
    return (struct pending_insert *)(uintptr_t)map_get(&queue->by_item, mark);
}

struct pending_insert *pending_push(struct pending_queue *queue, struct item *item,
                                    int64_t since_ns)
{
    const struct trajectory *trajectory = item->trajectory;
    struct pending_insert *pending = xmalloc(sizeof *pending);
    *pending = (struct pending_insert){
        .item = item,
        .mark = item_mark(item),
        .bytes = item_chunk_bytes(item),
        .memory = sizeof *pending + 2 * sizeof(struct map_entry) + sizeof *item +
                  trajectory->chunk_count * sizeof *item->chunks + trajectory->size,
        .since_ns = since_ns};
    *map_at(&queue->by_item, pending->mark) = (uintptr_t)pending;
    list_push(&queue->list, &pending->link);
    queue->count++;
    queue->orphan_count++;
    return pending;
}

struct pending_insert *pending_find(const struct pending_queue *queue, const struct item *item)
{
    struct pending_insert *found = newest_with_mark(queue, item_mark(item));
    bool same =
        found && found->item->key == item->key && found->item->fingerprint == item->fingerprint;
    return same ? found : NULL;
}

void pending_join(struct pending_queue *queue, struct pending_insert *pending,
                  struct insert_stream *stream, uint64_t number)
{
    struct pending_owner *owner = pending->owners ? xmalloc(sizeof *owner) : &pending->alone;
    queue->orphan_count -= !pending->owners;
    *owner = (struct pending_owner){stream, number, pending->owners};
    pending->owners = owner;
}

static void owner_free(struct pending_insert *pending, struct pending_owner *owner)
{
    if (owner != &pending->alone)
        free(owner);
}

uint32_t pending_leave(struct pending_queue *queue, struct pending_insert *pending,
                       const struct insert_stream *stream)
{
    uint32_t count = 0;
    for (struct pending_owner **link = &pending->owners; *link;) {
        struct pending_owner *owner = *link;
        if (owner->stream != stream) {
            link = &owner->next;
            continue;
        }
        *link = owner->next;
        owner_free(pending, owner);
        count++;
    }
    queue->orphan_count += count > 0 && !pending->owners;
    return count;
}

void pending_end(struct pending_queue *queue, struct pending_insert *pending)
{
    if (newest_with_mark(queue, pending->mark) == pending)
        map_remove(&queue->by_item, pending->mark);
    list_remove(&queue->list, &pending->link);
    queue->count--;
    queue->orphan_count -= !pending->owners;
    for (struct pending_owner *next, *owner = pending->owners; owner; owner = next) {
        next = owner->next;
        owner_free(pending, owner);
    }
    free(pending);
}

void pending_cleanup(struct pending_queue *queue)
{
    assert(queue->count == 0);
    map_cleanup(&queue->by_item);
}
