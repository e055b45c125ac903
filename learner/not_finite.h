/* Where a step that came to no number has it from. */
#ifndef TRP_LEARNER_NOT_FINITE_H
#define TRP_LEARNER_NOT_FINITE_H

#include <math.h>

#include "update.h"

/* A number that is none has a sign, which says nothing. */
static inline double without_sign(double number)
{
    return isnan(number) ? fabs(number) : number;
}

/* The first number that is not finite among those that the step works on: "'reward' of item 17 of
 * 'replay' is nan", "number 4 of 'critics' is inf"; or that there is none. Of vectors those of a
 * host are looked at. NULL: it is not seen here, but may be another learner's or the device's.
 * Caller frees. */
char *not_finite_where(const struct trp_update_run *run, uint64_t step);

#endif
