#include "accesses.h"

/* The operation's spans, or-ed together. */
enum { A = 1, B = 2, TO = 4, KEPT = 8 };

/* Of a layer's tensors, which are read. */
enum tensors { NO_TENSOR, FIRST_TENSOR, ALL_TENSORS };

struct use {
    unsigned reads, writes; /* spans */
    enum tensors params;
    bool grads; /* of all tensors, which are added to */
    bool state, state_grad;
    bool reads_noisy, writes_noisy;
};

static const struct use uses[] = {
    [OP_BYTES] = {.reads = A, .writes = TO},
    [OP_COPY] = {.reads = A, .writes = TO},
    [OP_ADD] = {.reads = A | B, .writes = TO},
    [OP_FILL] = {.writes = TO},
    [OP_LINEAR] = {.reads = A, .writes = TO, .params = ALL_TENSORS},
    [OP_LINEAR_BACK] = {.reads = A | B, .writes = TO, .params = FIRST_TENSOR, .grads = true},
    [OP_NOISY] = {.reads = A, .writes = TO, .params = ALL_TENSORS, .writes_noisy = true},
    [OP_NOISY_BACK] =
        {.reads = A | B, .writes = TO, .params = FIRST_TENSOR, .grads = true, .reads_noisy = true},
    [OP_ACTIVATION] = {.reads = A, .writes = TO},
    [OP_ACTIVATION_BACK] = {.reads = A | B, .writes = TO},
    [OP_DUELING] = {.reads = A, .writes = TO},
    [OP_DUELING_BACK] = {.reads = B, .writes = TO},
    [OP_CONV] = {.reads = A, .writes = TO, .params = ALL_TENSORS},
    [OP_CONV_BACK] = {.reads = A | B, .writes = TO, .params = FIRST_TENSOR, .grads = true},
    [OP_POOL] = {.reads = A, .writes = TO | KEPT},
    [OP_POOL_BACK] = {.reads = B | KEPT, .writes = TO},
    [OP_NORM] = {.reads = A, .writes = TO | KEPT, .params = ALL_TENSORS},
    [OP_NORM_BACK] = {.reads = A | B | KEPT, .writes = TO, .params = FIRST_TENSOR, .grads = true},
    [OP_EMBEDDING] = {.reads = A, .writes = TO, .params = ALL_TENSORS},
    [OP_EMBEDDING_BACK] = {.reads = A | B, .grads = true},
    [OP_PARAMETER] = {.writes = TO, .params = ALL_TENSORS},
    [OP_PARAMETER_BACK] = {.reads = B, .grads = true},
    [OP_CELL] = {.reads = A, .writes = TO | KEPT, .params = ALL_TENSORS, .state = true},
    [OP_CELL_BACK] = {.reads = A | B | KEPT,
                      .writes = TO | KEPT,
                      .params = ALL_TENSORS,
                      .grads = true,
                      .state_grad = true},
};

struct access_list {
    struct access *accesses;
    size_t count;
};

static void name_span(struct access_list *list, struct span span, bool reads, bool writes)
{
    if (span.buffer != NO_BUFFER && (reads || writes))
        list->accesses[list->count++] = (struct access){
            .place = ACCESS_COLUMNS, .reads = reads, .writes = writes, .span = span};
}

static void name_range(struct access_list *list, enum access_place place, size_t lo, size_t hi,
                       bool reads, bool writes)
{
    list->accesses[list->count++] =
        (struct access){.place = place, .reads = reads, .writes = writes, .lo = lo, .hi = hi};
}

static void name_tensors(struct access_list *list, const struct program *program,
                         const struct op *op, const struct use *use)
{
    trp_net_tensor tensors[LAYER_TENSORS_MAX];
    size_t count = graph_tensors(&program->spec, &program->graph, op->index, tensors);
    for (size_t i = 0; i < count; i++) {
        size_t lo = tensors[i].offset, hi = lo + tensors[i].count;
        if (use->params == ALL_TENSORS || (use->params == FIRST_TENSOR && i == 0))
            name_range(list, ACCESS_PARAMS, lo, hi, true, false);
        if (use->grads)
            name_range(list, ACCESS_GRADS, lo, hi, true, true);
    }
}

size_t op_accesses(const struct program *program, const struct op *op,
                   struct access accesses[OP_ACCESSES_MAX])
{
    struct access_list list = {accesses, 0};
    const struct use *use = &uses[op->kind];
    unsigned reads = use->reads | (op->accumulate ? TO : 0);
    name_span(&list, op->a, reads & A, use->writes & A);
    name_span(&list, op->b, reads & B, use->writes & B);
    name_span(&list, op->to, reads & TO, use->writes & TO);
    name_span(&list, op->kept, reads & KEPT, use->writes & KEPT);
    if (use->params != NO_TENSOR || use->grads)
        name_tensors(&list, program, op, use);
    if (use->reads_noisy || use->writes_noisy)
        name_range(&list, ACCESS_NOISY, op->index, op->index + 1, use->reads_noisy,
                   use->writes_noisy);
    if (use->state || use->state_grad) {
        struct cell_shape cell = graph_cell(op->layer, &program->graph.values[op->layer->from[0]]);
        size_t lo = program->graph.state[op->index];
        name_range(&list, use->state ? ACCESS_STATE : ACCESS_STATE_GRAD, lo, lo + cell_state(&cell),
                   true, true);
    }
    return list.count;
}

static bool ranges_meet(size_t a_lo, size_t a_hi, size_t b_lo, size_t b_hi)
{
    return a_lo < b_hi && b_lo < a_hi;
}

static bool spans_meet_in_memory(const struct program *program, struct span a, struct span b)
{
    const struct net_buffer *x = &program->buffers[a.buffer], *y = &program->buffers[b.buffer];
    if (a.buffer == b.buffer)
        return ranges_meet(a.column, a.column + a.width, b.column, b.column + b.width);
    if (x->place != y->place)
        return false;
    return x->place == PLACE_ARENA
               ? ranges_meet(x->offset, x->offset + x->stride, y->offset, y->offset + y->stride)
               : x->index == y->index;
}

static bool accesses_conflict(const struct program *program, const struct access *a,
                              const struct access *b)
{
    if (a->place != b->place || (!a->writes && !b->writes))
        return false;
    return a->place == ACCESS_COLUMNS ? spans_meet_in_memory(program, a->span, b->span)
                                      : ranges_meet(a->lo, a->hi, b->lo, b->hi);
}

bool ops_conflict(const struct program *program, const struct op *a, const struct op *b)
{
    struct access of_a[OP_ACCESSES_MAX], of_b[OP_ACCESSES_MAX];
    size_t a_count = op_accesses(program, a, of_a), b_count = op_accesses(program, b, of_b);
    for (size_t i = 0; i < a_count; i++)
        for (size_t k = 0; k < b_count; k++)
            if (accesses_conflict(program, &of_a[i], &of_b[k]))
                return true;
    return false;
}
