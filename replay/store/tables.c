/* Tables as the database has them: a record and counters each. What goes is only marked, at once:
 * the record loses everything but its number, and items of such a table are nobody's from then on,
 * be they in the file still or not (see tombstone.c). A table that is emptied goes on under a
 * new number. Guarantee: no number is given out twice. */
#include "internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"

void table_counters(const struct store_table *table, int64_t counters[COUNTERS])
{
    const int64_t values[COUNTERS] = {
        table->inserts,          table->samples,         table->deletes,
        table->episodes_deleted, table->unique_samples,  (int64_t)table->rng[0],
        (int64_t)table->rng[1],  (int64_t)table->rng[2], (int64_t)table->rng[3]};
    memcpy(counters, values, sizeof values);
}

void table_set_counters(struct store_table *table, const int64_t counters[COUNTERS])
{
    table->inserts = counters[0];
    table->samples = counters[1];
    table->deletes = counters[2];
    table->episodes_deleted = counters[3];
    table->unique_samples = counters[4];
    for (unsigned i = 0; i < 4; i++)
        table->rng[i] = (uint64_t)counters[COUNTERS_SIGNED + i];
}

const struct store_table *store_tables(const struct store *store, size_t *count)
{
    *count = store->tables.count;
    return store->tables.at;
}

struct store_table *table_find_id(struct store *store, uint64_t id, size_t *index)
{
    for (size_t at = 0; at < store->tables.count; at++) {
        if (store->tables.at[at].id == id) {
            if (index)
                *index = at;
            return &store->tables.at[at];
        }
    }
    return NULL;
}

static trp_bytes signature_copy(trp_bytes bytes)
{
    if (bytes.size == 0)
        return (trp_bytes){0};
    uint8_t *copy = xmalloc(bytes.size);
    memcpy(copy, bytes.data, bytes.size);
    return (trp_bytes){copy, bytes.size};
}

/* Takes `name`. */
static size_t table_add(struct store *store, uint32_t id, char *name)
{
    size_t index = store->tables.count++;
    store->tables.at = xrealloc(store->tables.at, store->tables.count * sizeof *store->tables.at);
    store->tables.extras =
        xrealloc(store->tables.extras, store->tables.count * sizeof *store->tables.extras);
    store->tables.at[index] = (struct store_table){.id = id};
    store->tables.extras[index] = (struct stored_table){.name = name};
    return index;
}

uint32_t store_table_put(struct store *store, const char *name, const char *options,
                         trp_bytes signature)
{
    assert(!store->options.read_only);
    size_t index = 0;
    while (index < store->tables.count && strcmp(store->tables.extras[index].name, name) != 0)
        index++;
    if (index == store->tables.count)
        table_add(store, store->tables.next_id++, xstrdup(name));
    struct store_table *table = &store->tables.at[index];
    char *line = xstrdup(options);
    trp_bytes copy = signature_copy(signature);
    free(table->options);
    free((void *)table->signature.data);
    table->options = line;
    table->signature = copy;
    store->tables.extras[index].changed = true;
    store->group.tables_changed = true;
    return table->id;
}

void store_table_given(struct store *store, uint32_t id, const char *given)
{
    size_t index;
    struct store_table *table = table_find_id(store, id, &index);
    assert(table);
    char *copy = xstrdup(given);
    free(table->given);
    table->given = copy;
    store->tables.extras[index].changed = true;
    store->group.tables_changed = true;
}

uint32_t store_table_renew(struct store *store, uint32_t id)
{
    size_t index;
    struct store_table *table = table_find_id(store, id, &index);
    struct stored_table *extra = &store->tables.extras[index];
    assert(table);
    tombstone_add(store, id);
    table->id = store->tables.next_id++;
    memset(extra->logged, 0, sizeof extra->logged);
    extra->changed = true;
    store->group.tables_changed = true;
    return table->id;
}

static void table_free(struct store *store, size_t index)
{
    free(store->tables.at[index].options);
    free(store->tables.at[index].given);
    free((void *)store->tables.at[index].signature.data);
    free(store->tables.extras[index].name);
}

void store_table_drop(struct store *store, uint32_t id)
{
    size_t index;
    struct store_table *table = table_find_id(store, id, &index);
    assert(table);
    table_free(store, index);
    size_t behind = --store->tables.count - index;
    memmove(table, table + 1, behind * sizeof *table);
    memmove(&store->tables.extras[index], &store->tables.extras[index + 1],
            behind * sizeof *store->tables.extras);
    tombstone_add(store, id);
    store->group.tables_changed = true;
}

void tables_free(struct store *store)
{
    for (size_t index = 0; index < store->tables.count; index++)
        table_free(store, index);
    free(store->tables.at);
    free(store->tables.extras);
    tombstones_cleanup(store);
}

/* ---- in the file ---------------------------------------------------------------------------- */

static int table_put(struct store *store, MDB_txn *txn, size_t index)
{
    const struct store_table *table = &store->tables.at[index];
    const char *name = store->tables.extras[index].name;
    struct table_view view = {
        .name = {(const uint8_t *)name, strlen(name)},
        .options = {(const uint8_t *)table->options, strlen(table->options)},
        .signature = table->signature,
        .given = {(const uint8_t *)table->given, table->given ? strlen(table->given) : 0},
    };
    return table_record_put(store, txn, table->id, &view);
}

int tables_put(struct store *store, MDB_txn *txn)
{
    int rc = 0;
    for (size_t index = 0; rc == 0 && index < store->tables.count; index++) {
        if (store->tables.extras[index].changed)
            rc = table_put(store, txn, index);
        store->tables.extras[index].changed = false;
    }
    return rc == 0 ? tombstones_put(store, txn) : rc;
}

int counters_put(struct store *store, MDB_txn *txn)
{
    int rc = 0;
    for (size_t index = 0; rc == 0 && index < store->tables.count; index++) {
        uint64_t number = META_COUNTERS_KEY + store->tables.at[index].id;
        uint8_t record[COUNTERS_BYTES];
        counters_encode(record, store->tables.extras[index].logged);
        MDB_val key = lmdb_key(&number), data = {sizeof record, record};
        rc = mdb_put(txn, store->trees[TREE_META], &key, &data, 0);
    }
    return rc;
}
