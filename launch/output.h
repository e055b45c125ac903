/* The launcher's terminal: lines go to it from a thread of its own, so that a terminal that is
 * slow, stopped or gone never holds up the launcher and, through full pipes, the nodes. */
#ifndef TRP_LAUNCH_OUTPUT_H
#define TRP_LAUNCH_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/status.h>

struct output;

/* `silent`: nothing is ever written. */
TRP_MUST_USE trp_status output_create(struct output **out, bool silent);

/* Writes what is queued, for at most `timeout_ms`, and frees. NULL is fine. */
void output_destroy(struct output *output, int64_t timeout_ms);

/* Queues "PREFIX LINE\n" (prefix "" or NULL: none) for `fd`, 1 or 2. Never waits: when the terminal
 * owes too much the line is dropped, and a line that says how many were follows. */
void output_line(struct output *output, int fd, const char *prefix, const char *line, size_t size);

/* The same for the launcher's own lines, which are worth waiting for a little, and which may quote
 * nodes and their peers: they are escaped. */
void output_print(struct output *output, int fd, const char *format, ...) TRP_PRINTF(3, 4);

/* True once the reader of `fd` went away, such as of a pipe or a terminal; not of a file on a full
 * disk, where lines are lost and counted. */
bool output_broken(const struct output *output, int fd);

#endif
