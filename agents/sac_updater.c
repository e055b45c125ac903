/* The update of SAC: both critics, then the policy through the critics as they are now, then the
 * temperature, then the targets. All of it is put on the learner's queue.
 *
 * A fixed temperature is the same vector, its logarithm, which is not learned then. */
#include "sac.h"

#include <math.h>
#include <stdlib.h>

#include "cloning.h"
#include "conservative.h"
#include "control_learner.h"
#include "core/alloc.h"
#include "critic_loss.h"
#include "options.h"
#include "squashed.h"

/* Behind those of a learner without a target policy. */
enum { LOG_TEMPERATURE = CONTROL_TARGET_PARAMS };

/* Draws of a step; those of conservative_add() come behind them. */
enum { DRAW_NEXT, DRAW_NOW, DRAWS };

/* What a step leaves on the host. */
struct sac_turn {
    struct sac_numbers numbers;
    struct cloning_numbers cloned; /* where it did */
};

struct sac_updater {
    struct control_learner learner;
    trp_sac_options options;
    float target_entropy;
    struct conservative conservative;
    struct sac_turn turns[2]; /* of the last step and the one before */
    /* Of the learner's room: */
    struct squashed drawn;
    float *targets; /* [rows] */
    struct sac_numbers *numbers;
    struct cloning_numbers *cloned;
};

/* ---- the policy's loss ----------------------------------------------------------------------- */

#define AT(member) offsetof(struct sac_policy_arguments, member)

static void entropy_on(trp_queue *queue, const struct sac_policy_arguments *job)
{
    static const trp_kernel kernel = {.name = "sac.policy", .run = sac_policy_run};
    size_t floats = job->rows * sizeof(float);
    trp_operand operands[] = {
        {AT(values[0]), floats, TRP_READ | TRP_WRITE},
        {AT(values[1]), floats, TRP_READ | TRP_WRITE},
        {AT(log_probs), floats, TRP_READ | TRP_WRITE},
        {AT(log_temperature), sizeof(float), TRP_READ},
        {AT(dlog_temperature), sizeof(float), TRP_WRITE},
        {AT(numbers), sizeof *job->numbers, TRP_READ | TRP_WRITE},
    };
    trp_queue_run(queue, &kernel, job, sizeof *job, operands, sizeof operands / sizeof *operands);
}

/* ---- phases -------------------------------------------------------------------------------- */

/* What the policy does at `states` now, into updater->drawn; returns the pass that says it. */
static trp_net_rows draw_now(struct sac_updater *updater, const trp_update *update,
                             const float *states, uint32_t number)
{
    struct squashed *drawn = &updater->drawn;
    drawn->rows = updater->learner.batch.rows;
    trp_net_rows said = control_learner_say(&updater->learner, update, CONTROL_PARAMS, states,
                                            (float *const[]){drawn->mean, drawn->log_std});
    squashed_draw_on(update->queue, drawn, &(struct draw){updater->learner.batch.seed, number});
    return said;
}

static void soft_targets(struct sac_updater *updater, const trp_update *update)
{
    struct control_learner *learner = &updater->learner;
    const struct control_batch *batch = &learner->batch;
    draw_now(updater, update, batch->next_states, DRAW_NEXT);
    control_learner_judge(learner, update, CONTROL_TARGET_CRITICS, batch->next_states,
                          updater->drawn.actions);
    critic_targets_on(update->queue, &(struct critic_targets_arguments){
                                         .batch = {.rows = batch->rows,
                                                   .rewards = batch->rewards,
                                                   .discounts = batch->discounts,
                                                   .next_q = learner->critics.values[0],
                                                   .next_q2 = learner->critics.values[1],
                                                   .next_log_probs = updater->drawn.log_probs},
                                         .log_temperature = update->vectors[LOG_TEMPERATURE],
                                         .targets = updater->targets});
}

static bool clones(const struct sac_updater *updater, const trp_update *update)
{
    const trp_sac_options *options = &updater->options;
    return options->conservative > 0 && update->step <= (uint64_t)options->bc_steps;
}

static trp_status learn_soft_policy(struct sac_updater *updater, const trp_update *update)
{
    struct control_learner *learner = &updater->learner;
    const struct squashed *drawn = &updater->drawn;
    const float *states = learner->batch.states;
    float *const out[] = {drawn->mean, drawn->log_std};
    const float *const grads[] = {drawn->mean, drawn->log_std};
    trp_net_rows said = draw_now(updater, update, states, DRAW_NOW);
    struct critics_pass pass =
        control_learner_judge(learner, update, CONTROL_CRITICS, states, drawn->actions);
    entropy_on(update->queue,
               &(struct sac_policy_arguments){
                   .rows = drawn->rows,
                   .values = {learner->critics.values[0], learner->critics.values[1]},
                   .log_probs = drawn->log_probs,
                   .log_temperature = update->vectors[LOG_TEMPERATURE],
                   .dlog_temperature = update->grads[LOG_TEMPERATURE],
                   .target_entropy = updater->target_entropy,
                   .numbers = updater->numbers});
    if (clones(updater, update)) {
        TRP_TRY(cloning_learn(learner, update, &said, out, NULL, drawn->log_probs, drawn->actions,
                              updater->cloned));
    } else {
        squashed_backward_on(update->queue, drawn,
                             critics_backward_actions(&learner->critics, &pass));
        TRP_TRY(
            control_learner_follow(learner, update, &said, grads, &updater->numbers->policy.loss));
    }
    return learner->base.vectors[LOG_TEMPERATURE].learned
               ? trp_update_apply(update, LOG_TEMPERATURE)
               : TRP_OK;
}

static void be_conservative(struct sac_updater *updater, const trp_update *update)
{
    struct control_learner *learner = &updater->learner;
    conservative_add(
        &updater->conservative, &learner->critics, &learner->batch, update, CONTROL_CRITICS,
        &(struct conservative_policy){
            learner->policy, update->vectors[CONTROL_PARAMS] + learner->policy_first, DRAWS});
    trp_queue_copy(update->queue, &updater->numbers->conservative, updater->conservative.numbers,
                   sizeof updater->numbers->conservative);
}

static trp_status sac_collect(trp_updater *base, const trp_update *update)
{
    const struct sac_updater *updater = (const struct sac_updater *)base;
    const struct sac_turn *turn = &updater->turns[update->step % 2];
    const struct sac_numbers *numbers = &turn->numbers;
    bool cloned = clones(updater, update);
    trp_update_report(update, "critic_loss", (double)numbers->critics.loss);
    trp_update_report(update, "mean_q", (double)numbers->critics.mean_q);
    trp_update_report(update, "policy_loss",
                      (double)(cloned ? turn->cloned.loss : numbers->policy.loss));
    trp_update_report(update, "entropy", (double)numbers->entropy);
    trp_update_report(update, "temperature", (double)numbers->temperature);
    if (updater->options.conservative > 0)
        trp_update_report(update, "conservative_gap", (double)numbers->conservative.gap);
    control_batch_collect(&updater->learner.batch, update);
    return TRP_OK;
}

static trp_status sac_step(trp_updater *base, const trp_update *update)
{
    struct sac_updater *updater = (struct sac_updater *)base;
    struct target_rule target = {.rate = updater->options.target_rate};
    TRP_TRY(control_learner_take(&updater->learner, update));
    soft_targets(updater, update);
    if (updater->options.conservative > 0)
        be_conservative(updater, update);
    TRP_TRY(critics_learn(&updater->learner.critics, update, CONTROL_CRITICS,
                          &updater->learner.batch, updater->targets, &updater->numbers->critics));
    TRP_TRY(learn_soft_policy(updater, update));
    control_learner_target(&updater->learner, &target, update);
    control_batch_leave(&updater->learner.batch, update);
    struct sac_turn *turn = &updater->turns[update->step % 2];
    trp_queue_copy(update->queue, &turn->numbers, updater->numbers, sizeof turn->numbers);
    if (clones(updater, update))
        trp_queue_copy(update->queue, &turn->cloned, updater->cloned, sizeof turn->cloned);
    return base->impl->collect ? TRP_OK : sac_collect(base, update);
}

/* ---- life ---------------------------------------------------------------------------------- */

static void sac_init(trp_updater *base, trp_rng *rng, float *const *vectors)
{
    const struct sac_updater *updater = (const struct sac_updater *)base;
    const trp_sac_options *options = &updater->options;
    control_learner_init(&updater->learner, rng, vectors);
    vectors[LOG_TEMPERATURE][0] =
        logf(options->temperature > 0 ? options->temperature : options->initial_temperature);
}

static void declare_temperature(struct sac_updater *updater)
{
    const trp_sac_options *options = &updater->options;
    updater->learner.base.vectors[LOG_TEMPERATURE] = (trp_vector_spec){
        .name = "log_temperature",
        .count = 1,
        .learned = options->temperature == 0,
        .optimizer = {.learning_rate = option_itself((double)options->temperature_learning_rate)}};
    updater->learner.base.vector_count = LOG_TEMPERATURE + 1;
}

static trp_status take_room_of_draws(struct sac_updater *updater, uint32_t rows)
{
    struct squashed *drawn = &updater->drawn;
    drawn->size = updater->learner.batch.box.size;
    size_t floats = rows * sizeof(float), numbers = floats * drawn->size;
    const struct {
        void *memory; /* of a pointer */
        size_t bytes;
    } pieces[] = {{&drawn->mean, numbers},
                  {&drawn->log_std, numbers},
                  {&drawn->noise, numbers},
                  {&drawn->actions, numbers},
                  {&drawn->log_probs, floats},
                  {&updater->targets, floats},
                  {&updater->numbers, sizeof *updater->numbers},
                  {&updater->cloned, sizeof *updater->cloned}};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        TRP_TRY(room_add(&updater->learner.room, pieces[i].bytes, pieces[i].memory));
    return TRP_OK;
}

static void sac_destroy(trp_updater *base)
{
    struct sac_updater *updater = (struct sac_updater *)base;
    control_learner_cleanup(&updater->learner);
    free(updater);
}

static trp_status make_soft(struct sac_updater *updater, const trp_env_spec *env,
                            const trp_updater_options *place)
{
    static const trp_updater_impl impl = {
        .init = sac_init, .step = sac_step, .collect = sac_collect, .destroy = sac_destroy};
    const trp_sac_options *options = &updater->options;
    struct control_learner *learner = &updater->learner;
    float wanted = options->target_entropy;
    uint32_t samples = options->conservative > 0 ? options->conservative_samples : 0;
    updater->target_entropy = wanted < 0 || wanted > 0 ? wanted : -(float)env->action_count;
    updater->conservative =
        (struct conservative){.scale = options->conservative, .samples = samples};
    TRP_TRY(control_learner_create(
        learner, &impl,
        &(struct control_learner_options){.agent = sac_parts(options),
                                          .one_policy = true,
                                          .samples = sac_samples(options),
                                          .batch_size = options->batch_size,
                                          .learning_rate = options->learning_rate,
                                          .critic_learning_rate = options->critic_learning_rate,
                                          .max_gradient_norm = options->max_gradient_norm,
                                          .importance_exponent = options->importance_exponent,
                                          .priority_epsilon = options->priority_epsilon},
        env, place));
    uint32_t rows = learner->base.sources[0].batch_size;
    declare_temperature(updater);
    TRP_TRY(take_room_of_draws(updater, rows));
    return samples > 0 ? conservative_create(&updater->conservative, &learner->critics, env, rows,
                                             &learner->room)
                       : TRP_OK;
}

trp_status sac_updater_create(const trp_agent *agent, const trp_env_spec *env,
                              const trp_updater_options *options, trp_updater **out)
{
    *out = NULL;
    struct sac_updater *updater = xcalloc(1, sizeof *updater);
    updater->options = sac_options(agent);
    trp_status status = make_soft(updater, env, options);
    if (status != TRP_OK) {
        trp_updater_destroy(&updater->learner.base);
        return status;
    }
    *out = &updater->learner.base;
    return TRP_OK;
}
