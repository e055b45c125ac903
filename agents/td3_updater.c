/* The update of TD3: both critics learn at every step, the policy and the targets at every
 * policy_delay-th. All of it is put on the learner's queue.
 *
 * What of the policy's loss goes on through the first critic goes through its plan, which the
 * critics' own phase is done with by then. */
#include "td3.h"

#include <stdlib.h>

#include "control_learner.h"
#include "core/alloc.h"
#include "critic_loss.h"

struct td3_numbers {
    struct critic_numbers critics;
    trp_loss policy;
};

struct td3_updater {
    struct control_learner learner;
    trp_td3_options options;
    struct td3_numbers turns[2]; /* of the last step and the one before, on the host */
    /* Of the learner's room: */
    float *actions;  /* [rows][size]: the policies' */
    float *imitated; /* [rows][size]: what imitation wants of them; NULL: nothing */
    float *targets;  /* [rows] */
    struct td3_numbers *numbers;
};

/* ---- kernels ------------------------------------------------------------------------------- */

static void smooth_on(trp_queue *queue, const struct smooth_arguments *job)
{
    static const trp_kernel kernel = {.name = "td3.smooth", .run = smooth_run};
    trp_operand operands[] = {
        {offsetof(struct smooth_arguments, actions), (size_t)job->rows * job->size * sizeof(float),
         TRP_READ | TRP_WRITE},
        {offsetof(struct smooth_arguments, draw.seed), sizeof *job->draw.seed, TRP_READ}};
    trp_queue_run(queue, &kernel, job, sizeof *job, operands, 2);
}

#define AT(member) offsetof(struct td3_policy_arguments, member)

static void policy_loss_on(trp_queue *queue, const struct td3_policy_arguments *job)
{
    static const trp_kernel kernel = {.name = "td3.policy", .run = td3_policy_run};
    size_t floats = job->batch.rows * sizeof(float), numbers = floats * job->batch.size;
    trp_operand operands[] = {
        {AT(batch.actions), numbers, TRP_READ},     {AT(batch.taken), numbers, TRP_READ},
        {AT(values), floats, TRP_READ | TRP_WRITE}, {AT(dactions), numbers, TRP_WRITE},
        {AT(loss), sizeof *job->loss, TRP_WRITE},
    };
    trp_queue_run(queue, &kernel, job, sizeof *job, operands, sizeof operands / sizeof *operands);
}
#undef AT

/* ---- phases -------------------------------------------------------------------------------- */

static void smooth_targets(struct td3_updater *updater, const trp_update *update)
{
    struct control_learner *learner = &updater->learner;
    const struct control_batch *batch = &learner->batch;
    const trp_td3_options *options = &updater->options;
    control_learner_say(learner, update, CONTROL_TARGET_PARAMS, batch->next_states,
                        &updater->actions);
    if (options->target_noise > 0)
        smooth_on(update->queue,
                  &(struct smooth_arguments){.options = {.deviation = options->target_noise,
                                                         .clip = options->target_noise_clip},
                                             .draw = {.seed = batch->seed},
                                             .rows = batch->rows,
                                             .size = batch->box.size,
                                             .actions = updater->actions});
    control_learner_aim(learner, update, updater->actions, updater->targets);
}

static trp_status learn_policy(struct td3_updater *updater, const trp_update *update)
{
    struct control_learner *learner = &updater->learner;
    const struct control_batch *batch = &learner->batch;
    trp_net_rows said =
        control_learner_say(learner, update, CONTROL_PARAMS, batch->states, &updater->actions);
    struct critics_pass pass = {.queue = update->queue,
                                .params = update->vectors[CONTROL_CRITICS],
                                .count = 1,
                                .rows = batch->rows,
                                .states = batch->states,
                                .actions = updater->actions,
                                .values = learner->critics.values};
    critics_forward(&learner->critics, &pass);
    bool imitates = updater->options.imitation > 0;
    policy_loss_on(update->queue, &(struct td3_policy_arguments){
                                      .batch = {.rows = batch->rows,
                                                .size = batch->box.size,
                                                .actions = updater->actions,
                                                .taken = imitates ? batch->actions : NULL,
                                                .imitation = updater->options.imitation},
                                      .values = learner->critics.values[0],
                                      .dactions = imitates ? updater->imitated : NULL,
                                      .loss = &updater->numbers->policy});
    const float *dactions = critics_backward_actions(&learner->critics, &pass);
    if (imitates)
        critics_add_actions(&learner->critics, &pass, updater->imitated);
    return control_learner_follow(learner, update, &said, &dactions,
                                  &updater->numbers->policy.loss);
}

static bool is_delayed(const struct td3_updater *updater, const trp_update *update)
{
    return update->step % updater->options.policy_delay != 0;
}

static trp_status td3_collect(trp_updater *base, const trp_update *update)
{
    const struct td3_updater *updater = (const struct td3_updater *)base;
    const struct td3_numbers *numbers = &updater->turns[update->step % 2];
    trp_update_report(update, "critic_loss", numbers->critics.loss);
    trp_update_report(update, "mean_q", numbers->critics.mean_q);
    if (!is_delayed(updater, update))
        trp_update_report(update, "policy_loss", numbers->policy.loss);
    control_batch_collect(&updater->learner.batch, update);
    return TRP_OK;
}

static trp_status td3_step(trp_updater *base, const trp_update *update)
{
    struct td3_updater *updater = (struct td3_updater *)base;
    struct target_rule target = {.rate = updater->options.target_rate};
    TRP_TRY(control_learner_take(&updater->learner, update));
    smooth_targets(updater, update);
    TRP_TRY(critics_learn(&updater->learner.critics, update, CONTROL_CRITICS,
                          &updater->learner.batch, updater->targets, &updater->numbers->critics));
    if (!is_delayed(updater, update)) {
        TRP_TRY(learn_policy(updater, update));
        control_learner_target(&updater->learner, &target, update);
    }
    control_batch_leave(&updater->learner.batch, update);
    trp_queue_copy(update->queue, &updater->turns[update->step % 2], updater->numbers,
                   sizeof *updater->numbers);
    return base->impl->collect ? TRP_OK : td3_collect(base, update);
}

/* ---- life ---------------------------------------------------------------------------------- */

static void td3_init(trp_updater *base, trp_rng *rng, float *const *vectors)
{
    control_learner_init((const struct control_learner *)base, rng, vectors);
}

static void td3_destroy(trp_updater *base)
{
    struct td3_updater *updater = (struct td3_updater *)base;
    control_learner_cleanup(&updater->learner);
    free(updater);
}

static trp_status make_twins(struct td3_updater *updater, const trp_env_spec *env,
                             const trp_updater_options *place)
{
    static const trp_updater_impl impl = {
        .init = td3_init, .step = td3_step, .collect = td3_collect, .destroy = td3_destroy};
    const trp_td3_options *options = &updater->options;
    struct control_learner *learner = &updater->learner;
    TRP_TRY(control_learner_create(
        learner, &impl,
        &(struct control_learner_options){.agent = td3_parts(options),
                                          .batch_size = options->batch_size,
                                          .learning_rate = options->learning_rate,
                                          .critic_learning_rate = options->critic_learning_rate,
                                          .max_gradient_norm = options->max_gradient_norm,
                                          .importance_exponent = options->importance_exponent,
                                          .priority_epsilon = options->priority_epsilon},
        env, place));
    size_t floats = learner->base.sources[0].batch_size * sizeof(float);
    size_t actions = floats * learner->batch.box.size;
    TRP_TRY(room_add(&learner->room, actions, &updater->actions));
    TRP_TRY(room_add(&learner->room, options->imitation > 0 ? actions : 0, &updater->imitated));
    TRP_TRY(room_add(&learner->room, floats, &updater->targets));
    return room_add(&learner->room, sizeof *updater->numbers, &updater->numbers);
}

trp_status td3_updater_create(const trp_agent *agent, const trp_env_spec *env,
                              const trp_updater_options *options, trp_updater **out)
{
    *out = NULL;
    struct td3_updater *updater = xcalloc(1, sizeof *updater);
    updater->options = td3_options(agent);
    trp_status status = make_twins(updater, env, options);
    if (status != TRP_OK) {
        trp_updater_destroy(&updater->learner.base);
        return status;
    }
    *out = &updater->learner.base;
    return TRP_OK;
}
