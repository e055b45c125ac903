/* What IMPALA computes between its passes: ratios of probabilities, V-trace, the losses. */
#include "impala.h"

#include <math.h>

static void find_ratios(const struct impala_loss_job *job)
{
    const struct unroll_loss *loss = &job->loss;
    double sum = 0;
    uint32_t above = 0;
    for (uint32_t row = 0; row < loss->decisions.rows; row++) {
        job->log_ratios[row] = loss->log_probs[row] - job->old_log_probs[row];
        if (loss->weights[row] == 0)
            continue;
        double ratio = exp((double)job->log_ratios[row]);
        sum += ratio;
        above += ratio > (double)job->vtrace.rho_bar;
    }
    float decisions = loss->numbers->decisions, share = decisions > 0 ? 1 / decisions : 0;
    *job->ratios = (struct impala_ratios){(float)sum * share, (float)above * share};
}

static void lose_unrolls(void *arguments)
{
    const struct impala_loss_job *job = arguments;
    const struct unroll_loss *loss = &job->loss;
    trp_trajectories items = unroll_loss_begin(loss);
    find_ratios(job);
    trp_vtrace(&items, &job->vtrace, job->log_ratios, loss->returns, loss->advantages);
    unroll_loss_end(loss);
}

#define AT(member) offsetof(struct impala_loss_job, member)

void impala_loss_on(trp_queue *queue, const struct impala_loss_job *job)
{
    static const trp_kernel kernel = {"impala.loss", lose_unrolls};
    size_t floats = job->loss.decisions.rows * sizeof(float);
    trp_operand operands[UNROLL_LOSS_OPERANDS + 3] = {
        {AT(old_log_probs), floats, TRP_READ},
        {AT(log_ratios), floats, TRP_WRITE},
        {AT(ratios), sizeof *job->ratios, TRP_WRITE},
    };
    unroll_loss_operands(&job->loss, AT(loss), operands + 3);
    trp_queue_run(queue, &kernel, job, sizeof *job, operands, sizeof operands / sizeof *operands);
}
