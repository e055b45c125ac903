/* Problem: reading another process's file is only safe while that process lets us, and it must not
 * have to wait until we are done.
 * Design: data.mdb is mapped read-only as a whole, as address space; a page is looked at only after
 * the file was seen to be as long. The lease is a word that the server changes before it recycles
 * anything that we were told of. Like a reader of a seqlock we copy first and look at the word
 * afterwards. Paths can lead elsewhere in another container, so the file has to be the same one
 * (device and inode) and hold the nonce of the server that answers. The server may name any file:
 * it is opened without waiting, and used only if it is a plain file of ours or root's.
 * Guarantee: when shared_view_valid() is true, every copy made before it is whole. Who truncates
 * the files while they are mapped ends this process (SIGBUS): only their owner can. */
#include "shared_view.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/file.h"
#include "replay/wire/limits.h"

struct shared_view {
    struct shared_layout layout;
    int fd;
    const uint8_t *map;
    uint64_t file_bytes; /* at least: it is looked at again when a page is beyond */
    uint64_t old_pages;  /* those that an earlier life may have written, */
    uint8_t *compared;   /* a bit each */
    const _Atomic uint64_t *leases;
};

enum { LEASE_FILE_BYTES = SHARED_LEASES_MAX * sizeof(uint64_t) };

static trp_status unreadable(const char *path, const char *why)
{
    return trp_fail(TRP_FAILED_PRECONDITION, "%s: %s", path, why);
}

static trp_status file_open(int *fd, struct stat *info, const char *path)
{
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY);
    if (*fd < 0 || fstat(*fd, info) != 0)
        return unreadable(path, strerror(errno));
    if (!S_ISREG(info->st_mode))
        return unreadable(path, "is no plain file");
    if (info->st_uid != geteuid() && info->st_uid != 0)
        return unreadable(path, "is another user's");
    return TRP_OK;
}

static trp_status lease_file_map(struct shared_view *view, const char *path)
{
    int fd;
    struct stat info;
    void *map = MAP_FAILED;
    trp_status status = file_open(&fd, &info, path);
    if (status == TRP_OK && info.st_size >= LEASE_FILE_BYTES)
        map = mmap(NULL, LEASE_FILE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    fd_close(fd);
    TRP_TRY(status);
    if (map == MAP_FAILED)
        return unreadable(path, "cannot be mapped");
    view->leases = map;
    return shared_view_valid(view) ? TRP_OK : unreadable(path, "is not the server's");
}

static trp_status data_map(struct shared_view *view, const char *path)
{
    struct stat info;
    uint8_t nonce[SHARED_NONCE_BYTES];
    TRP_TRY(file_open(&view->fd, &info, path));
    if (info.st_dev != view->layout.device || info.st_ino != view->layout.inode)
        return unreadable(path, "is another file than the server's");
    void *map =
        mmap(NULL, view->layout.map_bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, view->fd, 0);
    if (map == MAP_FAILED)
        return unreadable(path, strerror(errno));
    /* The server asked for the pages ahead. */
    madvise(map, view->layout.map_bytes, MADV_RANDOM);
    posix_fadvise(view->fd, 0, 0, POSIX_FADV_RANDOM);
    view->map = map;
    view->file_bytes = (uint64_t)info.st_size;
    view->old_pages = view->file_bytes / view->layout.page_bytes;
    view->compared = xcalloc(view->old_pages / 8 + 1, 1);
    if (pread(view->fd, nonce, sizeof nonce, (off_t)view->layout.nonce_at) != sizeof nonce ||
        memcmp(nonce, view->layout.nonce, sizeof nonce) != 0)
        return unreadable(path, "has not the server's nonce");
    return TRP_OK;
}

static char *path_of(trp_bytes bytes)
{
    return xasprintf("%.*s", (int)bytes.size, (const char *)bytes.data);
}

trp_status shared_view_open(struct shared_view **out, const struct shared_welcome *welcome)
{
    struct shared_view *view = xcalloc(1, sizeof *view);
    char *data_path = path_of(welcome->data_path), *lease_path = path_of(welcome->lease_path);
    view->layout = welcome->layout;
    view->fd = -1;
    trp_status status = data_map(view, data_path);
    if (status == TRP_OK)
        status = lease_file_map(view, lease_path);
    if (status != TRP_OK) {
        shared_view_close(view);
        view = NULL;
    }
    free(data_path);
    free(lease_path);
    *out = view;
    return status;
}

void shared_view_close(struct shared_view *view)
{
    if (!view)
        return;
    if (view->map)
        munmap((void *)view->map, view->layout.map_bytes);
    if (view->leases)
        munmap((void *)view->leases, LEASE_FILE_BYTES);
    fd_close(view->fd);
    free(view->compared);
    free(view);
}

const struct shared_layout *shared_view_layout(const struct shared_view *view)
{
    return &view->layout;
}

/* The file grows while we read it. */
static bool file_has(struct shared_view *view, uint64_t page)
{
    struct stat info;
    uint64_t pages = view->layout.map_bytes / view->layout.page_bytes;
    if (page >= pages)
        return false;
    if (page < view->file_bytes / view->layout.page_bytes)
        return true;
    if (fstat(view->fd, &info) == 0)
        view->file_bytes = (uint64_t)info.st_size;
    return page < view->file_bytes / view->layout.page_bytes;
}

const uint8_t *shared_view_piece(struct shared_view *view, uint64_t page)
{
    if (!file_has(view, page))
        return NULL;
    return view->map + page * view->layout.page_bytes + view->layout.piece_offset;
}

bool shared_view_compared(const struct shared_view *view, uint64_t page)
{
    return page < view->old_pages && view->compared[page / 8] >> page % 8 & 1;
}

void shared_view_set_compared(struct shared_view *view, uint64_t page)
{
    if (page < view->old_pages)
        view->compared[page / 8] |= (uint8_t)(1 << page % 8);
}

trp_status shared_view_read(struct shared_view *view, const uint8_t *pages, uint32_t count,
                            uint8_t *out)
{
    size_t page_bytes = view->layout.page_bytes;
    for (uint32_t i = 0, run; i < count; i += run) {
        uint64_t first = shared_page(pages, i);
        run = 1;
        while (i + run < count && shared_page(pages, i + run) == first + run)
            run++;
        if (!file_has(view, first) || !file_has(view, first + run - 1))
            return trp_fail(TRP_INVALID_ARGUMENT,
                            "SampleShared: page %" PRIu64 " is outside of the server's file",
                            first);
        size_t size = run * page_bytes;
        if (pread(view->fd, out, size, (off_t)(first * page_bytes)) != (ssize_t)size)
            return trp_fail(TRP_UNAVAILABLE, "%u pages from %" PRIu64 " on cannot be read: %s", run,
                            first, strerror(errno));
        out += size;
    }
    return TRP_OK;
}

bool shared_view_valid(const struct shared_view *view)
{
    atomic_thread_fence(memory_order_acquire); /* the copies come first */
    return atomic_load_explicit(&view->leases[view->layout.lease_index], memory_order_relaxed) ==
           view->layout.lease;
}
