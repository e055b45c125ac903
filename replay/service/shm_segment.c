/* Problem: a writer on the server's host has its chunks in memory; through a socket they are copied
 * three times and pass through the caches of both processes.
 * Design: a file without a name, of fixed size and sealed, so that nobody can cut it under us. The
 * writer opens it through /proc, which the system allows to whom it would let look into this
 * process anyway, and makes its chunks there; messages say where (wire/shm_reference.c). Which of
 * it is free only the writer knows: the chunks of a confirmed item are stored. Guarantee: one
 * segment a stream; a writer costs SHM_SEGMENT_BYTES at most. */
#include "shm_segment.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <troupe/log.h>
#include "core/boot.h"
#include "core/alloc.h"
#include "core/file.h"
#include "limits.h"

struct shm_segment {
    int fd;
    uint8_t *memory;
    struct shared_segment described;
};

static void segment_free(struct shm_segment *segment)
{
    if (segment->memory)
        munmap(segment->memory, SHM_SEGMENT_BYTES);
    fd_close(segment->fd);
    free(segment);
}

static bool segment_describe(struct shm_segment *segment)
{
    struct shared_segment *described = &segment->described;
    struct stat info;
    if (fstat(segment->fd, &info) != 0 ||
        getrandom(described->nonce, SHARED_NONCE_BYTES, 0) != SHARED_NONCE_BYTES)
        return false;
    described->magic = SHARED_MAGIC;
    described->version = SHARED_VERSION;
    described->bytes = SHM_SEGMENT_BYTES;
    described->device = info.st_dev;
    described->inode = info.st_ino;
    described->pid = (uint32_t)getpid();
    described->fd = (uint32_t)segment->fd;
    memcpy(segment->memory, described->nonce, SHARED_NONCE_BYTES);
    return true;
}

/* NULL: the system has none. */
static struct shm_segment *segment_create(void)
{
    struct shm_segment *segment = xcalloc(1, sizeof *segment);
    segment->fd = memfd_create("troupe segment", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (segment->fd >= 0 && ftruncate(segment->fd, SHM_SEGMENT_BYTES) == 0 &&
        fcntl(segment->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
        void *memory =
            mmap(NULL, SHM_SEGMENT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, segment->fd, 0);
        segment->memory = memory == MAP_FAILED ? NULL : memory;
    }
    if (segment->memory && segment_describe(segment))
        return segment;
    segment_free(segment);
    return NULL;
}

static bool is_neighbour(trp_bytes bytes)
{
    struct shared_hello hello;
    char boot_id[BOOT_ID_BYTES];
    boot_id_read(boot_id);
    return shared_hello_decode(bytes, &hello) == TRP_OK &&
           memcmp(boot_id, hello.boot_id, sizeof boot_id) == 0;
}

struct shm_segment *shm_segment_offer(struct service *service, trp_server_call *call,
                                      trp_bytes hello)
{
    trp_message *message;
    if (service->no_share || service->segment_count == SHM_SEGMENTS_MAX || !is_neighbour(hello))
        return NULL;
    struct shm_segment *segment = segment_create();
    if (!segment) {
        trp_log(TRP_DEBUG, "no shared memory for a writer peer=%s", trp_server_call_peer(call));
        return NULL;
    }
    trp_bytes described = {(const uint8_t *)&segment->described, sizeof segment->described};
    if (wire_insert_segment_encode(described, &message) != TRP_OK) {
        segment_free(segment);
        return NULL;
    }
    trp_server_call_send(call, message);
    service->segment_count++;
    return segment;
}

trp_bytes shm_segment_memory(const struct shm_segment *segment)
{
    return segment ? (trp_bytes){segment->memory, SHM_SEGMENT_BYTES} : (trp_bytes){0};
}

void shm_segment_destroy(struct service *service, struct shm_segment *segment)
{
    if (!segment)
        return;
    engine_unpin_messages(service->engine);
    segment_free(segment);
    service->segment_count--;
}
