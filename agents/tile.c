#include "tile.h"

#include <string.h>

#include "bodies/moves.h"

static void tile_rows(void *arguments)
{
    const struct tile_arguments *job = arguments;
    size_t columns = job->columns, times = job->times;
    for (size_t i = 0; i < job->rows * times; i++)
        memcpy(job->to + i * columns, job->from + i / times * columns, columns * sizeof(float));
}

void tile_on(trp_queue *queue, const struct tile *tile, const float *from, float *to)
{
    static const trp_kernel kernel = {.name = "tile", .run = tile_rows};
    struct tile_arguments job = {from, to, tile->columns, tile->rows, tile->times};
    size_t bytes = tile->rows * tile->columns * sizeof(float);
    trp_operand operands[] = {
        {offsetof(struct tile_arguments, from), bytes, TRP_READ},
        {offsetof(struct tile_arguments, to), bytes * tile->times, TRP_WRITE}};
    trp_queue_run(queue, &kernel, &job, sizeof job, operands, 2);
}
