/* Which code a processor and a plan get. Explicit dispatch instead of ifunc clones: the kernels
 * need fused multiply-adds by name (contraction is off everywhere), sanitizers start before ifuncs
 * can, and clang 14 must build the same thing. */
#include "backend.h"

enum {
    /* GFLOP/s of a step, ours and oneDNN's, batch 256: 512 x 512 weights 93 and 71, 1024 x 1024
     * 77 and 83 (AVX-512, one core of 150). */
    ONEDNN_WEIGHTS_MIN = 1024 * 1024,
    ONEDNN_BATCH_MIN = 16,
};

const struct backend *backend_simd(void)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f"))
        return &backend_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return &backend_avx2;
#endif
    return &backend_generic;
}

const struct backend *backend_cpu(size_t weights_max, uint32_t batch)
{
    bool big = weights_max >= ONEDNN_WEIGHTS_MIN && batch >= ONEDNN_BATCH_MIN;
    return big ? &backend_onednn : backend_simd();
}
