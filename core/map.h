/* A hash map from 64-bit keys to 64-bit values other than 0: open addressing with linear probing,
 * at most half full. A zeroed struct is an empty map. One thread. */
#ifndef TRP_CORE_MAP_H
#define TRP_CORE_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "core/hash.h"

struct map_entry {
    uint64_t key;
    uint64_t value; /* 0: the entry is free */
};

struct map {
    struct map_entry *entries;
    uint32_t count, capacity; /* capacity: 0 or a power of two */
};

/* The key's entry, or the free one where it belongs. There is a capacity. */
static inline struct map_entry *map_entry(const struct map *map, uint64_t key)
{
    uint32_t at = hash_place(key, map->capacity);
    while (map->entries[at].value != 0 && map->entries[at].key != key)
        at = (at + 1) & (map->capacity - 1);
    return &map->entries[at];
}

/* 0: the key is not there. */
static inline uint64_t map_get(const struct map *map, uint64_t key)
{
    return map->count > 0 ? map_entry(map, key)->value : 0;
}

/* The key's value, to be read and changed; of a key that was not there it is 0, and the caller
 * gives it another one at once. Valid until the next call that changes the map. */
uint64_t *map_at(struct map *map, uint64_t key);

void map_remove(struct map *map, uint64_t key); /* it is there */
void map_clear(struct map *map); /* gives back memory only if it had far more than it needed */
void map_cleanup(struct map *map);

#endif
