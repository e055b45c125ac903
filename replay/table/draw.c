/* Draws of the sampler: one, many at once, or some of which no item comes twice. */
#include "table_impl.h"

#include <assert.h>

#include "limits.h"

/* Counts a pick of `item`. */
static void table_count_sample(struct table *table, struct item *item, struct table_sample *sample)
{
    if (item->times_sampled == 0)
        table->facts.unique_samples++;
    if (item->times_sampled < INT32_MAX)
        item->times_sampled++;
    table->facts.limiter.samples++;
    sample->item = item;
    sample->table_size = table->facts.size;
    sample->times_sampled = item->times_sampled;
    sample->removed = false;
}

static void table_take_sample(struct table *table, uint32_t slot, struct table_sample *sample)
{
    struct item *item = table->items[slot];
    table_count_sample(table, item, sample);
    /* Equality is Reverb's: an item that came in with more never expires. Items that a lower limit
     * finds above it go when the limit is set. */
    sample->removed = table->facts.options->max_times_sampled > 0 &&
                      item->times_sampled == table->facts.options->max_times_sampled;
    if (sample->removed)
        table_remove(table, item);
}

void table_sample(struct table *table, struct table_sample *sample)
{
    uint32_t slot = selector_pick(table->sampler, &table->facts.rng, &sample->probability);
    table_take_sample(table, slot, sample);
}

/* The slot of an item that was drawn and is still there; SLOT_NONE: the entry has none. A table
 * that was emptied meanwhile has fewer slots. */
static uint32_t drawn_slot(const struct table *table, const struct map_entry *entry)
{
    uint32_t slot = (uint32_t)entry->value - 1;
    bool there = entry->value != 0 && slot < table->slot_count && table->items[slot] &&
                 table->items[slot]->seq == entry->key;
    return there ? slot : SLOT_NONE;
}

static bool was_drawn(const struct table *table, const struct map *drawn, uint32_t slot)
{
    return map_get(drawn, table->items[slot]->seq) != 0;
}

static bool slot_is_left(const struct table *table, const struct map *drawn, uint32_t slot)
{
    return table->items[slot] && !was_drawn(table, drawn, slot);
}

/* One of those that were not drawn, all alike; guessed at first, which fails only in tables that
 * are not large or have been much larger. */
static uint32_t pick_left(struct table *table, const struct map *drawn, int64_t left,
                          double *probability)
{
    enum { GUESSES = 64 };
    *probability = 1.0 / (double)left;
    for (int i = 0; i < GUESSES; i++) {
        uint32_t slot = (uint32_t)trp_rng_below(&table->facts.rng, table->slot_count);
        if (slot_is_left(table, drawn, slot))
            return slot;
    }
    uint64_t skip = trp_rng_below(&table->facts.rng, (uint64_t)left);
    for (uint32_t slot = 0;; slot++)
        if (slot_is_left(table, drawn, slot) && skip-- == 0)
            return slot;
}

/* Items that were drawn weigh nothing for as long as the pick takes. */
static uint32_t pick_weighted(struct table *table, const struct map *drawn, double *probability)
{
    uint32_t slot;
    for (uint32_t i = 0; i < drawn->capacity; i++)
        if ((slot = drawn_slot(table, &drawn->entries[i])) != SLOT_NONE)
            selector_update(table->sampler, slot, 0);
    uint32_t picked = selector_pick(table->sampler, &table->facts.rng, probability);
    for (uint32_t i = 0; i < drawn->capacity; i++)
        if ((slot = drawn_slot(table, &drawn->entries[i])) != SLOT_NONE)
            selector_update(
                table->sampler, slot,
                priority_for(table->facts.options->sampler, table->items[slot]->priority));
    return picked;
}

/* Most of the table was drawn, or most of its weight: what seldom happens may take long. */
static uint32_t pick_rest(struct table *table, struct map *drawn, double *probability)
{
    int64_t left = table->facts.size;
    for (uint32_t i = 0; i < drawn->capacity; i++)
        left -= drawn_slot(table, &drawn->entries[i]) != SLOT_NONE;
    if (left == 0) {
        map_cleanup(drawn);
        return selector_pick(table->sampler, &table->facts.rng, probability);
    }
    if (table->facts.options->sampler.kind == TRP_PRIORITIZED) {
        uint32_t slot = pick_weighted(table, drawn, probability);
        if (!was_drawn(table, drawn, slot))
            return slot; /* else the others weigh nothing either */
    }
    return pick_left(table, drawn, left, probability);
}

void table_sample_distinct(struct table *table, struct map *drawn, struct table_sample *sample)
{
    enum { TRIES = 32 };
    uint32_t slot = 0;
    bool found = false;
    if (drawn->count == DISTINCT_ITEMS_MAX)
        map_cleanup(drawn);
    for (int i = 0; i < TRIES && !found && drawn->count < table->facts.size; i++) {
        slot = selector_pick(table->sampler, &table->facts.rng, &sample->probability);
        found = !was_drawn(table, drawn, slot);
    }
    if (!found)
        slot = pick_rest(table, drawn, &sample->probability);
    *map_at(drawn, table->items[slot]->seq) = (uint64_t)slot + 1;
    table_take_sample(table, slot, sample);
}

uint32_t table_sample_many(struct table *table, uint32_t count, struct table_sample *samples)
{
    uint32_t slots[DRAW_BLOCK_SLOTS_MAX], done = 0;
    double probabilities[DRAW_BLOCK_SLOTS_MAX];
    assert(table->facts.options->max_times_sampled <= 0);
    while (done < count) {
        uint32_t block = count - done < DRAW_BLOCK_SLOTS_MAX ? count - done : DRAW_BLOCK_SLOTS_MAX;
        selector_pick_many(table->sampler, &table->facts.rng, block, slots, probabilities);
        for (uint32_t i = 0; i < block; i++)
            __builtin_prefetch(&table->items[slots[i]]);
        for (uint32_t i = 0; i < block; i++)
            __builtin_prefetch(table->items[slots[i]], 1);
        for (uint32_t i = 0; i < block; i++, done++) {
            struct item *item = table_item(table, slots[i], false);
            if (!item)
                return done;
            samples[done].probability = probabilities[i];
            table_count_sample(table, item, &samples[done]);
        }
    }
    return done;
}
