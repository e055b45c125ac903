/* The one node that a process started by the launcher runs. */
#ifndef TRP_LAUNCH_CHILD_H
#define TRP_LAUNCH_CHILD_H

#include "graph.h"
#include "options.h"

/* First of all in a child: dies with the launcher from here on. False: it is dead already. */
bool child_attach(const struct launch_options *options);

/* Tells the launcher that this process cannot run its node. */
void child_refuse(const char *failure);

/* Runs the node to its end; returns the exit status. */
int child_run(trp_program *program, const struct launch_options *options);

#endif
