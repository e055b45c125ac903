/* Problem: a directory has tables from an earlier life, the caller has options of this one.
 * Design: the last word wins. The caller's options do, and every difference is said, one line each,
 * unless they are what they were at the last start: then a table that was altered since stays as it
 * is. A stored table that the caller does not name is an error, because its items would silently be
 * gone, unless it was made while the server ran. A copy that is only looked at takes the stored
 * options. Counters are put right where a crash left items that
 * had been counted as deleted: inserts less deletes is the number of items, always.
 * Guarantee: the directory is not written to before every check has passed. */
#include "internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/log.h>
#include "core/alloc.h"
#include "core/hash.h"
#include "limits.h"
#include "core/words.h"
#include "replay/model/options.h"
#include "replay/model/trajectory.h"

/* ---- options against what is stored ------------------------------------------------------ */

static void log_difference(void *name, const char *key, const char *before, const char *after)
{
    if (!*before)
        trp_log(TRP_WARN, "table %s: %s=%s was not set before", (const char *)name, key, after);
    else if (!*after)
        trp_log(TRP_WARN, "table %s: stored with %s=%s, opened without", (const char *)name, key,
                before);
    else
        trp_log(TRP_WARN, "table %s: stored with %s=%s, opened with %s=%s", (const char *)name, key,
                before, key, after);
}

/* The stored table's options, with the signature, which is no part of the text. */
static trp_status stored_options(const struct store_table *stored, trp_table_options **options)
{
    trp_table_options *parsed;
    TRP_TRY(trp_table_options_parse(stored->options, &parsed));
    trp_table_options view = *parsed;
    view.signature = stored->signature;
    view.line = NULL;
    *options = trp_table_options_copy(&view);
    trp_table_options_destroy(parsed);
    return TRP_OK;
}

static const struct store_table *stored_find(const struct engine *engine, const char *name)
{
    size_t count;
    const struct store_table *stored = store_tables(engine->store, &count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(stored[i].name, name) == 0)
            return &stored[i];
    return NULL;
}

static bool is_given(const struct engine_options *options, const char *name, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(options->tables[i].name, name) == 0)
            return true;
    return false;
}

static trp_status given_check(const struct engine_options *options)
{
    for (size_t i = 0; i < options->table_count; i++) {
        const char *name = options->tables[i].name;
        TRP_TRY(trp_table_options_check(&options->tables[i]));
        if (is_given(options, name, i))
            return trp_fail(TRP_ALREADY_EXISTS, "two tables are called %s", name);
    }
    return TRP_OK;
}

/* Nobody ever gave the tables that were made at run time. */
static trp_status stored_check(const struct engine *engine, const struct engine_options *options)
{
    size_t count;
    const struct store_table *stored = store_tables(engine->store, &count);
    for (size_t i = 0; i < count && options->table_count > 0; i++)
        if (stored[i].given && !is_given(options, stored[i].name, options->table_count))
            return trp_fail(TRP_FAILED_PRECONDITION,
                            "%s has a table %s that is not among those to open: add \"%s\"",
                            options->dir, stored[i].name, stored[i].options);
    return TRP_OK;
}

/* ---- tables ------------------------------------------------------------------------------ */

/* `stored`: as it was, with `before`; NULL: it is new. */
static void table_open(struct engine *engine, const trp_table_options *options, uint32_t id,
                       const struct store_table *stored, const trp_table_options *before)
{
    struct engine_table *table = engine_table_add(engine, options, id);
    struct limiter *limiter = &table->facts->limiter;
    static const uint64_t never[4];
    table->times_before = options->max_times_sampled;
    table->as_stored = stored && before == options;
    if (!stored)
        return;
    table->times_before = before->max_times_sampled;
    limiter->inserts = stored->inserts;
    limiter->samples = stored->samples;
    limiter->deletes = stored->deletes;
    table->facts->unique_samples = stored->unique_samples;
    table->facts->episodes_deleted = stored->episodes_deleted;
    if (before->seed == options->seed && memcmp(stored->rng, never, sizeof never) != 0)
        memcpy(table->facts->rng.state, stored->rng, sizeof stored->rng);
}

/* Notes, too, what the caller said, so that the next start knows whether it says something else. */
static void table_open_changed(struct engine *engine, const trp_table_options *options,
                               const char *given, const struct store_table *stored,
                               const trp_table_options *before)
{
    char *line = trp_table_options_format(options);
    struct store_table counters = {0};
    if (stored) {
        counters = *stored; /* which changes with the put */
        table_options_compare(stored->options, line, log_difference, (void *)options->name);
        if (!bytes_equal(stored->signature, options->signature))
            trp_log(TRP_WARN, "table %s: opened with another signature than stored", options->name);
    }
    free(line);
    uint32_t id = engine_options_put(engine, options);
    store_table_given(engine->store, id, given);
    table_open(engine, options, id, stored ? &counters : NULL, before);
}

static char *given_text(const trp_table_options *options)
{
    trp_bytes signature = options->signature;
    uint64_t hash = hash_bytes(HASH_BYTES_EMPTY, signature.data, signature.size);
    char *line = trp_table_options_format(options); /* with defaults */
    char *text =
        xasprintf("%s signature=%zu,%016llx", line, signature.size, (unsigned long long)hash);
    free(line);
    return text;
}

/* If the caller says what it said last time, or nothing, what is stored is newer, or the same; else
 * the table is to have what the caller's words name, and what they do not name as it was. */
static trp_status table_open_named(struct engine *engine, const char *name,
                                   const trp_table_options *caller)
{
    const struct store_table *stored = stored_find(engine, name);
    trp_table_options *before = NULL, *options = NULL;
    char *given = caller ? given_text(caller) : NULL;
    trp_status status = stored ? stored_options(stored, &before) : TRP_OK;
    if (status != TRP_OK)
        goto out;
    if (!caller || (stored && stored->given && strcmp(stored->given, given) == 0)) {
        table_open(engine, before, stored->id, stored, before);
        goto out;
    }
    if (stored && caller->line)
        status = table_options_change(before, caller->line, false, &options);
    else
        options = trp_table_options_copy(caller);
    if (status == TRP_OK)
        table_open_changed(engine, options, given, stored, before);
out:
    trp_table_options_destroy(options);
    trp_table_options_destroy(before);
    free(given);
    return status;
}

/* The tables that are given, then the others: all that are stored when none was given, else those
 * made at run time. */
static trp_status tables_open(struct engine *engine, const struct engine_options *options)
{
    size_t count;
    TRP_TRY(stored_check(engine, options));
    for (size_t i = 0; i < options->table_count; i++)
        TRP_TRY(table_open_named(engine, options->tables[i].name, &options->tables[i]));
    const struct store_table *stored = store_tables(engine->store, &count);
    for (size_t i = 0; i < count; i++)
        if (!engine_table_with_id(engine, stored[i].id))
            TRP_TRY(table_open_named(engine, stored[i].name, NULL));
    for (size_t i = 0; !engine->read_only && i < engine->table_count; i++)
        TRP_TRY(engine_feed_check(engine, engine->tables[i]->facts->options));
    engine_feeds_find(engine);
    return TRP_OK;
}

/* ---- items ------------------------------------------------------------------------------- */

const char *stored_item_wrong(const trp_table_options *options, trp_bytes trajectory,
                              uint32_t chunk_count, const double *priority)
{
    if (!options)
        return "it is in a table that is not there";
    if (!trajectory_valid(trajectory, chunk_count))
        return "it has a shape that no server wrote";
    if (priority && table_check_priority(options, *priority) != TRP_OK)
        return "it has a priority that its table does not take";
    return NULL;
}

struct engine_table *engine_table_with_id(const struct engine *engine, uint32_t id)
{
    for (size_t i = 0; i < engine->table_count; i++)
        if (engine->tables[i]->facts->id == id)
            return engine->tables[i];
    return NULL;
}

/* Tells its table of an item from the store. */
static void item_note(struct engine_table *table, const struct item *item)
{
    if (item->inserted_at_ns > table->inserted_at_ns)
        table->inserted_at_ns = item->inserted_at_ns;
    if (item->policy_version > table->staleness.newest_version)
        table->staleness.newest_version = item->policy_version;
}

static trp_status item_seen(void *arg, uint32_t id, uint64_t seq, double priority)
{
    struct engine *engine = arg;
    struct engine_table *table = engine->seen;
    if (!table || table->facts->id != id)
        table = engine->seen = engine_table_with_id(engine, id);
    assert(table); /* all that the store has are open */
    table_restore(table->table, seq, priority);
    table->found_end = seq + 1; /* they ascend */
    return TRP_OK;
}

struct item *engine_bring(void *arg, uint64_t seq, bool in_turn, bool *damaged)
{
    struct engine_table *table = arg;
    struct engine *engine = table->engine;
    struct item *item = store_load_item(engine->store, seq, in_turn, damaged);
    if (item)
        item_note(table, item);
    else if (*damaged)
        engine_table_mark_dirty(engine, table);
    else
        engine->lost = engine->important = true;
    return item;
}

/* At first only what draws need, and a few items: a small store is all there at once. One that may
 * not be trusted is, too, whatever its size. */
static trp_status engine_items_load(struct engine *engine)
{
    bool more = true, all = engine->read_only || !store_trusted(engine->store);
    if (engine->without_items)
        return TRP_OK;
    TRP_TRY(store_scan(engine->store, item_seen, engine));
    for (size_t i = 0; i < engine->table_count; i++)
        all |= engine->tables[i]->facts->options->max_bytes > 0;
    for (int step = 0; more && (all || step < OPEN_INDEX_STEPS); step++)
        more = engine_index_step(engine);
    return engine->lost ? store_load_end(engine->store) : TRP_OK;
}

/* A crash may have counted deletes that did not happen. */
static void table_count(struct engine_table *table)
{
    struct limiter *limiter = &table->facts->limiter;
    int64_t size = table->facts->size;
    if (limiter->inserts < size)
        limiter->inserts = size;
    table->changed |= limiter->deletes != limiter->inserts - size;
    limiter->deletes = limiter->inserts - size;
}

/* The caller has to allow that its options let items go; or has, if a life that was to remove them
 * did not come to its end. A life that was killed had sampled items for good, and made room of
 * them, before their deletes were acked: they are there again, above the limit, to be sampled
 * again. */
static trp_status table_reconcile(struct engine *engine, struct engine_table *table, bool shrink)
{
    const trp_table_options *options = table->facts->options;
    int32_t times = options->max_times_sampled;
    table_count(table);
    if (engine->read_only)
        return TRP_OK;
    if (times_lower(table->times_before, times))
        TRP_TRY(engine_index_finish(engine));
    int64_t used = engine_used_up(table->table, table->times_before, times);
    int64_t over = table_over(table->table, options);
    if (!shrink && times > 0 && over <= SAMPLE_UNACKED_MAX)
        over = 0;
    if (!shrink)
        TRP_TRY(engine_loss_check(table, options, table->as_stored ? 0 : over, used));
    engine_use_up(engine, table, table->times_before);
    if (over > 0 && table_over(table->table, options) > 0) {
        trp_log(TRP_WARN, "table %s: removing %lld item%s to fit its limits", table->name,
                (long long)over, plural(over));
        engine_shrink(engine, table);
    }
    return TRP_OK;
}

/* All checks have passed; items that the caller gave up are gone when the server answers. */
static trp_status tables_shrink(struct engine *engine)
{
    if (engine->clearings.first)
        TRP_TRY(engine_index_finish(engine));
    while (engine_clear_step(engine, CLEAR_STEP_ITEMS))
        TRP_TRY(engine_commit(engine));
    return engine_commit(engine);
}

static void removed_load(void *arg, const struct removed_record *removed)
{
    struct engine *engine = arg;
    removed_push(&engine->removed, removed);
}

static const char *item_wrong(void *arg, uint32_t id, trp_bytes trajectory, uint32_t chunk_count,
                              const double *priority)
{
    const struct engine_table *table = engine_table_with_id(arg, id);
    assert(table);
    return stored_item_wrong(table->facts->options, trajectory, chunk_count, priority);
}

static trp_status engine_open(struct engine *engine, const struct engine_options *options)
{
    struct store_options store = {.dir = options->dir,
                                  .durability = options->durability,
                                  .max_bytes = options->max_bytes,
                                  .read_only = options->read_only,
                                  .check = options->check,
                                  .checkpoint_dir = options->checkpoint_dir,
                                  .damage = engine_item_damaged,
                                  .item_wrong = item_wrong,
                                  .arg = engine};
    TRP_TRY(store_create(&engine->store, &store));
    TRP_TRY(tables_open(engine, options));
    TRP_TRY(engine_items_load(engine));
    TRP_TRY(store_removed_load(engine->store, removed_load, engine));
    if (engine->damaged > 0)
        trp_log(TRP_WARN,
                "replay store %s: %llu damaged items; %llu are in the file until serve --verify",
                options->dir, (unsigned long long)engine->damaged,
                (unsigned long long)engine_usage(engine).damaged);
    for (size_t i = 0; i < engine->table_count; i++)
        TRP_TRY(table_reconcile(engine, engine->tables[i], options->shrink));
    engine->opened = true;
    if (engine->read_only)
        return TRP_OK;
    TRP_TRY(engine_commit(engine));
    return options->shrink ? tables_shrink(engine) : TRP_OK;
}

trp_status engine_create(struct engine **out, const struct engine_options *options)
{
    *out = NULL;
    if (!options->read_only)
        TRP_TRY(given_check(options));
    struct engine *engine = xcalloc(1, sizeof *engine);
    engine->read_only = options->read_only;
    engine->without_items = options->without_items;
    engine->seed = options->seed;
    engine->synced = options->durability == TRP_DURABLE_SYSTEM;
    engine->wall_ns = clock_wall_ns();
    trp_status status = engine_open(engine, options);
    if (status == TRP_OK)
        *out = engine;
    else
        engine_destroy(engine);
    return status;
}
