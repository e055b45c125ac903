/* A table ties five things together: the items by slot, the index by key, two selectors that know
 * slots only, and the limiter. The order of every operation is Reverb's, because clients see it:
 * a new item is in the remover before the victim is chosen, eviction is counted before the
 * insert, and a sample that uses up an item reports the size before it is gone.
 *
 * Slots of removed items are given out again before new ones, so arrays are as large as the table
 * ever was, and the ones used last are the ones in the cache. */
#include "table.h"

#include <assert.h>
#include <stdlib.h>

#include "core/alloc.h"
#include "core/limits.h"
#include "episodes.h"
#include "key_index.h"
#include "selector.h"

enum { INDEX_AHEAD = 16, CHUNKS_AHEAD = 4 };

struct table {
    trp_table_options *options; /* defaults filled in */
    uint32_t id;
    trp_rng rng;
    struct selector *sampler, *remover;
    struct limiter limiter;
    int64_t unique_samples;
    uint64_t bytes; /* of the chunks of its items */
    struct episodes episodes;
    int64_t episodes_deleted;
    uint32_t oldest_slot, oldest_next; /* the best so far; where the search goes on */
    uint64_t oldest_seq;               /* of what was in oldest_slot; 0: nothing */

    struct item **items; /* by slot; NULL: free; odd: see entry_stored() */
    table_bring *bring;
    void *bring_arg;
    uint32_t *free_slots;
    uint32_t free_count, slot_count, capacity;

    struct key_index index;
    uint32_t unindexed_from; /* restored items in slots from here to unindexed_end */
    uint32_t unindexed_end;  /* are not in the index yet */
};

struct table *table_create(const trp_table_options *options, uint32_t id, uint64_t seed)
{
    struct table *table = xcalloc(1, sizeof *table);
    table->options = trp_table_options_copy(options);
    table->id = id;
    trp_rng_init(&table->rng, table->options->seed ? table->options->seed : seed, id);
    table->sampler = selector_create(table->options->sampler);
    table->remover = selector_create(table->options->remover);
    table->limiter.options = table->options->limiter;
    table->index.expected = (size_t)table->options->max_size + 1;
    return table;
}

void table_destroy(struct table *table, void (*release)(void *arg, struct item *item), void *arg)
{
    if (!table)
        return;
    table_reset(table, release, arg);
    selector_destroy(table->sampler);
    selector_destroy(table->remover);
    trp_table_options_destroy(table->options);
    free(table->items);
    free(table->free_slots);
    free(table);
}

const trp_table_options *table_options(const struct table *table)
{
    return table->options;
}

uint32_t table_id(const struct table *table)
{
    return table->id;
}

int64_t table_size(const struct table *table)
{
    return (int64_t)table->slot_count - table->free_count;
}

struct limiter *table_limiter(struct table *table)
{
    return &table->limiter;
}

int64_t table_unique_samples(const struct table *table)
{
    return table->unique_samples;
}

void table_set_unique_samples(struct table *table, int64_t count)
{
    table->unique_samples = count;
}

trp_rng *table_rng(struct table *table)
{
    return &table->rng;
}

int64_t table_episodes(const struct table *table)
{
    return table->episodes.count;
}

int64_t table_episodes_deleted(const struct table *table)
{
    return table->episodes_deleted;
}

void table_set_episodes_deleted(struct table *table, int64_t count)
{
    table->episodes_deleted = count;
}

static uint32_t table_take_slot(struct table *table)
{
    if (table->free_count > 0)
        return table->free_slots[--table->free_count];
    if (table->slot_count == table->capacity) {
        assert(table->capacity <= TABLE_ITEMS_MAX / 2 + 1);
        table->capacity = table->capacity ? table->capacity * 2 : 64;
        table->items = xrealloc(table->items, table->capacity * sizeof(struct item *));
        table->free_slots = xrealloc(table->free_slots, table->capacity * sizeof(uint32_t));
    }
    return table->slot_count++;
}

uint64_t item_bytes(const struct item *item)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < item->trajectory->chunk_count; i++)
        bytes += item->chunks[i]->size;
    return bytes;
}

/* The selector may be another than the one that accepted the item. */
static double priority_for(const struct selector *selector, double priority)
{
    return selector_check(selector, priority) == TRP_OK ? priority : 0;
}

/* A free slot has an owner, who is NULL yet. */
static uint32_t table_add_slot(struct table *table, double priority)
{
    uint32_t slot = table_take_slot(table);
    selector_insert(table->sampler, slot, priority_for(table->sampler, priority));
    selector_insert(table->remover, slot, priority_for(table->remover, priority));
    return slot;
}

static void table_put(struct table *table, uint32_t slot, struct item *item)
{
    assert(item->slot == SLOT_NONE);
    item->slot = slot;
    table->items[slot] = item;
    table->bytes += item_bytes(item);
    for (uint32_t i = 0; i < item->trajectory->chunk_count; i++)
        episodes_add(&table->episodes, item->chunks[i]->episode);
}

static void table_add(struct table *table, struct item *item)
{
    table_put(table, table_add_slot(table, item->priority), item);
}

/* ---- items that are in the store only ------------------------------------------------------- */

static bool entry_stored(const struct item *entry)
{
    return (uintptr_t)entry & 1;
}

void table_set_bring(struct table *table, table_bring *bring, void *arg)
{
    table->bring = bring;
    table->bring_arg = arg;
}

void table_restore(struct table *table, struct item *item)
{
    table_add(table, item);
    table->unindexed_end = table->slot_count;
}

void table_restore_stored(struct table *table, uint64_t seq, double priority)
{
    assert(table->bring);
    uint32_t slot = table_add_slot(table, priority);
    table->items[slot] = (struct item *)(uintptr_t)(seq << 1 | 1);
    table->unindexed_end = table->slot_count;
}

/* NULL: the slot is free, or the item cannot be had. */
static struct item *table_item(const struct table *table, uint32_t slot, bool in_turn)
{
    struct item *item = table->items[slot];
    if (!entry_stored(item))
        return item;
    item = table->bring(table->bring_arg, (uint64_t)(uintptr_t)item >> 1, in_turn);
    if (item)
        table_put((struct table *)table, slot, item); /* it was there all the time */
    return item;
}

/* The next few of those that are not in the index. */
static bool index_block(struct table *table, uint32_t count)
{
    uint32_t from = table->unindexed_from, end = from + count;
    /* Items lie anywhere in memory, and so do the places of their keys. */
    for (uint32_t slot = end; slot < end + count && slot < table->unindexed_end; slot++)
        __builtin_prefetch(table->items[slot]);
    for (uint32_t slot = from; slot < end; slot++) {
        const struct item *item = table_item(table, slot, true);
        if (item)
            key_index_prefetch(&table->index, item->key);
        else if (table->items[slot])
            return false;
    }
    for (uint32_t slot = from; slot < end; slot++)
        if (table->items[slot])
            key_index_put(&table->index, table->items[slot]);
    table->unindexed_from = end;
    return true;
}

bool table_index_step(struct table *table, uint32_t count)
{
    while (count > 0 && !table_index_ready(table)) {
        uint32_t block = table->unindexed_end - table->unindexed_from;
        block = block < INDEX_AHEAD ? block : INDEX_AHEAD;
        block = block < count ? block : count;
        if (!index_block(table, block))
            break;
        count -= block;
    }
    return !table_index_ready(table);
}

bool table_index_ready(const struct table *table)
{
    return table->unindexed_from >= table->unindexed_end;
}

struct item *table_find(const struct table *table, uint64_t key)
{
    assert(table_index_ready(table));
    return key_index_find(&table->index, key);
}

void table_prefetch(const struct table *table, uint64_t key)
{
    key_index_prefetch(&table->index, key);
}

void table_find_many(const struct table *table, const uint64_t *keys, uint32_t count,
                     struct item **items)
{
    assert(table_index_ready(table));
    key_index_find_many(&table->index, keys, count, items);
}

trp_status table_check_priority(const struct table *table, double priority)
{
    TRP_TRY(selector_check(table->sampler, priority));
    return selector_check(table->remover, priority);
}

struct item *table_evict(struct table *table)
{
    bool bytes_fit = !table->options->max_bytes || table->bytes <= table->options->max_bytes;
    if (table_size(table) <= table->options->max_size && bytes_fit)
        return NULL;
    double probability;
    struct item *victim = table->items[selector_pick(table->remover, &table->rng, &probability)];
    table_remove(table, victim);
    return victim;
}

/* Items lie anywhere in memory, and so do their chunks: of the next one everything is asked for,
 * and of those after it what leads there. Who goes next is known only where the remover does not
 * draw.
 */
const struct item *table_prefetch_victim(const struct table *table)
{
    enum { LINE_BYTES = 64, KNOWN = 3 };
    uint32_t next[KNOWN];
    if (table->options->remover.kind != TRP_FIFO)
        return NULL;
    uint32_t count = selector_top(table->remover, KNOWN, next);
    if (count < KNOWN)
        return NULL;
    const uint8_t *last = (const uint8_t *)table->items[next[2]];
    __builtin_prefetch(last, 1);
    __builtin_prefetch(last + LINE_BYTES, 1);
    const struct item *second = table->items[next[1]];
    for (uint32_t i = 0; i < second->trajectory->chunk_count && i < CHUNKS_AHEAD; i++)
        __builtin_prefetch(second->chunks[i], 1);
    const struct item *first = table->items[next[0]];
    key_index_prefetch(&table->index, first->key);
    return first;
}

void table_insert(struct table *table, struct item *item, struct item **evicted)
{
    table_add(table, item);
    key_index_put(&table->index, item);
    *evicted = table_evict(table);
    table->limiter.inserts++;
}

void table_update(struct table *table, struct item *item, double priority)
{
    item->priority = priority;
    selector_update(table->sampler, item->slot, priority);
    selector_update(table->remover, item->slot, priority);
}

void table_remove(struct table *table, struct item *item)
{
    uint32_t slot = item->slot;
    assert(slot < table->slot_count);
    assert(table->items[slot] == item);
    selector_remove(table->sampler, slot);
    selector_remove(table->remover, slot);
    key_index_remove(&table->index, item);
    table->items[slot] = NULL;
    table->bytes -= item_bytes(item);
    for (uint32_t i = 0; i < item->trajectory->chunk_count; i++)
        table->episodes_deleted += episodes_remove(&table->episodes, item->chunks[i]->episode);
    table->free_slots[table->free_count++] = slot;
    item->slot = SLOT_NONE;
    table->limiter.deletes++;
}

/* What a pick of `item` does to the counters. */
static void table_count_sample(struct table *table, struct item *item, struct table_sample *sample)
{
    if (item->times_sampled == 0)
        table->unique_samples++;
    if (item->times_sampled < INT32_MAX)
        item->times_sampled++;
    table->limiter.samples++;
    sample->item = item;
    sample->table_size = table_size(table);
    sample->times_sampled = item->times_sampled;
    sample->removed = false;
}

static void table_take_sample(struct table *table, uint32_t slot, struct table_sample *sample)
{
    struct item *item = table->items[slot];
    table_count_sample(table, item, sample);
    /* Equality is Reverb's: an item that came in with more never expires. What a lower limit finds
     * above it goes when the limit is set. */
    sample->removed = table->options->max_times_sampled > 0 &&
                      item->times_sampled == table->options->max_times_sampled;
    if (sample->removed)
        table_remove(table, item);
}

void table_sample(struct table *table, struct table_sample *sample)
{
    uint32_t slot = selector_pick(table->sampler, &table->rng, &sample->probability);
    table_take_sample(table, slot, sample);
}

static bool drawn_there(const struct table *table, const struct distinct_entry *entry)
{
    return entry->seq != 0 && table->items[entry->slot] &&
           table->items[entry->slot]->seq == entry->seq;
}

static bool slot_is_left(const struct table *table, const struct distinct *drawn, uint32_t slot)
{
    return table->items[slot] && !distinct_has(drawn, table->items[slot]->seq);
}

/* One of those that were not drawn, all alike; guessed at first, which fails only in tables that
 * are not large or have been much larger. */
static uint32_t pick_left(struct table *table, const struct distinct *drawn, int64_t left,
                          double *probability)
{
    enum { GUESSES = 64 };
    *probability = 1.0 / (double)left;
    for (int i = 0; i < GUESSES; i++) {
        uint32_t slot = (uint32_t)trp_rng_below(&table->rng, table->slot_count);
        if (slot_is_left(table, drawn, slot))
            return slot;
    }
    uint64_t skip = trp_rng_below(&table->rng, (uint64_t)left);
    for (uint32_t slot = 0;; slot++)
        if (slot_is_left(table, drawn, slot) && skip-- == 0)
            return slot;
}

/* Those that were drawn weigh nothing for as long as the pick takes. */
static uint32_t pick_weighted(struct table *table, const struct distinct *drawn,
                              double *probability)
{
    for (uint32_t i = 0; i < drawn->capacity; i++)
        if (drawn_there(table, &drawn->entries[i]))
            selector_update(table->sampler, drawn->entries[i].slot, 0);
    uint32_t slot = selector_pick(table->sampler, &table->rng, probability);
    for (uint32_t i = 0; i < drawn->capacity; i++)
        if (drawn_there(table, &drawn->entries[i]))
            selector_update(
                table->sampler, drawn->entries[i].slot,
                priority_for(table->sampler, table->items[drawn->entries[i].slot]->priority));
    return slot;
}

/* Most of the table was drawn, or most of its weight: what seldom happens may take long. */
static uint32_t pick_rest(struct table *table, struct distinct *drawn, double *probability)
{
    int64_t left = table_size(table);
    for (uint32_t i = 0; i < drawn->capacity; i++)
        left -= drawn_there(table, &drawn->entries[i]);
    if (left == 0) {
        distinct_clear(drawn);
        return selector_pick(table->sampler, &table->rng, probability);
    }
    if (table->options->sampler.kind == TRP_PRIORITIZED) {
        uint32_t slot = pick_weighted(table, drawn, probability);
        if (!distinct_has(drawn, table->items[slot]->seq))
            return slot; /* else the others weigh nothing either */
    }
    return pick_left(table, drawn, left, probability);
}

void table_sample_distinct(struct table *table, struct distinct *drawn, struct table_sample *sample)
{
    enum { TRIES = 32 };
    uint32_t slot = 0;
    bool found = false;
    if (drawn->count == DISTINCT_ITEMS_MAX)
        distinct_clear(drawn);
    for (int i = 0; i < TRIES && !found && drawn->count < table_size(table); i++) {
        slot = selector_pick(table->sampler, &table->rng, &sample->probability);
        found = !distinct_has(drawn, table->items[slot]->seq);
    }
    if (!found)
        slot = pick_rest(table, drawn, &sample->probability);
    distinct_add(drawn, table->items[slot]->seq, slot);
    table_take_sample(table, slot, sample);
}

uint32_t table_sample_many(struct table *table, uint32_t count, struct table_sample *samples)
{
    uint32_t slots[SAMPLE_BLOCK_ITEMS_MAX], done = 0;
    double probabilities[SAMPLE_BLOCK_ITEMS_MAX];
    assert(table->options->max_times_sampled <= 0);
    while (done < count) {
        uint32_t block =
            count - done < SAMPLE_BLOCK_ITEMS_MAX ? count - done : SAMPLE_BLOCK_ITEMS_MAX;
        selector_pick_many(table->sampler, &table->rng, block, slots, probabilities);
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

void table_reset(struct table *table, void (*release)(void *arg, struct item *item), void *arg)
{
    selector_clear(table->sampler);
    selector_clear(table->remover);
    key_index_clear(&table->index);
    for (uint32_t slot = 0; slot < table->slot_count; slot++) {
        struct item *item = table->items[slot];
        if (!item || entry_stored(item))
            continue;
        item->slot = SLOT_NONE;
        release(arg, item);
    }
    table->slot_count = 0;
    table->bytes = 0;
    table->free_count = 0;
    table->unindexed_from = 0;
    table->unindexed_end = 0;
    table->limiter.inserts = 0;
    table->limiter.samples = 0;
    table->limiter.deletes = 0;
    table->unique_samples = 0;
    episodes_clear(&table->episodes);
    table->episodes_deleted = 0;
}

/* Where an item is and when it came; sorting pointers would miss the cache at each comparison. */
struct arrival {
    uint64_t seq;
    uint32_t slot;
};

static int arrival_compare(const void *left, const void *right)
{
    uint64_t a = ((const struct arrival *)left)->seq, b = ((const struct arrival *)right)->seq;
    return a < b ? -1 : a > b;
}

/* The items, in the order of insertion where `kind` remembers it; the caller frees. */
static struct arrival *table_arrivals(const struct table *table, trp_selector_kind kind)
{
    struct arrival *arrivals = xmalloc((table->slot_count + 1) * sizeof *arrivals);
    uint32_t count = 0;
    for (uint32_t slot = 0; slot < table->slot_count; slot++)
        if (table->items[slot])
            arrivals[count++] = (struct arrival){table->items[slot]->seq, slot};
    if (kind != TRP_UNIFORM && kind != TRP_PRIORITIZED)
        qsort(arrivals, count, sizeof *arrivals, arrival_compare);
    return arrivals;
}

static bool selector_same(trp_selector a, trp_selector b)
{
    return a.kind == b.kind && a.exponent == b.exponent;
}

static void selector_replace(const struct table *table, struct selector **selector,
                             trp_selector kind)
{
    struct arrival *arrivals = table_arrivals(table, kind.kind);
    selector_destroy(*selector);
    *selector = selector_create(kind);
    for (int64_t i = 0; i < table_size(table); i++)
        selector_insert(*selector, arrivals[i].slot,
                        priority_for(*selector, table->items[arrivals[i].slot]->priority));
    free(arrivals);
}

void table_alter(struct table *table, const trp_table_options *options)
{
    trp_table_options *old = table->options;
    table->options = trp_table_options_copy(options);
    table->limiter.options = table->options->limiter;
    if (table->options->seed && table->options->seed != old->seed)
        trp_rng_init(&table->rng, table->options->seed, table->id);
    if (!selector_same(old->sampler, table->options->sampler))
        selector_replace(table, &table->sampler, table->options->sampler);
    if (!selector_same(old->remover, table->options->remover))
        selector_replace(table, &table->remover, table->options->remover);
    trp_table_options_destroy(old);
}

int64_t table_over(const struct table *table, const trp_table_options *options)
{
    int64_t size = table_size(table), over = size - options->max_size, over_bytes = 0;
    if (options->max_bytes && table->bytes > options->max_bytes) /* then there are items */
        over_bytes = (int64_t)((double)(table->bytes - options->max_bytes) /
                               ((double)table->bytes / (double)size)) +
                     1;
    over = over > over_bytes ? over : over_bytes;
    return over > 0 ? over : 0;
}

static bool slot_sampled(const struct table *table, uint32_t slot, int32_t times)
{
    return table->items[slot] && table->items[slot]->times_sampled >= times;
}

int64_t table_count_sampled(const struct table *table, int32_t times)
{
    int64_t count = 0;
    assert(table_index_ready(table));
    for (uint32_t slot = 0; slot < table->slot_count; slot++)
        count += slot_sampled(table, slot, times);
    return count;
}

struct item *table_take_sampled(struct table *table, int32_t times, uint32_t *slot)
{
    assert(table_index_ready(table));
    while (*slot < table->slot_count && !slot_sampled(table, *slot, times))
        ++*slot;
    if (*slot >= table->slot_count)
        return NULL;
    struct item *item = table->items[*slot];
    table_remove(table, item);
    return item;
}

uint64_t table_bytes(const struct table *table)
{
    return table->bytes;
}

struct item *table_slot(const struct table *table, uint32_t slot)
{
    return slot < table->slot_count ? table_item(table, slot, false) : NULL;
}

uint32_t table_slots(const struct table *table)
{
    return table->slot_count;
}

static uint64_t entry_seq(const struct item *entry)
{
    return entry_stored(entry) ? (uint64_t)(uintptr_t)entry >> 1 : entry->seq;
}

/* Goes on with the search by a slice. */
static void oldest_search(struct table *table)
{
    for (uint32_t i = 0; i < REPLAY_SLICE_SLOTS && i < table->slot_count; i++) {
        if (table->oldest_next >= table->slot_count)
            table->oldest_next = 0;
        const struct item *entry = table->items[table->oldest_next];
        if (entry && (table->oldest_seq == 0 || entry_seq(entry) < table->oldest_seq)) {
            table->oldest_slot = table->oldest_next;
            table->oldest_seq = entry_seq(entry);
        }
        table->oldest_next++;
    }
}

const struct item *table_oldest(struct table *table)
{
    double probability;
    if (table_size(table) == 0)
        return NULL;
    /* Picking the oldest draws nothing. */
    if (table->options->remover.kind == TRP_FIFO)
        return table_slot(table, selector_pick(table->remover, &table->rng, &probability));
    if (table->options->sampler.kind == TRP_FIFO)
        return table_slot(table, selector_pick(table->sampler, &table->rng, &probability));
    bool known = table->oldest_slot < table->slot_count && table->items[table->oldest_slot];
    if (!known || entry_seq(table->items[table->oldest_slot]) != table->oldest_seq)
        table->oldest_seq = 0;
    oldest_search(table);
    return table->oldest_seq ? table_slot(table, table->oldest_slot) : NULL;
}

uint32_t table_top(const struct table *table, uint32_t count, struct item **items)
{
    int64_t size = table_size(table);
    if (count > size)
        count = (uint32_t)size;
    uint32_t *slots = xmalloc(count * sizeof *slots);
    count = selector_top(table->sampler, count, slots);
    uint32_t there = 0;
    for (uint32_t i = 0; i < count; i++)
        if ((items[there] = table_item(table, slots[i], false)) != NULL)
            there++;
    free(slots);
    return there;
}
