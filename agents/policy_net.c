/* A host's network is called where its rows are. A device has room for the most rows of a call:
 * what goes up and down are the rows that there are. */
#include "policy_net.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "frame_ring.h"

struct policy_net_there {
    trp_queue *queue;
    struct room room;
    struct frame_ring ring;
    size_t input_bytes, state_bytes; /* of a row, like: */
    size_t output_bytes[TRP_NET_OUTPUTS_MAX];
    uint32_t output_count;
    float *params;
    void *input;
    uint8_t *pixels;
    float *outputs[TRP_NET_OUTPUTS_MAX], *states;
};

/* ---- beginning and end ----------------------------------------------------------------------- */

static trp_status make_there(struct policy_net *net, const struct policy_net_options *options)
{
    const trp_net_spec *spec = options->spec;
    struct policy_net_there *there = net->there = xcalloc(1, sizeof *there);
    size_t rows = net->rows;
    there->room.device = options->place->device;
    there->input_bytes = trp_tensor_bytes(&options->env->observations[0]);
    there->state_bytes = trp_net_state_width(spec) * sizeof(float);
    there->output_count = spec->output_count;
    TRP_TRY(trp_queue_create(&there->queue, there->room.device));
    TRP_TRY(room_add(&there->room, net->param_count * sizeof(float), &there->params));
    TRP_TRY(room_add(&there->room, rows * there->input_bytes, &there->input));
    TRP_TRY(frame_ring_create(&there->ring, &there->room, torso_stacks(options->env), net->rows,
                              options->place->slots ? options->place->slots : net->rows));
    TRP_TRY(room_add(&there->room, rows * torso_pixels_bytes(&net->image), &there->pixels));
    TRP_TRY(room_add(&there->room, rows * there->state_bytes, &there->states));
    for (uint32_t i = 0; i < there->output_count; i++) {
        there->output_bytes[i] = trp_net_output_width(spec, i) * sizeof(float);
        TRP_TRY(room_add(&there->room, rows * there->output_bytes[i], &there->outputs[i]));
    }
    return TRP_OK;
}

trp_status policy_net_create(struct policy_net *net, trp_policy *policy,
                             const struct policy_net_options *options)
{
    trp_device *device = options->place->device;
    if (!device)
        TRP_TRY(trp_device_find(&device, NULL));
    *net = (struct policy_net){.who = options->who,
                               .rows = options->place->rows ? options->place->rows : 1,
                               .image = torso_image(options->network, options->env),
                               .param_count = trp_net_param_count(options->spec)};
    policy->device = device;
    policy->param_count = net->param_count;
    policy->tensors = net->tensors;
    policy->tensor_count = trp_net_tensors(options->spec, net->tensors);
    net->params = trp_floats_create(net->param_count);
    TRP_TRY(trp_net_create(&net->net, &(trp_net_options){.spec = options->spec,
                                                         .batch = net->rows,
                                                         .device = device,
                                                         .forward_only = true,
                                                         .precision = options->precision}));
    if (!trp_device_is_host(device))
        return make_there(net, options);
    if (torso_pixels_bytes(&net->image) > 0)
        net->pixels = xcalloc(net->rows, torso_pixels_bytes(&net->image));
    return TRP_OK;
}

void policy_net_cleanup(struct policy_net *net)
{
    trp_net_destroy(net->net);
    if (net->there) {
        frame_ring_cleanup(&net->there->ring);
        trp_queue_destroy(net->there->queue);
        room_free(&net->there->room);
    }
    free(net->there);
    trp_floats_destroy(net->params);
    free(net->pixels);
}

/* ---- calls ----------------------------------------------------------------------------------- */

trp_status policy_net_load(struct policy_net *net, const float *params, size_t count)
{
    struct policy_net_there *there = net->there;
    if (count != net->param_count)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s policy: %zu parameters, the network has %zu",
                        net->who, count, net->param_count);
    memcpy(net->params, params, count * sizeof *params);
    if (!there)
        return TRP_OK;
    trp_queue_copy(there->queue, there->params, net->params, count * sizeof *params);
    return trp_queue_sync(there->queue, trp_queue_mark(there->queue));
}

trp_status policy_net_check(const struct policy_net *net, const trp_act *act)
{
    const struct frame_ring *ring = net->there ? &net->there->ring : NULL;
    if (act->rows > net->rows)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s policy: %" PRIu32 " rows, made for %" PRIu32,
                        net->who, act->rows, net->rows);
    for (uint32_t row = 0; ring && ring->stacks.frames > 0 && row < act->rows; row++)
        if (act->slots[row] >= ring->slots)
            return trp_fail(TRP_INVALID_ARGUMENT, "%s policy: slot %" PRIu32 ", made for %" PRIu32,
                            net->who, act->slots[row], ring->slots);
    return TRP_OK;
}

void policy_net_resample(struct policy_net *net, trp_rng *rng)
{
    trp_net_resample(net->net, net->there ? net->there->queue : NULL, rng);
}

trp_status policy_net_say_there(struct policy_net *net, const trp_act *act,
                                const trp_net_rows *rows)
{
    struct policy_net_there *there = net->there;
    trp_queue *queue = there->queue;
    size_t count = act->rows;
    trp_net_rows pass = {.rows = act->rows, .queue = queue};
    if (there->ring.stacks.frames > 0)
        frame_ring_put(&there->ring, queue, act, there->input);
    else
        trp_queue_copy(queue, there->input, act->observations[0], count * there->input_bytes);
    pass.inputs[0] = torso_pixels_on(queue, &net->image, act->rows, there->input, there->pixels);
    if (rows->state) {
        trp_queue_copy(queue, there->states, rows->state, count * there->state_bytes);
        pass.state = pass.end_state = there->states;
    }
    memcpy(pass.outputs, there->outputs, sizeof pass.outputs);
    trp_net_forward(net->net, there->params, &pass);
    for (uint32_t i = 0; i < there->output_count; i++)
        trp_queue_copy(queue, rows->outputs[i], there->outputs[i], count * there->output_bytes[i]);
    if (rows->state)
        trp_queue_copy(queue, rows->end_state, there->states, count * there->state_bytes);
    return trp_queue_sync(queue, trp_queue_mark(queue));
}
