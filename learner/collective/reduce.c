/* Which kernels this processor has. */
#include "reduce.h"

reduce_kernel reduce_find(trp_collective_type type, trp_collective_op op)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw"))
        return reduce_avx512[type][op];
    if (__builtin_cpu_supports("avx2"))
        return reduce_avx2[type][op];
#endif
    return reduce_generic[type][op];
}
