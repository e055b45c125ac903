/* A plan: one arena cut into activations, their gradients and scratch when it is made; a step then
 * only walks the layer table. With several threads each takes a share of the rows through the whole
 * network, forward and backward, with a gradient of its own, so that threads meet once per pass
 * instead of once per layer; the gradients are added in the order of the parts, so the bits do not
 * depend on who was first. */
#include "net.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "limits.h"

enum { ROWS_STEP = 8 };

/* ---- planning ---------------------------------------------------------------------------- */

/* Lays out the arena: with arena NULL only counts. Everything starts at a multiple of 64 bytes. */
struct arena_cutter {
    char *arena;
    size_t used; /* bytes */
    bool overflow;
};

static void *cut(struct arena_cutter *cutter, size_t count, size_t width, size_t element_bytes)
{
    size_t bytes;
    if (!size_mul(count, width, &bytes) || !size_mul(bytes, element_bytes, &bytes) ||
        !size_add(bytes, ALIGNMENT - 1, &bytes)) {
        cutter->overflow = true;
        return NULL;
    }
    bytes -= bytes % ALIGNMENT;
    void *here = cutter->arena ? cutter->arena + cutter->used : NULL;
    if (!size_add(cutter->used, bytes, &cutter->used))
        cutter->overflow = true;
    return here;
}

static size_t scratch_elements(const trp_net *net)
{
    size_t most = 0;
    for (uint32_t i = 0; i < net->shape.layer_count; i++) {
        const struct layer *layer = &net->shape.layers[i];
        size_t need = net->backend->scratch(layer->inputs, layer->outputs);
        most = need > most ? need : most;
    }
    return most;
}

static void net_cut(trp_net *net, struct arena_cutter *cutter)
{
    const struct net_shape *shape = &net->shape;
    size_t element = net->backend->element_bytes;
    uint32_t last = shape->slot_count - 1;
    net->strides[0] = net->spec.inputs;
    for (uint32_t i = 1; i <= last; i++) {
        if (i == last && !net->spec.dueling) {
            net->strides[i] = net->spec.outputs;
            continue;
        }
        net->strides[i] = round_up(shape->slots[i].width, ALIGNMENT_FLOATS);
        net->slots[i] = cut(cutter, net->batch, net->strides[i], element);
        net->slot_grads[i] = cut(cutter, net->batch, net->strides[i], element);
    }
    net->q = cut(cutter, net->batch, net->spec.outputs, sizeof(float));
    net->q_online = cut(cutter, net->batch, net->spec.outputs, sizeof(float));
    net->q_target = cut(cutter, net->batch, net->spec.outputs, sizeof(float));
    for (uint32_t i = 0; i < net->threads; i++) {
        net->parts[i].scratch = cut(cutter, scratch_elements(net), 1, element);
        if (i > 0)
            net->parts[i].grads = cut(cutter, shape->param_count, 1, element);
    }
}

static trp_status net_plan(trp_net *net)
{
    struct arena_cutter count = {0};
    net_cut(net, &count);
    if (count.overflow)
        return trp_fail(TRP_INVALID_ARGUMENT, "network plan for a batch of %u overflows",
                        net->batch);
    if (count.used <= NET_ARENA_BYTES_MAX)
        net->arena = aligned_alloc(ALIGNMENT, count.used);
    if (!net->arena)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "network plan for a batch of %u needs %zu bytes",
                        net->batch, count.used);
    net->arena_bytes = count.used;
    memset(net->arena, 0, count.used); /* also touches the pages before the first step */
    struct arena_cutter cutter = {.arena = net->arena};
    net_cut(net, &cutter);
    if (net->threads > 1)
        TRP_TRY(team_create(&net->team, net->threads));
    return TRP_OK;
}

trp_status net_create(trp_net **out, const trp_net_options *options, const struct backend *backend)
{
    TRP_TRY(trp_net_spec_check(&options->spec));
    if (options->threads > NET_THREADS_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "network plan wants %u threads; at most %d",
                        options->threads, NET_THREADS_MAX);
    trp_net *net = xcalloc(1, sizeof *net);
    net->spec = options->spec;
    net->shape = shape_of(&options->spec);
    net->backend = backend;
    net->batch = options->batch > 0 ? options->batch : 1;
    net->threads = options->threads > 0 ? options->threads : 1;
    net->parts = xcalloc(net->threads, sizeof *net->parts);
    net->q_sums = xcalloc(net->threads, sizeof *net->q_sums);
    trp_status status = net_plan(net);
    if (status != TRP_OK) {
        trp_net_destroy(net);
        return status;
    }
    *out = net;
    return TRP_OK;
}

/* ---- passes over some rows --------------------------------------------------------------- */

static inline const char *at(const void *base, size_t element, size_t index)
{
    return (const char *)base + index * element;
}

static inline char *at_mutable(void *base, size_t element, size_t index)
{
    return (char *)base + index * element;
}

struct rows net_part_rows(const trp_net *net, uint32_t rows, uint32_t part)
{
    size_t share = round_up((rows + net->threads - 1) / net->threads, ROWS_STEP);
    size_t from = part * share, to = from + share;
    return (struct rows){from < rows ? (uint32_t)from : rows, to < rows ? (uint32_t)to : rows};
}

static void dueling_rows(trp_net *net, const void *in, size_t in_stride, void *out,
                         size_t out_stride, struct rows rows, bool backward)
{
    size_t element = net->backend->element_bytes;
    net->backend->dueling(&(struct dueling_job){
        .in = at(in, element, rows.from * in_stride),
        .out = at_mutable(out, element, rows.from * out_stride),
        .in_stride = in_stride,
        .out_stride = out_stride,
        .rows = rows.to - rows.from,
        .outputs = net->spec.outputs,
        .backward = backward,
    });
}

void net_forward_part(trp_net *net, const void *params, const void *in, void *out, struct rows rows,
                      uint32_t part)
{
    if (rows.from == rows.to)
        return;
    size_t element = net->backend->element_bytes;
    uint32_t last = net->shape.slot_count - 1;
    for (uint32_t i = 0; i < net->shape.layer_count; i++) {
        const struct layer *layer = &net->shape.layers[i];
        size_t x_stride = net->strides[layer->from], y_stride = net->strides[layer->to];
        const void *x = layer->from == 0 ? in : net->slots[layer->from];
        void *y = net->slots[layer->to] ? net->slots[layer->to] : out;
        net->backend->forward(&(struct forward_job){
            .x = at(x, element, rows.from * x_stride + layer->from_column),
            .w = at(params, element, layer->weights),
            .bias = at(params, element, layer->bias),
            .y = at_mutable(y, element, rows.from * y_stride + layer->to_column),
            .x_stride = x_stride,
            .y_stride = y_stride,
            .rows = rows.to - rows.from,
            .inputs = layer->inputs,
            .outputs = layer->outputs,
            .activation = layer->activation,
            .scratch = net->parts[part].scratch,
        });
    }
    if (net->spec.dueling)
        dueling_rows(net, net->slots[last], net->strides[last], out, net->spec.outputs, rows,
                     false);
}

static void backward_layer(trp_net *net, const struct layer *layer, const void *params,
                           const void *in, const void *dout, void *grads, struct rows rows,
                           uint32_t part)
{
    size_t element = net->backend->element_bytes;
    size_t x_stride = net->strides[layer->from], y_stride = net->strides[layer->to];
    const void *x = layer->from == 0 ? in : net->slots[layer->from];
    const void *dy = net->slot_grads[layer->to] ? net->slot_grads[layer->to] : dout;
    size_t x_first = rows.from * x_stride + layer->from_column;
    net->backend->backward(&(struct backward_job){
        .x = at(x, element, x_first),
        .w = at(params, element, layer->weights),
        .dy = at(dy, element, rows.from * y_stride + layer->to_column),
        .dw = at_mutable(grads, element, layer->weights),
        .dbias = at_mutable(grads, element, layer->bias),
        .dx = layer->from == 0 ? NULL : at_mutable(net->slot_grads[layer->from], element, x_first),
        .x_stride = x_stride,
        .dy_stride = y_stride,
        .dx_stride = x_stride,
        .rows = rows.to - rows.from,
        .inputs = layer->inputs,
        .outputs = layer->outputs,
        .gate = net->shape.slots[layer->from].gate,
        .overwrite = part > 0,
        .scratch = net->parts[part].scratch,
    });
}

void net_backward_part(trp_net *net, const void *params, const void *in, const void *dout,
                       void *grads, struct rows rows, uint32_t part, trp_grads_ready ready,
                       void *context)
{
    if (rows.from == rows.to)
        return;
    uint32_t last = net->shape.slot_count - 1;
    if (net->spec.dueling)
        dueling_rows(net, dout, net->spec.outputs, net->slot_grads[last], net->strides[last], rows,
                     true);
    void *target = part == 0 ? grads : net->parts[part].grads;
    for (uint32_t i = net->shape.layer_count; i-- > 0;) {
        const struct layer *layer = &net->shape.layers[i];
        backward_layer(net, layer, params, in, dout, target, rows, part);
        if (ready)
            ready(context, layer->weights);
    }
}

static void add_range(const struct backend *backend, void *to, const void *from, size_t lo,
                      size_t hi)
{
    if (backend->element_bytes == sizeof(double)) {
        double *sums = to;
        for (size_t i = lo; i < hi; i++)
            sums[i] += ((const double *)from)[i];
    } else {
        float *sums = to;
        for (size_t i = lo; i < hi; i++)
            sums[i] += ((const float *)from)[i];
    }
}

void net_reduce(trp_net *net, uint32_t rows, void *grads, trp_grads_ready ready, void *context)
{
    size_t hi = net->shape.param_count;
    for (uint32_t i = net->shape.layer_count; i-- > 0;) {
        size_t lo = net->shape.layers[i].weights;
        for (uint32_t part = 1; part < net->threads; part++) {
            struct rows share = net_part_rows(net, rows, part);
            if (share.from < share.to)
                add_range(net->backend, grads, net->parts[part].grads, lo, hi);
        }
        hi = lo;
        if (ready)
            ready(context, lo);
    }
}

/* ---- passes over a batch ----------------------------------------------------------------- */

struct pass {
    trp_net *net;
    const void *params, *in, *dout;
    void *out, *grads;
};

static void forward_work(void *arg, uint32_t part)
{
    struct pass *pass = arg;
    net_forward_part(pass->net, pass->params, pass->in, pass->out,
                     net_part_rows(pass->net, pass->net->rows, part), part);
}

static void backward_work(void *arg, uint32_t part)
{
    struct pass *pass = arg;
    net_backward_part(pass->net, pass->params, pass->in, pass->dout, pass->grads,
                      net_part_rows(pass->net, pass->net->rows, part), part, NULL, NULL);
}

void net_forward(trp_net *net, const void *params, const void *in, uint32_t rows, void *out)
{
    assert(rows > 0);
    assert(rows <= net->batch);
    net->rows = rows;
    struct pass pass = {.net = net, .params = params, .in = in, .out = out};
    if (net->team && rows > ROWS_STEP)
        team_run(net->team, forward_work, &pass);
    else
        net_forward_part(net, params, in, out, (struct rows){0, rows}, 0);
}

void net_backward(trp_net *net, const void *params, const void *in, const void *dout, void *grads,
                  trp_grads_ready ready, void *context)
{
    assert(net->rows > 0); /* a forward came before */
    struct pass pass = {.net = net, .params = params, .in = in, .dout = dout, .grads = grads};
    if (net->team && net->rows > ROWS_STEP) {
        team_run(net->team, backward_work, &pass);
        net_reduce(net, net->rows, grads, ready, context);
    } else {
        net_backward_part(net, params, in, dout, grads, (struct rows){0, net->rows}, 0, ready,
                          context);
    }
}

/* ---- public ------------------------------------------------------------------------------ */

float *trp_floats_create(size_t count)
{
    size_t bytes;
    bool fits = size_mul(count, sizeof(float), &bytes) && bytes <= SIZE_MAX / 2;
    bytes = fits ? round_up(bytes > 0 ? bytes : 1, ALIGNMENT) : SIZE_MAX;
    float *floats = fits ? aligned_alloc(ALIGNMENT, bytes) : NULL;
    if (!floats)
        return xcalloc(SIZE_MAX, 1); /* reports the size and aborts */
    memset(floats, 0, bytes);
    return floats;
}

void trp_floats_destroy(float *floats)
{
    free(floats);
}

trp_status trp_net_create(trp_net **out, const trp_net_options *options)
{
    switch (options->backend) {
    case TRP_BACKEND_REF:
        return net_create(out, options, &backend_ref_f32);
    case TRP_BACKEND_AUTO:
    case TRP_BACKEND_CPU:
        break;
    default:
        return trp_fail(TRP_INVALID_ARGUMENT, "network backend %d is unknown",
                        (int)options->backend);
    }
    TRP_TRY(trp_net_spec_check(&options->spec));
    struct net_shape shape = shape_of(&options->spec);
    size_t most = 0;
    for (uint32_t i = 0; i < shape.layer_count; i++) {
        size_t weights = (size_t)shape.layers[i].inputs * shape.layers[i].outputs;
        most = weights > most ? weights : most;
    }
    return net_create(out, options, backend_cpu(most, options->batch));
}

void trp_net_destroy(trp_net *net)
{
    if (!net)
        return;
    team_destroy(net->team);
    free(net->arena);
    free(net->parts);
    free(net->q_sums);
    free(net);
}

void trp_net_forward(trp_net *net, const float *params, const float *in, uint32_t rows, float *out)
{
    assert(net->backend->element_bytes == sizeof(float));
    net_forward(net, params, in, rows, out);
}

void trp_net_backward(trp_net *net, const float *params, const float *in, const float *dout,
                      float *grads, trp_grads_ready ready, void *context)
{
    assert(net->backend->element_bytes == sizeof(float));
    net_backward(net, params, in, dout, grads, ready, context);
}
