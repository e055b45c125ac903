/* What operations say that they read and write: random graphs in other orders, and each operation
 * by itself. */
#include "nn/accesses.h"

#include "graph_case.h"

/* ---- operations in other orders ---------------------------------------------------------------
 */

/* Runs all operations, each after those before it in the list that it conflicts with, and draws
 * among those that may be next. Returns how many were run before one that stands before them. */
static uint32_t run_in_any_order(struct graph_case *c, trp_rng *rng)
{
    struct host_net *net = host_net(c->net);
    const struct program *program = &c->net->program;
    uint32_t count = program->op_count, done = 0, moved = 0;
    bool *is_done = xcalloc(count + 1, sizeof *is_done);
    while (done < count) {
        uint32_t ready[512], ready_count = 0;
        for (uint32_t i = 0; i < count; i++) {
            bool waits = is_done[i];
            for (uint32_t k = 0; k < i && !waits; k++)
                waits = !is_done[k] && ops_conflict(program, &program->ops[k], &program->ops[i]);
            if (!waits && ready_count < 512)
                ready[ready_count++] = i;
        }
        uint32_t next = ready[trp_rng_below(rng, ready_count)];
        moved += next != ready[0];
        op_run(net, next, &c->pass, (struct rows){0, c->rows}, 0);
        is_done[next] = true;
        done++;
    }
    free(is_done);
    return moved;
}

static void operations_in_any_order_without_conflicts_give_the_same_bits(void **state)
{
    (void)state;
    uint32_t moved = 0;
    for (uint64_t seed = 0; seed < GRAPHS; seed++) {
        trp_rng rng;
        trp_rng_init(&rng, seed, 5);
        trp_net_spec spec = random_spec(&rng);
        for (int which = 0; which < 2; which++) {
            const struct backend *backend = which ? backend_simd() : &backend_ref_f32;
            struct graph_case want, got;
            graph_case_run(&want, &spec, backend, 6, 1);
            for (int order = 0; order < 4; order++) {
                graph_case_init(&got, &spec, backend, 6, 1);
                if (order == 0) /* the caller's memory for both, as recurrent policies have it */
                    got.pass.end_state = got.state;
                moved += run_in_any_order(&got, &rng);
                if (order == 0)
                    memcpy(got.end_state, got.state, got.state_count * sizeof(float));
                assert_same_results(&got, &want, 0, true);
                graph_case_cleanup(&got);
            }
            graph_case_cleanup(&want);
        }
    }
    assert_true(moved > 10 * GRAPHS); /* it was no one order */
}

/* All memory that operations may touch, and of each byte what one of them says it does to it. */
enum { BYTE_READ = 1, BYTE_WRITTEN = 2, BYTE_LOOSE = 4 /* written, but for gaps */ };

struct block {
    char *at, *before, *after;
    unsigned char *marks;
    size_t bytes;
};

struct memory {
    struct block blocks[4 + 4 + 2 * (TRP_NET_INPUTS_MAX + TRP_NET_OUTPUTS_MAX)];
    size_t count;
};

static void memory_add(struct memory *memory, void *at, size_t bytes)
{
    if (!at || bytes == 0)
        return;
    memory->blocks[memory->count++] =
        (struct block){at, xmalloc(bytes), xmalloc(bytes), xmalloc(bytes), bytes};
}

static struct memory memory_of(struct graph_case *c)
{
    struct memory memory = {.count = 0};
    struct host_net *net = host_net(c->net);
    const struct program *program = &c->net->program;
    size_t element = sizeof(float);
    memory_add(&memory, net->parts[0].arena, net->share * program->arena_row * element);
    memory_add(&memory, net->parts[0].noisy, program->graph.noisy_count * element);
    memory_add(&memory, c->params, c->count * element);
    memory_add(&memory, c->grads, c->count * element);
    memory_add(&memory, c->state, c->state_count * element);
    memory_add(&memory, c->end_state, c->state_count * element);
    memory_add(&memory, c->state_grad, c->state_count * element);
    memory_add(&memory, c->end_state_grad, c->state_count * element);
    for (uint32_t i = 0; i < program->input_count; i++) {
        size_t values = (size_t)c->rows * trp_net_input_width(&c->spec, i);
        memory_add(&memory, c->inputs[i], values * trp_dtype_size(input_dtype(&c->spec, i)));
        memory_add(&memory, c->input_grads[i], values * element);
    }
    for (uint32_t i = 0; i < c->spec.output_count; i++) {
        size_t values = (size_t)c->rows * trp_net_output_width(&c->spec, i);
        memory_add(&memory, c->outputs[i], values * element);
        memory_add(&memory, c->output_grads[i], values * element);
    }
    return memory;
}

static void memory_cleanup(struct memory *memory)
{
    for (size_t i = 0; i < memory->count; i++) {
        free(memory->blocks[i].before);
        free(memory->blocks[i].after);
        free(memory->blocks[i].marks);
    }
}

static void mark(struct memory *memory, const void *from, size_t bytes, int what)
{
    const char *at = from;
    for (size_t i = 0; i < memory->count && at; i++) {
        struct block *block = &memory->blocks[i];
        if (at < block->at || at >= block->at + block->bytes)
            continue;
        assert_true(at + bytes <= block->at + block->bytes);
        for (size_t k = 0; k < bytes; k++)
            block->marks[(size_t)(at - block->at) + k] |= (unsigned char)what;
    }
}

/* Columns of all rows; what is kept for backward is all of its buffer, which it does not fill. */
static void mark_columns(struct memory *memory, const struct graph_case *c, struct span span,
                         bool kept, int what)
{
    struct host_net *net = host_net(c->net);
    const struct net_buffer *buffer = &c->net->program.buffers[span.buffer];
    size_t element = buffer_element(net, buffer);
    char *base = buffer->place == PLACE_ARENA
                     ? net->parts[0].arena + buffer->offset * net->share * element
                     : c->pass.external[external_index(buffer->place, buffer->index)];
    if (kept)
        mark(memory, base, buffer->stride * net->share * element,
             what & BYTE_WRITTEN ? what | BYTE_LOOSE : what);
    for (uint32_t row = 0; row < c->rows && !kept && base; row++)
        mark(memory, base + (row * buffer->stride + span.column) * element, span.width * element,
             what);
}

static void mark_state(struct memory *memory, const struct graph_case *c, void *const states[2],
                       size_t lo, size_t hi, int what)
{
    size_t width = c->net->program.graph.state_width, rows = c->rows / c->pass.steps;
    for (size_t i = 0; i < 2; i++)
        for (size_t row = 0; row < rows; row++)
            mark(memory, (float *)states[i] + row * width + lo, (hi - lo) * sizeof(float), what);
}

static void mark_access(struct memory *memory, const struct graph_case *c, const struct op *op,
                        const struct access *access)
{
    const struct graph *graph = &c->net->program.graph;
    int what = (access->reads ? BYTE_READ : 0) | (access->writes ? BYTE_WRITTEN : 0);
    void *const states[] = {c->state, c->end_state}, *const grads[] = {c->state_grad,
                                                                       c->end_state_grad};
    size_t floats = (access->hi - access->lo) * sizeof(float), end = graph->noisy_count;
    switch (access->place) {
    case ACCESS_COLUMNS:
        mark_columns(memory, c, access->span, access->span.buffer == op->kept.buffer, what);
        break;
    case ACCESS_PARAMS:
        mark(memory, (float *)c->params + access->lo, floats, what);
        break;
    case ACCESS_GRADS:
        mark(memory, (float *)c->grads + access->lo, floats, what);
        break;
    case ACCESS_NOISY:
        for (uint32_t i = op->index + 1; i < c->spec.layer_count && end == graph->noisy_count; i++)
            if (c->spec.layers[i].kind == TRP_NOISY_LINEAR)
                end = graph->noisy[i];
        mark(memory, (float *)host_net(c->net)->parts[0].noisy + graph->noisy[op->index],
             (end - graph->noisy[op->index]) * sizeof(float), what | BYTE_LOOSE);
        break;
    case ACCESS_STATE:
        mark_state(memory, c, states, access->lo, access->hi, what);
        break;
    case ACCESS_STATE_GRAD:
        mark_state(memory, c, grads, access->lo, access->hi, what);
        break;
    }
}

/* The operation once more, with 0.747 wherever it does not say that it reads: added to, it changes.
 */
static void assert_touches_what_it_names(struct graph_case *c, struct memory *memory,
                                         uint32_t index, uint64_t seed)
{
    struct host_net *net = host_net(c->net);
    const struct op *op = &c->net->program.ops[index];
    struct access accesses[OP_ACCESSES_MAX];
    size_t count = op_accesses(&c->net->program, op, accesses);
    for (size_t i = 0; i < memory->count; i++) {
        struct block *block = &memory->blocks[i];
        memcpy(block->before, block->at, block->bytes);
        memset(block->marks, 0, block->bytes);
    }
    for (size_t i = 0; i < count; i++)
        mark_access(memory, c, op, &accesses[i]);
    op_run(net, index, &c->pass, (struct rows){0, c->rows}, 0);
    for (size_t i = 0; i < memory->count; i++) {
        struct block *block = &memory->blocks[i];
        memcpy(block->after, block->at, block->bytes);
        for (size_t k = 0; k < block->bytes; k++)
            block->at[k] = block->marks[k] & BYTE_READ ? block->before[k] : (char)0x3f;
    }
    op_run(net, index, &c->pass, (struct rows){0, c->rows}, 0);
    for (size_t i = 0; i < memory->count; i++) {
        struct block *block = &memory->blocks[i];
        for (size_t k = 0; k < block->bytes; k++) {
            int marks = block->marks[k];
            char want = marks & BYTE_WRITTEN ? block->after[k]
                        : marks & BYTE_READ  ? block->before[k]
                                             : (char)0x3f;
            if (!(marks & BYTE_LOOSE) && block->at[k] != want)
                fail_msg("graph %llu: operation %u, of kind %d, touches byte %zu of block %zu, "
                         "which it does not name so (%d)",
                         (unsigned long long)seed, index, (int)op->kind, k, i, marks);
        }
        memcpy(block->at, block->after, block->bytes);
    }
}

static void an_operation_touches_what_it_names_and_nothing_else(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 3 * GRAPHS; seed++) {
        trp_rng rng;
        trp_rng_init(&rng, seed, 5);
        trp_net_spec spec = random_spec(&rng);
        for (int which = 0; which < 2; which++) {
            struct graph_case c;
            graph_case_init(&c, &spec, which ? backend_simd() : &backend_ref_f32, 6, 1);
            struct memory memory = memory_of(&c);
            for (uint32_t i = 0; i < c.net->program.op_count; i++)
                assert_touches_what_it_names(&c, &memory, i, seed);
            memory_cleanup(&memory);
            graph_case_cleanup(&c);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations_in_any_order_without_conflicts_give_the_same_bits),
        cmocka_unit_test(an_operation_touches_what_it_names_and_nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
