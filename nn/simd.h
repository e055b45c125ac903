/* The kernels in terms of a few vector operations; each simd_*.c defines those for its instruction
 * set and includes this. LANES floats make a `vec`; a `part` names the first lanes of one. Products
 * are those of simd_gemm.h, but for a single row, which takes a path of its own: four sums per
 * element, because nothing else hides the latency of the adds. */

#include "simd_gemm.h"
#include "simd_tiles.h"

enum { NARROW_MAX = LANES / 2 }; /* outputs that rows sum across their lanes instead */

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

/* Rows of whole vectors are filled up with zeros. */
static void pack_rows(const struct gemm *g, const float *b, size_t depth, size_t columns, float *to)
{
    size_t whole = columns / LANES * LANES;
    part rest = part_of((unsigned)(columns - whole));
    for (size_t k = 0; k < depth; k++, b += g->b_k, to += PANEL) {
        for (size_t n = 0; n < whole; n += LANES)
            store(to + n, load_vec(b + n));
        if (whole < columns)
            store(to + whole, load_part(b + whole, rest));
    }
}

static void pack_columns(const struct gemm *g, const float *b, size_t depth, size_t columns,
                         float *to)
{
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

static void b_pack(const struct gemm *g, size_t k, size_t depth, size_t column, size_t columns,
                   float *to)
{
    const float *b = g->b + k * g->b_k + column * g->b_n;
    if (g->b_n == 1)
        pack_rows(g, b, depth, columns, to);
    else
        pack_columns(g, b, depth, columns, to);
}

/* Not when it is transposed, ends in a part of a vector, or when its rows are so far apart that
 * they fall on each other in the cache. */
static bool b_in_place(const struct gemm *g, size_t columns)
{
    return g->b_n == 1 && columns % LANES == 0 && g->b_k <= 2 * PANEL;
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
        .end = gemm_end_of(job->activation),
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
        .end = gemm_end_of(job->activation),
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
    struct gemm g = gemm_of_input(job);
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
