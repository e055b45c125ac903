/* Problem: the store writes to pages of data.mdb through a map, and has only seen to it that they
 * exist. A page whose block is shared gets another one when it is written to; on a full disk there
 * is none, and the kernel's only way to say so is SIGBUS.
 * Design: before LMDB maps the file, the file system is asked where each part of it lies and which
 * parts are shared, and told to unshare those. Where it cannot be asked nothing is shared. One that
 * shares but does not unshare (btrfs) writes every page to a new place, shared or not: all that can
 * be done is to say so. */
#include "disk.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <troupe/log.h>

enum { EXTENTS = 128 }; /* asked for at once: 7 KB */

union extents {
    struct fiemap map; /* its array has no length of its own */
    uint8_t bytes[sizeof(struct fiemap) + EXTENTS * sizeof(struct fiemap_extent)];
};

/* 0 or an errno. */
static int extent_own(int fd, const struct fiemap_extent *extent)
{
    if (!(extent->fe_flags & FIEMAP_EXTENT_SHARED))
        return 0;
    int rc = fallocate(fd, FALLOC_FL_UNSHARE_RANGE | FALLOC_FL_KEEP_SIZE, (off_t)extent->fe_logical,
                       (off_t)extent->fe_length);
    return rc == 0 ? 0 : errno;
}

static int extents_own(int fd)
{
    union extents extents;
    for (uint64_t from = 0;;) {
        memset(&extents, 0, sizeof extents);
        extents.map.fm_start = from;
        extents.map.fm_length = FIEMAP_MAX_OFFSET - from;
        extents.map.fm_extent_count = EXTENTS;
        if (ioctl(fd, FS_IOC_FIEMAP, &extents) != 0 || extents.map.fm_mapped_extents == 0)
            return 0;
        for (uint32_t i = 0; i < extents.map.fm_mapped_extents; i++) {
            int error = extent_own(fd, &extents.map.fm_extents[i]);
            if (error != 0)
                return error;
        }
        const struct fiemap_extent *last =
            &extents.map.fm_extents[extents.map.fm_mapped_extents - 1];
        if (last->fe_flags & FIEMAP_EXTENT_LAST)
            return 0;
        from = last->fe_logical + last->fe_length;
    }
}

trp_status store_extents_own(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return store_errno(errno, path, "open");
    int error = extents_own(fd);
    close(fd);
    if (error == EOPNOTSUPP) {
        trp_log(TRP_WARN,
                "shares blocks with another file and cannot stop to path=%s advice=\"keep room on "
                "the disk: when it is full, writing to them ends the server\"",
                path);
        return TRP_OK;
    }
    return error == 0 ? TRP_OK : store_errno(error, path, "give it blocks of its own");
}
