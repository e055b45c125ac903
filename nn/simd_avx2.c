/* The kernels for AVX2 and FMA: 8 lanes, 16 registers. Compiled with flags of its own and called
 * only where the processor has them. */
#include "backend.h"
#include "core/bfloat16.h"
#include "ref.h"
#include "unroll.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

enum { LANES = 8, PANEL_VECS = 2, WIDE_LANES = 4, TILE_ROWS_MAX = 8 };

typedef __m256 vec;
typedef __m256d wide_vec;
typedef __m256i part;

static INLINE part part_of(unsigned lanes)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)lanes),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static INLINE vec load_vec(const float *p)
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

/* v * 2^n for whole n in [-126, 127]. */
static INLINE vec scale_vec(vec v, vec n)
{
    __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return v * _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
}

/* Lane by lane `yes` where a > b or a is a NaN, else `no`. */
static INLINE vec choose_above(vec a, vec b, vec yes, vec no)
{
    vec above = _mm256_cmp_ps(a, b, _CMP_GT_OQ), none = _mm256_cmp_ps(a, a, _CMP_UNORD_Q);
    return _mm256_blendv_ps(no, yes, _mm256_or_ps(above, none));
}

/* Lane i is the sum of v[i]. */
static INLINE vec sum_each(const vec v[LANES])
{
    vec low = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
    vec high = _mm256_hadd_ps(_mm256_hadd_ps(v[4], v[5]), _mm256_hadd_ps(v[6], v[7]));
    return _mm256_permute2f128_ps(low, high, 0x20) + _mm256_permute2f128_ps(low, high, 0x31);
}

static INLINE wide_vec widen(const float *p)
{
    return _mm256_cvtps_pd(_mm_loadu_ps(p));
}

static INLINE vec keep_where_positive(vec v, vec gate)
{
    return _mm256_and_ps(v, _mm256_cmp_ps(gate, _mm256_setzero_ps(), _CMP_GT_OQ));
}

/* to[4][8] = transpose of from[8][4]. Half h of r[j] is row 4 h + j, so that four by four
 * transposes inside the halves do the rest. */
static INLINE void transpose_4(const float *from, size_t from_row, float *to, size_t to_row)
{
    vec r[4];
    UNROLL for (unsigned j = 0; j < 4; j++)
    {
        const float *p = from + j * from_row;
        r[j] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)),
                                    _mm_loadu_ps(p + 4 * from_row), 1);
    }
    vec low_01 = _mm256_unpacklo_ps(r[0], r[1]), high_01 = _mm256_unpackhi_ps(r[0], r[1]);
    vec low_23 = _mm256_unpacklo_ps(r[2], r[3]), high_23 = _mm256_unpackhi_ps(r[2], r[3]);
    store(to, _mm256_shuffle_ps(low_01, low_23, 0x44));
    store(to + to_row, _mm256_shuffle_ps(low_01, low_23, 0xee));
    store(to + 2 * to_row, _mm256_shuffle_ps(high_01, high_23, 0x44));
    store(to + 3 * to_row, _mm256_shuffle_ps(high_01, high_23, 0xee));
}

#define TILE_ROWS                                                                                  \
    {                                                                                              \
        8, 6                                                                                       \
    }
#define TILES(X)     UP_TO_8(X, 1) UP_TO_6(X, 2)
#define NARROW_CASES NARROW_CASE(1) NARROW_CASE(2) NARROW_CASE(3) NARROW_CASE(4)
#define BACKEND      backend_avx2
#define BACKEND_NAME "avx2"
#include "simd.h"
