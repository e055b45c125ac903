#include "gather.h"

#include <string.h>

#include "bodies/moves.h"

static void gather_rows(void *arguments)
{
    const struct gather_arguments *job = arguments;
    for (uint32_t i = 0; i < job->count; i++)
        memcpy(job->to + i * job->bytes, job->from + (size_t)job->order[i] * job->bytes,
               job->bytes);
}

void gather_on(trp_queue *queue, const struct gather_order *order, const void *from, void *to,
               size_t bytes)
{
    static const trp_kernel kernel = {"gather", gather_rows};
    if (!from)
        return;
    struct gather_arguments job = {order->order, from, to, bytes, order->count};
    trp_operand operands[] = {
        {offsetof(struct gather_arguments, order), order->count * sizeof *order->order, TRP_READ},
        {offsetof(struct gather_arguments, from), order->rows * bytes, TRP_READ},
        {offsetof(struct gather_arguments, to), order->count * bytes, TRP_WRITE}};
    trp_queue_run(queue, &kernel, &job, sizeof job, operands, 3);
}

void gather_steps_on(const trp_update *update, uint32_t steps, int32_t *order, int32_t *room,
                     const struct gather_column *columns, size_t count)
{
    uint32_t items = update->batches->rows, rows = items * steps;
    for (uint32_t row = 0; row < rows; row++)
        order[row] = (int32_t)(row % items * steps + row / items);
    struct gather_order sorted = {
        .order = trp_queue_upload(update->queue, room, order, rows * sizeof *order),
        .count = rows,
        .rows = rows};
    for (size_t i = 0; i < count; i++)
        gather_on(update->queue, &sorted, trp_update_device_column(update, 0, columns[i].name),
                  columns[i].to, columns[i].bytes);
}
