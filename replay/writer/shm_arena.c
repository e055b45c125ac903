/* Problem: chunks of a few sizes come and go in a memory of 8 MiB whose pages cost something when
 * they are first used.
 * Design: units of a page, the lowest that fit; chunks are used again as they are, so that this is
 * asked for a few hundred times in a writer's life. The first page is the server's, for its nonce.
 * The path leads through the server's process to a file that has to be the one that was described:
 * in another container a number means another process. Sealed, it cannot be cut while we write. */
#include "shm_arena.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "limits.h"

struct shm_arena {
    uint32_t refs;
    uint32_t units;
    size_t bytes;
    uint8_t *memory;
    bool *taken; /* one a unit */
};

/* ---- opening ------------------------------------------------------------------------------- */

static trp_status unusable(const char *path, const char *why)
{
    return trp_fail(TRP_FAILED_PRECONDITION, "%s: %s", path, why);
}

static bool is_segment(const struct stat *info, const struct shared_segment *segment)
{
    return S_ISREG(info->st_mode) && info->st_dev == segment->device &&
           info->st_ino == segment->inode && (uint64_t)info->st_size == segment->bytes;
}

static trp_status arena_file_map(const char *path, const struct shared_segment *segment,
                                 uint8_t **memory)
{
    struct stat info;
    /* A file that is not the segment may be anything: it is looked at before it is opened, and
     * after, because the number may be another file's by then. */
    if (stat(path, &info) != 0)
        return unusable(path, strerror(errno));
    if (!is_segment(&info, segment))
        return unusable(path, "is another file than the server's");
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return unusable(path, strerror(errno));
    void *map = MAP_FAILED;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals >= 0 && (seals & F_SEAL_SHRINK) && fstat(fd, &info) == 0 &&
        is_segment(&info, segment))
        map = mmap(NULL, segment->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (map == MAP_FAILED)
        return unusable(path, "is another file by now, not sealed, or cannot be mapped");
    *memory = map;
    return TRP_OK;
}

trp_status shm_arena_open(struct shm_arena **out, const struct shared_segment *segment)
{
    char *path = xasprintf("/proc/%u/fd/%u", segment->pid, segment->fd);
    uint8_t *memory = NULL;
    *out = NULL;
    trp_status status = arena_file_map(path, segment, &memory);
    if (status == TRP_OK && memcmp(memory, segment->nonce, SHARED_NONCE_BYTES) != 0) {
        munmap(memory, segment->bytes);
        status = unusable(path, "has not the server's nonce");
    }
    free(path);
    TRP_TRY(status);
    struct shm_arena *arena = xcalloc(1, sizeof *arena);
    arena->refs = 1;
    arena->memory = memory;
    arena->bytes = segment->bytes;
    arena->units = (uint32_t)(segment->bytes / SHM_ARENA_UNIT_BYTES);
    arena->taken = xcalloc(arena->units + 1, sizeof *arena->taken);
    arena->taken[0] = true;
    *out = arena;
    return TRP_OK;
}

void shm_arena_ref(struct shm_arena *arena)
{
    arena->refs++;
}

void shm_arena_unref(struct shm_arena *arena)
{
    if (!arena || --arena->refs > 0)
        return;
    munmap(arena->memory, arena->bytes);
    free(arena->taken);
    free(arena);
}

/* ---- units --------------------------------------------------------------------------------- */

static size_t units_of(size_t size)
{
    return size / SHM_ARENA_UNIT_BYTES + (size % SHM_ARENA_UNIT_BYTES > 0);
}

const uint8_t *shm_arena_memory(const struct shm_arena *arena)
{
    return arena->memory;
}

uint8_t *shm_arena_take(struct shm_arena *arena, size_t size)
{
    size_t wanted = units_of(size), run = 0;
    for (uint32_t unit = 0; unit < arena->units; unit++) {
        run = arena->taken[unit] ? 0 : run + 1;
        if (run < wanted || run == 0)
            continue;
        size_t first = unit + 1 - run;
        memset(arena->taken + first, true, run * sizeof *arena->taken);
        shm_arena_ref(arena);
        return arena->memory + first * SHM_ARENA_UNIT_BYTES;
    }
    return NULL;
}

void shm_arena_give(struct shm_arena *arena, uint8_t *bytes, size_t size)
{
    size_t first = (size_t)(bytes - arena->memory) / SHM_ARENA_UNIT_BYTES;
    memset(arena->taken + first, false, units_of(size) * sizeof *arena->taken);
    shm_arena_unref(arena);
}
