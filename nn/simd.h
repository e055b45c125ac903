/* The kernels in terms of a few vector operations; each simd_*.c defines those for its instruction
 * set and includes this. LANES floats make a `vec`; a `part` names the first lanes of one.
 *
 * One matrix product serves everything: c (+)= a b, where a is read one element at a time through
 * two strides (so a transposed a costs nothing) and b by rows. A tile of c stays in registers while
 * `depth` runs; columns are cut into panels of four vectors and the depth into blocks, so that a
 * block of b (16 KiB) stays in the first-level cache while all rows pass by. The sum over depth of
 * one element runs in order, whatever the tile: a row gives the same bits in any batch of more than
 * one row. A single row takes a path of its own: four sums per element, because nothing else hides
 * the latency of the adds. */

enum {
    PANEL_VECS = 4,
    PANEL = PANEL_VECS * LANES,
    DEPTH_BLOCK = 64,
    NARROW_MAX = 8, /* outputs that a row can sum across its lanes instead */
};

enum gemm_start { START_ZERO, START_BIAS, START_ADD };
enum gemm_end { END_STORE, END_RELU, END_GATE_RELU, END_GATE_TANH };

struct gemm {
    const float *a, *b;
    float *c;
    size_t a_row, a_k, b_k, c_row;
    size_t rows, columns, depth;
    enum gemm_start start;
    enum gemm_end end;
    const float *bias, *gate; /* START_BIAS; END_GATE_* */
    size_t gate_row;
};

/* A tile's place: its first row and column, its depth block, the lanes of its last vector. */
struct spot {
    size_t row, column, k_from, k_to;
    part last;
};

static INLINE vec load_at(const float *p, bool last, part lanes)
{
    return last ? load_part(p, lanes) : load(p);
}

static INLINE vec tile_end(enum gemm_end end, vec sum, vec gate)
{
    switch (end) {
    case END_RELU:
        return max_vec(splat(0), sum);
    case END_GATE_RELU:
        return keep_where_positive(sum, gate);
    case END_GATE_TANH:
        return sum * (splat(1) - gate * gate);
    default:
        return sum;
    }
}

static INLINE void tile_run(const struct gemm *g, const struct spot *s, const unsigned rows,
                            const unsigned vecs)
{
    vec sum[TILE_ROWS_MAX][PANEL_VECS];
    float *c = g->c + s->row * g->c_row + s->column;
    enum gemm_start start = s->k_from == 0 ? g->start : START_ADD;
    UNROLL for (unsigned r = 0; r < rows; r++)
    {
        UNROLL for (unsigned v = 0; v < vecs; v++)
        {
            bool last = v == vecs - 1;
            if (start == START_ZERO)
                sum[r][v] = splat(0);
            else if (start == START_BIAS)
                sum[r][v] = load_at(g->bias + s->column + v * LANES, last, s->last);
            else
                sum[r][v] = load_at(c + r * g->c_row + v * LANES, last, s->last);
        }
    }
    const float *a = g->a + s->row * g->a_row + s->k_from * g->a_k;
    const float *b = g->b + s->k_from * g->b_k + s->column;
    for (size_t k = s->k_from; k < s->k_to; k++, a += g->a_k, b += g->b_k) {
        vec bs[PANEL_VECS];
        UNROLL for (unsigned v = 0; v < vecs; v++) bs[v] =
            load_at(b + v * LANES, v == vecs - 1, s->last);
        UNROLL for (unsigned r = 0; r < rows; r++)
        {
            vec as = splat(a[r * g->a_row]);
            UNROLL for (unsigned v = 0; v < vecs; v++) sum[r][v] = fma_vec(as, bs[v], sum[r][v]);
        }
    }
    enum gemm_end end = s->k_to == g->depth ? g->end : END_STORE;
    UNROLL for (unsigned r = 0; r < rows; r++)
    {
        UNROLL for (unsigned v = 0; v < vecs; v++)
        {
            bool last = v == vecs - 1;
            vec gate = splat(0);
            if (end == END_GATE_RELU || end == END_GATE_TANH)
                gate = load_at(g->gate + (s->row + r) * g->gate_row + s->column + v * LANES, last,
                               s->last);
            vec out = tile_end(end, sum[r][v], gate);
            if (last)
                store_part(c + r * g->c_row + v * LANES, out, s->last);
            else
                store(c + r * g->c_row + v * LANES, out);
        }
    }
}

typedef void tile_function(const struct gemm *, const struct spot *);

#define TILE(rows, vecs)                                                                           \
    static void tile_##rows##x##vecs(const struct gemm *g, const struct spot *s)                   \
    {                                                                                              \
        tile_run(g, s, rows, vecs);                                                                \
    }
TILES(TILE)
#undef TILE

/* [vecs - 1][rows - 1]; the widest tiles are TILE_ROWS(vecs) high. */
#define TILE(rows, vecs) [vecs - 1][rows - 1] = tile_##rows##x##vecs,
static tile_function *const tiles[PANEL_VECS][TILE_ROWS_MAX] = {TILES(TILE)};
#undef TILE

static const uint8_t tile_rows[PANEL_VECS] = TILE_ROWS;

/* One row of c: each element is four sums over every fourth k, so that adds overlap. */
static INLINE void row_run(const struct gemm *g, size_t column, part lanes, const unsigned vecs)
{
    vec sum[4][PANEL_VECS];
    UNROLL for (unsigned chain = 0; chain < 4; chain++)
    {
        UNROLL for (unsigned v = 0; v < vecs; v++) sum[chain][v] = splat(0);
    }
    const float *b = g->b + column;
    size_t k = 0;
    for (; k + 4 <= g->depth; k += 4, b += 4 * g->b_k) {
        UNROLL for (unsigned chain = 0; chain < 4; chain++)
        {
            vec as = splat(g->a[(k + chain) * g->a_k]);
            UNROLL for (unsigned v = 0; v < vecs; v++) sum[chain][v] = fma_vec(
                as, load_at(b + chain * g->b_k + v * LANES, v == vecs - 1, lanes), sum[chain][v]);
        }
    }
    for (; k < g->depth; k++, b += g->b_k) {
        vec as = splat(g->a[k * g->a_k]);
        UNROLL for (unsigned v = 0; v < vecs; v++) sum[0][v] =
            fma_vec(as, load_at(b + v * LANES, v == vecs - 1, lanes), sum[0][v]);
    }
    UNROLL for (unsigned v = 0; v < vecs; v++)
    {
        bool last = v == vecs - 1;
        vec total = (sum[0][v] + sum[1][v]) + (sum[2][v] + sum[3][v]);
        float *c = g->c + column + v * LANES;
        if (g->start == START_BIAS)
            total = total + load_at(g->bias + column + v * LANES, last, lanes);
        if (g->end == END_RELU)
            total = max_vec(splat(0), total);
        if (last)
            store_part(c, total, lanes);
        else
            store(c, total);
    }
}

/* Vectors that `columns` need, at most a panel, and the lanes of the last one. */
static INLINE size_t panel_vecs(size_t columns, part *last)
{
    size_t vecs = columns >= PANEL ? PANEL_VECS : (columns + LANES - 1) / LANES;
    size_t used = columns >= PANEL ? PANEL : columns;
    *last = part_of((unsigned)(used - (vecs - 1) * LANES));
    return vecs;
}

static void gemm_row(const struct gemm *g)
{
    for (size_t column = 0; column < g->columns; column += PANEL) {
        part last;
        switch (panel_vecs(g->columns - column, &last)) {
        case 1:
            row_run(g, column, last, 1);
            break;
        case 2:
            row_run(g, column, last, 2);
            break;
        case 3:
            row_run(g, column, last, 3);
            break;
        default:
            row_run(g, column, last, 4);
        }
    }
}

static void gemm_run(const struct gemm *g)
{
    for (size_t column = 0; column < g->columns; column += PANEL) {
        struct spot s = {.column = column};
        size_t vecs = panel_vecs(g->columns - column, &s.last);
        size_t step = tile_rows[vecs - 1];
        for (s.k_from = 0; s.k_from < g->depth; s.k_from = s.k_to) {
            s.k_to = s.k_from + DEPTH_BLOCK < g->depth ? s.k_from + DEPTH_BLOCK : g->depth;
            for (s.row = 0; s.row < g->rows; s.row += step) {
                size_t rows = g->rows - s.row < step ? g->rows - s.row : step;
                tiles[vecs - 1][rows - 1](g, &s);
            }
        }
    }
}

/* Rational approximation of tanh by Eigen's coefficients: at most a few units in the last place. */
static INLINE vec tanh_vec(vec x)
{
    x = max_vec(splat(-7.90531110763549805f), min_vec(splat(7.90531110763549805f), x));
    vec x2 = x * x;
    vec p = fma_vec(x2, splat(-2.76076847742355e-16f), splat(2.00018790482477e-13f));
    p = fma_vec(x2, p, splat(-8.60467152213735e-11f));
    p = fma_vec(x2, p, splat(5.12229709037114e-08f));
    p = fma_vec(x2, p, splat(1.48572235717979e-05f));
    p = fma_vec(x2, p, splat(6.37261928875436e-04f));
    p = fma_vec(x2, p, splat(4.89352455891786e-03f));
    vec q = fma_vec(x2, splat(1.19825839466702e-06f), splat(1.18534705686654e-04f));
    q = fma_vec(x2, q, splat(2.26843463243900e-03f));
    q = fma_vec(x2, q, splat(4.89352518554385e-03f));
    return x * p / q;
}

static INLINE vec activate_vec(enum activation activation, vec v)
{
    return activation == ACTIVATION_RELU ? max_vec(splat(0), v) : tanh_vec(v);
}

static void simd_activate(enum activation activation, float *y, size_t stride, size_t rows,
                          size_t columns)
{
    if (activation == ACTIVATION_NONE)
        return;
    for (size_t row = 0; row < rows; row++, y += stride) {
        size_t i = 0;
        for (; i + LANES <= columns; i += LANES)
            store(y + i, activate_vec(activation, load(y + i)));
        if (i < columns) {
            part lanes = part_of((unsigned)(columns - i));
            store_part(y + i, activate_vec(activation, load_part(y + i, lanes)), lanes);
        }
    }
}

/* to[columns][rows] = transpose of from[rows][columns], four by four. */
static void transpose(const float *from, size_t rows, size_t columns, float *to)
{
    size_t row = 0;
    for (; row + 4 <= rows; row += 4) {
        size_t column = 0;
        for (; column + 4 <= columns; column += 4)
            transpose_4x4(from + row * columns + column, columns, to + column * rows + row, rows);
        for (; column < columns; column++)
            for (size_t r = row; r < row + 4; r++)
                to[column * rows + r] = from[r * columns + column];
    }
    for (; row < rows; row++)
        for (size_t column = 0; column < columns; column++)
            to[column * rows + row] = from[row * columns + column];
}

static size_t simd_scratch(uint32_t inputs, uint32_t outputs)
{
    return ((size_t)inputs + LANES) * outputs; /* the weights, transposed */
}

/* Few outputs leave most lanes idle, so a row is multiplied with the transposed weights instead and
 * summed across the lanes. */
static INLINE void narrow_row(const struct forward_job *job, const float *x, float *y,
                              const unsigned outputs)
{
    const float *wt = job->scratch, *bias = job->bias;
    size_t inputs = job->inputs;
    vec sum[NARROW_MAX];
    UNROLL for (unsigned o = 0; o < outputs; o++) sum[o] = splat(0);
    size_t i = 0;
    for (; i + LANES <= inputs; i += LANES) {
        vec xs = load(x + i);
        UNROLL for (unsigned o = 0; o < outputs; o++) sum[o] =
            fma_vec(xs, load(wt + o * inputs + i), sum[o]);
    }
    if (i < inputs) {
        part lanes = part_of((unsigned)(inputs - i));
        vec xs = load_part(x + i, lanes);
        UNROLL for (unsigned o = 0; o < outputs; o++) sum[o] =
            fma_vec(xs, load_part(wt + o * inputs + i, lanes), sum[o]);
    }
    UNROLL for (unsigned o = 0; o < outputs; o++)
    {
        float total = sum_vec(sum[o]) + bias[o];
        y[o] = job->activation == ACTIVATION_RELU && total < 0 ? 0 : total;
    }
}

static void narrow_forward(const struct forward_job *job)
{
    transpose(job->w, job->inputs, job->outputs, job->scratch);
    const float *x = job->x;
    float *y = job->y;
#define NARROW_CASE(outputs)                                                                       \
    case outputs:                                                                                  \
        for (size_t row = 0; row < job->rows; row++)                                               \
            narrow_row(job, x + row * job->x_stride, y + row * job->y_stride, outputs);            \
        break;
    switch (job->outputs) {
        NARROW_CASE(1)
        NARROW_CASE(2)
        NARROW_CASE(3)
        NARROW_CASE(4)
        NARROW_CASE(5)
        NARROW_CASE(6)
        NARROW_CASE(7)
        NARROW_CASE(8)
    }
#undef NARROW_CASE
}

static void simd_forward(const struct forward_job *job)
{
    struct gemm g = {
        .a = job->x,
        .a_row = job->x_stride,
        .a_k = 1,
        .b = job->w,
        .b_k = job->outputs,
        .c = job->y,
        .c_row = job->y_stride,
        .rows = job->rows,
        .columns = job->outputs,
        .depth = job->inputs,
        .start = START_BIAS,
        .end = job->activation == ACTIVATION_RELU ? END_RELU : END_STORE,
        .bias = job->bias,
    };
    if (job->rows == 1)
        gemm_row(&g);
    else if (job->outputs <= NARROW_MAX && 2 * job->outputs <= LANES && job->inputs >= LANES)
        narrow_forward(job);
    else
        gemm_run(&g);
    if (job->activation == ACTIVATION_TANH)
        simd_activate(ACTIVATION_TANH, job->y, job->y_stride, job->rows, job->outputs);
}

/* The sum of dy's rows. */
static void backward_bias(const struct backward_job *job)
{
    const float *dy = job->dy;
    float *dbias = job->dbias;
    for (size_t o = 0; o < job->outputs; o += LANES) {
        size_t left = job->outputs - o;
        part lanes = part_of((unsigned)(left < LANES ? left : LANES));
        vec sum[4] = {splat(0), splat(0), splat(0), splat(0)};
        size_t row = 0;
        for (; row + 4 <= job->rows; row += 4) {
            UNROLL for (unsigned chain = 0; chain < 4; chain++) sum[chain] =
                sum[chain] + load_part(dy + (row + chain) * job->dy_stride + o, lanes);
        }
        for (; row < job->rows; row++)
            sum[0] = sum[0] + load_part(dy + row * job->dy_stride + o, lanes);
        vec total = (sum[0] + sum[1]) + (sum[2] + sum[3]);
        if (!job->overwrite)
            total = load_part(dbias + o, lanes) + total;
        store_part(dbias + o, total, lanes);
    }
}

/* dw' = dy' x when that fills the lanes better than dw = x' dy; through the scratch. */
static void narrow_backward_weights(const struct backward_job *job)
{
    float *dwt = job->scratch, *dw = job->dw;
    struct gemm g = {
        .a = job->dy,
        .a_row = 1,
        .a_k = job->dy_stride,
        .b = job->x,
        .b_k = job->x_stride,
        .c = dwt,
        .c_row = job->inputs,
        .rows = job->outputs,
        .columns = job->inputs,
        .depth = job->rows,
    };
    gemm_run(&g);
    for (size_t i = 0; i < job->inputs; i++)
        for (size_t o = 0; o < job->outputs; o++) {
            float sum = dwt[o * job->inputs + i];
            dw[i * job->outputs + o] = job->overwrite ? sum : dw[i * job->outputs + o] + sum;
        }
}

static void backward_weights(const struct backward_job *job)
{
    struct gemm g = {
        .a = job->x,
        .a_row = 1,
        .a_k = job->x_stride,
        .b = job->dy,
        .b_k = job->dy_stride,
        .c = job->dw,
        .c_row = job->outputs,
        .rows = job->inputs,
        .columns = job->outputs,
        .depth = job->rows,
        .start = job->overwrite ? START_ZERO : START_ADD,
    };
    if (2 * job->outputs <= LANES && job->inputs > job->outputs)
        narrow_backward_weights(job);
    else
        gemm_run(&g);
}

static void simd_backward(const struct backward_job *job)
{
    backward_bias(job);
    backward_weights(job);
    if (!job->dx)
        return;
    transpose(job->w, job->inputs, job->outputs, job->scratch);
    struct gemm g = {
        .a = job->dy,
        .a_row = job->dy_stride,
        .a_k = 1,
        .b = job->scratch,
        .b_k = job->inputs,
        .c = job->dx,
        .c_row = job->dx_stride,
        .rows = job->rows,
        .columns = job->inputs,
        .depth = job->outputs,
        .end = job->gate == ACTIVATION_RELU   ? END_GATE_RELU
               : job->gate == ACTIVATION_TANH ? END_GATE_TANH
                                              : END_STORE,
        .gate = job->x,
        .gate_row = job->x_stride,
    };
    gemm_run(&g);
}

/* Multiplied and added apart, as the reference does: the same bits. */
static INLINE void adam_vec(const struct adam_job *job, size_t i, bool last, part lanes)
{
    vec g = splat(job->scale) * load_at(job->grads + i, last, lanes);
    vec m = load_at(job->m + i, last, lanes), v = load_at(job->v + i, last, lanes);
    m = splat(job->beta1) * m + splat(job->one_minus_beta1) * g;
    v = splat(job->beta2) * v + splat(job->one_minus_beta2) * (g * g);
    vec root = sqrt_vec(v) * splat(job->inverse_root_bc2) + splat(job->epsilon);
    vec p = load_at(job->params + i, last, lanes) - splat(job->step_size) * m / root;
    if (last) {
        store_part(job->m + i, m, lanes);
        store_part(job->v + i, v, lanes);
        store_part(job->params + i, p, lanes);
    } else {
        store(job->m + i, m);
        store(job->v + i, v);
        store(job->params + i, p);
    }
}

static void simd_adam(const struct adam_job *job)
{
    part lanes = part_of(LANES);
    size_t i = 0;
    for (; i + LANES <= job->count; i += LANES)
        adam_vec(job, i, false, lanes);
    if (i < job->count)
        adam_vec(job, i, true, part_of((unsigned)(job->count - i)));
}

const struct backend BACKEND = {
    .name = BACKEND_NAME,
    .element_bytes = sizeof(float),
    .scratch = simd_scratch,
    .forward = simd_forward,
    .backward = simd_backward,
    .dueling_forward = dueling_forward_plain,
    .dueling_backward = dueling_backward_plain,
    .activate = simd_activate,
    .adam = simd_adam,
};
