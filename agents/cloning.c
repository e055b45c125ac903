#include "cloning.h"

#include <troupe/policy_losses.h>

static void find_cloning_loss(void *arguments)
{
    const struct cloning_job *job = arguments;
    trp_gaussian says =
        control_gaussian(CONTROL_GAUSSIAN, job->rows, job->size, job->mean, job->log_std);
    double sum = 0;
    trp_gaussian_log_prob(&says, job->actions, job->log_probs);
    for (uint32_t row = 0; row < job->rows; row++)
        sum += (double)job->log_probs[row];
    job->numbers->log_prob = (float)(sum / job->rows);
    job->numbers->loss = trp_cloning_loss(job->rows, job->weights, job->log_probs, job->log_probs);
    trp_gaussian_backward(&says, &(trp_gaussian_grads){.actions = job->actions,
                                                       .log_probs = job->log_probs,
                                                       .mean = job->mean,
                                                       .log_std = job->log_std});
}

#define AT(member) offsetof(struct cloning_job, member)

void cloning_on(trp_queue *queue, const struct cloning_job *job)
{
    static const trp_kernel kernel = {"cloning.loss", find_cloning_loss};
    size_t floats = job->rows * sizeof(float), numbers = floats * job->size;
    trp_operand operands[] = {
        {AT(mean), numbers, TRP_READ | TRP_WRITE}, {AT(log_std), numbers, TRP_READ | TRP_WRITE},
        {AT(actions), numbers, TRP_READ},          {AT(weights), floats, TRP_READ},
        {AT(log_probs), floats, TRP_WRITE},        {AT(numbers), sizeof *job->numbers, TRP_WRITE},
    };
    trp_queue_run(queue, &kernel, job, sizeof *job, operands, sizeof operands / sizeof *operands);
}
