/* Vectors of AVX-512: 16 lanes, 32 registers, masks for the last vector of a row. */

#include "unroll.h"

#include <immintrin.h>

enum { LANES = 16, PANEL_VECS = 4, WIDE_LANES = 8, TILE_ROWS_MAX = 12 };

typedef __m512 vec;
typedef __m512d wide_vec;
typedef __mmask16 part;

static INLINE part part_of(unsigned lanes)
{
    return (part)(0xffffu >> (LANES - lanes));
}

static INLINE vec load_vec(const float *p)
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

/* v * 2^n for whole n in [-126, 127]. */
static INLINE vec scale_vec(vec v, vec n)
{
    return _mm512_scalef_ps(v, n);
}

/* Lane by lane `yes` where a > b or a is a NaN, else `no`. */
static INLINE vec choose_above(vec a, vec b, vec yes, vec no)
{
    __mmask16 above = _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ);
    return _mm512_mask_mov_ps(no, above | _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), yes);
}

/* The sum of each quarter of a, b, c and d, those of one quarter side by side. */
static INLINE vec sum_quarters(vec a, vec b, vec c, vec d)
{
    __m512d ab = _mm512_castps_pd(_mm512_unpacklo_ps(a, b) + _mm512_unpackhi_ps(a, b));
    __m512d cd = _mm512_castps_pd(_mm512_unpacklo_ps(c, d) + _mm512_unpackhi_ps(c, d));
    return _mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd)) +
           _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd));
}

/* Halves of a and of b added up: two quarters from each. */
static INLINE vec sum_pairs_of_quarters(vec a, vec b)
{
    return _mm512_shuffle_f32x4(a, b, 0x88) + _mm512_shuffle_f32x4(a, b, 0xdd);
}

/* Lane i is the sum of v[i]. */
static INLINE vec sum_each(const vec v[LANES])
{
    vec q[4];
    UNROLL for (unsigned i = 0; i < 4; i++) q[i] =
        sum_quarters(v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]);
    return sum_pairs_of_quarters(sum_pairs_of_quarters(q[0], q[1]),
                                 sum_pairs_of_quarters(q[2], q[3]));
}

static INLINE wide_vec widen(const float *p)
{
    return _mm512_cvtps_pd(_mm256_loadu_ps(p));
}

static INLINE vec keep_where_positive(vec v, vec gate)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(gate, _mm512_setzero_ps(), _CMP_GT_OQ), v);
}

/* to[4][16] = transpose of from[16][4]. Quarter q of r[j] is row 4 q + j, so that four by four
 * transposes inside the quarters do the rest. */
static INLINE void transpose_4(const float *from, size_t from_row, float *to, size_t to_row)
{
    vec r[4];
    UNROLL for (unsigned j = 0; j < 4; j++)
    {
        const float *p = from + j * from_row;
        vec v = _mm512_castps128_ps512(_mm_loadu_ps(p));
        v = _mm512_mask_broadcast_f32x4(v, 0x00f0, _mm_loadu_ps(p + 4 * from_row));
        v = _mm512_mask_broadcast_f32x4(v, 0x0f00, _mm_loadu_ps(p + 8 * from_row));
        r[j] = _mm512_mask_broadcast_f32x4(v, 0xf000, _mm_loadu_ps(p + 12 * from_row));
    }
    vec low_01 = _mm512_unpacklo_ps(r[0], r[1]), high_01 = _mm512_unpackhi_ps(r[0], r[1]);
    vec low_23 = _mm512_unpacklo_ps(r[2], r[3]), high_23 = _mm512_unpackhi_ps(r[2], r[3]);
    store(to, _mm512_shuffle_ps(low_01, low_23, 0x44));
    store(to + to_row, _mm512_shuffle_ps(low_01, low_23, 0xee));
    store(to + 2 * to_row, _mm512_shuffle_ps(high_01, high_23, 0x44));
    store(to + 3 * to_row, _mm512_shuffle_ps(high_01, high_23, 0xee));
}

#define TILE_ROWS                                                                                  \
    {                                                                                              \
        12, 12, 8, 6                                                                               \
    }
#define TILES(X) UP_TO_12(X, 1) UP_TO_12(X, 2) UP_TO_8(X, 3) UP_TO_6(X, 4)
