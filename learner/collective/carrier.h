/* Who carries vectors of devices within one generation of a group, beside their calls' way round
 * the ranks (native.h): NCCL (nccl.h), or the device itself, where all ranks are threads of one
 * process with one device (virtual_ranks.h). With the collective's mutex, but for turn_to(), and by
 * the thread that calls, but for abort(). */
#ifndef TRP_LEARNER_CARRIER_H
#define TRP_LEARNER_CARRIER_H

#include <troupe/collective.h>

#include "call.h"

enum carrier_state { CARRIER_WORKS, CARRIER_READY, CARRIER_FAILED };

struct carrier;

struct carrier_impl {
    /* Whether such an operation is one of its. */
    bool (*takes)(const struct group_call *call);
    /* The next operation is of this queue. May wait for what the queue before has to do. NULL:
     * whose it is makes no difference. */
    void (*turn_to)(struct carrier *carrier, trp_queue *queue);
    /* Begins to put it on the queue, of its device; READY before. Once READY, what follows on the
     * queue comes after it. */
    enum carrier_state (*call)(struct carrier *carrier, trp_queue *queue, void *values,
                               const struct group_call *call);
    /* Whether the last call has put all on its queue. FAILED stays. Never waits. */
    enum carrier_state (*look)(struct carrier *carrier);
    /* What failed; it stays. NULL: a carrier that never fails. */
    const char *(*words)(const struct carrier *carrier);
    /* Whatever is on its way ends; it is of no use any more. */
    void (*abort)(struct carrier *carrier);
    void (*destroy)(struct carrier *carrier);
};

struct carrier {
    const struct carrier_impl *impl;
    trp_device *device;
};

#endif
