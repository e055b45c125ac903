/* A ring under one mutex with two conditions. Hand-over costs a thread wake-up (about 4 us), which
 * no lock-free ring would save, so the simple structure is the right one. */
#include "core/queue.h"

#include <assert.h>
#include <stdlib.h>

#include "core/alloc.h"
#include "core/thread.h"

struct queue {
    struct mutex mutex;
    struct cond not_empty, not_full;
    size_t capacity, first, size;
    bool closed;
    void *items[];
};

struct queue *queue_create(size_t capacity)
{
    assert(capacity > 0);
    struct queue *queue = xcalloc(1, sizeof *queue + capacity * sizeof(void *));
    mutex_init(&queue->mutex);
    cond_init(&queue->not_empty);
    cond_init(&queue->not_full);
    queue->capacity = capacity;
    return queue;
}

void queue_destroy(struct queue *queue)
{
    if (!queue)
        return;
    cond_cleanup(&queue->not_full);
    cond_cleanup(&queue->not_empty);
    mutex_cleanup(&queue->mutex);
    free(queue);
}

static void push_locked(struct queue *queue, void *item)
{
    queue->items[(queue->first + queue->size) % queue->capacity] = item;
    queue->size++;
    cond_signal(&queue->not_empty);
}

static trp_status closed_error(void)
{
    return trp_fail(TRP_CANCELLED, "queue is closed");
}

trp_status queue_push(struct queue *queue, void *item, struct deadline deadline)
{
    mutex_lock(&queue->mutex);
    bool in_time = true;
    while (queue->size == queue->capacity && !queue->closed && in_time)
        in_time = cond_wait(&queue->not_full, &queue->mutex, deadline);
    trp_status status = TRP_OK;
    if (queue->closed)
        status = closed_error();
    else if (queue->size == queue->capacity)
        status = trp_fail(TRP_DEADLINE_EXCEEDED, "queue of %zu stayed full", queue->capacity);
    else
        push_locked(queue, item);
    mutex_unlock(&queue->mutex);
    return status;
}

trp_status queue_try_push(struct queue *queue, void *item)
{
    mutex_lock(&queue->mutex);
    trp_status status = TRP_OK;
    if (queue->closed)
        status = closed_error();
    else if (queue->size == queue->capacity)
        status = trp_fail(TRP_RESOURCE_EXHAUSTED, "queue of %zu is full", queue->capacity);
    else
        push_locked(queue, item);
    mutex_unlock(&queue->mutex);
    return status;
}

trp_status queue_pop(struct queue *queue, void **item, struct deadline deadline)
{
    mutex_lock(&queue->mutex);
    bool in_time = true;
    while (queue->size == 0 && !queue->closed && in_time)
        in_time = cond_wait(&queue->not_empty, &queue->mutex, deadline);
    trp_status status = TRP_OK;
    if (queue->size > 0) {
        *item = queue->items[queue->first];
        queue->first = (queue->first + 1) % queue->capacity;
        queue->size--;
        cond_signal(&queue->not_full);
    } else if (queue->closed) {
        status = closed_error();
    } else {
        status = trp_fail(TRP_DEADLINE_EXCEEDED, "queue stayed empty");
    }
    mutex_unlock(&queue->mutex);
    return status;
}

void queue_close(struct queue *queue)
{
    mutex_lock(&queue->mutex);
    queue->closed = true;
    cond_broadcast(&queue->not_empty);
    cond_broadcast(&queue->not_full);
    mutex_unlock(&queue->mutex);
}

size_t queue_size(struct queue *queue)
{
    mutex_lock(&queue->mutex);
    size_t size = queue->size;
    mutex_unlock(&queue->mutex);
    return size;
}
