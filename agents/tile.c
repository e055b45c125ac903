#include "tile.h"

#include <string.h>

struct tile_job {
    struct tile tile;
    const float *from;
    float *to;
};

static void tile_rows(void *arguments)
{
    const struct tile_job *job = arguments;
    size_t columns = job->tile.columns, times = job->tile.times;
    for (size_t i = 0; i < job->tile.rows * times; i++)
        memcpy(job->to + i * columns, job->from + i / times * columns, columns * sizeof(float));
}

void tile_on(trp_queue *queue, const struct tile *tile, const float *from, float *to)
{
    static const trp_kernel kernel = {"tile", tile_rows};
    struct tile_job job = {*tile, from, to};
    size_t bytes = tile->rows * tile->columns * sizeof(float);
    trp_operand operands[] = {{offsetof(struct tile_job, from), bytes, TRP_READ},
                              {offsetof(struct tile_job, to), bytes * tile->times, TRP_WRITE}};
    trp_queue_run(queue, &kernel, &job, sizeof job, operands, 2);
}
