/* What IMPALA computes between its passes: ratios of probabilities, V-trace, the losses. */
#include "impala.h"

#define AT(member) offsetof(struct impala_loss_arguments, member)

void impala_loss_on(trp_queue *queue, const struct impala_loss_arguments *job)
{
    static const trp_kernel kernel = {.name = "impala.loss", .run = impala_loss_run};
    size_t floats = job->loss.decisions.rows * sizeof(float);
    trp_operand operands[UNROLL_LOSS_OPERANDS + 3] = {
        {AT(old_log_probs), floats, TRP_READ},
        {AT(log_ratios), floats, TRP_WRITE},
        {AT(ratios), sizeof *job->ratios, TRP_WRITE},
    };
    unroll_loss_operands(&job->loss, AT(loss), operands + 3);
    trp_queue_run(queue, &kernel, job, sizeof *job, operands, sizeof operands / sizeof *operands);
}
