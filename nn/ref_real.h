/* The naive loops, for REAL and NAME(): included once for float and once for double. */

static size_t NAME(scratch)(uint32_t inputs, uint32_t outputs)
{
    (void)inputs;
    (void)outputs;
    return 0;
}

/* A number that a product takes. */
static REAL NAME(factor)(REAL value, bool bf16)
{
    return bf16 ? (REAL)bf16_rounded((float)value) : value;
}

static void NAME(forward_by)(const struct forward_job *job, bool bf16)
{
    const REAL *x = job->x, *w = job->w, *bias = job->bias;
    REAL *y = job->y;
    for (size_t row = 0; row < job->rows; row++)
        for (size_t o = 0; o < job->outputs; o++) {
            REAL sum = bias[o];
            for (size_t i = 0; i < job->inputs; i++)
                sum += NAME(factor)(x[row * job->x_stride + i], bf16) *
                       NAME(factor)(w[i * job->outputs + o], bf16);
            y[row * job->y_stride + o] = NAME(activated)(job->activation, sum);
        }
}

static void NAME(backward_weights)(const struct backward_job *job, bool bf16)
{
    const REAL *x = job->x, *dy = job->dy;
    REAL *dw = job->dw, *dbias = job->dbias;
    for (size_t o = 0; o < job->outputs; o++) {
        REAL sum = 0;
        for (size_t row = 0; row < job->rows; row++)
            sum += dy[row * job->dy_stride + o];
        dbias[o] = job->overwrite ? sum : dbias[o] + sum;
    }
    for (size_t i = 0; i < job->inputs; i++)
        for (size_t o = 0; o < job->outputs; o++) {
            REAL sum = 0;
            for (size_t row = 0; row < job->rows; row++)
                sum += NAME(factor)(x[row * job->x_stride + i], bf16) *
                       NAME(factor)(dy[row * job->dy_stride + o], bf16);
            REAL *out = &dw[i * job->outputs + o];
            *out = job->overwrite ? sum : *out + sum;
        }
}

static void NAME(backward_by)(const struct backward_job *job, bool bf16)
{
    const REAL *x = job->x, *w = job->w, *dy = job->dy;
    REAL *dx = job->dx;
    if (job->dw)
        NAME(backward_weights)(job, bf16);
    if (!dx)
        return;
    for (size_t row = 0; row < job->rows; row++)
        for (size_t i = 0; i < job->inputs; i++) {
            REAL sum = 0;
            for (size_t o = 0; o < job->outputs; o++)
                sum += NAME(factor)(dy[row * job->dy_stride + o], bf16) *
                       NAME(factor)(w[i * job->outputs + o], bf16);
            sum *= NAME(slope)(job->gate, x[row * job->x_stride + i]);
            REAL *to = &dx[row * job->dx_stride + i];
            *to = job->accumulate_dx ? *to + sum : sum;
        }
}

static void NAME(forward)(const struct forward_job *job)
{
    NAME(forward_by)(job, false);
}

static void NAME(backward)(const struct backward_job *job)
{
    NAME(backward_by)(job, false);
}

static void NAME(forward_bf16)(const struct forward_job *job)
{
    NAME(forward_by)(job, true);
}

static void NAME(backward_bf16)(const struct backward_job *job)
{
    NAME(backward_by)(job, true);
}

/* One atom of a row: streams and values point at it in V and in the first value. */
static void NAME(dueling_atom)(const struct dueling_job *job, const REAL *streams, REAL *values)
{
    size_t step = job->atoms, end = job->outputs;
    REAL sum = 0;
    for (size_t o = 0; o < end; o += step)
        sum += streams[step + o];
    REAL base = streams[0] - sum / (REAL)(end / step);
    for (size_t o = 0; o < end; o += step)
        values[o] = base + streams[step + o];
}

static void NAME(dueling_atom_backward)(const struct dueling_job *job, const REAL *values,
                                        REAL *streams)
{
    size_t step = job->atoms, end = job->outputs;
    REAL sum = 0;
    for (size_t o = 0; o < end; o += step)
        sum += values[o];
    streams[0] = job->accumulate ? streams[0] + sum : sum;
    for (size_t o = 0; o < end; o += step) {
        REAL da = values[o] - sum / (REAL)(end / step);
        streams[step + o] = job->accumulate ? streams[step + o] + da : da;
    }
}

static void NAME(dueling)(const struct dueling_job *job)
{
    const REAL *in = job->in;
    REAL *out = job->out;
    for (size_t row = 0; row < job->rows; row++) {
        for (uint32_t atom = 0; atom < job->atoms; atom++)
            if (job->backward)
                NAME(dueling_atom_backward)(job, in + atom, out + atom);
            else
                NAME(dueling_atom)(job, in + atom, out + atom);
        in += job->in_stride;
        out += job->out_stride;
    }
}

static const struct linear_kernels NAME(linear_kernels) = {
    .name = "ref",
    .scratch = NAME(scratch),
    .forward = NAME(forward),
    .backward = NAME(backward),
};

static const struct linear_kernels NAME(linear_bf16_kernels) = {
    .name = "ref bf16",
    .scratch = NAME(scratch),
    .forward = NAME(forward_bf16),
    .backward = NAME(backward_bf16),
};
