#include "critics.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "bodies/moves.h"

/* ---- networks ------------------------------------------------------------------------------ */

static trp_net_spec critic_spec(const struct critics_options *options, const trp_env_spec *env,
                                uint32_t index)
{
    trp_net_spec spec;
    memset(&spec, 0, sizeof spec);
    char name[16];
    snprintf(name, sizeof name, "critic%" PRIu32, index);
    uint32_t state = torso_add_input(&spec, env);
    uint32_t action = trp_net_add(
        &spec,
        (trp_layer){.kind = TRP_INPUT, .name = "action", .shape = {(uint32_t)env->action_count}});
    uint32_t both = trp_net_add(
        &spec, (trp_layer){.kind = TRP_CONCAT, .from = {state, action}, .from_count = 2});
    trp_layer head = {.kind = TRP_LINEAR,
                      .from = {torso_add_hidden(&spec, both, &options->hidden, name)},
                      .size = options->outputs};
    snprintf(head.name, sizeof head.name, "%s.head", name);
    trp_net_output(&spec, trp_net_add(&spec, head));
    return spec;
}

trp_status critics_check(const struct critics_options *options, const trp_env_spec *env)
{
    TRP_TRY(torso_check_numbers(options->who, env));
    trp_net_spec spec = critic_spec(options, env, 0);
    return torso_check_net(options->who, TRP_TORSO_MLP, env, &spec);
}

/* ---- life ---------------------------------------------------------------------------------- */

trp_status critics_create(struct critics *critics, const struct critics_options *options,
                          const trp_env_spec *env, uint32_t batch, struct room *room)
{
    critics->count = options->count;
    critics->outputs = options->outputs;
    critics->size = (uint32_t)env->action_count;
    critics->tensors =
        xcalloc((size_t)options->count * TRP_NET_TENSORS_MAX, sizeof(trp_net_tensor));
    critics->spec = critic_spec(options, env, 0);
    critics->each = trp_net_param_count(&critics->spec);
    size_t actions = (size_t)batch * critics->size * sizeof(float);
    size_t values = (size_t)batch * critics->outputs * sizeof(float);
    for (uint32_t i = 0; i < critics->count; i++) {
        trp_net_spec spec = critic_spec(options, env, i);
        critics->tensor_count +=
            trp_net_tensors_at(&spec, i * critics->each, critics->tensors + critics->tensor_count);
        TRP_TRY(room_add(room, values, &critics->values[i]));
        TRP_TRY(room_add(room, actions, &critics->dactions[i]));
        TRP_TRY(
            trp_net_create(&critics->nets[i], &(trp_net_options){.spec = &spec,
                                                                 .batch = batch,
                                                                 .device = room->device,
                                                                 .threads = options->threads,
                                                                 .precision = options->precision}));
    }
    return TRP_OK;
}

void critics_cleanup(struct critics *critics)
{
    for (uint32_t i = 0; i < critics->count; i++)
        trp_net_destroy(critics->nets[i]);
    free(critics->tensors);
}

trp_vector_spec critics_vector(const struct critics *critics, const char *name)
{
    return (trp_vector_spec){.name = name,
                             .count = critics->count * critics->each,
                             .tensors = critics->tensors,
                             .tensor_count = critics->tensor_count};
}

void critics_init(const struct critics *critics, trp_rng *rng, float *params)
{
    for (uint32_t i = 0; i < critics->count; i++)
        trp_net_init(&critics->spec, rng, params + i * critics->each);
}

/* ---- passes -------------------------------------------------------------------------------- */

static uint32_t pass_count(const struct critics *critics, const struct critics_pass *pass)
{
    return pass->count > 0 ? pass->count : critics->count;
}

static trp_net_rows critic_rows(const struct critics_pass *pass, uint32_t index)
{
    return (trp_net_rows){.rows = pass->rows,
                          .queue = pass->queue,
                          .inputs = {pass->states, pass->actions},
                          .outputs = {pass->values[index]}};
}

void critics_forward(struct critics *critics, const struct critics_pass *pass)
{
    for (uint32_t i = 0; i < pass_count(critics, pass); i++) {
        trp_net_rows rows = critic_rows(pass, i);
        trp_net_forward(critics->nets[i], pass->params + i * critics->each, &rows);
    }
}

void critics_backward(struct critics *critics, const struct critics_pass *pass, float *grads)
{
    for (uint32_t i = 0; i < pass_count(critics, pass); i++) {
        trp_net_rows rows = critic_rows(pass, i);
        size_t at = i * critics->each;
        trp_net_backward(critics->nets[i], pass->params + at, &rows,
                         &(trp_net_grads){.outputs = {pass->values[i]}, .params = grads + at});
    }
}

void critics_backward_last(struct critics *critics, const struct critics_pass *pass,
                           const trp_update *update, size_t vector)
{
    for (uint32_t i = 0; i < pass_count(critics, pass); i++) {
        trp_net_rows rows = critic_rows(pass, i);
        trp_update_backward(update, vector, i * critics->each, critics->nets[i], &rows,
                            &(trp_net_grads){.outputs = {pass->values[i]}});
    }
}

static void add_on(trp_queue *queue, size_t count, const float *from, float *to)
{
    static const trp_kernel kernel = {.name = "critics.add", .run = add_actions_run};
    struct add_actions_arguments job = {count, from, to};
    trp_operand operands[] = {
        {offsetof(struct add_actions_arguments, from), count * sizeof(float), TRP_READ},
        {offsetof(struct add_actions_arguments, to), count * sizeof(float), TRP_READ | TRP_WRITE}};
    trp_queue_run(queue, &kernel, &job, sizeof job, operands, 2);
}

void critics_add_actions(const struct critics *critics, const struct critics_pass *pass,
                         const float *more)
{
    add_on(pass->queue, (size_t)pass->rows * critics->size, more, critics->dactions[0]);
}

const float *critics_backward_actions(struct critics *critics, const struct critics_pass *pass)
{
    for (uint32_t i = 0; i < pass_count(critics, pass); i++) {
        trp_net_rows rows = critic_rows(pass, i);
        trp_net_backward(
            critics->nets[i], pass->params + i * critics->each, &rows,
            &(trp_net_grads){.outputs = {pass->values[i]}, .inputs = {NULL, critics->dactions[i]}});
        if (i > 0)
            critics_add_actions(critics, pass, critics->dactions[i]);
    }
    return critics->dactions[0];
}
