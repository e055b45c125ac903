/* The kernels for AVX-512: 16 lanes, 32 registers, masks for the last vector of a row. Compiled
 * with flags of its own and called only where the processor has them. */
#include "backend.h"
#include "ref.h"
#include "unroll.h"

#include <immintrin.h>

enum { LANES = 16, TILE_ROWS_MAX = 12 };

typedef __m512 vec;
typedef __mmask16 part;

static INLINE part part_of(unsigned lanes)
{
    return (part)(0xffffu >> (LANES - lanes));
}

static INLINE vec load(const float *p)
{
    return _mm512_loadu_ps(p);
}

static INLINE vec load_part(const float *p, part lanes)
{
    return _mm512_maskz_loadu_ps(lanes, p);
}

static INLINE void store(float *p, vec v)
{
    _mm512_storeu_ps(p, v);
}

static INLINE void store_part(float *p, vec v, part lanes)
{
    _mm512_mask_storeu_ps(p, lanes, v);
}

static INLINE vec splat(float x)
{
    return _mm512_set1_ps(x);
}

static INLINE vec fma_vec(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}

/* The second operand when either is a NaN. */
static INLINE vec max_vec(vec a, vec b)
{
    return _mm512_max_ps(a, b);
}

static INLINE vec min_vec(vec a, vec b)
{
    return _mm512_min_ps(a, b);
}

static INLINE vec sqrt_vec(vec v)
{
    return _mm512_sqrt_ps(v);
}

static INLINE float sum_vec(vec v)
{
    return _mm512_reduce_add_ps(v);
}

static INLINE vec keep_where_positive(vec v, vec gate)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(gate, _mm512_setzero_ps(), _CMP_GT_OQ), v);
}

#include "transpose_x86.h"

#define TILE_ROWS                                                                                  \
    {                                                                                              \
        12, 12, 8, 6                                                                               \
    }
#define TILES(X)                                                                                   \
    X(1, 1)                                                                                        \
    X(2, 1) X(3, 1) X(4, 1) X(5, 1) X(6, 1) X(7, 1) X(8, 1) X(9, 1) X(10, 1) X(11, 1) X(12, 1)     \
        X(1, 2) X(2, 2) X(3, 2) X(4, 2) X(5, 2) X(6, 2) X(7, 2) X(8, 2) X(9, 2) X(10, 2) X(11, 2)  \
            X(12, 2) X(1, 3) X(2, 3) X(3, 3) X(4, 3) X(5, 3) X(6, 3) X(7, 3) X(8, 3) X(1, 4)       \
                X(2, 4) X(3, 4) X(4, 4) X(5, 4) X(6, 4)
#define BACKEND      backend_avx512
#define BACKEND_NAME "avx512"
#include "simd.h"
