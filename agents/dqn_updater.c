/* The update of DQN, on batches that the n-step adder made: a loss on n-step returns (dqn_loss.c),
 * weighted for prioritized replay, an optimizer, target network. All of it is put on the learner's
 * queue; the host looks at what came with the batch, and at the loss and errors of a step once that
 * is collected.
 *
 * An item's discount lacks one factor gamma (actor.h), which is applied here. Batches come from a
 * peer: actions are checked before they index anything, and a loss that is not finite ends the run
 * instead of spreading. */
#include "dqn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/losses.h>
#include "core/alloc.h"
#include "received.h"
#include "replayed.h"
#include "room.h"
#include "target.h"

enum { PARAMS, TARGET, VECTORS };

/* What one step leaves on the host until it is collected. */
struct dqn_turn {
    float *weights; /* [batch_size], on their way to the device */
    float *errors;  /* [batch_size] */
    trp_loss loss;
};

struct dqn_updater {
    trp_updater base;
    trp_dqn_options options;
    trp_net_spec spec;
    trp_net *net;
    trp_net_tensor tensors[TRP_NET_TENSORS_MAX]; /* of params */
    uint32_t outputs;
    struct torso_image image;
    struct dqn_turn turns[2];            /* of the last step and the one before */
    struct room room;                    /* that what follows lies in: */
    uint8_t *pixels, *next_pixels;       /* rows of the image; NULL: as they come */
    float *weights, *discounts, *errors; /* [batch_size] */
    float *targets;                      /* [batch_size][atoms] */
    float *q, *other, *next_target;      /* [batch_size][outputs][atoms] */
    trp_loss *loss;
};

static trp_status check_batch(const struct dqn_updater *updater, const trp_update *update)
{
    struct received received = {.who = "dqn", .update = update};
    TRP_TRY(received_choices(&received, "action", &(int32_t){(int32_t)updater->outputs}, 1));
    TRP_TRY(received_mask(&received, "next_mask", updater->outputs, NULL));
    return received_mask(&received, DQN_MASK, updater->outputs, NULL);
}

/* The target network at the states, or what chooses the next actions. */
static const float *forward_other(struct dqn_updater *updater, const trp_update *update,
                                  trp_net_rows next, trp_net_rows now)
{
    bool at_now = dqn_reads_target_now(&updater->options);
    trp_net_rows *rows = at_now ? &now : &next;
    rows->outputs[0] = updater->other;
    if (!at_now)
        trp_net_resample(updater->net, update->queue, update->rng);
    if (!at_now && updater->options.no_double)
        return updater->next_target;
    trp_net_forward(updater->net, update->vectors[at_now ? TARGET : PARAMS], rows);
    return updater->other;
}

/* The rows of a column as the network reads them. */
static trp_net_rows rows_of(struct dqn_updater *updater, const trp_update *update,
                            const char *column, uint8_t *pixels, float *out)
{
    const void *rows = trp_update_device_column(update, 0, column);
    uint32_t count = update->batches->rows;
    return (trp_net_rows){
        .rows = count,
        .queue = update->queue,
        .inputs = {torso_pixels_on(update->queue, &updater->image, count, rows, pixels)},
        .outputs = {out}};
}

static trp_status differentiate(struct dqn_updater *updater, const trp_update *update)
{
    const float *params = update->vectors[PARAMS], *weights;
    TRP_TRY(replayed_weights(update, (double)updater->options.importance_exponent,
                             updater->turns[update->step % 2].weights, updater->weights, &weights));
    trp_net_rows next =
        rows_of(updater, update, "next_observation", updater->next_pixels, updater->next_target);
    trp_net_rows now = rows_of(updater, update, "observation", updater->pixels, updater->q);
    /* Each network has noise of its own. */
    trp_net_resample(updater->net, update->queue, update->rng);
    trp_net_forward(updater->net, update->vectors[TARGET], &next);
    const float *other = forward_other(updater, update, next, now);
    trp_net_resample(updater->net, update->queue, update->rng);
    trp_net_forward(updater->net, params, &now);
    struct dqn_loss_arguments job = {
        .options = updater->options,
        .batch = {.rows = update->batches->rows,
                  .actions = updater->outputs,
                  .taken = trp_update_device_column(update, 0, "action"),
                  .rewards = trp_update_device_column(update, 0, "reward"),
                  .weights = weights,
                  .next_mask = trp_update_device_column(update, 0, "next_mask"),
                  .mask = trp_update_device_column(update, 0, DQN_MASK)},
        .outputs = {.q = updater->q,
                    .next_target = updater->next_target,
                    .other = other,
                    .targets = updater->targets,
                    .errors = updater->errors},
        .item_discounts = trp_update_device_column(update, 0, "discount"),
        .discounts = updater->discounts,
        .loss = updater->loss};
    dqn_loss_on(update->queue, &job);
    trp_update_backward(update, PARAMS, 0, updater->net, &now,
                        &(trp_net_grads){.outputs = {updater->q}});
    return TRP_OK;
}

static trp_status updater_collect(trp_updater *base, const trp_update *update)
{
    struct dqn_updater *updater = (struct dqn_updater *)base;
    const struct dqn_turn *turn = &updater->turns[update->step % 2];
    double *priorities = update->priorities[0];
    trp_update_report(update, "loss", turn->loss.loss);
    trp_update_report(update, "mean_q", turn->loss.value);
    for (uint32_t row = 0; priorities && row < update->batches->rows; row++)
        priorities[row] =
            fabs((double)turn->errors[row]) + (double)updater->options.priority_epsilon;
    return TRP_OK;
}

static trp_status updater_step(trp_updater *base, const trp_update *update)
{
    struct dqn_updater *updater = (struct dqn_updater *)base;
    struct dqn_turn *turn = &updater->turns[update->step % 2];
    TRP_TRY(check_batch(updater, update));
    TRP_TRY(differentiate(updater, update));
    trp_update_watch(update, PARAMS, &updater->loss->loss, "loss");
    TRP_TRY(trp_update_apply(update, PARAMS));
    struct target_rule target = {updater->options.target_rate, updater->options.target_period};
    target_follow(&target, update, TARGET, PARAMS, base->vectors[PARAMS].count);
    trp_queue_copy(update->queue, &turn->loss, updater->loss, sizeof turn->loss);
    if (update->priorities[0])
        trp_queue_copy(update->queue, turn->errors, updater->errors,
                       update->batches->rows * sizeof *turn->errors);
    return base->impl->collect ? TRP_OK : updater_collect(base, update);
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
    room_free(&updater->room);
    for (size_t i = 0; i < 2; i++) {
        free(updater->turns[i].weights);
        free(updater->turns[i].errors);
    }
    free(updater);
}

/* A host has done everything when a step returns. */
static const trp_updater_impl host_impl = {
    .init = updater_init,
    .step = updater_step,
    .destroy = updater_destroy,
};

static const trp_updater_impl device_impl = {
    .init = updater_init,
    .step = updater_step,
    .collect = updater_collect,
    .destroy = updater_destroy,
};

static void declare_source(struct dqn_updater *updater, const trp_env_spec *env,
                           uint32_t batch_size)
{
    struct transitions transitions = dqn_transitions(&updater->options);
    trp_columns extras = {0};
    dqn_extras(&updater->options, env, &extras);
    updater->base.sources[0] = transitions_source(
        &transitions, env, &extras, batch_size ? batch_size : updater->options.batch_size);
    trp_columns_cleanup(&extras);
    updater->image = torso_image(updater->options.network, env);
    updater->base.source_count = 1;
}

static trp_status make_room(struct dqn_updater *updater)
{
    size_t rows = updater->base.sources[0].batch_size, atoms = dqn_atoms(&updater->options);
    size_t values = rows * updater->outputs * atoms;
    size_t pixels = rows * torso_pixels_bytes(&updater->image);
    const struct {
        void *memory; /* of a pointer */
        size_t bytes;
    } pieces[] = {{&updater->pixels, pixels},
                  {&updater->next_pixels, pixels},
                  {&updater->weights, rows * sizeof(float)},
                  {&updater->discounts, rows * sizeof(float)},
                  {&updater->errors, rows * sizeof(float)},
                  {&updater->targets, rows * atoms * sizeof(float)},
                  {&updater->q, values * sizeof(float)},
                  {&updater->other, values * sizeof(float)},
                  {&updater->next_target, values * sizeof(float)},
                  {&updater->loss, sizeof *updater->loss}};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        TRP_TRY(room_add(&updater->room, pieces[i].bytes, pieces[i].memory));
    for (size_t i = 0; i < 2; i++) {
        updater->turns[i].weights = xcalloc(rows, sizeof(float));
        updater->turns[i].errors = xcalloc(rows, sizeof(float));
    }
    return TRP_OK;
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
    trp_device *device = options->device;
    if (!device)
        TRP_TRY(trp_device_find(&device, NULL));
    struct dqn_updater *updater = xcalloc(1, sizeof *updater);
    updater->base.impl = trp_device_is_host(device) ? &host_impl : &device_impl;
    updater->base.device = device;
    updater->room.device = device;
    updater->options = dqn_options(agent);
    struct q_net net = dqn_net(&updater->options);
    updater->spec = q_net_spec(&net, env);
    updater->outputs = (uint32_t)env->action_count;
    declare_source(updater, env, options->batch_size);
    declare_vectors(updater);
    trp_status status = make_room(updater);
    if (status == TRP_OK)
        status = trp_net_create(&updater->net,
                                &(trp_net_options){.spec = &updater->spec,
                                                   .batch = updater->base.sources[0].batch_size,
                                                   .device = device,
                                                   .threads = options->threads,
                                                   .precision = updater->options.precision});
    if (status != TRP_OK) {
        trp_updater_destroy(&updater->base);
        return status;
    }
    *out = &updater->base;
    return TRP_OK;
}
