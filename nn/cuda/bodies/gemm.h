/* A product of our own (struct gemm_job), in tiles: for machines without cuBLASLt. A block makes a
 * tile of c, TILE x TILE, from tiles of a and b, one pair after the other; the sums stay in shared
 * memory between them. */
#ifndef TRP_NN_CUDA_BODIES_GEMM_H
#define TRP_NN_CUDA_BODIES_GEMM_H

#include "nn/cuda/work.h"
#include "rows.h"

enum { TILE = 32, TILE_THREADS = 256, TILE_EACH = TILE * TILE / TILE_THREADS };

#define tiled_gemm_arguments gemm_job

KERNEL_BODY uint32_t tiles_of(uint32_t count)
{
    return (count + TILE - 1) / TILE;
}

static inline struct kernel_shape tiled_gemm_shape(const struct gemm_job *a)
{
    struct kernel_shape shape = {tiles_of(a->m) * tiles_of(a->n), TILE_THREADS,
                                 2 * tiles_of(a->k) + 1, 3 * TILE * TILE * sizeof(float)};
    return shape;
}

static inline size_t tiled_gemm_reaches(const struct gemm_job *a, struct kernel_reach *r)
{
    size_t rows = a->a_turned ? a->k : a->m, columns = a->a_turned ? a->m : a->k;
    r[0] = (struct kernel_reach){
        a->a, rows_reach((uint32_t)rows, (uint32_t)columns, a->a_stride, 4), TRP_READ};
    rows = a->b_turned ? a->n : a->k, columns = a->b_turned ? a->k : a->n;
    r[1] = (struct kernel_reach){
        a->b, rows_reach((uint32_t)rows, (uint32_t)columns, a->b_stride, 4), TRP_READ};
    r[2] = (struct kernel_reach){a->bias, a->n * sizeof(float), TRP_READ};
    r[3] = (struct kernel_reach){a->c, rows_reach(a->m, a->n, a->c_stride, 4),
                                 a->accumulate ? TRP_READ | TRP_WRITE : TRP_WRITE};
    return 4;
}

/* To bfloat16 and back: to the nearest, of two the even one; a NaN stays one. */
KERNEL_BODY float rounded_half(float value)
{
    union {
        float number;
        uint32_t bits;
    } u = {value};
    if (value != value)
        return value;
    u.bits += 0x7fff + (u.bits >> 16 & 1);
    u.bits &= 0xffff0000u;
    return u.number;
}

KERNEL_BODY float gemm_factor(const struct gemm_job *a, const float *from, size_t at, bool inside)
{
    if (!inside)
        return 0;
    return a->precision == TRP_BF16 ? rounded_half(from[at]) : from[at];
}

KERNEL_BODY void gemm_load(const struct gemm_job *a, uint32_t row, uint32_t column, uint32_t k0,
                           uint32_t thread, float *as, float *bs)
{
    for (uint32_t e = thread; e < TILE * TILE; e += TILE_THREADS) {
        uint32_t i = e / TILE, j = e % TILE;
        uint32_t m = row + i, k = k0 + j;
        as[e] = gemm_factor(a, a->a, a->a_turned ? k * a->a_stride + m : m * a->a_stride + k,
                            m < a->m && k < a->k);
        uint32_t n = column + j;
        k = k0 + i;
        bs[e] = gemm_factor(a, a->b, a->b_turned ? n * a->b_stride + k : k * a->b_stride + n,
                            n < a->n && k < a->k);
    }
}

KERNEL_BODY void gemm_store(const struct gemm_job *a, uint32_t row, uint32_t column,
                            uint32_t thread, const float *cs)
{
    for (uint32_t e = thread; e < TILE * TILE; e += TILE_THREADS) {
        uint32_t m = row + e / TILE, n = column + e % TILE;
        if (m >= a->m || n >= a->n)
            continue;
        float *c = &a->c[m * a->c_stride + n], sum = cs[e];
        if (a->accumulate)
            sum += *c;
        if (a->bias)
            sum += a->bias[n];
        *c = activated_cuda(a->activation, sum);
    }
}

KERNEL_BODY void tiled_gemm_body(const struct gemm_job *a, const struct kernel_at *at, void *shared)
{
    float *as = (float *)shared, *bs = as + TILE * TILE, *cs = bs + TILE * TILE;
    uint32_t wide = tiles_of(a->n), last = 2 * tiles_of(a->k);
    uint32_t row = at->block / wide * TILE, column = at->block % wide * TILE;
    if (at->phase == 0)
        for (uint32_t e = at->thread; e < TILE * TILE; e += TILE_THREADS)
            cs[e] = 0; /* a thread's own */
    if (at->phase == last) {
        gemm_store(a, row, column, at->thread, cs);
    } else if (at->phase % 2 == 0) {
        gemm_load(a, row, column, at->phase / 2 * TILE, at->thread, as, bs);
    } else {
        for (uint32_t e = at->thread; e < TILE * TILE; e += TILE_THREADS) {
            float sum = cs[e];
            for (uint32_t k = 0; k < TILE; k++)
                sum += as[e / TILE * TILE + k] * bs[k * TILE + e % TILE];
            cs[e] = sum;
        }
    }
}

#endif
