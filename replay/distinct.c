/* Open addressing with linear probing; nothing is ever taken out alone. */
#include "distinct.h"

#include <stdlib.h>

#include "core/alloc.h"
#include "core/hash.h"

static struct distinct_entry *entry_find(const struct distinct *set, uint64_t seq)
{
    uint32_t at = hash_place(seq, set->capacity);
    while (set->entries[at].seq != 0 && set->entries[at].seq != seq)
        at = (at + 1) & (set->capacity - 1);
    return &set->entries[at];
}

bool distinct_has(const struct distinct *set, uint64_t seq)
{
    return set->count > 0 && entry_find(set, seq)->seq == seq;
}

void distinct_add(struct distinct *set, uint64_t seq, uint32_t slot)
{
    if (2 * (uint64_t)set->count >= set->capacity) {
        struct distinct old = *set;
        set->capacity = old.capacity ? 2 * old.capacity : 64;
        set->entries = xcalloc(set->capacity, sizeof *set->entries);
        for (uint32_t i = 0; i < old.capacity; ++i)
            if (old.entries[i].seq != 0)
                *entry_find(set, old.entries[i].seq) = old.entries[i];
        free(old.entries);
    }
    *entry_find(set, seq) = (struct distinct_entry){seq, slot};
    set->count++;
}

void distinct_clear(struct distinct *set)
{
    free(set->entries);
    *set = (struct distinct){0};
}
