/* The kernels for AVX-512. Compiled with flags of its own and called only where the processor has
 * them. */
#include "backend.h"
#include "core/bfloat16.h"
#include "ref.h"
#include "simd_vec_avx512.h"

#include <math.h>
#include <string.h>

static INLINE vec fma_vec(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}

#define NARROW_CASES                                                                               \
    NARROW_CASE(1)                                                                                 \
    NARROW_CASE(2)                                                                                 \
    NARROW_CASE(3) NARROW_CASE(4) NARROW_CASE(5) NARROW_CASE(6) NARROW_CASE(7) NARROW_CASE(8)
#define BACKEND      backend_avx512
#define BACKEND_NAME "avx512"
#include "simd.h"
