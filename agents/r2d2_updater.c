/* The update of R2D2, on sequences: both networks bring their core's state up to date over the
 * burn-in, from what the actor stored; over the rest they say values, which the loss compares
 * (losses.h), and the online one is differentiated, no further back than to the burn-in's end. All
 * of it is put on the learner's queue.
 *
 * Items come as [items][steps]; networks read [steps][items], in which order the rows are put
 * first. What comes in batches is from a peer: it is checked before it indexes anything. */
#include "r2d2.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/losses.h>
#include "bodies/r2d2.h"
#include "core/alloc.h"
#include "gather.h"
#include "options.h"
#include "received.h"
#include "replayed.h"
#include "room.h"
#include "target.h"
#include "torso.h"

enum { PARAMS, TARGET, VECTORS };

/* What one step leaves on the host until it is collected. */
struct r2d2_turn {
    int32_t *order;    /* [rows], on its way to the device */
    float *weights;    /* [items], the same */
    float *priorities; /* [items] */
    trp_loss loss;
};

/* Memory of the device. Rows are [steps][items]. */
struct r2d2_rows {
    int32_t *order;
    uint8_t *observations; /* as the columns have them */
    uint8_t *pixels;       /* as the network reads them; NULL: the same */
    int32_t *actions;
    float *rewards, *item_discounts, *discounts;
    bool *first, *valid;
    bool *mask;          /* NULL: everything may be done */
    float *q, *target_q; /* [rows][outputs] */
    float *targets, *errors;
    float *state, *target_state; /* after the burn-in, [items][state_width] */
    float *weights, *priorities; /* [items] */
    trp_loss *loss;
};

struct r2d2_updater {
    trp_updater base;
    trp_r2d2_options options;
    trp_net_spec spec;
    trp_net *net;
    trp_net_tensor tensors[TRP_NET_TENSORS_MAX]; /* of params */
    uint32_t outputs, steps;                     /* of an item */
    size_t observation_bytes, state_width;
    bool masked;
    struct torso_image image;
    struct r2d2_turn turns[2]; /* of the last step and the one before */
    struct room room;          /* that what follows lies in: */
    struct r2d2_rows rows;
};

/* ---- rows ---------------------------------------------------------------------------------- */

static trp_status check_sequences(const struct r2d2_updater *updater, const trp_update *update)
{
    struct received received = {.who = "r2d2", .update = update, .steps = updater->steps};
    TRP_TRY(received_choices(&received, "action", &(int32_t){(int32_t)updater->outputs}, 1));
    TRP_TRY(received_flags(&received, "first"));
    TRP_TRY(received_flags(&received, "valid"));
    return received_mask(&received, R2D2_MASK, updater->outputs,
                         trp_update_column(update, 0, "valid"));
}

static void sort_rows(struct r2d2_updater *updater, const trp_update *update)
{
    const struct r2d2_rows *to = &updater->rows;
    const struct gather_column columns[] = {
        {"observation", to->observations, updater->observation_bytes},
        {"action", to->actions, sizeof *to->actions},
        {"reward", to->rewards, sizeof *to->rewards},
        {"discount", to->item_discounts, sizeof *to->item_discounts},
        {"first", to->first, sizeof *to->first},
        {"valid", to->valid, sizeof *to->valid},
        {R2D2_MASK, to->mask, updater->outputs}};
    gather_steps_on(update, updater->steps, updater->turns[update->step % 2].order, to->order,
                    columns, sizeof columns / sizeof *columns);
}

/* ---- passes -------------------------------------------------------------------------------- */

/* The steps [begin, end) of all items. */
static trp_net_rows unroll_steps(const struct r2d2_updater *updater, const trp_update *update,
                                 const void *observations, uint32_t begin, uint32_t end, float *q)
{
    size_t items = update->batches->rows, at = begin * items;
    size_t row_bytes = updater->observation_bytes;
    return (trp_net_rows){.rows = (uint32_t)((end - begin) * items),
                          .queue = update->queue,
                          .inputs = {(const uint8_t *)observations + at * row_bytes},
                          .outputs = {q + at * updater->outputs},
                          .steps = end - begin,
                          .resets = (const uint8_t *)updater->rows.first + at};
}

/* Values of every row behind the burn-in, by one network; returns the pass that wrote them. */
static trp_net_rows unroll(struct r2d2_updater *updater, const trp_update *update,
                           const void *observations, size_t vector, float *q, float *state)
{
    uint32_t burn_in = (uint32_t)updater->options.burn_in;
    const float *params = update->vectors[vector];
    const float *stored = trp_update_device_column(update, 0, R2D2_STATE);
    if (burn_in > 0) {
        trp_net_rows burn = unroll_steps(updater, update, observations, 0, burn_in, q);
        burn.state = stored;
        burn.end_state = state;
        trp_net_forward(updater->net, params, &burn);
    }
    trp_net_rows rest = unroll_steps(updater, update, observations, burn_in, updater->steps, q);
    rest.state = burn_in > 0 ? state : stored;
    trp_net_forward(updater->net, params, &rest);
    return rest;
}

/* ---- loss ---------------------------------------------------------------------------------- */

#define AT(member) offsetof(struct r2d2_loss_arguments, member)

static void loss_on(trp_queue *queue, const struct r2d2_loss_arguments *job)
{
    static const trp_kernel kernel = {.name = "r2d2.loss", .run = r2d2_loss_run};
    size_t items = job->batch.trajectories.sequences;
    size_t rows = job->batch.trajectories.steps * items, floats = rows * sizeof(float);
    size_t values = job->batch.actions * floats;
    trp_operand operands[] = {
        {AT(batch.trajectories.rewards), floats, TRP_READ},
        {AT(batch.trajectories.valid), rows, TRP_READ},
        {AT(batch.trajectories.first), rows, TRP_READ},
        {AT(batch.taken), rows * sizeof(int32_t), TRP_READ},
        {AT(batch.weights), items * sizeof(float), TRP_READ},
        {AT(item_discounts), floats, TRP_READ},
        {AT(discounts), floats, TRP_WRITE},
        {AT(mask), rows * job->batch.actions, TRP_READ | TRP_WRITE},
        {AT(q), values, TRP_READ | TRP_WRITE},
        {AT(target_q), values, TRP_READ},
        {AT(targets), floats, TRP_WRITE},
        {AT(errors), floats, TRP_WRITE},
        {AT(priorities), items * sizeof(float), TRP_WRITE},
        {AT(loss), sizeof *job->loss, TRP_WRITE},
    };
    trp_queue_run(queue, &kernel, job, sizeof *job, operands, sizeof operands / sizeof *operands);
}

static void lose(const struct r2d2_updater *updater, const trp_update *update, const float *weights)
{
    const trp_r2d2_options *options = &updater->options;
    const struct r2d2_rows *rows = &updater->rows;
    uint32_t burn_in = (uint32_t)options->burn_in, items = update->batches->rows;
    size_t at = (size_t)burn_in * items, value = at * updater->outputs;
    struct r2d2_loss_arguments job = {
        .options = {.n_step = options->n_step,
                    .epsilon = options->rescaling_epsilon,
                    .eta = options->priority_eta > 0 ? options->priority_eta : -1,
                    .huber_delta = options->huber_delta > 0 ? options->huber_delta : INFINITY},
        .batch = {.trajectories = {.steps = updater->steps - burn_in,
                                   .sequences = items,
                                   .rewards = rows->rewards + at,
                                   .valid = rows->valid + at,
                                   .first = rows->first + at},
                  .actions = updater->outputs,
                  .taken = rows->actions + at,
                  .weights = weights},
        .gamma = options->discount,
        .item_discounts = rows->item_discounts + at,
        .discounts = rows->discounts + at,
        .mask = rows->mask ? rows->mask + value : NULL,
        .q = rows->q + value,
        .target_q = rows->target_q + value,
        .targets = rows->targets + at,
        .errors = rows->errors + at,
        .priorities = rows->priorities,
        .loss = rows->loss};
    loss_on(update->queue, &job);
}

/* ---- a step -------------------------------------------------------------------------------- */

static trp_status differentiate_sequences(struct r2d2_updater *updater, const trp_update *update)
{
    struct r2d2_rows *rows = &updater->rows;
    uint32_t count = update->batches->rows * updater->steps;
    const float *weights;
    TRP_TRY(replayed_weights(update, (double)updater->options.importance_exponent,
                             updater->turns[update->step % 2].weights, rows->weights, &weights));
    sort_rows(updater, update);
    const void *observations =
        torso_pixels_on(update->queue, &updater->image, count, rows->observations, rows->pixels);
    unroll(updater, update, observations, TARGET, rows->target_q, rows->target_state);
    trp_net_rows pass = unroll(updater, update, observations, PARAMS, rows->q, rows->state);
    lose(updater, update, weights);
    trp_update_backward(update, PARAMS, 0, updater->net, &pass,
                        &(trp_net_grads){.outputs = {pass.outputs[0]}});
    return TRP_OK;
}

static trp_status r2d2_collect(trp_updater *base, const trp_update *update)
{
    struct r2d2_updater *updater = (struct r2d2_updater *)base;
    const struct r2d2_turn *turn = &updater->turns[update->step % 2];
    double *priorities = update->priorities[0];
    trp_update_report(update, "loss", turn->loss.loss);
    trp_update_report(update, "mean_q", turn->loss.value);
    for (uint32_t item = 0; priorities && item < update->batches->rows; item++)
        priorities[item] = turn->priorities[item];
    return TRP_OK;
}

static trp_status r2d2_step(trp_updater *base, const trp_update *update)
{
    struct r2d2_updater *updater = (struct r2d2_updater *)base;
    struct r2d2_turn *turn = &updater->turns[update->step % 2];
    const struct r2d2_rows *rows = &updater->rows;
    struct target_rule target = {.period = updater->options.target_period};
    TRP_TRY(check_sequences(updater, update));
    TRP_TRY(differentiate_sequences(updater, update));
    trp_update_watch(update, PARAMS, &rows->loss->loss, "loss");
    TRP_TRY(trp_update_apply(update, PARAMS));
    target_follow(&target, update, TARGET, PARAMS, base->vectors[PARAMS].count);
    trp_queue_copy(update->queue, &turn->loss, rows->loss, sizeof turn->loss);
    if (update->priorities[0])
        trp_queue_copy(update->queue, turn->priorities, rows->priorities,
                       update->batches->rows * sizeof *turn->priorities);
    return base->impl->collect ? TRP_OK : r2d2_collect(base, update);
}

static void r2d2_init(trp_updater *base, trp_rng *rng, float *const *vectors)
{
    struct r2d2_updater *updater = (struct r2d2_updater *)base;
    trp_net_init(&updater->spec, rng, vectors[PARAMS]);
    memcpy(vectors[TARGET], vectors[PARAMS], base->vectors[PARAMS].count * sizeof(float));
}

static void r2d2_destroy(trp_updater *base)
{
    struct r2d2_updater *updater = (struct r2d2_updater *)base;
    trp_net_destroy(updater->net);
    room_free(&updater->room);
    for (size_t i = 0; i < 2; i++) {
        free(updater->turns[i].order);
        free(updater->turns[i].weights);
        free(updater->turns[i].priorities);
    }
    free(updater);
}

/* A host has done everything when a step returns. */
static const trp_updater_impl host_impl = {
    .init = r2d2_init,
    .step = r2d2_step,
    .destroy = r2d2_destroy,
};

static const trp_updater_impl device_impl = {
    .init = r2d2_init,
    .step = r2d2_step,
    .collect = r2d2_collect,
    .destroy = r2d2_destroy,
};

/* ---- making one ---------------------------------------------------------------------------- */

static void declare_sequences(struct r2d2_updater *updater, const trp_env_spec *env,
                              uint32_t batch_size)
{
    trp_batch_spec *source = &updater->base.sources[0];
    trp_sequence_options sequence = r2d2_sequence(&updater->options);
    *source = (trp_batch_spec){
        .table = R2D2_TABLE,
        .batch_size = batch_size ? batch_size : updater->options.batch_size,
        .writes_priorities = updater->options.priority_exponent > 0,
        .stacks = torso_stacks(env),
    };
    trp_columns extras = {0};
    r2d2_extras(&updater->options, env, &extras);
    trp_sequence_columns(env, &extras, &sequence, &source->columns);
    trp_columns_cleanup(&extras);
    updater->base.source_count = 1;
}

static void declare_networks(struct r2d2_updater *updater)
{
    const trp_r2d2_options *options = &updater->options;
    size_t count = trp_net_param_count(&updater->spec);
    updater->base.vectors[PARAMS] = (trp_vector_spec){
        .name = "params",
        .count = count,
        .learned = true,
        .optimizer = {.learning_rate = option_itself((double)options->learning_rate),
                      .epsilon = option_decimal(options->adam_epsilon),
                      .max_norm = (double)options->max_gradient_norm},
        .tensors = updater->tensors,
        .tensor_count = trp_net_tensors(&updater->spec, updater->tensors),
    };
    updater->base.vectors[TARGET] = (trp_vector_spec){.name = "target", .count = count};
    updater->base.vector_count = VECTORS;
}

static trp_status make_rows(struct r2d2_updater *updater)
{
    struct r2d2_rows *to = &updater->rows;
    size_t items = updater->base.sources[0].batch_size, rows = items * updater->steps;
    size_t values = rows * updater->outputs * sizeof(float);
    size_t states = items * updater->state_width * sizeof(float);
    const struct {
        void *memory; /* of a pointer */
        size_t bytes;
    } pieces[] = {{&to->order, rows * sizeof *to->order},
                  {&to->observations, rows * updater->observation_bytes},
                  {&to->pixels, rows * torso_pixels_bytes(&updater->image)},
                  {&to->actions, rows * sizeof *to->actions},
                  {&to->rewards, rows * sizeof(float)},
                  {&to->item_discounts, rows * sizeof(float)},
                  {&to->discounts, rows * sizeof(float)},
                  {&to->first, rows},
                  {&to->valid, rows},
                  {&to->mask, updater->masked ? rows * updater->outputs : 0},
                  {&to->q, values},
                  {&to->target_q, values},
                  {&to->targets, rows * sizeof(float)},
                  {&to->errors, rows * sizeof(float)},
                  {&to->state, states},
                  {&to->target_state, states},
                  {&to->weights, items * sizeof(float)},
                  {&to->priorities, items * sizeof(float)},
                  {&to->loss, sizeof *to->loss}};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        TRP_TRY(room_add(&updater->room, pieces[i].bytes, pieces[i].memory));
    for (size_t i = 0; i < 2; i++) {
        updater->turns[i].order = xcalloc(rows, sizeof(int32_t));
        updater->turns[i].weights = xcalloc(items, sizeof(float));
        updater->turns[i].priorities = xcalloc(items, sizeof(float));
    }
    return TRP_OK;
}

static trp_status make_net(struct r2d2_updater *updater, uint32_t threads)
{
    TRP_TRY(r2d2_check_batch(&updater->options, updater->base.sources[0].batch_size));
    TRP_TRY(make_rows(updater));
    return trp_net_create(
        &updater->net,
        &(trp_net_options){.spec = &updater->spec,
                           .batch = updater->base.sources[0].batch_size * updater->steps,
                           .device = updater->base.device,
                           .threads = threads,
                           .precision = updater->options.precision});
}

trp_status r2d2_updater_create(const trp_agent *agent, const trp_env_spec *env,
                               const trp_updater_options *options, trp_updater **out)
{
    *out = NULL;
    trp_device *device = options->device;
    if (!device)
        TRP_TRY(trp_device_find(&device, NULL));
    struct r2d2_updater *updater = xcalloc(1, sizeof *updater);
    updater->base.impl = trp_device_is_host(device) ? &host_impl : &device_impl;
    updater->base.device = device;
    updater->room.device = device;
    updater->options = r2d2_options(agent);
    struct q_net net = r2d2_net(&updater->options);
    updater->spec = q_net_spec(&net, env);
    updater->outputs = (uint32_t)env->action_count;
    updater->steps = r2d2_sequence(&updater->options).length;
    updater->observation_bytes = trp_tensor_bytes(&env->observations[0]);
    updater->state_width = trp_net_state_width(&updater->spec);
    updater->masked = env->masked;
    updater->image = torso_image(updater->options.network, env);
    declare_sequences(updater, env, options->batch_size);
    declare_networks(updater);
    trp_status status = make_net(updater, options->threads);
    if (status != TRP_OK) {
        trp_updater_destroy(&updater->base);
        return status;
    }
    *out = &updater->base;
    return TRP_OK;
}
