#include "samples.h"

void samples_on(trp_queue *queue, const struct samples_arguments *job)
{
    static const trp_kernel kernel = {.name = "samples.draw", .run = samples_run};
    struct samples_arguments all = *job;
    if (all.stride == 0)
        all.stride = all.count;
    size_t floats = job->rows * sizeof(float);
    size_t drawn = ((size_t)(job->rows - 1) * all.stride + all.count) * sizeof(float);
    trp_operand operands[] = {
        {offsetof(struct samples_arguments, mean), floats * job->size, TRP_READ},
        {offsetof(struct samples_arguments, log_std), floats * job->size, TRP_READ},
        {offsetof(struct samples_arguments, actions), drawn * job->size, TRP_READ | TRP_WRITE},
        {offsetof(struct samples_arguments, log_probs), drawn, TRP_READ | TRP_WRITE},
        {offsetof(struct samples_arguments, draw.seed), sizeof *job->draw.seed, TRP_READ},
    };
    trp_queue_run(queue, &kernel, &all, sizeof all, operands, 5);
}
