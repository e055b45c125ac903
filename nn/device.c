/* Devices and queues: checks, and whose they are. */
#include "device.h"

#include <string.h>

#include "host_device.h"

trp_status trp_device_find(trp_device **out, const char *name)
{
    *out = name ? host_device_find(name) : host_device_find("cpu");
    if (*out)
        return TRP_OK;
    return trp_fail(TRP_INVALID_ARGUMENT, "there is no device '%s': it is one of %s", name,
                    host_device_names);
}

const char *trp_device_name(const trp_device *device)
{
    return device->name;
}

bool trp_device_is_host(const trp_device *device)
{
    return device->impl->is_host;
}

trp_status trp_device_alloc(trp_device *device, size_t bytes, void **memory)
{
    *memory = NULL;
    return device->impl->alloc(device, bytes > 0 ? bytes : 1, memory);
}

void trp_device_free(trp_device *device, void *memory)
{
    if (memory)
        device->impl->free(device, memory);
}

trp_status trp_queue_create(trp_queue **out, trp_device *device)
{
    *out = NULL;
    return device->impl->queue_create(device, out);
}

void trp_queue_destroy(trp_queue *queue)
{
    if (queue)
        queue->impl->destroy(queue);
}

trp_device *trp_queue_device(const trp_queue *queue)
{
    return queue->device;
}

void trp_queue_copy(trp_queue *queue, void *to, const void *from, size_t bytes)
{
    queue->impl->copy(queue, to, from, bytes);
}

void trp_queue_zero(trp_queue *queue, void *to, size_t bytes)
{
    queue->impl->zero(queue, to, bytes);
}

const void *trp_queue_upload(trp_queue *queue, void *room, const void *from, size_t bytes)
{
    if (trp_device_is_host(queue->device))
        return from;
    trp_queue_copy(queue, room, from, bytes);
    return room;
}

void trp_queue_run(trp_queue *queue, const trp_kernel *kernel, const void *arguments, size_t bytes,
                   const trp_operand *operands, size_t operand_count)
{
    queue->impl->run(queue, kernel, arguments, bytes, operands, operand_count);
}

void trp_queue_wait(trp_queue *queue, trp_queue *other)
{
    queue->impl->wait(queue, other);
}

uint64_t trp_queue_mark(trp_queue *queue)
{
    return queue->impl->mark(queue);
}

trp_status trp_queue_sync(trp_queue *queue, uint64_t mark)
{
    return queue->impl->sync(queue, mark);
}
