/* A table besides its items: its options, limiter and counters. */
#ifndef TRP_REPLAY_MODEL_TABLE_FACTS_H
#define TRP_REPLAY_MODEL_TABLE_FACTS_H

#include <troupe/replay.h>
#include <troupe/rng.h>
#include "limiter.h"

struct table_facts {
    trp_table_options *options; /* defaults filled in */
    uint32_t id;
    int64_t size; /* items */
    struct limiter limiter;
    int64_t unique_samples;
    uint64_t bytes;           /* of its items' chunks; one that several share counts once each */
    int64_t episodes;         /* that its items have chunks of */
    int64_t episodes_deleted; /* whose last chunk was removed */
    trp_rng rng; /* of its draws: with its state another life goes on as this one would have */
};

#endif
