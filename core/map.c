/* An entry that is taken out lets those behind it move up, so that there are no tombstones. */
#include "core/map.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"

enum { MAP_CAPACITY_MIN = 64 };

static void map_grow(struct map *map)
{
    struct map old = *map;
    map->capacity = old.capacity ? 2 * old.capacity : MAP_CAPACITY_MIN;
    map->entries = xcalloc(map->capacity, sizeof *map->entries);
    for (uint32_t i = 0; i < old.capacity; i++)
        if (old.entries[i].value != 0)
            *map_entry(map, old.entries[i].key) = old.entries[i];
    free(old.entries);
}

uint64_t *map_at(struct map *map, uint64_t key)
{
    if (2 * (uint64_t)map->count >= map->capacity)
        map_grow(map);
    struct map_entry *entry = map_entry(map, key);
    entry->key = key;
    map->count += entry->value == 0;
    return &entry->value;
}

void map_remove(struct map *map, uint64_t key)
{
    struct map_entry *entries = map->entries, *entry = map_entry(map, key);
    uint32_t mask = map->capacity - 1, gap = (uint32_t)(entry - entries);
    assert(entry->value != 0);
    entry->value = 0;
    for (uint32_t at = (gap + 1) & mask; entries[at].value != 0; at = (at + 1) & mask) {
        /* May it move to the gap? Not if its own place lies behind it. */
        if (((at - hash_place(entries[at].key, map->capacity)) & mask) < ((at - gap) & mask))
            continue;
        entries[gap] = entries[at];
        entries[at].value = 0;
        gap = at;
    }
    map->count--;
}

void map_clear(struct map *map)
{
    if (map->capacity > MAP_CAPACITY_MIN && map->count < map->capacity / 16)
        map_cleanup(map);
    if (map->count > 0)
        memset(map->entries, 0, map->capacity * sizeof *map->entries);
    map->count = 0;
}

void map_cleanup(struct map *map)
{
    free(map->entries);
    *map = (struct map){0};
}
