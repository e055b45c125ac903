/* The kernels for any processor, in the compiler's own vectors of four floats (SSE2 on x86-64). A
 * product and its sum are rounded apart. */
#include "backend.h"
#include "core/bfloat16.h"
#include "ref.h"
#include "unroll.h"

#include <math.h>
#include <string.h>

enum { LANES = 4, PANEL_VECS = 2, WIDE_LANES = 2, TILE_ROWS_MAX = 8 };

typedef float vec __attribute__((vector_size(16)));
typedef double wide_vec __attribute__((vector_size(16)));
typedef int32_t mask __attribute__((vector_size(16)));
typedef unsigned part; /* how many lanes */

static INLINE part part_of(unsigned lanes)
{
    return lanes;
}

static INLINE vec load_vec(const float *p)
{
    vec v;
    memcpy(&v, p, sizeof v);
    return v;
}

static INLINE vec load_part(const float *p, part lanes)
{
    if (lanes == LANES)
        return load_vec(p);
    vec v = {0};
    for (unsigned i = 0; i < lanes; i++)
        v[i] = p[i];
    return v;
}

static INLINE void store(float *p, vec v)
{
    memcpy(p, &v, sizeof v);
}

static INLINE void store_part(float *p, vec v, part lanes)
{
    if (lanes == LANES) {
        store(p, v);
        return;
    }
    for (unsigned i = 0; i < lanes; i++)
        p[i] = v[i];
}

static INLINE vec splat(float x)
{
    return (vec){x, x, x, x};
}

static INLINE vec fma_vec(vec a, vec b, vec c)
{
    return a * b + c;
}

static INLINE vec choose_vec(mask which, vec a, vec b)
{
    return (vec)(((mask)a & which) | ((mask)b & ~which));
}

/* The second operand when either is a NaN. */
static INLINE vec max_vec(vec a, vec b)
{
    return choose_vec(a > b, a, b);
}

static INLINE vec min_vec(vec a, vec b)
{
    return choose_vec(a < b, a, b);
}

static INLINE vec sqrt_vec(vec v)
{
    return (vec){sqrtf(v[0]), sqrtf(v[1]), sqrtf(v[2]), sqrtf(v[3])};
}

/* v * 2^n for whole n in [-126, 127]. */
static INLINE vec scale_vec(vec v, vec n)
{
    mask exponent = __builtin_convertvector(n, mask) + 127;
    return v * (vec)(exponent << 23);
}

/* Lane by lane `yes` where a > b or a is a NaN, else `no`. */
static INLINE vec choose_above(vec a, vec b, vec yes, vec no)
{
    return choose_vec((a > b) | (a != a), yes, no);
}

/* Lane i is the sum of v[i]. */
static INLINE vec sum_each(const vec v[LANES])
{
    vec sum;
    for (unsigned i = 0; i < LANES; i++)
        sum[i] = (v[i][0] + v[i][2]) + (v[i][1] + v[i][3]);
    return sum;
}

static INLINE wide_vec widen(const float *p)
{
    return (wide_vec){(double)p[0], (double)p[1]};
}

static INLINE vec keep_where_positive(vec v, vec gate)
{
    return (vec)((mask)v & (gate > splat(0)));
}

/* to[4][4] = transpose of from[4][4]. */
static INLINE void transpose_4(const float *from, size_t from_row, float *to, size_t to_row)
{
    for (size_t i = 0; i < 4; i++)
        for (size_t j = 0; j < 4; j++)
            to[j * to_row + i] = from[i * from_row + j];
}

#define TILE_ROWS                                                                                  \
    {                                                                                              \
        8, 6                                                                                       \
    }
#define TILES(X)     UP_TO_8(X, 1) UP_TO_6(X, 2)
#define NARROW_CASES NARROW_CASE(1) NARROW_CASE(2)
#define BACKEND      backend_generic
#define BACKEND_NAME "generic"
#include "simd.h"
