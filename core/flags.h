/* Every command line of the project does these alike. */
#ifndef TRP_CORE_FLAGS_H
#define TRP_CORE_FLAGS_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

/* A parser that has said what is wrong returns this instead of EINVAL, which argp_parse() returns
 * for what it did not understand itself. */
enum { FLAGS_REFUSED = ECANCELED };

/* A number as somebody writes it: digits, and a sign, a point or an exponent. */
bool flags_decimal(const char *text, double *value);

/* One that is whole, exactly, also with a point or an exponent ("1e6"). */
bool flags_whole(const char *text, bool *negative, uint64_t *magnitude);

/* A whole one from min to max, without a sign. */
bool flags_u64(const char *text, uint64_t min, uint64_t max, uint64_t *value);

/* Words for an argument ("--nmae=5", "-x") that getopt refused, where the long options are `names`,
 * which end with NULL: there is no such one, with the name most like it, or it takes a value, or
 * none. Caller frees. */
char *flags_refusal(const char *word, const char *const *names);

#endif
