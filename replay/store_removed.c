/* Problem: a writer that lost its connection sends again what was not confirmed to it, and what was
 * inserted and consumed meanwhile must not come twice, also when the server was killed in between.
 * Design: the keys of what leaves a table are written with the group in which it leaves, one value
 * a group, in ascending numbers; a group also takes out the oldest values while there are too many
 * keys or they are too old.
 * Guarantee: after a commit the keys of its group are there for REMOVED_KEYS_MS, or until
 * REMOVED_KEYS_MAX others came. */
#include "store_internal.h"

#include <string.h>

enum { RECORDS_MAX = PIECE_BYTES / sizeof(struct removed_record), TRIMS_MAX = 16 };

void store_removed_note(struct store *store, const struct store_removed *removed)
{
    struct removed_record *record = buffer_push(&store->group.removed, sizeof *record);
    *record = (struct removed_record){.key = removed->key,
                                      .at_ns = removed->at_ns,
                                      .table_id = removed->table_id,
                                      .print = removed->print};
}

static int removed_append(struct store *store, MDB_cursor *cursor)
{
    const struct buffer *records = &store->group.removed;
    int rc = 0;
    for (size_t at = 0; rc == 0 && at < records->size;) {
        size_t size = records->size - at;
        if (size > RECORDS_MAX * sizeof(struct removed_record))
            size = RECORDS_MAX * sizeof(struct removed_record);
        uint64_t number = store->next_removed++;
        MDB_val key = lmdb_key(&number), data = {size, records->data + at};
        rc = mdb_cursor_put(cursor, &key, &data, MDB_APPEND);
        store->removed_count += size / sizeof(struct removed_record);
        at += size;
    }
    return rc;
}

/* Is what lies in `data`, the oldest value, to go? */
static bool removed_over(const struct store *store, MDB_val data)
{
    struct removed_record oldest, newest;
    const struct buffer *records = &store->group.removed;
    if (store->removed_count > REMOVED_KEYS_MAX || data.mv_size < sizeof oldest)
        return true;
    memcpy(&oldest, (uint8_t *)data.mv_data + data.mv_size - sizeof oldest, sizeof oldest);
    memcpy(&newest, records->data + records->size - sizeof newest, sizeof newest);
    return newest.at_ns - oldest.at_ns > REMOVED_KEYS_MS * INT64_C(1000000) &&
           store->removed_count > records->size / sizeof newest;
}

static int removed_trim(struct store *store, MDB_cursor *cursor, struct budget *budget)
{
    MDB_val key, data;
    int rc = 0;
    for (unsigned done = 0; rc == 0 && done < TRIMS_MAX; done++) {
        rc = mdb_cursor_get(cursor, &key, &data, MDB_FIRST);
        if (rc != 0 || !removed_over(store, data) || !budget_take(budget, 4))
            break;
        store->removed_count -= data.mv_size / sizeof(struct removed_record);
        rc = mdb_cursor_del(cursor, 0);
    }
    return rc == MDB_NOTFOUND ? 0 : rc;
}

int removed_put(struct store *store, MDB_txn *txn, struct budget *budget)
{
    MDB_cursor *cursor;
    int rc = mdb_cursor_open(txn, store->trees[TREE_REMOVED], &cursor);
    if (rc != 0)
        return rc;
    rc = removed_append(store, cursor);
    if (rc == 0)
        rc = removed_trim(store, cursor, budget);
    mdb_cursor_close(cursor);
    return rc;
}

/* What is no record that was written is passed over: a key that is not known is inserted. */
static void removed_visit(MDB_val data, store_removed_visit visit, void *arg)
{
    for (size_t at = 0; at + sizeof(struct removed_record) <= data.mv_size;
         at += sizeof(struct removed_record)) {
        struct removed_record record;
        memcpy(&record, (uint8_t *)data.mv_data + at, sizeof record);
        visit(arg, &(struct store_removed){.key = record.key,
                                           .at_ns = record.at_ns,
                                           .table_id = record.table_id,
                                           .print = record.print});
    }
}

trp_status store_removed_load(struct store *store, store_removed_visit visit, void *arg)
{
    MDB_cursor *cursor;
    MDB_val key, data;
    if (!store->has_trees)
        return TRP_OK;
    TRP_TRY(lmdb_read_begin(store));
    int rc = mdb_cursor_open(store->read_txn, store->trees[TREE_REMOVED], &cursor);
    if (rc != 0)
        return lmdb_fail(store, rc, "read removed keys");
    rc = mdb_cursor_get(cursor, &key, &data, MDB_FIRST);
    for (; rc == 0; rc = mdb_cursor_get(cursor, &key, &data, MDB_NEXT)) {
        store->removed_count += data.mv_size / sizeof(struct removed_record);
        removed_visit(data, visit, arg);
    }
    mdb_cursor_close(cursor);
    return rc == MDB_NOTFOUND ? TRP_OK : lmdb_fail(store, rc, "read removed keys");
}
