/* The update of MPO. The target policy draws actions at the next states, the target critic judges
 * them; their mean is what the critic learns, their weights (mpo_steps.c) are what the policy does.
 * All of it is put on the learner's queue.
 *
 * Temperatures and multipliers are one more vector, "duals". */
#include "mpo.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "control_learner.h"
#include "core/alloc.h"
#include "critic_loss.h"
#include "mpo_steps.h"
#include "options.h"
#include "tile.h"

enum { DUALS = CONTROL_VECTORS, VECTORS };

struct mpo_updater {
    struct control_learner learner;
    trp_mpo_options options;
    struct mpo_numbers turns[2]; /* of the last step and the one before, on the host */
    struct mpo_steps steps;
    /* Of the learner's room: */
    float *states;  /* [rows][samples][columns] */
    float *targets; /* [rows] */
};

/* ---- phases -------------------------------------------------------------------------------- */

/* Actions of the target policy at the next states, what the target critic says of them, and what
 * they weigh. */
static void improve(struct mpo_updater *updater, const trp_update *update)
{
    struct control_learner *learner = &updater->learner;
    struct mpo_steps *steps = &updater->steps;
    const float *states = learner->batch.next_states;
    steps->rows = learner->batch.rows;
    control_learner_say(learner, update, CONTROL_TARGET_PARAMS, states,
                        (float *const[]){steps->target_mean, steps->target_log_std});
    mpo_draw_on(update->queue, steps, &(struct draw){.seed = updater->learner.batch.seed});
    tile_on(update->queue,
            &(struct tile){steps->rows, steps->samples, trp_net_input_width(&learner->spec, 0)},
            states, updater->states);
    critics_forward(&learner->critics,
                    &(struct critics_pass){.queue = update->queue,
                                           .params = update->vectors[CONTROL_TARGET_CRITICS],
                                           .rows = steps->rows * steps->samples,
                                           .states = updater->states,
                                           .actions = steps->cut,
                                           .values = &steps->values});
    mpo_weigh_on(update->queue, steps, update->vectors[DUALS], update->grads[DUALS]);
}

static trp_status learn_values(struct mpo_updater *updater, const trp_update *update)
{
    struct control_batch *batch = &updater->learner.batch;
    critic_targets_on(update->queue, &(struct critic_targets_arguments){
                                         .batch = {.rows = batch->rows,
                                                   .rewards = batch->rewards,
                                                   .discounts = batch->discounts,
                                                   .next_q = updater->steps.next_values},
                                         .targets = updater->targets});
    return critics_learn(&updater->learner.critics, update, CONTROL_CRITICS, batch,
                         updater->targets, &updater->steps.numbers->critics);
}

static trp_status learn_policy_and_duals(struct mpo_updater *updater, const trp_update *update)
{
    struct control_learner *learner = &updater->learner;
    const struct mpo_steps *steps = &updater->steps;
    const float *grads[] = {steps->dmean, steps->dlog_std};
    trp_net_rows said =
        control_learner_say(learner, update, CONTROL_PARAMS, learner->batch.next_states,
                            (float *const[]){steps->mean, steps->log_std});
    mpo_follow_on(update->queue, steps, update->vectors[DUALS], update->grads[DUALS]);
    TRP_TRY(control_learner_follow(learner, update, &said, grads, &steps->numbers->policy_loss));
    trp_update_watch(update, DUALS, &steps->numbers->temperature_loss, "temperature loss");
    return trp_update_apply(update, DUALS);
}

static trp_status mpo_collect(trp_updater *base, const trp_update *update)
{
    const struct mpo_updater *updater = (const struct mpo_updater *)base;
    const struct mpo_numbers *numbers = &updater->turns[update->step % 2];
    trp_update_report(update, "critic_loss", (double)numbers->critics.loss);
    trp_update_report(update, "mean_q", (double)numbers->critics.mean_q);
    trp_update_report(update, "policy_loss", (double)numbers->policy_loss);
    trp_update_report(update, "temperature", (double)numbers->temperature);
    trp_update_report(update, "mean_divergence", (double)numbers->mean_divergence);
    trp_update_report(update, "deviation_divergence", (double)numbers->deviation_divergence);
    control_batch_collect(&updater->learner.batch, update);
    return TRP_OK;
}

static trp_status mpo_step(trp_updater *base, const trp_update *update)
{
    struct mpo_updater *updater = (struct mpo_updater *)base;
    struct target_rule target = {updater->options.target_rate, updater->options.target_period};
    TRP_TRY(control_learner_take(&updater->learner, update));
    improve(updater, update);
    TRP_TRY(learn_values(updater, update));
    TRP_TRY(learn_policy_and_duals(updater, update));
    control_learner_target(&updater->learner, &target, update);
    control_batch_leave(&updater->learner.batch, update);
    trp_queue_copy(update->queue, &updater->turns[update->step % 2], updater->steps.numbers,
                   sizeof *updater->steps.numbers);
    return base->impl->collect ? TRP_OK : mpo_collect(base, update);
}

/* ---- life ---------------------------------------------------------------------------------- */

static void begin_deviation(const struct mpo_updater *updater, float *params)
{
    const trp_vector_spec *spec = &updater->learner.base.vectors[CONTROL_PARAMS];
    float log_std = logf(updater->options.initial_deviation);
    for (size_t i = 0; i < spec->tensor_count; i++)
        for (size_t k = 0;
             strcmp(spec->tensors[i].name, "log_std.bias") == 0 && k < spec->tensors[i].count; k++)
            params[spec->tensors[i].offset + k] = log_std;
}

static void mpo_init(trp_updater *base, trp_rng *rng, float *const *vectors)
{
    const struct mpo_updater *updater = (const struct mpo_updater *)base;
    const trp_mpo_options *options = &updater->options;
    control_learner_init(&updater->learner, rng, vectors);
    begin_deviation(updater, vectors[CONTROL_PARAMS]);
    begin_deviation(updater, vectors[CONTROL_TARGET_PARAMS]);
    mpo_duals_init(&updater->steps, options->initial_temperature, options->initial_alpha_mean,
                   options->initial_alpha_deviation, vectors[DUALS]);
}

static void mpo_destroy(trp_updater *base)
{
    struct mpo_updater *updater = (struct mpo_updater *)base;
    control_learner_cleanup(&updater->learner);
    free(updater);
}

static void declare_duals(struct mpo_updater *updater)
{
    const trp_mpo_options *options = &updater->options;
    updater->learner.base.vectors[DUALS] = (trp_vector_spec){
        .name = "duals",
        .count = mpo_dual_count(&updater->steps),
        .learned = true,
        .optimizer = {.learning_rate = option_itself((double)options->dual_learning_rate),
                      .max_norm = (double)options->max_gradient_norm}};
    updater->learner.base.vector_count = VECTORS;
}

static trp_status make_steps(struct mpo_updater *updater, const trp_env_spec *env,
                             const trp_updater_options *place)
{
    static const trp_updater_impl impl = {
        .init = mpo_init, .step = mpo_step, .collect = mpo_collect, .destroy = mpo_destroy};
    const trp_mpo_options *options = &updater->options;
    struct control_learner *learner = &updater->learner;
    TRP_TRY(control_learner_create(
        learner, &impl,
        &(struct control_learner_options){.agent = mpo_parts(options),
                                          .samples = options->samples,
                                          .batch_size = options->batch_size,
                                          .learning_rate = options->learning_rate,
                                          .critic_learning_rate = options->critic_learning_rate,
                                          .max_gradient_norm = options->max_gradient_norm,
                                          .importance_exponent = options->importance_exponent,
                                          .priority_epsilon = options->priority_epsilon},
        env, place));
    updater->steps = (struct mpo_steps){.samples = options->samples,
                                        .size = learner->batch.box.size,
                                        .joint = options->joint_bounds,
                                        .penalty = !options->no_action_penalty,
                                        .epsilon = options->epsilon,
                                        .epsilon_penalty = options->epsilon_penalty,
                                        .epsilon_mean = options->epsilon_mean,
                                        .epsilon_deviation = options->epsilon_deviation};
    declare_duals(updater);
    uint32_t rows = learner->base.sources[0].batch_size;
    size_t columns = trp_net_input_width(&learner->spec, 0);
    TRP_TRY(mpo_steps_create(&updater->steps, rows, &learner->room));
    TRP_TRY(room_add(&learner->room, rows * options->samples * columns * sizeof(float),
                     &updater->states));
    return room_add(&learner->room, rows * sizeof(float), &updater->targets);
}

trp_status mpo_updater_create(const trp_agent *agent, const trp_env_spec *env,
                              const trp_updater_options *options, trp_updater **out)
{
    *out = NULL;
    struct mpo_updater *updater = xcalloc(1, sizeof *updater);
    updater->options = mpo_options(agent);
    trp_status status = make_steps(updater, env, options);
    if (status != TRP_OK) {
        trp_updater_destroy(&updater->learner.base);
        return status;
    }
    *out = &updater->learner.base;
    return TRP_OK;
}
