/* Chooses codes for the processor once. */
#include "codes.h"

const struct code *code_find(enum compression kind)
{
    const struct code *codes = codes_generic;
#if defined(__x86_64__) || defined(__amd64__)
    if (__builtin_cpu_supports("avx2"))
        codes = codes_avx2;
#endif
    return codes[kind].words ? &codes[kind] : NULL;
}
