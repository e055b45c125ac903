/* The update of IMPALA: one pass over all rows of a batch of sequences, from the state that the
 * actor's core had before them, and one phase of the loss on it. All of it is put on the learner's
 * queue; the host looks at what came with the batch, and reads the numbers of a step once that is
 * collected.
 *
 * Items come as [sequences][steps]; the network reads [steps][sequences], in which order the rows
 * are put first. */
#include "impala.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "gather.h"
#include "unroll_updater.h"

/* What one step leaves on the host until it is collected. */
struct impala_turn {
    int32_t *order; /* [rows], on its way to the device */
    struct impala_numbers numbers;
};

/* Memory of the device; rows are [steps][sequences]. */
struct impala_rows {
    int32_t *order;
    uint8_t *observations, *actions;
    bool *mask, *first, *valid; /* mask NULL: everything may be done */
    float *rewards, *item_discounts, *old_log_probs;
    float *discounts, *log_probs, *entropies, *log_ratios, *advantages, *returns, *weights;
    struct impala_numbers *numbers;
};

struct impala_updater {
    struct unroll_updater shared;
    trp_impala_options options;
    struct impala_turn turns[2]; /* of the last step and the one before */
    struct impala_rows rows;
};

/* ---- a step -------------------------------------------------------------------------------- */

static void gather_unrolls(struct impala_updater *updater, const trp_update *update)
{
    const struct unroll_updater *shared = &updater->shared;
    const struct impala_rows *to = &updater->rows;
    const struct gather_column columns[] = {
        {"observation", to->observations, shared->x_bytes},
        {shared->action_column, to->actions, shared->action_bytes},
        {"reward", to->rewards, sizeof *to->rewards},
        {"discount", to->item_discounts, sizeof *to->item_discounts},
        {"first", to->first, sizeof *to->first},
        {"valid", to->valid, sizeof *to->valid},
        {AC_LOG_PROB, to->old_log_probs, sizeof *to->old_log_probs},
        {AC_MASK, to->mask, shared->space.size}};
    gather_steps_on(update, shared->rows, updater->turns[update->step % 2].order, to->order,
                    columns, sizeof columns / sizeof *columns);
}

static trp_net_rows forward(struct impala_updater *updater, const trp_update *update)
{
    struct unroll_updater *shared = &updater->shared;
    const struct impala_rows *from = &updater->rows;
    uint32_t rows = unroll_updater_rows(shared, update);
    const void *x =
        torso_pixels_on(update->queue, &shared->image, rows, from->observations, shared->pixels);
    trp_net_rows pass = unroll_updater_pass(shared, update, x, rows);
    if (updater->options.core) {
        pass.steps = shared->rows;
        pass.resets = (const uint8_t *)from->first;
        pass.state = trp_update_device_column(update, 0, AC_CORE);
    }
    trp_net_forward(shared->net, update->vectors[UNROLL_PARAMS], &pass);
    return pass;
}

static void lose_batch(const struct impala_updater *updater, const trp_update *update)
{
    const trp_impala_options *options = &updater->options;
    const struct unroll_updater *shared = &updater->shared;
    const struct impala_rows *rows = &updater->rows;
    struct impala_loss_job job = {
        .decisions = unroll_updater_decisions(shared, update, unroll_updater_rows(shared, update),
                                              rows->mask, rows->actions),
        .values = shared->outputs.values,
        .items = {.steps = shared->rows,
                  .sequences = update->batches->rows,
                  .rewards = rows->rewards,
                  .valid = rows->valid,
                  .first = rows->first},
        .item_discounts = rows->item_discounts,
        .old_log_probs = rows->old_log_probs,
        .vtrace = {.rho_bar = options->rho_bar,
                   .c_bar = options->c_bar,
                   .policy_rho_bar = options->policy_rho_bar,
                   .lambda = options->lambda},
        .gamma = options->discount,
        .entropy_weight = options->entropy_weight,
        .value_weight = options->value_weight,
        .discounts = rows->discounts,
        .log_probs = rows->log_probs,
        .entropies = rows->entropies,
        .log_ratios = rows->log_ratios,
        .advantages = rows->advantages,
        .returns = rows->returns,
        .weights = rows->weights,
        .numbers = rows->numbers};
    impala_loss_on(update->queue, &job);
}

static trp_status impala_collect(trp_updater *base, const trp_update *update)
{
    const struct impala_updater *updater = (struct impala_updater *)base;
    const struct impala_numbers *numbers = &updater->turns[update->step % 2].numbers;
    trp_update_report(update, "policy_loss", (double)numbers->policy_loss);
    trp_update_report(update, "value_loss", (double)numbers->value_loss);
    trp_update_report(update, "entropy", (double)numbers->entropy);
    trp_update_report(update, "ratio", (double)numbers->ratio);
    trp_update_report(update, "clipped", (double)numbers->clipped);
    trp_update_report(update, "decisions", (double)numbers->decisions);
    unroll_updater_report_lag(update);
    return TRP_OK;
}

static trp_status impala_step(trp_updater *base, const trp_update *update)
{
    struct impala_updater *updater = (struct impala_updater *)base;
    struct impala_turn *turn = &updater->turns[update->step % 2];
    TRP_TRY(unroll_updater_check(&updater->shared, update));
    gather_unrolls(updater, update);
    trp_net_rows pass = forward(updater, update);
    lose_batch(updater, update);
    unroll_updater_backward(&updater->shared, update, &pass);
    trp_update_watch(update, UNROLL_PARAMS, &updater->rows.numbers->loss, "loss");
    TRP_TRY(trp_update_apply(update, UNROLL_PARAMS));
    trp_queue_copy(update->queue, &turn->numbers, updater->rows.numbers, sizeof turn->numbers);
    return base->impl->collect ? TRP_OK : impala_collect(base, update);
}

static void impala_destroy(trp_updater *base)
{
    struct impala_updater *updater = (struct impala_updater *)base;
    unroll_updater_cleanup(&updater->shared);
    for (size_t i = 0; i < 2; i++)
        free(updater->turns[i].order);
    free(updater);
}

/* A host has done everything when a step returns. */
static const trp_updater_impl host_impl = {
    .init = unroll_updater_draw,
    .step = impala_step,
    .destroy = impala_destroy,
};

static const trp_updater_impl device_impl = {
    .init = unroll_updater_draw,
    .step = impala_step,
    .collect = impala_collect,
    .destroy = impala_destroy,
};

/* ---- its creation ---------------------------------------------------------------------------- */

static trp_status make_unrolls(struct impala_updater *updater)
{
    struct unroll_updater *shared = &updater->shared;
    struct impala_rows *to = &updater->rows;
    size_t rows = (size_t)shared->base.sources[0].batch_size * shared->rows;
    size_t floats = rows * sizeof(float);
    const struct {
        void *memory; /* of a pointer */
        size_t bytes;
    } pieces[] = {{&to->order, rows * sizeof *to->order},
                  {&to->observations, rows * shared->x_bytes},
                  {&to->actions, rows * shared->action_bytes},
                  {&to->mask, shared->space.masked ? rows * shared->space.size : 0},
                  {&to->first, rows},
                  {&to->valid, rows},
                  {&to->rewards, floats},
                  {&to->item_discounts, floats},
                  {&to->old_log_probs, floats},
                  {&to->discounts, floats},
                  {&to->log_probs, floats},
                  {&to->entropies, floats},
                  {&to->log_ratios, floats},
                  {&to->advantages, floats},
                  {&to->returns, floats},
                  {&to->weights, floats},
                  {&to->numbers, sizeof *to->numbers}};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        TRP_TRY(room_add(&shared->room, pieces[i].bytes, pieces[i].memory));
    for (size_t i = 0; i < 2; i++)
        updater->turns[i].order = xcalloc(rows, sizeof(int32_t));
    return TRP_OK;
}

trp_status impala_updater_create(const trp_agent *agent, const trp_env_spec *env,
                                 const trp_updater_options *options, trp_updater **out)
{
    *out = NULL;
    trp_updater_options own = *options;
    if (!own.device)
        TRP_TRY(trp_device_find(&own.device, NULL));
    struct impala_updater *updater = xcalloc(1, sizeof *updater);
    updater->options = impala_options(agent);
    updater->shared.base.impl = trp_device_is_host(own.device) ? &host_impl : &device_impl;
    struct unroll unroll = impala_unroll(&updater->options);
    trp_optimizer optimizer = impala_optimizer(&updater->options);
    trp_status status = unroll_updater_init(&updater->shared, &unroll, env, &own, &optimizer);
    if (status == TRP_OK)
        status = make_unrolls(updater);
    if (status != TRP_OK) {
        trp_updater_destroy(&updater->shared.base);
        return status;
    }
    *out = &updater->shared.base;
    return TRP_OK;
}
