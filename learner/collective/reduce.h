/* Combining what another rank sent with what is here: values[i] = values[i] op others[i]. */
#ifndef TRP_LEARNER_REDUCE_H
#define TRP_LEARNER_REDUCE_H

#include <stddef.h>

#include <troupe/collective.h>

/* `others` at any alignment of its type's, or none. */
typedef void (*reduce_kernel)(void *values, const void *others, size_t count);

/* The fastest of this processor. The same bits from all of them, and either way round: a op b is
 * b op a, but for the bits of a NaN. */
reduce_kernel reduce_find(trp_collective_type type, trp_collective_op op);

enum { REDUCE_TYPES = 4, REDUCE_OPS = 2 };

/* One table for each instruction set; reduce_kernels.h is their text. */
extern const reduce_kernel reduce_generic[REDUCE_TYPES][REDUCE_OPS];
#ifdef __x86_64__
extern const reduce_kernel reduce_avx2[REDUCE_TYPES][REDUCE_OPS];
extern const reduce_kernel reduce_avx512[REDUCE_TYPES][REDUCE_OPS];
#endif

#endif
