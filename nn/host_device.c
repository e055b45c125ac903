/* The host's own processor, twice: "cpu" is its fastest kernels, "ref" naive loops. What is put on
 * a queue is done at once, so a queue has nothing to remember. */
#include "host_device.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/batch.h"
#include "core/team.h"
#include "flush.h"
#include "limits.h"
#include "net.h"

/* NULL: no memory. */
static void *aligned_zeros(size_t bytes)
{
    size_t rounded = bytes <= SIZE_MAX / 2 ? round_up(bytes, ALIGNMENT) : 0;
    void *memory = rounded > 0 ? aligned_alloc(ALIGNMENT, rounded) : NULL;
    return memory ? memset(memory, 0, rounded) : NULL;
}

float *trp_floats_create(size_t count)
{
    size_t bytes;
    bool fits = size_mul(count > 0 ? count : 1, sizeof(float), &bytes);
    float *floats = fits ? aligned_zeros(bytes) : NULL;
    return floats ? floats : xcalloc(SIZE_MAX, 1); /* reports the size and aborts */
}

void trp_floats_destroy(float *floats)
{
    free(floats);
}

static trp_status host_alloc(trp_device *device, size_t bytes, void **memory)
{
    *memory = aligned_zeros(bytes);
    return *memory ? TRP_OK
                   : trp_fail(TRP_RESOURCE_EXHAUSTED, "device %s has no %zu bytes of memory left",
                              device->name, bytes);
}

static void host_free(trp_device *device, void *memory)
{
    (void)device;
    free(memory);
}

static const trp_allocator *host_memory(trp_device *device)
{
    (void)device;
    return &libc_allocator;
}

static void host_queue_destroy(trp_queue *queue)
{
    (void)queue; /* its device's */
}

static void host_queue_copy(trp_queue *queue, void *to, const void *from, size_t bytes)
{
    (void)queue;
    if (to != from)
        memcpy(to, from, bytes);
}

static void host_queue_zero(trp_queue *queue, void *to, size_t bytes)
{
    (void)queue;
    memset(to, 0, bytes);
}

struct kernel_call {
    const trp_kernel *kernel;
    void *arguments;
    uint32_t shares;
};

static void run_share(void *arg, uint32_t share)
{
    const struct kernel_call *call = arg;
    uint32_t before = flush_begin();
    call->kernel->run_share(call->arguments, share, call->shares);
    flush_end(before);
}

/* Joined. NULL: it runs on the calling thread alone. */
static struct team *team_for(const trp_kernel *kernel, const trp_operand *operands,
                             size_t operand_count)
{
    size_t bytes = 0;
    for (size_t i = 0; i < operand_count; i++)
        bytes += operands[i].bytes;
    return kernel->run_share && bytes >= SHARED_BYTES_MIN ? team_join_here() : NULL;
}

static void host_queue_run(trp_queue *queue, const trp_kernel *kernel, const void *arguments,
                           size_t bytes, const trp_operand *operands, size_t operand_count)
{
    (void)queue, (void)bytes;
    struct kernel_call call = {kernel, (void *)(uintptr_t)arguments, 1};
    struct team *team = team_for(kernel, operands, operand_count);
    if (team) {
        call.shares = team_size(team);
        team_run(team, run_share, &call);
        team_leave(team);
        return;
    }
    uint32_t before = flush_begin();
    kernel->run(call.arguments); /* done before the caller may change them */
    flush_end(before);
}

static void host_queue_wait(trp_queue *queue, trp_queue *other)
{
    (void)queue, (void)other;
}

static uint64_t host_queue_mark(trp_queue *queue)
{
    (void)queue;
    return 0;
}

static bool host_queue_done(trp_queue *queue, uint64_t mark)
{
    (void)queue, (void)mark;
    return true;
}

static trp_status host_queue_sync(trp_queue *queue, uint64_t mark)
{
    (void)queue, (void)mark;
    return TRP_OK;
}

static const struct queue_impl queue_impl = {
    .destroy = host_queue_destroy,
    .copy = host_queue_copy,
    .zero = host_queue_zero,
    .run = host_queue_run,
    .wait = host_queue_wait,
    .mark = host_queue_mark,
    .done = host_queue_done,
    .sync = host_queue_sync,
};

/* A device with the one queue that it needs. */
struct host_device {
    trp_device device;
    trp_queue queue;
    const struct backend *(*backend)(void);
    bool chooses; /* as host_net_create() */
};

static trp_status host_queue_create(trp_device *device, trp_queue **out)
{
    *out = &((struct host_device *)device)->queue;
    return TRP_OK;
}

static trp_status host_plan_create(trp_device *device, trp_net **out,
                                   const trp_net_options *options)
{
    const struct host_device *host = (const struct host_device *)device;
    return host_net_create(out, options, host->backend(), host->chooses);
}

static const struct device_impl host_impl = {
    .is_host = true,
    .alloc = host_alloc,
    .free = host_free,
    .host_memory = host_memory,
    .queue_create = host_queue_create,
    .plan_create = host_plan_create,
};

static const struct backend *naive_backend(void)
{
    return &backend_ref_f32;
}

static struct host_device hosts[] = {
    {{&host_impl, "cpu"}, {&queue_impl, &hosts[0].device}, backend_simd, .chooses = true},
    {{&host_impl, "ref"}, {&queue_impl, &hosts[1].device}, naive_backend, .chooses = false},
};

enum { HOSTS = sizeof hosts / sizeof *hosts };

const char host_device_names[] = "cpu, ref";

trp_device *host_device_find(const char *name)
{
    for (size_t i = 0; i < HOSTS; i++)
        if (strcmp(hosts[i].device.name, name) == 0)
            return &hosts[i].device;
    return NULL;
}
