/* The losses of DQN: what the network says of an action, one number or a distribution, which
 * targets go with that, and what a policy chooses by. */
#include "dqn.h"

#include <troupe/losses.h>

uint32_t dqn_atoms(const trp_dqn_options *options)
{
    switch (options->loss) {
    case TRP_DQN_C51:
        return options->atoms;
    case TRP_DQN_QUANTILE:
        return options->quantiles;
    default:
        return 1;
    }
}

const float *dqn_values(const trp_dqn_options *options, size_t count, const float *outputs,
                        float *values)
{
    trp_support support = dqn_support(options);
    if (options->loss == TRP_DQN_C51)
        trp_c51_values(&support, count, outputs, values);
    else if (options->loss == TRP_DQN_QUANTILE)
        trp_quantile_values(options->quantiles, count, outputs, values);
    else
        return outputs;
    return values;
}

bool dqn_reads_target_now(const trp_dqn_options *options)
{
    return options->loss == TRP_DQN_MUNCHAUSEN;
}

void dqn_extras(const trp_dqn_options *options, const trp_env_spec *env, trp_columns *extras)
{
    if (env->masked && dqn_reads_target_now(options))
        trp_columns_add(
            extras, DQN_MASK,
            &(trp_tensor_spec){.dtype = TRP_BOOL, .rank = 1, .shape = {env->action_count}});
}

#define AT(member) offsetof(struct dqn_loss_arguments, member)

void dqn_loss_on(trp_queue *queue, const struct dqn_loss_arguments *job)
{
    static const trp_kernel kernel = {.name = "dqn.loss", .run = dqn_loss_run};
    size_t rows = job->batch.rows, floats = rows * sizeof(float);
    size_t atoms = dqn_atoms(&job->options) * sizeof(float);
    size_t values = rows * job->batch.actions * atoms;
    trp_operand operands[] = {
        {AT(batch.taken), rows * sizeof(int32_t), TRP_READ},
        {AT(batch.rewards), floats, TRP_READ},
        {AT(batch.weights), floats, TRP_READ},
        {AT(batch.next_mask), rows * job->batch.actions, TRP_READ},
        {AT(batch.mask), rows * job->batch.actions, TRP_READ},
        {AT(item_discounts), floats, TRP_READ},
        {AT(discounts), floats, TRP_WRITE},
        {AT(outputs.q), values, TRP_READ | TRP_WRITE},
        {AT(outputs.next_target), values, TRP_READ},
        {AT(outputs.other), values, TRP_READ},
        {AT(outputs.targets), rows * atoms, TRP_WRITE},
        {AT(outputs.errors), floats, TRP_WRITE},
        {AT(loss), sizeof *job->loss, TRP_WRITE},
    };
    trp_queue_run(queue, &kernel, job, sizeof *job, operands, sizeof operands / sizeof *operands);
}

trp_status dqn_loss_check(const trp_dqn_options *options)
{
    if (options->loss == TRP_DQN_C51 && options->value_least >= options->value_most)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "dqn: value_least is %g, must be below value_most, which is %g",
                        (double)options->value_least, (double)options->value_most);
    return TRP_OK;
}
