/* The update of SAC: both critics, then the policy through the critics as they are now, then the
 * temperature, then the targets. All of it is put on the learner's queue.
 *
 * A fixed temperature is the same vector, its logarithm, which is not learned then. */
#include "sac.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "conservative.h"
#include "control_batch.h"
#include "core/alloc.h"
#include "critic_loss.h"
#include "options.h"
#include "squashed.h"
#include "target.h"

enum { PARAMS, CRITICS, TARGET_CRITICS, LOG_TEMPERATURE, VECTORS };

struct sac_numbers {
    struct critic_numbers critics;
    trp_loss policy;
    float entropy, temperature;
    trp_cql conservative;
};

struct sac_updater {
    trp_updater base;
    trp_sac_options options;
    float target_entropy;
    trp_net_spec spec; /* of the policy */
    trp_net *policy;
    trp_net_tensor tensors[TRP_NET_TENSORS_MAX]; /* of params */
    struct critics critics;
    struct conservative conservative;
    struct control_batch batch;
    struct sac_numbers turns[2]; /* of the last step and the one before, on the host */
    struct room room;            /* that what follows lies in: */
    struct squashed drawn;
    float *targets; /* [rows] */
    struct sac_numbers *numbers;
};

/* ---- the policy's loss ----------------------------------------------------------------------- */

/* Pointers are the device's. */
struct entropy_job {
    uint32_t rows;
    float *values[2]; /* of the policy's actions; derivatives afterwards, as log_probs */
    float *log_probs;
    const float *log_temperature;
    float *dlog_temperature; /* written; NULL: it is not learned */
    float target_entropy;
    struct sac_numbers *numbers;
};

static void lose_entropy(void *arguments)
{
    const struct entropy_job *job = arguments;
    double sum = 0;
    for (uint32_t row = 0; row < job->rows; row++)
        sum += (double)job->log_probs[row];
    float mean = (float)(sum / job->rows), temperature = expf(*job->log_temperature);
    job->numbers->entropy = -mean;
    job->numbers->temperature = temperature;
    job->numbers->policy = trp_sac_policy_loss(&(trp_sac_batch){.rows = job->rows,
                                                                .q = job->values[0],
                                                                .q2 = job->values[1],
                                                                .log_probs = job->log_probs,
                                                                .temperature = temperature},
                                               job->values[0], job->values[1], job->log_probs);
    if (job->dlog_temperature)
        trp_multiplier_loss(*job->log_temperature, mean, -job->target_entropy,
                            job->dlog_temperature);
}

#define AT(member) offsetof(struct entropy_job, member)

static void entropy_on(trp_queue *queue, const struct entropy_job *job)
{
    static const trp_kernel kernel = {"sac.policy", lose_entropy};
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
                             const float *states)
{
    updater->drawn.rows = updater->batch.rows;
    trp_net_rows rows = {.rows = updater->batch.rows,
                         .queue = update->queue,
                         .inputs = {states},
                         .outputs = {updater->drawn.mean, updater->drawn.log_std}};
    trp_net_forward(updater->policy, update->vectors[PARAMS], &rows);
    squashed_draw_on(update->queue, &updater->drawn, trp_rng_u64(update->rng));
    return rows;
}

/* Of states and actions by the critics of a vector, into critics.values. */
static struct critics_pass judge_now(struct sac_updater *updater, const trp_update *update,
                                     size_t vector, const float *states, const float *actions)
{
    struct critics_pass pass = {.queue = update->queue,
                                .params = update->vectors[vector],
                                .rows = updater->batch.rows,
                                .states = states,
                                .actions = actions,
                                .values = updater->critics.values};
    critics_forward(&updater->critics, &pass);
    return pass;
}

static void soft_targets(struct sac_updater *updater, const trp_update *update)
{
    const struct control_batch *batch = &updater->batch;
    draw_now(updater, update, batch->next_states);
    judge_now(updater, update, TARGET_CRITICS, batch->next_states, updater->drawn.actions);
    critic_targets_on(update->queue, &(struct critic_targets_job){
                                         .batch = {.rows = batch->rows,
                                                   .rewards = batch->rewards,
                                                   .discounts = batch->discounts,
                                                   .next_q = updater->critics.values[0],
                                                   .next_q2 = updater->critics.values[1],
                                                   .next_log_probs = updater->drawn.log_probs},
                                         .log_temperature = update->vectors[LOG_TEMPERATURE],
                                         .targets = updater->targets});
}

static trp_status learn_soft_policy(struct sac_updater *updater, const trp_update *update)
{
    const struct squashed *drawn = &updater->drawn;
    const float *states = updater->batch.states;
    trp_net_rows rows = draw_now(updater, update, states);
    struct critics_pass pass = judge_now(updater, update, CRITICS, states, drawn->actions);
    bool learned = updater->base.vectors[LOG_TEMPERATURE].learned;
    entropy_on(
        update->queue,
        &(struct entropy_job){.rows = drawn->rows,
                              .values = {updater->critics.values[0], updater->critics.values[1]},
                              .log_probs = drawn->log_probs,
                              .log_temperature = update->vectors[LOG_TEMPERATURE],
                              .dlog_temperature = update->grads[LOG_TEMPERATURE],
                              .target_entropy = updater->target_entropy,
                              .numbers = updater->numbers});
    squashed_backward_on(update->queue, drawn, critics_backward_actions(&updater->critics, &pass));
    trp_net_backward(updater->policy, update->vectors[PARAMS], &rows,
                     &(trp_net_grads){.outputs = {drawn->mean, drawn->log_std},
                                      .params = update->grads[PARAMS]});
    trp_update_watch(update, PARAMS, &updater->numbers->policy.loss, "policy loss");
    TRP_TRY(trp_update_apply(update, PARAMS));
    return learned ? trp_update_apply(update, LOG_TEMPERATURE) : TRP_OK;
}

static void be_conservative(struct sac_updater *updater, const trp_update *update)
{
    conservative_add(&updater->conservative, &updater->critics, &updater->batch, update, CRITICS,
                     &(struct conservative_policy){updater->policy, update->vectors[PARAMS]});
    trp_queue_copy(update->queue, &updater->numbers->conservative, updater->conservative.numbers,
                   sizeof updater->numbers->conservative);
    trp_update_watch(update, CRITICS, &updater->numbers->conservative.loss, "conservative loss");
}

static trp_status sac_collect(trp_updater *base, const trp_update *update)
{
    const struct sac_updater *updater = (const struct sac_updater *)base;
    const struct sac_numbers *numbers = &updater->turns[update->step % 2];
    trp_update_report(update, "critic_loss", (double)numbers->critics.loss);
    trp_update_report(update, "mean_q", (double)numbers->critics.mean_q);
    trp_update_report(update, "policy_loss", (double)numbers->policy.loss);
    trp_update_report(update, "entropy", (double)numbers->entropy);
    trp_update_report(update, "temperature", (double)numbers->temperature);
    if (updater->options.conservative > 0)
        trp_update_report(update, "conservative_gap", (double)numbers->conservative.gap);
    control_batch_collect(&updater->batch, update);
    return TRP_OK;
}

static trp_status sac_step(trp_updater *base, const trp_update *update)
{
    struct sac_updater *updater = (struct sac_updater *)base;
    struct target_rule target = {.rate = updater->options.target_rate};
    control_batch_take(&updater->batch, update);
    soft_targets(updater, update);
    if (updater->options.conservative > 0)
        be_conservative(updater, update);
    TRP_TRY(critics_learn(&updater->critics, update, CRITICS, &updater->batch, updater->targets,
                          &updater->numbers->critics));
    TRP_TRY(learn_soft_policy(updater, update));
    target_follow(&target, update, TARGET_CRITICS, CRITICS, base->vectors[CRITICS].count);
    control_batch_leave(&updater->batch, update);
    trp_queue_copy(update->queue, &updater->turns[update->step % 2], updater->numbers,
                   sizeof *updater->numbers);
    return base->impl->collect ? TRP_OK : sac_collect(base, update);
}

/* ---- life ---------------------------------------------------------------------------------- */

static void sac_init(trp_updater *base, trp_rng *rng, float *const *vectors)
{
    const struct sac_updater *updater = (const struct sac_updater *)base;
    const trp_sac_options *options = &updater->options;
    float temperature =
        options->temperature > 0 ? options->temperature : options->initial_temperature;
    trp_net_init(&updater->spec, rng, vectors[PARAMS]);
    critics_init(&updater->critics, rng, vectors[CRITICS]);
    memcpy(vectors[TARGET_CRITICS], vectors[CRITICS], base->vectors[CRITICS].count * sizeof(float));
    vectors[LOG_TEMPERATURE][0] = logf(temperature);
}

static void sac_destroy(trp_updater *base)
{
    struct sac_updater *updater = (struct sac_updater *)base;
    trp_net_destroy(updater->policy);
    critics_cleanup(&updater->critics);
    control_batch_cleanup(&updater->batch);
    room_free(&updater->room);
    free(updater);
}

/* A host has done everything when a step returns. */
static const trp_updater_impl host_impl = {
    .init = sac_init, .step = sac_step, .destroy = sac_destroy};

static const trp_updater_impl device_impl = {
    .init = sac_init, .step = sac_step, .collect = sac_collect, .destroy = sac_destroy};

static void declare_sac_vectors(struct sac_updater *updater)
{
    const trp_sac_options *options = &updater->options;
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
    vectors[TARGET_CRITICS] =
        (trp_vector_spec){.name = "target_critics", .count = vectors[CRITICS].count};
    vectors[LOG_TEMPERATURE] = (trp_vector_spec){
        .name = "log_temperature",
        .count = 1,
        .learned = options->temperature == 0,
        .optimizer = {.learning_rate = option_itself((double)options->temperature_learning_rate)}};
    updater->base.vector_count = VECTORS;
}

static trp_status make_soft_networks(struct sac_updater *updater, const trp_env_spec *env)
{
    uint32_t rows = updater->base.sources[0].batch_size, size = (uint32_t)env->action_count;
    struct critics_options critics = sac_critics(&updater->options);
    struct squashed *drawn = &updater->drawn;
    size_t floats = rows * sizeof(float), numbers = floats * size;
    drawn->size = size;
    const struct {
        void *memory; /* of a pointer */
        size_t bytes;
    } pieces[] = {{&drawn->mean, numbers},
                  {&drawn->log_std, numbers},
                  {&drawn->noise, numbers},
                  {&drawn->actions, numbers},
                  {&drawn->log_probs, floats},
                  {&updater->targets, floats},
                  {&updater->numbers, sizeof *updater->numbers}};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        TRP_TRY(room_add(&updater->room, pieces[i].bytes, pieces[i].memory));
    TRP_TRY(control_batch_create(&updater->batch, env, rows, &updater->room));
    uint32_t samples = updater->conservative.samples;
    TRP_TRY(critics_create(&updater->critics, &critics, env, rows * conservative_rows(samples),
                           &updater->room));
    if (samples > 0)
        TRP_TRY(conservative_create(&updater->conservative, &updater->critics, env, rows,
                                    &updater->room));
    return trp_net_create(&updater->policy,
                          &(trp_net_options){.spec = &updater->spec,
                                             .batch = rows,
                                             .device = updater->base.device,
                                             .precision = updater->options.precision});
}

trp_status sac_updater_create(const trp_agent *agent, const trp_env_spec *env,
                              const trp_updater_options *options, trp_updater **out)
{
    *out = NULL;
    trp_device *device = options->device;
    if (!device)
        TRP_TRY(trp_device_find(&device, NULL));
    struct sac_updater *updater = xcalloc(1, sizeof *updater);
    const trp_sac_options *own = &updater->options;
    updater->base.impl = trp_device_is_host(device) ? &host_impl : &device_impl;
    updater->base.device = device;
    updater->room.device = device;
    updater->options = sac_options(agent);
    updater->target_entropy = own->target_entropy < 0 || own->target_entropy > 0
                                  ? own->target_entropy
                                  : -(float)env->action_count;
    if (own->conservative > 0)
        updater->conservative =
            (struct conservative){.scale = own->conservative, .samples = own->conservative_samples};
    updater->batch.discount = own->discount;
    updater->batch.importance_exponent = own->importance_exponent;
    updater->batch.priority_epsilon = own->priority_epsilon;
    struct control control = sac_control(own);
    struct transitions transitions = sac_transitions(own);
    updater->spec = control_spec(&control, env);
    updater->base.source_count = 1;
    updater->base.sources[0] = transitions_source(
        &transitions, env, NULL, options->batch_size ? options->batch_size : own->batch_size);
    trp_status status = make_soft_networks(updater, env);
    if (status != TRP_OK) {
        trp_updater_destroy(&updater->base);
        return status;
    }
    declare_sac_vectors(updater);
    *out = &updater->base;
    return TRP_OK;
}
