/* Layers become operations in two walks. The forward one places every layer's result: layers that
 * only say how columns are called (slices, and concatenations of what is made here) cost nothing,
 * and a result that nobody else reads goes straight to the caller. The backward one keeps for each
 * buffer the columns whose gradient has been written so far: the first consumer writes, later ones
 * add, and what nobody wrote is filled with zeros before it is read. */
#include "program.h"

#include <stdlib.h>
#include <string.h>

#include "accesses.h"
#include "core/alloc.h"

struct interval {
    uint32_t from, to; /* columns */
};

enum { COVERED_MAX = 2 * TRP_NET_LAYERS_MAX };

/* What is known of a gradient buffer while backward is laid out: disjoint intervals. */
struct coverage {
    struct interval list[COVERED_MAX];
    uint32_t count;
};

struct builder {
    struct program *program;
    const trp_net_spec *spec;
    bool forward_only;
    struct span spans[TRP_NET_LAYERS_MAX];      /* of the layers' results */
    uint32_t concat_of[TRP_NET_LAYERS_MAX];     /* where a result is made in place; or NO_BUFFER */
    uint32_t concat_column[TRP_NET_LAYERS_MAX]; /* and from which column on */
    uint32_t concat_buffer[TRP_NET_LAYERS_MAX]; /* of a concatenation; or NO_BUFFER */
    struct coverage *coverage;                  /* [forward buffers] */
    uint32_t coverage_count;
};

static const struct span no_span = {.buffer = NO_BUFFER};

/* ---- lists --------------------------------------------------------------------------------- */

static uint32_t buffer_add(struct program *program, struct net_buffer buffer)
{
    if (program->buffer_count == program->buffer_room) {
        program->buffer_room = program->buffer_room ? 2 * program->buffer_room : 16;
        program->buffers =
            xrealloc(program->buffers, program->buffer_room * sizeof *program->buffers);
    }
    buffer.grad = NO_BUFFER;
    bool arena = buffer.place == PLACE_ARENA;
    buffer.stride = arena ? round_up(buffer.width, ALIGNMENT_FLOATS) : buffer.width;
    program->buffers[program->buffer_count] = buffer;
    return program->buffer_count++;
}

static void op_add(struct program *program, struct op op)
{
    if (program->op_count == program->op_room) {
        program->op_room = program->op_room ? 2 * program->op_room : 16;
        program->ops = xrealloc(program->ops, program->op_room * sizeof *program->ops);
    }
    program->ops[program->op_count++] = op;
}

static struct span whole(const struct program *program, uint32_t buffer)
{
    return (struct span){buffer, 0, program->buffers[buffer].width};
}

static struct span arena_span(struct program *program, uint32_t width, bool trained)
{
    uint32_t buffer = buffer_add(
        program, (struct net_buffer){.place = PLACE_ARENA, .width = width, .trained = trained});
    return whole(program, buffer);
}

/* ---- forward ------------------------------------------------------------------------------- */

static const trp_layer *layer_at(const struct builder *b, uint32_t index)
{
    return &b->spec->layers[index];
}

static uint32_t columns_of(const struct builder *b, uint32_t index)
{
    return b->program->graph.values[index].columns;
}

static bool makes_its_result(const trp_layer *layer)
{
    return layer->kind != TRP_INPUT && layer->kind != TRP_SLICE && layer->kind != TRP_CONCAT;
}

/* Each result that a concatenation reads is made in its place, if it can be. */
static void plan_concats(struct builder *b)
{
    for (uint32_t i = 0; i < b->spec->layer_count; i++)
        b->concat_of[i] = b->concat_buffer[i] = NO_BUFFER;
    for (uint32_t i = 0; i < b->spec->layer_count; i++) {
        const trp_layer *concat = layer_at(b, i);
        uint32_t column = 0;
        for (uint32_t j = 0; concat->kind == TRP_CONCAT && j < layer_from_count(concat); j++) {
            uint32_t from = concat->from[j];
            if (makes_its_result(layer_at(b, from)) && b->concat_of[from] == NO_BUFFER) {
                b->concat_of[from] = i;
                b->concat_column[from] = column;
            }
            column += columns_of(b, from);
        }
    }
}

static bool is_read(const struct builder *b, uint32_t index)
{
    for (uint32_t i = index + 1; i < b->spec->layer_count; i++)
        for (uint32_t j = 0; j < layer_from_count(layer_at(b, i)); j++)
            if (layer_at(b, i)->from[j] == index)
                return true;
    return false;
}

/* The one output that a layer is, if its result can go straight there: backward must not need it,
 * because the caller may write over it. Else output_count. */
static uint32_t direct_output(const struct builder *b, uint32_t index)
{
    uint32_t output = b->spec->output_count, times = 0;
    for (uint32_t i = 0; i < b->spec->output_count; i++)
        if (b->spec->outputs[i] == index) {
            output = i;
            times++;
        }
    bool needed = !b->forward_only && layer_at(b, index)->activation != TRP_NO_ACTIVATION;
    bool direct =
        times == 1 && !needed && makes_its_result(layer_at(b, index)) && !is_read(b, index);
    return direct ? output : b->spec->output_count;
}

static bool reads_trained(const struct builder *b, uint32_t index)
{
    const trp_layer *layer = layer_at(b, index);
    for (uint32_t j = 0; j < layer_from_count(layer); j++)
        if (b->program->buffers[b->spans[layer->from[j]].buffer].trained)
            return true;
    return false;
}

static uint32_t concat_buffer(struct builder *b, uint32_t concat)
{
    if (b->concat_buffer[concat] == NO_BUFFER)
        b->concat_buffer[concat] = arena_span(b->program, columns_of(b, concat), false).buffer;
    return b->concat_buffer[concat];
}

/* Where the result of a layer goes. */
static struct span result_span(struct builder *b, uint32_t index, bool trained)
{
    uint32_t columns = columns_of(b, index), concat = b->concat_of[index];
    if (concat != NO_BUFFER) {
        uint32_t buffer = concat_buffer(b, concat);
        b->program->buffers[buffer].trained |= trained;
        return (struct span){buffer, b->concat_column[index], columns};
    }
    uint32_t output = direct_output(b, index);
    if (output == b->spec->output_count)
        return arena_span(b->program, columns, trained);
    struct net_buffer buffer = {
        .place = PLACE_OUTPUT, .index = output, .width = columns, .trained = trained};
    return whole(b->program, buffer_add(b->program, buffer));
}

/* Then bytes stay bytes: the kernels read them. */
static bool only_convolutions_read(const struct builder *b, uint32_t index)
{
    for (uint32_t i = index + 1; i < b->spec->layer_count; i++)
        for (uint32_t j = 0; j < layer_from_count(layer_at(b, i)); j++)
            if (layer_at(b, i)->from[j] == index && layer_at(b, i)->kind != TRP_CONV2D)
                return false;
    return layer_at(b, index)->scale == 0;
}

static void forward_input(struct builder *b, uint32_t index)
{
    struct program *program = b->program;
    const trp_layer *layer = layer_at(b, index);
    trp_dtype dtype = program->graph.values[index].dtype;
    bool floats = dtype == TRP_FLOAT32;
    struct net_buffer input = {.place = PLACE_INPUT,
                               .index = program->input_count++,
                               .width = columns_of(b, index),
                               .element_bytes = floats ? 0 : (uint32_t)trp_dtype_size(dtype),
                               .constant = !floats};
    b->spans[index] = whole(program, buffer_add(program, input));
    if (dtype != TRP_UINT8 || only_convolutions_read(b, index))
        return;
    struct op op = {.kind = OP_BYTES,
                    .a = b->spans[index],
                    .b = no_span,
                    .kept = no_span,
                    .to = arena_span(program, input.width, false),
                    .scale = layer->scale > 0 ? layer->scale : 1.0F / 255};
    program->buffers[op.to.buffer].constant = true;
    op_add(program, op);
    b->spans[index] = op.to;
}

static void forward_concat(struct builder *b, uint32_t index)
{
    const trp_layer *layer = layer_at(b, index);
    struct span all = whole(b->program, concat_buffer(b, index));
    uint32_t column = 0;
    for (uint32_t j = 0; j < layer_from_count(layer); j++) {
        struct span from = b->spans[layer->from[j]];
        struct span to = {all.buffer, column, from.width};
        column += from.width;
        if (from.buffer == to.buffer && from.column == to.column)
            continue;
        b->program->buffers[all.buffer].trained |= b->program->buffers[from.buffer].trained;
        op_add(b->program,
               (struct op){.kind = OP_COPY, .a = from, .b = no_span, .kept = no_span, .to = to});
    }
    b->spans[index] = all;
}

/* Linear layers and convolutions. */
static void forward_weights(struct builder *b, uint32_t index, enum op_kind kind)
{
    const trp_layer *layer = layer_at(b, index);
    enum activation activation = (enum activation)layer->activation;
    struct op op = {.kind = kind,
                    .layer = layer,
                    .index = index,
                    .a = b->spans[layer->from[0]],
                    .b = no_span,
                    .kept = no_span,
                    .to = result_span(b, index, true),
                    .activation = activation,
                    .has_params = true};
    memcpy(op.params, b->program->graph.params[index], sizeof op.params);
    b->spans[index] = op.to;
    if (!activation_keeps_input(activation)) {
        op_add(b->program, op);
        return;
    }
    struct span result = op.to;
    op.to = arena_span(b->program, result.width, true);
    op.activation = ACTIVATION_NONE;
    op_add(b->program, op);
    op_add(b->program, (struct op){.kind = OP_ACTIVATION,
                                   .a = op.to,
                                   .b = no_span,
                                   .kept = no_span,
                                   .to = result,
                                   .activation = activation});
}

/* Norms, embeddings and cells; elements per row that backward needs. */
static void forward_keeping(struct builder *b, uint32_t index, enum op_kind kind, size_t kept)
{
    const trp_layer *layer = layer_at(b, index);
    struct op op = {.kind = kind,
                    .a = b->spans[layer->from[0]],
                    .b = no_span,
                    .to = result_span(b, index, kind != OP_POOL || reads_trained(b, index)),
                    .kept = kept > 0 ? arena_span(b->program, (uint32_t)kept, true) : no_span,
                    .layer = layer,
                    .index = index,
                    .has_params = kind != OP_POOL};
    memcpy(op.params, b->program->graph.params[index], sizeof op.params);
    b->spans[index] = op.to;
    op_add(b->program, op);
}

static void forward_parameter(struct builder *b, uint32_t index)
{
    struct op op = {.kind = OP_PARAMETER,
                    .a = no_span,
                    .b = no_span,
                    .kept = no_span,
                    .to = result_span(b, index, true),
                    .index = index,
                    .has_params = true};
    memcpy(op.params, b->program->graph.params[index], sizeof op.params);
    b->spans[index] = op.to;
    op_add(b->program, op);
}

static void forward_pool(struct builder *b, uint32_t index)
{
    bool max = layer_at(b, index)->kind == TRP_MAX_POOL && !b->forward_only;
    forward_keeping(b, index, OP_POOL, max ? (columns_of(b, index) + 3) / 4 : 0); /* bytes */
}

static void forward_cell(struct builder *b, uint32_t index)
{
    const trp_layer *layer = layer_at(b, index);
    struct cell_shape cell = graph_cell(layer, &b->program->graph.values[layer->from[0]]);
    forward_keeping(b, index, OP_CELL, cell_kept(&cell));
}

/* Layers without parameters that compute. */
static void forward_plain(struct builder *b, uint32_t index, enum op_kind kind)
{
    const trp_layer *layer = layer_at(b, index);
    struct op op = {.kind = kind,
                    .a = b->spans[layer->from[0]],
                    .b = layer_from_count(layer) > 1 ? b->spans[layer->from[1]] : no_span,
                    .kept = no_span,
                    .to = result_span(b, index, reads_trained(b, index)),
                    .layer = layer,
                    .activation = (enum activation)layer->activation};
    b->spans[index] = op.to;
    op_add(b->program, op);
}

static void forward_layer(struct builder *b, uint32_t index)
{
    const trp_layer *layer = layer_at(b, index);
    switch (layer->kind) {
    case TRP_INPUT:
        forward_input(b, index);
        break;
    case TRP_LINEAR:
        forward_weights(b, index, OP_LINEAR);
        break;
    case TRP_NOISY_LINEAR:
        forward_weights(b, index, OP_NOISY);
        break;
    case TRP_CONV2D:
        forward_weights(b, index, OP_CONV);
        break;
    case TRP_MAX_POOL:
    case TRP_MEAN_POOL:
        forward_pool(b, index);
        break;
    case TRP_LAYER_NORM:
        forward_keeping(b, index, OP_NORM, 2);
        break;
    case TRP_EMBEDDING:
        forward_keeping(b, index, OP_EMBEDDING, 0);
        break;
    case TRP_LSTM:
    case TRP_GRU:
        forward_cell(b, index);
        break;
    case TRP_PARAMETER:
        forward_parameter(b, index);
        break;
    case TRP_ACTIVATION:
        forward_plain(b, index, OP_ACTIVATION);
        break;
    case TRP_CONCAT:
        forward_concat(b, index);
        break;
    case TRP_SLICE:
        b->spans[index] = b->spans[layer->from[0]];
        b->spans[index].column += layer->first;
        b->spans[index].width = layer->size;
        break;
    case TRP_ADD:
        forward_plain(b, index, OP_ADD);
        break;
    case TRP_DUELING:
        forward_plain(b, index, OP_DUELING);
        break;
    }
}

static void build_forward(struct builder *b)
{
    plan_concats(b);
    for (uint32_t i = 0; i < b->spec->layer_count; i++)
        forward_layer(b, i);
    for (uint32_t i = 0; i < b->spec->output_count; i++) {
        struct span from = b->spans[b->spec->outputs[i]];
        const struct net_buffer *buffer = &b->program->buffers[from.buffer];
        if (buffer->place == PLACE_OUTPUT)
            continue;
        struct net_buffer output = {
            .place = PLACE_OUTPUT, .index = i, .width = from.width, .trained = buffer->trained};
        struct op copy = {.kind = OP_COPY, .a = from, .b = no_span, .kept = no_span};
        copy.to = whole(b->program, buffer_add(b->program, output));
        op_add(b->program, copy);
    }
    b->program->forward_count = b->program->op_count;
}

/* ---- backward ------------------------------------------------------------------------------ */

static bool spans_meet(struct span a, struct span b)
{
    return a.buffer == b.buffer && a.column < b.column + b.width && b.column < a.column + a.width;
}

static bool inside(struct span in, struct span out)
{
    return in.buffer == out.buffer && in.column >= out.column &&
           in.column + in.width <= out.column + out.width;
}

/* The gradient of a result. */
static struct span grad_span(struct builder *b, struct span of)
{
    struct program *program = b->program;
    if (program->buffers[of.buffer].grad == NO_BUFFER) {
        struct net_buffer grad = program->buffers[of.buffer];
        if (grad.place != PLACE_ARENA)
            grad.place = grad.place == PLACE_INPUT ? PLACE_INPUT_GRAD : PLACE_OUTPUT_GRAD;
        uint32_t index = buffer_add(program, grad);
        program->buffers[of.buffer].grad = index;
    }
    return (struct span){program->buffers[of.buffer].grad, of.column, of.width};
}

static bool wants_grad(const struct builder *b, struct span of)
{
    return of.buffer != NO_BUFFER && !b->program->buffers[of.buffer].constant;
}

static bool inputs_only(const struct builder *b, struct span of)
{
    return !b->program->buffers[of.buffer].trained;
}

static bool is_covered(const struct builder *b, struct span of)
{
    const struct coverage *coverage = &b->coverage[of.buffer];
    for (uint32_t i = 0; i < coverage->count; i++)
        if (spans_meet(of, (struct span){of.buffer, coverage->list[i].from,
                                         coverage->list[i].to - coverage->list[i].from}))
            return true;
    return false;
}

/* Adds columns that nothing covers yet. */
static void cover(struct builder *b, struct span of)
{
    struct coverage *coverage = &b->coverage[of.buffer];
    struct interval new = {of.column, of.column + of.width};
    uint32_t kept = 0;
    for (uint32_t i = 0; i < coverage->count; i++) {
        struct interval old = coverage->list[i];
        if (old.to == new.from)
            new.from = old.from;
        else if (old.from == new.to)
            new.to = old.to;
        else
            coverage->list[kept++] = old;
    }
    coverage->list[kept] = new;
    coverage->count = kept + 1;
}

/* Zeros wherever the gradient of `of` has not been written. */
static void fill_gaps(struct builder *b, struct span of)
{
    for (uint32_t column = of.column; column < of.column + of.width;) {
        uint32_t next = of.column + of.width;
        bool inside_one = false;
        const struct coverage *coverage = &b->coverage[of.buffer];
        for (uint32_t i = 0; i < coverage->count; i++) {
            struct interval old = coverage->list[i];
            if (old.from <= column && column < old.to) {
                next = old.to;
                inside_one = true;
                break;
            }
            if (old.from > column && old.from < next)
                next = old.from;
        }
        if (!inside_one) {
            struct span gap = {of.buffer, column, next - column};
            op_add(b->program, (struct op){.kind = OP_FILL,
                                           .a = no_span,
                                           .b = no_span,
                                           .kept = no_span,
                                           .to = grad_span(b, gap),
                                           .inputs_only = inputs_only(b, of)});
            cover(b, gap);
        }
        column = next;
    }
}

/* `op` writes the gradient of `x`, or adds to it. */
static void contribute(struct builder *b, struct op op, struct span x)
{
    op.to = no_span;
    if (!wants_grad(b, x)) {
        if (op.has_params)
            op_add(b->program, op);
        return;
    }
    op.inputs_only = inputs_only(b, x);
    struct span to = grad_span(b, x);
    if (!is_covered(b, x)) {
        op.to = to;
        op_add(b->program, op);
        cover(b, x);
        return;
    }
    fill_gaps(b, x);
    op.to = to;
    op.accumulate = op.kind != OP_COPY;
    if (op.kind == OP_COPY) {
        op.kind = OP_ADD;
        op.b = to;
    }
    op_add(b->program, op);
}

static bool has_weights(const struct op *op)
{
    return op->kind == OP_LINEAR || op->kind == OP_NOISY || op->kind == OP_CONV;
}

/* Whether every reader of an operation's result multiplies its gradient by the slope of the
 * operation's activation: then nobody else has to. */
static bool readers_gate(const struct builder *b, const struct op *made)
{
    const struct program *program = b->program;
    for (uint32_t i = 0; i < program->forward_count; i++) {
        const struct op *op = &program->ops[i];
        if (spans_meet(op->b, made->to))
            return false;
        if (!spans_meet(op->a, made->to))
            continue;
        if (!has_weights(op) || !inside(op->a, made->to))
            return false;
        for (uint32_t j = 0; j < i; j++)
            if (spans_meet(program->ops[j].a, op->a))
                return false;
    }
    return true;
}

/* The activation that made `x`, if its readers apply the slope. */
static enum activation gate_of(const struct builder *b, struct span x)
{
    for (uint32_t i = 0; i < b->program->forward_count; i++) {
        const struct op *op = &b->program->ops[i];
        if (has_weights(op) && inside(x, op->to) && readers_gate(b, op))
            return op->activation;
    }
    return ACTIVATION_NONE;
}

static void backward_layer(struct builder *b, const struct op *forward, struct span dy)
{
    if (forward->activation != ACTIVATION_NONE && !readers_gate(b, forward))
        op_add(b->program, (struct op){.kind = OP_ACTIVATION_BACK,
                                       .a = forward->to,
                                       .b = dy,
                                       .to = dy,
                                       .kept = no_span,
                                       .activation = forward->activation});
    struct op op = *forward;
    op.kind = forward->kind + 1; /* the one that goes back is the next one */
    op.b = dy;
    op.gate = gate_of(b, forward->a);
    contribute(b, op, forward->a);
}

static void backward_op(struct builder *b, const struct op *forward)
{
    struct op op = *forward;
    if (!wants_grad(b, forward->to))
        return;
    fill_gaps(b, forward->to);
    struct span dy = grad_span(b, forward->to);
    op.b = dy;
    switch (forward->kind) {
    case OP_LINEAR:
    case OP_NOISY:
    case OP_CONV:
        backward_layer(b, forward, dy);
        break;
    case OP_POOL:
    case OP_NORM:
    case OP_EMBEDDING:
    case OP_CELL:
    case OP_PARAMETER:
        op.kind = forward->kind + 1;
        contribute(b, op, forward->a);
        break;
    case OP_ACTIVATION:
        op.kind = OP_ACTIVATION_BACK;
        op.a = activation_keeps_input(forward->activation) ? forward->a : forward->to;
        contribute(b, op, forward->a);
        break;
    case OP_DUELING:
        op.kind = OP_DUELING_BACK;
        op.a = no_span;
        contribute(b, op, forward->a);
        break;
    case OP_COPY:
    case OP_ADD:
        op = (struct op){.kind = OP_COPY, .a = dy, .b = no_span, .kept = no_span};
        contribute(b, op, forward->a);
        if (forward->kind == OP_ADD)
            contribute(b, op, forward->b);
        break;
    default:
        break; /* bytes are constants; the rest is of backward */
    }
}

static void build_backward(struct builder *b)
{
    struct program *program = b->program;
    b->coverage_count = program->buffer_count;
    b->coverage = xcalloc(b->coverage_count, sizeof *b->coverage);
    for (uint32_t i = 0; i < program->buffer_count; i++)
        if (program->buffers[i].place == PLACE_OUTPUT) /* the caller gives these */
            cover(b, whole(program, i));
    for (uint32_t i = program->forward_count; i-- > 0;) {
        struct op forward = program->ops[i]; /* the list grows */
        backward_op(b, &forward);
    }
    for (uint32_t i = 0; i < b->coverage_count; i++)
        if (program->buffers[i].place == PLACE_INPUT && !program->buffers[i].constant)
            fill_gaps(b, whole(program, i)); /* what no output depends on */
    free(b->coverage);
}

/* ---- the arena ----------------------------------------------------------------------------- */

static void live_at(struct program *program, struct span span, uint32_t time)
{
    struct net_buffer *buffer = &program->buffers[span.buffer];
    buffer->first = time < buffer->first ? time : buffer->first;
    buffer->last = time > buffer->last ? time : buffer->last;
}

static bool lives_meet(const struct net_buffer *a, const struct net_buffer *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* The lowest place for a buffer among those before it in the list. */
static size_t arena_place(const struct program *program, uint32_t index)
{
    const struct net_buffer *buffer = &program->buffers[index];
    size_t offset = 0;
    for (uint32_t i = 0; i < index; i++) {
        const struct net_buffer *other = &program->buffers[i];
        bool hit = other->place == PLACE_ARENA && lives_meet(other, buffer) &&
                   offset < other->offset + other->stride &&
                   other->offset < offset + buffer->stride;
        if (hit) {
            offset = other->offset + other->stride;
            i = UINT32_MAX; /* from the start again */
        }
    }
    return offset;
}

static void lay_out_arena(struct program *program)
{
    for (uint32_t i = 0; i < program->buffer_count; i++) {
        program->buffers[i].first = UINT32_MAX;
        program->buffers[i].last = 0;
    }
    for (uint32_t i = 0; i < program->op_count; i++) {
        struct access accesses[OP_ACCESSES_MAX];
        size_t count = op_accesses(program, &program->ops[i], accesses);
        for (size_t k = 0; k < count; k++)
            if (accesses[k].place == ACCESS_COLUMNS)
                live_at(program, accesses[k].span, i);
    }
    for (uint32_t i = 0; i < program->buffer_count; i++) {
        struct net_buffer *buffer = &program->buffers[i];
        if (buffer->place != PLACE_ARENA)
            continue;
        buffer->offset = arena_place(program, i);
        size_t end = buffer->offset + buffer->stride;
        program->arena_row = end > program->arena_row ? end : program->arena_row;
    }
}

trp_status program_build(struct program *program, const trp_net_spec *spec, bool forward_only)
{
    *program = (struct program){0};
    TRP_TRY(graph_build(&program->graph, spec));
    program->spec = *spec;
    struct builder b = {.program = program, .spec = &program->spec, .forward_only = forward_only};
    build_forward(&b);
    if (!forward_only)
        build_backward(&b);
    lay_out_arena(program);
    return TRP_OK;
}

void program_cleanup(struct program *program)
{
    free(program->buffers);
    free(program->ops);
}
