/* A table ties five things together: the items by slot, the index by key, two selectors that know
 * slots only, and the limiter. The order of every operation is Reverb's, because clients see it:
 * a new item is in the remover before the victim is chosen, eviction is counted before the
 * insert, and a sample that uses up an item reports the size before it is gone.
 *
 * Slots of removed items are given out again before new ones, so arrays are as large as the table
 * ever was, and the ones used last are the ones in the cache. */
#include "table_impl.h"

#include <assert.h>
#include <stdlib.h>

#include "core/alloc.h"
#include "core/array.h"
#include "core/limits.h"

enum { INDEX_AHEAD = 16, CHUNKS_AHEAD = 4 };

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
        table->items = array_grow(table->items, &table->capacity, sizeof(struct item *));
        table->free_slots = xrealloc(table->free_slots, table->capacity * sizeof(uint32_t));
    }
    return table->slot_count++;
}

double priority_for(const struct selector *selector, double priority)
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

static void table_free_slot(struct table *table, uint32_t slot)
{
    selector_remove(table->sampler, slot);
    selector_remove(table->remover, slot);
    table->items[slot] = NULL;
    table->free_slots[table->free_count++] = slot;
    table->limiter.deletes++;
}

static void table_fill_slot(struct table *table, uint32_t slot, struct item *item)
{
    assert(item->slot == SLOT_NONE);
    item->slot = slot;
    table->items[slot] = item;
    table->bytes += item_chunk_bytes(item);
    for (uint32_t i = 0; i < item->trajectory->chunk_count; i++)
        ++*map_at(&table->episodes, item->chunks[i]->episode);
}

static void table_add_item(struct table *table, struct item *item)
{
    table_fill_slot(table, table_add_slot(table, item->priority), item);
}

/* ---- items that are in the store only ------------------------------------------------------- */

void table_set_lazy_load(struct table *table, table_lazy_load *lazy_load, void *arg)
{
    table->lazy_load = lazy_load;
    table->lazy_load_arg = arg;
}

void table_restore(struct table *table, struct item *item)
{
    table_add_item(table, item);
    table->unindexed_end = table->slot_count;
}

void table_restore_stored(struct table *table, uint64_t seq, double priority)
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
    table_add_item(table, item);
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

static void episode_leave(struct table *table, uint64_t episode)
{
    uint64_t *count = map_at(&table->episodes, episode);
    if (*count > 1) {
        --*count;
        return;
    }
    map_remove(&table->episodes, episode);
    table->episodes_deleted++;
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
    table->bytes -= item_chunk_bytes(item);
    for (uint32_t i = 0; i < item->trajectory->chunk_count; i++)
        episode_leave(table, item->chunks[i]->episode);
    table->free_slots[table->free_count++] = slot;
    item->slot = SLOT_NONE;
    table->limiter.deletes++;
}

uint64_t table_bytes(const struct table *table)
{
    return table->bytes;
}
