/* The code of a thread's last failure, for those who carry it over a callback that cannot. */
#ifndef TRP_CORE_STATUS_H
#define TRP_CORE_STATUS_H

#include <stdbool.h>

#include <troupe/status.h>

/* The code of this thread's last trp_fail() since status_clear_code(); TRP_OK: none. */
trp_status status_last_code(void);
void status_clear_code(void);

/* A peer was away or slow: the same may succeed later. */
static inline bool status_is_transient(trp_status status)
{
    return status == TRP_UNAVAILABLE || status == TRP_DEADLINE_EXCEEDED;
}

/* The last error's words, over a cleanup that may fail, too, or say them to somebody later; given
 * back with error_back(), or freed. */
char *error_keep(void);

/* trp_fail() with kept words, which are freed; `status`. */
trp_status error_back(trp_status status, char *kept);

#endif
