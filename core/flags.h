/* Every command line of the project does these alike, beside argp. */
#ifndef TRP_CORE_FLAGS_H
#define TRP_CORE_FLAGS_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

/* A parser that has said what is wrong returns this instead of EINVAL, which argp_parse() returns
 * for what it did not understand itself. */
enum { FLAGS_REFUSED = ECANCELED };

/* Decimal digits and nothing else, from min to max. */
bool flags_u64(const char *text, uint64_t min, uint64_t max, uint64_t *value);

/* Makes "-h" mean "--help"; before argp_parse(). */
void flags_accept_h(int argc, char **argv);

/* After argp_parse() returned `error`: when getopt printed the line about the flag it stopped at,
 * one that says where flags are listed follows. */
void flags_hint(const char *program, int error);

#endif
