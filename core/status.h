/* The code of a thread's last failure, for those who carry it over a callback that cannot. */
#ifndef TRP_CORE_STATUS_H
#define TRP_CORE_STATUS_H

#include <troupe/status.h>

/* The code of this thread's last trp_fail() since status_clear_code(); TRP_OK: none. */
trp_status status_last_code(void);
void status_clear_code(void);

#endif
