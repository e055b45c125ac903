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
#include "replay/disk/dir.h"
#include "replay/model/trajectory.h"

void engine_log_failure(const char *what)
{
    trp_log(TRP_ERROR, "%s reason=%s", what, trp_last_error());
}

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

/* The stored table's options; their signature is borrowed. */
static trp_status stored_options(const struct store_table *stored, trp_table_options **options)
{
    TRP_TRY(trp_table_options_parse(stored->options, options));
    trp_table_options view = **options;
    view.signature = stored->signature;
    view.line = NULL;
    trp_table_options *copy = trp_table_options_copy(&view);
    trp_table_options_destroy(*options);
    *options = copy;
    return TRP_OK;
}

static const struct store_table *stored_find(const struct engine *engine, const char *name)
{
    size_t count;
    const struct store_table *stored = store_tables(engine->store, &count);
    for (size_t i = 0; i < count; i++) {
        trp_table_options *options;
        bool found = false;
        if (trp_table_options_parse(stored[i].options, &options) == TRP_OK) {
            found = strcmp(options->name, name) == 0;
            trp_table_options_destroy(options);
        }
        if (found)
            return &stored[i];
    }
    return NULL;
}

static trp_status tables_check(const struct engine_options *options)
{
    for (size_t i = 0; i < options->table_count; i++) {
        TRP_TRY(trp_table_options_check(&options->tables[i]));
        for (size_t j = 0; j < i; j++)
            if (strcmp(options->tables[i].name, options->tables[j].name) == 0)
                return trp_fail(TRP_ALREADY_EXISTS, "two tables are called %s",
                                options->tables[i].name);
    }
    return TRP_OK;
}

static trp_status stored_check(const struct engine *engine, const struct engine_options *options)
{
    size_t count;
    const struct store_table *stored = store_tables(engine->store, &count);
    for (size_t i = 0; i < count; i++) {
        trp_table_options *old;
        TRP_TRY(trp_table_options_parse(stored[i].options, &old));
        bool given = !stored[i].given; /* made at run time: nobody ever gave it */
        for (size_t j = 0; j < options->table_count; j++)
            given |= strcmp(options->tables[j].name, old->name) == 0;
        trp_status status = TRP_OK;
        if (!given)
            status = trp_fail(TRP_FAILED_PRECONDITION,
                              "%s has a table %s that is not among those to open: add \"%s\"",
                              options->dir, old->name, stored[i].options);
        trp_table_options_destroy(old);
        TRP_TRY(status);
    }
    return TRP_OK;
}

/* ---- tables ------------------------------------------------------------------------------ */

/* `reseeded`: its draws begin anew. */
static void table_open(struct engine *engine, const trp_table_options *options, uint32_t id,
                       const struct store_table *counters, bool reseeded)
{
    struct engine_table *table = engine_table_add(engine, options, id);
    struct limiter *limiter = table_limiter(table->table);
    limiter->inserts = counters->inserts;
    limiter->samples = counters->samples;
    limiter->deletes = counters->deletes;
    table_set_unique_samples(table->table, counters->unique_samples);
    table_set_episodes_deleted(table->table, counters->episodes_deleted);
    static const uint64_t never[4];
    if (!reseeded && memcmp(counters->rng, never, sizeof never) != 0)
        memcpy(table_rng(table->table)->state, counters->rng, sizeof counters->rng);
}

/* What the caller said, so that the next start knows whether it says something else. */
static char *given_text(const char *line, trp_bytes signature)
{
    uint64_t hash = hash_bytes(HASH_BYTES_EMPTY, signature.data, signature.size);
    return xasprintf("%s signature=%zu,%016llx", line, signature.size, (unsigned long long)hash);
}

/* The caller says what it said last time: what is stored is newer, or the same. */
static trp_status table_open_stored(struct engine *engine, const struct store_table *stored)
{
    trp_table_options *options;
    TRP_TRY(stored_options(stored, &options));
    table_open(engine, options, stored->id, stored, false);
    engine->tables[engine->table_count - 1]->times_before = options->max_times_sampled;
    engine->tables[engine->table_count - 1]->as_stored = true;
    trp_table_options_destroy(options);
    return TRP_OK;
}

/* What of the stored options matters beside the new ones. */
static void stored_numbers(const char *line, uint64_t *seed, int32_t *max_times_sampled)
{
    trp_table_options *old;
    if (trp_table_options_parse(line, &old) != TRP_OK)
        return;
    *seed = old->seed;
    *max_times_sampled = old->max_times_sampled;
    trp_table_options_destroy(old);
}

static void table_open_changed(struct engine *engine, const trp_table_options *options,
                               const char *line, const char *given,
                               const struct store_table *stored)
{
    struct store_table counters = {0};
    uint64_t seed = options->seed;
    int32_t times = options->max_times_sampled;
    if (stored) {
        counters = *stored;
        stored_numbers(stored->options, &seed, &times);
        table_options_compare(stored->options, line, log_difference, (void *)options->name);
        if (!bytes_equal(stored->signature, options->signature))
            trp_log(TRP_WARN, "table %s: opened with another signature than stored", options->name);
    }
    uint32_t id = store_table_put(engine->store, options->name, line, options->signature);
    store_table_given(engine->store, id, given);
    engine->important = true;
    table_open(engine, options, id, &counters, seed != options->seed);
    engine->tables[engine->table_count - 1]->times_before = times;
}

/* What the table is to have: as the caller's words name it, else as `stored` has it, else a
 * default.
 */
static trp_status wanted_options(const trp_table_options *caller, const struct store_table *stored,
                                 trp_table_options **wanted)
{
    trp_table_options *old;
    if (!stored || !caller->line) {
        *wanted = trp_table_options_copy(caller);
        return TRP_OK;
    }
    TRP_TRY(stored_options(stored, &old));
    trp_status status = table_options_change(old, caller->line, false, wanted);
    trp_table_options_destroy(old);
    return status;
}

static trp_status table_open_wanted(struct engine *engine, const trp_table_options *caller,
                                    const char *given, const struct store_table *stored)
{
    trp_table_options *options;
    TRP_TRY(wanted_options(caller, stored, &options));
    char *line = trp_table_options_format(options);
    table_open_changed(engine, options, line, given, stored);
    free(line);
    trp_table_options_destroy(options);
    return TRP_OK;
}

static trp_status table_open_given(struct engine *engine, const trp_table_options *caller)
{
    char *line = trp_table_options_format(caller); /* with defaults */
    char *given = given_text(line, caller->signature);
    const struct store_table *stored = stored_find(engine, caller->name);
    bool again = stored && stored->given && strcmp(stored->given, given) == 0;
    trp_status status = again ? table_open_stored(engine, stored)
                              : table_open_wanted(engine, caller, given, stored);
    free(given);
    free(line);
    return status;
}

/* The stored ones that are not open yet: all when none was given, else those made at run time. */
static trp_status tables_open_stored(struct engine *engine)
{
    size_t count;
    const struct store_table *stored = store_tables(engine->store, &count);
    for (size_t i = 0; i < count; i++) {
        bool open = false;
        for (size_t j = 0; j < engine->table_count; j++)
            open |= table_id(engine->tables[j]->table) == stored[i].id;
        if (!open)
            TRP_TRY(table_open_stored(engine, &stored[i]));
    }
    return TRP_OK;
}

static trp_status tables_open(struct engine *engine, const struct engine_options *options)
{
    if (options->table_count > 0) {
        TRP_TRY(stored_check(engine, options));
        for (size_t i = 0; i < options->table_count; i++)
            TRP_TRY(table_open_given(engine, &options->tables[i]));
    }
    TRP_TRY(tables_open_stored(engine));
    for (size_t i = 0; !engine->read_only && i < engine->table_count; i++)
        TRP_TRY(engine_feed_check(engine, table_options(engine->tables[i]->table)));
    engine_feeds_find(engine);
    return TRP_OK;
}

/* ---- items ------------------------------------------------------------------------------- */

static trp_status table_unknown(uint32_t id)
{
    return trp_fail(TRP_DATA_LOSS, "an item of the store is in table %u, which it has not", id);
}

static trp_status loaded_item_check(struct engine *engine, const struct engine_table *table,
                                    uint32_t id, const struct item *item)
{
    if (!table)
        return table_unknown(id);
    if (item->trajectory != engine->checked && !trajectory_valid(item->trajectory))
        return trp_fail(TRP_DATA_LOSS,
                        "an item of the store, key %llu, has a trajectory that no server wrote",
                        (unsigned long long)item->key);
    engine->checked = item->trajectory;
    return TRP_OK;
}

struct engine_table *engine_table_with_id(const struct engine *engine, uint32_t id)
{
    for (size_t i = 0; i < engine->table_count; i++)
        if (table_id(engine->tables[i]->table) == id)
            return engine->tables[i];
    return NULL;
}

/* What its table has to know of an item from the store. */
static void item_note(struct engine_table *table, const struct item *item)
{
    if (item->inserted_at_ns > table->inserted_at_ns)
        table->inserted_at_ns = item->inserted_at_ns;
    if (item->policy_version > table->staleness.newest_version)
        table->staleness.newest_version = item->policy_version;
}

static trp_status item_restore(void *arg, uint32_t id, struct item *item)
{
    struct engine *engine = arg;
    struct engine_table *table = engine_table_with_id(engine, id);
    trp_status status = loaded_item_check(engine, table, id, item);
    if (status == TRP_OK) {
        item_note(table, item);
        table_restore(table->table, item);
    } else {
        store_item_destroy(engine->store, item);
    }
    return status;
}

static trp_status item_seen(void *arg, uint32_t id, uint64_t seq, double priority)
{
    struct engine *engine = arg;
    struct engine_table *table = engine->seen;
    if (!table || table_id(table->table) != id)
        table = engine->seen = engine_table_with_id(engine, id);
    if (!table)
        return table_unknown(id);
    table_restore_stored(table->table, seq, priority);
    return TRP_OK;
}

struct item *engine_bring(void *arg, uint64_t seq, bool in_turn, bool *damaged)
{
    struct engine_table *table = arg;
    struct engine *engine = table->engine;
    struct item *item = store_load_item(engine->store, seq, in_turn, damaged);
    if (item && loaded_item_check(engine, table, table_id(table->table), item) != TRP_OK) {
        store_break(engine->store, TRP_DATA_LOSS);
        store_item_destroy(engine->store, item);
        item = NULL;
    }
    if (item)
        item_note(table, item);
    else if (*damaged)
        engine_table_touch(engine, table);
    else
        engine->lost = engine->important = true;
    return item;
}

/* Those of a store that may not be trusted one by one, else only what draws need, and a few items:
 * a small store is all there at once. */
static trp_status engine_items_load(struct engine *engine)
{
    bool bytes_count = false;
    engine->scanned = store_trusted(engine->store) && !engine->read_only;
    TRP_TRY(engine->scanned ? store_scan(engine->store, item_seen, engine)
                            : store_load(engine->store, item_restore, engine));
    for (size_t i = 0; i < engine->table_count; i++)
        bytes_count |= table_options(engine->tables[i]->table)->max_bytes > 0;
    bool more = true;
    for (int step = 0; more && (bytes_count || step < OPEN_INDEX_STEPS); step++)
        more = engine_index_step(engine);
    return engine->lost ? store_commit(engine->store) : TRP_OK;
}

/* A life that was killed had sampled items for good, and made room of them, before their deletes
 * were acked: they are there again, above the limit, and will be sampled again. */
static bool table_is_owed_samples(const struct engine_table *table, long long over)
{
    return table_options(table->table)->max_times_sampled > 0 && over <= SAMPLE_UNACKED_MAX;
}

/* What the remover would take, the caller has to allow, or has: a life that was to remove it did
 * not come to its end. */
static trp_status table_fits(struct engine_table *table, bool shrink)
{
    const trp_table_options *options = table_options(table->table);
    long long size = table_size(table->table), over = table_over(table->table, options);
    if (over == 0 || (!shrink && table_is_owed_samples(table, over)))
        return TRP_OK;
    const char *limit = size > options->max_size ? "max_size" : "max_bytes";
    long long most = size > options->max_size ? options->max_size : (long long)options->max_bytes;
    if (!shrink && !table->as_stored)
        return trp_fail(TRP_FAILED_PRECONDITION,
                        "table %s has %lld item%s: %s=%lld would remove %lld of them; open with "
                        "--shrink to allow that",
                        table->name, size, plural(size), limit, most, over);
    trp_log(TRP_WARN, "table %s: removing %lld item%s to fit %s", table->name, over, plural(over),
            limit);
    table->shrinking = true;
    return TRP_OK;
}

/* Items that were sampled as often as a lower max_times_sampled allows are used up by it. */
static trp_status table_use_up(struct engine *engine, struct engine_table *table, bool shrink)
{
    int32_t times = table_options(table->table)->max_times_sampled;
    uint32_t slot = 0;
    if (times <= 0 || (table->times_before > 0 && times >= table->times_before))
        return TRP_OK;
    TRP_TRY(engine_index_finish(engine));
    long long used = engine_used_up(table->table, table->times_before, times);
    if (used > 0 && !shrink)
        return trp_fail(TRP_FAILED_PRECONDITION,
                        "table %s has %lld item%s that came to max_times_sampled=%d already, which "
                        "would remove them; open with --shrink to allow that",
                        table->name, used, plural(used), (int)times);
    for (struct item *item; used > 0 && (item = table_take_sampled(table->table, times, &slot));) {
        engine_item_drop(engine, table, item);
        engine_table_touch(engine, table);
    }
    return TRP_OK;
}

/* A crash may have counted deletes that did not happen. */
static trp_status table_reconcile(struct engine *engine, struct engine_table *table, bool shrink)
{
    struct limiter *limiter = table_limiter(table->table);
    int64_t size = table_size(table->table);
    if (limiter->inserts < size)
        limiter->inserts = size;
    table->changed |= limiter->deletes != limiter->inserts - size;
    limiter->deletes = limiter->inserts - size;
    if (engine->read_only)
        return TRP_OK;
    TRP_TRY(table_use_up(engine, table, shrink));
    return table_fits(table, shrink);
}

/* All checks have passed; items that the caller gave up are gone when the server answers. */
static trp_status tables_shrink(struct engine *engine)
{
    for (size_t i = 0; i < engine->table_count; i++) {
        struct engine_table *table = engine->tables[i];
        if (table->shrinking)
            TRP_TRY(engine_index_finish(engine));
        while (engine_shrink_step(engine, table, CLEAR_STEP_ITEMS))
            TRP_TRY(engine_commit(engine));
    }
    return engine_commit(engine);
}

static void removed_load(void *arg, const struct store_removed *removed)
{
    struct engine *engine = arg;
    removed_push(&engine->removed, removed);
}

void engine_log_damage(struct engine *engine, const char *table, uint64_t key, const char *what)
{
    if (engine->damaged++ < ENGINE_DAMAGE_LINES_MAX)
        trp_log(TRP_WARN, "dropped a damaged item table=%s key=%llu reason=%s", table,
                (unsigned long long)key, what);
}

static void item_damaged(void *arg, uint32_t id, uint64_t key, const char *what)
{
    struct engine *engine = arg;
    const struct engine_table *table = engine_table_with_id(engine, id);
    engine_log_damage(engine, table ? table->name : "?", key, what);
}

trp_status engine_create(struct engine **out, const struct engine_options *options)
{
    *out = NULL;
    if (!options->read_only)
        TRP_TRY(tables_check(options));
    struct engine *engine = xcalloc(1, sizeof *engine);
    engine->read_only = options->read_only;
    engine->seed = options->seed;
    engine->synced = options->durability == TRP_DURABLE_SYSTEM;
    struct store_options store = {.dir = options->dir,
                                  .durability = options->durability,
                                  .max_bytes = options->max_bytes,
                                  .read_only = options->read_only,
                                  .check = options->check,
                                  .checkpoint_dir = options->checkpoint_dir,
                                  .damage = item_damaged,
                                  .damage_arg = engine};
    trp_status status = store_create(&engine->store, &store);
    if (status != TRP_OK)
        goto out;
    status = tables_open(engine, options);
    if (status != TRP_OK)
        goto out;
    status = engine_items_load(engine);
    if (status == TRP_OK)
        status = store_removed_load(engine->store, removed_load, engine);
    if (status != TRP_OK)
        goto out;
    if (engine->damaged > 0)
        trp_log(TRP_WARN, "replay store %s: %llu damaged items were dropped", options->dir,
                (unsigned long long)engine->damaged);
    for (size_t i = 0; i < engine->table_count && status == TRP_OK; i++)
        status = table_reconcile(engine, engine->tables[i], options->shrink);
    if (status != TRP_OK)
        goto out;
    engine->opened = true;
    if (!engine->read_only)
        status = engine_commit(engine);
    if (status == TRP_OK && options->shrink && !engine->read_only)
        status = tables_shrink(engine);
out:
    if (status != TRP_OK) {
        engine_destroy(engine);
        return status;
    }
    *out = engine;
    return TRP_OK;
}
