/* Whose lines a thread logs. Threads of the library get it from the one that started them, so that
 * whatever works for a node logs as the node. */
#ifndef TRP_CORE_LOG_H
#define TRP_CORE_LOG_H

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

/* As trp_log(), in the name of `node` and into `fd` alone. */
void log_to(int fd, trp_log_level level, const char *node, const char *format, ...)
    TRP_PRINTF(4, 5);

#endif
