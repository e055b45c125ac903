/* Lanes between processes of one host, through memory that each of the two lets the other read. */
#ifndef TRP_LEARNER_SHARED_LANE_H
#define TRP_LEARNER_SHARED_LANE_H

#include <sys/types.h>

#include "core/sealed.h"
#include "transport.h"

/* Where one rank writes for all others. It has users, its maker first, and goes with the last. */
struct lane_memory {
    struct sealed sealed;
    uint32_t users;
};

/* How much a rank of a group of `size` has. */
size_t lane_memory_bytes(uint32_t size);

/* FAILED_PRECONDITION, RESOURCE_EXHAUSTED: the system gives none. */
TRP_MUST_USE trp_status lane_memory_create(struct lane_memory **out, uint32_t size);
void lane_memory_leave(struct lane_memory *memory); /* NULL is fine */

/* Whether the system lets this process copy from the one whose memory this is, which has it mapped
 * at `address`. */
bool lane_memory_can_copy(const struct sealed_place *place, uint64_t address);

/* Whose lane it is, and to whom. */
struct lane_ends {
    uint32_t mine, theirs; /* ranks */
    uint32_t size;         /* of the group */
    pid_t pid;             /* of the other one, whom this one can copy from; 0: it cannot */
    bool is_read;          /* the other one can from this one */
};

/* Takes a connected, non-blocking socket, on which only wakes go, and the other rank's memory, as
 * sealed_map() gave it, of lane_memory_bytes(). Is a user of `memory`. */
struct peer_lane *shared_lane_create(int fd, struct lane_memory *memory, const uint8_t *theirs,
                                     const struct lane_ends *ends);

#endif
