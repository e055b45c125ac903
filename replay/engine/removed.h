/* Keys of items that left their tables of late: for REMOVED_KEYS_MS, unless REMOVED_KEYS_MAX others
 * came; none for twice as long or beyond twice as many. In memory; the store keeps them for the
 * next life. A zeroed struct is empty. One thread. */
#ifndef TRP_REPLAY_ENGINE_REMOVED_H
#define TRP_REPLAY_ENGINE_REMOVED_H

#include <stdbool.h>
#include <stdint.h>

#include "replay/store/store.h"

struct removed_entry;

struct removed_generation {
    struct removed_entry *entries;
    uint32_t count, capacity; /* capacity: 0 or a power of two */
    int64_t begun_ns;
};

struct dedup_window {
    struct removed_generation newer, older;
    uint64_t (*filter)[2]; /* a bit for each key that was pushed; NULL: none was */
    unsigned newest;       /* which half of the filter's words is the newer one's */
};

void removed_push(struct dedup_window *keys, const struct removed_record *removed);

/* Fetches from memory what removed_push() of this key, or else removed_find(), looks at first. */
void removed_prefetch(const struct dedup_window *keys, uint64_t key, bool push);

/* Is the item with this key and fingerprint, which comes now, one that left the table of late? */
bool removed_find(const struct dedup_window *keys, uint32_t table_id, uint64_t key,
                  uint32_t fingerprint, int64_t now_ns);
void removed_cleanup(struct dedup_window *keys);

#endif
