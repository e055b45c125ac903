/* Whether anybody listens at an address. */
#ifndef TRP_CORE_REACH_H
#define TRP_CORE_REACH_H

#include <stdbool.h>

/* Connects to HOST:PORT or unix:PATH and hangs up; NULL. Otherwise why it cannot, in words that the
 * caller frees: connection refused, no such host, or no answer in `timeout_ms`, which all addresses
 * of the host have together. A name is looked up with `resolve`, which may take the resolver's own
 * time, some 10 s where nobody answers it; without, only addresses in numbers are tried. */
char *reach(const char *address, int timeout_ms, bool resolve);

#endif
