/* Cuts what a node prints into lines. */
#ifndef TRP_LAUNCH_LINES_H
#define TRP_LAUNCH_LINES_H

#include <stddef.h>
#include <stdint.h>

#include "core/buffer.h"

/* A zeroed struct is empty; buffer_cleanup(&lines->partial) frees it. */
struct lines {
    struct buffer partial; /* the line that has no end yet */
    int64_t since_ns;      /* when its first byte came */
};

/* `line` has no newline at its end and is not ended by NUL. */
typedef void (*lines_emit)(void *arg, const char *line, size_t size);

/* Emits every line that is whole now, and pieces of NODE_LINE_BYTES_MAX of longer ones. */
void lines_feed(struct lines *lines, const char *data, size_t size, int64_t now_ns, lines_emit emit,
                void *arg);

/* Emits the unfinished line when it has waited for `age_ns`. */
void lines_flush(struct lines *lines, int64_t now_ns, int64_t age_ns, lines_emit emit, void *arg);

#endif
