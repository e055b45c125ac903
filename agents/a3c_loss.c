/* What A3C computes between its passes: n-step returns, as far as the sequence goes, and the
 * losses. */
#include "a3c.h"

void a3c_loss_on(trp_queue *queue, const struct unroll_loss *loss)
{
    static const trp_kernel kernel = {.name = "a3c.loss", .run = a3c_loss_run};
    trp_operand operands[UNROLL_LOSS_OPERANDS];
    unroll_loss_operands(loss, 0, operands);
    trp_queue_run(queue, &kernel, loss, sizeof *loss, operands, UNROLL_LOSS_OPERANDS);
}
