/* The log: one line per event on standard error, `TIME LEVEL node message key=value ...`, where
 * TIME is UTC (2026-11-22T17:14:37.123Z).
 *
 * A failure is logged once, where it stops travelling. Lines are written with one write(2), so
 * lines of several threads never mix. A node's lines are kept in logs/ of its run, also where all
 * nodes are threads of one process; the terminal of a program has its warnings and errors, or, with
 * --log-level, all that is logged. */
#ifndef TRP_LOG_H
#define TRP_LOG_H

#include <troupe/status.h>

TRP_BEGIN_DECLS

typedef enum { TRP_DEBUG, TRP_INFO, TRP_WARN, TRP_ERROR } trp_log_level;

/* Writes one line when `level` is at least the threshold. Safe from any thread. A line longer than
 * 4095 bytes is cut; newlines inside the message become spaces. */
TRP_API void trp_log(trp_log_level level, const char *format, ...) TRP_PRINTF(2, 3);

/* The threshold of the process; TRP_INFO at start. Safe from any thread. */
TRP_API void trp_log_set_level(trp_log_level level);

/* "debug", "info", "warn" or "error" to a level; INVALID_ARGUMENT for any other word. */
TRP_API TRP_MUST_USE trp_status trp_log_level_parse(const char *word, trp_log_level *level);

/* The node name that this thread's lines carry (copied, at most 63 bytes; "" or NULL: none).
 * Threads
 * that the library starts have the name of the one that started them, others have none. */
TRP_API void trp_log_set_node(const char *name);

TRP_END_DECLS
#endif
