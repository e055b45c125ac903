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
#include "options.h"
#include "unroll_updater.h"

/* What one step leaves on the host until it is collected. */
struct ppo_turn {
    int32_t *order; /* [epochs][rows]: of decisions, on its way to the device, as what follows */
    struct ppo_clips clips;
    struct ppo_numbers numbers;
    uint32_t decisions;
};

/* What is known of decisions, [rows]: of a batch, or of a minibatch. */
struct ppo_rows {
    const void *x, *actions;
    const bool *mask;
    const float *log_probs, *values, *advantages, *returns;
    const struct ppo_clips *clips; /* of all of them */
};

struct ppo_updater {
    struct unroll_updater shared;
    trp_ppo_options options;
    struct ppo_turn turns[2];                         /* of the last step and the one before */
    int32_t *order;                                   /* memory of the device, as what follows: */
    float *discounts, *values, *advantages, *returns; /* of the batch */
    struct {
        uint8_t *x, *actions, *mask;
        float *log_probs, *values, *advantages, *returns, *entropies, *new_log_probs;
    } part;                  /* of a minibatch */
    struct ppo_clips *clips; /* room */
    struct ppo_numbers *numbers;
};

/* ---- before the epochs ----------------------------------------------------------------------- */

/* All rows of the batch, with what the network says of them now. */
static struct ppo_rows value_rows(struct ppo_updater *updater, const trp_update *update)
{
    struct unroll_updater *shared = &updater->shared;
    uint32_t rows = unroll_updater_rows(shared, update);
    const void *x =
        torso_pixels_on(update->queue, &shared->image, rows,
                        trp_update_device_column(update, 0, "observation"), shared->pixels);
    trp_net_rows pass = unroll_updater_pass(shared, update, x, rows);
    trp_net_forward(shared->net, update->vectors[UNROLL_PARAMS], &pass);
    trp_queue_copy(update->queue, updater->values, shared->outputs.values, rows * sizeof(float));
    struct ppo_advantages_arguments job = {
        .items = {.steps = shared->rows,
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
                             .actions = trp_update_device_column(update, 0, shared->action_column),
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
    uint32_t rows = unroll_updater_rows(&updater->shared, update), steps = updater->shared.rows;
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
                              const struct ppo_rows *all, const trp_row_order *order)
{
    trp_queue *queue = update->queue;
    size_t number = sizeof(float);
    trp_queue_gather(queue, order, all->x, updater->part.x, updater->shared.x_bytes);
    trp_queue_gather(queue, order, all->actions, updater->part.actions,
                     updater->shared.action_bytes);
    trp_queue_gather(queue, order, all->mask, updater->part.mask, updater->shared.space.size);
    trp_queue_gather(queue, order, all->log_probs, updater->part.log_probs, number);
    trp_queue_gather(queue, order, all->values, updater->part.values, number);
    trp_queue_gather(queue, order, all->advantages, updater->part.advantages, number);
    trp_queue_gather(queue, order, all->returns, updater->part.returns, number);
    return (struct ppo_rows){.x = updater->part.x,
                             .actions = updater->part.actions,
                             .mask = all->mask ? (const bool *)updater->part.mask : NULL,
                             .log_probs = updater->part.log_probs,
                             .values = updater->part.values,
                             .advantages = updater->part.advantages,
                             .returns = updater->part.returns,
                             .clips = all->clips};
}

/* What is left of them at this step. */
static struct ppo_clips clips_at(const trp_ppo_options *options, uint64_t step)
{
    double done = 0;
    if (options->anneal_clip)
        done = (double)(step - 1) / (double)options->schedule_steps;
    float left = (float)fmax(1 - done, 1e-6);
    return (struct ppo_clips){left * options->clip, left * options->value_clip};
}

static void add_gradient(struct ppo_updater *updater, const trp_update *update,
                         const struct ppo_rows *part, uint32_t rows)
{
    const trp_ppo_options *options = &updater->options;
    struct unroll_updater *shared = &updater->shared;
    trp_net_rows pass = unroll_updater_pass(shared, update, part->x, rows);
    struct ppo_loss_arguments job = {
        .decisions = unroll_updater_decisions(shared, update, rows, part->mask, part->actions),
        .values = shared->outputs.values,
        .old_log_probs = part->log_probs,
        .old_values = part->values,
        .returns = part->returns,
        .advantages = updater->part.advantages,
        .log_probs = updater->part.new_log_probs,
        .entropies = updater->part.entropies,
        .clips = part->clips,
        .entropy_weight = options->entropy_weight,
        .value_weight = options->value_weight,
        .raw_advantages = options->raw_advantages,
        .numbers = updater->numbers};
    trp_net_forward(shared->net, update->vectors[UNROLL_PARAMS], &pass);
    ppo_loss_on(update->queue, &job);
    unroll_updater_backward(shared, update, &pass);
}

static trp_status run_epoch(struct ppo_updater *updater, const trp_update *update,
                            const struct ppo_rows *all, const int32_t *order, uint32_t decisions)
{
    uint32_t parts = updater->options.minibatches;
    for (uint32_t i = 0; i < parts; i++) {
        uint32_t lo = (uint32_t)((uint64_t)decisions * i / parts);
        uint32_t hi = (uint32_t)((uint64_t)decisions * (i + 1) / parts);
        trp_row_order rows = {order + lo, hi - lo, unroll_updater_rows(&updater->shared, update)};
        if (hi == lo)
            continue;
        struct ppo_rows part = gather(updater, update, all, &rows);
        add_gradient(updater, update, &part, hi - lo);
        trp_update_watch(update, UNROLL_PARAMS, &updater->numbers->loss, "loss");
        TRP_TRY(trp_update_apply(update, UNROLL_PARAMS));
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
    all.clips = trp_queue_upload(update->queue, updater->clips, &turn->clips, sizeof turn->clips);
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
    unroll_updater_report_lag(update);
    return TRP_OK;
}

static trp_status ppo_step(trp_updater *base, const trp_update *update)
{
    struct ppo_updater *updater = (struct ppo_updater *)base;
    struct ppo_turn *turn = &updater->turns[update->step % 2];
    TRP_TRY(unroll_updater_check(&updater->shared, update));
    draw_orders(updater, update, turn);
    turn->clips = clips_at(&updater->options, update->step);
    trp_queue_zero(update->queue, updater->numbers, sizeof *updater->numbers);
    TRP_TRY(run_epochs(updater, update, turn));
    trp_queue_copy(update->queue, &turn->numbers, updater->numbers, sizeof turn->numbers);
    return base->impl->collect ? TRP_OK : ppo_collect(base, update);
}

static void ppo_destroy(trp_updater *base)
{
    struct ppo_updater *updater = (struct ppo_updater *)base;
    unroll_updater_cleanup(&updater->shared);
    for (size_t i = 0; i < 2; i++)
        free(updater->turns[i].order);
    free(updater);
}

/* A host has done everything when a step returns. */
static const trp_updater_impl host_impl = {
    .init = unroll_updater_draw,
    .step = ppo_step,
    .destroy = ppo_destroy,
};

static const trp_updater_impl device_impl = {
    .init = unroll_updater_draw,
    .step = ppo_step,
    .collect = ppo_collect,
    .destroy = ppo_destroy,
};

/* ---- its creation ---------------------------------------------------------------------------- */

static trp_optimizer ppo_optimizer(const trp_ppo_options *options)
{
    struct unroll_rate rate = ppo_rate(options);
    trp_optimizer optimizer = {.learning_rate = option_itself((double)options->learning_rate),
                               .epsilon = option_decimal(options->adam_epsilon),
                               .max_norm = (double)options->max_gradient_norm};
    unroll_rate_set(&rate, &optimizer);
    return optimizer;
}

static trp_status take_room(struct ppo_updater *updater)
{
    struct unroll_updater *shared = &updater->shared;
    size_t rows = (size_t)shared->base.sources[0].batch_size * shared->rows;
    size_t floats = rows * sizeof(float);
    const struct {
        void *memory; /* of a pointer */
        size_t bytes;
    } pieces[] = {{&updater->order, floats * updater->options.epochs},
                  {&updater->discounts, floats},
                  {&updater->values, floats},
                  {&updater->advantages, floats},
                  {&updater->returns, floats},
                  {&updater->part.x, rows * shared->x_bytes},
                  {&updater->part.actions, rows * shared->action_bytes},
                  {&updater->part.mask, shared->space.masked ? rows * shared->space.size : 0},
                  {&updater->part.log_probs, floats},
                  {&updater->part.values, floats},
                  {&updater->part.advantages, floats},
                  {&updater->part.returns, floats},
                  {&updater->part.entropies, floats},
                  {&updater->part.new_log_probs, floats},
                  {&updater->clips, sizeof *updater->clips},
                  {&updater->numbers, sizeof *updater->numbers}};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        TRP_TRY(room_add(&shared->room, pieces[i].bytes, pieces[i].memory));
    for (size_t i = 0; i < 2; i++)
        updater->turns[i].order = xcalloc(rows, updater->options.epochs * sizeof(int32_t));
    return TRP_OK;
}

trp_status ppo_updater_create(const trp_agent *agent, const trp_env_spec *env,
                              const trp_updater_options *options, trp_updater **out)
{
    *out = NULL;
    trp_updater_options own = *options;
    if (!own.device)
        TRP_TRY(trp_device_find(&own.device, NULL));
    struct ppo_updater *updater = xcalloc(1, sizeof *updater);
    updater->options = ppo_options(agent);
    updater->shared.base.impl = trp_device_is_host(own.device) ? &host_impl : &device_impl;
    updater->shared.base.phases_vary = true;
    struct unroll unroll = ppo_unroll(&updater->options);
    trp_optimizer optimizer = ppo_optimizer(&updater->options);
    trp_status status = unroll_updater_init(&updater->shared, &unroll, env, &own, &optimizer);
    if (status == TRP_OK)
        status = take_room(updater);
    if (status != TRP_OK) {
        trp_updater_destroy(&updater->shared.base);
        return status;
    }
    *out = &updater->shared.base;
    return TRP_OK;
}
