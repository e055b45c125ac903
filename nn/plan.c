/* Plans on any device: what callers give becomes a pass, which is put on a queue. */
#include "plan.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "core/alloc.h"
#include "device.h"

trp_status net_init(trp_net *net, const struct plan_impl *impl, const trp_net_options *options)
{
    net->impl = impl;
    net->batch = options->batch > 0 ? options->batch : 1;
    TRP_TRY(program_build(&net->program, options->spec, options->forward_only));
    net->noise = xcalloc(net->program.graph.noise_count + 1, sizeof *net->noise);
    return TRP_OK;
}

void net_cleanup(trp_net *net)
{
    program_cleanup(&net->program);
    free(net->noise);
}

trp_status trp_net_create(trp_net **out, const trp_net_options *options)
{
    trp_device *device = options->device;
    if (!device)
        TRP_TRY(trp_device_find(&device, NULL));
    return device->impl->plan_create(device, out, options);
}

void trp_net_destroy(trp_net *net)
{
    if (net)
        net->impl->destroy(net);
}

/* f(x) = sign(x) sqrt|x| of normal numbers. */
void trp_net_resample(trp_net *net, trp_queue *queue, trp_rng *rng)
{
    for (size_t i = 0; i < net->program.graph.noise_count && rng; i++) {
        double x = trp_rng_normal(rng);
        net->noise[i] = copysign(sqrt(fabs(x)), x);
    }
    net->impl->noise(net, queue, rng ? net->noise : NULL);
}

/* What a forward reads of a pass; the rest is left alone, because a policy's one row takes no
 * longer than clearing it would. */
static void pass_begin(struct pass *pass, const trp_net *net, const float *params,
                       const trp_net_rows *rows)
{
    pass->params = params;
    pass->steps = rows->steps > 0 ? rows->steps : 1;
    pass->resets = rows->resets;
    pass->state = rows->state;
    pass->end_state = rows->end_state;
    assert(pass->steps == 1 || rows->rows % pass->steps == 0);
    for (uint32_t i = 0; i < net->program.input_count; i++) /* only read */
        pass->external[external_index(PLACE_INPUT, i)] = (void *)(uintptr_t)rows->inputs[i];
    for (uint32_t i = 0; i < net->program.spec.output_count; i++)
        pass->external[external_index(PLACE_OUTPUT, i)] = rows->outputs[i];
}

size_t trp_net_plan_param_count(const trp_net *net)
{
    return net->program.graph.param_count;
}

void trp_net_forward(trp_net *net, const float *params, const trp_net_rows *rows)
{
    struct pass pass;
    assert(rows->rows > 0);
    assert(rows->rows <= net->batch);
    pass_begin(&pass, net, params, rows);
    net->rows = rows->rows;
    net->impl->forward(net, rows->queue, &pass, rows->rows);
}

void trp_net_backward(trp_net *net, const float *params, const trp_net_rows *rows,
                      const trp_net_grads *grads)
{
    struct pass pass = {.grads = grads->params};
    assert(net->rows > 0); /* a forward came before */
    assert(rows->rows == net->rows);
    pass_begin(&pass, net, params, rows);
    pass.end_state_grad = grads->end_state;
    pass.state_grad = grads->state;
    pass.ready = grads->params ? grads->ready : NULL;
    pass.context = grads->context;
    for (uint32_t i = 0; i < net->program.spec.output_count; i++) /* only read */
        pass.external[external_index(PLACE_OUTPUT_GRAD, i)] = (void *)(uintptr_t)grads->outputs[i];
    for (size_t i = 0; i < TRP_NET_INPUTS_MAX; i++) {
        pass.external[external_index(PLACE_INPUT_GRAD, i)] = grads->inputs[i];
        pass.wants_inputs |= grads->inputs[i] != NULL;
    }
    net->impl->backward(net, rows->queue, &pass, rows->rows);
}
