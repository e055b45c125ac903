#include "core/file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <troupe/log.h>
#include "core/alloc.h"

trp_status file_errno_status(int error, trp_status other)
{
    switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
        return TRP_RESOURCE_EXHAUSTED;
    case EACCES:
    case EPERM:
    case EROFS:
        return TRP_PERMISSION_DENIED;
    case ENOENT:
        return TRP_NOT_FOUND;
    case ENOTDIR:
    case ENAMETOOLONG:
    case ELOOP:
    case ENXIO:
    case EISDIR:
        return TRP_INVALID_ARGUMENT;
    default:
        return other;
    }
}

const char *file_errno_words(int error)
{
    if (error == ENXIO)
        return "it is a pipe or a device, and has to be a file: remove it";
    return error == ELOOP ? "it is a link, which may lead anywhere: remove it" : strerror(error);
}

/* ---- of our own -------------------------------------------------------------------------- */

/* A pipe would be waited at for its other end; of files O_NONBLOCK changes nothing. */
int own_file_open(const char *path, int flags, mode_t mode)
{
    struct stat info;
    int fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, mode);
    if (fd < 0 || fstat(fd, &info) != 0 || S_ISREG(info.st_mode))
        return fd;
    close(fd);
    errno = S_ISDIR(info.st_mode) ? EISDIR : ENXIO;
    return -1;
}

FILE *own_file_stream(const char *path, const char *mode)
{
    int flags = mode[0] == 'r'   ? O_RDONLY
                : mode[0] == 'a' ? O_WRONLY | O_CREAT | O_APPEND
                                 : O_WRONLY | O_CREAT | O_TRUNC;
    int fd = own_file_open(path, flags, 0666);
    if (fd >= 0 && mode[0] == 'a')
        lseek(fd, 0, SEEK_END); /* as fopen() does: ftell() is not 0 */
    FILE *file = fd < 0 ? NULL : fdopen(fd, mode);
    if (fd >= 0 && !file)
        close(fd);
    return file;
}

int own_dir_make(const char *path, mode_t mode)
{
    struct stat info;
    if (mkdir(path, mode) == 0)
        return 0;
    if (errno != EEXIST || lstat(path, &info) != 0)
        return errno;
    if (S_ISLNK(info.st_mode))
        return ELOOP;
    return S_ISDIR(info.st_mode) ? 0 : ENOTDIR;
}

/* ---- names that last --------------------------------------------------------------------- */

int dir_sync(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* EINVAL: this file system does not sync directories */
    int error = fd < 0 || (fsync(fd) != 0 && errno != EINVAL) ? errno : 0;
    fd_close(fd);
    return error;
}

int name_sync(const char *path)
{
    char *copy = xstrdup(path);
    int error = dir_sync(dirname(copy));
    free(copy);
    return error;
}

static int cut_torn_line(int fd)
{
    char tail[4096]; /* longer lines are none of ours */
    struct stat info;
    if (fstat(fd, &info) != 0)
        return errno;
    off_t from = info.st_size > (off_t)sizeof tail ? info.st_size - (off_t)sizeof tail : 0;
    ssize_t got = pread(fd, tail, sizeof tail, from);
    ssize_t keep = got;
    while (keep > 0 && tail[keep - 1] != '\n')
        keep--;
    bool torn = keep < got && (keep > 0 || from == 0);
    return got < 0 || (torn && ftruncate(fd, from + keep) != 0) ? errno : 0;
}

int file_write(int fd, const void *bytes, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t written = write(fd, (const uint8_t *)bytes + done, size - done);
        if (written >= 0)
            done += (size_t)written;
        else if (errno != EINTR)
            return errno;
    }
    return 0;
}

void file_cut_torn_line(const char *path)
{
    int fd = own_file_open(path, O_RDWR, 0);
    int error = fd < 0 ? errno : cut_torn_line(fd);
    fd_close(fd);
    if (error != 0 && error != ENOENT)
        trp_log(TRP_WARN, "a torn last line may stay path=%s reason=%s", path,
                file_errno_words(error));
}
