/* Tables as the database has them: a record and counters each. A table that goes is only marked, at
 * once: the record loses everything but its number, and items of such a table are nobody's from
 * then on, be they in the file still or not (see tombstone.c). A table that is emptied goes on
 * under a new number. Guarantee: no number is given out twice. */
#include "internal.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/array.h"

_Static_assert(sizeof((struct store_table *)0)->counters == COUNTERS * sizeof(int64_t) &&
                   offsetof(struct store_table, rng) ==
                       offsetof(struct store_table, counters[COUNTERS_SIGNED]),
               "the counters of a table are what its record has, in that order");

const struct store_table *store_tables(const struct store *store, size_t *count)
{
    *count = store->tables.count;
    return store->tables.at;
}

struct store_table *table_find_id(const struct store *store, uint64_t id)
{
    for (size_t index = 0; index < store->tables.count; index++)
        if (store->tables.at[index].id == id)
            return &store->tables.at[index];
    return NULL;
}

struct store_table *table_add(struct store *store, uint32_t id)
{
    struct stored_tables *tables = &store->tables;
    struct store_table *table = ARRAY_PUSH(tables->at, tables->count, tables->capacity);
    *table = (struct store_table){.id = id};
    return table;
}

static void table_note(struct store *store, struct store_table *table)
{
    table->changed = true;
    store->group.tables_changed = true;
}

uint32_t store_table_put(struct store *store, const char *name, const char *options,
                         trp_bytes signature)
{
    assert(!store->options.read_only);
    struct store_table *table = NULL;
    for (size_t index = 0; index < store->tables.count && !table; index++)
        if (strcmp(store->tables.at[index].name, name) == 0)
            table = &store->tables.at[index];
    if (!table) {
        table = table_add(store, store->tables.next_id++);
        table->name = xstrdup(name);
    }
    char *line = xstrdup(options);
    const uint8_t *copy = xmemdup(signature.data, signature.size);
    free(table->options);
    free((void *)table->signature.data);
    table->options = line;
    table->signature = (trp_bytes){copy, signature.size};
    table_note(store, table);
    return table->id;
}

void store_table_given(struct store *store, uint32_t id, const char *given)
{
    struct store_table *table = table_find_id(store, id);
    assert(table);
    char *copy = xstrdup(given);
    free(table->given);
    table->given = copy;
    table_note(store, table);
}

uint32_t store_table_renew(struct store *store, uint32_t id)
{
    struct store_table *table = table_find_id(store, id);
    assert(table);
    tombstone_add(store, id);
    table->id = store->tables.next_id++;
    memset(table->logged, 0, sizeof table->logged);
    table_note(store, table);
    return table->id;
}

static void table_cleanup(struct store_table *table)
{
    free(table->name);
    free(table->options);
    free(table->given);
    free((void *)table->signature.data);
}

void store_table_drop(struct store *store, uint32_t id)
{
    struct store_table *table = table_find_id(store, id);
    assert(table);
    table_cleanup(table);
    const struct store_table *last = &store->tables.at[--store->tables.count];
    memmove(table, table + 1, (size_t)(last - table) * sizeof *table);
    tombstone_add(store, id);
    store->group.tables_changed = true;
}

void tables_free(struct store *store)
{
    for (size_t index = 0; index < store->tables.count; index++)
        table_cleanup(&store->tables.at[index]);
    free(store->tables.at);
    tombstones_cleanup(store);
}

/* ---- in the file ---------------------------------------------------------------------------- */

trp_status tables_put(struct store *store)
{
    for (size_t index = 0; index < store->tables.count; index++) {
        struct store_table *table = &store->tables.at[index];
        struct table_view view = {.name = text_bytes(table->name),
                                  .options = text_bytes(table->options),
                                  .signature = table->signature,
                                  .given = text_bytes(table->given ? table->given : "")};
        if (table->changed)
            TRP_TRY(table_record_put(store, table->id, &view));
        table->changed = false;
    }
    return tombstones_put(store);
}

trp_status counters_put(struct store *store)
{
    for (size_t index = 0; index < store->tables.count; index++) {
        uint8_t record[COUNTERS_BYTES];
        counters_encode(record, store->tables.at[index].logged);
        TRP_TRY(lmdb_put(store, TREE_META, META_COUNTERS_KEY + store->tables.at[index].id,
                         (trp_bytes){record, sizeof record}, 0));
    }
    return TRP_OK;
}
