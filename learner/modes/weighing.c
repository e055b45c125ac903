#include "kernels.h"

void weigh_on(trp_queue *queue, float *grads, size_t count, float factor, const float *more)
{
    static const trp_kernel kernel = {.name = "mode.weigh", .run = mode_weigh_run};
    struct mode_weigh_arguments job = {grads, count, factor};
    trp_operand operand = {offsetof(struct mode_weigh_arguments, grads), count * sizeof *grads,
                           TRP_READ | TRP_WRITE};
    trp_queue_run(queue, &kernel, &job, sizeof job, &operand, 1);
    if (more)
        keep_on(queue, grads, more, count, 1);
}

void keep_on(trp_queue *queue, float *kept, const float *grads, size_t count, float factor)
{
    static const trp_kernel kernel = {.name = "mode.keep", .run = mode_keep_run};
    struct mode_keep_arguments job = {kept, grads, count, factor};
    trp_operand operands[] = {
        {offsetof(struct mode_keep_arguments, kept), count * sizeof *kept, TRP_READ | TRP_WRITE},
        {offsetof(struct mode_keep_arguments, grads), count * sizeof *grads, TRP_READ}};
    trp_queue_run(queue, &kernel, &job, sizeof job, operands, 2);
}

void head_on(trp_queue *queue, float *head, float rows, const float *watched, const float *more)
{
    static const trp_kernel kernel = {.name = "mode.head", .run = mode_head_run};
    struct mode_head_arguments job = {head, watched, more, rows};
    size_t bytes = (HEAD_WATCHED + 1) * sizeof *head;
    trp_operand operands[] = {
        {offsetof(struct mode_head_arguments, head), bytes, TRP_WRITE},
        {offsetof(struct mode_head_arguments, watched), sizeof *watched, TRP_READ},
        {offsetof(struct mode_head_arguments, more), bytes, TRP_READ}};
    trp_queue_run(queue, &kernel, &job, sizeof job, operands, 3);
}

void outer_on(trp_queue *queue, const struct mode_outer_arguments *job)
{
    static const trp_kernel kernel = {.name = "mode.outer", .run = mode_outer_run};
    size_t bytes = job->count * sizeof(float);
    trp_operand operands[] = {
        {offsetof(struct mode_outer_arguments, values), bytes, TRP_READ | TRP_WRITE},
        {offsetof(struct mode_outer_arguments, way), bytes, TRP_READ},
        {offsetof(struct mode_outer_arguments, last), bytes, TRP_READ | TRP_WRITE},
        {offsetof(struct mode_outer_arguments, average), bytes, TRP_READ | TRP_WRITE}};
    trp_queue_run(queue, &kernel, job, sizeof *job, operands, 4);
}
