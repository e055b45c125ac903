/* Problem: tables come, go and change while streams use them and while a crash may come at any
 * moment.
 * Design: each change is made in memory and noted in the store within one call, like every other
 * operation, so that one commit makes all of it durable. Whoever points to a table points to an
 * engine_table, which stays where it is and outlives its table until nobody has it any more.
 * Guarantee: a dropped table's items, counters and deliveries are gone with the commit that removes
 * its record; an altered table's items stay, but for those that the remover takes, step by step,
 * and those that were sampled as often as a new max_times_sampled allows. */
#include "internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/words.h"
#include "limits.h"

struct engine_table *engine_table_add(struct engine *engine, const trp_table_options *options,
                                      uint32_t id)
{
    struct engine_table *table = xcalloc(1, sizeof *table);
    size_t count = engine->table_count + 1;
    engine->tables = xrealloc(engine->tables, count * sizeof(struct engine_table *));
    table->engine = engine;
    table->table = table_create(options, id, engine->seed);
    table->facts = table_facts(table->table);
    table_set_lazy_load(table->table, engine_bring, table);
    table->name = xstrdup(options->name);
    table->name_size = strlen(table->name);
    table->index = (uint32_t)engine->table_count;
    engine->tables[engine->table_count++] = table;
    return table;
}

/* ---- looking at one ---------------------------------------------------------------------- */

const struct item *engine_item_in_slot(const struct engine_table *table, uint32_t slot)
{
    return table_slot(table->table, slot);
}

const struct item *engine_item_with_key(const struct engine_table *table, uint64_t key)
{
    return table_find(table->table, key);
}

uint32_t engine_table_slots(const struct engine_table *table)
{
    return table_slots(table->table);
}

const struct item *engine_oldest_item(struct engine_table *table)
{
    return table_oldest(table->table);
}

trp_status engine_check_priority(const struct engine_table *table, double priority)
{
    return table_check_priority(table->facts->options, priority);
}

/* ---- changing them ----------------------------------------------------------------------- */

uint32_t engine_options_put(struct engine *engine, const trp_table_options *options)
{
    char *line = trp_table_options_format(options);
    uint32_t id = store_table_put(engine->store, options->name, line, options->signature);
    engine->important = true;
    free(line);
    return id;
}

/* Every answer that lists the tables has all signatures. */
static trp_status signature_admit(const struct engine *engine, const trp_table_options *options)
{
    uint64_t total = options->signature.size, before = 0;
    for (size_t i = 0; i < engine->table_count; ++i) {
        uint64_t bytes = engine->tables[i]->facts->options->signature.size;
        if (strcmp(engine->tables[i]->name, options->name) == 0)
            before = bytes;
        else
            total += bytes;
    }
    if (options->signature.size <= before || total <= REPLAY_SIGNATURES_BYTES_MAX)
        return TRP_OK;
    return trp_fail(TRP_RESOURCE_EXHAUSTED,
                    "table %s: with its signature those of all tables have %llu bytes, at most %d",
                    options->name, (unsigned long long)total, REPLAY_SIGNATURES_BYTES_MAX);
}

trp_status engine_table_admit(struct engine *engine, const trp_table_options *options,
                              bool replaces)
{
    if (options->signature.size > 0)
        TRP_TRY(signature_admit(engine, options));
    TRP_TRY(engine_flush(engine));
    trp_status status = store_admit_table(engine->store, options->signature, replaces);
    struct deadline until = {0};
    while (status == TRP_RESOURCE_EXHAUSTED && clear_commit(engine, &until))
        status = store_admit_table(engine->store, options->signature, replaces);
    return status;
}

trp_status engine_table_create(struct engine *engine, const trp_table_options *options,
                               struct engine_table **table)
{
    *table = NULL;
    TRP_TRY(trp_table_options_check(options));
    if (engine_find(engine, text_bytes(options->name)))
        return trp_fail(TRP_ALREADY_EXISTS, "table %s exists", options->name);
    if (engine->table_count >= REPLAY_TABLES_MAX)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "table %s: the server has %zu tables, at most %d",
                        options->name, engine->table_count, REPLAY_TABLES_MAX);
    TRP_TRY(engine_feed_check(engine, options));
    TRP_TRY(engine_table_admit(engine, options, false));
    *table = engine_table_add(engine, options, engine_options_put(engine, options));
    engine_feeds_find(engine);
    return TRP_OK;
}

trp_status engine_feed_check(const struct engine *engine, const trp_table_options *options)
{
    const char *name = options->insert_on_sample;
    if (!name || engine_find(engine, text_bytes(name)))
        return TRP_OK;
    return trp_fail(TRP_INVALID_ARGUMENT, "table %s: insert_on_sample=%s: there is no such table",
                    options->name, name);
}

void engine_feeds_find(struct engine *engine)
{
    for (size_t i = 0; i < engine->table_count; i++) {
        const char *name = engine->tables[i]->facts->options->insert_on_sample;
        engine->tables[i]->feed = name ? engine_find(engine, text_bytes(name)) : NULL;
    }
}

trp_status engine_table_droppable(const struct engine *engine, const struct engine_table *table)
{
    for (size_t i = 0; i < engine->table_count; i++)
        if (engine->tables[i]->feed == table)
            return trp_fail(TRP_FAILED_PRECONDITION, "table %s is the insert_on_sample of table %s",
                            table->name, engine->tables[i]->name);
    return TRP_OK;
}

void engine_table_drop(struct engine *engine, struct engine_table *table)
{
    store_table_drop(engine->store, table->facts->id);
    engine->important = true;
    engine_truncate(engine, table);
    table->table = NULL;
    table->facts = NULL;
    engine->table_count--;
    for (size_t i = table->index; i < engine->table_count; i++) {
        engine->tables[i] = engine->tables[i + 1];
        engine->tables[i]->index = (uint32_t)i;
    }
}

void engine_table_free(struct engine_table *table)
{
    assert(!table->table);
    map_cleanup(&table->damaged);
    free(table->name);
    free(table);
}

int64_t engine_used_up(const struct table *table, int32_t before, int32_t after)
{
    return times_lower(before, after) ? table_count_sampled(table, after) : 0;
}

int64_t engine_use_up(struct engine *engine, struct engine_table *table, int32_t before)
{
    int32_t times = table->facts->options->max_times_sampled;
    uint32_t slot = 0;
    int64_t count = 0;
    for (struct item *item;
         times_lower(before, times) && (item = table_take_sampled(table->table, times, &slot));
         count++)
        engine_item_removed(engine, table, item);
    if (count > 0)
        engine_table_mark_dirty(engine, table);
    return count;
}

trp_status engine_loss_check(const struct engine_table *table, const trp_table_options *options,
                             int64_t over, int64_t used)
{
    int64_t size = table->facts->size;
    bool items = size > options->max_size;
    if (used > 0)
        return trp_fail(TRP_FAILED_PRECONDITION,
                        "table %s has %lld item%s that came to max_times_sampled=%d already, which "
                        "would remove them; with --shrink they go",
                        table->name, (long long)used, plural(used),
                        (int)options->max_times_sampled);
    if (over > 0)
        return trp_fail(
            TRP_FAILED_PRECONDITION,
            "table %s has %lld item%s: %s=%lld would remove %lld of them; with "
            "--shrink the remover's choices go",
            table->name, (long long)size, plural(size), items ? "max_size" : "max_bytes",
            items ? (long long)options->max_size : (long long)options->max_bytes, (long long)over);
    return TRP_OK;
}

trp_status engine_table_alterable(const struct engine_table *table,
                                  const trp_table_options *options, bool shrink, int64_t *removed)
{
    if (table_selectors_differ(table->table, options))
        return trp_fail(TRP_FAILED_PRECONDITION,
                        "table %s: sampler and remover do not change while the server runs: stop "
                        "it, and serve the table with the others (--table)",
                        table->name);
    int32_t before = table->facts->options->max_times_sampled;
    int64_t over = table_over(table->table, options);
    int64_t used = engine_used_up(table->table, before, options->max_times_sampled);
    *removed = over > used ? over : used; /* about: some are both */
    return shrink ? TRP_OK : engine_loss_check(table, options, over, used);
}

int64_t engine_table_alter(struct engine *engine, struct engine_table *table,
                           const trp_table_options *options)
{
    int32_t before = table->facts->options->max_times_sampled;
    assert(engine->ready);
    table_alter(table->table, options);
    engine_options_put(engine, options);
    engine_feeds_find(engine);
    int64_t removed = engine_use_up(engine, table, before);
    if (table_over(table->table, options) > 0)
        engine_shrink(engine, table);
    engine_table_mark_dirty(engine, table);
    return removed;
}
