/* The update of IMPALA: one pass over all rows of a batch of sequences, and one phase of the loss
 * on it. All of it is put on the learner's queue; the host looks at what came with the batch, and
 * reads the numbers of a step once that is collected. */
#include "impala.h"

#include <stdlib.h>

#include "core/alloc.h"

struct impala_numbers {
    struct unroll_numbers loss;
    struct impala_ratios ratios;
};

struct impala_updater {
    struct unroll_updater shared;
    trp_impala_options options;
    struct impala_numbers turns[2]; /* of the last step and the one before, on the host */
    struct unroll_steps steps;
    float *log_ratios;              /* [rows], memory of the device, and so are: */
    struct impala_numbers *numbers; /* of the step that it is at */
};

/* ---- a step -------------------------------------------------------------------------------- */

static void lose_batch(const struct impala_updater *updater, const trp_update *update)
{
    const trp_impala_options *options = &updater->options;
    struct impala_loss_arguments job = {
        .loss = unroll_loss(&updater->steps, &updater->shared, update),
        .old_log_probs = updater->steps.old_log_probs,
        .vtrace = {.rho_bar = options->rho_bar,
                   .c_bar = options->c_bar,
                   .policy_rho_bar = options->policy_rho_bar,
                   .lambda = options->lambda},
        .log_ratios = updater->log_ratios,
        .ratios = &updater->numbers->ratios,
    };
    job.loss.gamma = options->discount;
    job.loss.entropy_weight = options->entropy_weight;
    job.loss.value_weight = options->value_weight;
    job.loss.numbers = &updater->numbers->loss;
    impala_loss_on(update->queue, &job);
}

static trp_status impala_collect(trp_updater *base, const trp_update *update)
{
    const struct impala_updater *updater = (struct impala_updater *)base;
    const struct impala_numbers *numbers = &updater->turns[update->step % 2];
    trp_update_report(update, "policy_loss", (double)numbers->loss.policy_loss);
    trp_update_report(update, "value_loss", (double)numbers->loss.value_loss);
    trp_update_report(update, "entropy", (double)numbers->loss.entropy);
    trp_update_report(update, "ratio", (double)numbers->ratios.mean);
    trp_update_report(update, "clipped", (double)numbers->ratios.clipped);
    trp_update_report(update, "decisions", (double)numbers->loss.decisions);
    unroll_updater_report_lag(update);
    return TRP_OK;
}

static trp_status impala_step(trp_updater *base, const trp_update *update)
{
    struct impala_updater *updater = (struct impala_updater *)base;
    struct impala_numbers *seen = &updater->turns[update->step % 2];
    TRP_TRY(unroll_updater_check(&updater->shared, update));
    trp_net_rows pass = unroll_steps_forward(&updater->steps, &updater->shared, update);
    lose_batch(updater, update);
    TRP_TRY(unroll_steps_apply(&updater->shared, update, &pass, &updater->numbers->loss.loss));
    trp_queue_copy(update->queue, seen, updater->numbers, sizeof *seen);
    return base->impl->collect ? TRP_OK : impala_collect(base, update);
}

static void impala_destroy(trp_updater *base)
{
    struct impala_updater *updater = (struct impala_updater *)base;
    unroll_updater_cleanup(&updater->shared);
    unroll_steps_cleanup(&updater->steps);
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
    size_t rows = (size_t)shared->base.sources[0].batch_size * shared->rows;
    TRP_TRY(unroll_steps_init(&updater->steps, shared));
    TRP_TRY(room_add(&shared->room, rows * sizeof(float), &updater->log_ratios));
    return room_add(&shared->room, sizeof *updater->numbers, &updater->numbers);
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
