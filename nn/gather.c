/* Rows of the device's memory in another order. */
#include <string.h>

#include <troupe/device.h>

#include "nn/cuda/bodies/gather.h"

static void gather_rows(void *arguments)
{
    const struct gather_arguments *job = arguments;
    for (uint32_t i = 0; i < job->count; i++)
        memcpy(job->to + i * job->bytes, job->from + (size_t)job->order[i] * job->bytes,
               job->bytes);
}

void trp_queue_gather(trp_queue *queue, const trp_row_order *order, const void *from, void *to,
                      size_t bytes)
{
    static const trp_kernel kernel = {.name = "gather", .run = gather_rows};
    struct gather_arguments job = {order->order, from, to, bytes, order->count};
    trp_operand operands[] = {
        {offsetof(struct gather_arguments, order), order->count * sizeof *order->order, TRP_READ},
        {offsetof(struct gather_arguments, from), order->rows * bytes, TRP_READ},
        {offsetof(struct gather_arguments, to), order->count * bytes, TRP_WRITE}};
    if (from)
        trp_queue_run(queue, &kernel, &job, sizeof job, operands, 3);
}
