/* The one node that a process started by the launcher runs. */
#ifndef TRP_LAUNCH_CHILD_H
#define TRP_LAUNCH_CHILD_H

#include <signal.h>

#include "graph.h"
#include "options.h"

/* Those that a child is started with blocked: a terminal sends them to the launcher's process
 * group, in which a child is for a moment. */
void child_held_signals(sigset_t *held);

/* First of all in a child: drops those signals, and dies with the launcher from here on. False: it
 * is dead already. */
bool child_attach(const struct launch_options *options);

/* Tells the launcher that this process cannot run its node. */
void child_refuse(const char *failure);

/* Runs the node to its end; returns the exit status. */
int child_run(trp_program *program, const struct launch_options *options);

#endif
