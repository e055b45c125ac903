/* Memory that processes of one host share: a file without a name, its owner's alone, and sealed, so
 * that nobody can cut it under those who have mapped it. */
#ifndef TRP_CORE_SEALED_H
#define TRP_CORE_SEALED_H

#include <stddef.h>
#include <stdint.h>

#include <troupe/status.h>

enum { SEALED_NONCE_BYTES = 16 };

/* Where it is, for another process of this host. From outside it is only a claim. */
struct sealed_place {
    uint64_t bytes;
    uint64_t device, inode;            /* of the file, */
    uint32_t pid, fd;                  /* which is /proc/PID/fd/FD */
    uint8_t nonce[SEALED_NONCE_BYTES]; /* its first bytes */
};

struct sealed {
    int fd;
    uint8_t *memory; /* of place.bytes; the nonce and zeros */
    struct sealed_place place;
};

/* Makes and maps it; pages take memory once they are written. `name` is for who looks at the
 * process. Others can only read it, where the kernel knows that seal (5.1). Any status: the system
 * does not let us. */
TRP_MUST_USE trp_status sealed_create(struct sealed *sealed, const char *name, size_t bytes);
void sealed_cleanup(struct sealed *sealed); /* zeroed or not created is fine */

/* Maps that of another process, to be read, for munmap(). FAILED_PRECONDITION: not here, not ours
 * to read, not sealed, or another file than was claimed. */
TRP_MUST_USE trp_status sealed_map(const uint8_t **memory, const struct sealed_place *place);

#endif
