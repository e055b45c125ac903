/* Bounds of replay/sampler/ that are no option, with their arithmetic. */
#ifndef TRP_REPLAY_SAMPLER_LIMITS_H
#define TRP_REPLAY_SAMPLER_LIMITS_H

#include <stdint.h>

enum {
    /* service/sample_shared.c: pages of one client that cannot be recycled: three batches of 256 x
     * 28 KB are 22 MB. 512 clients that all stand still keep 32 GiB at most. */
    SHARED_WINDOW_BYTES = 32 << 20,
    /* shards.c: servers of one client, each with channels and threads of its own. */
    REPLAY_SHARDS_MAX = 1024,
    /* sampler.c: batches of memory. */
    SAMPLER_PREFETCH_MAX = 1024,
    SAMPLER_WORKERS_MAX = 64, /* threads for each server */
    /* sampler.c: batches requested beyond the one being filled. The server makes one while
     * another is on its way; at most these two are lost at a stop. */
    SAMPLER_BATCHES_AHEAD = 2,
    /* sampler.c: about what it takes to wake a thread, and for it to get going. */
    SAMPLER_AWAY_NS = 20000,
    /* sample_source.c: how long rows that are views wait for the rest of their batch; then
     * they are copied. Far longer than a server needs, far shorter than a lease. */
    SAMPLER_HOLD_MS = 10,
    /* mutate.c: requests unanswered; the option is a uint32_t. */
    PRIORITY_WINDOW_MAX = 4096,
};

#endif
