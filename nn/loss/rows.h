/* How the bodies of losses (rows_*.h) are written: each is the loss of one row, or the targets of
 * one sequence, as a function of its arguments alone, once for float and once for double (REAL,
 * NAME() and MATH() are defined before it is included), in the part of C that is C++, too: a GPU
 * runs the same text. */
#ifndef TRP_NN_LOSS_ROWS_H
#define TRP_NN_LOSS_ROWS_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define LOSS_BODY static inline __host__ __device__
#else
#define LOSS_BODY static inline
#endif

/* Sums that one pass keeps side by side (rows_atoms.h). */
enum { QUANTILE_LANES = 8 };

#endif
