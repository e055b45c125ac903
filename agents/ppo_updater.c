/* The update of PPO: values of all rows by the parameters as they are, advantages of these, and
 * then epochs of minibatches, each a phase. All of it is put on the learner's queue; the host looks
 * at what came with the batch, shuffles the decisions in it, and reads the numbers of a step once
 * that is collected.
 *
 * A row is a decision where a step was taken and another row follows in its item: others are only
 * bootstrapped from (returns.h). */
#include "ppo.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "gather.h"
#include "options.h"
#include "received.h"
#include "room.h"

enum { PARAMS };

/* What one step leaves on the host until it is collected. */
struct ppo_turn {
    int32_t *order; /* [epochs][rows]: of decisions, on its way to the device */
    struct ppo_numbers numbers;
    uint32_t decisions;
};

/* What is known of decisions, [rows]: of a batch, or of a minibatch. */
struct ppo_rows {
    const void *x, *actions;
    const bool *mask;
    const float *log_probs, *values, *advantages, *returns;
};

struct ppo_updater {
    trp_updater base;
    trp_ppo_options options;
    struct action_space space;
    trp_net_spec spec;
    trp_net *net;
    trp_net_tensor tensors[TRP_NET_TENSORS_MAX];
    struct torso_image image;
    size_t x_bytes, action_bytes;
    const char *action_column;
    struct ppo_turn turns[2]; /* of the last step and the one before */
    struct room room;         /* that what follows lies in: */
    uint8_t *pixels;          /* rows of the image; NULL: as they come */
    int32_t *order, *sizes;
    struct actor_critic_outputs outputs;
    float *discounts, *values, *advantages, *returns; /* of the batch */
    struct {
        uint8_t *x, *actions, *mask;
        float *log_probs, *values, *advantages, *returns, *entropies, *new_log_probs;
    } part; /* of a minibatch */
    struct ppo_numbers *numbers;
};

static uint32_t rows_in(const struct ppo_updater *updater, const trp_update *update)
{
    return update->batches->rows * (updater->options.unroll + 1);
}

static trp_status check_rows(const struct ppo_updater *updater, const trp_update *update)
{
    struct received received = {
        .who = "ppo", .update = update, .steps = updater->options.unroll + 1};
    TRP_TRY(received_flags(&received, "valid"));
    TRP_TRY(received_flags(&received, "first"));
    if (!updater->space.continuous)
        TRP_TRY(received_choices(&received, "action", updater->space.sizes, updater->space.parts));
    return received_mask(&received, AC_MASK, updater->space.size,
                         trp_update_column(update, 0, "valid"));
}

/* ---- before the epochs ----------------------------------------------------------------------- */

static trp_net_rows pass_of(const struct ppo_updater *updater, const trp_update *update,
                            const void *x, uint32_t rows)
{
    trp_net_rows pass = {.rows = rows, .queue = update->queue, .inputs = {x}};
    actor_critic_outputs_of(&updater->outputs, pass.outputs);
    return pass;
}

/* All rows of the batch, with what the network says of them now. */
static struct ppo_rows value_rows(struct ppo_updater *updater, const trp_update *update)
{
    uint32_t rows = rows_in(updater, update);
    const void *x =
        torso_pixels_on(update->queue, &updater->image, rows,
                        trp_update_device_column(update, 0, "observation"), updater->pixels);
    trp_net_rows pass = pass_of(updater, update, x, rows);
    trp_net_forward(updater->net, update->vectors[PARAMS], &pass);
    trp_queue_copy(update->queue, updater->values, updater->outputs.values, rows * sizeof(float));
    struct ppo_advantages_job job = {
        .items = {.steps = updater->options.unroll + 1,
                  .sequences = update->batches->rows,
                  .by_sequence = true,
                  .rewards = trp_update_device_column(update, 0, "reward"),
                  .values = updater->values,
                  .valid = trp_update_device_column(update, 0, "valid"),
                  .first = trp_update_device_column(update, 0, "first")},
        .item_discounts = trp_update_device_column(update, 0, "discount"),
        .discounts = updater->discounts,
        .gamma = updater->options.discount,
        .lambda = updater->options.gae_lambda,
        .advantages = updater->advantages,
        .returns = updater->returns};
    ppo_advantages_on(update->queue, &job);
    return (struct ppo_rows){.x = x,
                             .actions = trp_update_device_column(update, 0, updater->action_column),
                             .mask = trp_update_device_column(update, 0, AC_MASK),
                             .log_probs = trp_update_device_column(update, 0, AC_LOG_PROB),
                             .values = updater->values,
                             .advantages = updater->advantages,
                             .returns = updater->returns};
}

/* Rows that are decisions, epoch by epoch in an order of its own. */
static void draw_orders(struct ppo_updater *updater, const trp_update *update,
                        struct ppo_turn *turn)
{
    const bool *valid = trp_update_column(update, 0, "valid");
    uint32_t rows = rows_in(updater, update), steps = updater->options.unroll + 1;
    turn->decisions = 0;
    for (uint32_t row = 0; row < rows; row++)
        if (valid[row] && row % steps < steps - 1)
            turn->order[turn->decisions++] = (int32_t)row;
    for (uint32_t epoch = 0; epoch < updater->options.epochs; epoch++) {
        int32_t *order = turn->order + (size_t)epoch * turn->decisions;
        if (epoch > 0)
            memcpy(order, order - turn->decisions, turn->decisions * sizeof *order);
        for (uint32_t i = turn->decisions; i > 1; i--) {
            uint32_t other = (uint32_t)trp_rng_below(update->rng, i);
            int32_t kept = order[i - 1];
            order[i - 1] = order[other];
            order[other] = kept;
        }
    }
}

/* ---- phases ---------------------------------------------------------------------------------- */

/* The rows of a minibatch, side by side. */
static struct ppo_rows gather(struct ppo_updater *updater, const trp_update *update,
                              const struct ppo_rows *all, const struct gather_order *order)
{
    trp_queue *queue = update->queue;
    size_t number = sizeof(float);
    gather_on(queue, order, all->x, updater->part.x, updater->x_bytes);
    gather_on(queue, order, all->actions, updater->part.actions, updater->action_bytes);
    gather_on(queue, order, all->mask, updater->part.mask, updater->space.size);
    gather_on(queue, order, all->log_probs, updater->part.log_probs, number);
    gather_on(queue, order, all->values, updater->part.values, number);
    gather_on(queue, order, all->advantages, updater->part.advantages, number);
    gather_on(queue, order, all->returns, updater->part.returns, number);
    return (struct ppo_rows){.x = updater->part.x,
                             .actions = updater->part.actions,
                             .mask = all->mask ? (const bool *)updater->part.mask : NULL,
                             .log_probs = updater->part.log_probs,
                             .values = updater->part.values,
                             .advantages = updater->part.advantages,
                             .returns = updater->part.returns};
}

/* How much of the clips is left at this step. */
static float clip_left(const struct ppo_updater *updater, uint64_t step)
{
    const trp_ppo_options *options = &updater->options;
    if (!options->anneal_clip)
        return 1;
    double done = (double)(step - 1) / (double)options->schedule_steps;
    return (float)fmax(1 - done, 1e-6);
}

static void add_gradient(struct ppo_updater *updater, const trp_update *update,
                         const struct ppo_rows *part, uint32_t rows)
{
    const trp_ppo_options *options = &updater->options;
    trp_net_rows pass = pass_of(updater, update, part->x, rows);
    float left = clip_left(updater, update->step);
    size_t size_bytes = updater->space.parts * sizeof(int32_t);
    struct ppo_loss_job job = {.decisions = {.space = updater->space,
                                             .rows = rows,
                                             .says = updater->outputs.says,
                                             .log_std = updater->outputs.log_std,
                                             .mask = part->mask,
                                             .actions = part->actions},
                               .values = updater->outputs.values,
                               .old_log_probs = part->log_probs,
                               .old_values = part->values,
                               .returns = part->returns,
                               .advantages = updater->part.advantages,
                               .log_probs = updater->part.new_log_probs,
                               .entropies = updater->part.entropies,
                               .clip = left * options->clip,
                               .value_clip = left * options->value_clip,
                               .entropy_weight = options->entropy_weight,
                               .value_weight = options->value_weight,
                               .raw_advantages = options->raw_advantages,
                               .numbers = updater->numbers};
    if (updater->space.sizes)
        job.decisions.space.sizes =
            trp_queue_upload(update->queue, updater->sizes, updater->space.sizes, size_bytes);
    trp_net_forward(updater->net, update->vectors[PARAMS], &pass);
    ppo_loss_on(update->queue, &job);
    trp_net_grads grads = {.params = update->grads[PARAMS]};
    float *outputs[TRP_NET_OUTPUTS_MAX] = {NULL};
    actor_critic_outputs_of(&updater->outputs, outputs);
    for (size_t i = 0; i < TRP_NET_OUTPUTS_MAX; i++)
        grads.outputs[i] = outputs[i];
    trp_net_backward(updater->net, update->vectors[PARAMS], &pass, &grads);
}

static trp_status run_epoch(struct ppo_updater *updater, const trp_update *update,
                            const struct ppo_rows *all, const int32_t *order, uint32_t decisions)
{
    uint32_t parts = updater->options.minibatches;
    for (uint32_t i = 0; i < parts; i++) {
        uint32_t lo = (uint32_t)((uint64_t)decisions * i / parts);
        uint32_t hi = (uint32_t)((uint64_t)decisions * (i + 1) / parts);
        struct gather_order rows = {order + lo, hi - lo, rows_in(updater, update)};
        if (hi == lo)
            continue;
        struct ppo_rows part = gather(updater, update, all, &rows);
        add_gradient(updater, update, &part, hi - lo);
        trp_update_watch(update, PARAMS, &updater->numbers->loss, "loss");
        TRP_TRY(trp_update_apply(update, PARAMS));
    }
    return TRP_OK;
}

/* Whether this epoch's phases ended further from the policy that acted than is wanted. `before` are
 * the numbers that there were before it; then those that there are. */
static trp_status went_too_far(struct ppo_updater *updater, const trp_update *update,
                               struct ppo_numbers *before, bool *too_far)
{
    struct ppo_numbers now;
    *too_far = false;
    if (updater->options.target_kl == 0)
        return TRP_OK;
    trp_queue_copy(update->queue, &now, updater->numbers, sizeof now);
    TRP_TRY(trp_queue_sync(update->queue, trp_queue_mark(update->queue)));
    float mean = (now.divergence - before->divergence) / fmaxf(now.phases - before->phases, 1);
    *before = now;
    *too_far = mean > updater->options.target_kl;
    return TRP_OK;
}

static trp_status run_epochs(struct ppo_updater *updater, const trp_update *update,
                             const struct ppo_turn *turn)
{
    struct ppo_rows all = value_rows(updater, update);
    struct ppo_numbers before = {0};
    size_t count = (size_t)updater->options.epochs * turn->decisions;
    const int32_t *orders =
        trp_queue_upload(update->queue, updater->order, turn->order, count * sizeof *orders);
    bool too_far = false;
    for (uint32_t epoch = 0; epoch < updater->options.epochs && !too_far; epoch++) {
        TRP_TRY(run_epoch(updater, update, &all, orders + (size_t)epoch * turn->decisions,
                          turn->decisions));
        TRP_TRY(went_too_far(updater, update, &before, &too_far));
    }
    return TRP_OK;
}

/* ---- the updater ----------------------------------------------------------------------------- */

static trp_status ppo_collect(trp_updater *base, const trp_update *update)
{
    const struct ppo_turn *turn = &((struct ppo_updater *)base)->turns[update->step % 2];
    const struct ppo_numbers *numbers = &turn->numbers;
    double phases = fmax((double)numbers->phases, 1);
    trp_update_report(update, "policy_loss", (double)numbers->policy_loss / phases);
    trp_update_report(update, "value_loss", (double)numbers->value_loss / phases);
    trp_update_report(update, "entropy", (double)numbers->entropy / phases);
    trp_update_report(update, "divergence", (double)numbers->divergence / phases);
    trp_update_report(update, "clipped", (double)numbers->clipped / phases);
    trp_update_report(update, "phases", (double)numbers->phases);
    trp_update_report(update, "decisions", (double)turn->decisions);
    return TRP_OK;
}

static trp_status ppo_step(trp_updater *base, const trp_update *update)
{
    struct ppo_updater *updater = (struct ppo_updater *)base;
    struct ppo_turn *turn = &updater->turns[update->step % 2];
    TRP_TRY(check_rows(updater, update));
    draw_orders(updater, update, turn);
    trp_queue_zero(update->queue, updater->numbers, sizeof *updater->numbers);
    TRP_TRY(run_epochs(updater, update, turn));
    trp_queue_copy(update->queue, &turn->numbers, updater->numbers, sizeof turn->numbers);
    return base->impl->collect ? TRP_OK : ppo_collect(base, update);
}

static void ppo_init(trp_updater *base, trp_rng *rng, float *const *vectors)
{
    trp_net_init(&((struct ppo_updater *)base)->spec, rng, vectors[PARAMS]);
}

static void ppo_destroy(trp_updater *base)
{
    struct ppo_updater *updater = (struct ppo_updater *)base;
    trp_net_destroy(updater->net);
    room_free(&updater->room);
    for (size_t i = 0; i < 2; i++)
        free(updater->turns[i].order);
    free(updater);
}

/* A host has done everything when a step returns. */
static const trp_updater_impl host_impl = {
    .init = ppo_init,
    .step = ppo_step,
    .destroy = ppo_destroy,
};

static const trp_updater_impl device_impl = {
    .init = ppo_init,
    .step = ppo_step,
    .collect = ppo_collect,
    .destroy = ppo_destroy,
};

/* ---- its creation ---------------------------------------------------------------------------- */

static void declare_items(struct ppo_updater *updater, const trp_env_spec *env, uint32_t batch_size)
{
    const trp_ppo_options *options = &updater->options;
    trp_batch_spec *source = &updater->base.sources[0];
    struct actor_critic network = ppo_actor_critic(options);
    trp_sequence_options sequence = ppo_sequence(options);
    trp_columns extras = {0};
    *source = (trp_batch_spec){.table = PPO_TABLE,
                               .batch_size = batch_size ? batch_size : options->batch_size};
    actor_critic_extras(&network, env, &extras);
    trp_sequence_columns(env, &extras, &sequence, &source->columns);
    trp_columns_cleanup(&extras);
    updater->base.source_count = 1;
    updater->image = torso_image(options->network, env);
    updater->x_bytes = trp_tensor_bytes(&env->observations[0]);
    updater->action_bytes = updater->space.parts * sizeof(float);
    updater->action_column = updater->space.continuous ? AC_SAMPLE : "action";
}

static uint64_t phase_count(const trp_ppo_options *options, uint64_t steps)
{
    return steps * options->epochs * options->minibatches;
}

static void declare_params(struct ppo_updater *updater)
{
    const trp_ppo_options *options = &updater->options;
    bool scheduled = options->schedule_steps > 0;
    updater->base.vectors[PARAMS] = (trp_vector_spec){
        .name = "params",
        .count = trp_net_param_count(&updater->spec),
        .learned = true,
        .optimizer = {.learning_rate = option_itself((double)options->learning_rate),
                      .schedule = scheduled ? options->rate_schedule : TRP_RATE_CONSTANT,
                      .final_rate = scheduled ? (double)options->final_learning_rate : 0,
                      .schedule_steps = phase_count(options, options->schedule_steps),
                      .epsilon = option_decimal(options->adam_epsilon),
                      .max_norm = (double)options->max_gradient_norm},
        .tensors = updater->tensors,
        .tensor_count = trp_net_tensors(&updater->spec, updater->tensors),
    };
    updater->base.vector_count = 1;
}

static trp_status take_room(struct ppo_updater *updater)
{
    size_t rows = (size_t)updater->base.sources[0].batch_size * (updater->options.unroll + 1);
    size_t floats = rows * sizeof(float), says = floats * updater->space.size;
    bool continuous = updater->space.continuous;
    const struct {
        void *memory; /* of a pointer */
        size_t bytes;
    } pieces[] = {{&updater->pixels, rows * torso_pixels_bytes(&updater->image)},
                  {&updater->order, floats * updater->options.epochs},
                  {&updater->sizes, updater->space.parts * sizeof(int32_t)},
                  {&updater->outputs.says, says},
                  {&updater->outputs.log_std, continuous ? says : 0},
                  {&updater->outputs.values, floats},
                  {&updater->discounts, floats},
                  {&updater->values, floats},
                  {&updater->advantages, floats},
                  {&updater->returns, floats},
                  {&updater->part.x, rows * updater->x_bytes},
                  {&updater->part.actions, rows * updater->action_bytes},
                  {&updater->part.mask, updater->space.masked ? rows * updater->space.size : 0},
                  {&updater->part.log_probs, floats},
                  {&updater->part.values, floats},
                  {&updater->part.advantages, floats},
                  {&updater->part.returns, floats},
                  {&updater->part.entropies, floats},
                  {&updater->part.new_log_probs, floats},
                  {&updater->numbers, sizeof *updater->numbers}};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        TRP_TRY(room_add(&updater->room, pieces[i].bytes, pieces[i].memory));
    for (size_t i = 0; i < 2; i++)
        updater->turns[i].order = xcalloc(rows, updater->options.epochs * sizeof(int32_t));
    return TRP_OK;
}

trp_status ppo_updater_create(const trp_agent *agent, const trp_env_spec *env,
                              const trp_updater_options *options, trp_updater **out)
{
    *out = NULL;
    trp_device *device = options->device;
    if (!device)
        TRP_TRY(trp_device_find(&device, NULL));
    struct ppo_updater *updater = xcalloc(1, sizeof *updater);
    updater->base.impl = trp_device_is_host(device) ? &host_impl : &device_impl;
    updater->base.device = device;
    updater->room.device = device;
    updater->options = ppo_options(agent);
    updater->space = action_space(env);
    struct actor_critic network = ppo_actor_critic(&updater->options);
    updater->spec = actor_critic_spec(&network, env);
    declare_items(updater, env, options->batch_size);
    declare_params(updater);
    uint32_t rows = updater->base.sources[0].batch_size * (updater->options.unroll + 1);
    trp_status status = take_room(updater);
    if (status == TRP_OK)
        status = trp_net_create(&updater->net,
                                &(trp_net_options){.spec = &updater->spec,
                                                   .batch = rows,
                                                   .device = device,
                                                   .precision = updater->options.precision});
    if (status != TRP_OK) {
        trp_updater_destroy(&updater->base);
        return status;
    }
    *out = &updater->base;
    return TRP_OK;
}
