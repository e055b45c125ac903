/* Problem: a writer on the server's host has its chunks in memory; through a socket they are copied
 * three times and pass through the caches of both processes.
 * Design: a file without a name, of fixed size and sealed, so that nobody can cut it under us. The
 * writer opens it through /proc, which the system allows to whom it would let look into this
 * process anyway, and makes its chunks there; messages say where (wire/shm_reference.c). What of it
 * is free only the writer knows: what it was told is confirmed is copied. Guarantee: one inbox a
 * stream; a writer costs INBOX_BYTES at most. */
#include "inbox.h"

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
#include "limits.h"

struct inbox {
    struct inbox *next; /* among those that were left */
    int fd;
    uint8_t *memory;
    struct shared_inbox described;
};

static void inbox_destroy(struct inbox *inbox)
{
    if (inbox->memory)
        munmap(inbox->memory, INBOX_BYTES);
    if (inbox->fd >= 0)
        close(inbox->fd);
    free(inbox);
}

static bool inbox_describe(struct inbox *inbox)
{
    struct shared_inbox *described = &inbox->described;
    struct stat info;
    if (fstat(inbox->fd, &info) != 0 ||
        getrandom(described->nonce, SHARED_NONCE_BYTES, 0) != SHARED_NONCE_BYTES)
        return false;
    described->magic = SHARED_MAGIC;
    described->version = SHARED_VERSION;
    described->bytes = INBOX_BYTES;
    described->device = info.st_dev;
    described->inode = info.st_ino;
    described->pid = (uint32_t)getpid();
    described->fd = (uint32_t)inbox->fd;
    memcpy(inbox->memory, described->nonce, SHARED_NONCE_BYTES);
    return true;
}

/* NULL: the system has none. */
static struct inbox *inbox_create(void)
{
    struct inbox *inbox = xcalloc(1, sizeof *inbox);
    inbox->fd = memfd_create("troupe inbox", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (inbox->fd >= 0 && ftruncate(inbox->fd, INBOX_BYTES) == 0 &&
        fcntl(inbox->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
        void *memory = mmap(NULL, INBOX_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, inbox->fd, 0);
        inbox->memory = memory == MAP_FAILED ? NULL : memory;
    }
    if (inbox->memory && inbox_describe(inbox))
        return inbox;
    inbox_destroy(inbox);
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

struct inbox *inbox_offer(struct service *service, trp_server_call *call, trp_bytes hello)
{
    trp_message *message;
    if (service->no_share || service->inbox_count == INBOXES_MAX || !is_neighbour(hello))
        return NULL;
    struct inbox *inbox = inbox_create();
    if (!inbox) {
        trp_log(TRP_DEBUG, "no inbox for a writer peer=%s", trp_server_call_peer(call));
        return NULL;
    }
    trp_bytes described = {(const uint8_t *)&inbox->described, sizeof inbox->described};
    if (wire_insert_inbox_encode(described, &message) != TRP_OK) {
        inbox_destroy(inbox);
        return NULL;
    }
    trp_server_call_send(call, message);
    service->inbox_count++;
    return inbox;
}

trp_bytes inbox_memory(const struct inbox *inbox)
{
    return inbox ? (trp_bytes){inbox->memory, INBOX_BYTES} : (trp_bytes){0};
}

void inbox_leave(struct service *service, struct inbox *inbox)
{
    if (!inbox)
        return;
    inbox->next = service->left;
    service->left = inbox;
    service->inbox_count--;
}

void inboxes_destroy(struct service *service)
{
    for (struct inbox *inbox; (inbox = service->left);) {
        service->left = inbox->next;
        inbox_destroy(inbox);
    }
}
