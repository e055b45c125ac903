/* Products of bfloat16 by tdpbf16ps: a tile is 16 rows of 64 bytes, of 16 pairs of a, of 16 columns
 * of b in pairs, or of 16 sums. Two by two tiles of c are summed at once, over a block of the
 * depth; from there on vectors go on, so that what c held, a bias and a gate keep all their bits.
 *
 * The unit takes subnormal factors and sums for zeros. Each job loads the shapes of its tiles and
 * releases them at its end: a thread that is switched or interrupted between jobs has no tiles to
 * be saved. */
#include "backend.h"
#include "simd_vec_avx512.h"
#include "turned.h"

#include <string.h>

enum {
    DEPTH_STEP = LANES,
    TILE_BYTES = 64, /* of a row */
    BLOCK = 2 * LANES,
    TURNED_ROW = 128 + LANES, /* DEPTH_BLOCK_ACROSS and a line, see pairs_stride() */
};

/* Of a single row: c + a.first * b.first + a.second * b.second. */
static INLINE vec fma_vec(vec a, vec b, vec c)
{
    return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b);
}

#include "simd_gemm.h"

/* ---- tiles ------------------------------------------------------------------------------- */

/* ldtilecfg's operand: every tile is a whole one. */
struct tile_shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
_Static_assert(sizeof(struct tile_shapes) == 64, "the processor reads it");

static const struct tile_shapes whole_tiles __attribute__((aligned(64))) = {
    .palette = 1,
    .row_bytes = {TILE_BYTES, TILE_BYTES, TILE_BYTES, TILE_BYTES, TILE_BYTES, TILE_BYTES,
                  TILE_BYTES, TILE_BYTES},
    .rows = {LANES, LANES, LANES, LANES, LANES, LANES, LANES, LANES},
};

/* gcc 12 does not know that loading tiles reads memory. */
static INLINE void memory_is_read(void)
{
    __asm__ volatile("" ::: "memory");
}

/* Sums of a block of c over the depth, without what was there: `high` and `wide` are whether there
 * is a second tile below and beside the first. */
static INLINE void block_sum(const float *a, size_t a_row, const float *b, size_t b_k, size_t depth,
                             float *sums, const bool high, const bool wide)
{
    const size_t a_bytes = a_row * sizeof *a, b_bytes = b_k * sizeof *b;
    const size_t c_bytes = BLOCK * sizeof *sums;
    memory_is_read();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (size_t k = 0; k < depth; k += LANES, a += LANES, b += LANES * b_k) {
        _tile_loadd(4, a, a_bytes);
        _tile_loadd(6, b, b_bytes);
        _tile_dpbf16ps(0, 4, 6);
        if (wide) {
            _tile_loadd(7, b + LANES, b_bytes);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (high) {
            _tile_loadd(5, a + LANES * a_row, a_bytes);
            _tile_dpbf16ps(2, 5, 6);
            if (wide)
                _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, sums, c_bytes);
    if (wide)
        _tile_stored(1, sums + LANES, c_bytes);
    if (high)
        _tile_stored(2, sums + LANES * BLOCK, c_bytes);
    if (high && wide)
        _tile_stored(3, sums + LANES * BLOCK + LANES, c_bytes);
}

/* a[k][m] of `rows` rows to to[m][k]. */
static void turn_a(const float *a, size_t a_k, size_t depth, size_t rows, float *to)
{
    for (size_t m = 0; m < rows; m += 4)
        for (size_t k = 0; k < depth; k += LANES)
            transpose_4(a + k * a_k + m, a_k, to + m * TURNED_ROW + k, TURNED_ROW);
}

/* ---- what becomes of sums ---------------------------------------------------------------- */

static INLINE vec sum_ended(vec sum, vec gate, const enum gemm_end end)
{
    switch (end) {
    case END_RELU:
        return max_vec(splat(0), sum);
    case END_GATE_RELU:
        return keep_where_positive(sum, gate);
    case END_GATE_TANH:
        return sum * (splat(1) - gate * gate);
    case END_STORE:
        break;
    }
    return sum;
}

/* Columns of c from one vector on. */
static INLINE void column_end(const struct gemm *g, const struct gemm_tile *t, const float *sums,
                              size_t rows, size_t column, part lanes, const enum gemm_start start,
                              const enum gemm_end end)
{
    float *c = t->c + column;
    const float *gate = t->gate ? t->gate + column : NULL;
    vec bias = start == START_BIAS ? load_part(t->bias + column, lanes) : splat(0);
    for (size_t row = 0; row < rows; row++, c += g->c_row, sums += BLOCK) {
        vec sum = load_vec(sums), kept = splat(0);
        if (start == START_BIAS)
            sum = bias + sum;
        else if (start == START_ADD)
            sum = load_part(c, lanes) + sum;
        if (end >= END_GATE_RELU) {
            kept = load_part(gate, lanes);
            gate += g->gate_row;
        }
        store_part(c, sum_ended(sum, kept, end), lanes);
    }
}

static INLINE void column_ended(const struct gemm *g, const struct gemm_tile *t, const float *sums,
                                size_t rows, size_t column, part lanes, const enum gemm_end end)
{
    if (t->start == START_ZERO)
        column_end(g, t, sums, rows, column, lanes, START_ZERO, end);
    else if (t->start == START_BIAS)
        column_end(g, t, sums, rows, column, lanes, START_BIAS, end);
    else
        column_end(g, t, sums, rows, column, lanes, START_ADD, end);
}

static void end_columns(const struct gemm *g, const struct gemm_tile *t, const float *sums,
                        size_t rows, size_t column, part lanes)
{
    switch (t->end) {
    case END_STORE:
        column_ended(g, t, sums, rows, column, lanes, END_STORE);
        break;
    case END_RELU:
        column_ended(g, t, sums, rows, column, lanes, END_RELU);
        break;
    case END_GATE_RELU:
        column_ended(g, t, sums, rows, column, lanes, END_GATE_RELU);
        break;
    case END_GATE_TANH:
        column_ended(g, t, sums, rows, column, lanes, END_GATE_TANH);
        break;
    }
}

/* ---- panels ------------------------------------------------------------------------------ */

/* Two by two tiles, or fewer at the edges. */
static void block_run(const struct gemm *g, const struct gemm_tile *t, size_t a_row, size_t rows,
                      size_t vec_at, size_t vecs)
{
    float sums[BLOCK * BLOCK] __attribute__((aligned(64)));
    const float *b = t->b + vec_at * LANES;
    bool high = rows > LANES, wide = vec_at + 1 < vecs;
    if (high && wide)
        block_sum(t->a, a_row, b, t->b_k, t->depth, sums, true, true);
    else if (high)
        block_sum(t->a, a_row, b, t->b_k, t->depth, sums, true, false);
    else if (wide)
        block_sum(t->a, a_row, b, t->b_k, t->depth, sums, false, true);
    else
        block_sum(t->a, a_row, b, t->b_k, t->depth, sums, false, false);
    for (size_t v = vec_at; v < vecs && v < vec_at + 2; v++)
        end_columns(g, t, sums + (v - vec_at) * LANES, rows, v * LANES,
                    v + 1 == vecs ? t->last : part_of(LANES));
}

static void gemm_rows(const struct gemm *g, struct gemm_tile *t, size_t column, size_t k,
                      size_t vecs)
{
    float turned[BLOCK * TURNED_ROW] __attribute__((aligned(64)));
    _Static_assert(DEPTH_BLOCK_ACROSS + LANES == TURNED_ROW, "a block of the depth");
    for (size_t row = 0; row < g->rows; row += BLOCK) {
        size_t rows = g->rows - row < BLOCK ? g->rows - row : BLOCK, a_row = g->a_row;
        t->a = g->a + row * g->a_row + k * g->a_k;
        t->c = g->c + row * g->c_row + column;
        t->gate = g->gate ? g->gate + row * g->gate_row + column : NULL;
        if (g->a_k != 1) {
            turn_a(t->a, g->a_k, t->depth, rows, turned);
            t->a = turned;
            a_row = TURNED_ROW;
        }
        for (size_t v = 0; v < vecs; v += 2)
            block_run(g, t, a_row, rows, v, vecs);
    }
}

#include "simd_pairs.h"

/* ---- jobs -------------------------------------------------------------------------------- */

static void amx_forward(const struct forward_job *job)
{
    _tile_loadconfig(&whole_tiles);
    bf16_forward(job);
    _tile_release();
}

static void amx_backward(const struct backward_job *job)
{
    _tile_loadconfig(&whole_tiles);
    bf16_backward(job);
    _tile_release();
}

static void amx_conv_forward(const struct conv_forward_job *job)
{
    _tile_loadconfig(&whole_tiles);
    bf16_conv_forward(job);
    _tile_release();
}

static void amx_conv_backward(const struct conv_backward_job *job)
{
    _tile_loadconfig(&whole_tiles);
    bf16_conv_backward(job);
    _tile_release();
}

const struct linear_kernels linear_amx_bf16 = {
    .name = "amx_bf16",
    .scratch = bf16_scratch,
    .forward = amx_forward,
    .backward = amx_backward,
};

const struct conv_kernels conv_amx_bf16 = {
    .scratch = bf16_conv_scratch,
    .forward = amx_conv_forward,
    .backward = amx_conv_backward,
};
