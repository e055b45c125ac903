/* LSTM and GRU, for REAL and NAME(): one row after the other, one step after the other. Kept are
 * planes over all steps and rows: gates [4 hidden], h before [hidden], and of an LSTM c before and
 * tanh c. The scratch holds the rows' states (or their gradients), and two lots of gates. */

static size_t NAME(cell_scratch)(const struct cell_shape *shape, uint32_t rows)
{
    return (size_t)rows * cell_state(shape) + 8 * (size_t)shape->hidden;
}

/* What is kept of one step of one row. */
struct NAME(cell_memory) {
    REAL *gates, *h_before, *c_before, *tanh_c;
};

static struct NAME(cell_memory)
    NAME(cell_memory_at)(void *kept, size_t hidden, size_t count, size_t at)
{
    REAL *planes = kept;
    return (struct NAME(cell_memory)){
        .gates = planes + at * 4 * hidden,
        .h_before = planes + (count * 4 + at) * hidden,
        .c_before = planes + (count * 5 + at) * hidden,
        .tanh_c = planes + (count * 6 + at) * hidden,
    };
}

static void NAME(row_product)(REAL *y, const REAL *x, const REAL *w, const REAL *bias,
                              size_t inputs, size_t outputs)
{
    for (size_t o = 0; o < outputs; o++) {
        y[o] = bias[o];
        for (size_t i = 0; i < inputs; i++)
            y[o] += x[i] * w[i * outputs + o];
    }
}

static void NAME(lstm_cell)(const REAL *from_x, const REAL *from_h, size_t hidden, REAL *state,
                            const struct NAME(cell_memory) * m)
{
    for (size_t j = 0; j < hidden; j++) {
        REAL gates[4];
        for (size_t gate = 0; gate < 4; gate++) {
            REAL sum = from_x[gate * hidden + j] + from_h[gate * hidden + j];
            gates[gate] = gate == 2 ? MATH(tanh)(sum) : NAME(sigmoid)(sum);
            m->gates[gate * hidden + j] = gates[gate];
        }
        m->c_before[j] = state[hidden + j];
        state[hidden + j] = gates[1] * m->c_before[j] + gates[0] * gates[2];
        m->tanh_c[j] = MATH(tanh)(state[hidden + j]);
        state[j] = gates[3] * m->tanh_c[j];
    }
}

static void NAME(gru_cell)(const REAL *from_x, const REAL *from_h, size_t hidden, REAL *state,
                           const struct NAME(cell_memory) * m)
{
    for (size_t j = 0; j < hidden; j++) {
        REAL r = NAME(sigmoid)(from_x[j] + from_h[j]);
        REAL z = NAME(sigmoid)(from_x[hidden + j] + from_h[hidden + j]);
        REAL n = MATH(tanh)(from_x[2 * hidden + j] + r * from_h[2 * hidden + j]);
        m->gates[j] = r;
        m->gates[hidden + j] = z;
        m->gates[2 * hidden + j] = n;
        m->gates[3 * hidden + j] = from_h[2 * hidden + j];
        state[j] = (1 - z) * n + z * state[j];
    }
}

static void NAME(cell_step)(const struct cell_forward_job *job, size_t step, size_t row)
{
    size_t hidden = job->shape.hidden, count = (size_t)job->steps * job->rows;
    size_t gates = cell_gates(job->shape.kind) * hidden;
    REAL *states = job->scratch, *state = states + row * cell_state(&job->shape);
    REAL *from_x = states + job->rows * cell_state(&job->shape), *from_h = from_x + gates;
    struct NAME(cell_memory) m =
        NAME(cell_memory_at)(job->kept, hidden, count, step * job->rows + row);
    if (job->resets && job->resets[step * job->reset_step + row])
        memset(state, 0, cell_state(&job->shape) * sizeof *state);
    memcpy(m.h_before, state, hidden * sizeof *state);
    NAME(row_product)
    (from_x, (const REAL *)job->x + step * job->x_step + row * job->x_row, job->wx, job->bx,
     job->shape.inputs, gates);
    NAME(row_product)(from_h, state, job->wh, job->bh, hidden, gates);
    if (job->shape.kind == CELL_LSTM)
        NAME(lstm_cell)(from_x, from_h, hidden, state, &m);
    else
        NAME(gru_cell)(from_x, from_h, hidden, state, &m);
    memcpy((REAL *)job->y + step * job->y_step + row * job->y_row, state, hidden * sizeof *state);
}

/* Rows of `width` elements; from NULL: zeros. */
static void NAME(copy_rows)(REAL *to, size_t to_row, const REAL *from, size_t from_row, size_t rows,
                            size_t width)
{
    for (size_t row = 0; row < rows; row++)
        for (size_t i = 0; i < width; i++)
            to[row * to_row + i] = from ? from[row * from_row + i] : 0;
}

static void NAME(cell_forward)(const struct cell_forward_job *job)
{
    size_t width = cell_state(&job->shape);
    NAME(copy_rows)(job->scratch, width, job->state, job->state_row, job->rows, width);
    for (size_t step = 0; step < job->steps; step++)
        for (size_t row = 0; row < job->rows; row++)
            NAME(cell_step)(job, step, row);
    if (job->end_state)
        NAME(copy_rows)(job->end_state, job->end_row, job->scratch, width, job->rows, width);
}

/* From the gradient of h to those of the gates' sums; `dstate` holds the gradient of c. */
static void NAME(lstm_cell_backward)(REAL *from_x, size_t hidden, const REAL *dh, REAL *dstate,
                                     const struct NAME(cell_memory) * m)
{
    for (size_t j = 0; j < hidden; j++) {
        REAL i = m->gates[j], f = m->gates[hidden + j];
        REAL g = m->gates[2 * hidden + j], o = m->gates[3 * hidden + j];
        REAL tanh_c = m->tanh_c[j];
        REAL dc = dstate[hidden + j] + dh[j] * o * (1 - tanh_c * tanh_c);
        from_x[j] = dc * g * i * (1 - i);
        from_x[hidden + j] = dc * m->c_before[j] * f * (1 - f);
        from_x[2 * hidden + j] = dc * i * (1 - g * g);
        from_x[3 * hidden + j] = dh[j] * tanh_c * o * (1 - o);
        dstate[hidden + j] = dc * f;
    }
}

/* `dstate` becomes what of h's gradient goes around the gates. */
static void NAME(gru_cell_backward)(REAL *from_x, REAL *from_h, size_t hidden, const REAL *dh,
                                    REAL *dstate, const struct NAME(cell_memory) * m)
{
    for (size_t j = 0; j < hidden; j++) {
        REAL r = m->gates[j], z = m->gates[hidden + j], n = m->gates[2 * hidden + j];
        REAL dn = dh[j] * (1 - z) * (1 - n * n);
        from_x[j] = from_h[j] = dn * m->gates[3 * hidden + j] * r * (1 - r);
        from_x[hidden + j] = from_h[hidden + j] = dh[j] * (m->h_before[j] - n) * z * (1 - z);
        from_x[2 * hidden + j] = dn;
        from_h[2 * hidden + j] = dn * r;
        dstate[j] = dh[j] * z;
    }
}

/* dw += x' dy, dbias += dy, dx += w dy; each of what is given. */
static void NAME(row_backward)(const REAL *x, const REAL *w, const REAL *dy, REAL *dw, REAL *dbias,
                               REAL *dx, size_t inputs, size_t outputs)
{
    for (size_t o = 0; dbias && o < outputs; o++)
        dbias[o] += dy[o];
    for (size_t i = 0; i < inputs; i++) {
        REAL sum = 0;
        for (size_t o = 0; o < outputs; o++) {
            if (dw)
                dw[i * outputs + o] += x[i] * dy[o];
            sum += w[i * outputs + o] * dy[o];
        }
        if (dx)
            dx[i] += sum;
    }
}

static void NAME(cell_step_backward)(const struct cell_backward_job *job, size_t step, size_t row)
{
    size_t inputs = job->shape.inputs, hidden = job->shape.hidden;
    size_t gates = cell_gates(job->shape.kind) * hidden, count = (size_t)job->steps * job->rows;
    REAL *states = job->scratch, *dstate = states + row * cell_state(&job->shape);
    REAL *from_x = states + job->rows * cell_state(&job->shape), *from_h = from_x + gates;
    struct NAME(cell_memory) m =
        NAME(cell_memory_at)(job->kept, hidden, count, step * job->rows + row);
    const REAL *dy = (const REAL *)job->dy + step * job->dy_step + row * job->dy_row;
    for (size_t j = 0; j < hidden; j++)
        dstate[j] += dy[j];
    if (job->shape.kind == CELL_LSTM) {
        NAME(lstm_cell_backward)(from_x, hidden, dstate, dstate, &m);
        memset(dstate, 0, hidden * sizeof *dstate);
        from_h = from_x;
    } else {
        NAME(gru_cell_backward)(from_x, from_h, hidden, dstate, dstate, &m);
    }
    REAL *dx = job->dx ? (REAL *)job->dx + step * job->dx_step + row * job->dx_row : NULL;
    if (dx && !job->accumulate_dx)
        memset(dx, 0, inputs * sizeof *dx);
    NAME(row_backward)
    ((const REAL *)job->x + step * job->x_step + row * job->x_row, job->wx, from_x, job->dwx,
     job->dbx, dx, inputs, gates);
    NAME(row_backward)(m.h_before, job->wh, from_h, job->dwh, job->dbh, dstate, hidden, gates);
    if (job->resets && job->resets[step * job->reset_step + row])
        memset(dstate, 0, cell_state(&job->shape) * sizeof *dstate);
}

static void NAME(cell_backward)(const struct cell_backward_job *job)
{
    size_t width = cell_state(&job->shape);
    size_t gates = (size_t)cell_gates(job->shape.kind) * job->shape.hidden;
    NAME(copy_rows)(job->scratch, width, job->dend_state, job->dend_row, job->rows, width);
    if (job->dwx && job->overwrite) {
        memset(job->dwx, 0, job->shape.inputs * gates * sizeof(REAL));
        memset(job->dwh, 0, job->shape.hidden * gates * sizeof(REAL));
        memset(job->dbx, 0, gates * sizeof(REAL));
        memset(job->dbh, 0, gates * sizeof(REAL));
    }
    for (size_t step = job->steps; step-- > 0;)
        for (size_t row = 0; row < job->rows; row++)
            NAME(cell_step_backward)(job, step, row);
    if (job->dstate)
        NAME(copy_rows)(job->dstate, job->dstate_row, job->scratch, width, job->rows, width);
}

static const struct cell_kernels NAME(cell_kernels) = {
    .scratch = NAME(cell_scratch),
    .forward = NAME(cell_forward),
    .backward = NAME(cell_backward),
};
