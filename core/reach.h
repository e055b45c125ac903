/* Whether anybody listens at an address. */
#ifndef TRP_CORE_REACH_H
#define TRP_CORE_REACH_H

/* Connects to HOST:PORT or unix:PATH and hangs up; NULL. Otherwise why it cannot, in words that the
 * caller frees: connection refused, no such host, or no answer in `timeout_ms`, which the resolver
 * and all addresses of the host have together. */
char *reach(const char *address, int timeout_ms);

#endif
