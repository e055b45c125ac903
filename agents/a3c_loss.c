/* What A3C computes between its passes: n-step returns, as far as the sequence goes, and the
 * losses. */
#include "a3c.h"

static void lose_rollouts(void *arguments)
{
    const struct unroll_loss *loss = arguments;
    trp_trajectories items = unroll_loss_begin(loss);
    trp_gae(&items, 1, loss->advantages, loss->returns);
    unroll_loss_end(loss);
}

void a3c_loss_on(trp_queue *queue, const struct unroll_loss *loss)
{
    static const trp_kernel kernel = {"a3c.loss", lose_rollouts};
    trp_operand operands[UNROLL_LOSS_OPERANDS];
    unroll_loss_operands(loss, 0, operands);
    trp_queue_run(queue, &kernel, loss, sizeof *loss, operands, UNROLL_LOSS_OPERANDS);
}
