#include "cloning.h"

#define AT(member) offsetof(struct cloning_loss_arguments, member)

static void cloning_on(trp_queue *queue, const struct cloning_loss_arguments *job)
{
    static const trp_kernel kernel = {.name = "cloning.loss", .run = cloning_loss_run};
    size_t floats = job->rows * sizeof(float), numbers = floats * job->size;
    bool squashed = job->kind == CONTROL_SQUASHED;
    trp_operand operands[] = {
        {AT(mean), numbers, TRP_READ | TRP_WRITE}, {AT(log_std), numbers, TRP_READ | TRP_WRITE},
        {AT(actions), numbers, TRP_READ},          {AT(weights), floats, TRP_READ},
        {AT(log_probs), floats, TRP_WRITE},        {AT(numbers), sizeof *job->numbers, TRP_WRITE},
        {AT(within), numbers, TRP_WRITE},
    };
    size_t count = sizeof operands / sizeof *operands;
    trp_queue_run(queue, &kernel, job, sizeof *job, operands, squashed ? count : count - 1);
}
#undef AT

trp_status cloning_learn(struct control_learner *learner, const trp_update *update,
                         const trp_net_rows *rows, float *const said[2], const float *weights,
                         float *log_probs, float *within, struct cloning_numbers *numbers)
{
    const struct control_batch *batch = &learner->batch;
    const float *const grads[] = {said[0], said[1]};
    cloning_on(update->queue, &(struct cloning_loss_arguments){.kind = learner->kind,
                                                               .rows = batch->rows,
                                                               .size = batch->box.size,
                                                               .mean = said[0],
                                                               .log_std = said[1],
                                                               .actions = batch->actions,
                                                               .within = within,
                                                               .weights = weights,
                                                               .log_probs = log_probs,
                                                               .numbers = numbers});
    return control_learner_follow(learner, update, rows, grads, &numbers->loss);
}

#define AT(member) offsetof(struct advantage_weights_arguments, member)

void advantage_weights_on(trp_queue *queue, const struct advantage_weights_arguments *job)
{
    static const trp_kernel kernel = {.name = "advantages.weights", .run = advantage_weights_run};
    size_t floats = job->batch.rows * sizeof(float);
    trp_operand operands[] = {
        {AT(batch.q), floats, TRP_READ},
        {AT(batch.policy_q), floats * job->batch.samples, TRP_READ},
        {AT(weights), floats, TRP_WRITE},
        {AT(mean), sizeof *job->mean, TRP_WRITE},
    };
    trp_queue_run(queue, &kernel, job, sizeof *job, operands, sizeof operands / sizeof *operands);
}
