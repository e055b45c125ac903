/* Items that wait for their table's limiter, or for the index of keys, oldest first. Each is found
 * by what it is: one that comes again, because its writer lost the connection and sends what it
 * has no confirmation of, is not another one but has one more stream that waits for it. An orphan
 * is one whose streams have all ended; it is inserted all the same. A zeroed struct is an empty
 * queue. Owner: the lane (the server's lock). */
#ifndef TRP_REPLAY_SERVICE_PENDING_H
#define TRP_REPLAY_SERVICE_PENDING_H

#include <stdbool.h>
#include <stdint.h>

#include "core/list.h"
#include "replay/model/item.h"

struct insert_stream;

/* A stream that is told when the item is in. */
struct pending_owner {
    struct insert_stream *stream; /* NULL: the item is an orphan, and this its only owner */
    uint64_t number;              /* of its confirmation in the stream */
    struct pending_owner *next;
};

struct pending_insert {
    struct list_link link;        /* in the queue */
    struct pending_insert *chain; /* in its bucket */
    struct item *item;
    uint64_t bytes;   /* of its chunks */
    uint64_t memory;  /* without them and without the owners */
    int64_t since_ns; /* CLOCK_MONOTONIC */
    struct pending_owner owner;
};

struct pending_queue {
    struct list list;
    struct pending_insert **buckets; /* bucket_count of them, a power of two or 0 */
    uint32_t bucket_count, count, orphan_count;
};

/* NULL: none. */
static inline struct pending_insert *pending_first(const struct pending_queue *queue)
{
    return LIST_FIRST(&queue->list, struct pending_insert, link);
}

static inline struct pending_insert *pending_next(const struct pending_insert *pending)
{
    return LIST_NEXT(pending, struct pending_insert, link);
}

/* A new one behind the others; takes the item. */
struct pending_insert *pending_push(struct pending_queue *queue, struct item *item,
                                    struct pending_owner owner, int64_t since_ns);

/* One that was sent just as `item` was; NULL: none. */
struct pending_insert *pending_find(const struct pending_queue *queue, const struct item *item);

/* One more owner; the first one of an orphan. */
void pending_join(struct pending_queue *queue, struct pending_insert *pending,
                  struct pending_owner owner);

/* The stream owns it no more; how often it did. */
uint32_t pending_leave(struct pending_queue *queue, struct pending_insert *pending,
                       const struct insert_stream *stream);

/* Out of the queue; item and owners are as they were. */
void pending_take(struct pending_queue *queue, struct pending_insert *pending);

/* Taken, the item somebody else's. */
void pending_free(struct pending_insert *pending);
void pending_cleanup(struct pending_queue *queue); /* empty */

#endif
