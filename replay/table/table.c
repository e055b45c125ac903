/* A table ties five things together: the items by slot, the index by key, two selectors that know
 * slots only, and the limiter. The order of every operation is Reverb's, because clients see it:
 * a new item is in the remover before the victim is chosen, eviction is counted before the
 * insert, and a sample that uses up an item reports the size before it is gone.
 *
 * Slots of removed items are given out again before new ones, so arrays are as large as the table
 * ever was, and the ones used last are the ones in the cache. */
#include "table_impl.h"

#include <assert.h>

#include "core/alloc.h"
#include "core/array.h"
#include "core/limits.h"
#include "limits.h"

enum { INDEX_AHEAD = 16, CHUNKS_AHEAD = 4 };

struct table *table_create(const trp_table_options *options, uint32_t id, uint64_t seed)
{
    struct table *table = xcalloc(1, sizeof *table);
    table->facts.options = trp_table_options_copy(options);
    table->facts.id = id;
    trp_rng_init(&table->facts.rng, table->facts.options->seed ? table->facts.options->seed : seed,
                 id);
    table->sampler = selector_create(table->facts.options->sampler);
    table->remover = selector_create(table->facts.options->remover);
    table->facts.limiter.options = table->facts.options->limiter;
    table->index.expected = (size_t)table->facts.options->max_size + 1;
    return table;
}

struct table_facts *table_facts(struct table *table)
{
    return &table->facts;
}

static uint32_t table_take_slot(struct table *table)
{
    if (table->free_count > 0)
        return table->free_slots[--table->free_count];
    if (table->slot_count == table->capacity) {
        assert(table->capacity <= TABLE_ITEMS_MAX / 2 + 1);
        table->items = array_grow(table->items, &table->capacity, sizeof(struct item *));
        table->free_slots = xrealloc(table->free_slots, table->capacity * sizeof(uint32_t));
    }
    return table->slot_count++;
}

double priority_for(trp_selector selector, double priority)
{
    return selector_check(selector, priority) == TRP_OK ? priority : 0;
}

/* A free slot has an owner, who is NULL yet. */
static uint32_t table_add_slot(struct table *table, double priority)
{
    uint32_t slot = table_take_slot(table);
    table->facts.size++;
    selector_insert(table->sampler, slot, priority_for(table->facts.options->sampler, priority));
    selector_insert(table->remover, slot, priority_for(table->facts.options->remover, priority));
    return slot;
}

static void table_free_slot(struct table *table, uint32_t slot)
{
    selector_remove(table->sampler, slot);
    selector_remove(table->remover, slot);
    table->items[slot] = NULL;
    table->free_slots[table->free_count++] = slot;
    table->facts.size--;
    table->facts.limiter.deletes++;
}

static void table_fill_slot(struct table *table, uint32_t slot, struct item *item)
{
    assert(item->slot == SLOT_NONE);
    item->slot = slot;
    table->items[slot] = item;
    table->facts.bytes += item_chunk_bytes(item);
    for (uint32_t i = 0; i < item->trajectory->chunk_count; i++)
        ++*map_at(&table->episodes, item->chunks[i]->episode);
    table->facts.episodes = table->episodes.count;
}

/* ---- items that are in the store only ------------------------------------------------------- */

void table_set_lazy_load(struct table *table, table_lazy_load *lazy_load, void *arg)
{
    table->lazy_load = lazy_load;
    table->lazy_load_arg = arg;
}

void table_restore(struct table *table, uint64_t seq, double priority)
{
    assert(table->lazy_load);
    uint32_t slot = table_add_slot(table, priority);
    table->items[slot] = (struct item *)(uintptr_t)(seq << 1 | 1);
    table->unindexed_end = table->slot_count;
}

struct item *table_item(const struct table *table, uint32_t slot, bool in_turn)
{
    struct item *item = table->items[slot];
    if (!entry_stored(item))
        return item;
    struct table *changed = (struct table *)table; /* no caller sees a difference */
    bool damaged = false;
    item =
        table->lazy_load(table->lazy_load_arg, (uint64_t)(uintptr_t)item >> 1, in_turn, &damaged);
    if (item)
        table_fill_slot(changed, slot, item);
    else if (damaged)
        table_free_slot(changed, slot);
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

trp_status table_check_priority(const trp_table_options *options, double priority)
{
    TRP_TRY(selector_check(options->sampler, priority));
    return selector_check(options->remover, priority);
}

struct item *table_evict(struct table *table)
{
    bool bytes_fit =
        !table->facts.options->max_bytes || table->facts.bytes <= table->facts.options->max_bytes;
    if (table->facts.size <= table->facts.options->max_size && bytes_fit)
        return NULL;
    double probability;
    struct item *victim =
        table->items[selector_pick(table->remover, &table->facts.rng, &probability)];
    table_remove(table, victim);
    return victim;
}

/* Items lie anywhere in memory, and so do their chunks: of the next one everything is asked for,
 * and of those after it what leads there. Who goes next is known only where the remover does not
 * draw. */
const struct item *table_prefetch_victim(const struct table *table)
{
    enum { LINE_BYTES = 64, KNOWN = 3 };
    uint32_t next[KNOWN];
    if (table->facts.options->remover.kind != TRP_FIFO)
        return NULL;
    uint32_t count = selector_upcoming(table->remover, KNOWN, next);
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
    table_fill_slot(table, table_add_slot(table, item->priority), item);
    key_index_put(&table->index, item);
    *evicted = table_evict(table);
    table->facts.limiter.inserts++;
}

void table_update(struct table *table, struct item *item, double priority)
{
    item->priority = priority;
    selector_update(table->sampler, item->slot, priority);
    selector_update(table->remover, item->slot, priority);
}

static void episode_leave(struct table *table, uint64_t episode)
{
    uint64_t *count = map_at(&table->episodes, episode);
    if (*count > 1) {
        --*count;
        return;
    }
    map_remove(&table->episodes, episode);
    table->facts.episodes = table->episodes.count;
    table->facts.episodes_deleted++;
}

void table_remove(struct table *table, struct item *item)
{
    uint32_t slot = item->slot;
    assert(slot < table->slot_count);
    assert(table->items[slot] == item);
    table_free_slot(table, slot);
    key_index_remove(&table->index, item);
    table->facts.bytes -= item_chunk_bytes(item);
    for (uint32_t i = 0; i < item->trajectory->chunk_count; i++)
        episode_leave(table, item->chunks[i]->episode);
    item->slot = SLOT_NONE;
}

/* ---- other options: limiter, sizes, times sampled ------------------------------------------ */

/* Items lie anywhere in memory: fetches one of those to come. */
static void items_prefetch(const struct table *table, uint32_t slot)
{
    enum { AHEAD = 16 };
    if (slot + AHEAD < table->slot_count && table->items[slot + AHEAD])
        __builtin_prefetch(&table->items[slot + AHEAD]->times_sampled);
}

static bool selector_same(trp_selector a, trp_selector b)
{
    return a.kind == b.kind && a.exponent == b.exponent;
}

bool table_selectors_differ(const struct table *table, const trp_table_options *options)
{
    return !selector_same(table->facts.options->sampler, options->sampler) ||
           !selector_same(table->facts.options->remover, options->remover);
}

void table_alter(struct table *table, const trp_table_options *options)
{
    trp_table_options *old = table->facts.options;
    assert(!table_selectors_differ(table, options));
    table->facts.options = trp_table_options_copy(options);
    table->facts.limiter.options = table->facts.options->limiter;
    if (table->facts.options->seed && table->facts.options->seed != old->seed)
        trp_rng_init(&table->facts.rng, table->facts.options->seed, table->facts.id);
    trp_table_options_destroy(old);
}

int64_t table_over(const struct table *table, const trp_table_options *options)
{
    int64_t size = table->facts.size, over = size - options->max_size, over_bytes = 0;
    if (options->max_bytes && table->facts.bytes > options->max_bytes) /* then there are items */
        over_bytes = (int64_t)((double)(table->facts.bytes - options->max_bytes) /
                               ((double)table->facts.bytes / (double)size)) +
                     1;
    over = over > over_bytes ? over : over_bytes;
    return over > 0 ? over : 0;
}

static bool slot_sampled(const struct table *table, uint32_t slot, int32_t times)
{
    items_prefetch(table, slot);
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

/* ---- walks, and the oldest item -------------------------------------------------------------- */

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
    for (uint32_t i = 0; i < OLDEST_SLOTS_MAX && i < table->slot_count; i++) {
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
    if (table->facts.size == 0)
        return NULL;
    /* Picking the oldest draws nothing. */
    if (table->facts.options->remover.kind == TRP_FIFO)
        return table_slot(table, selector_pick(table->remover, &table->facts.rng, &probability));
    if (table->facts.options->sampler.kind == TRP_FIFO)
        return table_slot(table, selector_pick(table->sampler, &table->facts.rng, &probability));
    bool known = table->oldest_slot < table->slot_count && table->items[table->oldest_slot];
    if (!known || entry_seq(table->items[table->oldest_slot]) != table->oldest_seq)
        table->oldest_seq = 0;
    oldest_search(table);
    return table->oldest_seq ? table_slot(table, table->oldest_slot) : NULL;
}
