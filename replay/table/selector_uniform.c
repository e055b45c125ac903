/* Uniform: every item alike, whatever its priority. A draw needs the n-th member of a set that
 * changes all the time, so members lie in a dense vector; the last one moves into the gap that a
 * removal leaves. Every operation is O(1). */
#include "selector_impl.h"

#include <assert.h>
#include <stdlib.h>

#include "core/alloc.h"
#include "replay/model/item.h"

struct uniform {
    struct selector base;
    uint32_t *members; /* `count` slots, no order */
    uint32_t *places;  /* by slot: index into members; SLOT_NONE when not inside */
    uint32_t count, capacity;
};

static void uniform_cleanup(struct selector *selector)
{
    struct uniform *uniform = (struct uniform *)selector;
    free(uniform->members);
    free(uniform->places);
}

static void uniform_grow(struct uniform *uniform, uint32_t slot)
{
    uint32_t capacity = slots_capacity(slot);
    uniform->members = xrealloc(uniform->members, capacity * sizeof *uniform->members);
    uniform->places = xrealloc(uniform->places, capacity * sizeof *uniform->places);
    for (uint32_t i = uniform->capacity; i < capacity; i++)
        uniform->places[i] = SLOT_NONE;
    uniform->capacity = capacity;
}

static void uniform_insert(struct selector *selector, uint32_t slot, double priority)
{
    struct uniform *uniform = (struct uniform *)selector;
    (void)priority;
    if (slot >= uniform->capacity)
        uniform_grow(uniform, slot);
    assert(uniform->places[slot] == SLOT_NONE);
    uniform->places[slot] = uniform->count;
    uniform->members[uniform->count++] = slot;
}

static void uniform_remove(struct selector *selector, uint32_t slot)
{
    struct uniform *uniform = (struct uniform *)selector;
    assert(slot < uniform->capacity);
    uint32_t place = uniform->places[slot];
    assert(place != SLOT_NONE);
    uint32_t last = uniform->members[--uniform->count];
    uniform->members[place] = last;
    uniform->places[last] = place;
    uniform->places[slot] = SLOT_NONE;
}

static uint32_t uniform_pick(struct selector *selector, trp_rng *rng, double *probability)
{
    const struct uniform *uniform = (const struct uniform *)selector;
    assert(uniform->count > 0);
    *probability = 1.0 / uniform->count;
    return uniform->members[trp_rng_below(rng, uniform->count)];
}

const struct selector_impl selector_uniform = {
    .bytes = sizeof(struct uniform),
    .cleanup = uniform_cleanup,
    .insert = uniform_insert,
    .remove = uniform_remove,
    .pick = uniform_pick,
};
