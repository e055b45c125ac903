#include "unroll_loss.h"

#include <string.h>

#include <troupe/losses.h>
#include <troupe/policy_losses.h>

struct unroll_loss unroll_loss(const struct unroll_steps *steps,
                               const struct unroll_updater *updater, const trp_update *update)
{
    return (struct unroll_loss){.decisions = unroll_steps_decisions(steps, updater, update),
                                .values = updater->outputs.values,
                                .items = unroll_steps_items(steps, updater, update),
                                .item_discounts = steps->item_discounts,
                                .discounts = steps->discounts,
                                .log_probs = steps->log_probs,
                                .entropies = steps->entropies,
                                .advantages = steps->advantages,
                                .returns = steps->returns,
                                .weights = steps->weights};
}

trp_trajectories unroll_loss_begin(const struct unroll_loss *loss)
{
    trp_trajectories items = loss->items;
    uint32_t rows = loss->decisions.rows;
    decisions_judge(&loss->decisions, loss->log_probs, loss->entropies);
    loss->numbers->decisions = (float)unroll_steps_weigh(&loss->items, loss->weights);
    for (uint32_t row = 0; row < rows; row++)
        loss->discounts[row] = loss->gamma * loss->item_discounts[row];
    items.discounts = loss->discounts;
    items.values = loss->values;
    return items;
}

void unroll_loss_end(const struct unroll_loss *loss)
{
    uint32_t rows = loss->decisions.rows;
    trp_policy_batch batch = {.rows = rows,
                              .advantages = loss->advantages,
                              .weights = loss->weights,
                              .entropy = loss->entropy_weight};
    trp_policy_loss policy = trp_policy_gradient_loss(&batch, loss->log_probs, loss->entropies,
                                                      loss->log_probs, loss->entropies);
    trp_value_batch values = {.rows = rows, .targets = loss->returns, .weights = loss->weights};
    trp_loss value = trp_value_loss(&values, loss->values, NULL, loss->values);
    for (uint32_t row = 0; row < rows; row++)
        loss->values[row] *= loss->value_weight;
    decisions_backward(&loss->decisions, loss->log_probs, loss->entropies);
    loss->numbers->policy_loss = policy.loss;
    loss->numbers->value_loss = value.loss;
    loss->numbers->entropy = policy.entropy;
    loss->numbers->loss = policy.loss + loss->value_weight * value.loss;
}

#define AT(member) at + offsetof(struct unroll_loss, member)

void unroll_loss_operands(const struct unroll_loss *loss, size_t at,
                          trp_operand operands[UNROLL_LOSS_OPERANDS])
{
    size_t rows = loss->decisions.rows, floats = rows * sizeof(float);
    const trp_operand own[] = {
        {AT(values), floats, TRP_READ | TRP_WRITE}, {AT(items.rewards), floats, TRP_READ},
        {AT(items.valid), rows, TRP_READ},          {AT(items.first), rows, TRP_READ},
        {AT(item_discounts), floats, TRP_READ},     {AT(discounts), floats, TRP_WRITE},
        {AT(log_probs), floats, TRP_WRITE},         {AT(entropies), floats, TRP_WRITE},
        {AT(advantages), floats, TRP_WRITE},        {AT(returns), floats, TRP_WRITE},
        {AT(weights), floats, TRP_WRITE},           {AT(numbers), sizeof *loss->numbers, TRP_WRITE},
    };
    _Static_assert(sizeof own / sizeof *own + DECISIONS_OPERANDS == UNROLL_LOSS_OPERANDS, "all");
    memcpy(operands, own, sizeof own);
    decisions_operands(&loss->decisions, AT(decisions), operands + sizeof own / sizeof *own);
}
