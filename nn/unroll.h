/* Full unrolling of loops with constant bounds, so that small arrays of vectors live in registers.
 */
#ifndef TRP_NN_UNROLL_H
#define TRP_NN_UNROLL_H

#define INLINE inline __attribute__((always_inline))

#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#endif
