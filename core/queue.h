/* The bounded queue that joins threads: any number of producers and consumers, items are
 * pointers, first in first out. */
#ifndef TRP_CORE_QUEUE_H
#define TRP_CORE_QUEUE_H

#include <stddef.h>

#include <troupe/status.h>
#include "core/clock.h"

struct queue;

struct queue *queue_create(size_t capacity);

/* Items left inside are the caller's to drain before; NULL is fine. */
void queue_destroy(struct queue *queue);

/* Waits for room until `deadline`. DEADLINE_EXCEEDED, or CANCELLED once the queue is closed; then
 * the item stays the caller's. */
TRP_MUST_USE trp_status queue_push(struct queue *queue, void *item, struct deadline deadline);

/* Never waits: RESOURCE_EXHAUSTED when full, CANCELLED once closed. */
TRP_MUST_USE trp_status queue_try_push(struct queue *queue, void *item);

/* Waits for an item until `deadline`. A closed queue still gives what is inside, then CANCELLED. */
TRP_MUST_USE trp_status queue_pop(struct queue *queue, void **item, struct deadline deadline);

/* No pushes from now on; wakes every waiter. Idempotent. */
void queue_close(struct queue *queue);

size_t queue_size(struct queue *queue);

#endif
