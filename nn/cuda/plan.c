/* A plan on a GPU: buffers are cut out of its memory once; a pass puts the works of its operations
 * on the caller's queue, in the order of the program, and the queue sees what may run at once. The
 * same pass with the same pointers is the same list, and so one graph. */
#include "plan.h"

#include <assert.h>
#include <stdlib.h>

#include "nn/cuda/bodies/images.h"
#include "core/alloc.h"
#include "limits.h"
#include "nn/limits.h"

static const struct plan_impl cuda_plan_impl;

static struct cuda_net *cuda_net(trp_net *net)
{
    return (struct cuda_net *)net;
}

/* ---- memory -------------------------------------------------------------------------------- */

static trp_status take_floats(struct cuda_net *net, size_t count, size_t each, float **floats)
{
    size_t bytes;
    void *memory;
    *floats = NULL;
    if (!size_mul(count, each, &bytes) || !size_mul(bytes, sizeof(float), &bytes) ||
        bytes > NET_ARENA_BYTES_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "network plan for a batch of %u overflows",
                        net->base.batch);
    if (bytes == 0)
        return TRP_OK;
    trp_status status = trp_device_alloc(net->device, bytes, &memory);
    if (status != TRP_OK)
        return trp_fail(status, "network plan for a batch of %u: %s", net->base.batch,
                        trp_last_error());
    *floats = memory;
    return TRP_OK;
}

/* The most of what any operation needs. */
struct needs {
    size_t columns, patch, gates, hidden;
    struct dnn_room dnn;
};

static struct needs needs_of(const struct cuda_net *net)
{
    const struct program *program = &net->base.program;
    struct needs needs = {0};
    for (uint32_t i = 0; i < program->op_count; i++) {
        const struct op *op = &program->ops[i];
        const struct value *from = op->layer ? &program->graph.values[op->layer->from[0]] : NULL;
        size_t width =
            op->b.buffer != NO_BUFFER && op->b.width > op->to.width ? op->b.width : op->to.width;
        needs.columns = width > needs.columns ? width : needs.columns;
        if (op->kind == OP_CONV || op->kind == OP_CONV_BACK) {
            struct window window = graph_window(op->layer, from);
            size_t patch = patches_count(&window, 1);
            needs.patch = patch > needs.patch ? patch : needs.patch;
            dnn_needs(net, op, &needs.dnn);
        }
        if (op->kind == OP_CELL || op->kind == OP_CELL_BACK) {
            struct cell_shape cell = graph_cell(op->layer, from);
            size_t gates = (size_t)cell_gates(cell.kind) * cell.hidden;
            needs.columns = gates > needs.columns ? gates : needs.columns;
            needs.gates = gates > needs.gates ? gates : needs.gates;
            needs.hidden = cell.hidden > needs.hidden ? cell.hidden : needs.hidden;
        }
    }
    return needs;
}

/* Of convolutions: patches of some images, or what a library needs of them. */
static trp_status take_patches(struct cuda_net *net, const struct needs *needs)
{
    struct plan_scratch *scratch = &net->scratch;
    size_t most = needs->patch > 0 ? PLAN_PATCHES_BYTES / sizeof(float) / needs->patch : 0;
    scratch->patch_images = most < 1 ? 1 : most < net->base.batch ? most : net->base.batch;
    size_t patches = scratch->patch_images * needs->patch;
    scratch->images_floats = needs->dnn.images;
    scratch->workspace_bytes = needs->dnn.workspace;
    TRP_TRY(take_floats(net, patches > needs->dnn.images ? patches : needs->dnn.images, 1,
                        &scratch->patches));
    TRP_TRY(take_floats(net, (needs->dnn.workspace + sizeof(float) - 1) / sizeof(float), 1,
                        &scratch->workspace));
    TRP_TRY(take_floats(net, needs->dnn.weights, 1, &scratch->turned));
    return take_floats(net, net->forward_only ? 0 : needs->dnn.weights, 1, &scratch->turned_grads);
}

static trp_status take_scratch(struct cuda_net *net)
{
    const struct graph *graph = &net->base.program.graph;
    struct plan_scratch *scratch = &net->scratch;
    struct needs needs = needs_of(net);
    TRP_TRY(take_patches(net, &needs));
    TRP_TRY(take_floats(net, net->base.batch, needs.gates, &scratch->from_h));
    TRP_TRY(take_floats(net, graph->noisy_count, 1, &scratch->noisy));
    TRP_TRY(take_floats(net, graph->noise_count, 1, &net->noise));
    if (net->forward_only)
        return TRP_OK;
    TRP_TRY(take_floats(net, SUM_PARTS_MAX, needs.columns, &scratch->partial));
    TRP_TRY(take_floats(net, 2 * (size_t)net->base.batch, needs.hidden, &scratch->carry));
    return take_floats(net, graph->noisy_most, 1, &scratch->noisy_grads);
}

static uint32_t plan_widest(const struct cuda_net *net)
{
    const struct program *program = &net->base.program;
    uint32_t most = 0;
    for (uint32_t i = 0; i < program->spec.output_count; i++) {
        uint32_t columns = program->graph.values[program->spec.outputs[i]].columns;
        most = columns > most ? columns : most;
    }
    return most;
}

static void cuda_plan_destroy(trp_net *base)
{
    struct cuda_net *net = cuda_net(base);
    const struct plan_scratch *scratch = &net->scratch;
    float *const all[] = {net->arena,
                          net->zeros,
                          net->noise,
                          scratch->patches,
                          scratch->carry,
                          scratch->partial,
                          scratch->from_h,
                          scratch->noisy,
                          scratch->noisy_grads,
                          scratch->turned,
                          scratch->turned_grads,
                          scratch->workspace};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        trp_device_free(net->device, all[i]);
    free(net->host_noise);
    net_cleanup(base);
    free(net);
}

static trp_status cuda_plan_make(struct cuda_net *net, const trp_net_options *options)
{
    if (options->precision > TRP_TF32)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "network plan wants precision %d; it is TRP_F32, TRP_BF16 or TRP_TF32",
                        (int)options->precision);
    TRP_TRY(net_init(&net->base, &cuda_plan_impl, options));
    net->host_noise = xcalloc(net->base.program.graph.noise_count + 1, sizeof *net->host_noise);
    TRP_TRY(take_floats(net, net->base.batch, net->base.program.arena_row, &net->arena));
    if (!net->forward_only)
        TRP_TRY(take_floats(net, net->base.batch, plan_widest(net), &net->zeros));
    return take_scratch(net);
}

trp_status cuda_plan_create(trp_device *device, trp_net **out, const trp_net_options *options)
{
    struct cuda_net *net = xcalloc(1, sizeof *net);
    net->device = device;
    net->precision = options->precision;
    net->forward_only = options->forward_only;
    trp_status status = cuda_plan_make(net, options);
    if (status != TRP_OK) {
        cuda_plan_destroy(&net->base);
        return status;
    }
    *out = &net->base;
    return TRP_OK;
}

/* ---- passes -------------------------------------------------------------------------------- */

static void plan_forward(trp_net *base, trp_queue *queue, const struct pass *pass, uint32_t rows)
{
    struct lowering run = {cuda_net(base), cuda_queue_list(queue), pass, NULL, rows};
    for (uint32_t i = 0; i < base->program.forward_count; i++) {
        run.op = &base->program.ops[i];
        lower_op(&run);
    }
}

static void plan_backward(trp_net *base, trp_queue *queue, const struct pass *given, uint32_t rows)
{
    struct pass pass = *given;
    struct lowering run = {cuda_net(base), cuda_queue_list(queue), &pass, NULL, rows};
    for (uint32_t i = 0; i < base->program.spec.output_count; i++) {
        void **output = &pass.external[external_index(PLACE_OUTPUT_GRAD, i)];
        *output = *output ? *output : run.net->zeros;
    }
    for (uint32_t i = base->program.forward_count; i < base->program.op_count; i++) {
        run.op = &base->program.ops[i];
        lower_op(&run);
        if (pass.ready && run.op->has_params)
            pass.ready(pass.context, run.op->params[0]);
    }
}

static void plan_noise(trp_net *base, trp_queue *queue, const double *noise)
{
    struct cuda_net *net = cuda_net(base);
    size_t count = base->program.graph.noise_count;
    net->has_noise = noise != NULL;
    if (!noise || count == 0)
        return;
    for (size_t i = 0; i < count; i++)
        net->host_noise[i] = (float)noise[i];
    trp_queue_copy(queue, net->noise, net->host_noise, count * sizeof(float));
}

static const struct plan_impl cuda_plan_impl = {
    .forward = plan_forward,
    .backward = plan_backward,
    .noise = plan_noise,
    .destroy = cuda_plan_destroy,
};
