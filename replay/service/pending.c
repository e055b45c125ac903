/* A doubly linked list in order of arrival, and buckets over it that double when there are
 * as many items: nearly all items wait alone, so nothing is made for a queue of a few, and an item
 * that was sent once has its owner in itself. */
#include "pending.h"

#include <assert.h>
#include <stdlib.h>

#include "core/alloc.h"
#include "core/hash.h"

enum { BUCKETS_MIN = 16 };

/* Clients choose both, but not what the key's hash is. */
static struct pending_insert **bucket_of(const struct pending_queue *queue, const struct item *item)
{
    return &queue->buckets[hash_place(hash_u64(item->key) + item->print, queue->bucket_count)];
}

static void bucket_put(const struct pending_queue *queue, struct pending_insert *pending)
{
    struct pending_insert **bucket = bucket_of(queue, pending->item);
    pending->chain = *bucket;
    *bucket = pending;
}

static void buckets_grow(struct pending_queue *queue)
{
    queue->bucket_count = queue->bucket_count ? 2 * queue->bucket_count : BUCKETS_MIN;
    free(queue->buckets);
    queue->buckets = xcalloc(queue->bucket_count, sizeof(struct pending_insert *));
    for (struct pending_insert *each = pending_first(queue); each; each = pending_next(each))
        bucket_put(queue, each);
}

struct pending_insert *pending_push(struct pending_queue *queue, struct item *item,
                                    struct pending_owner owner, int64_t since_ns)
{
    struct pending_insert *pending = xmalloc(sizeof *pending);
    *pending = (struct pending_insert){
        .item = item, .bytes = item_chunk_bytes(item), .since_ns = since_ns, .owner = owner};
    const struct trajectory *trajectory = item->trajectory;
    pending->memory = sizeof *pending + 2 * sizeof *queue->buckets + sizeof *item +
                      trajectory->chunk_count * sizeof *item->chunks + trajectory->size;
    if (queue->count++ == queue->bucket_count)
        buckets_grow(queue);
    bucket_put(queue, pending);
    list_push(&queue->list, &pending->link);
    return pending;
}

struct pending_insert *pending_find(const struct pending_queue *queue, const struct item *item)
{
    if (queue->count == 0)
        return NULL;
    struct pending_insert *each = *bucket_of(queue, item);
    while (each && (each->item->key != item->key || each->item->print != item->print))
        each = each->chain;
    return each;
}

void pending_join(struct pending_queue *queue, struct pending_insert *pending,
                  struct pending_owner owner)
{
    if (!pending->owner.stream) {
        pending->owner = owner;
        queue->orphan_count--;
        return;
    }
    struct pending_owner *more = xmalloc(sizeof *more);
    *more = owner;
    more->next = pending->owner.next;
    pending->owner.next = more;
}

uint32_t pending_leave(struct pending_queue *queue, struct pending_insert *pending,
                       const struct insert_stream *stream)
{
    uint32_t count = 0;
    for (struct pending_owner **link = &pending->owner.next; *link;) {
        struct pending_owner *owner = *link;
        if (owner->stream != stream) {
            link = &owner->next;
            continue;
        }
        *link = owner->next;
        free(owner);
        count++;
    }
    if (pending->owner.stream != stream)
        return count;
    struct pending_owner *heir = pending->owner.next;
    if (heir)
        pending->owner = *heir;
    else
        pending->owner.stream = NULL;
    queue->orphan_count += !heir;
    free(heir);
    return count + 1;
}

void pending_take(struct pending_queue *queue, struct pending_insert *pending)
{
    struct pending_insert **link = bucket_of(queue, pending->item);
    while (*link != pending)
        link = &(*link)->chain;
    *link = pending->chain;
    list_remove(&queue->list, &pending->link);
    queue->count--;
    queue->orphan_count -= !pending->owner.stream;
}

void pending_free(struct pending_insert *pending)
{
    for (struct pending_owner *next, *owner = pending->owner.next; owner; owner = next) {
        next = owner->next;
        free(owner);
    }
    free(pending);
}

void pending_cleanup(struct pending_queue *queue)
{
    assert(queue->count == 0);
    free(queue->buckets);
    *queue = (struct pending_queue){0};
}
