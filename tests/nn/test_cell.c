/* Recurrent cells over a time axis. */
#include "layer_case.h"

#include "golden_layers.h"

struct cell_sizes {
    const char *name;
    struct cell_shape shape;
    uint32_t steps, rows;
    bool no_state; /* starts from zeros, and nobody asks for the end */
};

enum { WX, WH, BX, BH, X, Y, STATE, END };

static struct cell_forward_job forward_job_of(const struct layer_case *c, const struct backend *b)
{
    const struct cell_sizes *s = c->shape;
    const struct blob *x = &c->blobs[X], *y = &c->blobs[Y];
    return (struct cell_forward_job){
        .shape = s->shape,
        .steps = s->steps,
        .rows = s->rows,
        .x = x->v,
        .x_step = s->rows * x->stride,
        .x_row = x->stride,
        .resets = c->codes,
        .reset_step = s->rows,
        .wx = c->blobs[WX].v,
        .wh = c->blobs[WH].v,
        .bx = c->blobs[BX].v,
        .bh = c->blobs[BH].v,
        .state = s->no_state ? NULL : c->blobs[STATE].v,
        .state_row = c->blobs[STATE].stride,
        .y = y->v,
        .y_step = s->rows * y->stride,
        .y_row = y->stride,
        .end_state = s->no_state ? NULL : c->blobs[END].v,
        .end_row = c->blobs[END].stride,
        .kept = c->kept,
        .scratch = case_scratch(b->cell->scratch(&s->shape, s->rows), b),
    };
}

static void forward(struct layer_case *c, const struct backend *backend)
{
    const struct cell_sizes *s = c->shape;
    c->kept = case_scratch(s->steps * s->rows * cell_kept(&s->shape), backend);
    struct cell_forward_job job = forward_job_of(c, backend);
    backend->cell->forward(&job);
    free(job.scratch);
}

static void backward(struct layer_case *c, const struct backend *backend)
{
    const struct cell_sizes *s = c->shape;
    const struct blob *blobs = c->blobs, *x = &blobs[X], *y = &blobs[Y];
    void *scratch = case_scratch(backend->cell->scratch(&s->shape, s->rows), backend);
    backend->cell->backward(&(struct cell_backward_job){
        .shape = s->shape,
        .steps = s->steps,
        .rows = s->rows,
        .x = x->v,
        .x_step = s->rows * x->stride,
        .x_row = x->stride,
        .resets = c->codes,
        .reset_step = s->rows,
        .wx = blobs[WX].v,
        .wh = blobs[WH].v,
        .dy = y->g,
        .dy_step = s->rows * y->stride,
        .dy_row = y->stride,
        .dend_state = s->no_state ? NULL : blobs[END].g,
        .dend_row = blobs[END].stride,
        .dwx = blobs[WX].g,
        .dwh = blobs[WH].g,
        .dbx = blobs[BX].g,
        .dbh = blobs[BH].g,
        .dx = x->g,
        .dx_step = s->rows * x->stride,
        .dx_row = x->stride,
        .dstate = s->no_state ? NULL : blobs[STATE].g,
        .dstate_row = blobs[STATE].stride,
        .overwrite = c->overwrite,
        .accumulate_dx = !c->overwrite,
        .kept = c->kept,
        .scratch = scratch,
    });
    free(scratch);
}

/* dstate is overwritten always: its start is nothing. */
static struct layer_case cell_case(const struct cell_sizes *s)
{
    struct layer_case c = {.name = s->name, .shape = s, .forward = forward, .backward = backward};
    size_t gates = cell_gates(s->shape.kind) * s->shape.hidden, rows = s->steps * s->rows;
    case_add(&c, "wx", 1, s->shape.inputs * gates, false);
    case_add(&c, "wh", 1, s->shape.hidden * gates, false);
    case_add(&c, "bx", 1, gates, false);
    case_add(&c, "bh", 1, gates, false);
    case_add(&c, "x", rows, s->shape.inputs, false);
    case_add(&c, "y", rows, s->shape.hidden, true);
    if (!s->no_state) {
        case_add(&c, "state", s->rows, cell_state(&s->shape), false);
        case_add(&c, "end", s->rows, cell_state(&s->shape), true);
    }
    return c;
}

/* About every fourth step of a row begins anew. */
static uint8_t *some_resets(const struct cell_sizes *s)
{
    uint8_t *resets = xmalloc(s->steps * s->rows);
    for (uint32_t i = 0; i < s->steps * s->rows; i++)
        resets[i] = case_number(11, i) > 0.5;
    return resets;
}

static void on_cell(const struct cell_sizes *s, void (*check)(struct layer_case *))
{
    uint8_t *resets = some_resets(s);
    struct layer_case c = cell_case(s);
    c.codes = resets;
    check(&c);
    case_cleanup(&c);
    free(resets);
}

static void against_golden(struct layer_case *c)
{
    check_golden(c, golden_layers, sizeof golden_layers / sizeof golden_layers[0]);
}

static void against_the_reference(struct layer_case *c)
{
    check_backends(c, 3e-5);
}

static const struct cell_sizes golden_cells[] = {
    {"lstm", {CELL_LSTM, .inputs = 3, .hidden = 2}, .steps = 5, .rows = 2},
    {"gru", {CELL_GRU, .inputs = 3, .hidden = 2}, .steps = 5, .rows = 2},
};

static void cells_are_those_of_pytorch(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof golden_cells / sizeof golden_cells[0]; i++)
        on_cell(&golden_cells[i], against_golden);
}

static void gradients_through_time_are_finite_differences(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof golden_cells / sizeof golden_cells[0]; i++)
        on_cell(&golden_cells[i], check_finite_differences);
}

static const struct cell_sizes sizes[] = {
    {"lstm", {CELL_LSTM, .inputs = 20, .hidden = 32}, .steps = 6, .rows = 9},
    {"lstm of odd sizes", {CELL_LSTM, .inputs = 5, .hidden = 19}, .steps = 7, .rows = 3},
    {"lstm of one row", {CELL_LSTM, .inputs = 33, .hidden = 17}, .steps = 4, .rows = 1},
    {"lstm of ones", {CELL_LSTM, .inputs = 1, .hidden = 1}, .steps = 4, .rows = 1},
    {"lstm from zeros", {CELL_LSTM, 7, 40}, .steps = 3, .rows = 2, .no_state = true},
    {"gru", {CELL_GRU, .inputs = 20, .hidden = 32}, .steps = 6, .rows = 9},
    {"gru of odd sizes", {CELL_GRU, .inputs = 5, .hidden = 19}, .steps = 7, .rows = 3},
    {"gru of one row", {CELL_GRU, .inputs = 33, .hidden = 17}, .steps = 4, .rows = 1},
    {"gru of ones", {CELL_GRU, .inputs = 1, .hidden = 1}, .steps = 4, .rows = 1},
    {"gru from zeros", {CELL_GRU, 7, 40}, .steps = 3, .rows = 2, .no_state = true},
};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static void every_backend_recurs_as_the_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < SIZES; i++)
        on_cell(&sizes[i], against_the_reference);
}

/* Runs steps [from, from + steps) of the case from its STATE, leaving the state at END. */
static void run_steps(struct layer_case *c, const struct backend *b, uint32_t from, uint32_t steps)
{
    const struct cell_sizes *s = c->shape;
    struct cell_forward_job job = forward_job_of(c, b);
    size_t bytes = b->element_bytes;
    job.x = (const char *)job.x + from * job.x_step * bytes;
    job.y = (char *)job.y + from * job.y_step * bytes;
    job.resets += from * s->rows;
    job.steps = steps;
    job.kept = case_scratch(steps * s->rows * cell_kept(&s->shape), b);
    if (from > 0)
        job.state = job.end_state;
    b->cell->forward(&job);
    free(job.kept);
    free(job.scratch);
}

static void cut_anywhere(struct layer_case *c)
{
    const struct cell_sizes *s = c->shape;
    for (const struct backend *const *b = every_backend(); *b; b++) {
        for (uint32_t cut = 1; (*b)->cell && !s->no_state && cut < s->steps; cut++) {
            const struct blob *y = &c->blobs[Y], *end = &c->blobs[END];
            case_load(c, sizeof(float));
            run_steps(c, *b, 0, s->steps);
            void *whole_y = y->v, *whole_end = end->v;
            c->blobs[Y].v = blob_load(y, NULL, sizeof(float));
            c->blobs[END].v = blob_load(end, NULL, sizeof(float));
            run_steps(c, *b, 0, cut);
            run_steps(c, *b, cut, s->steps - cut);
            assert_memory_equal(y->v, whole_y, blob_elements(y) * sizeof(float));
            assert_memory_equal(end->v, whole_end, blob_elements(end) * sizeof(float));
            free(whole_y);
            free(whole_end);
            case_unload(c);
        }
    }
}

static void a_sequence_cut_anywhere_gives_the_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < SIZES; i++)
        on_cell(&sizes[i], cut_anywhere);
}

/* What was before a reset changes nothing after it, and gets no gradient from there. */
static void a_reset_forgets_and_stops_the_gradient(void **state)
{
    (void)state;
    static const struct cell_sizes s = {"lstm", {CELL_LSTM, 4, 18}, .steps = 3, .rows = 2};
    const uint8_t resets[6] = {0, 0, 1, 0, 0, 0};
    for (const struct backend *const *b = every_backend(); *b; b++) {
        if (!(*b)->cell)
            continue;
        struct layer_case c = cell_case(&s);
        c.codes = resets;
        c.overwrite = true;
        /* Row 0's outputs before its reset count for nothing. */
        memset(c.blobs[Y].gradient, 0, s.shape.hidden * sizeof(double));
        struct layer_result first = case_run(&c, *b);
        c.blobs[STATE].value[0] = 5;
        c.blobs[X].value[0] = -3;
        struct layer_result second = case_run(&c, *b);
        size_t hidden = s.shape.hidden;
        assert_memory_not_equal(first.made[Y], second.made[Y], hidden * sizeof(double));
        assert_memory_equal(first.made[Y] + 2 * hidden, second.made[Y] + 2 * hidden,
                            4 * hidden * sizeof(double));
        for (size_t i = 0; i < 2 * hidden; i++) {
            assert_true(first.made[STATE][i] == 0);
            assert_true(first.made[STATE][2 * hidden + i] != 0);
        }
        for (size_t i = 0; i < s.shape.inputs; i++)
            assert_true(first.made[X][i] == 0);
        result_free(&first);
        result_free(&second);
        case_cleanup(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cells_are_those_of_pytorch),
        cmocka_unit_test(gradients_through_time_are_finite_differences),
        cmocka_unit_test(every_backend_recurs_as_the_reference),
        cmocka_unit_test(a_sequence_cut_anywhere_gives_the_same_bits),
        cmocka_unit_test(a_reset_forgets_and_stops_the_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
