#include "gather.h"

void gather_steps_on(const trp_update *update, uint32_t steps, int32_t *order, int32_t *room,
                     const struct gather_column *columns, size_t count)
{
    uint32_t items = update->batches->rows, rows = items * steps;
    for (uint32_t row = 0; row < rows; row++)
        order[row] = (int32_t)(row % items * steps + row / items);
    trp_row_order sorted = {.order =
                                trp_queue_upload(update->queue, room, order, rows * sizeof *order),
                            .count = rows,
                            .rows = rows};
    for (size_t i = 0; i < count; i++)
        trp_queue_gather(update->queue, &sorted,
                         trp_update_device_column(update, 0, columns[i].name), columns[i].to,
                         columns[i].bytes);
}
