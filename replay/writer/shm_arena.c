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

struct room {
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

static bool is_inbox(const struct stat *info, const struct shared_inbox *inbox)
{
    return S_ISREG(info->st_mode) && info->st_dev == inbox->device &&
           info->st_ino == inbox->inode && (uint64_t)info->st_size == inbox->bytes;
}

/* A look before it is opened: what is not the inbox may be anything. */
static trp_status file_check(const char *path, const struct shared_inbox *inbox)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return unusable(path, strerror(errno));
    return is_inbox(&info, inbox) ? TRP_OK : unusable(path, "is another file than the server's");
}

static trp_status file_map(const char *path, const struct shared_inbox *inbox, uint8_t **memory)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return unusable(path, strerror(errno));
    void *map = MAP_FAILED;
    int seals = fcntl(fd, F_GET_SEALS);
    struct stat info; /* the number may be another file's by now */
    if (seals >= 0 && (seals & F_SEAL_SHRINK) && fstat(fd, &info) == 0 && is_inbox(&info, inbox))
        map = mmap(NULL, inbox->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (map == MAP_FAILED)
        return unusable(path, "is another file by now, not sealed, or cannot be mapped");
    *memory = map;
    return TRP_OK;
}

trp_status room_open(struct room **out, const struct shared_inbox *inbox)
{
    char *path = xasprintf("/proc/%u/fd/%u", inbox->pid, inbox->fd);
    uint8_t *memory = NULL;
    *out = NULL;
    trp_status status = file_check(path, inbox);
    if (status == TRP_OK)
        status = file_map(path, inbox, &memory);
    if (status == TRP_OK && memcmp(memory, inbox->nonce, SHARED_NONCE_BYTES) != 0) {
        munmap(memory, inbox->bytes);
        status = unusable(path, "has not the server's nonce");
    }
    free(path);
    TRP_TRY(status);
    struct room *room = xcalloc(1, sizeof *room);
    room->refs = 1;
    room->memory = memory;
    room->bytes = inbox->bytes;
    room->units = (uint32_t)(inbox->bytes / ROOM_UNIT_BYTES);
    room->taken = xcalloc(room->units + 1, sizeof *room->taken);
    room->taken[0] = true;
    *out = room;
    return TRP_OK;
}

void room_ref(struct room *room)
{
    room->refs++;
}

void room_unref(struct room *room)
{
    if (!room || --room->refs > 0)
        return;
    munmap(room->memory, room->bytes);
    free(room->taken);
    free(room);
}

/* ---- units --------------------------------------------------------------------------------- */

static size_t units_of(size_t size)
{
    return size / ROOM_UNIT_BYTES + (size % ROOM_UNIT_BYTES > 0);
}

const uint8_t *room_memory(const struct room *room)
{
    return room->memory;
}

uint8_t *room_take(struct room *room, size_t size)
{
    size_t wanted = units_of(size), run = 0;
    for (uint32_t unit = 0; unit < room->units; unit++) {
        run = room->taken[unit] ? 0 : run + 1;
        if (run < wanted || run == 0)
            continue;
        size_t first = unit + 1 - run;
        memset(room->taken + first, true, run * sizeof *room->taken);
        room_ref(room);
        return room->memory + first * ROOM_UNIT_BYTES;
    }
    return NULL;
}

void room_give(struct room *room, uint8_t *bytes, size_t size)
{
    size_t first = (size_t)(bytes - room->memory) / ROOM_UNIT_BYTES;
    memset(room->taken + first, false, units_of(size) * sizeof *room->taken);
    room_unref(room);
}
