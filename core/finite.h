/* Whether numbers are numbers: no NaN, no infinity. */
#ifndef TRP_CORE_FINITE_H
#define TRP_CORE_FINITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Differences of a number to itself are 0 or NaN; all are looked at, in a loop without branches:
 * blocks of thousands. */
static inline bool floats_are_finite(const float *numbers, size_t count)
{
    uint32_t not_finite = 0;
    for (size_t i = 0; i < count; i++)
        not_finite |= numbers[i] - numbers[i] != 0;
    return not_finite == 0;
}

#endif
