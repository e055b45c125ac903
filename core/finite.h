/* Whether numbers are numbers: no NaN, no infinity. */
#ifndef TRP_CORE_FINITE_H
#define TRP_CORE_FINITE_H

#include <stdbool.h>
#include <stddef.h>

/* Times `scale`. All are looked at: for blocks of thousands. */
bool floats_are_finite_scaled(const float *numbers, size_t count, float scale);

static inline bool floats_are_finite(const float *numbers, size_t count)
{
    return floats_are_finite_scaled(numbers, count, 1);
}

/* Copies all, and says whether the copy, times `scale`, is finite. `from`, which others may write,
 * is read once, by the compiler too. */
bool floats_copy_finite(float *to, const float *from, size_t count, float scale);

/* ---- for core/finite.c ------------------------------------------------------------------------
 */

struct finite_kernels {
    bool (*look)(const float *numbers, size_t count, float scale);
    bool (*copy)(float *to, const float *from, size_t count, float scale);
};

extern const struct finite_kernels finite_generic, finite_avx2, finite_avx512;

#endif
