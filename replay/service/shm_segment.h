/* Memory that an insert stream and its writer on this host have in common. The server makes it and
 * only reads it; whatever the writer does to it, it stays there and as long as it is. Owner: the
 * stream. */
#ifndef TRP_REPLAY_SERVICE_SHM_SEGMENT_H
#define TRP_REPLAY_SERVICE_SHM_SEGMENT_H

#include <troupe/bytes.h>
#include <troupe/rpc.h>
#include "service.h"

struct shm_segment;

/* A segment for a writer that says hello, which is told of it. NULL: it is on another host, there
 * are SHM_SEGMENTS_MAX, this server shares nothing, or the system has none; the writer sends. */
struct shm_segment *shm_segment_offer(struct service *service, trp_server_call *call,
                                      trp_bytes hello);

trp_bytes shm_segment_memory(const struct shm_segment *segment); /* NULL: empty */

/* Chunks of the group that lie in it get bytes of their own. NULL is fine. */
void shm_segment_destroy(struct service *service, struct shm_segment *segment);

#endif
