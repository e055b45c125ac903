/* A stop request: set once, seen by every thread that waits. */
#ifndef TRP_STOP_H
#define TRP_STOP_H

#include <stdbool.h>
#include <stdint.h>

#include <troupe/status.h>

TRP_BEGIN_DECLS

typedef struct trp_stop trp_stop;

/* Never fails (small allocations abort). Destroy when no thread can wait on it; NULL is fine. */
TRP_API trp_stop *trp_stop_create(void);
TRP_API void trp_stop_destroy(trp_stop *stop);

/* Sets the request and wakes every waiter. Idempotent, safe from any thread (not from a signal
 * handler). */
TRP_API void trp_stop_request(trp_stop *stop);

/* True once requested. Never blocks; safe from any thread. NULL: false. */
TRP_API bool trp_stop_requested(const trp_stop *stop);

/* Blocks until requested or `timeout_ms` passed (negative: until requested). True: requested. */
TRP_API bool trp_stop_wait(trp_stop *stop, int64_t timeout_ms);

TRP_END_DECLS
#endif
