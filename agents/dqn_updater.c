/* The update of DQN, on batches that the n-step adder made: a loss on n-step returns (dqn_loss.c),
 * weighted for prioritized replay, an optimizer, target network.
 *
 * An item's discount lacks one factor gamma (actor.h), which is applied here. Importance weights
 * are w_i = (N P_i)^-beta, divided by the largest of the batch so that they only scale updates down
 * (Schaul et al. 2016, section 3.4). Batches come from a peer: actions are checked before they
 * index anything, and a loss that is not finite ends the run instead of spreading. */
#include "dqn.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/losses.h>
#include "core/alloc.h"

enum { PARAMS, TARGET, VECTORS };

struct dqn_updater {
    trp_updater base;
    trp_dqn_options options;
    trp_net_spec spec;
    trp_net *net;
    trp_net_tensor tensors[TRP_NET_TENSORS_MAX]; /* of params */
    uint32_t outputs;
    struct dqn_image image;
    uint8_t *pixels, *next_pixels;       /* rows of it; NULL: as they come */
    float *weights, *discounts, *errors; /* [batch_size] */
    float *targets;                      /* [batch_size][atoms] */
    float *q, *other, *next_target;      /* [batch_size][outputs][atoms] */
};

static trp_status check_actions(const struct dqn_updater *updater, const trp_update *update)
{
    const trp_batch *batch = update->batches;
    const int32_t *actions = trp_update_column(update, 0, "action");
    for (uint32_t row = 0; row < batch->rows; row++)
        if (actions[row] < 0 || (uint32_t)actions[row] >= updater->outputs)
            return trp_fail(TRP_DATA_LOSS,
                            "dqn: item %" PRIu64 " has action %" PRId32 " of %" PRIu32,
                            batch->keys[row], actions[row], updater->outputs);
    return TRP_OK;
}

/* NULL: nothing is masked. A byte that is no bool must not be read as one. */
static trp_status find_next_mask(const struct dqn_updater *updater, const trp_update *update,
                                 const bool **mask)
{
    const uint8_t *bytes = trp_update_column(update, 0, "next_mask");
    const trp_batch *batch = update->batches;
    *mask = (const bool *)bytes;
    for (uint32_t row = 0; bytes && row < batch->rows; row++) {
        uint8_t any = 0, all = 0;
        for (uint32_t i = 0; i < updater->outputs; i++) {
            any |= bytes[i] == 1;
            all |= bytes[i];
        }
        if (!any || all > 1)
            return trp_fail(TRP_DATA_LOSS, "dqn: item %" PRIu64 " has a next_mask that %s",
                            batch->keys[row], all > 1 ? "is no mask" : "allows nothing");
        bytes += updater->outputs;
    }
    return TRP_OK;
}

static void find_discounts(struct dqn_updater *updater, const trp_update *update)
{
    const float *discounts = trp_update_column(update, 0, "discount");
    for (uint32_t row = 0; row < update->batches->rows; row++)
        updater->discounts[row] = updater->options.discount * discounts[row];
}

/* NULL when every weight is 1. */
static const float *find_weights(struct dqn_updater *updater, const trp_batch *batch)
{
    double beta = updater->options.importance_exponent;
    if (beta == 0 || !updater->base.sources[0].writes_priorities)
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

static void update_target(const struct dqn_updater *updater, const trp_update *update)
{
    float rate = updater->options.target_rate;
    const float *params = update->vectors[PARAMS];
    float *target = update->vectors[TARGET];
    size_t count = updater->base.vectors[PARAMS].count;
    if (rate > 0)
        for (size_t i = 0; i < count; i++)
            target[i] += rate * (params[i] - target[i]);
    else if (update->step % updater->options.target_period == 0)
        memcpy(target, params, count * sizeof *params);
}

/* The target network at the states, or what chooses the next actions. */
static const float *forward_other(struct dqn_updater *updater, const trp_update *update,
                                  trp_net_rows next, trp_net_rows now)
{
    bool at_now = dqn_reads_target_now(&updater->options);
    trp_net_rows *rows = at_now ? &now : &next;
    rows->outputs[0] = updater->other;
    if (!at_now)
        trp_net_resample(updater->net, NULL, update->rng);
    if (!at_now && updater->options.no_double)
        return updater->next_target;
    trp_net_forward(updater->net, update->vectors[at_now ? TARGET : PARAMS], rows);
    return updater->other;
}

static trp_loss differentiate(struct dqn_updater *updater, const trp_update *update,
                              const bool *next_mask)
{
    const trp_batch *batch = update->batches;
    const float *params = update->vectors[PARAMS];
    trp_q_batch rows = {.rows = batch->rows,
                        .actions = updater->outputs,
                        .taken = trp_update_column(update, 0, "action"),
                        .rewards = trp_update_column(update, 0, "reward"),
                        .discounts = updater->discounts,
                        .weights = find_weights(updater, batch),
                        .next_mask = next_mask};
    trp_net_rows next = {.rows = batch->rows,
                         .inputs = {dqn_pixels(&updater->image, batch->rows,
                                               trp_update_column(update, 0, "next_observation"),
                                               updater->next_pixels)},
                         .outputs = {updater->next_target}};
    trp_net_rows now = {
        .rows = batch->rows,
        .inputs = {dqn_pixels(&updater->image, batch->rows,
                              trp_update_column(update, 0, "observation"), updater->pixels)},
        .outputs = {updater->q}};
    trp_net_resample(updater->net, NULL, update->rng); /* each network has noise of its own */
    trp_net_forward(updater->net, update->vectors[TARGET], &next);
    const float *other = forward_other(updater, update, next, now);
    trp_net_resample(updater->net, NULL, update->rng);
    trp_net_forward(updater->net, params, &now);
    trp_loss loss = dqn_loss(&updater->options, &rows,
                             &(struct dqn_outputs){.q = updater->q,
                                                   .next_target = updater->next_target,
                                                   .other = other,
                                                   .targets = updater->targets,
                                                   .errors = updater->errors});
    trp_net_backward(updater->net, params, &now,
                     &(trp_net_grads){.outputs = {updater->q}, .params = update->grads[PARAMS]});
    return loss;
}

static trp_status updater_step(trp_updater *base, const trp_update *update)
{
    struct dqn_updater *updater = (struct dqn_updater *)base;
    const trp_batch *batch = update->batches;
    double *priorities = update->priorities[0];
    TRP_TRY(check_actions(updater, update));
    const bool *next_mask;
    TRP_TRY(find_next_mask(updater, update, &next_mask));
    find_discounts(updater, update);
    trp_loss result = differentiate(updater, update, next_mask);
    if (!isfinite(result.loss))
        return trp_fail(TRP_INTERNAL, "dqn: the loss of step %" PRIu64 " is %g", update->step,
                        (double)result.loss);
    TRP_TRY(trp_update_apply(update, PARAMS));
    update_target(updater, update);
    trp_update_report(update, "loss", result.loss);
    trp_update_report(update, "mean_q", result.value);
    for (uint32_t row = 0; priorities && row < batch->rows; row++)
        priorities[row] =
            fabs((double)updater->errors[row]) + (double)updater->options.priority_epsilon;
    return TRP_OK;
}

static void updater_init(trp_updater *base, trp_rng *rng, float *const *vectors)
{
    struct dqn_updater *updater = (struct dqn_updater *)base;
    trp_net_init(&updater->spec, rng, vectors[PARAMS]);
    memcpy(vectors[TARGET], vectors[PARAMS], base->vectors[PARAMS].count * sizeof(float));
}

static void updater_destroy(trp_updater *base)
{
    struct dqn_updater *updater = (struct dqn_updater *)base;
    trp_net_destroy(updater->net);
    free(updater->pixels);
    free(updater->next_pixels);
    trp_floats_destroy(updater->weights);
    trp_floats_destroy(updater->discounts);
    trp_floats_destroy(updater->targets);
    trp_floats_destroy(updater->errors);
    trp_floats_destroy(updater->q);
    trp_floats_destroy(updater->other);
    trp_floats_destroy(updater->next_target);
    free(updater);
}

static const trp_updater_impl updater_impl = {
    .init = updater_init,
    .step = updater_step,
    .destroy = updater_destroy,
};

static void declare_source(struct dqn_updater *updater, const trp_env_spec *env,
                           uint32_t batch_size)
{
    trp_batch_spec *source = &updater->base.sources[0];
    *source = (trp_batch_spec){
        .table = DQN_TABLE,
        .batch_size = batch_size ? batch_size : updater->options.batch_size,
        .writes_priorities = updater->options.priority_exponent > 0,
    };
    trp_nstep_columns(env, NULL, &source->columns);
    updater->weights = trp_floats_create(source->batch_size);
    updater->discounts = trp_floats_create(source->batch_size);
    updater->errors = trp_floats_create(source->batch_size);
    updater->image = dqn_image(&updater->options, env);
    updater->pixels = dqn_pixels_room(&updater->image, source->batch_size);
    updater->next_pixels = dqn_pixels_room(&updater->image, source->batch_size);
    size_t atoms = dqn_atoms(&updater->options);
    size_t values = (size_t)source->batch_size * updater->outputs * atoms;
    updater->targets = trp_floats_create(source->batch_size * atoms);
    updater->q = trp_floats_create(values);
    updater->other = trp_floats_create(values);
    updater->next_target = trp_floats_create(values);
    updater->base.source_count = 1;
}

static void declare_vectors(struct dqn_updater *updater)
{
    const trp_dqn_options *options = &updater->options;
    size_t count = trp_net_param_count(&updater->spec);
    updater->base.vectors[PARAMS] = (trp_vector_spec){
        .name = "params",
        .count = count,
        .learned = true,
        .optimizer = dqn_optimizer(options),
        .tensors = updater->tensors,
        .tensor_count = trp_net_tensors(&updater->spec, updater->tensors),
    };
    updater->base.vectors[TARGET] = (trp_vector_spec){.name = "target", .count = count};
    updater->base.vector_count = VECTORS;
}

trp_status dqn_updater_create(const trp_agent *agent, const trp_env_spec *env,
                              const trp_updater_options *options, trp_updater **out)
{
    *out = NULL;
    struct dqn_updater *updater = xcalloc(1, sizeof *updater);
    updater->base.impl = &updater_impl;
    updater->options = dqn_options(agent);
    updater->spec = dqn_net_spec(&updater->options, env);
    updater->outputs = (uint32_t)env->action_count;
    declare_source(updater, env, options->batch_size);
    declare_vectors(updater);
    trp_net_options net = {.spec = &updater->spec, .batch = updater->base.sources[0].batch_size};
    trp_status status = trp_net_create(&updater->net, &net);
    if (status != TRP_OK) {
        trp_updater_destroy(&updater->base);
        return status;
    }
    *out = &updater->base;
    return TRP_OK;
}
