/* A late device for several threads, each with queues of its own, as a GPU is: one call at a time.
 */
#ifndef TRP_TESTS_SHARED_DEVICE_H
#define TRP_TESTS_SHARED_DEVICE_H

#include "core/thread.h"
#include "tests/nn/late_device.h"

struct shared_queue {
    trp_queue base;
    trp_queue *late;
};

struct shared_device {
    trp_device base;
    struct late_device *late;
    struct mutex mutex;
};

/* The late queue, with the device locked. */
static inline trp_queue *shared_lock(const trp_queue *queue)
{
    mutex_lock(&((struct shared_device *)queue->device)->mutex);
    return ((const struct shared_queue *)queue)->late;
}

static inline void shared_unlock(const trp_queue *queue)
{
    mutex_unlock(&((struct shared_device *)queue->device)->mutex);
}

static inline void shared_queue_destroy(trp_queue *queue)
{
    trp_queue_destroy(shared_lock(queue));
    shared_unlock(queue);
    free(queue);
}

static inline void shared_copy(trp_queue *queue, void *to, const void *from, size_t bytes)
{
    trp_queue_copy(shared_lock(queue), to, from, bytes);
    shared_unlock(queue);
}

static inline void shared_zero(trp_queue *queue, void *to, size_t bytes)
{
    trp_queue_zero(shared_lock(queue), to, bytes);
    shared_unlock(queue);
}

static inline void shared_run(trp_queue *queue, const trp_kernel *kernel, const void *arguments,
                              size_t bytes, const trp_operand *operands, size_t operand_count)
{
    trp_queue_run(shared_lock(queue), kernel, arguments, bytes, operands, operand_count);
    shared_unlock(queue);
}

static inline void shared_wait(trp_queue *queue, trp_queue *other)
{
    trp_queue_wait(shared_lock(queue), ((struct shared_queue *)other)->late);
    shared_unlock(queue);
}

static inline uint64_t shared_mark(trp_queue *queue)
{
    uint64_t mark = trp_queue_mark(shared_lock(queue));
    shared_unlock(queue);
    return mark;
}

static inline bool shared_done(trp_queue *queue, uint64_t mark)
{
    bool done = trp_queue_done(shared_lock(queue), mark);
    shared_unlock(queue);
    return done;
}

static inline trp_status shared_sync(trp_queue *queue, uint64_t mark)
{
    trp_status status = trp_queue_sync(shared_lock(queue), mark);
    shared_unlock(queue);
    return status;
}

static const struct queue_impl shared_queue_impl = {.destroy = shared_queue_destroy,
                                                    .copy = shared_copy,
                                                    .zero = shared_zero,
                                                    .run = shared_run,
                                                    .wait = shared_wait,
                                                    .mark = shared_mark,
                                                    .done = shared_done,
                                                    .sync = shared_sync};

static inline trp_status shared_queue_create(trp_device *base, trp_queue **out)
{
    struct shared_device *device = (struct shared_device *)base;
    struct shared_queue *queue = xcalloc(1, sizeof *queue);
    queue->base = (trp_queue){&shared_queue_impl, base};
    mutex_lock(&device->mutex);
    trp_status status = trp_queue_create(&queue->late, &device->late->base);
    mutex_unlock(&device->mutex);
    *out = &queue->base;
    return status;
}

static inline trp_status shared_alloc(trp_device *base, size_t bytes, void **memory)
{
    struct shared_device *device = (struct shared_device *)base;
    mutex_lock(&device->mutex);
    trp_status status = trp_device_alloc(&device->late->base, bytes, memory);
    mutex_unlock(&device->mutex);
    return status;
}

static inline void shared_free(trp_device *base, void *memory)
{
    struct shared_device *device = (struct shared_device *)base;
    mutex_lock(&device->mutex);
    trp_device_free(&device->late->base, memory);
    mutex_unlock(&device->mutex);
}

static const struct device_impl shared_impl = {.alloc = shared_alloc,
                                               .free = shared_free,
                                               .host_memory = late_host_memory,
                                               .queue_create = shared_queue_create};

static inline void shared_device_init(struct shared_device *device, uint64_t seed)
{
    *device = (struct shared_device){.base = {&shared_impl, "late"}, .late = late_create(seed)};
    mutex_init(&device->mutex);
}

static inline void shared_device_cleanup(struct shared_device *device)
{
    mutex_cleanup(&device->mutex);
    late_destroy(device->late);
}

#endif
