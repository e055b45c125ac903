/* NCCL as what carries vectors of GPUs within one generation of a group (collective.h). Its
 * communicator does not block: each call may say that it goes on, and until it does not the
 * communicator is left alone. No two threads call at one time: they hold the collective's mutex.
 * NCCL knows no time-outs, no ranks that are gone but behind sockets, and no calls that differ:
 * for all that the ranks' lines and lanes are there (native.c).
 *
 * A call that does not return holds up the whole process, which then ends (limits.h). */
#ifndef TRP_LEARNER_NCCL_H
#define TRP_LEARNER_NCCL_H

#include <troupe/collective.h>

#include "carrier.h"
#include "nccl_api.h"

struct nccl_group;

/* Begins to join; nccl_group_meet() goes on. `api` is copied. */
TRP_MUST_USE trp_status nccl_group_create(struct nccl_group **out, const struct nccl_api *api,
                                          trp_device *device, const struct nccl_id *id,
                                          uint32_t rank, uint32_t size);

/* Once CARRIER_READY, all ranks have met in an allreduce. Never waits. */
enum carrier_state nccl_group_meet(struct nccl_group *group);

/* What failed, in words; it stays. */
const char *nccl_group_words(const struct nccl_group *group);

/* As what carries vectors; it is destroyed as that, or by itself. */
struct carrier *nccl_group_carrier(struct nccl_group *group);

/* NULL is fine. What is on its way is aborted. */
void nccl_group_destroy(struct nccl_group *group);

#endif
