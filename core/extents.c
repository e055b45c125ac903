/* Problem: who writes to a file through a map has only seen to it that its blocks exist. One that
 * is shared gets another in its place when it is written to; on a full disk there is none, and the
 * kernel's only way to say so is SIGBUS.
 * Design: the file system is asked where each part of the file lies and which parts are shared, and
 * told to unshare those. Where it cannot be asked nothing is shared. */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

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

/* How many of them there are from there on, those that were asked for: none if nobody knows. */
static uint32_t extents_ask(int fd, uint64_t from, union extents *extents)
{
    memset(extents, 0, sizeof *extents);
    extents->map.fm_start = from;
    extents->map.fm_length = FIEMAP_MAX_OFFSET - from;
    extents->map.fm_extent_count = EXTENTS;
    return ioctl(fd, FS_IOC_FIEMAP, extents) == 0 ? extents->map.fm_mapped_extents : 0;
}

bool file_has_blocks(int fd, uint64_t at, uint64_t bytes)
{
    enum { NOT_OWN = FIEMAP_EXTENT_SHARED | FIEMAP_EXTENT_DELALLOC | FIEMAP_EXTENT_UNKNOWN };
    union extents extents;
    struct stat info;
    uint32_t count = extents_ask(fd, at, &extents);
    uint64_t have = at;
    for (uint32_t i = 0; i < count; i++) {
        const struct fiemap_extent *extent = &extents.map.fm_extents[i];
        if (extent->fe_logical > have || extent->fe_flags & NOT_OWN)
            break;
        have = extent->fe_logical + extent->fe_length;
    }
    return have >= at + bytes && fstat(fd, &info) == 0 && (uint64_t)info.st_size >= at + bytes;
}

int file_own_blocks(int fd)
{
    union extents extents;
    for (uint64_t from = 0;;) {
        if (extents_ask(fd, from, &extents) == 0)
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
