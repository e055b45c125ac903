/* The `eval` subcommand: episodes with saved parameters. */
#ifndef TRP_LAUNCH_EVAL_H
#define TRP_LAUNCH_EVAL_H

#include "graph.h"
#include "options.h"

/* Plays the episodes and prints what came of them; returns the exit status. */
int eval_run(const trp_program *program, const struct launch_options *options);

#endif
