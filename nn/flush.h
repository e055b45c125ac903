/* Numbers below 1.2e-38 as zeros while a network is computed. Means of gradients that became zero
 * decay into that range and stay there, and a processor of Intel's takes a hundred times as long
 * for a product with one of them: half of a learner's time. */
#ifndef TRP_NN_FLUSH_H
#define TRP_NN_FLUSH_H

#include <stdint.h>

#ifdef __x86_64__
enum { MXCSR_DAZ = 1 << 6, MXCSR_FTZ = 1 << 15, MXCSR_FLUSH = MXCSR_DAZ | MXCSR_FTZ };

/* Of this thread, until flush_end() with what this returned. */
static inline uint32_t flush_begin(void)
{
    uint32_t before = __builtin_ia32_stmxcsr();
    if ((before & MXCSR_FLUSH) != MXCSR_FLUSH)
        __builtin_ia32_ldmxcsr(before | MXCSR_FLUSH);
    return before;
}

/* Callers keep what they had: environments and users' own code compute as they did. */
static inline void flush_end(uint32_t before)
{
    if ((before & MXCSR_FLUSH) != MXCSR_FLUSH)
        __builtin_ia32_ldmxcsr(before);
}
#else
/* Other processors compute them as fast as any. */
static inline uint32_t flush_begin(void)
{
    return 0;
}

static inline void flush_end(uint32_t before)
{
    (void)before;
}
#endif

#endif
