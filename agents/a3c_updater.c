/* The update of A3C: one pass over all rows of a batch of sequences, and one phase of the loss on
 * it. All of it is put on the learner's queue; the host looks at what came with the batch, and
 * reads the numbers of a step once that is collected. */
#include "a3c.h"

#include <stdlib.h>

#include "core/alloc.h"

struct a3c_updater {
    struct unroll_updater shared;
    trp_a3c_options options;
    struct unroll_numbers turns[2]; /* of the last step and the one before, on the host */
    struct unroll_steps steps;
    struct unroll_numbers *numbers; /* of the step that it is at; memory of the device */
};

/* ---- a step -------------------------------------------------------------------------------- */

static void a3c_lose(const struct a3c_updater *updater, const trp_update *update)
{
    const trp_a3c_options *options = &updater->options;
    struct unroll_loss loss = unroll_loss(&updater->steps, &updater->shared, update);
    loss.gamma = options->discount;
    loss.entropy_weight = options->entropy_weight;
    loss.value_weight = options->value_weight;
    loss.numbers = updater->numbers;
    a3c_loss_on(update->queue, &loss);
}

static trp_status a3c_collect(trp_updater *base, const trp_update *update)
{
    const struct a3c_updater *updater = (struct a3c_updater *)base;
    const struct unroll_numbers *numbers = &updater->turns[update->step % 2];
    trp_update_report(update, "policy_loss", (double)numbers->policy_loss);
    trp_update_report(update, "value_loss", (double)numbers->value_loss);
    trp_update_report(update, "entropy", (double)numbers->entropy);
    trp_update_report(update, "decisions", (double)numbers->decisions);
    unroll_updater_report_lag(update);
    return TRP_OK;
}

static trp_status a3c_step(trp_updater *base, const trp_update *update)
{
    struct a3c_updater *updater = (struct a3c_updater *)base;
    struct unroll_numbers *seen = &updater->turns[update->step % 2];
    TRP_TRY(unroll_updater_check(&updater->shared, update));
    trp_net_rows pass = unroll_steps_forward(&updater->steps, &updater->shared, update);
    a3c_lose(updater, update);
    TRP_TRY(unroll_steps_apply(&updater->shared, update, &pass, &updater->numbers->loss));
    trp_queue_copy(update->queue, seen, updater->numbers, sizeof *seen);
    return base->impl->collect ? TRP_OK : a3c_collect(base, update);
}

static void a3c_destroy(trp_updater *base)
{
    struct a3c_updater *updater = (struct a3c_updater *)base;
    unroll_updater_cleanup(&updater->shared);
    unroll_steps_cleanup(&updater->steps);
    free(updater);
}

/* A host has done everything when a step returns. */
static const trp_updater_impl host_impl = {
    .init = unroll_updater_draw,
    .step = a3c_step,
    .destroy = a3c_destroy,
};

static const trp_updater_impl device_impl = {
    .init = unroll_updater_draw,
    .step = a3c_step,
    .collect = a3c_collect,
    .destroy = a3c_destroy,
};

/* ---- its creation ---------------------------------------------------------------------------- */

static trp_status a3c_take_room(struct a3c_updater *updater)
{
    struct unroll_updater *shared = &updater->shared;
    TRP_TRY(unroll_steps_init(&updater->steps, shared));
    return room_add(&shared->room, sizeof *updater->numbers, &updater->numbers);
}

trp_status a3c_updater_create(const trp_agent *agent, const trp_env_spec *env,
                              const trp_updater_options *options, trp_updater **out)
{
    *out = NULL;
    trp_updater_options own = *options;
    if (!own.device)
        TRP_TRY(trp_device_find(&own.device, NULL));
    struct a3c_updater *updater = xcalloc(1, sizeof *updater);
    updater->options = a3c_options(agent);
    updater->shared.base.impl = trp_device_is_host(own.device) ? &host_impl : &device_impl;
    struct unroll unroll = a3c_unroll(&updater->options);
    trp_optimizer optimizer = a3c_optimizer(&updater->options);
    trp_status status = unroll_updater_init(&updater->shared, &unroll, env, &own, &optimizer);
    if (status == TRP_OK)
        status = a3c_take_room(updater);
    if (status != TRP_OK) {
        trp_updater_destroy(&updater->shared.base);
        return status;
    }
    *out = &updater->shared.base;
    return TRP_OK;
}
