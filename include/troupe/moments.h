/* Count, mean and spread of numbers that come one by one or in parts: what normalising wrappers
 * know (env.h), actors report and learners merge.
 *
 * Count, sum and sum of squares say the same, but their difference loses every digit where the mean
 * is large beside the spread: Welford's recurrence and, for parts, equations 2.1 of Chan, Golub and
 * LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances" (1979). */
#ifndef TRP_MOMENTS_H
#define TRP_MOMENTS_H

#include <stddef.h>
#include <stdint.h>

#include <troupe/status.h>

TRP_BEGIN_DECLS

/* All zero: of no numbers. */
typedef struct {
    double count, mean;
    double squares; /* the sum of (number - mean)^2 */
} trp_moments;

enum { TRP_STATISTICS_MAX = 65536 }; /* of one environment */

/* What a client of parameters did, all its lives together. */
typedef struct {
    char *name;
    uint64_t steps, episodes;
    trp_moments *statistics; /* what its environments saw (env.h); NULL: nothing to normalise */
    size_t statistic_count;
} trp_client_counts;

/* One more number, which is finite. */
TRP_API void trp_moments_add(trp_moments *moments, double number);

/* Those of both parts, element by element, `count` of them. Parts that pass trp_moments_check()
 * give what passes it: a count stays at 2^53, squares at 1e140. */
TRP_API void trp_moments_merge(trp_moments *into, const trp_moments *from, size_t count);

/* squares / count; 0 of fewer than two numbers. */
TRP_API double trp_moments_variance(const trp_moments *moments);

/* INVALID_ARGUMENT names the element that no float32 numbers can have: a count that is negative or
 * above 2^53, a mean beyond 1e60, squares below 0 or above 1e140, or NaN. */
TRP_API TRP_MUST_USE trp_status trp_moments_check(const trp_moments *moments, size_t count);

TRP_END_DECLS
#endif
