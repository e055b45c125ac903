#include "critic_loss.h"

#include <math.h>
#include <string.h>

#include <troupe/losses.h>

static void find_targets(void *arguments)
{
    const struct critic_targets_job *job = arguments;
    trp_critic_batch batch = job->batch;
    batch.temperature = job->log_temperature ? expf(*job->log_temperature) : 0;
    trp_critic_targets(&batch, job->targets);
}

#define AT(member) offsetof(struct critic_targets_job, member)

void critic_targets_on(trp_queue *queue, const struct critic_targets_job *job)
{
    static const trp_kernel kernel = {"critics.targets", find_targets};
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

static void find_critic_loss(void *arguments)
{
    const struct critic_loss_job *job = arguments;
    trp_value_batch batch = {.rows = job->rows, .targets = job->targets, .weights = job->weights};
    struct critic_numbers numbers = {0};
    for (uint32_t i = 0; i < job->count; i++) {
        trp_loss loss = trp_value_loss(&batch, job->values[i], job->room, job->values[i]);
        numbers.loss += loss.loss;
        if (i == 0)
            numbers.mean_q = loss.value;
        for (uint32_t row = 0; row < job->rows; row++) {
            float size = fabsf(job->room[row]);
            job->errors[row] = i == 0 ? size : fmaxf(job->errors[row], size);
        }
    }
    *job->numbers = numbers;
}

#define AT(member) offsetof(struct critic_loss_job, member)

void critic_loss_on(trp_queue *queue, const struct critic_loss_job *job)
{
    static const trp_kernel kernel = {"critics.loss", find_critic_loss};
    size_t floats = job->rows * sizeof(float);
    trp_operand operands[5 + CRITICS_MAX] = {
        {AT(targets), floats, TRP_READ},
        {AT(weights), floats, TRP_READ},
        {AT(errors), floats, TRP_WRITE},
        {AT(room), floats, TRP_WRITE},
        {AT(numbers), sizeof *job->numbers, TRP_WRITE},
    };
    for (uint32_t i = 0; i < job->count; i++)
        operands[5 + i] =
            (trp_operand){AT(values) + i * sizeof job->values[0], floats, TRP_READ | TRP_WRITE};
    trp_queue_run(queue, &kernel, job, sizeof *job, operands, 5 + job->count);
}
