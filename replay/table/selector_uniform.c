/* Uniform: every item alike, whatever its priority. A slot_set does the work. */
#include "selector_impl.h"

#include <assert.h>
#include <stdlib.h>

#include "core/alloc.h"
#include "slot_set.h"

struct uniform {
    struct selector base;
    struct slot_set set;
};

static void uniform_destroy(struct selector *selector)
{
    struct uniform *uniform = (struct uniform *)selector;
    slot_set_cleanup(&uniform->set);
    free(uniform);
}

static void uniform_insert(struct selector *selector, uint32_t slot, double priority)
{
    (void)priority;
    slot_set_insert(&((struct uniform *)selector)->set, slot);
}

static void uniform_remove(struct selector *selector, uint32_t slot)
{
    slot_set_remove(&((struct uniform *)selector)->set, slot);
}

static uint32_t uniform_pick(struct selector *selector, trp_rng *rng, double *probability)
{
    const struct slot_set *set = &((struct uniform *)selector)->set;
    assert(set->count > 0);
    *probability = 1.0 / set->count;
    return set->members[trp_rng_below(rng, set->count)];
}

static void uniform_clear(struct selector *selector)
{
    slot_set_clear(&((struct uniform *)selector)->set);
}

static uint32_t uniform_top(const struct selector *selector, uint32_t count, uint32_t *slots)
{
    const struct slot_set *set = &((const struct uniform *)selector)->set;
    uint32_t written = 0;
    for (uint32_t slot = 0; slot < set->capacity && written < count; slot++) {
        if (slot_set_has(set, slot))
            slots[written++] = slot;
    }
    return written;
}

static const struct selector_impl uniform_impl = {
    .destroy = uniform_destroy,
    .insert = uniform_insert,
    .remove = uniform_remove,
    .pick = uniform_pick,
    .clear = uniform_clear,
    .top = uniform_top,
};

struct selector *selector_uniform_create(void)
{
    struct uniform *uniform = xcalloc(1, sizeof *uniform);
    uniform->base.impl = &uniform_impl;
    return &uniform->base;
}
