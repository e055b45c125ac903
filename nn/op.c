/* Operations of a program on kernels: places become pointers, and a job is made of them. */
#include <string.h>

#include "net.h"

/* What op_run() was called with. */
struct op_call {
    trp_net *net;
    const struct op *op;
    const struct bound_op *bound;
    const struct pass *pass;
    struct rows rows;
    uint32_t part;
};

static inline uint32_t row_count(const struct op_call *run)
{
    return run->rows.to - run->rows.from;
}

/* The first row's columns; NULL: there are none, or the caller has not given them. */
static inline void *at(const struct op_call *run, const struct bound *bound)
{
    if (bound->external == BOUND_ARENA)
        return bound->base;
    char *base = run->pass->external[bound->external];
    return base ? base + run->rows.from * bound->row_bytes + bound->column_bytes : NULL;
}

static inline const void *param_at(const struct op_call *run, uint32_t index)
{
    return (const char *)run->pass->params +
           run->op->params[index] * run->net->backend->element_bytes;
}

/* Where the gradient of a parameter goes; NULL: it is not wanted. */
static inline void *param_grad_at(const struct op_call *run, uint32_t index)
{
    char *grads = run->part == 0 ? run->pass->grads : run->net->parts[run->part].grads;
    return run->pass->grads ? grads + run->op->params[index] * run->net->backend->element_bytes
                            : NULL;
}

/* ---- kinds --------------------------------------------------------------------------------- */

static void run_bytes(const struct op_call *run)
{
    const uint8_t *from = at(run, &run->bound->a);
    void *to = at(run, &run->bound->to);
    size_t columns = run->op->to.width;
    size_t from_stride = run->bound->a.stride, to_stride = run->bound->to.stride;
    for (uint32_t row = 0; row < row_count(run); row++, from += from_stride)
        if (run->net->backend->element_bytes == sizeof(double)) {
            double *values = (double *)to + row * to_stride;
            for (size_t i = 0; i < columns; i++)
                values[i] = (double)run->op->scale * from[i];
        } else {
            float *values = (float *)to + row * to_stride;
            for (size_t i = 0; i < columns; i++)
                values[i] = run->op->scale * (float)from[i];
        }
}

static void run_fill(const struct op_call *run)
{
    size_t element = run->net->backend->element_bytes;
    char *to = at(run, &run->bound->to);
    for (uint32_t row = 0; row < row_count(run); row++)
        memset(to + row * run->bound->to.stride * element, 0, run->op->to.width * element);
}

static void run_add(const struct op_call *run)
{
    const struct op *op = run->op;
    run->net->kernels->activation->add(&(struct add_job){
        .a = at(run, &run->bound->a),
        .b = op->kind == OP_ADD ? at(run, &run->bound->b) : NULL,
        .y = at(run, &run->bound->to),
        .a_stride = run->bound->a.stride,
        .b_stride = op->kind == OP_ADD ? run->bound->b.stride : 0,
        .y_stride = run->bound->to.stride,
        .rows = row_count(run),
        .columns = op->to.width,
    });
}

static void run_linear(const struct op_call *run)
{
    const struct op *op = run->op;
    run->net->backend->forward(&(struct forward_job){
        .x = at(run, &run->bound->a),
        .w = param_at(run, 0),
        .bias = param_at(run, 1),
        .y = at(run, &run->bound->to),
        .x_stride = run->bound->a.stride,
        .y_stride = run->bound->to.stride,
        .rows = row_count(run),
        .inputs = op->a.width,
        .outputs = op->to.width,
        .activation = op->activation,
        .scratch = run->net->parts[run->part].scratch,
    });
}

static void run_linear_back(const struct op_call *run)
{
    const struct op *op = run->op;
    bool skip_dx = op->to.buffer == NO_BUFFER || (op->inputs_only && !run->pass->wants_inputs);
    struct backward_job job = {
        .x = at(run, &run->bound->a),
        .w = param_at(run, 0),
        .dy = at(run, &run->bound->b),
        .dw = param_grad_at(run, 0),
        .dbias = param_grad_at(run, 1),
        .dx = skip_dx ? NULL : at(run, &run->bound->to),
        .x_stride = run->bound->a.stride,
        .dy_stride = run->bound->b.stride,
        .dx_stride = skip_dx ? 0 : run->bound->to.stride,
        .rows = row_count(run),
        .inputs = op->a.width,
        .outputs = op->b.width,
        .gate = op->gate,
        .overwrite = run->part > 0,
        .accumulate_dx = op->accumulate,
        .scratch = run->net->parts[run->part].scratch,
    };
    run->net->backend->backward(&job);
}

static void run_activation(const struct op_call *run)
{
    const struct op *op = run->op;
    bool back = op->kind == OP_ACTIVATION_BACK;
    const struct bound *in = back ? &run->bound->b : &run->bound->a;
    struct activation_job job = {
        .activation = op->activation,
        .in = at(run, in),
        .kept = back ? at(run, &run->bound->a) : NULL,
        .out = at(run, &run->bound->to),
        .in_stride = in->stride,
        .kept_stride = back ? run->bound->a.stride : 0,
        .out_stride = run->bound->to.stride,
        .rows = row_count(run),
        .columns = op->to.width,
        .accumulate = op->accumulate,
    };
    if (back)
        run->net->kernels->activation->backward(&job);
    else
        run->net->kernels->activation->forward(&job);
}

static void run_dueling(const struct op_call *run)
{
    const struct op *op = run->op;
    bool back = op->kind == OP_DUELING_BACK;
    const struct bound *in = back ? &run->bound->b : &run->bound->a;
    run->net->backend->dueling(&(struct dueling_job){
        .in = at(run, in),
        .out = at(run, &run->bound->to),
        .in_stride = in->stride,
        .out_stride = run->bound->to.stride,
        .rows = row_count(run),
        .outputs = back ? op->b.width : op->to.width,
        .backward = back,
        .accumulate = op->accumulate,
    });
}

/* Gradients of inputs that nobody asked for: forward operations have a flag of false and a place.
 */
static bool is_skipped(const struct op_call *run)
{
    const struct op *op = run->op;
    return (op->inputs_only && !run->pass->wants_inputs) || !at(run, &run->bound->to);
}

static struct bound bind_span(const trp_net *net, struct span span, char *arena)
{
    if (span.buffer == NO_BUFFER)
        return (struct bound){.external = BOUND_ARENA};
    const struct net_buffer *buffer = &net->program.buffers[span.buffer];
    size_t element = buffer->bytes ? 1 : net->backend->element_bytes;
    struct bound bound = {.external = BOUND_ARENA,
                          .stride = buffer->stride,
                          .row_bytes = buffer->stride * element,
                          .column_bytes = span.column * element};
    if (buffer->place == PLACE_ARENA)
        bound.base = arena + buffer->offset * net->share * element + bound.column_bytes;
    else
        bound.external = external_index(buffer->place, buffer->index);
    return bound;
}

void op_bind(const trp_net *net, const struct op *op, char *arena, struct bound_op *bound)
{
    bound->a = bind_span(net, op->a, arena);
    bound->b = bind_span(net, op->b, arena);
    bound->to = bind_span(net, op->to, arena);
}

void op_run(trp_net *net, uint32_t index, const struct pass *pass, struct rows rows, uint32_t part)
{
    const struct op *op = &net->program.ops[index];
    struct op_call run = {net, op, &net->parts[part].bound[index], pass, rows, part};
    switch (op->kind) {
    case OP_LINEAR:
        run_linear(&run);
        break;
    case OP_BYTES:
        run_bytes(&run);
        break;
    case OP_LINEAR_BACK:
        run_linear_back(&run);
        break;
    case OP_ACTIVATION:
    case OP_ACTIVATION_BACK:
        if (!is_skipped(&run))
            run_activation(&run);
        break;
    case OP_DUELING:
    case OP_DUELING_BACK:
        if (!is_skipped(&run))
            run_dueling(&run);
        break;
    case OP_FILL:
        if (!is_skipped(&run))
            run_fill(&run);
        break;
    case OP_COPY:
    case OP_ADD:
        if (!is_skipped(&run))
            run_add(&run);
        break;
    }
}

size_t op_scratch(const trp_net *net, const struct op *op)
{
    if (op->kind == OP_LINEAR)
        return net->backend->scratch(op->a.width, op->to.width);
    return 0;
}
