#include "device.h"

static trp_status cuda_alloc(trp_device *device, size_t bytes, void **memory)
{
    struct machine *machine = machine_of(device);
    return machine->impl->alloc(machine, bytes, memory);
}

static void cuda_free(trp_device *device, void *memory)
{
    struct machine *machine = machine_of(device);
    machine->impl->free(machine, memory);
}

static trp_device_bytes cuda_memory(trp_device *device)
{
    struct machine *machine = machine_of(device);
    return machine->impl->memory(machine);
}

static const trp_allocator *cuda_host_memory(trp_device *device)
{
    return &pinned_of(device)->allocator;
}

static const struct device_impl cuda_impl = {
    .alloc = cuda_alloc,
    .free = cuda_free,
    .host_memory = cuda_host_memory,
    .memory = cuda_memory,
    .queue_create = cuda_queue_create,
    .plan_create = cuda_plan_create,
};

void cuda_device_init(struct cuda_device *device, struct machine *machine)
{
    *device = (struct cuda_device){.base = {&cuda_impl, machine->name}, .machine = machine};
    pinned_init(&device->pinned, machine);
}
