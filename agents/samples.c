#include "samples.h"

static void sample_rows(void *arguments)
{
    const struct samples_job *job = arguments;
    size_t size = job->size;
    trp_rng rng;
    trp_rng_init(&rng, job->seed, 0);
    for (size_t row = 0; row < job->rows; row++) {
        trp_gaussian says = control_gaussian(job->kind, 1, job->size, job->mean + row * size,
                                             job->log_std + row * size);
        for (size_t i = 0; i < job->count; i++) {
            size_t at = row * job->stride + i;
            float *action = job->actions + at * size;
            trp_gaussian_sample(&says, &rng, action, action,
                                job->log_probs ? job->log_probs + at : NULL);
            for (size_t k = 0; k < size; k++)
                action[k] = action[k] < -1 ? -1 : action[k] > 1 ? 1 : action[k];
        }
    }
}

void samples_on(trp_queue *queue, const struct samples_job *job)
{
    static const trp_kernel kernel = {"samples.draw", sample_rows};
    struct samples_job all = *job;
    if (all.stride == 0)
        all.stride = all.count;
    size_t floats = job->rows * sizeof(float);
    size_t drawn = ((size_t)(job->rows - 1) * all.stride + all.count) * sizeof(float);
    trp_operand operands[] = {
        {offsetof(struct samples_job, mean), floats * job->size, TRP_READ},
        {offsetof(struct samples_job, log_std), floats * job->size, TRP_READ},
        {offsetof(struct samples_job, actions), drawn * job->size, TRP_READ | TRP_WRITE},
        {offsetof(struct samples_job, log_probs), drawn, TRP_READ | TRP_WRITE},
    };
    trp_queue_run(queue, &kernel, &all, sizeof all, operands, 4);
}
