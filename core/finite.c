#include "finite.h"

#include <stdatomic.h>
#include <string.h>

static finite_kernel *find_kernel(void)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f"))
        return finite_avx512;
    if (__builtin_cpu_supports("avx2"))
        return finite_avx2;
#endif
    return finite_generic;
}

bool floats_are_finite_scaled(const float *numbers, size_t count, float scale)
{
    return find_kernel()(numbers, count, scale);
}

bool floats_copy_finite(float *to, const float *from, size_t count, float scale)
{
    enum { BLOCK = 4096 };
    finite_kernel *is_finite = find_kernel();
    bool finite = true;
    for (size_t first = 0; first < count; first += BLOCK) {
        size_t size = count - first < BLOCK ? count - first : BLOCK;
        memcpy(to + first, from + first, size * sizeof *to);
        atomic_signal_fence(memory_order_seq_cst);
        finite = is_finite(to + first, size, scale) && finite;
    }
    return finite;
}
