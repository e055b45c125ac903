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

/* X(rows, vecs) for every number of rows up to one. */
#define UP_TO_6(X, vecs)  X(1, vecs) X(2, vecs) X(3, vecs) X(4, vecs) X(5, vecs) X(6, vecs)
#define UP_TO_8(X, vecs)  UP_TO_6(X, vecs) X(7, vecs) X(8, vecs)
#define UP_TO_12(X, vecs) UP_TO_8(X, vecs) X(9, vecs) X(10, vecs) X(11, vecs) X(12, vecs)

#endif
