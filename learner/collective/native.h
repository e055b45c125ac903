/* Operations that a carrier does (carrier.h), beside their calls' way round the ranks' lanes: who
 * is missing, who called something else and who is gone comes out there, in the same words as for
 * all others. An operation is done when both are. With the collective's mutex. */
#ifndef TRP_LEARNER_NATIVE_H
#define TRP_LEARNER_NATIVE_H

#include "collective.h"
#include "hello.h"
#include "mesh.h"
#include "nccl.h"

/* Hands operations to it in their order, while it takes any; the caller's thread. */
void native_put(struct trp_collective *c);

/* The first operation, which is one of those, is done on the device; the caller's thread. Not
 * before its queue was marked behind it. */
bool native_is_done(struct trp_collective *c);

/* Its lanes are done, and the device is waited for alone. */
bool native_is_last(const struct trp_collective *c);

/* ---- native_connect.c: when ranks connect ---------------------------------------------------- */

/* `api` is opened if this rank has a device whose vectors NCCL may carry; its version then, or 0,
 * and api->path says why. */
uint32_t native_version(struct nccl_api *api, const trp_collective_options *options);

/* Of all ranks' profiles: what they all have is used. Fills the agreement in; rank 0. */
void native_agree(struct hello_agreement *agreement, const struct nccl_api *api, bool all_have);

/* Ranks that have one home join there. Others join NCCL, until all did, as rank 0 says. *out stays
 * NULL where one could not: all then use their lanes, and the log has the reason.
 * DEADLINE_EXCEEDED and others: the generation does not come together. */
TRP_MUST_USE trp_status native_connect(struct carrier **out, struct mesh *mesh,
                                       const struct nccl_api *api,
                                       const struct hello_agreement *agreement);

#endif
