/* Products of bfloat16 by vdpbf16ps, which takes subnormal factors and sums for zeros. */
#include "backend.h"
#include "simd_vec_avx512.h"
#include "turned.h"

#include <string.h>

enum { DEPTH_STEP = 1 };

/* c + a.first * b.first + a.second * b.second. */
static INLINE vec fma_vec(vec a, vec b, vec c)
{
    return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b);
}

#include "simd_gemm.h"
#include "simd_tiles.h"

#include "simd_pairs.h"

const struct linear_kernels linear_avx512_bf16 = {
    .name = "avx512_bf16",
    .scratch = bf16_scratch,
    .forward = bf16_forward,
    .backward = bf16_backward,
};

const struct conv_kernels conv_avx512_bf16 = {
    .scratch = bf16_conv_scratch,
    .forward = bf16_conv_forward,
    .backward = bf16_conv_backward,
};
