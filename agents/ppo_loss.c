/* What PPO computes between its passes: advantages of sequences, and the losses of a minibatch. */
#include "ppo.h"

#include <troupe/losses.h>
#include <troupe/policy_losses.h>

static void find_advantages(void *arguments)
{
    const struct ppo_advantages_job *job = arguments;
    trp_trajectories items = job->items;
    size_t rows = (size_t)items.steps * items.sequences;
    for (size_t row = 0; row < rows; row++)
        job->discounts[row] = job->gamma * job->item_discounts[row];
    items.discounts = job->discounts;
    trp_gae(&items, job->lambda, job->advantages, job->returns);
}

#define AT(member) offsetof(struct ppo_advantages_job, member)

void ppo_advantages_on(trp_queue *queue, const struct ppo_advantages_job *job)
{
    static const trp_kernel kernel = {"ppo.advantages", find_advantages};
    size_t rows = (size_t)job->items.steps * job->items.sequences, floats = rows * sizeof(float);
    trp_operand operands[] = {
        {AT(items.rewards), floats, TRP_READ},  {AT(items.values), floats, TRP_READ},
        {AT(items.valid), rows, TRP_READ},      {AT(items.first), rows, TRP_READ},
        {AT(item_discounts), floats, TRP_READ}, {AT(discounts), floats, TRP_WRITE},
        {AT(advantages), floats, TRP_WRITE},    {AT(returns), floats, TRP_WRITE},
    };
    trp_queue_run(queue, &kernel, job, sizeof *job, operands, sizeof operands / sizeof *operands);
}
#undef AT

static void add_numbers(struct ppo_numbers *sums, const trp_policy_loss *policy, float value,
                        float value_weight)
{
    sums->loss = policy->loss + value_weight * value;
    sums->policy_loss += policy->loss;
    sums->value_loss += value;
    sums->entropy += policy->entropy;
    sums->divergence += policy->divergence;
    sums->clipped += policy->clipped;
    sums->phases++;
}

static void find_loss(void *arguments)
{
    const struct ppo_loss_job *job = arguments;
    const struct decisions *decisions = &job->decisions;
    uint32_t rows = decisions->rows;
    if (!job->raw_advantages)
        trp_normalize_advantages(rows, NULL, job->advantages, job->advantages);
    decisions_judge(decisions, job->log_probs, job->entropies);
    trp_policy_batch batch = {.rows = rows,
                              .advantages = job->advantages,
                              .entropy = job->entropy_weight,
                              .old_log_probs = job->old_log_probs,
                              .clip = job->clip};
    trp_policy_loss policy =
        trp_ppo_loss(&batch, job->log_probs, job->entropies, job->log_probs, job->entropies);
    trp_value_batch values = {.rows = rows,
                              .targets = job->returns,
                              .clip = job->value_clip,
                              .old_values = job->old_values};
    trp_loss value = trp_value_loss(&values, job->values, NULL, job->values);
    for (uint32_t row = 0; row < rows; row++)
        job->values[row] *= job->value_weight;
    decisions_backward(decisions, job->log_probs, job->entropies);
    add_numbers(job->numbers, &policy, value.loss, job->value_weight);
}

#define AT(member) offsetof(struct ppo_loss_job, member)

void ppo_loss_on(trp_queue *queue, const struct ppo_loss_job *job)
{
    static const trp_kernel kernel = {"ppo.loss", find_loss};
    size_t floats = job->decisions.rows * sizeof(float);
    trp_operand operands[DECISIONS_OPERANDS + 8] = {
        {AT(values), floats, TRP_READ | TRP_WRITE},
        {AT(old_log_probs), floats, TRP_READ},
        {AT(old_values), floats, TRP_READ},
        {AT(returns), floats, TRP_READ},
        {AT(advantages), floats, TRP_READ | TRP_WRITE},
        {AT(log_probs), floats, TRP_WRITE},
        {AT(entropies), floats, TRP_WRITE},
        {AT(numbers), sizeof *job->numbers, TRP_READ | TRP_WRITE},
    };
    decisions_operands(&job->decisions, AT(decisions), operands + 8);
    trp_queue_run(queue, &kernel, job, sizeof *job, operands, sizeof operands / sizeof *operands);
}
