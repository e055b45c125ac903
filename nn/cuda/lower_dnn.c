/* Convolutions by a library (struct conv_job), where the machine has one that makes them. It has an
 * order of weights of its own, and no bytes: kernels of ours bring that about, and add bias and
 * activation. With bfloat16 they round the factors, which TF32 holds exactly: cuDNN makes float32
 * of nothing shorter. Images go as many at a time as there is room for copies of them.
 *
 * The plan asks for a full batch when it is made, and has the workspace that this takes; other
 * numbers of rows are asked for when they come, and get no more than that. */
#include "nn/cuda/bodies/convolve.h"
#include "kernels.h"
#include "plan.h"

/* A convolution and some of its images. */
struct dnn_run {
    const struct lowering *run;
    struct window window;
    struct place_on x, y, dx; /* y or its gradient */
    bool bytes, rounded;
    bool weights, data;                 /* gradients that are wanted */
    bool casts_x, casts_dy, casts_dx;   /* they are made in the room of images */
    size_t x_room, y_room;              /* floats of an image there */
    uint32_t rows, most, first, images; /* most: at a time */
};

static size_t dnn_image(const struct dnn_run *dnn)
{
    return (size_t)dnn->window.height * dnn->window.width * dnn->window.channels;
}

static size_t dnn_result(const struct dnn_run *dnn)
{
    return (size_t)window_out_height(&dnn->window) * window_out_width(&dnn->window) *
           dnn->window.filters;
}

/* All but places, which follow from a pass. */
static struct dnn_run dnn_of(const struct cuda_net *net, const struct op *op, uint32_t rows)
{
    enum { FLOATS = PLAN_PATCHES_BYTES / sizeof(float) };
    const struct program *program = &net->base.program;
    bool back = op->kind == OP_CONV_BACK;
    struct dnn_run dnn = {
        .window = graph_window(op->layer, &program->graph.values[op->layer->from[0]]),
        .bytes = program->buffers[op->a.buffer].element_bytes == 1,
        .rounded = net->precision == TRP_BF16,
        .rows = rows,
    };
    dnn.x.stride = program->buffers[op->a.buffer].stride;
    dnn.y.stride = program->buffers[back ? op->b.buffer : op->to.buffer].stride;
    if (back && op->to.buffer != NO_BUFFER)
        dnn.dx.stride = program->buffers[op->to.buffer].stride;
    dnn.casts_x = dnn.bytes || dnn.rounded;
    dnn.casts_dx = back && op->accumulate;
    dnn.casts_dy = back && dnn.rounded;
    if (dnn.casts_x || dnn.casts_dx)
        dnn.x_room = round_up(dnn_image(&dnn), ALIGNMENT_FLOATS);
    if (dnn.casts_dy)
        dnn.y_room = round_up(dnn_result(&dnn), ALIGNMENT_FLOATS);
    size_t room = dnn.x_room + dnn.y_room, most = room > 0 ? FLOATS / room : rows;
    dnn.most = dnn.images = most < 1 ? 1 : most < rows ? (uint32_t)most : rows;
    return dnn;
}

static struct conv_job dnn_job(const struct dnn_run *dnn, const struct cuda_net *net,
                               enum conv_part makes)
{
    bool data = makes == CONV_DATA;
    bool copy = data ? dnn->casts_dx : dnn->casts_x;
    return (struct conv_job){
        .window = dnn->window,
        .makes = makes,
        .precision = net->precision == TRP_F32 ? TRP_F32 : TRP_TF32,
        .images = dnn->images,
        .x_stride = copy   ? dnn_image(dnn)
                    : data ? dnn->dx.stride
                           : dnn->x.stride,
        .y_stride = dnn->casts_dy ? dnn_result(dnn) : dnn->y.stride,
        .workspace_most = dnn->rows == net->base.batch ? (size_t)PLAN_WORKSPACE_BYTES
                                                       : net->scratch.workspace_bytes,
    };
}

/* Asks for a part, with all numbers of images that come; `workspace` is the most bytes. */
static bool dnn_asks(struct dnn_run dnn, const struct cuda_net *net, enum conv_part makes,
                     size_t *workspace)
{
    struct machine *machine = machine_of(net->device);
    uint32_t rest = dnn.rows % dnn.most;
    for (int last = 0; last < 2; last++) {
        size_t bytes = 0;
        dnn.images = last ? rest : dnn.most;
        struct conv_job job = dnn_job(&dnn, net, makes);
        if (dnn.images > 0 && !machine->impl->convolves(machine, &job, &bytes))
            return false;
        *workspace = bytes > *workspace ? bytes : *workspace;
    }
    return true;
}

void dnn_needs(const struct cuda_net *net, const struct op *op, struct dnn_room *room)
{
    static const enum conv_part parts[] = {CONV_FORWARD, CONV_WEIGHTS, CONV_DATA};
    struct dnn_run dnn = dnn_of(net, op, net->base.batch);
    bool back = op->kind == OP_CONV_BACK;
    size_t weights = window_patch(&dnn.window) * dnn.window.filters;
    size_t images = dnn.most * (dnn.x_room + dnn.y_room);
    for (int i = back; i < (dnn.dx.stride > 0 ? 3 : 1 + back); i++) {
        if (!dnn_asks(dnn, net, parts[i], &room->workspace))
            continue;
        room->weights = weights > room->weights ? weights : room->weights;
        room->images = images > room->images ? images : room->images;
    }
}

/* ---- places -------------------------------------------------------------------------------- */

static bool is_placed(struct place_on place, const struct dnn_run *dnn)
{
    bool steps = dnn->most == dnn->rows || place.stride * sizeof(float) % CONV_ALIGNMENT == 0;
    return (uintptr_t)place.at % CONV_ALIGNMENT == 0 && steps;
}

/* False: the library does not make it, or not there. */
static bool dnn_begin(struct dnn_run *dnn, const struct lowering *run)
{
    const struct op *op = run->op;
    const struct plan_scratch *scratch = &run->net->scratch;
    bool back = op->kind == OP_CONV_BACK;
    size_t workspace = 0;
    if (!scratch->turned || run->rows == 0)
        return false;
    *dnn = dnn_of(run->net, op, run->rows);
    dnn->run = run;
    dnn->x = span_on(run, op->a);
    dnn->y = span_on(run, back ? op->b : op->to);
    dnn->weights = back && param_grad_on(run, 0);
    dnn->dx.at = back ? dx_on(run) : NULL;
    dnn->data = dnn->dx.at != NULL;
    if (dnn->most * (dnn->x_room + dnn->y_room) > scratch->images_floats)
        return false;
    if ((!dnn->casts_dy && !is_placed(dnn->y, dnn)) ||
        (!dnn->casts_x && (!back || dnn->weights) && !is_placed(dnn->x, dnn)) ||
        (!dnn->casts_dx && dnn->data && !is_placed(dnn->dx, dnn)))
        return false;
    return (back || dnn_asks(*dnn, run->net, CONV_FORWARD, &workspace)) &&
           (!dnn->weights || dnn_asks(*dnn, run->net, CONV_WEIGHTS, &workspace)) &&
           (!dnn->data || dnn_asks(*dnn, run->net, CONV_DATA, &workspace)) &&
           workspace <= scratch->workspace_bytes;
}

static bool dnn_next(struct dnn_run *dnn)
{
    dnn->first += dnn->images;
    if (dnn->first >= dnn->rows)
        return false;
    uint32_t left = dnn->rows - dnn->first;
    dnn->images = dnn->images < left ? dnn->images : left;
    return true;
}

static float *images_on(const struct dnn_run *dnn, struct place_on place)
{
    return place.at + dnn->first * place.stride;
}

/* The room of images: x or dx, then dy. */
static float *x_copy(const struct dnn_run *dnn)
{
    return dnn->run->net->scratch.patches;
}

static float *dy_copy(const struct dnn_run *dnn)
{
    return x_copy(dnn) + dnn->most * dnn->x_room;
}

/* ---- works --------------------------------------------------------------------------------- */

static void dnn_turn(const struct dnn_run *dnn)
{
    const struct lowering *run = dnn->run;
    work_kernel(run->list, &kernel_turn_weights,
                &(struct turn_weights_arguments){.w = param_on(run, 0),
                                                 .to = run->net->scratch.turned,
                                                 .patch = (uint32_t)window_patch(&dnn->window),
                                                 .filters = dnn->window.filters,
                                                 .rounded = dnn->rounded});
}

static void cast_x(const struct dnn_run *dnn)
{
    const uint8_t *bytes = (const uint8_t *)dnn->x.at;
    work_kernel(dnn->run->list, &kernel_cast_images,
                &(struct cast_images_arguments){
                    .x = dnn->bytes ? NULL : images_on(dnn, dnn->x),
                    .bytes = dnn->bytes ? bytes + dnn->first * dnn->x.stride : NULL,
                    .to = x_copy(dnn),
                    .x_stride = dnn->x.stride,
                    .images = dnn->images,
                    .values = (uint32_t)dnn_image(dnn),
                    .rounded = dnn->rounded});
}

static void cast_dy(const struct dnn_run *dnn)
{
    work_kernel(dnn->run->list, &kernel_cast_images,
                &(struct cast_images_arguments){.x = images_on(dnn, dnn->y),
                                                .to = dy_copy(dnn),
                                                .x_stride = dnn->y.stride,
                                                .images = dnn->images,
                                                .values = (uint32_t)dnn_result(dnn),
                                                .rounded = true});
}

static void convolve(const struct dnn_run *dnn, enum conv_part makes)
{
    const struct cuda_net *net = dnn->run->net;
    struct machine *machine = machine_of(net->device);
    struct conv_job job = dnn_job(dnn, net, makes);
    bool copy = makes == CONV_DATA ? dnn->casts_dx : dnn->casts_x;
    (void)machine->impl->convolves(machine, &job, &job.workspace_bytes); /* as before */
    job.x = copy ? x_copy(dnn) : images_on(dnn, makes == CONV_DATA ? dnn->dx : dnn->x);
    job.w = makes == CONV_WEIGHTS ? net->scratch.turned_grads : net->scratch.turned;
    job.y = dnn->casts_dy ? dy_copy(dnn) : images_on(dnn, dnn->y);
    job.workspace = job.workspace_bytes > 0 ? net->scratch.workspace : NULL;
    work_conv(dnn->run->list, &job);
}

bool dnn_forward(const struct lowering *run)
{
    struct dnn_run dnn;
    if (!dnn_begin(&dnn, run))
        return false;
    dnn_turn(&dnn);
    do {
        float *y = images_on(&dnn, dnn.y);
        if (dnn.casts_x)
            cast_x(&dnn);
        convolve(&dnn, CONV_FORWARD);
        work_kernel(run->list, &kernel_finish_images,
                    &(struct finish_images_arguments){.from = y,
                                                      .bias = param_on(run, 1),
                                                      .to = y,
                                                      .from_stride = dnn.y.stride,
                                                      .to_stride = dnn.y.stride,
                                                      .images = dnn.images,
                                                      .values = (uint32_t)dnn_result(&dnn),
                                                      .channels = dnn.window.filters,
                                                      .activation = run->op->activation});
    } while (dnn_next(&dnn));
    return true;
}

static void dnn_weights(const struct dnn_run *dnn)
{
    const struct lowering *run = dnn->run;
    if (dnn->casts_x)
        cast_x(dnn);
    convolve(dnn, CONV_WEIGHTS);
    work_kernel(run->list, &kernel_turn_back,
                &(struct turn_back_arguments){.from = run->net->scratch.turned_grads,
                                              .dw = param_grad_on(run, 0),
                                              .patch = (uint32_t)window_patch(&dnn->window),
                                              .filters = dnn->window.filters});
}

static void dnn_data(const struct dnn_run *dnn)
{
    const struct lowering *run = dnn->run;
    convolve(dnn, CONV_DATA);
    if (!dnn->casts_dx && run->op->gate == ACTIVATION_NONE)
        return;
    float *dx = images_on(dnn, dnn->dx);
    work_kernel(run->list, &kernel_finish_images,
                &(struct finish_images_arguments){.from = dnn->casts_dx ? x_copy(dnn) : dx,
                                                  .kept = images_on(dnn, dnn->x),
                                                  .to = dx,
                                                  .from_stride = dnn->casts_dx ? dnn_image(dnn)
                                                                               : dnn->dx.stride,
                                                  .kept_stride = dnn->x.stride,
                                                  .to_stride = dnn->dx.stride,
                                                  .images = dnn->images,
                                                  .values = (uint32_t)dnn_image(dnn),
                                                  .channels = dnn->window.channels,
                                                  .activation = run->op->gate,
                                                  .accumulate = run->op->accumulate});
}

bool dnn_backward(const struct lowering *run)
{
    struct dnn_run dnn;
    if (!dnn_begin(&dnn, run))
        return false;
    if (dnn.data)
        dnn_turn(&dnn);
    do {
        if (dnn.casts_dy && (dnn.weights || dnn.data))
            cast_dy(&dnn);
        if (dnn.weights)
            dnn_weights(&dnn);
        if (dnn.data)
            dnn_data(&dnn);
    } while (dnn_next(&dnn));
    return true;
}
