/* What PPO computes between its passes: advantages of sequences, and the losses of a minibatch. */
#include "ppo.h"

#define AT(member) offsetof(struct ppo_advantages_arguments, member)

void ppo_advantages_on(trp_queue *queue, const struct ppo_advantages_arguments *job)
{
    static const trp_kernel kernel = {.name = "ppo.advantages", .run = ppo_advantages_run};
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

#define AT(member) offsetof(struct ppo_loss_arguments, member)

void ppo_loss_on(trp_queue *queue, const struct ppo_loss_arguments *job)
{
    static const trp_kernel kernel = {.name = "ppo.loss", .run = ppo_loss_run};
    size_t floats = job->decisions.rows * sizeof(float);
    trp_operand operands[DECISIONS_OPERANDS + 9] = {
        {AT(values), floats, TRP_READ | TRP_WRITE},
        {AT(old_log_probs), floats, TRP_READ},
        {AT(old_values), floats, TRP_READ},
        {AT(returns), floats, TRP_READ},
        {AT(advantages), floats, TRP_READ | TRP_WRITE},
        {AT(log_probs), floats, TRP_WRITE},
        {AT(entropies), floats, TRP_WRITE},
        {AT(clips), sizeof *job->clips, TRP_READ},
        {AT(numbers), sizeof *job->numbers, TRP_READ | TRP_WRITE},
    };
    decisions_operands(&job->decisions, AT(decisions), operands + 9);
    trp_queue_run(queue, &kernel, job, sizeof *job, operands, sizeof operands / sizeof *operands);
}
