/* The update of D4PG: the critic learns the distribution that its target gives n steps later, the
 * policy follows the critic's mean. All of it is put on the learner's queue.
 *
 * The policy follows the critic as it is after its own phase. Importance weights are the critic's
 * alone, as in the paper's algorithm. */
#include "d4pg.h"

#include <math.h>
#include <stdlib.h>

#include <troupe/actor_critic_losses.h>
#include "control_learner.h"
#include "core/alloc.h"

struct d4pg_numbers {
    trp_loss critic, policy;
};

struct d4pg_updater {
    struct control_learner learner;
    trp_d4pg_options options;
    struct d4pg_numbers turns[2]; /* of the last step and the one before, on the host */
    /* Of the learner's room: */
    float *actions; /* [rows][size]: the policies'; derivatives afterwards */
    float *targets; /* [rows][atoms] */
    struct d4pg_numbers *numbers;
};

/* ---- kernels: pointers are the device's ------------------------------------------------------ */

static void atoms_on(trp_queue *queue, const trp_kernel *kernel, const struct atoms_arguments *job)
{
    size_t floats = job->batch.rows * sizeof(float), atoms = floats * job->support.atoms;
    trp_operand operands[] = {
        {offsetof(struct atoms_arguments, batch.rewards), floats, TRP_READ},
        {offsetof(struct atoms_arguments, batch.discounts), floats, TRP_READ},
        {offsetof(struct atoms_arguments, batch.weights), floats, TRP_READ},
        {offsetof(struct atoms_arguments, logits), atoms, TRP_READ | TRP_WRITE},
        {offsetof(struct atoms_arguments, targets), atoms, TRP_READ | TRP_WRITE},
        {offsetof(struct atoms_arguments, errors), floats, TRP_WRITE},
        {offsetof(struct atoms_arguments, loss), sizeof *job->loss, TRP_WRITE},
    };
    trp_queue_run(queue, kernel, job, sizeof *job, operands, sizeof operands / sizeof *operands);
}

static void clip_on(trp_queue *queue, const struct clip_arguments *job)
{
    static const trp_kernel kernel = {.name = "d4pg.clip", .run = clip_run};
    size_t bytes = (size_t)job->rows * job->size * sizeof(float);
    trp_operand operands[] = {{offsetof(struct clip_arguments, from), bytes, TRP_READ},
                              {offsetof(struct clip_arguments, to), bytes, TRP_WRITE}};
    trp_queue_run(queue, &kernel, job, sizeof *job, operands, 2);
}

/* ---- phases -------------------------------------------------------------------------------- */

/* What its kernels work on: the batch, and what the critic said last. */
static struct atoms_arguments atoms_of(const struct d4pg_updater *updater)
{
    const struct control_batch *batch = &updater->learner.batch;
    const trp_d4pg_options *options = &updater->options;
    return (struct atoms_arguments){
        .support = {options->atoms, options->value_least, options->value_most},
        .batch = {.rows = batch->rows,
                  .actions = 1,
                  .rewards = batch->rewards,
                  .discounts = batch->discounts,
                  .weights = batch->weights},
        .logits = updater->learner.critics.values[0],
        .targets = updater->targets};
}

static trp_status learn_distribution(struct d4pg_updater *updater, const trp_update *update)
{
    static const trp_kernel find_targets = {.name = "d4pg.targets", .run = d4pg_targets_run};
    static const trp_kernel find_loss = {.name = "d4pg.critic", .run = d4pg_critic_run};
    struct control_learner *learner = &updater->learner;
    const struct control_batch *batch = &learner->batch;
    struct atoms_arguments job = atoms_of(updater);
    control_learner_say(learner, update, CONTROL_TARGET_PARAMS, batch->next_states,
                        &updater->actions);
    control_learner_judge(learner, update, CONTROL_TARGET_CRITICS, batch->next_states,
                          updater->actions);
    atoms_on(update->queue, &find_targets, &job);
    struct critics_pass pass =
        control_learner_judge(learner, update, CONTROL_CRITICS, batch->states, batch->actions);
    job.errors = batch->errors;
    job.loss = &updater->numbers->critic;
    atoms_on(update->queue, &find_loss, &job);
    critics_backward_last(&learner->critics, &pass, update, CONTROL_CRITICS);
    trp_update_watch(update, CONTROL_CRITICS, &updater->numbers->critic.loss, "critic loss");
    return trp_update_apply(update, CONTROL_CRITICS);
}

static trp_status follow_mean(struct d4pg_updater *updater, const trp_update *update)
{
    static const trp_kernel find_loss = {.name = "d4pg.policy", .run = d4pg_policy_run};
    struct control_learner *learner = &updater->learner;
    const struct control_batch *batch = &learner->batch;
    float most = updater->options.max_action_gradient;
    struct atoms_arguments job = atoms_of(updater);
    trp_net_rows said =
        control_learner_say(learner, update, CONTROL_PARAMS, batch->states, &updater->actions);
    struct critics_pass pass =
        control_learner_judge(learner, update, CONTROL_CRITICS, batch->states, updater->actions);
    job.targets = NULL;
    job.loss = &updater->numbers->policy;
    atoms_on(update->queue, &find_loss, &job);
    const float *dactions = critics_backward_actions(&learner->critics, &pass);
    if (most > 0) {
        clip_on(update->queue,
                &(struct clip_arguments){.rows = batch->rows,
                                         .size = batch->box.size,
                                         .most = most / (float)batch->rows, /* of a mean */
                                         .from = dactions,
                                         .to = updater->actions});
        dactions = updater->actions;
    }
    return control_learner_follow(learner, update, &said, &dactions,
                                  &updater->numbers->policy.loss);
}

static trp_status d4pg_collect(trp_updater *base, const trp_update *update)
{
    const struct d4pg_updater *updater = (const struct d4pg_updater *)base;
    const struct d4pg_numbers *numbers = &updater->turns[update->step % 2];
    trp_update_report(update, "critic_loss", (double)numbers->critic.loss);
    trp_update_report(update, "mean_q", (double)numbers->critic.value);
    trp_update_report(update, "policy_loss", (double)numbers->policy.loss);
    control_batch_collect(&updater->learner.batch, update);
    return TRP_OK;
}

static trp_status d4pg_step(trp_updater *base, const trp_update *update)
{
    struct d4pg_updater *updater = (struct d4pg_updater *)base;
    struct target_rule target = {updater->options.target_rate, updater->options.target_period};
    TRP_TRY(control_learner_take(&updater->learner, update));
    TRP_TRY(learn_distribution(updater, update));
    TRP_TRY(follow_mean(updater, update));
    control_learner_target(&updater->learner, &target, update);
    control_batch_leave(&updater->learner.batch, update);
    trp_queue_copy(update->queue, &updater->turns[update->step % 2], updater->numbers,
                   sizeof *updater->numbers);
    return base->impl->collect ? TRP_OK : d4pg_collect(base, update);
}

/* ---- life ---------------------------------------------------------------------------------- */

static void d4pg_init(trp_updater *base, trp_rng *rng, float *const *vectors)
{
    control_learner_init((const struct control_learner *)base, rng, vectors);
}

static void d4pg_destroy(trp_updater *base)
{
    struct d4pg_updater *updater = (struct d4pg_updater *)base;
    control_learner_cleanup(&updater->learner);
    free(updater);
}

static trp_status make_distributions(struct d4pg_updater *updater, const trp_env_spec *env,
                                     const trp_updater_options *place)
{
    static const trp_updater_impl impl = {
        .init = d4pg_init, .step = d4pg_step, .collect = d4pg_collect, .destroy = d4pg_destroy};
    const trp_d4pg_options *options = &updater->options;
    struct control_learner *learner = &updater->learner;
    TRP_TRY(control_learner_create(
        learner, &impl,
        &(struct control_learner_options){.agent = d4pg_parts(options),
                                          .batch_size = options->batch_size,
                                          .learning_rate = options->learning_rate,
                                          .critic_learning_rate = options->critic_learning_rate,
                                          .max_gradient_norm = options->max_gradient_norm,
                                          .importance_exponent = options->importance_exponent,
                                          .priority_epsilon = options->priority_epsilon},
        env, place));
    size_t floats = learner->base.sources[0].batch_size * sizeof(float);
    TRP_TRY(room_add(&learner->room, floats * learner->batch.box.size, &updater->actions));
    TRP_TRY(room_add(&learner->room, floats * options->atoms, &updater->targets));
    return room_add(&learner->room, sizeof *updater->numbers, &updater->numbers);
}

trp_status d4pg_updater_create(const trp_agent *agent, const trp_env_spec *env,
                               const trp_updater_options *options, trp_updater **out)
{
    *out = NULL;
    struct d4pg_updater *updater = xcalloc(1, sizeof *updater);
    updater->options = d4pg_options(agent);
    trp_status status = make_distributions(updater, env, options);
    if (status != TRP_OK) {
        trp_updater_destroy(&updater->learner.base);
        return status;
    }
    *out = &updater->learner.base;
    return TRP_OK;
}
