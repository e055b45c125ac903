/* Lists of ranges that were sent once and are named by their hash from then on (Li et al. 2014,
 * section 3.4, "key caching"). */
#ifndef TRP_LEARNER_SERVER_KEYS_H
#define TRP_LEARNER_SERVER_KEYS_H

#include "limits.h"
#include "shard.h"

struct key_list {
    uint64_t hash;
    struct shard_range *ranges; /* NULL: there is none */
    size_t count, numbers;      /* ranges; numbers in them */
};

struct keys {
    struct key_list lists[KEY_LISTS];
    uint32_t next; /* that is given up for another one */
};

uint64_t keys_hash(const uint64_t *bounds, size_t count);

/* NULL: it was not sent, or was given up since. */
const struct key_list *keys_find(const struct keys *keys, uint64_t hash);

/* Remembers the list of `count` / 2 ranges. INVALID_ARGUMENT: as shard_check(), or it has another
 * hash. */
TRP_MUST_USE trp_status keys_add(struct keys *keys, const struct param_shard *shard, uint64_t hash,
                                 const uint64_t *bounds, size_t count,
                                 const struct key_list **list);
void keys_cleanup(struct keys *keys); /* zeroed is fine */

#endif
