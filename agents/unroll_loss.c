#include "unroll_loss.h"

#include <string.h>

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
