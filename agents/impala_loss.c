/* What IMPALA computes between its passes: ratios of probabilities, V-trace, the losses. */
#include "impala.h"

#include <math.h>

#include <troupe/losses.h>
#include <troupe/policy_losses.h>
#include "unroll_steps.h"

static void find_ratios(const struct impala_loss_job *job, uint32_t decisions)
{
    uint32_t rows = job->decisions.rows;
    double sum = 0;
    uint32_t above = 0;
    for (uint32_t row = 0; row < rows; row++) {
        job->log_ratios[row] = job->log_probs[row] - job->old_log_probs[row];
        if (job->weights[row] == 0)
            continue;
        double ratio = exp((double)job->log_ratios[row]);
        sum += ratio;
        above += ratio > (double)job->vtrace.rho_bar;
    }
    float share = decisions > 0 ? 1 / (float)decisions : 0;
    job->numbers->ratio = (float)sum * share;
    job->numbers->clipped = (float)above * share;
    job->numbers->decisions = (float)decisions;
}

static void find_vtrace(const struct impala_loss_job *job)
{
    trp_trajectories items = job->items;
    uint32_t rows = job->decisions.rows;
    for (uint32_t row = 0; row < rows; row++)
        job->discounts[row] = job->gamma * job->item_discounts[row];
    items.discounts = job->discounts;
    items.values = job->values;
    trp_vtrace(&items, &job->vtrace, job->log_ratios, job->returns, job->advantages);
}

static void lose_unrolls(void *arguments)
{
    const struct impala_loss_job *job = arguments;
    const struct decisions *decisions = &job->decisions;
    uint32_t rows = decisions->rows;
    decisions_judge(decisions, job->log_probs, job->entropies);
    find_ratios(job, unroll_steps_weigh(&job->items, job->weights));
    find_vtrace(job);
    trp_policy_batch batch = {.rows = rows,
                              .advantages = job->advantages,
                              .weights = job->weights,
                              .entropy = job->entropy_weight};
    trp_policy_loss policy = trp_policy_gradient_loss(&batch, job->log_probs, job->entropies,
                                                      job->log_probs, job->entropies);
    trp_value_batch values = {.rows = rows, .targets = job->returns, .weights = job->weights};
    trp_loss value = trp_value_loss(&values, job->values, NULL, job->values);
    for (uint32_t row = 0; row < rows; row++)
        job->values[row] *= job->value_weight;
    decisions_backward(decisions, job->log_probs, job->entropies);
    job->numbers->policy_loss = policy.loss;
    job->numbers->value_loss = value.loss;
    job->numbers->entropy = policy.entropy;
    job->numbers->loss = policy.loss + job->value_weight * value.loss;
}

#define AT(member) offsetof(struct impala_loss_job, member)

void impala_loss_on(trp_queue *queue, const struct impala_loss_job *job)
{
    static const trp_kernel kernel = {"impala.loss", lose_unrolls};
    size_t rows = job->decisions.rows, floats = rows * sizeof(float);
    trp_operand operands[DECISIONS_OPERANDS + 14] = {
        {AT(values), floats, TRP_READ | TRP_WRITE}, {AT(items.rewards), floats, TRP_READ},
        {AT(items.valid), rows, TRP_READ},          {AT(items.first), rows, TRP_READ},
        {AT(item_discounts), floats, TRP_READ},     {AT(old_log_probs), floats, TRP_READ},
        {AT(discounts), floats, TRP_WRITE},         {AT(log_probs), floats, TRP_WRITE},
        {AT(entropies), floats, TRP_WRITE},         {AT(log_ratios), floats, TRP_WRITE},
        {AT(advantages), floats, TRP_WRITE},        {AT(returns), floats, TRP_WRITE},
        {AT(weights), floats, TRP_WRITE},           {AT(numbers), sizeof *job->numbers, TRP_WRITE},
    };
    decisions_operands(&job->decisions, AT(decisions), operands + 14);
    trp_queue_run(queue, &kernel, job, sizeof *job, operands, sizeof operands / sizeof *operands);
}
