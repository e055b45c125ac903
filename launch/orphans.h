/* Nodes whose launcher was killed: they end by themselves, but not at once, and until then they
 * hold the run's stores and sockets. */
#ifndef TRP_LAUNCH_ORPHANS_H
#define TRP_LAUNCH_ORPHANS_H

#include "graph.h"

/* In a node's process: it runs, until the process ends. Best effort: the file system may have no
 * locks. */
void orphans_mark(const char *run_dir, uint32_t number);

/* Waits until no node of the run's life before runs any more, and says whom it waits for.
 * FAILED_PRECONDITION names the one that still runs when `timeout_ms` are over. */
TRP_MUST_USE trp_status orphans_await(const char *run_dir, const trp_program *program,
                                      int64_t timeout_ms);

#endif
