/* Whether anybody listens at an address. */
#ifndef TRP_CLI_REACH_H
#define TRP_CLI_REACH_H

#include <stdint.h>

#include <troupe/status.h>

/* Connects to HOST:PORT or unix:PATH and hangs up. UNAVAILABLE says at once why it cannot:
 * connection refused, no such host, or no answer in `timeout_ms`. */
TRP_MUST_USE trp_status reach(const char *address, int timeout_ms);

#endif
