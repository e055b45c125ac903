/* Failures of the file system in words, and names in it that last. */
#ifndef TRP_CORE_FILE_H
#define TRP_CORE_FILE_H

#include <errno.h>
#include <stdbool.h>
#include <unistd.h>

#include <troupe/status.h>

/* The status that an errno of the file system stands for; `other`: of those that are no common
 * ones. */
trp_status file_errno_status(int error, trp_status other);

/* Makes the names in a directory durable, or that of a file or directory: 0 or an errno. */
int dir_sync(const char *path);
int name_sync(const char *path);

/* Cuts off the last line of a text that lines are appended to, if it has no end: a full disk or a
 * death left it. */
void file_cut_torn_line(const char *path);

/* Nothing failed: it is to be tried again, later or at once. */
static inline bool errno_is_again(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

static inline void fd_close(int fd) /* negative: it is not open */
{
    if (fd >= 0)
        close(fd);
}

#endif
