/* The connections between all ranks of a generation: a line and a lane for every two. The higher
 * rank connects, the lower one accepts. */
#ifndef TRP_LEARNER_MESH_H
#define TRP_LEARNER_MESH_H

#include "core/clock.h"
#include "hello.h"
#include "listener.h"

struct mesh {
    const trp_collective_options *options;
    struct trp_collective_listener *listener;
    struct deadline deadline;
    int stop_event;           /* set when it was requested; -1: there is no stop */
    int *fds[HELLO_PURPOSES]; /* by rank; -1: not connected */
    uint32_t *other_wires;    /* by rank: another one, that it speaks; 0: as far as is known none */
    bool told;                /* rank 0 has said before all came that they differ */
};

/* Everything is borrowed. */
void mesh_init(struct mesh *mesh, const trp_collective_options *options,
               struct trp_collective_listener *listener, struct deadline deadline, int stop_event);

/* Closes what was not taken out of it. */
void mesh_cleanup(struct mesh *mesh);

/* Connects all, as trp_collective_connect(). A rank that speaks another wire counts as one that
 * came at rank 0, which has to say so to all: until it does, others wait. */
TRP_MUST_USE trp_status mesh_connect(struct mesh *mesh);

/* Writes or reads the whole, on the line to a rank: until the deadline or the stop. UNAVAILABLE:
 * the rank is gone. */
TRP_MUST_USE trp_status mesh_write(struct mesh *mesh, uint32_t rank, const void *bytes,
                                   size_t size);
TRP_MUST_USE trp_status mesh_read(struct mesh *mesh, uint32_t rank, void *bytes, size_t size);

/* Whether something came from a rank. Sleeps for at most `ms` otherwise; of this rank nothing ever
 * comes. */
TRP_MUST_USE trp_status mesh_look(struct mesh *mesh, uint32_t rank, int ms, bool *came);

#endif
