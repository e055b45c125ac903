/* Items that wait for their table's limiter, or for the index of keys, oldest first. Each is found
 * by its key and bytes: one that comes again, because its writer lost the connection and has no
 * confirmation of it, is not another one but has one more stream that waits for it. An orphan
 * is one whose streams have all ended; it is inserted all the same. A zeroed struct is an empty
 * queue. Owner: the lane (the server's lock). */
#ifndef TRP_REPLAY_SERVICE_PENDING_H
#define TRP_REPLAY_SERVICE_PENDING_H

#include <stdint.h>

#include "core/list.h"
#include "core/map.h"
#include "replay/model/item.h"

struct insert_stream;

/* A stream whose confirmation waits for the item. */
struct pending_owner {
    struct insert_stream *stream;
    uint64_t number; /* of its confirmation in the stream */
    struct pending_owner *next;
};

struct pending_insert {
    struct list_link link; /* in the queue */
    struct item *item;
    uint64_t mark;                /* item_mark() */
    uint64_t bytes;               /* of its chunks */
    uint64_t memory;              /* without them and without the owners */
    int64_t since_ns;             /* CLOCK_MONOTONIC */
    struct pending_owner *owners; /* the newest first; NULL: it is an orphan */
    struct pending_owner alone;   /* the owner of most */
};

struct pending_queue {
    struct list list;
    struct map by_item; /* item_mark() to the newest item that has it */
    uint32_t count, orphan_count;
};

/* NULL: none. */
static inline struct pending_insert *pending_first(const struct pending_queue *queue)
{
    return LIST_FIRST(&queue->list, struct pending_insert, link);
}

/* A new one behind the others, an orphan as yet; takes the item. */
struct pending_insert *pending_push(struct pending_queue *queue, struct item *item,
                                    int64_t since_ns);

/* One that was sent just as `item` was; NULL: none. */
struct pending_insert *pending_find(const struct pending_queue *queue, const struct item *item);

/* One more owner. */
void pending_join(struct pending_queue *queue, struct pending_insert *pending,
                  struct insert_stream *stream, uint64_t number);

/* The stream owns it no more; how often it did. */
uint32_t pending_leave(struct pending_queue *queue, struct pending_insert *pending,
                       const struct insert_stream *stream);

/* Out of the queue and freed, with its owners; the item may be somebody else's by now. */
void pending_end(struct pending_queue *queue, struct pending_insert *pending);
void pending_cleanup(struct pending_queue *queue); /* empty */

#endif
