/* The kernels for AVX2 and FMA: 8 lanes, 16 registers. Compiled with flags of its own and called
 * only where the processor has them. */
#include "backend.h"
#include "ref.h"
#include "unroll.h"

#include <immintrin.h>

enum { LANES = 8, TILE_ROWS_MAX = 6 };

typedef __m256 vec;
typedef __m256i part;

static INLINE part part_of(unsigned lanes)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)lanes),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static INLINE vec load(const float *p)
{
    return _mm256_loadu_ps(p);
}

static INLINE vec load_part(const float *p, part lanes)
{
    return _mm256_maskload_ps(p, lanes);
}

static INLINE void store(float *p, vec v)
{
    _mm256_storeu_ps(p, v);
}

static INLINE void store_part(float *p, vec v, part lanes)
{
    _mm256_maskstore_ps(p, lanes, v);
}

static INLINE vec splat(float x)
{
    return _mm256_set1_ps(x);
}

static INLINE vec fma_vec(vec a, vec b, vec c)
{
    return _mm256_fmadd_ps(a, b, c);
}

/* The second operand when either is a NaN. */
static INLINE vec max_vec(vec a, vec b)
{
    return _mm256_max_ps(a, b);
}

static INLINE vec min_vec(vec a, vec b)
{
    return _mm256_min_ps(a, b);
}

static INLINE vec sqrt_vec(vec v)
{
    return _mm256_sqrt_ps(v);
}

static INLINE float sum_vec(vec v)
{
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

static INLINE vec keep_where_positive(vec v, vec gate)
{
    return _mm256_and_ps(v, _mm256_cmp_ps(gate, _mm256_setzero_ps(), _CMP_GT_OQ));
}

#include "transpose_x86.h"

#define TILE_ROWS                                                                                  \
    {                                                                                              \
        6, 5, 3, 2                                                                                 \
    }
#define TILES(X)                                                                                   \
    X(1, 1)                                                                                        \
    X(2, 1) X(3, 1) X(4, 1) X(5, 1) X(6, 1) X(1, 2) X(2, 2) X(3, 2) X(4, 2) X(5, 2) X(1, 3)        \
        X(2, 3) X(3, 3) X(1, 4) X(2, 4)
#define BACKEND      backend_avx2
#define BACKEND_NAME "avx2"
#include "simd.h"
