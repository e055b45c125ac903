/* The kernels in terms of a few vector operations; each simd_*.c defines those for its instruction
 * set and includes this. LANES floats make a `vec`; a `part` names the first lanes of one.
 *
 * One matrix product serves everything: c (+)= a b, where a is read one element at a time through
 * two strides (so a transposed a costs nothing) and b by rows. A tile of c stays in registers while
 * `depth` runs; columns are cut into panels of PANEL_VECS vectors and the depth into blocks, and a
 * panel's block of b lies together while all rows pass by. The sum over depth of one element runs
 * in the same order whatever the tile, so a row gives the same bits in any batch of more than one
 * row. A single row takes a path of its own: four sums per element, because nothing else hides the
 * latency of the adds. */

enum {
    PANEL = PANEL_VECS * LANES,
    DEPTH_BLOCK = 256,
    DEPTH_BLOCK_ACROSS = 128, /* where each step of the depth takes another line of a */
    NARROW_MAX = LANES / 2,   /* outputs that rows sum across their lanes instead */
};

enum gemm_start { START_ZERO, START_BIAS, START_ADD };
enum gemm_end { END_STORE, END_RELU, END_GATE_RELU, END_GATE_TANH };

/* Element (m, k) of a is a[m * a_row + k * a_k]; one of b_k and b_n is 1. */
struct gemm {
    const float *a, *b;
    float *c;
    size_t a_row, a_k, b_k, b_n, c_row;
    size_t rows, columns, depth;
    enum gemm_start start;
    enum gemm_end end;
    const float *bias, *gate; /* START_BIAS; END_GATE_* */
    size_t gate_row;
    float *pack;           /* [DEPTH_BLOCK][PANEL] */
    const float *packed;   /* NULL, or all of b by gemm_pack() */
    size_t strip, a_strip; /* gemm_strips(): a's depth is in strips, from one to the next */
};

/* One tile: its corners, its part of the depth and the lanes of its last vector. */
struct tile {
    const float *a, *b, *bias, *gate;
    float *c;
    size_t b_k, depth, strips; /* strips of `depth` each */
    enum gemm_start start;
    enum gemm_end end;
    part last;
};

static INLINE vec load_at(const float *p, bool last, part lanes)
{
    return last ? load_part(p, lanes) : load(p);
}

static INLINE void store_at(float *p, vec v, bool last, part lanes)
{
    if (last)
        store_part(p, v, lanes);
    else
        store(p, v);
}

static INLINE void tile_sum(vec sum[TILE_ROWS_MAX][PANEL_VECS], const float *a, size_t a_row,
                            size_t a_k, const float *b, size_t b_k, size_t depth,
                            const unsigned rows, const unsigned vecs)
{
    for (size_t k = 0; k < depth; k++, a += a_k, b += b_k) {
        vec bs[PANEL_VECS];
        UNROLL for (unsigned v = 0; v < vecs; v++) bs[v] = load(b + v * LANES);
        UNROLL for (unsigned r = 0; r < rows; r++)
        {
            vec as = splat(a[r * a_row]);
            UNROLL for (unsigned v = 0; v < vecs; v++) sum[r][v] = fma_vec(as, bs[v], sum[r][v]);
        }
    }
}

static INLINE void tile_start(const struct gemm *g, const struct tile *t,
                              vec sum[TILE_ROWS_MAX][PANEL_VECS], const unsigned rows,
                              const unsigned vecs)
{
    if (t->start == START_ZERO) {
        UNROLL for (unsigned r = 0; r < rows; r++)
        {
            UNROLL for (unsigned v = 0; v < vecs; v++) sum[r][v] = splat(0);
        }
    } else if (t->start == START_BIAS) {
        UNROLL for (unsigned v = 0; v < vecs; v++)
        {
            vec bias = load_at(t->bias + v * LANES, v == vecs - 1, t->last);
            UNROLL for (unsigned r = 0; r < rows; r++) sum[r][v] = bias;
        }
    } else {
        const size_t c_row = g->c_row;
        UNROLL for (unsigned r = 0; r < rows; r++)
        {
            UNROLL for (unsigned v = 0; v < vecs; v++) sum[r][v] =
                load_at(t->c + r * c_row + v * LANES, v == vecs - 1, t->last);
        }
    }
}

static INLINE void tile_store(const struct gemm *g, const struct tile *t,
                              vec sum[TILE_ROWS_MAX][PANEL_VECS], const enum gemm_end end,
                              const unsigned rows, const unsigned vecs)
{
    float *c = t->c;
    const float *gate = t->gate;
    const size_t c_row = g->c_row, gate_row = g->gate_row;
    const part last = t->last;
    UNROLL for (unsigned r = 0; r < rows; r++)
    {
        UNROLL for (unsigned v = 0; v < vecs; v++)
        {
            vec out = sum[r][v];
            if (end == END_RELU) {
                out = max_vec(splat(0), out);
            } else if (end != END_STORE) {
                vec x = load_at(gate + r * gate_row + v * LANES, v == vecs - 1, last);
                if (end == END_GATE_RELU)
                    out = keep_where_positive(out, x);
                else
                    out = out * (splat(1) - x * x);
            }
            store_at(c + r * c_row + v * LANES, out, v == vecs - 1, last);
        }
    }
}

/* `rows` and `vecs` are constants; the branches are outside of the unrolled loops. */
static INLINE void tile_run(const struct gemm *g, const struct tile *t, const unsigned rows,
                            const unsigned vecs)
{
    vec sum[TILE_ROWS_MAX][PANEL_VECS];
    tile_start(g, t, sum, rows, vecs);
    const float *a = t->a, *b = t->b;
    const size_t a_row = g->a_row, a_k = g->a_k, b_k = t->b_k, depth = t->depth;
    size_t more = t->strips;
    do {
        tile_sum(sum, a, a_row, a_k, b, b_k, depth, rows, vecs);
        a += g->a_strip;
        b += depth * b_k;
    } while (--more > 0);
    switch (t->end) {
    case END_STORE:
        tile_store(g, t, sum, END_STORE, rows, vecs);
        break;
    case END_RELU:
        tile_store(g, t, sum, END_RELU, rows, vecs);
        break;
    case END_GATE_RELU:
        tile_store(g, t, sum, END_GATE_RELU, rows, vecs);
        break;
    case END_GATE_TANH:
        tile_store(g, t, sum, END_GATE_TANH, rows, vecs);
        break;
    }
}

typedef void tile_function(const struct gemm *, const struct tile *);

#define TILE(rows, vecs)                                                                           \
    static void tile_##rows##x##vecs(const struct gemm *g, const struct tile *t)                   \
    {                                                                                              \
        tile_run(g, t, rows, vecs);                                                                \
    }
TILES(TILE)
#undef TILE

/* [vecs - 1][rows - 1]; tiles of `vecs` are at most tile_rows[vecs - 1] high. */
#define TILE(rows, vecs) [vecs - 1][rows - 1] = tile_##rows##x##vecs,
static tile_function *const tiles[PANEL_VECS][TILE_ROWS_MAX] = {TILES(TILE)};
#undef TILE

/* The most rows of a tile: as many sums as there are registers for. */
static const uint8_t tile_rows[PANEL_VECS] = TILE_ROWS;

/* One row of c, of which a's elements lie side by side. */
struct row_product {
    const float *a, *b, *bias; /* bias: START_BIAS */
    float *c;
    size_t b_k, columns, depth;
    enum gemm_start start;
    enum gemm_end end; /* END_STORE or END_RELU */
};

/* Each element is four sums over every fourth k, so that adds overlap. `cut`: the last vector has
 * only `lanes`. */
static INLINE void row_run(const struct row_product *g, size_t column, part lanes,
                           const unsigned vecs, const bool cut)
{
    vec sum[4][PANEL_VECS];
    UNROLL for (unsigned chain = 0; chain < 4; chain++)
    {
        UNROLL for (unsigned v = 0; v < vecs; v++) sum[chain][v] = splat(0);
    }
    const float *a = g->a, *b[4];
    const size_t b_k = g->b_k, depth = g->depth;
    UNROLL for (unsigned chain = 0; chain < 4; chain++) b[chain] = g->b + column + chain * b_k;
    size_t k = 0;
    for (; k + 4 <= depth; k += 4, a += 4) {
        UNROLL for (unsigned chain = 0; chain < 4; chain++)
        {
            vec as = splat(a[chain]);
            UNROLL for (unsigned v = 0; v < vecs; v++) sum[chain][v] = fma_vec(
                as, load_at(b[chain] + v * LANES, cut && v == vecs - 1, lanes), sum[chain][v]);
            b[chain] += 4 * b_k;
        }
    }
    for (; k < depth; k++, a++, b[0] += b_k) {
        vec as = splat(*a);
        UNROLL for (unsigned v = 0; v < vecs; v++) sum[0][v] =
            fma_vec(as, load_at(b[0] + v * LANES, cut && v == vecs - 1, lanes), sum[0][v]);
    }
    UNROLL for (unsigned v = 0; v < vecs; v++)
    {
        bool last = cut && v == vecs - 1;
        vec total = (sum[0][v] + sum[1][v]) + (sum[2][v] + sum[3][v]);
        float *c = g->c + column + v * LANES;
        if (g->start == START_BIAS)
            total = total + load_at(g->bias + column + v * LANES, last, lanes);
        if (g->start == START_ADD)
            total = load_at(c, last, lanes) + total;
        if (g->end == END_RELU)
            total = max_vec(splat(0), total);
        store_at(c, total, last, lanes);
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

static void row_product(const struct row_product *g)
{
    size_t column = 0;
    for (; column + PANEL <= g->columns; column += PANEL)
        row_run(g, column, part_of(LANES), PANEL_VECS, false);
    for (; column + LANES <= g->columns; column += LANES)
        row_run(g, column, part_of(LANES), 1, false);
    if (column < g->columns)
        row_run(g, column, part_of((unsigned)(g->columns - column)), 1, true);
}

/* Copies b[k..k + depth)[n..n + columns) to the pack, rows of whole vectors filled up with zeros.
 */
static void pack_rows(const struct gemm *g, const float *b, size_t depth, size_t columns)
{
    float *to = g->pack;
    size_t whole = columns / LANES * LANES;
    part rest = part_of((unsigned)(columns - whole));
    for (size_t k = 0; k < depth; k++, b += g->b_k, to += PANEL) {
        for (size_t n = 0; n < whole; n += LANES)
            store(to + n, load(b + n));
        if (whole < columns)
            store(to + whole, load_part(b + whole, rest));
    }
}

static void pack_columns(const struct gemm *g, const float *b, size_t depth, size_t columns)
{
    float *to = g->pack;
    size_t n = 0;
    for (; n + LANES <= columns; n += LANES) {
        size_t k = 0;
        for (; k + 4 <= depth; k += 4)
            transpose_4(b + n * g->b_n + k, g->b_n, to + k * PANEL + n, PANEL);
        for (; k < depth; k++)
            for (size_t lane = n; lane < n + LANES; lane++)
                to[k * PANEL + lane] = b[lane * g->b_n + k];
    }
    if (n == columns)
        return;
    for (size_t k = 0; k < depth; k++)
        for (size_t lane = n; lane < n + LANES; lane++)
            to[k * PANEL + lane] = lane < columns ? b[lane * g->b_n + k] : 0;
}

/* Places the tile's b: packed when it is transposed, ends in a part of a vector, or when its rows
 * are so far apart that they fall on each other in the cache. */
static void tile_place_b(const struct gemm *g, struct tile *t, size_t k, size_t column,
                         size_t columns)
{
    if (g->packed) {
        t->b = g->packed + column * g->depth + k * PANEL;
        t->b_k = PANEL;
        return;
    }
    const float *b = g->b + k * g->b_k + column * g->b_n;
    if (g->b_n == 1 && columns % LANES == 0 && g->b_k <= 2 * PANEL) {
        t->b = b;
        t->b_k = g->b_k;
        return;
    }
    t->b = g->pack;
    t->b_k = PANEL;
    if (g->b_n == 1)
        pack_rows(g, b, t->depth, columns);
    else
        pack_columns(g, b, t->depth, columns);
}

/* Elements that all of b takes in panels. */
static size_t packed_size(size_t columns, size_t depth)
{
    return (columns + PANEL - 1) / PANEL * PANEL * depth;
}

/* Packs all of b to `to`, for products that have it many times. */
static void gemm_pack(struct gemm *g, float *to)
{
    struct gemm panel = *g;
    for (size_t column = 0; column < g->columns; column += PANEL) {
        size_t columns = g->columns - column < PANEL ? g->columns - column : PANEL;
        panel.pack = to + column * g->depth;
        if (g->b_n == 1)
            pack_rows(&panel, g->b + column, g->depth, columns);
        else
            pack_columns(&panel, g->b + column * g->b_n, g->depth, columns);
    }
    g->packed = to;
}

/* All rows of one panel, tile by tile; the tiles are about equally high. */
static void gemm_rows(const struct gemm *g, struct tile *t, size_t column, size_t k, size_t vecs)
{
    size_t highest = tile_rows[vecs - 1], count = (g->rows + highest - 1) / highest;
    size_t low = count > 0 ? g->rows / count : 0, higher = g->rows - low * count;
    for (size_t i = 0, row = 0; i < count; i++) {
        size_t rows = low + (i < higher);
        t->a = g->a + row * g->a_row + k * g->a_k;
        t->c = g->c + row * g->c_row + column;
        t->gate = g->gate ? g->gate + row * g->gate_row + column : NULL;
        tiles[vecs - 1][rows - 1](g, t);
        row += rows;
    }
}

/* One panel of c over one block of the depth. */
static void gemm_block(const struct gemm *g, size_t column, size_t k, size_t depth)
{
    struct tile t = {
        .depth = depth,
        .strips = 1,
        .bias = g->bias ? g->bias + column : NULL,
        .start = k == 0 ? g->start : START_ADD,
        .end = k + depth == g->depth ? g->end : END_STORE,
    };
    size_t columns = g->columns - column < PANEL ? g->columns - column : PANEL;
    size_t vecs = panel_vecs(columns, &t.last);
    tile_place_b(g, &t, k, column, columns);
    gemm_rows(g, &t, column, k, vecs);
}

/* Whether tiles can have b where it is: whole vectors, its rows close together. */
static bool gemm_takes_b(const struct gemm *g)
{
    return g->b_n == 1 && g->columns % LANES == 0 && g->b_k <= PANEL;
}

/* c (+)= a b where a's depth comes in strips; b is packed, or gemm_takes_b(). */
static void gemm_strips(const struct gemm *g)
{
    for (size_t column = 0; column < g->columns; column += PANEL) {
        struct tile t = {
            .b = g->packed ? g->packed + column * g->depth : g->b + column,
            .b_k = g->packed ? PANEL : g->b_k,
            .depth = g->strip,
            .strips = g->depth / g->strip,
            .bias = g->bias ? g->bias + column : NULL,
            .start = g->start,
            .end = g->end,
        };
        size_t vecs = panel_vecs(g->columns - column, &t.last);
        gemm_rows(g, &t, column, 0, vecs);
    }
}

static void gemm_run(const struct gemm *g)
{
    size_t block = g->a_k == 1 ? DEPTH_BLOCK : DEPTH_BLOCK_ACROSS;
    for (size_t k = 0; k < g->depth; k += block) {
        size_t depth = g->depth - k < block ? g->depth - k : block;
        for (size_t column = 0; column < g->columns; column += PANEL)
            gemm_block(g, column, k, depth);
    }
}

#include "simd_activation.h"

/* The pack, and behind it what the narrow paths need: up to NARROW_MAX rows of `inputs`. */
static size_t simd_scratch(uint32_t inputs, uint32_t outputs)
{
    return PANEL * DEPTH_BLOCK + (outputs <= NARROW_MAX ? (size_t)inputs * outputs : 0);
}

static float *narrow_scratch(void *scratch)
{
    return (float *)scratch + PANEL * DEPTH_BLOCK;
}

/* Few outputs leave most lanes idle, so rows are multiplied with the transposed weights instead,
 * and as many sums as there are lanes are added up across them together. `rows` and `outputs` are
 * constants; their product is at most LANES. */
static INLINE void narrow_rows(const struct forward_job *job, const float *x, float *y,
                               const unsigned rows, const unsigned outputs)
{
    const float *wt = narrow_scratch(job->scratch), *bias = job->bias;
    const size_t inputs = job->inputs, x_stride = job->x_stride, y_stride = job->y_stride;
    const bool relu = job->activation == ACTIVATION_RELU;
    vec sum[LANES];
    UNROLL for (unsigned i = 0; i < LANES; i++) sum[i] = splat(0);
    for (size_t i = 0; i < inputs; i += LANES) {
        bool whole = i + LANES <= inputs;
        part lanes = part_of(whole ? LANES : (unsigned)(inputs - i));
        vec ws[NARROW_MAX];
        UNROLL for (unsigned o = 0; o < outputs; o++) ws[o] = load_part(wt + o * inputs + i, lanes);
        UNROLL for (unsigned r = 0; r < rows; r++)
        {
            vec xs = load_part(x + r * x_stride + i, lanes);
            UNROLL for (unsigned o = 0; o < outputs; o++) sum[r * outputs + o] =
                fma_vec(xs, ws[o], sum[r * outputs + o]);
        }
    }
    float totals[LANES];
    store(totals, sum_each(sum));
    UNROLL for (unsigned r = 0; r < rows; r++)
    {
        UNROLL for (unsigned o = 0; o < outputs; o++)
        {
            float total = totals[r * outputs + o] + bias[o];
            y[r * y_stride + o] = relu && total < 0 ? 0 : total;
        }
    }
}

static void narrow_forward(const struct forward_job *job)
{
    const float *x = job->x, *w = job->w;
    float *y = job->y, *wt = narrow_scratch(job->scratch);
    for (size_t i = 0; i < job->inputs; i++)
        for (size_t o = 0; o < job->outputs; o++)
            wt[o * job->inputs + i] = w[i * job->outputs + o];
    size_t row = 0;
#define NARROW_CASE(outputs)                                                                       \
    case outputs: {                                                                                \
        enum { GROUP = outputs < LANES ? LANES / outputs : 1 };                                    \
        for (; row + GROUP <= job->rows;                                                           \
             row += GROUP, x += GROUP * job->x_stride, y += GROUP * job->y_stride)                 \
            narrow_rows(job, x, y, GROUP, outputs);                                                \
        for (; row < job->rows; row++, x += job->x_stride, y += job->y_stride)                     \
            narrow_rows(job, x, y, 1, outputs);                                                    \
        break;                                                                                     \
    }
    switch (job->outputs) {
        NARROW_CASES
    }
#undef NARROW_CASE
}

static void forward_rows(const struct forward_job *job)
{
    gemm_run(&(struct gemm){
        .a = job->x,
        .a_row = job->x_stride,
        .a_k = 1,
        .b = job->w,
        .b_k = job->outputs,
        .b_n = 1,
        .pack = job->scratch,
        .c = job->y,
        .c_row = job->y_stride,
        .rows = job->rows,
        .columns = job->outputs,
        .depth = job->inputs,
        .start = START_BIAS,
        .end = job->activation == ACTIVATION_RELU ? END_RELU : END_STORE,
        .bias = job->bias,
    });
}

static void forward_row(const struct forward_job *job)
{
    row_product(&(struct row_product){
        .a = job->x,
        .b = job->w,
        .bias = job->bias,
        .c = job->y,
        .b_k = job->outputs,
        .columns = job->outputs,
        .depth = job->inputs,
        .start = START_BIAS,
        .end = job->activation == ACTIVATION_RELU ? END_RELU : END_STORE,
    });
}

static void simd_forward(const struct forward_job *job)
{
    if (job->rows == 1)
        forward_row(job);
    else if (job->outputs <= NARROW_MAX && job->inputs >= LANES)
        narrow_forward(job);
    else
        forward_rows(job);
    if (job->activation > ACTIVATION_RELU)
        simd_activate(job->activation, job->y, job->y_stride, job->rows, job->outputs);
}

/* The sum of dy's rows. */
static void backward_bias(const struct backward_job *job)
{
    const float *dy = job->dy;
    const size_t stride = job->dy_stride, rows = job->rows;
    float *dbias = job->dbias;
    for (size_t o = 0; o < job->outputs; o += LANES) {
        size_t left = job->outputs - o;
        part lanes = part_of((unsigned)(left < LANES ? left : LANES));
        vec sum[4] = {splat(0), splat(0), splat(0), splat(0)};
        size_t row = 0;
        const float *p = dy + o;
        for (; row + 4 <= rows; row += 4, p += 4 * stride) {
            UNROLL for (unsigned chain = 0; chain < 4; chain++) sum[chain] =
                sum[chain] + load_part(p + chain * stride, lanes);
        }
        for (; row < rows; row++, p += stride)
            sum[0] = sum[0] + load_part(p, lanes);
        vec total = (sum[0] + sum[1]) + (sum[2] + sum[3]);
        if (!job->overwrite)
            total = load_part(dbias + o, lanes) + total;
        store_part(dbias + o, total, lanes);
    }
}

/* dw' = dy' x when that fills the lanes better than dw = x' dy; through the scratch. */
static void narrow_backward_weights(const struct backward_job *job)
{
    float *dwt = narrow_scratch(job->scratch), *dw = job->dw;
    struct gemm g = {
        .a = job->dy,
        .a_row = 1,
        .a_k = job->dy_stride,
        .b = job->x,
        .b_k = job->x_stride,
        .b_n = 1,
        .pack = job->scratch,
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
        .b_n = 1,
        .pack = job->scratch,
        .c = job->dw,
        .c_row = job->outputs,
        .rows = job->inputs,
        .columns = job->outputs,
        .depth = job->rows,
        .start = job->overwrite ? START_ZERO : START_ADD,
    };
    if (job->outputs <= NARROW_MAX && job->inputs > job->outputs)
        narrow_backward_weights(job);
    else
        gemm_run(&g);
}

static void backward_input(const struct backward_job *job)
{
    struct gemm g = {
        .a = job->dy,
        .a_row = job->dy_stride,
        .a_k = 1,
        .b = job->w,
        .b_k = 1,
        .b_n = job->outputs,
        .pack = job->scratch,
        .c = job->dx,
        .c_row = job->dx_stride,
        .rows = job->rows,
        .columns = job->inputs,
        .depth = job->outputs,
        .start = job->accumulate_dx ? START_ADD : START_ZERO,
        .end = job->gate == ACTIVATION_RELU   ? END_GATE_RELU
               : job->gate == ACTIVATION_TANH ? END_GATE_TANH
                                              : END_STORE,
        .gate = job->x,
        .gate_row = job->x_stride,
    };
    gemm_run(&g);
    if (job->gate > ACTIVATION_TANH)
        gate_rows(job->gate, job->x, job->x_stride, job->dx, job->dx_stride, job->rows,
                  job->inputs);
}

static void simd_backward(const struct backward_job *job)
{
    if (job->dw) {
        backward_bias(job);
        backward_weights(job);
    }
    if (job->dx)
        backward_input(job);
}

/* Squares of floats are exact in double; as many sums as keep the adders busy. */
static double simd_norm2(const float *values, size_t count)
{
    wide_vec sums[4] = {{0}};
    double total = 0;
    size_t i = 0;
    for (; i + 4 * WIDE_LANES <= count; i += 4 * WIDE_LANES) {
        UNROLL for (unsigned j = 0; j < 4; j++)
        {
            wide_vec wide = widen(values + i + j * WIDE_LANES);
            sums[j] = sums[j] + wide * wide;
        }
    }
    for (; i < count; i++)
        total += (double)values[i] * (double)values[i];
    for (unsigned j = 0; j < 4; j++)
        for (unsigned lane = 0; lane < WIDE_LANES; lane++)
            total += sums[j][lane];
    return total;
}

#include "simd_cell.h"
#include "simd_conv.h"
#include "simd_layers.h"
#include "simd_rounded.h"
#include "simd_steps.h"

static const struct linear_kernels simd_linear = {
    .name = BACKEND_NAME,
    .scratch = simd_scratch,
    .forward = simd_forward,
    .backward = simd_backward,
};

const struct backend BACKEND = {
    .name = BACKEND_NAME,
    .element_bytes = sizeof(float),
    .linear = &simd_linear,
    .linear_bf16 = &rounded_linear,
    .dueling = dueling_plain,
    .activation = &simd_activation,
    .cell = &simd_cell,
    .conv = &simd_conv,
    .conv_bf16 = &rounded_conv,
    .layer = &simd_layer,
    .step = &simd_step,
    .activate = simd_activate,
    .norm2 = simd_norm2,
};
