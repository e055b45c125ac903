/* A disk that is as slow as a test says: the program's own mincore(), preadv2() and posix_fadvise()
 * stand before libc's. Included once in a program. */
#ifndef TRP_TESTS_SLOW_DISK_H
#define TRP_TESTS_SLOW_DISK_H

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/thread.h"

static struct {
    struct mutex mutex;
    struct cond opened;
    bool cold;          /* no page is in memory, whoever looks */
    bool shut;          /* what is asked for does not come */
    uint32_t unlocated; /* so many looks find that it cannot even be told where a chunk is */
} disk;

static inline void disk_init(void)
{
    mutex_init(&disk.mutex);
    cond_init(&disk.opened);
}

static inline void disk_set(bool cold, bool shut)
{
    mutex_lock(&disk.mutex);
    disk.cold = cold;
    disk.shut = shut;
    cond_broadcast(&disk.opened);
    mutex_unlock(&disk.mutex);
}

static inline void disk_forget_places(uint32_t looks)
{
    mutex_lock(&disk.mutex);
    disk.unlocated = looks;
    mutex_unlock(&disk.mutex);
}

#pragma GCC visibility push(default)

int mincore(void *start, size_t length, unsigned char *there)
{
    mutex_lock(&disk.mutex);
    bool cold = disk.cold;
    mutex_unlock(&disk.mutex);
    if (!cold)
        return (int)syscall(SYS_mincore, start, length, there);
    memset(there, 0, (length + 4095) / 4096);
    return 0;
}

ssize_t preadv2(int fd, const struct iovec *parts, int count, off_t offset, int flags)
{
    mutex_lock(&disk.mutex);
    bool unlocated = disk.unlocated > 0 && flags & RWF_NOWAIT;
    disk.unlocated -= unlocated;
    mutex_unlock(&disk.mutex);
    if (!unlocated)
        return syscall(SYS_preadv2, fd, parts, count, offset, 0L, flags);
    errno = EAGAIN;
    return -1;
}

int posix_fadvise(int fd, off_t offset, off_t length, int advice)
{
    mutex_lock(&disk.mutex);
    while (advice == POSIX_FADV_WILLNEED && disk.shut)
        cond_wait(&disk.opened, &disk.mutex, DEADLINE_NEVER);
    mutex_unlock(&disk.mutex);
    return syscall(SYS_fadvise64, fd, offset, length, advice) == 0 ? 0 : errno;
}

#pragma GCC visibility pop

#endif
