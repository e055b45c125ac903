/* Devices and queues: names, checks, and whose they are. */
#include "device.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/log.h>

#include "core/status.h"
#include "core/thread.h"
#include "nn/cuda/limits.h"
#include "nn/cuda/load.h"
#include "host_device.h"

static struct once auto_once = ONCE_INIT;
static trp_device *auto_device;

/* One that is there and cannot be used is what nobody expects. */
static void auto_find(void)
{
    uint32_t count;
    if (cuda_find(&auto_device, 0) == TRP_OK) {
        trp_log(TRP_INFO, "device auto is %s", auto_device->name);
        return;
    }
    char *why = error_keep();
    bool is_there = cuda_count(&count) == TRP_OK && count > 0;
    auto_device = host_device_find("cpu");
    trp_log(is_there ? TRP_WARN : TRP_INFO, "device auto is the CPU: %s", why);
    free(why);
}

trp_status trp_device_check(const char *name)
{
    uint32_t number;
    if (!name || host_device_find(name) || strcmp(name, "auto") == 0 ||
        cuda_name_parse(name, &number))
        return TRP_OK;
    return trp_fail(TRP_INVALID_ARGUMENT,
                    "there is no device '%s': it is one of %s, cuda:0 to cuda:%d, auto", name,
                    host_device_names, CUDA_DEVICES_MAX - 1);
}

trp_status trp_device_find(trp_device **out, const char *name)
{
    uint32_t number;
    *out = NULL;
    TRP_TRY(trp_device_check(name));
    if (name && cuda_name_parse(name, &number))
        return cuda_find(out, number);
    if (name && strcmp(name, "auto") == 0)
        once_run(&auto_once, auto_find);
    *out = name && strcmp(name, "auto") == 0 ? auto_device : host_device_find(name ? name : "cpu");
    return TRP_OK;
}

trp_status trp_device_gpus(uint32_t *count)
{
    return cuda_count(count);
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

const trp_allocator *trp_device_host_memory(trp_device *device)
{
    return device->impl->host_memory(device);
}

trp_device_bytes trp_device_memory(trp_device *device)
{
    return device->impl->memory ? device->impl->memory(device) : (trp_device_bytes){0};
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

void *trp_queue_native(trp_queue *queue)
{
    return queue->impl->native ? queue->impl->native(queue) : NULL;
}

void trp_queue_call(trp_queue *queue, const trp_library_call *call, void *owner,
                    const void *arguments, size_t bytes, const trp_operand *operands,
                    size_t operand_count)
{
    assert(queue->impl->call);
    queue->impl->call(queue, call, owner, arguments, bytes, operands, operand_count);
}

void trp_queue_forget(trp_queue *queue, const void *owner)
{
    trp_status passed = queue->impl->sync(queue, queue->impl->mark(queue));
    (void)passed; /* a queue that failed does nothing any more */
    if (queue->impl->forget)
        queue->impl->forget(queue, owner);
}

uint64_t trp_queue_mark(trp_queue *queue)
{
    return queue->impl->mark(queue);
}

bool trp_queue_done(trp_queue *queue, uint64_t mark)
{
    return queue->impl->done(queue, mark);
}

trp_status trp_queue_sync(trp_queue *queue, uint64_t mark)
{
    return queue->impl->sync(queue, mark);
}
