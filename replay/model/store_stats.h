/* How much a store holds. */
#ifndef TRP_REPLAY_MODEL_STORE_STATS_H
#define TRP_REPLAY_MODEL_STORE_STATS_H

#include <stdint.h>

struct store_stats {
    uint64_t file_bytes;      /* pages ever used */
    uint64_t live_bytes;      /* of chunks and records that are not deleted */
    uint64_t limit_bytes;     /* it may grow to this, as the file system is now */
    uint64_t allocated_bytes; /* what the file takes from the file system */
    uint64_t items, chunks, groups, cache_bytes;
    uint64_t damaged; /* items that are in the file and were left out */
    uint64_t unswept; /* chunks that nothing refers to and that are still in the file */
};

#endif
