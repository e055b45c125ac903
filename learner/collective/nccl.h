/* NCCL as what carries vectors of GPUs within one generation of a group (collective.h). Its
 * communicator does not block: each call may say that it goes on, and until it does not the
 * communicator is left alone. No two threads call it at one time, and none does once it is aborted.
 * NCCL knows no time-outs, no ranks that are gone but behind sockets, and no calls that differ:
 * for all that the ranks' lines and lanes are there (native.c).
 *
 * An operation is a work of its queue's list (trp_queue_call()), so it becomes a part of a step's
 * graph; what is recorded has the group's number, which no two groups of a process have: a later
 * generation's is another list, with a graph of its own. NCCL frees nothing of a communicator that
 * a graph still has, and its ncclCommAbort() waits for these to go. So that runs on a thread of its
 * own, which ends what is on its way at once, and the rank's thread, when it destroys the group,
 * makes the queues forget their graphs.
 *
 * A call that does not return holds up the whole process, which then ends (limits.h). */
#ifndef TRP_LEARNER_NCCL_H
#define TRP_LEARNER_NCCL_H

#include <troupe/collective.h>

#include "carrier.h"
#include "nccl_api.h"

struct nccl_group;

/* Begins to join; nccl_group_meet() goes on. `api` is copied. Of the options device, rank, size and
 * timeout count: as long as an operation may take NCCL may take to put one on its stream. */
TRP_MUST_USE trp_status nccl_group_create(struct nccl_group **out, const struct nccl_api *api,
                                          const struct nccl_id *id,
                                          const trp_collective_options *options);

/* Once CARRIER_READY, all ranks have met in an allreduce, and in one that their GPUs captured.
 * Never waits for others. */
enum carrier_state nccl_group_meet(struct nccl_group *group);

/* What failed, in words; it stays. */
const char *nccl_group_words(const struct nccl_group *group);

/* As what carries vectors; it is destroyed as that, or by itself. */
struct carrier *nccl_group_carrier(struct nccl_group *group);

/* On the rank's thread; NULL is fine. What is on its way is aborted. */
void nccl_group_destroy(struct nccl_group *group);

#endif
