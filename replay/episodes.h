/* How many of a table's chunks are of which episode: a hash map of counts. A zeroed struct is an
 * empty one. One thread. */
#ifndef TRP_REPLAY_EPISODES_H
#define TRP_REPLAY_EPISODES_H

#include <stdbool.h>
#include <stdint.h>

struct episode_entry {
    uint64_t id;
    uint64_t count; /* 0: free */
};

struct episodes {
    struct episode_entry *entries;
    uint32_t count, capacity; /* capacity: 0 or a power of two */
};

void episodes_add(struct episodes *episodes, uint64_t id);
bool episodes_remove(struct episodes *episodes, uint64_t id); /* was added; true: the last of it */
void episodes_clear(struct episodes *episodes);               /* frees the memory */

#endif
