/* Operations of a program as works: the same arithmetic as nn/op.c hands to a backend's kernels. */
#include <string.h>

#include "nn/cuda/bodies/images.h"
#include "nn/cuda/bodies/small.h"
#include "kernels.h"
#include "plan.h"

/* ---- where things are ---------------------------------------------------------------------- */

struct place_on span_on(const struct lowering *run, struct span span)
{
    if (span.buffer == NO_BUFFER)
        return (struct place_on){0};
    const struct net_buffer *buffer = &run->net->base.program.buffers[span.buffer];
    struct place_on place = {.stride = buffer->stride};
    if (buffer->place == PLACE_ARENA) {
        place.at = run->net->arena + buffer->offset * run->net->base.batch + span.column;
        return place;
    }
    char *base = run->pass->external[external_index(buffer->place, buffer->index)];
    size_t element = buffer->element_bytes ? buffer->element_bytes : sizeof(float);
    place.at = base ? (float *)(void *)(base + span.column * element) : NULL;
    return place;
}

const float *param_on(const struct lowering *run, uint32_t index)
{
    return (const float *)run->pass->params + run->op->params[index];
}

float *param_grad_on(const struct lowering *run, uint32_t index)
{
    return run->pass->grads ? (float *)run->pass->grads + run->op->params[index] : NULL;
}

float *dx_on(const struct lowering *run)
{
    bool skip = run->op->inputs_only && !run->pass->wants_inputs;
    return skip ? NULL : span_on(run, run->op->to).at;
}

/* ---- pieces that several use ----------------------------------------------------------------- */

/* All of `sums` but its parts. */
static void lower_sums(const struct lowering *run, struct sum_columns_arguments sums, float *sum)
{
    uint32_t parts = sums.rows / PLAN_SUM_ROWS + 1;
    sums.partial = run->net->scratch.partial;
    sums.parts = parts < SUM_PARTS_MAX ? parts : SUM_PARTS_MAX;
    work_kernel(run->list, &kernel_sum_columns, &sums);
    work_kernel(run->list, &kernel_sum_parts,
                &(struct sum_parts_arguments){sums.partial, sum, sums.columns, sums.parts});
}

void lower_sum(const struct lowering *run, const float *dy, size_t stride, uint32_t rows,
               uint32_t inner, uint32_t columns, float *sum)
{
    lower_sums(run,
               (struct sum_columns_arguments){
                   .dy = dy, .dy_stride = stride, .rows = rows, .inner = inner, .columns = columns},
               sum);
}

void lower_gate(const struct lowering *run, enum activation gate, float *dx, size_t dx_stride,
                struct place_on kept, uint32_t rows, uint32_t columns)
{
    if (gate == ACTIVATION_NONE)
        return;
    work_kernel(run->list, &kernel_activate_rows,
                &(struct activate_rows_arguments){.in = dx,
                                                  .kept = kept.at,
                                                  .out = dx,
                                                  .in_stride = dx_stride,
                                                  .kept_stride = kept.stride,
                                                  .out_stride = dx_stride,
                                                  .rows = rows,
                                                  .columns = columns,
                                                  .activation = gate,
                                                  .backward = true});
}

static void lower_add(const struct lowering *run, struct place_on a, struct place_on b)
{
    struct place_on to = span_on(run, run->op->to);
    work_kernel(run->list, &kernel_add_rows,
                &(struct add_rows_arguments){.a = a.at,
                                             .b = b.at,
                                             .to = to.at,
                                             .a_stride = a.stride,
                                             .b_stride = b.stride,
                                             .to_stride = to.stride,
                                             .rows = run->rows,
                                             .columns = run->op->to.width});
}

/* ---- plain and linear layers ------------------------------------------------------------------
 */

static void lower_bytes(const struct lowering *run)
{
    struct place_on from = span_on(run, run->op->a), to = span_on(run, run->op->to);
    work_kernel(run->list, &kernel_bytes_rows,
                &(struct bytes_rows_arguments){.from = (const uint8_t *)from.at,
                                               .to = to.at,
                                               .from_stride = from.stride,
                                               .to_stride = to.stride,
                                               .rows = run->rows,
                                               .columns = run->op->to.width,
                                               .scale = run->op->scale});
}

static void lower_linear(const struct lowering *run, const float *w, const float *bias)
{
    const struct op *op = run->op;
    struct place_on x = span_on(run, op->a), y = span_on(run, op->to);
    work_gemm(run->list, &(struct gemm_job){.a = x.at,
                                            .b = w,
                                            .bias = bias,
                                            .c = y.at,
                                            .a_stride = x.stride,
                                            .b_stride = op->to.width,
                                            .c_stride = y.stride,
                                            .m = run->rows,
                                            .n = op->to.width,
                                            .k = op->a.width,
                                            .activation = op->activation,
                                            .precision = run->net->precision});
}

/* dw += x' dy, dbias += sum dy, dx (+)= (dy w') gate'(x); dw NULL: not wanted. */
static void lower_linear_back(const struct lowering *run, const float *w, float *dw, float *dbias)
{
    const struct op *op = run->op;
    struct place_on x = span_on(run, op->a), dy = span_on(run, op->b), dx = span_on(run, op->to);
    if (dw) {
        work_gemm(run->list, &(struct gemm_job){.a = x.at,
                                                .b = dy.at,
                                                .c = dw,
                                                .a_stride = x.stride,
                                                .b_stride = dy.stride,
                                                .c_stride = op->b.width,
                                                .m = op->a.width,
                                                .n = op->b.width,
                                                .k = run->rows,
                                                .a_turned = true,
                                                .accumulate = true,
                                                .precision = run->net->precision});
        lower_sum(run, dy.at, dy.stride, run->rows, 1, op->b.width, dbias);
    }
    dx.at = dx_on(run);
    if (!dx.at)
        return;
    work_gemm(run->list, &(struct gemm_job){.a = dy.at,
                                            .b = w,
                                            .c = dx.at,
                                            .a_stride = dy.stride,
                                            .b_stride = op->b.width,
                                            .c_stride = dx.stride,
                                            .m = run->rows,
                                            .n = op->a.width,
                                            .k = op->b.width,
                                            .b_turned = true,
                                            .accumulate = op->accumulate,
                                            .precision = run->net->precision});
    lower_gate(run, op->gate, dx.at, dx.stride, x, run->rows, op->a.width);
}

/* ---- noise --------------------------------------------------------------------------------- */

/* The weights, or the biases, of a noisy layer. */
static struct noisy_rows_arguments noisy_part(const struct lowering *run, uint32_t outputs,
                                              bool biases)
{
    const float *noise = run->net->noise + run->net->base.program.graph.noise[run->op->index];
    uint32_t inputs = run->op->a.width;
    bool has = run->net->has_noise;
    return (struct noisy_rows_arguments){.mean = param_on(run, biases ? 2 : 0),
                                         .sigma = param_on(run, biases ? 3 : 1),
                                         .in = has && !biases ? noise : NULL,
                                         .out = has ? noise + inputs : NULL,
                                         .inputs = biases ? 1 : inputs,
                                         .outputs = outputs};
}

static size_t noisy_room(const struct op *op, uint32_t outputs)
{
    return round_up((size_t)op->a.width * outputs, ALIGNMENT_FLOATS);
}

static float *noisy_on(const struct lowering *run)
{
    return run->net->scratch.noisy + run->net->base.program.graph.noisy[run->op->index];
}

static void lower_noisy(const struct lowering *run)
{
    uint32_t outputs = run->op->to.width;
    if (!run->net->has_noise) {
        lower_linear(run, param_on(run, 0), param_on(run, 2));
        return;
    }
    float *w = noisy_on(run), *bias = w + noisy_room(run->op, outputs);
    struct noisy_rows_arguments weights = noisy_part(run, outputs, false);
    struct noisy_rows_arguments biases = noisy_part(run, outputs, true);
    weights.to = w;
    biases.to = bias;
    work_kernel(run->list, &kernel_noisy_rows, &weights);
    work_kernel(run->list, &kernel_noisy_rows, &biases);
    lower_linear(run, w, bias);
}

static void lower_noisy_back(const struct lowering *run)
{
    uint32_t outputs = run->op->b.width;
    const float *w = run->net->has_noise ? noisy_on(run) : param_on(run, 0);
    if (!run->pass->grads) {
        lower_linear_back(run, w, NULL, NULL);
        return;
    }
    float *dw = run->net->scratch.noisy_grads, *dbias = dw + noisy_room(run->op, outputs);
    work_zero(run->list, dw, (noisy_room(run->op, outputs) + outputs) * sizeof *dw);
    lower_linear_back(run, w, dw, dbias);
    for (int biases = 0; biases < 2; biases++) {
        struct noisy_rows_arguments part = noisy_part(run, outputs, biases);
        part.backward = true;
        part.mean = part.sigma = NULL;
        part.from = biases ? dbias : dw;
        part.dmean = param_grad_on(run, biases ? 2 : 0);
        part.dsigma = param_grad_on(run, biases ? 3 : 1);
        work_kernel(run->list, &kernel_noisy_rows, &part);
    }
}

/* ---- the other kinds ------------------------------------------------------------------------ */

static void lower_activation(const struct lowering *run)
{
    const struct op *op = run->op;
    bool back = op->kind == OP_ACTIVATION_BACK;
    struct place_on in = span_on(run, back ? op->b : op->a), to = span_on(run, op->to);
    struct place_on kept = span_on(run, op->a);
    work_kernel(run->list, &kernel_activate_rows,
                &(struct activate_rows_arguments){.in = in.at,
                                                  .kept = kept.at,
                                                  .out = to.at,
                                                  .in_stride = in.stride,
                                                  .kept_stride = kept.stride,
                                                  .out_stride = to.stride,
                                                  .rows = run->rows,
                                                  .columns = op->to.width,
                                                  .activation = op->activation,
                                                  .backward = back,
                                                  .accumulate = op->accumulate});
}

static void lower_dueling(const struct lowering *run)
{
    const struct op *op = run->op;
    bool back = op->kind == OP_DUELING_BACK;
    struct place_on in = span_on(run, back ? op->b : op->a), to = span_on(run, op->to);
    work_kernel(run->list, &kernel_dueling_rows,
                &(struct dueling_rows_arguments){.in = in.at,
                                                 .out = to.at,
                                                 .in_stride = in.stride,
                                                 .out_stride = to.stride,
                                                 .rows = run->rows,
                                                 .outputs = back ? op->b.width : op->to.width,
                                                 .atoms = graph_atoms(op->layer),
                                                 .backward = back,
                                                 .accumulate = op->accumulate});
}

static void lower_pool(const struct lowering *run)
{
    const struct op *op = run->op;
    const struct value *from = &run->net->base.program.graph.values[op->layer->from[0]];
    struct window window = graph_window(op->layer, from);
    struct place_on to = span_on(run, op->to), kept = span_on(run, op->kept);
    bool max = op->layer->kind == TRP_MAX_POOL;
    if (op->kind == OP_POOL) {
        struct place_on in = span_on(run, op->a);
        work_kernel(run->list, &kernel_pool_images,
                    &(struct pool_images_arguments){window, in.at, to.at, (uint8_t *)kept.at,
                                                    in.stride, to.stride, run->rows, max, false});
        return;
    }
    struct place_on dy = span_on(run, op->b);
    work_kernel(run->list, &kernel_unpool_images,
                &(struct unpool_images_arguments){window, dy.at, to.at, (uint8_t *)kept.at,
                                                  dy.stride, to.stride, run->rows, max,
                                                  op->accumulate});
}

static void lower_norm(const struct lowering *run)
{
    struct place_on x = span_on(run, run->op->a), y = span_on(run, run->op->to);
    work_kernel(run->list, &kernel_norm_rows,
                &(struct norm_rows_arguments){x.at, param_on(run, 0), param_on(run, 1), y.at,
                                              span_on(run, run->op->kept).at, x.stride, y.stride,
                                              run->rows, run->op->to.width, 1e-5F});
}

static void lower_norm_back(const struct lowering *run)
{
    const struct op *op = run->op;
    struct place_on x = span_on(run, op->a), dy = span_on(run, op->b), dx = span_on(run, op->to);
    const float *kept = span_on(run, op->kept).at;
    if (param_grad_on(run, 0)) {
        lower_sums(run,
                   (struct sum_columns_arguments){.dy = dy.at,
                                                  .x = x.at,
                                                  .kept = kept,
                                                  .dy_stride = dy.stride,
                                                  .x_stride = x.stride,
                                                  .rows = run->rows,
                                                  .inner = 1,
                                                  .columns = op->b.width},
                   param_grad_on(run, 0));
        lower_sum(run, dy.at, dy.stride, run->rows, 1, op->b.width, param_grad_on(run, 1));
    }
    dx.at = dx_on(run);
    if (dx.at)
        work_kernel(run->list, &kernel_norm_back,
                    &(struct norm_back_arguments){x.at, param_on(run, 0), kept, dy.at, dx.at,
                                                  x.stride, dy.stride, dx.stride, run->rows,
                                                  op->b.width, op->accumulate});
}

static void lower_embedding(const struct lowering *run)
{
    const struct op *op = run->op;
    struct place_on tokens = span_on(run, op->a);
    const int32_t *from = (const int32_t *)(const void *)tokens.at;
    if (op->kind == OP_EMBEDDING) {
        struct place_on y = span_on(run, op->to);
        work_kernel(run->list, &kernel_embed_rows,
                    &(struct embed_rows_arguments){from, param_on(run, 0), y.at, tokens.stride,
                                                   y.stride, run->rows, op->a.width,
                                                   op->layer->vocabulary, op->layer->size});
        return;
    }
    struct place_on dy = span_on(run, op->b);
    if (param_grad_on(run, 0))
        work_kernel(run->list, &kernel_embed_back,
                    &(struct embed_back_arguments){from, dy.at, param_grad_on(run, 0),
                                                   tokens.stride, dy.stride, run->rows, op->a.width,
                                                   op->layer->vocabulary, op->layer->size});
}

/* The row, to all rows: a stride of 0. Back, the sum of theirs. */
static void lower_parameter(const struct lowering *run)
{
    if (run->op->kind == OP_PARAMETER) {
        struct place_on row = {(float *)(uintptr_t)param_on(run, 0), 0};
        lower_add(run, row, (struct place_on){0});
        return;
    }
    struct place_on dy = span_on(run, run->op->b);
    if (param_grad_on(run, 0))
        lower_sum(run, dy.at, dy.stride, run->rows, 1, run->op->b.width, param_grad_on(run, 0));
}

/* Gradients of inputs that nobody asked for: forward operations have a flag of false and a place.
 */
static bool is_unwanted(const struct lowering *run)
{
    return (run->op->inputs_only && !run->pass->wants_inputs) || !span_on(run, run->op->to).at;
}

static void lower_elementwise(const struct lowering *run)
{
    static const struct place_on none;
    if (is_unwanted(run))
        return;
    switch (run->op->kind) {
    case OP_ACTIVATION:
    case OP_ACTIVATION_BACK:
        lower_activation(run);
        break;
    case OP_DUELING:
    case OP_DUELING_BACK:
        lower_dueling(run);
        break;
    case OP_POOL:
    case OP_POOL_BACK:
        lower_pool(run);
        break;
    case OP_COPY:
        lower_add(run, span_on(run, run->op->a), none);
        break;
    case OP_ADD:
        lower_add(run, span_on(run, run->op->a), span_on(run, run->op->b));
        break;
    default: /* OP_FILL */
        lower_add(run, none, none);
        break;
    }
}

void lower_op(const struct lowering *run)
{
    switch (run->op->kind) {
    case OP_BYTES:
        lower_bytes(run);
        break;
    case OP_LINEAR:
        lower_linear(run, param_on(run, 0), param_on(run, 1));
        break;
    case OP_LINEAR_BACK:
        lower_linear_back(run, param_on(run, 0), param_grad_on(run, 0), param_grad_on(run, 1));
        break;
    case OP_NOISY:
        lower_noisy(run);
        break;
    case OP_NOISY_BACK:
        lower_noisy_back(run);
        break;
    case OP_CONV:
        lower_conv(run);
        break;
    case OP_CONV_BACK:
        lower_conv_back(run);
        break;
    case OP_NORM:
        lower_norm(run);
        break;
    case OP_NORM_BACK:
        lower_norm_back(run);
        break;
    case OP_EMBEDDING:
    case OP_EMBEDDING_BACK:
        lower_embedding(run);
        break;
    case OP_PARAMETER:
    case OP_PARAMETER_BACK:
        lower_parameter(run);
        break;
    case OP_CELL:
        lower_cell(run);
        break;
    case OP_CELL_BACK:
        lower_cell_back(run);
        break;
    default:
        lower_elementwise(run);
        break;
    }
}
