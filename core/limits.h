/* Every bound in the project that is not an option, with its arithmetic. */
#ifndef TRP_CORE_LIMITS_H
#define TRP_CORE_LIMITS_H

enum {
    /* status.c: one line that a terminal still shows whole. */
    ERROR_MESSAGE_BYTES_MAX = 1024,
    /* log.c: PIPE_BUF, so that one write(2) to a pipe is atomic. */
    LOG_LINE_BYTES_MAX = 4096,
    NODE_NAME_BYTES_MAX = 64,
};

#endif
