/* A file without a name, which the system lets those open through /proc whom it would let look into
 * this process anyway. Its number among the files of the process is the address, and stays it:
 * another memory is put in its place there. A table of what this process has mapped makes all its
 * threads have a file at one place, so that nothing but the language's own rules is between them.
 */
#include "shared_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/boot.h"
#include "core/file.h"
#include "core/thread.h"

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, HOST_NAME_BYTES = 64 };

struct mapping {
    struct mapping *next;
    dev_t device;
    ino_t inode;
    size_t bytes, users;
    void *memory;
};

struct shared_memory {
    int fd;
    struct mapping *mapping;
    char *address;
};

/* ---- what this process has mapped ------------------------------------------------------------ */

static struct once mappings_once = ONCE_INIT;
static struct mutex mappings_mutex;
static struct mapping *mappings;

static void mappings_init(void)
{
    mutex_init(&mappings_mutex);
}

static struct mapping *mapping_find(const struct stat *file)
{
    struct mapping *mapping = mappings;
    while (mapping && (mapping->device != file->st_dev || mapping->inode != file->st_ino))
        mapping = mapping->next;
    return mapping;
}

/* NULL: the system has no room for it. */
static struct mapping *mapping_add(int fd, const struct stat *file)
{
    size_t bytes = (size_t)file->st_size;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return NULL;
    struct mapping *mapping = xcalloc(1, sizeof *mapping);
    *mapping = (struct mapping){.next = mappings,
                                .device = file->st_dev,
                                .inode = file->st_ino,
                                .bytes = bytes,
                                .memory = memory};
    return mappings = mapping;
}

static struct mapping *mapping_take(int fd, const struct stat *file)
{
    once_run(&mappings_once, mappings_init);
    mutex_lock(&mappings_mutex);
    struct mapping *mapping = mapping_find(file);
    if (!mapping)
        mapping = mapping_add(fd, file);
    if (mapping)
        mapping->users++;
    mutex_unlock(&mappings_mutex);
    return mapping;
}

static void mapping_give(struct mapping *mapping)
{
    mutex_lock(&mappings_mutex);
    bool last = --mapping->users == 0;
    for (struct mapping **at = &mappings; last && *at; at = &(*at)->next)
        if (*at == mapping) {
            *at = mapping->next;
            munmap(mapping->memory, mapping->bytes);
            free(mapping);
            break;
        }
    mutex_unlock(&mappings_mutex);
}

/* ---- addresses ------------------------------------------------------------------------------- */

struct place {
    char boot[BOOT_ID_BYTES], host[HOST_NAME_BYTES];
    long pid;
    int fd;
};

static struct place place_here(int fd)
{
    struct place place = {.pid = (long)getpid(), .fd = fd};
    boot_id_read(place.boot);
    if (gethostname(place.host, sizeof place.host - 1) != 0 || !place.host[0])
        snprintf(place.host, sizeof place.host, "?");
    return place;
}

static trp_status place_parse(const char *address, const char *owner, struct place *place)
{
    int end = 0;
    *place = (struct place){.fd = -1};
    if (sscanf(address, "memory:%39[^:]:%ld:%d:%63[^:]%n", place->boot, &place->pid, &place->fd,
               place->host, &end) == 4 &&
        address[end] == '\0' && place->pid > 0 && place->fd >= 0)
        return TRP_OK;
    return trp_fail(TRP_INVALID_ARGUMENT, "%s says it is at '%s', which is no shared memory", owner,
                    address);
}

/* ---- its life -------------------------------------------------------------------------------- */

trp_status shared_memory_create(struct shared_memory **out, uint64_t kind, size_t bytes)
{
    struct shared_memory *shared = xcalloc(1, sizeof *shared);
    struct stat file;
    *out = NULL;
    shared->fd = memfd_create("troupe learners", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (shared->fd >= 0 && ftruncate(shared->fd, (off_t)bytes) == 0 &&
        fcntl(shared->fd, F_ADD_SEALS, SEALS) == 0 && fstat(shared->fd, &file) == 0)
        shared->mapping = mapping_take(shared->fd, &file);
    if (!shared->mapping) {
        trp_status status = trp_fail(TRP_RESOURCE_EXHAUSTED, "%zu bytes of shared memory: %s",
                                     bytes, strerror(errno));
        shared_memory_destroy(shared);
        return status;
    }
    memcpy(shared->mapping->memory, &kind, sizeof kind);
    struct place place = place_here(shared->fd);
    shared->address = xasprintf("memory:%s:%ld:%d:%s", place.boot, place.pid, place.fd, place.host);
    *out = shared;
    return TRP_OK;
}

void shared_memory_destroy(struct shared_memory *shared)
{
    if (!shared)
        return;
    if (shared->mapping)
        mapping_give(shared->mapping);
    fd_close(shared->fd);
    free(shared->address);
    free(shared);
}

void *shared_memory_at(const struct shared_memory *shared)
{
    return shared->mapping->memory;
}

const char *shared_memory_address(const struct shared_memory *shared)
{
    return shared->address;
}

/* ---- another one's memory -------------------------------------------------------------------- */

static trp_status open_place(const char *address, const char *owner, int *fd)
{
    struct place place, here = place_here(-1);
    char path[64];
    TRP_TRY(place_parse(address, owner, &place));
    if (strcmp(place.boot, here.boot) != 0)
        return trp_fail(TRP_FAILED_PRECONDITION,
                        "%s is on the host %s, and this learner on %s: they share no memory", owner,
                        place.host, here.host);
    snprintf(path, sizeof path, "/proc/%ld/fd/%d", place.pid, place.fd);
    *fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (*fd >= 0)
        return TRP_OK;
    return trp_fail(TRP_UNAVAILABLE, "the memory of %s is not there: %s: %s", owner, path,
                    strerror(errno));
}

static trp_status check_file(int fd, const struct mapping *mine, const char *owner,
                             struct stat *file)
{
    int seals = fcntl(fd, F_GET_SEALS);
    uint64_t kind = 0;
    if (fstat(fd, file) != 0 || seals < 0 || (seals & SEALS) != SEALS ||
        pread(fd, &kind, sizeof kind, 0) != sizeof kind)
        return trp_fail(TRP_UNAVAILABLE, "%s has no sealed memory where it said", owner);
    if ((uint64_t)file->st_size == mine->bytes && memcmp(&kind, mine->memory, sizeof kind) == 0)
        return TRP_OK;
    return trp_fail(TRP_FAILED_PRECONDITION,
                    "%s shares %" PRIu64 " bytes, and this learner %zu, or they mean other things: "
                    "the two do not learn the same",
                    owner, (uint64_t)file->st_size, mine->bytes);
}

static trp_status adopt_file(struct shared_memory *shared, int fd, const char *owner)
{
    struct stat file;
    TRP_TRY(check_file(fd, shared->mapping, owner, &file));
    struct mapping *mapping = mapping_take(fd, &file);
    if (!mapping || dup3(fd, shared->fd, O_CLOEXEC) < 0) {
        trp_status status =
            trp_fail(TRP_RESOURCE_EXHAUSTED, "the memory of %s: %s", owner, strerror(errno));
        if (mapping)
            mapping_give(mapping);
        return status;
    }
    mapping_give(shared->mapping);
    shared->mapping = mapping;
    return TRP_OK;
}

trp_status shared_memory_read(const struct shared_memory *shared, const char *address,
                              const char *owner, size_t at, uint64_t *word)
{
    struct stat file;
    int fd = -1;
    TRP_TRY(open_place(address, owner, &fd));
    trp_status status = check_file(fd, shared->mapping, owner, &file);
    if (status == TRP_OK && pread(fd, word, sizeof *word, (off_t)at) != sizeof *word)
        status = trp_fail(TRP_UNAVAILABLE, "the memory of %s cannot be read", owner);
    fd_close(fd);
    return status;
}

trp_status shared_memory_adopt(struct shared_memory *shared, const char *address, const char *owner)
{
    int fd = -1;
    if (strcmp(address, shared->address) == 0)
        return TRP_OK;
    TRP_TRY(open_place(address, owner, &fd));
    trp_status status = adopt_file(shared, fd, owner);
    fd_close(fd);
    return status;
}
