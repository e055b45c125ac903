#include "critic_loss.h"

#include <string.h>

#define AT(member) offsetof(struct critic_targets_arguments, member)

void critic_targets_on(trp_queue *queue, const struct critic_targets_arguments *job)
{
    static const trp_kernel kernel = {.name = "critics.targets", .run = critic_targets_run};
    size_t floats = job->batch.rows * sizeof(float);
    trp_operand operands[] = {
        {AT(batch.rewards), floats, TRP_READ},
        {AT(batch.discounts), floats, TRP_READ},
        {AT(batch.next_q), floats, TRP_READ},
        {AT(batch.next_q2), floats, TRP_READ},
        {AT(batch.next_log_probs), floats, TRP_READ},
        {AT(log_temperature), sizeof *job->log_temperature, TRP_READ},
        {AT(targets), floats, TRP_WRITE},
    };
    trp_queue_run(queue, &kernel, job, sizeof *job, operands, sizeof operands / sizeof *operands);
}
#undef AT

#define AT(member) offsetof(struct critic_loss_arguments, member)

void critic_loss_on(trp_queue *queue, const struct critic_loss_arguments *job)
{
    static const trp_kernel kernel = {.name = "critics.loss", .run = critic_loss_run};
    size_t floats = job->rows * sizeof(float);
    trp_operand operands[4 + CRITICS_MAX] = {
        {AT(targets), floats, TRP_READ},
        {AT(weights), floats, TRP_READ},
        {AT(errors), floats, TRP_WRITE},
        {AT(numbers), sizeof *job->numbers, TRP_WRITE},
    };
    for (uint32_t i = 0; i < job->count; i++)
        operands[4 + i] =
            (trp_operand){AT(values) + i * sizeof job->values[0], floats, TRP_READ | TRP_WRITE};
    trp_queue_run(queue, &kernel, job, sizeof *job, operands, 4 + job->count);
}

trp_status critics_learn(struct critics *critics, const trp_update *update, size_t vector,
                         struct control_batch *batch, const float *targets,
                         struct critic_numbers *numbers)
{
    struct critics_pass pass = {.queue = update->queue,
                                .params = update->vectors[vector],
                                .rows = batch->rows,
                                .states = batch->states,
                                .actions = batch->actions,
                                .values = critics->values};
    critics_forward(critics, &pass);
    struct critic_loss_arguments job = {.rows = batch->rows,
                                        .count = critics->count,
                                        .targets = targets,
                                        .weights = batch->weights,
                                        .errors = batch->errors,
                                        .numbers = numbers};
    memcpy(job.values, critics->values, sizeof job.values);
    critic_loss_on(update->queue, &job);
    critics_backward_last(critics, &pass, update, vector);
    trp_update_watch(update, vector, &numbers->loss, "critic loss");
    return trp_update_apply(update, vector);
}
