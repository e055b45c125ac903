/* What a device is made of: memory, queues and plans. Everything above calls include/troupe's
 * device.h and nn.h, which check what callers give and hand it on to these. */
#ifndef TRP_NN_DEVICE_H
#define TRP_NN_DEVICE_H

#include <troupe/device.h>

#include "plan.h"

struct queue_impl {
    void (*destroy)(trp_queue *queue);
    void (*copy)(trp_queue *queue, void *to, const void *from, size_t bytes);
    void (*zero)(trp_queue *queue, void *to, size_t bytes);
    void (*run)(trp_queue *queue, const trp_kernel *kernel, const void *arguments, size_t bytes,
                const trp_operand *operands, size_t operand_count);
    void (*wait)(trp_queue *queue, trp_queue *other);
    void *(*native)(trp_queue *queue); /* NULL: has none */
    void (*call)(trp_queue *queue, const trp_library_call *call, void *owner, const void *arguments,
                 size_t bytes, const trp_operand *operands, size_t operand_count); /* likewise */
    void (*forget)(trp_queue *queue, const void *owner); /* NULL: keeps nothing that is done */
    uint64_t (*mark)(trp_queue *queue);
    bool (*done)(trp_queue *queue, uint64_t mark);
    trp_status (*sync)(trp_queue *queue, uint64_t mark);
};

struct device_impl {
    bool is_host;
    trp_status (*alloc)(trp_device *device, size_t bytes, void **memory); /* bytes > 0 */
    void (*free)(trp_device *device, void *memory);                       /* not NULL */
    const trp_allocator *(*host_memory)(trp_device *device);
    trp_device_bytes (*memory)(trp_device *device); /* NULL: nobody asks */
    trp_status (*queue_create)(trp_device *device, trp_queue **out);
    /* A plan for a batch of at least one row, by at least one thread. */
    trp_status (*plan_create)(trp_device *device, trp_net **out, const trp_net_options *options);
};

/* The first members of every device and queue. */
struct trp_device {
    const struct device_impl *impl;
    const char *name;
};

struct trp_queue {
    const struct queue_impl *impl;
    trp_device *device;
};

#endif
