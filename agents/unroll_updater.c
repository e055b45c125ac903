#include "unroll_updater.h"

#include "received.h"

trp_status unroll_updater_check(const struct unroll_updater *updater, const trp_update *update)
{
    struct received received = {.who = updater->who, .update = update, .steps = updater->rows};
    TRP_TRY(received_flags(&received, "valid"));
    TRP_TRY(received_flags(&received, "first"));
    if (!updater->space.continuous)
        TRP_TRY(received_choices(&received, "action", updater->space.sizes, updater->space.parts));
    return received_mask(&received, AC_MASK, updater->space.size,
                         trp_update_column(update, 0, "valid"));
}

uint32_t unroll_updater_rows(const struct unroll_updater *updater, const trp_update *update)
{
    return update->batches->rows * updater->rows;
}

/* ---- passes ---------------------------------------------------------------------------------- */

trp_net_rows unroll_updater_pass(const struct unroll_updater *updater, const trp_update *update,
                                 const void *x, uint32_t rows)
{
    trp_net_rows pass = {.rows = rows, .queue = update->queue, .inputs = {x}};
    actor_critic_outputs_of(&updater->outputs, pass.outputs);
    return pass;
}

struct decisions unroll_updater_decisions(const struct unroll_updater *updater,
                                          const trp_update *update, uint32_t rows, const bool *mask,
                                          const void *actions)
{
    struct decisions decisions = {.space = updater->space,
                                  .rows = rows,
                                  .says = updater->outputs.says,
                                  .log_std = updater->outputs.log_std,
                                  .mask = mask,
                                  .actions = actions};
    if (updater->space.continuous || updater->space.parts < 2)
        decisions.space.sizes = NULL;
    else
        decisions.space.sizes =
            trp_queue_upload(update->queue, updater->sizes, updater->space.sizes,
                             updater->space.parts * sizeof(int32_t));
    return decisions;
}

void unroll_updater_backward(struct unroll_updater *updater, const trp_update *update,
                             const trp_net_rows *pass)
{
    trp_net_grads grads = {0};
    float *outputs[TRP_NET_OUTPUTS_MAX] = {NULL};
    actor_critic_outputs_of(&updater->outputs, outputs);
    for (size_t i = 0; i < TRP_NET_OUTPUTS_MAX; i++)
        grads.outputs[i] = outputs[i];
    trp_update_backward(update, UNROLL_PARAMS, 0, updater->net, pass, &grads);
}

void unroll_updater_report_lag(const trp_update *update)
{
    const trp_batch *batch = update->batches;
    double sum = 0, count = 0;
    for (uint32_t row = 0; row < batch->rows && batch->policy_versions; row++) {
        if (batch->policy_versions[row] == 0)
            continue;
        sum += (double)update->version - (double)batch->policy_versions[row];
        count++;
    }
    if (count > 0)
        trp_update_report(update, "lag", sum / count);
}

/* ---- its life -------------------------------------------------------------------------------- */

void unroll_updater_draw(trp_updater *base, trp_rng *rng, float *const *vectors)
{
    trp_net_init(&((struct unroll_updater *)base)->spec, rng, vectors[UNROLL_PARAMS]);
}

void unroll_updater_cleanup(struct unroll_updater *updater)
{
    trp_net_destroy(updater->net);
    room_free(&updater->room);
}

static void declare(struct unroll_updater *updater, const struct unroll *unroll,
                    const trp_env_spec *env, uint32_t batch_size, const trp_optimizer *optimizer)
{
    trp_batch_spec *source = &updater->base.sources[0];
    *source = (trp_batch_spec){.table = unroll->table,
                               .batch_size = batch_size ? batch_size : unroll->batch_size,
                               .stacks = torso_stacks(env)};
    unroll_columns(unroll, env, &source->columns);
    updater->base.source_count = 1;
    updater->base.vectors[UNROLL_PARAMS] = (trp_vector_spec){
        .name = "params",
        .count = trp_net_param_count(&updater->spec),
        .learned = true,
        .optimizer = *optimizer,
        .tensors = updater->tensors,
        .tensor_count = trp_net_tensors(&updater->spec, updater->tensors),
    };
    updater->base.vector_count = 1;
}

static trp_status take_outputs(struct unroll_updater *updater, size_t rows)
{
    size_t says = rows * updater->space.size * sizeof(float);
    struct room *room = &updater->room;
    struct actor_critic_outputs *outputs = &updater->outputs;
    TRP_TRY(room_add(room, rows * torso_pixels_bytes(&updater->image), &updater->pixels));
    TRP_TRY(room_add(room, updater->space.parts * sizeof(int32_t), &updater->sizes));
    TRP_TRY(room_add(room, says, &outputs->says));
    TRP_TRY(room_add(room, updater->space.continuous ? says : 0, &outputs->log_std));
    return room_add(room, rows * sizeof(float), &outputs->values);
}

trp_status unroll_updater_init(struct unroll_updater *updater, const struct unroll *unroll,
                               const trp_env_spec *env, const trp_updater_options *options,
                               const trp_optimizer *optimizer)
{
    const struct actor_critic *network = &unroll->network;
    updater->base.device = updater->room.device = options->device;
    updater->who = network->who;
    updater->rows = unroll->steps + 1;
    updater->space = action_space(env);
    updater->spec = actor_critic_spec(network, env);
    updater->image = torso_image(network->network, env);
    updater->x_bytes = trp_tensor_bytes(&env->observations[0]);
    updater->action_bytes = updater->space.parts * sizeof(float);
    updater->action_column = updater->space.continuous ? AC_SAMPLE : "action";
    declare(updater, unroll, env, options->batch_size, optimizer);
    TRP_TRY(unroll_check_batch(unroll, updater->base.sources[0].batch_size));
    uint32_t rows = updater->base.sources[0].batch_size * updater->rows;
    TRP_TRY(take_outputs(updater, rows));
    return trp_net_create(&updater->net, &(trp_net_options){.spec = &updater->spec,
                                                            .batch = rows,
                                                            .device = options->device,
                                                            .threads = options->threads,
                                                            .precision = network->precision});
}
