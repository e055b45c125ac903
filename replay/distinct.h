/* Items that one request was given: by sequence number, with their slots. A zeroed struct is an
 * empty set. One thread. */
#ifndef TRP_REPLAY_DISTINCT_H
#define TRP_REPLAY_DISTINCT_H

#include <stdbool.h>
#include <stdint.h>

struct distinct_entry {
    uint64_t seq; /* 0: free */
    uint32_t slot;
};

struct distinct {
    struct distinct_entry *entries;
    uint32_t count, capacity; /* capacity: 0 or a power of two */
};

bool distinct_has(const struct distinct *set, uint64_t seq);
void distinct_add(struct distinct *set, uint64_t seq, uint32_t slot); /* not inside */
void distinct_clear(struct distinct *set);                            /* frees the memory */

#endif
