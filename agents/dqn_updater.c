/* The update of DQN, on batches that the n-step adder made: double Q-learning on n-step returns,
 * weighted for prioritized replay, Adam, target network.
 *
 * An item's discount lacks one factor gamma (actor.h), which is applied here. Importance weights
 * are w_i = (N P_i)^-beta, divided by the largest of the batch so that they only scale updates down
 * (Schaul et al. 2016, section 3.4). Batches come from a peer: actions are checked before they
 * index anything, and a loss or gradient that is not finite ends the run instead of spreading. */
#include "dqn.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"

struct dqn_updater {
    trp_updater base;
    trp_dqn_options options;
    trp_net_spec spec;
    trp_net *net;
    trp_tensor_spec columns[TRP_NSTEP_COLUMNS];
    uint64_t steps;
    size_t count;
    float *params, *target, *m, *v, *grads; /* count each */
    float *weights, *discounts, *td_errors; /* batch_size each */
};

static trp_status check_actions(const struct dqn_updater *updater, const trp_batch *batch)
{
    const int32_t *actions = batch->columns[TRP_NSTEP_ACTION];
    for (uint32_t row = 0; row < batch->rows; row++)
        if (actions[row] < 0 || (uint32_t)actions[row] >= updater->spec.outputs)
            return trp_fail(TRP_DATA_LOSS,
                            "dqn: item %" PRIu64 " has action %" PRId32 " of %" PRIu32,
                            batch->keys[row], actions[row], updater->spec.outputs);
    return TRP_OK;
}

static void find_discounts(struct dqn_updater *updater, const trp_batch *batch)
{
    const float *discounts = batch->columns[TRP_NSTEP_DISCOUNT];
    for (uint32_t row = 0; row < batch->rows; row++)
        updater->discounts[row] = updater->options.discount * discounts[row];
}

/* NULL when every weight is 1. */
static const float *find_weights(struct dqn_updater *updater, const trp_batch *batch)
{
    double beta = updater->options.importance_exponent;
    if (beta == 0 || !updater->base.writes_priorities)
        return NULL;
    double largest = 0;
    for (uint32_t row = 0; row < batch->rows; row++) {
        double share = (double)batch->table_sizes[row] * batch->probabilities[row];
        double weight = share > 0 ? pow(share, -beta) : 1;
        updater->weights[row] = (float)weight;
        largest = fmax(largest, weight);
    }
    for (uint32_t row = 0; row < batch->rows; row++)
        updater->weights[row] /= (float)largest;
    return updater->weights;
}

/* A loss that is a number may still have a gradient that is none. */
static trp_status apply_gradient(struct dqn_updater *updater, const trp_q_result *result,
                                 trp_update *update)
{
    uint64_t step = updater->steps + 1;
    if (!isfinite(result->loss))
        return trp_fail(TRP_INTERNAL, "dqn: the loss of step %" PRIu64 " is %g", step,
                        (double)result->loss);
    double norm2 = trp_norm2(updater->grads, 0, updater->count);
    if (!isfinite(norm2))
        return trp_fail(TRP_INTERNAL, "dqn: the gradient of step %" PRIu64 " has norm %g", step,
                        sqrt(norm2));
    updater->steps = step;
    *update = (trp_update){result->loss, result->mean_q, sqrt(norm2)};
    trp_adam_options adam = {.learning_rate = updater->options.learning_rate,
                             .epsilon = updater->options.adam_epsilon};
    trp_adam_step(&adam, updater->steps, trp_clip_scale(norm2, updater->options.max_gradient_norm),
                  updater->params, updater->grads, updater->m, updater->v, 0, updater->count);
    return TRP_OK;
}

static void update_target(struct dqn_updater *updater)
{
    float rate = updater->options.target_rate;
    if (rate > 0)
        for (size_t i = 0; i < updater->count; i++)
            updater->target[i] += rate * (updater->params[i] - updater->target[i]);
    else if (updater->steps % updater->options.target_period == 0)
        memcpy(updater->target, updater->params, updater->count * sizeof *updater->params);
}

static trp_status updater_step(trp_updater *base, const trp_batch *batch, double *priorities,
                               trp_update *update)
{
    struct dqn_updater *updater = (struct dqn_updater *)base;
    TRP_TRY(check_actions(updater, batch));
    find_discounts(updater, batch);
    trp_q_batch rows = {.rows = batch->rows,
                        .states = batch->columns[TRP_NSTEP_OBSERVATION],
                        .next_states = batch->columns[TRP_NSTEP_NEXT_OBSERVATION],
                        .actions = batch->columns[TRP_NSTEP_ACTION],
                        .rewards = batch->columns[TRP_NSTEP_REWARD],
                        .discounts = updater->discounts,
                        .weights = find_weights(updater, batch)};
    trp_q_options q = {.huber_delta = updater->options.huber_delta,
                       .single_q = updater->options.no_double};
    memset(updater->grads, 0, updater->count * sizeof *updater->grads);
    trp_q_result result = trp_q_step(updater->net, &q, updater->params, updater->target, &rows,
                                     updater->grads, updater->td_errors);
    TRP_TRY(apply_gradient(updater, &result, update));
    update_target(updater);
    if (base->writes_priorities)
        for (uint32_t row = 0; row < batch->rows; row++)
            priorities[row] =
                fabs((double)updater->td_errors[row]) + (double)updater->options.priority_epsilon;
    return TRP_OK;
}

static trp_checkpoint_tensor tensor(const char *name, trp_checkpoint_type type, const void *data,
                                    size_t count)
{
    return (trp_checkpoint_tensor){
        .name = name, .type = type, .rank = 1, .shape = {count}, .data = data};
}

static size_t updater_state(trp_updater *base, trp_checkpoint_tensor *tensors)
{
    struct dqn_updater *updater = (struct dqn_updater *)base;
    size_t count = updater->count;
    tensors[0] = tensor("params", TRP_CHECKPOINT_F32, updater->params, count);
    tensors[1] = tensor("target", TRP_CHECKPOINT_F32, updater->target, count);
    tensors[2] = tensor("adam.m", TRP_CHECKPOINT_F32, updater->m, count);
    tensors[3] = tensor("adam.v", TRP_CHECKPOINT_F32, updater->v, count);
    tensors[4] = tensor("adam.steps", TRP_CHECKPOINT_U64, &updater->steps, 1);
    return 5;
}

static void updater_destroy(trp_updater *base)
{
    struct dqn_updater *updater = (struct dqn_updater *)base;
    trp_net_destroy(updater->net);
    float *vectors[] = {updater->params, updater->target,  updater->m,         updater->v,
                        updater->grads,  updater->weights, updater->discounts, updater->td_errors};
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
        trp_floats_destroy(vectors[i]);
    free(updater);
}

static const trp_updater_impl updater_impl = {
    .step = updater_step,
    .state = updater_state,
    .destroy = updater_destroy,
};

static void allocate(struct dqn_updater *updater)
{
    updater->count = trp_net_param_count(&updater->spec);
    float **vectors[] = {&updater->params, &updater->target, &updater->m, &updater->v,
                         &updater->grads};
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
        *vectors[i] = trp_floats_create(updater->count);
    updater->weights = trp_floats_create(updater->base.batch_size);
    updater->discounts = trp_floats_create(updater->base.batch_size);
    updater->td_errors = trp_floats_create(updater->base.batch_size);
}

trp_status dqn_updater_create(const trp_agent *agent, const trp_env_spec *env,
                              const trp_updater_options *options, trp_updater **out)
{
    *out = NULL;
    struct dqn_updater *updater = xcalloc(1, sizeof *updater);
    updater->options = dqn_options(agent);
    updater->spec = dqn_net_spec(&updater->options, env);
    trp_nstep_columns(env, updater->columns);
    updater->base = (trp_updater){
        .impl = &updater_impl,
        .table = DQN_TABLE,
        .columns = updater->columns,
        .column_count = TRP_NSTEP_COLUMNS,
        .batch_size = options->batch_size ? options->batch_size : updater->options.batch_size,
        .writes_priorities = updater->options.priority_exponent > 0,
    };
    trp_status status =
        trp_net_create(&updater->net, &(trp_net_options){.spec = updater->spec,
                                                         .batch = updater->base.batch_size});
    if (status != TRP_OK) {
        updater_destroy(&updater->base);
        return status;
    }
    allocate(updater);
    trp_rng rng; /* an update draws nothing: a checkpoint needs no state of it */
    trp_rng_init(&rng, options->seed, 0);
    trp_net_init(&updater->spec, &rng, updater->params);
    memcpy(updater->target, updater->params, updater->count * sizeof *updater->params);
    updater->base.params = updater->params;
    updater->base.param_count = updater->count;
    *out = &updater->base;
    return TRP_OK;
}
