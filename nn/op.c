/* Operations of a program on kernels: places become pointers, and a job is made of them. */
#include <string.h>

#include "net.h"

/* What op_run() was called with. */
struct op_call {
    struct host_net *net;
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

/* ---- plain and linear layers --------------------------------------------------------------- */

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
    run->net->backend->activation->add(&(struct add_job){
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

static void linear_forward(const struct op_call *run, const void *weights, const void *bias)
{
    const struct op *op = run->op;
    run->bound->linear->forward(&(struct forward_job){
        .x = at(run, &run->bound->a),
        .w = weights,
        .bias = bias,
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

static void run_linear(const struct op_call *run)
{
    linear_forward(run, param_at(run, 0), param_at(run, 1));
}

/* Where dx goes; NULL: nobody wants it. */
static void *dx_at(const struct op_call *run)
{
    bool skip = run->op->inputs_only && !run->pass->wants_inputs;
    return skip ? NULL : at(run, &run->bound->to);
}

/* Everything but the weights and their gradients. */
static struct backward_job linear_backward_job(const struct op_call *run)
{
    const struct op *op = run->op;
    return (struct backward_job){
        .x = at(run, &run->bound->a),
        .dy = at(run, &run->bound->b),
        .dx = dx_at(run),
        .x_stride = run->bound->a.stride,
        .dy_stride = run->bound->b.stride,
        .dx_stride = run->bound->to.stride,
        .rows = row_count(run),
        .inputs = op->a.width,
        .outputs = op->b.width,
        .gate = op->gate,
        .accumulate_dx = op->accumulate,
        .scratch = run->net->parts[run->part].scratch,
    };
}

static void run_linear_back(const struct op_call *run)
{
    struct backward_job job = linear_backward_job(run);
    job.w = param_at(run, 0);
    job.dw = param_grad_at(run, 0);
    job.dbias = param_grad_at(run, 1);
    job.overwrite = run->part > 0;
    run->bound->linear->backward(&job);
}

/* ---- noise --------------------------------------------------------------------------------- */

static size_t noisy_weights(const struct op *op, uint32_t outputs)
{
    return round_up((size_t)op->a.width * outputs, ALIGNMENT_FLOATS);
}

/* The parameters and their noise. */
static struct noisy_job noisy_job(const struct op_call *run, uint32_t outputs)
{
    const struct host_net *net = run->net;
    size_t element = net->backend->element_bytes;
    const char *noise =
        (const char *)net->noise + net->base.program.graph.noise[run->op->index] * element;
    return (struct noisy_job){
        .inputs = run->op->a.width,
        .outputs = outputs,
        .noise_in = net->has_noise ? noise : NULL,
        .noise_out = net->has_noise ? noise + run->op->a.width * element : NULL,
        .w_mean = param_at(run, 0),
        .w_sigma = param_at(run, 1),
        .bias_mean = param_at(run, 2),
        .bias_sigma = param_at(run, 3),
    };
}

static char *noisy_at(const struct op_call *run)
{
    const struct host_net *net = run->net;
    size_t offset = net->base.program.graph.noisy[run->op->index] * net->backend->element_bytes;
    return (char *)net->parts[run->part].noisy + offset;
}

static void run_noisy(const struct op_call *run)
{
    if (!run->net->has_noise) {
        linear_forward(run, param_at(run, 0), param_at(run, 2));
        return;
    }
    uint32_t outputs = run->op->to.width;
    struct noisy_job job = noisy_job(run, outputs);
    char *noisy = noisy_at(run);
    job.w = noisy;
    job.bias = noisy + noisy_weights(run->op, outputs) * run->net->backend->element_bytes;
    run->net->backend->layer->noisy_forward(&job);
    linear_forward(run, job.w, job.bias);
}

static void run_noisy_back(const struct op_call *run)
{
    const struct host_net *net = run->net;
    uint32_t outputs = run->op->b.width;
    struct backward_job linear = linear_backward_job(run);
    linear.w = net->has_noise ? noisy_at(run) : param_at(run, 0);
    if (!run->pass->grads) {
        run->bound->linear->backward(&linear);
        return;
    }
    linear.dw = net->parts[run->part].noisy_grads;
    linear.dbias =
        (char *)linear.dw + noisy_weights(run->op, outputs) * net->backend->element_bytes;
    linear.overwrite = true;
    run->bound->linear->backward(&linear);
    struct noisy_job job = noisy_job(run, outputs);
    job.dw = linear.dw;
    job.dbias = linear.dbias;
    job.dw_mean = param_grad_at(run, 0);
    job.dw_sigma = param_grad_at(run, 1);
    job.dbias_mean = param_grad_at(run, 2);
    job.dbias_sigma = param_grad_at(run, 3);
    job.overwrite = run->part > 0;
    net->backend->layer->noisy_backward(&job);
}

/* ---- the other kinds ------------------------------------------------------------------------ */

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
        run->net->backend->activation->backward(&job);
    else
        run->net->backend->activation->forward(&job);
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
        .atoms = graph_atoms(op->layer),
        .backward = back,
        .accumulate = op->accumulate,
    });
}

static const struct value *from_of(const struct host_net *net, const struct op *op)
{
    return &net->base.program.graph.values[op->layer->from[0]];
}

static struct window window_of(const struct host_net *net, const struct op *op)
{
    return graph_window(op->layer, from_of(net, op));
}

static bool reads_bytes(const struct op_call *run)
{
    return run->net->base.program.buffers[run->op->a.buffer].element_bytes == 1;
}

static void run_conv(const struct op_call *run)
{
    run->bound->conv->forward(&(struct conv_forward_job){
        .window = window_of(run->net, run->op),
        .x = at(run, &run->bound->a),
        .bytes = reads_bytes(run),
        .w = param_at(run, 0),
        .bias = param_at(run, 1),
        .y = at(run, &run->bound->to),
        .x_stride = run->bound->a.stride,
        .y_stride = run->bound->to.stride,
        .rows = row_count(run),
        .activation = run->op->activation,
        .scratch = run->net->parts[run->part].scratch,
    });
}

static void run_conv_back(const struct op_call *run)
{
    run->bound->conv->backward(&(struct conv_backward_job){
        .window = window_of(run->net, run->op),
        .x = at(run, &run->bound->a),
        .bytes = reads_bytes(run),
        .w = param_at(run, 0),
        .dy = at(run, &run->bound->b),
        .dw = param_grad_at(run, 0),
        .dbias = param_grad_at(run, 1),
        .dx = dx_at(run),
        .x_stride = run->bound->a.stride,
        .dy_stride = run->bound->b.stride,
        .dx_stride = run->bound->to.stride,
        .rows = row_count(run),
        .gate = run->op->gate,
        .overwrite = run->part > 0,
        .accumulate_dx = run->op->accumulate,
        .scratch = run->net->parts[run->part].scratch,
    });
}

static void run_pool(const struct op_call *run)
{
    bool back = run->op->kind == OP_POOL_BACK;
    const struct bound *in = back ? &run->bound->b : &run->bound->a;
    struct pool_job job = {
        .window = window_of(run->net, run->op),
        .kind = run->op->layer->kind == TRP_MAX_POOL ? POOL_MAX : POOL_MEAN,
        .in = at(run, in),
        .out = at(run, &run->bound->to),
        .index = at(run, &run->bound->kept),
        .in_stride = in->stride,
        .out_stride = run->bound->to.stride,
        .rows = row_count(run),
        .accumulate = run->op->accumulate,
    };
    if (back)
        run->net->backend->conv->pool_backward(&job);
    else
        run->net->backend->conv->pool_forward(&job);
}

static void run_norm(const struct op_call *run)
{
    run->net->backend->layer->norm_forward(&(struct norm_forward_job){
        .x = at(run, &run->bound->a),
        .gain = param_at(run, 0),
        .bias = param_at(run, 1),
        .y = at(run, &run->bound->to),
        .kept = at(run, &run->bound->kept),
        .x_stride = run->bound->a.stride,
        .y_stride = run->bound->to.stride,
        .rows = row_count(run),
        .columns = run->op->to.width,
        .epsilon = 1e-5,
    });
}

static void run_norm_back(const struct op_call *run)
{
    run->net->backend->layer->norm_backward(&(struct norm_backward_job){
        .x = at(run, &run->bound->a),
        .gain = param_at(run, 0),
        .kept = at(run, &run->bound->kept),
        .dy = at(run, &run->bound->b),
        .dgain = param_grad_at(run, 0),
        .dbias = param_grad_at(run, 1),
        .dx = dx_at(run),
        .x_stride = run->bound->a.stride,
        .dy_stride = run->bound->b.stride,
        .dx_stride = run->bound->to.stride,
        .rows = row_count(run),
        .columns = run->op->b.width,
        .overwrite = run->part > 0,
        .accumulate_dx = run->op->accumulate,
    });
}

static void run_embedding(const struct op_call *run)
{
    bool back = run->op->kind == OP_EMBEDDING_BACK;
    struct embedding_job job = {
        .tokens = at(run, &run->bound->a),
        .token_stride = run->bound->a.stride,
        .rows = row_count(run),
        .columns = run->op->a.width,
        .vocabulary = run->op->layer->vocabulary,
        .width = run->op->layer->size,
        .table = param_at(run, 0),
        .y = back ? NULL : at(run, &run->bound->to),
        .dy = back ? at(run, &run->bound->b) : NULL,
        .dtable = back ? param_grad_at(run, 0) : NULL,
        .y_stride = back ? run->bound->b.stride : run->bound->to.stride,
        .overwrite = run->part > 0,
    };
    if (!back)
        run->net->backend->layer->embedding_forward(&job);
    else if (job.dtable)
        run->net->backend->layer->embedding_backward(&job);
}

/* The row, to all rows: a stride of 0. Back, the sum of theirs. */
static void run_parameter(const struct op_call *run)
{
    if (run->op->kind == OP_PARAMETER)
        run->net->backend->activation->add(&(struct add_job){
            .a = param_at(run, 0),
            .y = at(run, &run->bound->to),
            .y_stride = run->bound->to.stride,
            .rows = row_count(run),
            .columns = run->op->to.width,
        });
    else if (run->pass->grads)
        run->net->backend->layer->sum_rows(&(struct sum_job){
            .dy = at(run, &run->bound->b),
            .sum = param_grad_at(run, 0),
            .dy_stride = run->bound->b.stride,
            .rows = row_count(run),
            .columns = run->op->b.width,
            .overwrite = run->part > 0,
        });
}

/* This layer's columns of a state; NULL stays NULL. */
static void *state_at(const struct op_call *run, const void *state)
{
    size_t column = run->net->base.program.graph.state[run->op->index];
    size_t bytes = column * run->net->backend->element_bytes;
    return state ? (char *)(uintptr_t)state + bytes : NULL;
}

static void run_cell(const struct op_call *run)
{
    uint32_t sequences = row_count(run) / run->pass->steps;
    size_t state_row = run->net->base.program.graph.state_width;
    run->net->backend->cell->forward(&(struct cell_forward_job){
        .shape = graph_cell(run->op->layer, from_of(run->net, run->op)),
        .steps = run->pass->steps,
        .rows = sequences,
        .x = at(run, &run->bound->a),
        .x_step = run->bound->a.stride * sequences,
        .x_row = run->bound->a.stride,
        .resets = run->pass->resets,
        .reset_step = sequences,
        .wx = param_at(run, 0),
        .wh = param_at(run, 1),
        .bx = param_at(run, 2),
        .bh = param_at(run, 3),
        .state = state_at(run, run->pass->state),
        .state_row = state_row,
        .y = at(run, &run->bound->to),
        .y_step = run->bound->to.stride * sequences,
        .y_row = run->bound->to.stride,
        .end_state = state_at(run, run->pass->end_state),
        .end_row = state_row,
        .kept = at(run, &run->bound->kept),
        .scratch = run->net->parts[run->part].scratch,
    });
}

static void run_cell_back(const struct op_call *run)
{
    uint32_t sequences = row_count(run) / run->pass->steps;
    size_t state_row = run->net->base.program.graph.state_width;
    run->net->backend->cell->backward(&(struct cell_backward_job){
        .shape = graph_cell(run->op->layer, from_of(run->net, run->op)),
        .steps = run->pass->steps,
        .rows = sequences,
        .x = at(run, &run->bound->a),
        .x_step = run->bound->a.stride * sequences,
        .x_row = run->bound->a.stride,
        .resets = run->pass->resets,
        .reset_step = sequences,
        .wx = param_at(run, 0),
        .wh = param_at(run, 1),
        .dy = at(run, &run->bound->b),
        .dy_step = run->bound->b.stride * sequences,
        .dy_row = run->bound->b.stride,
        .dend_state = state_at(run, run->pass->end_state_grad),
        .dend_row = state_row,
        .dwx = param_grad_at(run, 0),
        .dwh = param_grad_at(run, 1),
        .dbx = param_grad_at(run, 2),
        .dbh = param_grad_at(run, 3),
        .dx = dx_at(run),
        .dx_step = run->bound->to.stride * sequences,
        .dx_row = run->bound->to.stride,
        .dstate = state_at(run, run->pass->state_grad),
        .dstate_row = state_row,
        .overwrite = run->part > 0,
        .accumulate_dx = run->op->accumulate,
        .kept = at(run, &run->bound->kept),
        .scratch = run->net->parts[run->part].scratch,
    });
}

/* Gradients of inputs that nobody asked for: forward operations have a flag of false and a place.
 */
static bool is_skipped(const struct op_call *run)
{
    const struct op *op = run->op;
    return (op->inputs_only && !run->pass->wants_inputs) || !at(run, &run->bound->to);
}

static struct bound bind_span(const struct host_net *net, struct span span,
                              const struct plan_part *part)
{
    if (span.buffer == NO_BUFFER)
        return (struct bound){.external = BOUND_ARENA};
    const struct net_buffer *buffer = &net->base.program.buffers[span.buffer];
    size_t element = buffer_element(net, buffer);
    struct bound bound = {.external = BOUND_ARENA,
                          .stride = buffer->stride,
                          .row_bytes = buffer->stride * element,
                          .column_bytes = span.column * element};
    if (buffer->place == PLACE_ARENA)
        bound.base = part->arena + buffer->offset * part->rows * element + bound.column_bytes;
    else
        bound.external = external_index(buffer->place, buffer->index);
    return bound;
}

/* The kernels whose factors are rounded. */
static const struct linear_kernels *linear_bf16_of(const struct host_net *net)
{
    return net->chooses ? linear_bf16_fastest() : net->backend->linear_bf16;
}

static const struct conv_kernels *conv_of(const struct host_net *net)
{
    if (!net->bf16)
        return net->backend->conv;
    return net->chooses ? conv_bf16_fastest() : net->backend->conv_bf16;
}

static const struct linear_kernels *linear_of(const struct host_net *net, const struct op *op)
{
    bool back = op->kind == OP_LINEAR_BACK || op->kind == OP_NOISY_BACK;
    if (!back && op->kind != OP_LINEAR && op->kind != OP_NOISY)
        return NULL;
    if (net->bf16)
        return linear_bf16_of(net);
    if (!net->chooses)
        return net->backend->linear;
    size_t weights = (size_t)op->a.width * (back ? op->b : op->to).width;
    return back ? linear_backward_fastest(weights, net->share)
                : linear_forward_fastest(weights, net->share);
}

void op_bind(const struct host_net *net, const struct op *op, const struct plan_part *part,
             struct bound_op *bound)
{
    bound->a = bind_span(net, op->a, part);
    bound->b = bind_span(net, op->b, part);
    bound->to = bind_span(net, op->to, part);
    bound->kept = bind_span(net, op->kept, part);
    bound->linear = linear_of(net, op);
    bound->conv = conv_of(net);
}

void op_run(struct host_net *net, uint32_t index, const struct pass *pass, struct rows rows,
            uint32_t part)
{
    const struct op *op = &net->base.program.ops[index];
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
    case OP_NOISY:
        run_noisy(&run);
        break;
    case OP_NOISY_BACK:
        run_noisy_back(&run);
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
    case OP_CONV:
        run_conv(&run);
        break;
    case OP_CONV_BACK:
        run_conv_back(&run);
        break;
    case OP_POOL:
    case OP_POOL_BACK:
        if (!is_skipped(&run))
            run_pool(&run);
        break;
    case OP_NORM:
        run_norm(&run);
        break;
    case OP_NORM_BACK:
        run_norm_back(&run);
        break;
    case OP_EMBEDDING:
    case OP_EMBEDDING_BACK:
        run_embedding(&run);
        break;
    case OP_PARAMETER:
    case OP_PARAMETER_BACK:
        run_parameter(&run);
        break;
    case OP_CELL:
        run_cell(&run);
        break;
    case OP_CELL_BACK:
        run_cell_back(&run);
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

size_t op_scratch(const struct host_net *net, const struct op *op)
{
    if (op->kind == OP_LINEAR || op->kind == OP_NOISY)
        return (net->bf16 ? linear_bf16_of(net) : net->backend->linear)
            ->scratch(op->a.width, op->to.width);
    if (op->kind == OP_CONV) {
        struct window window = window_of(net, op);
        return conv_of(net)->scratch(&window);
    }
    if (op->kind == OP_CELL) {
        struct cell_shape cell = graph_cell(op->layer, from_of(net, op));
        return net->backend->cell->scratch(&cell, net->base.batch);
    }
    return 0;
}
