/* Problem: tables are memory and decide at once; the store is a file and takes groups. Both have to
 * say the same after a crash at any moment, except for what nobody was told.
 * Design: every operation changes its table and notes the change in the store within one call. An
 * item that a sample takes out of its table keeps its record until the sampler is known to have
 * it: the counters written meanwhile leave its last sample and its delete out, so that after a
 * crash it can be drawn again. Samples alone do not make a group durable: their counters wait for
 * the next group that matters, for an idle moment, or for SAMPLE_GROUPS_MAX groups.
 * Guarantee: after engine_commit() returned TRP_OK, a reopened engine has every item inserted and
 * not removed before it, and each delivery that was not acked. */

#include <assert.h>
#include <stdlib.h>

#include <troupe/log.h>
#include "core/array.h"
#include "core/limits.h"
#include "limits.h"
#include "replay/store/limits.h"
#include "internal.h"

size_t engine_table_count(const struct engine *engine)
{
    return engine->table_count;
}

struct engine_table *engine_table(struct engine *engine, size_t index)
{
    assert(index < engine->table_count);
    return engine->tables[index];
}

struct engine_table *engine_find(const struct engine *engine, trp_bytes name)
{
    for (size_t i = 0; i < engine->table_count; i++)
        if (engine_table_is(engine->tables[i], name))
            return engine->tables[i];
    return NULL;
}

trp_status engine_not_found(trp_bytes name)
{
    int size = name.size < NODE_NAME_BYTES_MAX ? (int)name.size : NODE_NAME_BYTES_MAX;
    return trp_fail(TRP_NOT_FOUND, "Priority table %.*s was not found", size,
                    name.data ? (const char *)name.data : "");
}

/* ---- after a reopen ---------------------------------------------------------------------- */

bool engine_ready(const struct engine *engine)
{
    return engine->ready;
}

static bool index_step(struct engine *engine)
{
    for (size_t i = 0; i < engine->table_count; i++)
        if (!table_index_ready(engine->tables[i]->table))
            return table_index_step(engine->tables[i]->table, INDEX_STEP_ITEMS) ||
                   i + 1 < engine->table_count;
    return false;
}

bool engine_index_step(struct engine *engine)
{
    if (engine->ready || engine->lost)
        return false;
    if (index_step(engine) && !engine->lost)
        return true;
    if (!engine->lost && !engine->without_items && store_load_end(engine->store) != TRP_OK)
        engine->lost = true;
    engine->important |= engine->lost; /* the commit says what is wrong */
    engine->ready = !engine->lost;
    if (engine->ready)
        engine_give_up_damaged(engine);
    return false;
}

static trp_status load_step(void *arg, struct engine *engine)
{
    *(bool *)arg = engine_index_step(engine);
    return TRP_OK;
}

trp_status engine_load(const struct engine_door *door, bool (*goes_on)(void *arg), void *arg)
{
    bool more = true;
    while (more) {
        if (!goes_on(arg))
            return trp_fail(TRP_CANCELLED, "cancelled");
        TRP_TRY(door->enter(door->owner, load_step, &more));
    }
    return TRP_OK;
}

trp_status engine_index_finish(struct engine *engine)
{
    while (engine_index_step(engine))
        ;
    return engine->ready ? TRP_OK : store_load_end(engine->store);
}

/* ---- inserts ----------------------------------------------------------------------------- */

void engine_item_drop(void *arg, struct item *item)
{
    struct engine *engine = arg;
    store_item_delete(engine->store, item);
    store_item_destroy(engine->store, item);
    engine->important = true;
}

void engine_table_mark_dirty(struct engine *engine, struct engine_table *table)
{
    table->changed = true;
    engine->important = true;
}

static void counters_note(struct engine *engine, struct engine_table *table)
{
    const struct limiter *limiter = &table->facts->limiter;
    struct store_table counters = {
        .id = table->facts->id,
        .inserts = limiter->inserts,
        .samples = limiter->samples - table->unacked,
        .deletes = limiter->deletes - table->unacked,
        .episodes_deleted = table->facts->episodes_deleted,
        .unique_samples = table->facts->unique_samples,
    };
    memcpy(counters.rng, table->facts->rng.state, sizeof counters.rng);
    store_table_counters(engine->store, &counters);
    table->changed = false;
}

trp_status engine_flush(struct engine *engine)
{
    if (engine->read_only)
        return TRP_OK;
    for (size_t i = 0; i < engine->table_count; i++)
        if (engine->tables[i]->changed)
            counters_note(engine, engine->tables[i]);
    trp_status status = store_commit(engine->store);
    engine->full = status == TRP_RESOURCE_EXHAUSTED;
    TRP_TRY(status); /* the group is still to be written */
    engine->important = engine->sampled = false;
    engine->sample_groups = 0;
    return TRP_OK;
}

/* A line when inserts begin to be refused, and one when none was for a while: at the edge, where
 * what goes makes room for what comes, some are and some are not. */
static void room_tell(struct engine *engine, bool refused)
{
    int64_t until_ns = engine->refused_ns + ROOM_LINE_MS * INT64_C(1000000);
    if (refused)
        engine->refused_ns = engine->wall_ns;
    if (refused == engine->refusing || (!refused && engine->wall_ns < until_ns))
        return;
    engine->refusing = refused;
    if (refused)
        trp_log(TRP_WARN, "inserts are refused reason=%s", trp_last_error());
    else
        trp_log(TRP_INFO, "there is room for inserts again");
}

static trp_status item_join_group(struct engine *engine, const struct item *item)
{
    trp_status status = store_admit(engine->store, item);
    if (status != TRP_ABORTED)
        return status;
    TRP_TRY(engine_flush(engine));
    status = store_admit(engine->store, item);
    if (status == TRP_ABORTED)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "an item of %u chunks does not fit into a group",
                        item->trajectory->chunk_count);
    return status;
}

static trp_status item_admit(struct engine *engine, const struct item *item, bool clears)
{
    trp_status status = item_join_group(engine, item);
    struct deadline until = {0};
    while (clears && status == TRP_RESOURCE_EXHAUSTED && clear_commit(engine, &until))
        status = item_join_group(engine, item);
    room_tell(engine, status == TRP_RESOURCE_EXHAUSTED);
    return status;
}

/* A writer that has it unconfirmed may send it again. */
static void removed_note(struct engine *engine, struct engine_table *table, const struct item *item)
{
    struct engine_staleness *mean = &table->staleness;
    mean->removed += mean->removed < STALENESS_SAMPLES;
    mean->times_sampled += (item->times_sampled - mean->times_sampled) / mean->removed;
    if (!item->unconfirmed &&
        engine->wall_ns - item->inserted_at_ns > REMOVED_KEYS_MS * INT64_C(1000000))
        return; /* it has the confirmation by now */
    struct removed_record removed = {.key = item->key,
                                     .at_ns = engine->wall_ns,
                                     .table_id = table->facts->id,
                                     .fingerprint = item->fingerprint};
    removed_push(&engine->removed, &removed);
    store_removed_note(engine->store, &removed);
}

void engine_item_removed(struct engine *engine, struct engine_table *table, struct item *item)
{
    removed_note(engine, table, item);
    engine_item_drop(engine, item);
}

static trp_status item_fits(const struct engine_table *table, const struct item *item)
{
    uint64_t most = table->facts->options->max_bytes;
    if (most == 0 || item_chunk_bytes(item) <= most)
        return TRP_OK;
    return trp_fail(
        TRP_INVALID_ARGUMENT, "table %s: an item of %llu bytes is larger than its max_bytes=%llu",
        table->name, (unsigned long long)item_chunk_bytes(item), (unsigned long long)most);
}

/* A table that shrinks loses one here, and what is beyond its limits step by step. */
static void victims_remove(struct engine *engine, struct engine_table *table, struct item *victim)
{
    for (; victim; victim = table->clearing ? NULL : table_evict(table->table))
        engine_item_removed(engine, table, victim);
    const struct item *next = table_prefetch_victim(table->table);
    if (next)
        removed_prefetch(&engine->removed, next->key, true);
}

bool engine_take_known(struct engine *engine, struct engine_table *table, struct item *item)
{
    struct item *known = table_find(table->table, item->key);
    if (known) {
        if (known->fingerprint != item->fingerprint) { /* else the table's may be newer */
            table_update(table->table, known, item->priority);
            store_item_priority(engine->store, known);
        }
        table->known_inserts++;
        engine->important = true;
    } else if (!removed_find(&engine->removed, table->facts->id, item->key, item->fingerprint,
                             engine->wall_ns)) {
        return false;
    }
    store_item_destroy(engine->store, item);
    return true;
}

/* `clears`: other items may go for room that it does not find. */
static trp_status table_take_item(struct engine *engine, struct engine_table *table,
                                  struct item *item, bool clears)
{
    struct item *evicted;
    if (engine_take_known(engine, table, item))
        return TRP_OK;
    TRP_TRY(item_fits(table, item));
    TRP_TRY(item_admit(engine, item, clears));
    if (engine->clearings.first)
        engine->debt += CLEAR_PER_INSERT * table_weight(item);
    item->inserted_at_ns = table->inserted_at_ns = engine->wall_ns;
    store_item_insert(engine->store, table->facts->id, item);
    table_insert(table->table, item, &evicted);
    if (item->policy_version > table->staleness.newest_version)
        table->staleness.newest_version = item->policy_version;
    if (evicted)
        victims_remove(engine, table, evicted);
    engine_table_mark_dirty(engine, table);
    return TRP_OK;
}

trp_status engine_insert(struct engine *engine, struct engine_table *table, struct item *item)
{
    return table_take_item(engine, table, item, true);
}

void engine_prefetch(const struct engine *engine, const struct engine_table *table, uint64_t key)
{
    table_prefetch(table->table, key);
    removed_prefetch(&engine->removed, key, false);
}

void engine_set_time(struct engine *engine, int64_t wall_ns)
{
    engine->wall_ns = wall_ns;
}

/* ---- samples ----------------------------------------------------------------------------- */

bool engine_can_insert(const struct engine_table *table)
{
    return table->engine->ready && limiter_can_insert(&table->facts->limiter, 1);
}

bool engine_can_sample(const struct engine_table *table)
{
    const trp_table_options *options = table->facts->options;
    if (table->facts->size == 0 || !limiter_can_sample(&table->facts->limiter, 1))
        return false;
    return table->engine->ready || (options->max_times_sampled <= 0 && !options->no_replacement &&
                                    !table->feed && !table->engine->lost);
}

static void delivery_push(struct engine *engine, struct engine_table *table,
                          struct delivery *delivery, struct item *item)
{
    assert(delivery->count == 0 || delivery->table == table);
    if (delivery->count == 0) {
        delivery->table = table;
        list_push(&engine->deliveries, &delivery->link);
    }
    *ARRAY_PUSH(delivery->items, delivery->count, delivery->capacity) = item;
    table->unacked++;
}

static void sample_note(const struct engine *engine, struct engine_table *table,
                        const struct table_sample *sample)
{
    struct engine_staleness *mean = &table->staleness;
    const struct item *item = sample->item;
    mean->samples += mean->samples < STALENESS_SAMPLES;
    double weight = 1.0 / mean->samples;
    double age = (double)(engine->wall_ns - item->inserted_at_ns) * 1e-9;
    mean->age_seconds += ((age > 0 ? age : 0) - mean->age_seconds) * weight;
    double behind = (double)(mean->newest_version - item->policy_version);
    mean->versions_behind += (behind - mean->versions_behind) * weight;
}

/* A copy of what was sampled for the first time goes into another table, if that can take it. It
 * makes no room: what was sampled with it, and this item, must stay until they are sent. */
static void sample_feed(struct engine *engine, struct engine_table *table,
                        const struct table_sample *sample)
{
    const struct item *item = sample->item;
    if (!table->feed || sample->times_sampled != 1)
        return;
    if (!engine_can_insert(table->feed)) {
        table->feed_dropped++;
        return;
    }
    item->trajectory->refs++;
    struct item *copy = store_item_create(engine->store, item->trajectory, item->chunks);
    copy->key = item->key;
    copy->priority = item->priority;
    copy->policy_version = item->policy_version;
    copy->fingerprint = item->fingerprint;
    copy->times_sampled = 1;
    if (engine_check_priority(table->feed, copy->priority) == TRP_OK &&
        table_take_item(engine, table->feed, copy, false) == TRP_OK)
        return;
    store_item_destroy(engine->store, copy);
    table->feed_dropped++;
}

void delivery_begin(struct delivery *delivery)
{
    if (delivery->drawn.count)
        map_cleanup(&delivery->drawn);
}

static void sample_one(struct engine *engine, struct engine_table *table,
                       struct table_sample *sample, struct delivery *delivery)
{
    if (table->facts->options->no_replacement)
        table_sample_distinct(table->table, &delivery->drawn, sample);
    else
        table_sample(table->table, sample);
    sample_note(engine, table, sample);
    table->changed = true;
    engine->sampled = true;
    if (sample->removed) {
        removed_note(engine, table, sample->item);
        delivery_push(engine, table, delivery, sample->item);
    } else if (table->facts->options->max_times_sampled > 0)
        store_item_sampled(engine->store, sample->item);
    sample_feed(engine, table, sample);
}

uint32_t engine_sample_many(struct engine *engine, struct engine_table *table, uint32_t count,
                            struct table_sample *samples, struct delivery *delivery)
{
    uint32_t n = 0;
    const trp_table_options *options = table->facts->options;
    if (options->max_times_sampled > 0 || options->no_replacement || table->facts->size == 0) {
        for (; n < count && engine_can_sample(table); n++)
            sample_one(engine, table, &samples[n], delivery);
        return n;
    }
    while (n < count && limiter_can_sample(&table->facts->limiter, n + 1))
        ++n;
    if (n == 0)
        return 0;
    n = table_sample_many(table->table, n, samples);
    table->changed = true;
    engine->sampled = true;
    for (uint32_t i = 0; i < n; i++) {
        sample_note(engine, table, &samples[i]);
        sample_feed(engine, table, &samples[i]);
    }
    return n;
}

void engine_ack(struct engine *engine, struct delivery *delivery, uint64_t end)
{
    if (delivery->count == 0 || end <= delivery->acked)
        return;
    uint64_t wanted = end - delivery->acked;
    uint32_t count = wanted < delivery->count ? (uint32_t)wanted : delivery->count;
    for (uint32_t i = 0; i < count; i++)
        engine_item_drop(engine, delivery->items[i]);
    delivery->table->unacked -= count;
    engine_table_mark_dirty(engine, delivery->table);
    delivery->acked += count;
    delivery->count -= count;
    memmove(delivery->items, delivery->items + count, delivery->count * sizeof(struct item *));
    if (delivery->count == 0)
        list_remove(&engine->deliveries, &delivery->link);
}

void delivery_cleanup(struct delivery *delivery)
{
    assert(delivery->count == 0);
    free(delivery->items);
    map_cleanup(&delivery->drawn);
    *delivery = (struct delivery){0};
}

/* ---- mutate ------------------------------------------------------------------------------ */

static trp_status update_block(struct engine *engine, struct engine_table *table,
                               const struct wire_update *updates, uint32_t count)
{
    uint64_t keys[MUTATE_BLOCK_KEYS_MAX] = {0};
    struct item *items[MUTATE_BLOCK_KEYS_MAX];
    assert(count > 0 && count <= MUTATE_BLOCK_KEYS_MAX);
    for (uint32_t i = 0; i < count; i++)
        keys[i] = updates[i].key;
    table_find_many(table->table, keys, count, items);
    for (uint32_t i = 0; i < count; i++) {
        if (!items[i])
            continue;
        TRP_TRY(engine_check_priority(table, updates[i].priority));
        table_update(table->table, items[i], updates[i].priority);
        store_item_priority(engine->store, items[i]);
        engine->important = true;
    }
    return TRP_OK;
}

trp_status engine_mutate(struct engine *engine, struct engine_table *table,
                         const struct wire_mutate_request *request)
{
    struct table *inner = table->table;
    for (uint32_t i = 0; i < request->deletes.count; i++) {
        struct item *item = table_find(inner, request->deletes.keys[i]);
        if (!item)
            continue;
        table_remove(inner, item);
        engine_item_removed(engine, table, item);
        engine_table_mark_dirty(engine, table);
    }
    for (uint32_t i = 0, count; i < request->update_count; i += count) {
        count = request->update_count - i;
        count = count < MUTATE_BLOCK_KEYS_MAX ? count : MUTATE_BLOCK_KEYS_MAX;
        TRP_TRY(update_block(engine, table, request->updates + i, count));
    }
    return TRP_OK;
}

/* ---- groups ------------------------------------------------------------------------------ */

trp_status engine_commit(struct engine *engine)
{
    if (engine->sampled && !engine->important && ++engine->sample_groups < SAMPLE_GROUPS_MAX) {
        engine->sampled = false;
        return TRP_OK;
    }
    if (!engine->important && !engine->sampled)
        return TRP_OK;
    return engine_flush(engine);
}

bool engine_idle(struct engine *engine)
{
    if (engine->sample_groups > 0 && !engine->synced)
        engine->important = true; /* nobody waits: now their counters cost nothing */
    return store_idle(engine->store);
}

static void item_free(void *arg, struct item *item)
{
    struct engine *engine = arg;
    store_item_destroy(engine->store, item);
}

static trp_status last_commit(struct engine *engine)
{
    trp_status status = TRP_RESOURCE_EXHAUSTED;
    for (unsigned tries = 0; status == TRP_RESOURCE_EXHAUSTED && tries < LAST_COMMITS_MAX; tries++)
        status = engine_flush(engine);
    return status;
}

void engine_destroy(struct engine *engine)
{
    if (!engine)
        return;
    assert(!engine->deliveries.first);
    if (engine->opened && last_commit(engine) != TRP_OK)
        trp_log(TRP_ERROR, "last commit failed reason=%s", trp_last_error());
    clearings_destroy(engine, item_free);
    for (size_t i = 0; i < engine->table_count; i++) {
        table_destroy(engine->tables[i]->table, item_free, engine);
        engine->tables[i]->table = NULL;
        engine_table_free(engine->tables[i]);
    }
    free(engine->tables);
    removed_cleanup(&engine->removed);
    store_destroy(engine->store);
    free(engine);
}
