#include "finite.h"

static const struct finite_kernels *find_kernels(void)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f"))
        return &finite_avx512;
    if (__builtin_cpu_supports("avx2"))
        return &finite_avx2;
#endif
    return &finite_generic;
}

bool floats_are_finite_scaled(const float *numbers, size_t count, float scale)
{
    return find_kernels()->look(numbers, count, scale);
}

bool floats_copy_finite(float *to, const float *from, size_t count, float scale)
{
    return find_kernels()->copy(to, from, count, scale);
}
