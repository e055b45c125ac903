/* Whose lines a thread logs. Threads of the library get it from the one that started them, so that
 * whatever works for a node logs as the node. */
#ifndef TRP_CORE_LOG_H
#define TRP_CORE_LOG_H

#include <stdbool.h>
#include <stddef.h>

#include <troupe/log.h>

#include "core/limits.h"

struct log_origin {
    char node[NODE_NAME_BYTES_MAX]; /* "": none */
    int sink;                       /* lines go here besides standard error; -1: nowhere */
};

struct log_origin log_origin_get(void);
void log_origin_set(const struct log_origin *origin);

/* The lines of this thread, and of threads it starts from now on, also go to `fd` (-1: no more). It
 * stays the caller's, and open as long as they log. */
void log_set_sink(int fd);

/* Lines that go elsewhere, too, are on standard error from this level on only: TRP_DEBUG at start,
 * then all are; LOG_SHOWS_NONE: none is. Of the process. */
#define LOG_SHOWS_NONE ((trp_log_level)(TRP_ERROR + 1))
void log_set_shown(trp_log_level level);

/* The level of a line as trp_log() writes it, without its newline; false: it is none. */
bool log_line_level(const char *line, size_t size, trp_log_level *level);

/* As trp_log(), in the name of `node` and into `fd` alone. */
void log_to(int fd, trp_log_level level, const char *node, const char *format, ...)
    TRP_PRINTF(4, 5);

#endif
