#include "weighing.h"

#include <math.h>

struct weigh {
    float *grads;
    const float *more;
    size_t count;
    float factor;
};

static void weigh(void *arguments)
{
    const struct weigh *job = arguments;
    float *grads = job->grads;
    for (size_t i = 0; i < job->count; i++)
        grads[i] *= job->factor;
    for (size_t i = 0; i < job->count && job->more; i++)
        grads[i] += job->more[i];
}

void weigh_on(trp_queue *queue, float *grads, size_t count, float factor, const float *more)
{
    static const trp_kernel kernel = {"mode.weigh", weigh};
    struct weigh job = {grads, more, count, factor};
    trp_operand operands[] = {
        {offsetof(struct weigh, grads), count * sizeof *grads, TRP_READ | TRP_WRITE},
        {offsetof(struct weigh, more), count * sizeof *more, TRP_READ}};
    trp_queue_run(queue, &kernel, &job, sizeof job, operands, 2);
}

struct keep {
    float *kept;
    const float *grads;
    size_t count;
    float factor;
};

static void keep_numbers(void *arguments)
{
    const struct keep *job = arguments;
    float *kept = job->kept;
    for (size_t i = 0; i < job->count; i++)
        kept[i] += job->factor * job->grads[i];
}

void keep_on(trp_queue *queue, float *kept, const float *grads, size_t count, float factor)
{
    static const trp_kernel kernel = {"mode.keep", keep_numbers};
    struct keep job = {kept, grads, count, factor};
    trp_operand operands[] = {
        {offsetof(struct keep, kept), count * sizeof *kept, TRP_READ | TRP_WRITE},
        {offsetof(struct keep, grads), count * sizeof *grads, TRP_READ}};
    trp_queue_run(queue, &kernel, &job, sizeof job, operands, 2);
}

struct head_job {
    float *head;
    const float *watched, *more;
    float rows;
};

static void write_gradient_head(void *arguments)
{
    const struct head_job *job = arguments;
    float rows = job->rows, watched = 0;
    if (job->watched && !isfinite(*job->watched))
        watched = *job->watched;
    if (job->more) {
        rows += job->more[HEAD_ROWS];
        watched += job->more[HEAD_WATCHED];
    }
    job->head[HEAD_ROWS] = rows;
    job->head[HEAD_WATCHED] = watched;
}

void head_on(trp_queue *queue, float *head, float rows, const float *watched, const float *more)
{
    static const trp_kernel kernel = {"mode.head", write_gradient_head};
    struct head_job job = {head, watched, more, rows};
    size_t bytes = (HEAD_WATCHED + 1) * sizeof *head;
    trp_operand operands[] = {{offsetof(struct head_job, head), bytes, TRP_WRITE},
                              {offsetof(struct head_job, watched), sizeof *watched, TRP_READ},
                              {offsetof(struct head_job, more), bytes, TRP_READ}};
    trp_queue_run(queue, &kernel, &job, sizeof job, operands, 3);
}
