/* LSTM and GRU. What goes from x to the gates is one product over all steps; what goes from h is
 * one per step, with the weights packed once for all of them. The products for a single row take
 * the path for single rows, whatever the number of steps, so that cutting a sequence keeps the
 * bits.
 *
 * Kept are planes over all steps and rows: gates [4 hidden] (a GRU's fourth is h wn' + bhn), h
 * before [hidden], and of an LSTM c before and tanh c. Backward turns the gates into the gradients
 * of their sums; a GRU's fourth becomes that of h wn' + bhn. */

/* What both directions work on. */
struct cell {
    size_t inputs, hidden, steps, rows, count; /* count: steps * rows */
    size_t gates, outputs; /* of a row of kept gates, 4 hidden; of the weights, 3 or 4 hidden */
    bool lstm;
    float *kept_gates, *h_before, *c_before, *tanh_c;
    float *pack, *packed, *state, *spare; /* spare: [rows or 1][gates] */
};

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t cell_packed_size(size_t inputs, size_t hidden, size_t outputs)
{
    size_t forward = packed_size(outputs, larger(inputs, hidden));
    return larger(forward, packed_size(larger(inputs, hidden), outputs)) +
           packed_size(hidden, hidden); /* a GRU's are two matrices */
}

static size_t simd_cell_scratch(const struct cell_shape *shape, uint32_t rows)
{
    size_t hidden = shape->hidden;
    return PANEL * DEPTH_BLOCK +
           cell_packed_size(shape->inputs, hidden, cell_gates(shape->kind) * hidden) +
           2 * rows * hidden + 4 * hidden;
}

static struct cell cell_of(const struct cell_shape *shape, size_t steps, size_t rows, float *kept,
                           float *scratch)
{
    size_t hidden = shape->hidden, outputs = cell_gates(shape->kind) * hidden;
    struct cell c = {
        .inputs = shape->inputs,
        .hidden = hidden,
        .steps = steps,
        .rows = rows,
        .count = steps * rows,
        .gates = 4 * hidden,
        .outputs = outputs,
        .lstm = shape->kind == CELL_LSTM,
        .kept_gates = kept,
        .pack = scratch,
        .packed = scratch + PANEL * DEPTH_BLOCK,
    };
    c.h_before = kept + c.count * 4 * hidden;
    c.c_before = c.h_before + c.count * hidden;
    c.tanh_c = c.c_before + c.count * hidden;
    c.state = c.packed + cell_packed_size(c.inputs, hidden, outputs);
    c.spare = c.state + 2 * rows * hidden;
    return c;
}

/* ---- forward ----------------------------------------------------------------------------- */

/* Many rows; or rows one after the other, each by itself. */
static void cell_product(const struct cell *c, const struct gemm *g)
{
    if (c->rows > 1) {
        gemm_run(g);
        return;
    }
    struct row_product row = {.a = g->a,
                              .b = g->b,
                              .bias = g->bias,
                              .c = g->c,
                              .b_k = g->b_k,
                              .columns = g->columns,
                              .depth = g->depth,
                              .start = g->start,
                              .end = g->end};
    for (size_t i = 0; i < g->rows; i++, row.a += g->a_row, row.c += g->c_row)
        row_product(&row);
}

/* A single row takes its weights where they are. */
static void cell_pack(const struct cell *c, struct gemm *g, float *to)
{
    if (c->rows > 1)
        gemm_pack(g, to);
}

/* The gates' shares of x and of the biases; those of a GRU's n are kept apart from h's. */
static void gates_from_x(const struct cell *c, const struct cell_forward_job *job)
{
    const float *bx = job->bx, *bh = job->bh;
    for (size_t i = 0; i < c->outputs; i++)
        c->spare[i] = bx[i] + (c->lstm || i < 2 * c->hidden ? bh[i] : 0);
    struct gemm g = {
        .a = job->x,
        .a_row = job->x_row,
        .a_k = 1,
        .b = job->wx,
        .b_k = c->outputs,
        .b_n = 1,
        .c = c->kept_gates,
        .c_row = c->gates,
        .rows = c->rows,
        .columns = c->outputs,
        .depth = c->inputs,
        .start = START_BIAS,
        .bias = c->spare,
        .pack = c->pack,
    };
    if (c->rows == 1 || job->x_step == c->rows * job->x_row) {
        g.a_row = c->rows == 1 ? job->x_step : job->x_row;
        g.rows = c->count;
        cell_product(c, &g);
        return;
    }
    cell_pack(c, &g, c->packed);
    for (size_t step = 0; step < c->steps; step++, g.a += job->x_step, g.c += c->rows * c->gates)
        cell_product(c, &g);
}

/* Adds h's share of the gates of one step. */
static struct gemm gates_from_h(const struct cell *c, const struct cell_forward_job *job)
{
    struct gemm g = {
        .a_row = c->hidden,
        .a_k = 1,
        .b = job->wh,
        .b_k = c->outputs,
        .b_n = 1,
        .c_row = c->gates,
        .rows = c->rows,
        .columns = c->lstm ? c->outputs : 2 * c->hidden,
        .depth = c->hidden,
        .start = START_ADD,
        .pack = c->pack,
    };
    cell_pack(c, &g, c->packed);
    return g;
}

/* h wn' + bhn of a GRU. */
static struct gemm candidate_from_h(const struct cell *c, const struct cell_forward_job *job)
{
    struct gemm g = {
        .a_row = c->hidden,
        .a_k = 1,
        .b = (const float *)job->wh + 2 * c->hidden,
        .b_k = c->outputs,
        .b_n = 1,
        .c_row = c->gates,
        .rows = c->rows,
        .columns = c->hidden,
        .depth = c->hidden,
        .start = START_BIAS,
        .bias = (const float *)job->bh + 2 * c->hidden,
        .pack = c->pack,
    };
    cell_pack(c, &g, c->packed + packed_size(2 * c->hidden, c->hidden));
    return g;
}

/* One row of an LSTM: `gates` holds the sums, `state` is [h][c]. */
static void lstm_row(size_t hidden, float *gates, const float *c_before, float *tanh_c, float *h,
                     float *c_after)
{
    for (size_t j = 0; j < hidden; j += LANES) {
        bool last = j + LANES > hidden;
        part lanes = part_of(last ? (unsigned)(hidden - j) : LANES);
        float *at = gates + j;
        vec i = sigmoid_vec(load_at(at, last, lanes));
        vec f = sigmoid_vec(load_at(at + hidden, last, lanes));
        vec g = tanh_vec(load_at(at + 2 * hidden, last, lanes));
        vec o = sigmoid_vec(load_at(at + 3 * hidden, last, lanes));
        vec c = f * load_at(c_before + j, last, lanes) + i * g, t = tanh_vec(c);
        store_at(at, i, last, lanes);
        store_at(at + hidden, f, last, lanes);
        store_at(at + 2 * hidden, g, last, lanes);
        store_at(at + 3 * hidden, o, last, lanes);
        store_at(tanh_c + j, t, last, lanes);
        store_at(c_after + j, c, last, lanes);
        store_at(h + j, o * t, last, lanes);
    }
}

static void gru_row(size_t hidden, float *gates, const float *h_before, float *h)
{
    for (size_t j = 0; j < hidden; j += LANES) {
        bool last = j + LANES > hidden;
        part lanes = part_of(last ? (unsigned)(hidden - j) : LANES);
        float *at = gates + j;
        vec r = sigmoid_vec(load_at(at, last, lanes));
        vec z = sigmoid_vec(load_at(at + hidden, last, lanes));
        vec from_h = load_at(at + 3 * hidden, last, lanes);
        vec n = tanh_vec(load_at(at + 2 * hidden, last, lanes) + r * from_h);
        store_at(at, r, last, lanes);
        store_at(at + hidden, z, last, lanes);
        store_at(at + 2 * hidden, n, last, lanes);
        vec before = load_at(h_before + j, last, lanes);
        store_at(h + j, n + z * (before - n), last, lanes);
    }
}

static bool is_reset(const uint8_t *resets, size_t reset_step, size_t step, size_t row)
{
    return resets && resets[step * reset_step + row];
}

static void copy_or_zero(float *to, const float *from, size_t count)
{
    if (from)
        memcpy(to, from, count * sizeof *to);
    else
        memset(to, 0, count * sizeof *to);
}

/* Where a row's h lies before a step: NULL is zeros. */
static const float *cell_h_before(const struct cell_forward_job *job, size_t step, size_t row)
{
    if (is_reset(job->resets, job->reset_step, step, row))
        return NULL;
    if (step > 0)
        return (const float *)job->y + (step - 1) * job->y_step + row * job->y_row;
    return job->state ? (const float *)job->state + row * job->state_row : NULL;
}

/* Before a step; an LSTM's c is in the scratch. */
static void cell_begin_step(const struct cell *c, const struct cell_forward_job *job, size_t step)
{
    for (size_t row = 0; row < c->rows; row++) {
        size_t at = (step * c->rows + row) * c->hidden;
        const float *h = cell_h_before(job, step, row);
        const float *c_row = step > 0 ? c->state + row * c->hidden : h ? h + c->hidden : NULL;
        copy_or_zero(c->h_before + at, h, c->hidden);
        if (c->lstm)
            copy_or_zero(c->c_before + at, h ? c_row : NULL, c->hidden);
    }
}

static void cell_end_step(const struct cell *c, const struct cell_forward_job *job, size_t step)
{
    for (size_t row = 0; row < c->rows; row++) {
        size_t at = step * c->rows + row;
        float *h = (float *)job->y + step * job->y_step + row * job->y_row;
        if (c->lstm)
            lstm_row(c->hidden, c->kept_gates + at * c->gates, c->c_before + at * c->hidden,
                     c->tanh_c + at * c->hidden, h, c->state + row * c->hidden);
        else
            gru_row(c->hidden, c->kept_gates + at * c->gates, c->h_before + at * c->hidden, h);
    }
}

static void cell_end_state(const struct cell *c, const struct cell_forward_job *job)
{
    const float *h = (const float *)job->y + (c->steps - 1) * job->y_step;
    for (size_t row = 0; row < c->rows; row++) {
        float *end = (float *)job->end_state + row * job->end_row;
        memcpy(end, h + row * job->y_row, c->hidden * sizeof *end);
        if (c->lstm)
            memcpy(end + c->hidden, c->state + row * c->hidden, c->hidden * sizeof *end);
    }
}

static void simd_cell_forward(const struct cell_forward_job *job)
{
    struct cell c = cell_of(&job->shape, job->steps, job->rows, job->kept, job->scratch);
    gates_from_x(&c, job);
    struct gemm gates = gates_from_h(&c, job), candidate = {0};
    if (!c.lstm)
        candidate = candidate_from_h(&c, job);
    for (size_t step = 0; step < c.steps; step++) {
        cell_begin_step(&c, job, step);
        gates.a = candidate.a = c.h_before + step * c.rows * c.hidden;
        gates.c = c.kept_gates + step * c.rows * c.gates;
        cell_product(&c, &gates);
        if (!c.lstm) {
            candidate.c = gates.c + 3 * c.hidden;
            cell_product(&c, &candidate);
        }
        cell_end_step(&c, job, step);
    }
    if (job->end_state)
        cell_end_state(&c, job);
}

/* ---- backward ---------------------------------------------------------------------------- */

/* One row: gates become the gradients of their sums, dc that of c before. */
static void lstm_row_backward(size_t hidden, float *gates, const float *c_before,
                              const float *tanh_c, const float *dh_rows, const float *dy, float *dc)
{
    const vec one = splat(1);
    for (size_t j = 0; j < hidden; j += LANES) {
        bool last = j + LANES > hidden;
        part lanes = part_of(last ? (unsigned)(hidden - j) : LANES);
        float *at = gates + j;
        vec i = load_at(at, last, lanes), f = load_at(at + hidden, last, lanes);
        vec g = load_at(at + 2 * hidden, last, lanes), o = load_at(at + 3 * hidden, last, lanes);
        vec t = load_at(tanh_c + j, last, lanes);
        vec dh = load_at(dh_rows + j, last, lanes) + load_at(dy + j, last, lanes);
        vec d = load_at(dc + j, last, lanes) + dh * o * (one - t * t);
        store_at(at, d * g * i * (one - i), last, lanes);
        store_at(at + hidden, d * load_at(c_before + j, last, lanes) * f * (one - f), last, lanes);
        store_at(at + 2 * hidden, d * i * (one - g * g), last, lanes);
        store_at(at + 3 * hidden, dh * t * o * (one - o), last, lanes);
        store_at(dc + j, d * f, last, lanes);
    }
}

/* `dh` becomes what of it goes around the gates. */
static void gru_row_backward(size_t hidden, float *gates, const float *h_before, const float *dy,
                             float *dh)
{
    const vec one = splat(1);
    for (size_t j = 0; j < hidden; j += LANES) {
        bool last = j + LANES > hidden;
        part lanes = part_of(last ? (unsigned)(hidden - j) : LANES);
        float *at = gates + j;
        vec r = load_at(at, last, lanes), z = load_at(at + hidden, last, lanes);
        vec n = load_at(at + 2 * hidden, last, lanes), m = load_at(at + 3 * hidden, last, lanes);
        vec d = load_at(dh + j, last, lanes) + load_at(dy + j, last, lanes);
        vec dn = d * (one - z) * (one - n * n);
        store_at(at, dn * m * r * (one - r), last, lanes);
        store_at(at + hidden, d * (load_at(h_before + j, last, lanes) - n) * z * (one - z), last,
                 lanes);
        store_at(at + 2 * hidden, dn, last, lanes);
        store_at(at + 3 * hidden, dn * r, last, lanes);
        store_at(dh + j, d * z, last, lanes);
    }
}

/* What of a step's gradient goes back through h before; the columns from `gate` on. */
static struct gemm h_from_gates(const struct cell *c, const struct cell_backward_job *job,
                                size_t weights_column, size_t columns, float *packed)
{
    struct gemm g = {
        .a_row = c->gates,
        .a_k = 1,
        .b = (const float *)job->wh + weights_column,
        .b_k = 1,
        .b_n = c->outputs,
        .c = c->state,
        .c_row = c->hidden,
        .rows = c->rows,
        .columns = c->hidden,
        .depth = columns,
        .start = START_ADD,
        .pack = c->pack,
    };
    gemm_pack(&g, packed);
    return g;
}

static void cell_step_rows(const struct cell *c, const struct cell_backward_job *job, size_t step)
{
    for (size_t row = 0; row < c->rows; row++) {
        size_t at = step * c->rows + row;
        float *dh = c->state + row * c->hidden, *dc = dh + c->rows * c->hidden;
        const float *dy = (const float *)job->dy + step * job->dy_step + row * job->dy_row;
        float *gates = c->kept_gates + at * c->gates;
        if (!c->lstm) {
            gru_row_backward(c->hidden, gates, c->h_before + at * c->hidden, dy, dh);
            continue;
        }
        lstm_row_backward(c->hidden, gates, c->c_before + at * c->hidden,
                          c->tanh_c + at * c->hidden, dh, dy, dc);
        memset(dh, 0, c->hidden * sizeof *dh);
    }
}

/* Adds the rows of a step's gradients to the spare: small sums first, and each row is still near.
 */
static void cell_add_bias(const struct cell *c, size_t step)
{
    const float *rows = c->kept_gates + step * c->rows * c->gates;
    for (size_t i = 0; i < c->gates; i += LANES) {
        bool last = i + LANES > c->gates;
        part lanes = part_of(last ? (unsigned)(c->gates - i) : LANES);
        vec sum = splat(0);
        for (size_t row = 0; row < c->rows; row++)
            sum = sum + load_at(rows + row * c->gates + i, last, lanes);
        store_at(c->spare + i, load_at(c->spare + i, last, lanes) + sum, last, lanes);
    }
}

static void cell_store_bias(const struct cell *c, size_t gate, float *dbias, size_t columns,
                            bool overwrite)
{
    for (size_t i = 0; i < columns; i++)
        dbias[i] = overwrite ? c->spare[gate + i] : dbias[i] + c->spare[gate + i];
}

static void cell_stop_gradients(const struct cell *c, const struct cell_backward_job *job,
                                size_t step)
{
    for (size_t row = 0; row < c->rows; row++)
        if (is_reset(job->resets, job->reset_step, step, row)) {
            float *dh = c->state + row * c->hidden;
            memset(dh, 0, c->hidden * sizeof *dh);
            memset(dh + c->rows * c->hidden, 0, c->hidden * sizeof *dh);
        }
}

/* The gradients of all gates, last step first; `state` ends as that of the first state. */
static void cell_backward_steps(const struct cell *c, const struct cell_backward_job *job)
{
    size_t gate_columns = c->lstm ? c->outputs : 2 * c->hidden;
    struct gemm gates = h_from_gates(c, job, 0, gate_columns, c->packed), candidate = {0};
    if (!c->lstm)
        candidate = h_from_gates(c, job, gate_columns, c->hidden,
                                 c->packed + packed_size(c->hidden, gate_columns));
    memset(c->spare, 0, c->gates * sizeof *c->spare);
    for (size_t step = c->steps; step-- > 0;) {
        cell_step_rows(c, job, step);
        cell_add_bias(c, step);
        gates.a = c->kept_gates + step * c->rows * c->gates;
        gemm_run(&gates);
        if (!c->lstm) {
            candidate.a = gates.a + 3 * c->hidden;
            gemm_run(&candidate);
        }
        cell_stop_gradients(c, job, step);
    }
}

/* dw (+)= a' gates, the gates' columns from `gate` on. Rows that do not follow each other from step
 * to step are taken step by step. */
static void cell_weights(const struct cell *c, const float *a, size_t a_row, size_t a_step,
                         size_t gate, float *dw, size_t inputs, size_t columns, bool overwrite)
{
    struct gemm g = {
        .a = a,
        .a_row = 1,
        .a_k = a_row,
        .b = c->kept_gates + gate,
        .b_k = c->gates,
        .b_n = 1,
        .c = dw,
        .c_row = c->outputs,
        .rows = inputs,
        .columns = columns,
        .depth = c->count,
        .start = overwrite ? START_ZERO : START_ADD,
        .pack = c->pack,
    };
    if (c->rows == 1 || a_step == c->rows * a_row) {
        g.a_k = c->rows == 1 ? a_step : a_row;
        gemm_run(&g);
        return;
    }
    g.depth = c->rows;
    for (size_t step = 0; step < c->steps; step++) {
        gemm_run(&g);
        g.a += a_step;
        g.b += c->rows * c->gates;
        g.start = START_ADD;
    }
}

static void cell_backward_weights(const struct cell *c, const struct cell_backward_job *job)
{
    size_t hidden = c->hidden, h_step = c->rows * hidden;
    cell_weights(c, job->x, job->x_row, job->x_step, 0, job->dwx, c->inputs, c->outputs,
                 job->overwrite);
    cell_store_bias(c, 0, job->dbx, c->outputs, job->overwrite);
    size_t columns = c->lstm ? c->outputs : 2 * hidden;
    cell_weights(c, c->h_before, hidden, h_step, 0, job->dwh, hidden, columns, job->overwrite);
    cell_store_bias(c, 0, job->dbh, columns, job->overwrite);
    if (c->lstm)
        return;
    cell_weights(c, c->h_before, hidden, h_step, 3 * hidden, (float *)job->dwh + columns, hidden,
                 hidden, job->overwrite);
    cell_store_bias(c, 3 * hidden, (float *)job->dbh + columns, hidden, job->overwrite);
}

static void cell_dx(const struct cell *c, const struct cell_backward_job *job)
{
    struct gemm g = {
        .a = c->kept_gates,
        .a_row = c->gates,
        .a_k = 1,
        .b = job->wx,
        .b_k = 1,
        .b_n = c->outputs,
        .c = job->dx,
        .c_row = job->dx_row,
        .rows = c->rows,
        .columns = c->inputs,
        .depth = c->outputs,
        .start = job->accumulate_dx ? START_ADD : START_ZERO,
        .pack = c->pack,
    };
    gemm_pack(&g, c->packed);
    for (size_t step = 0; step < c->steps; step++) {
        gemm_run(&g);
        g.a += c->rows * c->gates;
        g.c += job->dx_step;
    }
}

/* The rows' gradients of the last, or of the first, state: [h][c] outside, all h and then all c in
 * the scratch. */
static void cell_load_dstate(const struct cell *c, const struct cell_backward_job *job)
{
    const float *from = job->dend_state;
    for (size_t row = 0; row < c->rows; row++) {
        const float *end = from ? from + row * job->dend_row : NULL;
        float *dh = c->state + row * c->hidden;
        copy_or_zero(dh, end, c->hidden);
        if (c->lstm)
            copy_or_zero(dh + c->rows * c->hidden, end ? end + c->hidden : NULL, c->hidden);
    }
}

static void cell_store_dstate(const struct cell *c, const struct cell_backward_job *job)
{
    for (size_t row = 0; row < c->rows; row++) {
        float *to = (float *)job->dstate + row * job->dstate_row;
        const float *dh = c->state + row * c->hidden;
        memcpy(to, dh, c->hidden * sizeof *to);
        if (c->lstm)
            memcpy(to + c->hidden, dh + c->rows * c->hidden, c->hidden * sizeof *to);
    }
}

static void simd_cell_backward(const struct cell_backward_job *job)
{
    struct cell c = cell_of(&job->shape, job->steps, job->rows, job->kept, job->scratch);
    cell_load_dstate(&c, job);
    cell_backward_steps(&c, job);
    if (job->dstate)
        cell_store_dstate(&c, job);
    if (job->dwx)
        cell_backward_weights(&c, job);
    if (job->dx)
        cell_dx(&c, job);
}

static const struct cell_kernels simd_cell = {
    .scratch = simd_cell_scratch,
    .forward = simd_cell_forward,
    .backward = simd_cell_backward,
};
