/* Ranks that are threads of one process, with vectors on one device: virtual ranks. Nothing is
 * sent: when all have called, a queue of the group's own waits for theirs, sums their vectors where
 * they lie, and theirs wait for it. */
#ifndef TRP_LEARNER_VIRTUAL_RANKS_H
#define TRP_LEARNER_VIRTUAL_RANKS_H

#include "carrier.h"

/* The carriers of all ranks, at most SUM_RANKS_MAX (sum_kernel.h). */
TRP_MUST_USE trp_status virtual_create(struct carrier **out, uint32_t size, trp_device *device);

/* The carrier of a rank that connects with others; all are threads of this process with one device,
 * as their homes say, and have the same meeting. They come in any order, and do not wait for each
 * other here. */
TRP_MUST_USE trp_status virtual_join(struct carrier **out, const trp_collective_options *options,
                                     uint64_t meeting);

/* A number that no other group has, for all ranks of one; never 0. */
uint64_t virtual_meeting(void);

/* Of a process and its device; 0: the rank's vectors do not meet there. Ranks whose homes are the
 * same are threads of one process, with the same device. */
uint64_t virtual_home(const trp_collective_options *options);

#endif
