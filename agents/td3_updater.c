/* The update of TD3: both critics learn at every step, the policy and the targets at every
 * policy_delay-th. All of it is put on the learner's queue.
 *
 * What of the policy's loss goes on through the first critic goes through its plan, which the
 * critics' own phase is done with by then. */
#include "td3.h"

#include <stdlib.h>
#include <string.h>

#include "control_batch.h"
#include "core/alloc.h"
#include "critic_loss.h"
#include "options.h"
#include "target.h"

enum { PARAMS, CRITICS, TARGET_PARAMS, TARGET_CRITICS, VECTORS };

struct td3_numbers {
    struct critic_numbers critics;
    trp_loss policy;
};

struct td3_updater {
    trp_updater base;
    trp_td3_options options;
    trp_net_spec spec; /* of the policy */
    trp_net *policy;
    trp_net_tensor tensors[TRP_NET_TENSORS_MAX]; /* of params */
    struct critics critics;
    struct control_batch batch;
    struct td3_numbers turns[2]; /* of the last step and the one before, on the host */
    struct room room;            /* that what follows lies in: */
    float *actions;              /* [rows][size]: the policies' */
    float *imitated;             /* [rows][size]: what imitation wants of them; NULL: nothing */
    float *targets;              /* [rows] */
    struct td3_numbers *numbers;
};

/* ---- kernels ------------------------------------------------------------------------------- */

struct smooth_job {
    trp_smoothing_options options; /* without bounds */
    uint64_t seed;
    uint32_t rows, size;
    float *actions;
};

static void smooth(void *arguments)
{
    const struct smooth_job *job = arguments;
    trp_rng rng;
    trp_rng_init(&rng, job->seed, 0);
    trp_smooth_actions(&job->options, job->rows, job->size, &rng, job->actions);
}

static void smooth_on(trp_queue *queue, const struct smooth_job *job)
{
    static const trp_kernel kernel = {"td3.smooth", smooth};
    trp_operand operands[] = {{offsetof(struct smooth_job, actions),
                               (size_t)job->rows * job->size * sizeof(float),
                               TRP_READ | TRP_WRITE}};
    trp_queue_run(queue, &kernel, job, sizeof *job, operands, 1);
}

struct policy_loss_job {
    trp_td3_batch batch; /* `taken` where the policy imitates */
    float *values;       /* the first critic's; derivatives afterwards */
    float *dactions;     /* written: of imitation alone; NULL where nothing is imitated */
    trp_loss *loss;
};

static void find_policy_loss(void *arguments)
{
    const struct policy_loss_job *job = arguments;
    trp_td3_batch batch = job->batch;
    batch.q = job->values;
    *job->loss = trp_td3_policy_loss(&batch, job->values, job->dactions);
}

#define AT(member) offsetof(struct policy_loss_job, member)

static void policy_loss_on(trp_queue *queue, const struct policy_loss_job *job)
{
    static const trp_kernel kernel = {"td3.policy", find_policy_loss};
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

static trp_net_rows policy_rows(const struct td3_updater *updater, const trp_update *update,
                                const float *states)
{
    return (trp_net_rows){.rows = updater->batch.rows,
                          .queue = update->queue,
                          .inputs = {states},
                          .outputs = {updater->actions}};
}

static void smooth_targets(struct td3_updater *updater, const trp_update *update)
{
    const struct control_batch *batch = &updater->batch;
    const trp_td3_options *options = &updater->options;
    trp_net_rows rows = policy_rows(updater, update, batch->next_states);
    trp_net_forward(updater->policy, update->vectors[TARGET_PARAMS], &rows);
    if (options->target_noise > 0)
        smooth_on(update->queue,
                  &(struct smooth_job){.options = {.deviation = options->target_noise,
                                                   .clip = options->target_noise_clip},
                                       .seed = trp_rng_u64(update->rng),
                                       .rows = batch->rows,
                                       .size = batch->box.size,
                                       .actions = updater->actions});
    struct critics_pass pass = {.queue = update->queue,
                                .params = update->vectors[TARGET_CRITICS],
                                .rows = batch->rows,
                                .states = batch->next_states,
                                .actions = updater->actions,
                                .values = updater->critics.values};
    critics_forward(&updater->critics, &pass);
    critic_targets_on(update->queue,
                      &(struct critic_targets_job){.batch = {.rows = batch->rows,
                                                             .rewards = batch->rewards,
                                                             .discounts = batch->discounts,
                                                             .next_q = updater->critics.values[0],
                                                             .next_q2 = updater->critics.values[1]},
                                                   .targets = updater->targets});
}

static trp_status learn_policy(struct td3_updater *updater, const trp_update *update)
{
    const struct control_batch *batch = &updater->batch;
    trp_net_rows rows = policy_rows(updater, update, batch->states);
    trp_net_forward(updater->policy, update->vectors[PARAMS], &rows);
    struct critics_pass pass = {.queue = update->queue,
                                .params = update->vectors[CRITICS],
                                .count = 1,
                                .rows = batch->rows,
                                .states = batch->states,
                                .actions = updater->actions,
                                .values = updater->critics.values};
    critics_forward(&updater->critics, &pass);
    bool imitates = updater->options.imitation > 0;
    policy_loss_on(update->queue,
                   &(struct policy_loss_job){.batch = {.rows = batch->rows,
                                                       .size = batch->box.size,
                                                       .actions = updater->actions,
                                                       .taken = imitates ? batch->actions : NULL,
                                                       .imitation = updater->options.imitation},
                                             .values = updater->critics.values[0],
                                             .dactions = imitates ? updater->imitated : NULL,
                                             .loss = &updater->numbers->policy});
    const float *dactions = critics_backward_actions(&updater->critics, &pass);
    if (imitates)
        critics_add_actions(&updater->critics, &pass, updater->imitated);
    trp_net_backward(updater->policy, update->vectors[PARAMS], &rows,
                     &(trp_net_grads){.outputs = {dactions}, .params = update->grads[PARAMS]});
    trp_update_watch(update, PARAMS, &updater->numbers->policy.loss, "policy loss");
    return trp_update_apply(update, PARAMS);
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
    control_batch_collect(&updater->batch, update);
    return TRP_OK;
}

static trp_status td3_step(trp_updater *base, const trp_update *update)
{
    struct td3_updater *updater = (struct td3_updater *)base;
    struct target_rule target = {.rate = updater->options.target_rate};
    control_batch_take(&updater->batch, update);
    smooth_targets(updater, update);
    TRP_TRY(critics_learn(&updater->critics, update, CRITICS, &updater->batch, updater->targets,
                          &updater->numbers->critics));
    if (!is_delayed(updater, update)) {
        TRP_TRY(learn_policy(updater, update));
        target_follow(&target, update, TARGET_PARAMS, PARAMS, base->vectors[PARAMS].count);
        target_follow(&target, update, TARGET_CRITICS, CRITICS, base->vectors[CRITICS].count);
    }
    control_batch_leave(&updater->batch, update);
    trp_queue_copy(update->queue, &updater->turns[update->step % 2], updater->numbers,
                   sizeof *updater->numbers);
    return base->impl->collect ? TRP_OK : td3_collect(base, update);
}

/* ---- life ---------------------------------------------------------------------------------- */

static void td3_init(trp_updater *base, trp_rng *rng, float *const *vectors)
{
    const struct td3_updater *updater = (const struct td3_updater *)base;
    trp_net_init(&updater->spec, rng, vectors[PARAMS]);
    critics_init(&updater->critics, rng, vectors[CRITICS]);
    memcpy(vectors[TARGET_PARAMS], vectors[PARAMS], base->vectors[PARAMS].count * sizeof(float));
    memcpy(vectors[TARGET_CRITICS], vectors[CRITICS], base->vectors[CRITICS].count * sizeof(float));
}

static void td3_destroy(trp_updater *base)
{
    struct td3_updater *updater = (struct td3_updater *)base;
    trp_net_destroy(updater->policy);
    critics_cleanup(&updater->critics);
    control_batch_cleanup(&updater->batch);
    room_free(&updater->room);
    free(updater);
}

/* A host has done everything when a step returns. */
static const trp_updater_impl host_impl = {
    .init = td3_init, .step = td3_step, .destroy = td3_destroy};

static const trp_updater_impl device_impl = {
    .init = td3_init, .step = td3_step, .collect = td3_collect, .destroy = td3_destroy};

static void declare_td3_vectors(struct td3_updater *updater)
{
    const trp_td3_options *options = &updater->options;
    trp_vector_spec *vectors = updater->base.vectors;
    trp_optimizer adam = {.learning_rate = option_itself((double)options->learning_rate),
                          .max_norm = (double)options->max_gradient_norm};
    vectors[PARAMS] =
        (trp_vector_spec){.name = "params",
                          .count = trp_net_param_count(&updater->spec),
                          .learned = true,
                          .optimizer = adam,
                          .tensors = updater->tensors,
                          .tensor_count = trp_net_tensors(&updater->spec, updater->tensors)};
    vectors[CRITICS] = critics_vector(&updater->critics, "critics");
    vectors[CRITICS].learned = true;
    vectors[CRITICS].optimizer = adam;
    vectors[CRITICS].optimizer.learning_rate = option_itself((double)options->critic_learning_rate);
    vectors[TARGET_PARAMS] =
        (trp_vector_spec){.name = "target_params", .count = vectors[PARAMS].count};
    vectors[TARGET_CRITICS] =
        (trp_vector_spec){.name = "target_critics", .count = vectors[CRITICS].count};
    updater->base.vector_count = VECTORS;
}

static trp_status make_networks(struct td3_updater *updater, const trp_env_spec *env)
{
    uint32_t rows = updater->base.sources[0].batch_size;
    struct critics_options critics = td3_critics(&updater->options);
    size_t floats = rows * sizeof(float), actions = floats * (size_t)env->action_count;
    const struct {
        void *memory; /* of a pointer */
        size_t bytes;
    } pieces[] = {{&updater->actions, actions},
                  {&updater->imitated, updater->options.imitation > 0 ? actions : 0},
                  {&updater->targets, floats},
                  {&updater->numbers, sizeof *updater->numbers}};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        TRP_TRY(room_add(&updater->room, pieces[i].bytes, pieces[i].memory));
    TRP_TRY(control_batch_create(&updater->batch, env, rows, &updater->room));
    TRP_TRY(critics_create(&updater->critics, &critics, env, rows, &updater->room));
    return trp_net_create(&updater->policy,
                          &(trp_net_options){.spec = &updater->spec,
                                             .batch = rows,
                                             .device = updater->base.device,
                                             .precision = updater->options.precision});
}

trp_status td3_updater_create(const trp_agent *agent, const trp_env_spec *env,
                              const trp_updater_options *options, trp_updater **out)
{
    *out = NULL;
    trp_device *device = options->device;
    if (!device)
        TRP_TRY(trp_device_find(&device, NULL));
    struct td3_updater *updater = xcalloc(1, sizeof *updater);
    const trp_td3_options *own = &updater->options;
    updater->base.impl = trp_device_is_host(device) ? &host_impl : &device_impl;
    updater->base.device = device;
    updater->room.device = device;
    updater->options = td3_options(agent);
    updater->batch.discount = own->discount;
    updater->batch.importance_exponent = own->importance_exponent;
    updater->batch.priority_epsilon = own->priority_epsilon;
    struct control control = td3_control(own);
    struct transitions transitions = td3_transitions(own);
    updater->spec = control_spec(&control, env);
    updater->base.source_count = 1;
    updater->base.sources[0] = transitions_source(
        &transitions, env, NULL, options->batch_size ? options->batch_size : own->batch_size);
    trp_status status = make_networks(updater, env);
    if (status != TRP_OK) {
        trp_updater_destroy(&updater->base);
        return status;
    }
    declare_td3_vectors(updater);
    *out = &updater->base;
    return TRP_OK;
}
