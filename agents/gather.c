#include "gather.h"

#include <string.h>

struct gather_job {
    struct gather_order rows;
    const uint8_t *from;
    uint8_t *to;
    size_t bytes;
};

static void gather_rows(void *arguments)
{
    const struct gather_job *job = arguments;
    for (uint32_t i = 0; i < job->rows.count; i++)
        memcpy(job->to + i * job->bytes, job->from + (size_t)job->rows.order[i] * job->bytes,
               job->bytes);
}

void gather_on(trp_queue *queue, const struct gather_order *order, const void *from, void *to,
               size_t bytes)
{
    static const trp_kernel kernel = {"gather", gather_rows};
    if (!from)
        return;
    struct gather_job job = {*order, from, to, bytes};
    trp_operand operands[] = {
        {offsetof(struct gather_job, rows.order), order->count * sizeof *order->order, TRP_READ},
        {offsetof(struct gather_job, from), order->rows * bytes, TRP_READ},
        {offsetof(struct gather_job, to), order->count * bytes, TRP_WRITE}};
    trp_queue_run(queue, &kernel, &job, sizeof job, operands, 3);
}
