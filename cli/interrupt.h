/* INT, TERM and HUP while there is something to put in order: work looks whether one came and ends
 * early, then the process dies of it. A second one is not waited for. */
#ifndef TRP_CLI_INTERRUPT_H
#define TRP_CLI_INTERRUPT_H

#include <troupe/status.h>

void interrupt_watch(void);

/* CANCELLED: one came. */
TRP_MUST_USE trp_status interrupt_check(void);

/* What follows goes on to its end: interrupt_check() is OK until the next one. */
void interrupt_put_off(void);

/* Dies of the one that came, if any. */
void interrupt_end(void);

#endif
