/* The `eval` subcommand: episodes with saved parameters. */
#ifndef TRP_LAUNCH_EVAL_H
#define TRP_LAUNCH_EVAL_H

#include "graph.h"
#include "options.h"

/* " --config=FILE --set=...": those of `options` that an evaluation reads, which it needs to be of
 * the same policy and environment. NULL: the program has nothing to evaluate. Caller frees. */
char *eval_settings(const trp_program *program, const struct launch_options *options);

/* Plays the episodes and prints what came of them; returns the exit status. */
int eval_run(const trp_program *program, const struct launch_options *options);

#endif
