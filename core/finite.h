/* Whether numbers are numbers: no NaN, no infinity. */
#ifndef TRP_CORE_FINITE_H
#define TRP_CORE_FINITE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Times `scale`. Differences of a number to itself are 0 or NaN; all are looked at, in a loop
 * without branches: blocks of thousands. */
static inline bool floats_are_finite_scaled(const float *numbers, size_t count, float scale)
{
    uint32_t not_finite = 0;
    for (size_t i = 0; i < count; i++)
        not_finite |= scale * numbers[i] - scale * numbers[i] != 0;
    return not_finite == 0;
}

static inline bool floats_are_finite(const float *numbers, size_t count)
{
    return floats_are_finite_scaled(numbers, count, 1);
}

/* Copies all, and says whether the copy, times `scale`, is finite: it is looked at in the cache.
 * `from`, which others may write, is read once, by the compiler too. */
static inline bool floats_copy_finite(float *to, const float *from, size_t count, float scale)
{
    enum { BLOCK = 4096 };
    bool finite = true;
    for (size_t first = 0; first < count; first += BLOCK) {
        size_t size = count - first < BLOCK ? count - first : BLOCK;
        memcpy(to + first, from + first, size * sizeof *to);
        atomic_signal_fence(memory_order_seq_cst);
        finite = floats_are_finite_scaled(to + first, size, scale) && finite;
    }
    return finite;
}

#endif
