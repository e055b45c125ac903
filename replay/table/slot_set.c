/* Uniform draws need the n-th member of a set that changes all the time. Members lie in a dense
 * vector; the last one moves into the hole that a removal leaves. Every operation is O(1). */
#include "slot_set.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "replay/model/item.h"
#include "selector_impl.h"

static void slot_set_grow(struct slot_set *set, uint32_t slot)
{
    uint32_t capacity = slots_capacity(slot);
    set->members = xrealloc(set->members, capacity * sizeof *set->members);
    set->places = xrealloc(set->places, capacity * sizeof *set->places);
    for (uint32_t i = set->capacity; i < capacity; i++)
        set->places[i] = SLOT_NONE;
    set->capacity = capacity;
}

void slot_set_insert(struct slot_set *set, uint32_t slot)
{
    if (slot >= set->capacity)
        slot_set_grow(set, slot);
    assert(set->places[slot] == SLOT_NONE);
    set->places[slot] = set->count;
    set->members[set->count++] = slot;
}

void slot_set_remove(struct slot_set *set, uint32_t slot)
{
    assert(slot_set_has(set, slot));
    uint32_t place = set->places[slot];
    uint32_t last = set->members[--set->count];
    set->members[place] = last;
    set->places[last] = place;
    set->places[slot] = SLOT_NONE;
}

bool slot_set_has(const struct slot_set *set, uint32_t slot)
{
    return slot < set->capacity && set->places[slot] != SLOT_NONE;
}

void slot_set_clear(struct slot_set *set)
{
    for (uint32_t i = 0; i < set->count; i++)
        set->places[set->members[i]] = SLOT_NONE;
    set->count = 0;
}

void slot_set_cleanup(struct slot_set *set)
{
    free(set->members);
    free(set->places);
    memset(set, 0, sizeof *set);
}
