#include "core/file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>

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
    case EISDIR:
        return TRP_INVALID_ARGUMENT;
    default:
        return other;
    }
}

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
