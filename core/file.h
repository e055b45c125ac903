/* Failures of the file system in words, and names in it that last. */
#ifndef TRP_CORE_FILE_H
#define TRP_CORE_FILE_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

#include <troupe/status.h>

/* The status that an errno of the file system stands for; `other`: of those that are no common
 * ones. */
trp_status file_errno_status(int error, trp_status other);

/* An errno in words; ELOOP is that of a link where none may be, ENXIO that of what is no file. */
const char *file_errno_words(int error);

/* Files that a program makes under names of its own. A link that lies there leads to something
 * else, which is left alone: ELOOP; so is a pipe or a device: ENXIO. open(), with O_CLOEXEC;
 * fopen() to read ("r"), write ("w") or append ("a"). */
int own_file_open(const char *path, int flags, mode_t mode);
FILE *own_file_stream(const char *path, const char *mode);

/* mkdir(), fine if it is there: 0 or an errno. */
int own_dir_make(const char *path, mode_t mode);

/* Makes the names in a directory durable, or that of a file or directory: 0 or an errno. */
int dir_sync(const char *path);
int name_sync(const char *path);

/* Writes all of it: 0 or an errno. */
int file_write(int fd, const void *bytes, size_t size);

/* Cuts off the last line of a text that lines are appended to, if it has no end: a full disk or a
 * death left it. */
void file_cut_torn_line(const char *path);

/* Another file may have the same blocks: `cp --reflink` shares them, where a file system can. Gives
 * the file blocks of its own in place of those, which reads and writes as many bytes: 0 or an
 * errno; EOPNOTSUPP: one that shares but does not unshare. None shared: a few system calls. */
int file_own_blocks(int fd);

/* Does it have blocks of its own there already? False: no, or nobody knows. */
bool file_has_blocks(int fd, uint64_t at, uint64_t bytes);

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
