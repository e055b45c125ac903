/* A machine as a device (nn/device.h): queues that record lists, plans that put works on them. */
#ifndef TRP_NN_CUDA_DEVICE_H
#define TRP_NN_CUDA_DEVICE_H

#include "machine.h"
#include "pinned.h"
#include "nn/device.h"

struct cuda_device {
    trp_device base;
    struct machine *machine; /* borrowed */
    struct pinned pinned;
};

/* Lives as long as the process, as all devices do. */
void cuda_device_init(struct cuda_device *device, struct machine *machine);

static inline struct machine *machine_of(trp_device *device)
{
    return ((struct cuda_device *)device)->machine;
}

static inline struct pinned *pinned_of(trp_device *device)
{
    return &((struct cuda_device *)device)->pinned;
}

TRP_MUST_USE trp_status cuda_queue_create(trp_device *device, trp_queue **out);

/* Where what comes next on a queue is recorded. */
struct cuda_list *cuda_queue_list(trp_queue *queue);

TRP_MUST_USE trp_status cuda_plan_create(trp_device *device, trp_net **out,
                                         const trp_net_options *options);

#endif
