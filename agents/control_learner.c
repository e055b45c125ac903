#include "control_learner.h"

#include <string.h>

#include "critic_loss.h"
#include "options.h"

/* ---- life ---------------------------------------------------------------------------------- */

static void declare_control_vectors(struct control_learner *learner,
                                    const struct control_learner_options *options)
{
    trp_vector_spec *vectors = learner->base.vectors;
    size_t tensors = normalizer_tensors(&learner->normalizer, learner->tensors);
    tensors +=
        trp_net_tensors_at(&learner->spec, learner->policy_first, learner->tensors + tensors);
    trp_optimizer adam = {.learning_rate = option_itself((double)options->learning_rate),
                          .max_norm = (double)options->max_gradient_norm};
    vectors[CONTROL_PARAMS] =
        (trp_vector_spec){.name = "params",
                          .count = learner->policy_first + trp_net_param_count(&learner->spec),
                          .learned = true,
                          .optimizer = adam,
                          .tensors = learner->tensors,
                          .tensor_count = tensors,
                          .fixed_count = learner->policy_first};
    learner->base.vector_count = 1;
    if (learner->critics.count == 0)
        return;
    adam.learning_rate = option_itself((double)options->critic_learning_rate);
    vectors[CONTROL_CRITICS] = critics_vector(&learner->critics, "critics");
    vectors[CONTROL_CRITICS].learned = true;
    vectors[CONTROL_CRITICS].optimizer = adam;
    vectors[CONTROL_TARGET_CRITICS] =
        (trp_vector_spec){.name = "target_critics", .count = vectors[CONTROL_CRITICS].count};
    learner->base.vector_count = CONTROL_TARGET_PARAMS;
    if (options->one_policy)
        return;
    vectors[CONTROL_TARGET_PARAMS] =
        (trp_vector_spec){.name = "target_params", .count = vectors[CONTROL_PARAMS].count};
    learner->base.vector_count = CONTROL_VECTORS;
}

/* The numbers of a fresh run, and room for states that were normalised. */
static trp_status prepare_normalizer(struct control_learner *learner, const char *who,
                                     const char *dataset)
{
    const trp_batch_spec *source = &learner->base.sources[0];
    size_t count = normalizer_count(&learner->normalizer);
    size_t states = (size_t)source->batch_size * learner->normalizer.size * sizeof(float);
    learner->policy_first = count;
    if (count == 0)
        return TRP_OK;
    learner->normalizer_numbers = trp_floats_create(count);
    TRP_TRY(room_add(&learner->room, states, &learner->normal_states));
    TRP_TRY(room_add(&learner->room, states, &learner->normal_next_states));
    return normalizer_read(&learner->normalizer, who, dataset, source, learner->normalizer_numbers);
}

trp_status control_learner_create(struct control_learner *learner, const trp_updater_impl *impl,
                                  const struct control_learner_options *options,
                                  const trp_env_spec *env, const trp_updater_options *place)
{
    uint32_t rows = place->batch_size ? place->batch_size : options->batch_size;
    uint32_t samples = options->samples ? options->samples : 1;
    learner->impl = *impl;
    learner->base.impl = &learner->impl;
    TRP_TRY(control_agent_check_rows(options->agent.control.who, rows, samples));
    learner->target_policy = !options->one_policy;
    learner->base.device = place->device;
    if (!place->device)
        TRP_TRY(trp_device_find(&learner->base.device, NULL));
    if (trp_device_is_host(learner->base.device))
        learner->impl.collect = NULL;
    learner->room.device = learner->base.device;
    learner->batch.discount = options->agent.transitions.discount;
    learner->batch.importance_exponent = options->importance_exponent;
    learner->batch.priority_epsilon = options->priority_epsilon;
    learner->kind = options->agent.control.kind;
    learner->spec = control_spec(&options->agent.control, env);
    learner->base.source_count = 1;
    learner->base.sources[0] = transitions_source(&options->agent.transitions, env, NULL, rows);
    TRP_TRY(control_batch_create(&learner->batch, env, rows, &learner->room));
    struct critics_options critics = options->agent.critics;
    critics.threads = place->threads;
    TRP_TRY(critics_create(&learner->critics, &critics, env, rows * samples, &learner->room));
    learner->normalizer = normalizer_of(env, options->agent.control.normalize_states);
    TRP_TRY(prepare_normalizer(learner, options->agent.control.who, place->dataset));
    declare_control_vectors(learner, options);
    return trp_net_create(&learner->policy,
                          &(trp_net_options){.spec = &learner->spec,
                                             .batch = rows,
                                             .device = learner->base.device,
                                             .threads = place->threads,
                                             .precision = options->agent.control.precision});
}

void control_learner_cleanup(struct control_learner *learner)
{
    trp_net_destroy(learner->policy);
    trp_floats_destroy(learner->normalizer_numbers);
    critics_cleanup(&learner->critics);
    control_batch_cleanup(&learner->batch);
    room_free(&learner->room);
}

void control_learner_init(const struct control_learner *learner, trp_rng *rng,
                          float *const *vectors)
{
    const trp_vector_spec *specs = learner->base.vectors;
    if (learner->policy_first > 0)
        memcpy(vectors[CONTROL_PARAMS], learner->normalizer_numbers,
               learner->policy_first * sizeof(float));
    trp_net_init(&learner->spec, rng, vectors[CONTROL_PARAMS] + learner->policy_first);
    if (learner->critics.count == 0)
        return;
    critics_init(&learner->critics, rng, vectors[CONTROL_CRITICS]);
    memcpy(vectors[CONTROL_TARGET_CRITICS], vectors[CONTROL_CRITICS],
           specs[CONTROL_CRITICS].count * sizeof(float));
    if (learner->target_policy)
        memcpy(vectors[CONTROL_TARGET_PARAMS], vectors[CONTROL_PARAMS],
               specs[CONTROL_PARAMS].count * sizeof(float));
}

/* ---- passes -------------------------------------------------------------------------------- */

trp_status control_learner_take(struct control_learner *learner, const trp_update *update)
{
    struct control_batch *batch = &learner->batch;
    const struct normalizer *normalizer = &learner->normalizer;
    const float *numbers = update->vectors[CONTROL_PARAMS];
    TRP_TRY(control_batch_take(batch, update));
    if (normalizer->size == 0)
        return TRP_OK;
    normalizer_rows_on(update->queue, normalizer, numbers, batch->rows, batch->states,
                       learner->normal_states);
    normalizer_rows_on(update->queue, normalizer, numbers, batch->rows, batch->next_states,
                       learner->normal_next_states);
    batch->states = learner->normal_states;
    batch->next_states = learner->normal_next_states;
    return TRP_OK;
}

trp_net_rows control_learner_say(struct control_learner *learner, const trp_update *update,
                                 size_t vector, const float *states, float *const *outputs)
{
    trp_net_rows rows = {.rows = learner->batch.rows, .queue = update->queue, .inputs = {states}};
    memcpy(rows.outputs, outputs, learner->spec.output_count * sizeof *outputs);
    trp_net_forward(learner->policy, update->vectors[vector] + learner->policy_first, &rows);
    return rows;
}

struct critics_pass control_learner_judge(struct control_learner *learner, const trp_update *update,
                                          size_t vector, const float *states, const float *actions)
{
    struct critics_pass pass = {.queue = update->queue,
                                .params = update->vectors[vector],
                                .rows = learner->batch.rows,
                                .states = states,
                                .actions = actions,
                                .values = learner->critics.values};
    critics_forward(&learner->critics, &pass);
    return pass;
}

void control_learner_aim(struct control_learner *learner, const trp_update *update,
                         const float *actions, float *targets)
{
    const struct control_batch *batch = &learner->batch;
    control_learner_judge(learner, update, CONTROL_TARGET_CRITICS, batch->next_states, actions);
    critic_targets_on(update->queue, &(struct critic_targets_arguments){
                                         .batch = {.rows = batch->rows,
                                                   .rewards = batch->rewards,
                                                   .discounts = batch->discounts,
                                                   .next_q = learner->critics.values[0],
                                                   .next_q2 = learner->critics.values[1]},
                                         .targets = targets});
}

trp_status control_learner_follow(struct control_learner *learner, const trp_update *update,
                                  const trp_net_rows *said, const float *const *grads,
                                  const float *loss)
{
    trp_net_grads all = {0};
    memcpy(all.outputs, grads, learner->spec.output_count * sizeof *grads);
    trp_update_backward(update, CONTROL_PARAMS, learner->policy_first, learner->policy, said, &all);
    trp_update_watch(update, CONTROL_PARAMS, loss, "policy loss");
    return trp_update_apply(update, CONTROL_PARAMS);
}

void control_learner_target(const struct control_learner *learner, const struct target_rule *how,
                            const trp_update *update)
{
    const trp_vector_spec *specs = learner->base.vectors;
    target_follow(how, update, CONTROL_TARGET_CRITICS, CONTROL_CRITICS,
                  specs[CONTROL_CRITICS].count);
    if (learner->target_policy)
        target_follow(how, update, CONTROL_TARGET_PARAMS, CONTROL_PARAMS,
                      specs[CONTROL_PARAMS].count);
}
