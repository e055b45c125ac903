/* The update of CRR: the critics, then the policy, weighted by the first one as it is now, then the
 * targets. All of it is put on the learner's queue. */
#include "crr.h"

#include <stdlib.h>

#include "cloning.h"
#include "control_learner.h"
#include "core/alloc.h"
#include "critic_loss.h"
#include "samples.h"
#include "tile.h"

struct crr_numbers {
    struct critic_numbers critic;
    struct cloning_numbers policy;
    float weight; /* the mean of the rows' */
};

struct crr_updater {
    struct control_learner learner;
    trp_crr_options options;
    uint32_t state_size;         /* numbers of an observation */
    struct crr_numbers turns[2]; /* of the last step and the one before, on the host */
    /* Of the learner's room: */
    float *said[2];   /* [rows][size]: mean and log_std; gradients afterwards */
    float *log_probs; /* [rows], as what follows */
    float *q;         /* the critic's, of what was done */
    float *weights;   /* of what was done */
    float *targets;   /* of the critic */
    float *states;    /* [rows][samples][state]: of each sample */
    float *actions;   /* [rows][samples][size]: what the policy draws */
    struct crr_numbers *numbers;
};

/* ---- phases -------------------------------------------------------------------------------- */

/* Draws of a step. */
enum { DRAW_NOW, DRAW_NEXT };

/* `count` actions of the policy of a vector at each of the states, into updater->actions. */
static trp_net_rows sample_actions(struct crr_updater *updater, const trp_update *update,
                                   size_t vector, const float *states, uint32_t count)
{
    struct control_learner *learner = &updater->learner;
    uint32_t number = vector == CONTROL_TARGET_PARAMS ? DRAW_NEXT : DRAW_NOW;
    trp_net_rows rows = control_learner_say(learner, update, vector, states, updater->said);
    samples_on(update->queue, &(struct samples_arguments){.kind = CONTROL_GAUSSIAN,
                                                          .rows = learner->batch.rows,
                                                          .size = learner->batch.box.size,
                                                          .count = count,
                                                          .mean = updater->said[0],
                                                          .log_std = updater->said[1],
                                                          .draw = {learner->batch.seed, number},
                                                          .actions = updater->actions});
    return rows;
}

static trp_status learn_critic(struct crr_updater *updater, const trp_update *update)
{
    struct control_learner *learner = &updater->learner;
    struct control_batch *batch = &learner->batch;
    sample_actions(updater, update, CONTROL_TARGET_PARAMS, batch->next_states, 1);
    control_learner_aim(learner, update, updater->actions, updater->targets);
    return critics_learn(&learner->critics, update, CONTROL_CRITICS, batch, updater->targets,
                         &updater->numbers->critic);
}

/* Of what was done over what the policy, which said this, would do. */
static void weigh_what_was_done(struct crr_updater *updater, const trp_update *update)
{
    const trp_crr_options *options = &updater->options;
    struct control_learner *learner = &updater->learner;
    const struct control_batch *batch = &learner->batch;
    struct critics_pass pass = {.queue = update->queue,
                                .params = update->vectors[CONTROL_CRITICS],
                                .count = 1,
                                .rows = batch->rows,
                                .states = batch->states,
                                .actions = batch->actions,
                                .values = learner->critics.values};
    critics_forward(&learner->critics, &pass);
    trp_queue_copy(update->queue, updater->q, learner->critics.values[0],
                   batch->rows * sizeof(float));
    tile_on(update->queue, &(struct tile){batch->rows, options->samples, updater->state_size},
            batch->states, updater->states);
    pass.rows = batch->rows * options->samples;
    pass.states = updater->states;
    pass.actions = updater->actions;
    critics_forward(&learner->critics, &pass);
    advantage_weights_on(update->queue, &(struct advantage_weights_arguments){
                                            .batch = {.rows = batch->rows,
                                                      .samples = options->samples,
                                                      .q = updater->q,
                                                      .policy_q = learner->critics.values[0],
                                                      .max = options->max,
                                                      .binary = options->binary,
                                                      .temperature = options->temperature},
                                            .weights = updater->weights,
                                            .mean = &updater->numbers->weight});
}

static trp_status clone_weighted(struct crr_updater *updater, const trp_update *update)
{
    struct control_learner *learner = &updater->learner;
    const struct control_batch *batch = &learner->batch;
    trp_net_rows rows =
        sample_actions(updater, update, CONTROL_PARAMS, batch->states, updater->options.samples);
    weigh_what_was_done(updater, update);
    return cloning_learn(learner, update, &rows, updater->said, updater->weights,
                         updater->log_probs, NULL, &updater->numbers->policy);
}

static trp_status crr_collect(trp_updater *base, const trp_update *update)
{
    const struct crr_updater *updater = (const struct crr_updater *)base;
    const struct crr_numbers *numbers = &updater->turns[update->step % 2];
    trp_update_report(update, "critic_loss", (double)numbers->critic.loss);
    trp_update_report(update, "mean_q", (double)numbers->critic.mean_q);
    trp_update_report(update, "policy_loss", (double)numbers->policy.loss);
    trp_update_report(update, "mean_weight", (double)numbers->weight);
    return TRP_OK;
}

static trp_status crr_step(trp_updater *base, const trp_update *update)
{
    struct crr_updater *updater = (struct crr_updater *)base;
    struct target_rule target = {.period = updater->options.target_period};
    TRP_TRY(control_learner_take(&updater->learner, update));
    TRP_TRY(learn_critic(updater, update));
    TRP_TRY(clone_weighted(updater, update));
    control_learner_target(&updater->learner, &target, update);
    trp_queue_copy(update->queue, &updater->turns[update->step % 2], updater->numbers,
                   sizeof *updater->numbers);
    return base->impl->collect ? TRP_OK : crr_collect(base, update);
}

/* ---- life ---------------------------------------------------------------------------------- */

static void crr_init(trp_updater *base, trp_rng *rng, float *const *vectors)
{
    control_learner_init((const struct control_learner *)base, rng, vectors);
}

static void crr_destroy(trp_updater *base)
{
    struct crr_updater *updater = (struct crr_updater *)base;
    control_learner_cleanup(&updater->learner);
    free(updater);
}

static trp_status make_regressed(struct crr_updater *updater, const trp_env_spec *env,
                                 const trp_updater_options *place)
{
    static const trp_updater_impl impl = {
        .init = crr_init, .step = crr_step, .collect = crr_collect, .destroy = crr_destroy};
    const trp_crr_options *options = &updater->options;
    struct control_learner *learner = &updater->learner;
    TRP_TRY(control_learner_create(
        learner, &impl,
        &(struct control_learner_options){.agent = crr_parts(options),
                                          .samples = options->samples,
                                          .batch_size = options->batch_size,
                                          .learning_rate = options->learning_rate,
                                          .critic_learning_rate = options->critic_learning_rate,
                                          .max_gradient_norm = options->max_gradient_norm},
        env, place));
    size_t floats = learner->base.sources[0].batch_size * sizeof(float);
    size_t numbers = floats * learner->batch.box.size;
    updater->state_size = (uint32_t)(trp_tensor_bytes(&env->observations[0]) / sizeof(float));
    const struct {
        void *memory; /* of a pointer */
        size_t bytes;
    } pieces[] = {{&updater->said[0], numbers},
                  {&updater->said[1], numbers},
                  {&updater->log_probs, floats},
                  {&updater->q, floats},
                  {&updater->weights, floats},
                  {&updater->targets, floats},
                  {&updater->states, options->samples * floats * updater->state_size},
                  {&updater->actions, options->samples * numbers},
                  {&updater->numbers, sizeof *updater->numbers}};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        TRP_TRY(room_add(&learner->room, pieces[i].bytes, pieces[i].memory));
    return TRP_OK;
}

trp_status crr_updater_create(const trp_agent *agent, const trp_env_spec *env,
                              const trp_updater_options *options, trp_updater **out)
{
    *out = NULL;
    struct crr_updater *updater = xcalloc(1, sizeof *updater);
    updater->options = crr_options(agent);
    trp_status status = make_regressed(updater, env, options);
    if (status != TRP_OK) {
        trp_updater_destroy(&updater->learner.base);
        return status;
    }
    *out = &updater->learner.base;
    return TRP_OK;
}
