/* The lanes of a generation's processes: through shared memory between those of one host, where
 * both find the other's, else over their connection. */
#ifndef TRP_LEARNER_LANES_H
#define TRP_LEARNER_LANES_H

#include "mesh.h"
#include "transport.h"

/* A lane for each other rank, all of which do the same; *shared of them through memory. Takes the
 * mesh's connections for lanes. Fails as mesh_read(), and leaves no lane then. */
TRP_MUST_USE trp_status lanes_connect(struct mesh *mesh, struct peer_lane **lanes,
                                      uint32_t *shared);

void lanes_destroy(struct peer_lane **lanes, uint32_t size); /* NULL among them is fine */

#endif
