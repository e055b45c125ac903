/* The path leads through the owner's process, which the system allows to whom it would let look
 * into that process anyway. In another container a process number means another process, so the
 * file has to be the one that was claimed and begin with its nonce. One that can still shrink is
 * refused: who reads beyond the end of a file dies of it. */
#include "core/sealed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/file.h"

#ifndef F_SEAL_FUTURE_WRITE
enum { F_SEAL_FUTURE_WRITE = 0x0010 };
#endif

/* A file beyond the process's limit is a signal, not a failure. */
static bool may_be_so_large(size_t bytes)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
           bytes <= limit.rlim_cur;
}

static bool seal(int fd)
{
    int always = F_SEAL_SHRINK | F_SEAL_GROW;
    return fcntl(fd, F_ADD_SEALS, always | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) == 0 ||
           fcntl(fd, F_ADD_SEALS, always | F_SEAL_SEAL) == 0;
}

static bool make_file(struct sealed *sealed, const char *name, size_t bytes)
{
    sealed->fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (sealed->fd < 0 || fchmod(sealed->fd, S_IRUSR | S_IWUSR) != 0 ||
        ftruncate(sealed->fd, (off_t)bytes) != 0)
        return false;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, sealed->fd, 0);
    sealed->memory = memory == MAP_FAILED ? NULL : memory;
    return sealed->memory && seal(sealed->fd);
}

static bool describe_place(struct sealed *sealed)
{
    struct sealed_place *place = &sealed->place;
    struct stat info;
    if (fstat(sealed->fd, &info) != 0 ||
        getrandom(place->nonce, sizeof place->nonce, 0) != sizeof place->nonce)
        return false;
    place->device = info.st_dev;
    place->inode = info.st_ino;
    place->pid = (uint32_t)getpid();
    place->fd = (uint32_t)sealed->fd;
    memcpy(sealed->memory, place->nonce, sizeof place->nonce);
    return true;
}

trp_status sealed_create(struct sealed *sealed, const char *name, size_t bytes)
{
    *sealed = (struct sealed){.fd = -1, .place.bytes = bytes};
    if (!may_be_so_large(bytes))
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "%s: a file of %zu bytes is too large here", name,
                        bytes);
    if (make_file(sealed, name, bytes) && describe_place(sealed))
        return TRP_OK;
    trp_status status =
        trp_fail(TRP_FAILED_PRECONDITION, "%s: no shared memory: %s", name, strerror(errno));
    if (!sealed->memory)
        fd_close(sealed->fd);
    sealed_cleanup(sealed);
    return status;
}

void sealed_cleanup(struct sealed *sealed)
{
    if (!sealed->memory)
        return;
    munmap(sealed->memory, sealed->place.bytes);
    close(sealed->fd);
    sealed->memory = NULL;
}

/* ---- others' --------------------------------------------------------------------------------- */

static trp_status not_usable(const char *path, const char *why)
{
    return trp_fail(TRP_FAILED_PRECONDITION, "%s: %s", path, why);
}

static bool is_the_file(const struct stat *info, const struct sealed_place *place)
{
    return S_ISREG(info->st_mode) && info->st_dev == place->device &&
           info->st_ino == place->inode && (uint64_t)info->st_size == place->bytes;
}

static trp_status map_file(const char *path, const struct sealed_place *place,
                           const uint8_t **memory)
{
    struct stat info;
    /* Another file may be anything: it is looked at before it is opened, and after, because the
     * number may be another file's by then. */
    if (stat(path, &info) != 0)
        return not_usable(path, strerror(errno));
    if (!is_the_file(&info, place))
        return not_usable(path, "is another file than was claimed");
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return not_usable(path, strerror(errno));
    void *map = MAP_FAILED;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals >= 0 && (seals & F_SEAL_SHRINK) && fstat(fd, &info) == 0 && is_the_file(&info, place))
        map = mmap(NULL, place->bytes, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (map == MAP_FAILED)
        return not_usable(path, "is another file by now, not sealed, or cannot be mapped");
    *memory = map;
    return TRP_OK;
}

trp_status sealed_map(const uint8_t **memory, const struct sealed_place *place)
{
    char *path = xasprintf("/proc/%u/fd/%u", place->pid, place->fd);
    trp_status status = place->bytes >= SEALED_NONCE_BYTES
                            ? map_file(path, place, memory)
                            : not_usable(path, "is claimed to be empty");
    if (status == TRP_OK && memcmp(*memory, place->nonce, SEALED_NONCE_BYTES) != 0) {
        munmap((void *)*memory, place->bytes);
        status = not_usable(path, "has not the nonce that was claimed");
    }
    free(path);
    return status;
}
