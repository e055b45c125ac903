/* Problem: a writer that lost its connection sends again what was not confirmed to it, and what was
 * inserted and consumed meanwhile must not come twice, also when the server was killed in between.
 * Design: the keys of what leaves a table are written with the group in which it leaves, one value
 * a group, in ascending numbers; a group also takes out the oldest values while there are too many
 * keys or they are too old.
 * Guarantee: after a commit the keys of its group are there for REMOVED_KEYS_MS, or until
 * REMOVED_KEYS_MAX others came. */
#include "internal.h"
#include "limits.h"

#include <string.h>

enum {
    RECORDS_MAX = (PIECE_BYTES - SUM_BYTES) / sizeof(struct removed_record),
    TRIMS_MIN = 16,
    TRIM_FREES = 2, /* pages that a value gives back: its own, and half a leaf */
};

static uint64_t records_in(size_t bytes)
{
    return bytes / sizeof(struct removed_record);
}

void store_removed_note(struct store *store, const struct store_removed *removed)
{
    struct removed_record *record = buffer_push(&store->group.removed, sizeof *record);
    *record = (struct removed_record){.key = removed->key,
                                      .at_ns = removed->at_ns,
                                      .table_id = removed->table_id,
                                      .print = removed->print};
}

/* A small store has no room for all of them. */
static uint64_t records_max(const struct store *store)
{
    uint64_t share = store->pages.limit / 16, pages = 2 * store->pages.reserve;
    uint64_t most = (share < pages ? share : pages) * RECORDS_MAX;
    return most < REMOVED_KEYS_MAX ? most : REMOVED_KEYS_MAX;
}

/* And one that is short of room has none for more than are there: they would take the reserve. */
static uint64_t records_max_now(const struct store *store)
{
    uint64_t most = records_max(store);
    bool short_of_room = pages_free(&store->pages) < store->pages.reserve + 2 * store->pages.part;
    return short_of_room && store->removed.count < most ? store->removed.count : most;
}

static int removed_append(struct store *store, MDB_cursor *cursor, size_t bytes)
{
    const struct buffer *records = &store->group.removed;
    struct removed_record newest;
    int rc = 0;
    memcpy(&newest, records->data + bytes - sizeof newest, sizeof newest);
    store->removed.newest_ns = newest.at_ns;
    for (size_t at = 0; rc == 0 && at < bytes;) {
        size_t size = bytes - at;
        if (size > RECORDS_MAX * sizeof(struct removed_record))
            size = RECORDS_MAX * sizeof(struct removed_record);
        uint64_t number = store->removed.next++;
        MDB_val key = lmdb_key(&number), data = {size + SUM_BYTES, NULL};
        rc = mdb_cursor_put(cursor, &key, &data, MDB_APPEND | MDB_RESERVE);
        if (rc == 0)
            records_encode(data.mv_data, (trp_bytes){records->data + at, size});
        store->removed.count += records_in(size);
        at += size;
    }
    return rc;
}

/* Is what lies in `data`, the oldest value, to go? */
static bool removed_over(const struct store *store, MDB_val data, uint64_t most)
{
    struct removed_record oldest;
    if (store->removed.count > most || data.mv_size < sizeof oldest)
        return true;
    size_t last = records_in(data.mv_size) - 1;
    memcpy(&oldest, (uint8_t *)data.mv_data + last * sizeof oldest, sizeof oldest);
    return store->removed.newest_ns - oldest.at_ns > REMOVED_KEYS_MS * INT64_C(1000000);
}

/* Takes out up to `trims` values. They lie side by side: a leaf is copied once, and given back when
 * it is empty, so that no more pages are taken than for the path to the first. */
static int removed_trim(struct store *store, MDB_cursor *cursor, uint64_t trims, uint64_t most,
                        struct budget *budget)
{
    MDB_val key, data;
    int rc = 0;
    for (; rc == 0 && trims > 0; trims--) {
        rc = mdb_cursor_get(cursor, &key, &data, MDB_FIRST);
        if (rc != 0 || !removed_over(store, data, most) || budget->frees < TRIM_FREES)
            break;
        budget->frees -= TRIM_FREES;
        store->removed.count -= records_in(data.mv_size);
        rc = mdb_cursor_del(cursor, 0);
    }
    return rc == MDB_NOTFOUND ? 0 : rc;
}

/* Twice as many values go as come, so that their number falls back to its bound. */
int removed_put(struct store *store, MDB_txn *txn, size_t bytes, struct budget *budget)
{
    MDB_cursor *cursor;
    uint64_t most = records_max_now(store);
    uint64_t trims = 2 * (records_in(bytes) / RECORDS_MAX + 1);
    int rc = mdb_cursor_open(txn, store->trees[TREE_REMOVED], &cursor);
    if (rc != 0)
        return rc;
    rc = removed_append(store, cursor, bytes);
    if (rc == 0)
        rc = removed_trim(store, cursor, trims > TRIMS_MIN ? trims : TRIMS_MIN, most, budget);
    mdb_cursor_close(cursor);
    return rc;
}

struct trim {
    uint64_t most;
    struct budget *budget;
};

static int removed_step(struct store *store, MDB_txn *txn, void *arg)
{
    const struct trim *trim = arg;
    MDB_cursor *cursor;
    int rc = mdb_cursor_open(txn, store->trees[TREE_REMOVED], &cursor);
    if (rc != 0)
        return rc;
    rc = removed_trim(store, cursor, UINT64_MAX, trim->most, trim->budget);
    mdb_cursor_close(cursor);
    return rc;
}

bool removed_work(struct store *store, bool give_up)
{
    struct budget budget = pages_budget(&store->pages, store->pages.account.compaction);
    uint64_t before = store->removed.count, most = give_up ? before / 2 : records_max(store);
    struct trim trim = {most, &budget};
    return before > most && budget.pages > 0 &&
           store_transact(store, "remove keys", removed_step, &trim) == TRP_OK &&
           store->removed.count < before;
}

/* What is no record that was written is passed over: a key that is not known is inserted. */
static void removed_visit(MDB_val data, store_removed_visit visit, void *arg)
{
    trp_bytes records;
    if (!records_decode((trp_bytes){data.mv_data, data.mv_size}, sizeof(struct removed_record),
                        &records))
        return;
    for (size_t at = 0; at < records.size; at += sizeof(struct removed_record)) {
        struct removed_record record;
        memcpy(&record, records.data + at, sizeof record);
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
        store->removed.count += records_in(data.mv_size);
        removed_visit(data, visit, arg);
    }
    mdb_cursor_close(cursor);
    return rc == MDB_NOTFOUND ? TRP_OK : lmdb_fail(store, rc, "read removed keys");
}
