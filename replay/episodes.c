/* Open addressing with linear probing; what is taken out lets those behind it move up, so that
 * there are no tombstones. */
#include "episodes.h"

#include <assert.h>
#include <stdlib.h>

#include "core/alloc.h"
#include "core/hash.h"

static uint32_t id_place(const struct episodes *episodes, uint64_t id)
{
    return hash_place(id, episodes->capacity);
}

/* Where it is, or where it would go. */
static struct episode_entry *entry_find(const struct episodes *episodes, uint64_t id)
{
    uint32_t at = id_place(episodes, id);
    while (episodes->entries[at].count > 0 && episodes->entries[at].id != id)
        at = (at + 1) & (episodes->capacity - 1);
    return &episodes->entries[at];
}

static void episodes_grow(struct episodes *episodes)
{
    struct episodes old = *episodes;
    episodes->capacity = old.capacity ? 2 * old.capacity : 16;
    episodes->entries = xcalloc(episodes->capacity, sizeof *episodes->entries);
    for (uint32_t i = 0; i < old.capacity; ++i)
        if (old.entries[i].count > 0)
            *entry_find(episodes, old.entries[i].id) = old.entries[i];
    free(old.entries);
}

void episodes_add(struct episodes *episodes, uint64_t id)
{
    if (4 * (uint64_t)episodes->count >= 3 * (uint64_t)episodes->capacity)
        episodes_grow(episodes);
    struct episode_entry *entry = entry_find(episodes, id);
    episodes->count += entry->count == 0;
    entry->id = id;
    entry->count++;
}

bool episodes_remove(struct episodes *episodes, uint64_t id)
{
    struct episode_entry *entries = episodes->entries, *entry = entry_find(episodes, id);
    assert(entry->count > 0);
    if (--entry->count > 0)
        return false;
    uint32_t mask = episodes->capacity - 1, hole = (uint32_t)(entry - entries);
    for (uint32_t at = (hole + 1) & mask; entries[at].count > 0; at = (at + 1) & mask) {
        /* May it move to the hole? Not if its own place lies behind it. */
        if (((at - id_place(episodes, entries[at].id)) & mask) < ((at - hole) & mask))
            continue;
        entries[hole] = entries[at];
        entries[at].count = 0;
        hole = at;
    }
    episodes->count--;
    return true;
}

void episodes_clear(struct episodes *episodes)
{
    free(episodes->entries);
    *episodes = (struct episodes){0};
}
