/* The change log: what happened to items after they were written. A group appends a few
 * sequential bytes instead of copying a leaf per item; open replays all of it. Compacting writes a
 * prefix of it into the records in the order of their keys, so that changes of one leaf share its
 * copy, in small transactions; the last one removes the prefix. A crash between them repeats work
 * and nothing else: every change says what is, not what is different. */
#include "internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"

enum {
    FOLD_CHANGES = 1 << 17, /* 2 MiB, sorted in about 2 ms */
    FOLD_PARTS = 4096,
    BUDGET_MIN = 16,  /* pages: below, a step mostly copies its paths */
    ADVANCES_MAX = 2, /* transactions until what one gave back can be taken */
    STEP_QUOTA = 256, /* about 0.3 ms */
};

int log_append(struct store *store, MDB_txn *txn, trp_bytes changes)
{
    const size_t part_bytes = CHANGES_PER_PART * sizeof(struct change);
    for (size_t offset = 0; offset < changes.size; offset += part_bytes) {
        size_t left = changes.size - offset;
        uint64_t number = store->log.next++;
        trp_bytes part = {changes.data + offset, left < part_bytes ? left : part_bytes};
        MDB_val key = lmdb_key(&number), data = {part.size + SUM_BYTES, NULL};
        int rc = mdb_put(txn, store->trees[TREE_CHANGES], &key, &data, MDB_APPEND | MDB_RESERVE);
        if (rc != 0)
            return rc;
        records_encode(data.mv_data, part);
        store->log.changes += part.size / sizeof(struct change);
    }
    return 0;
}

trp_status log_read(struct store *store, size_t count, size_t part_count, struct buffer *changes,
                    uint64_t *last_part)
{
    TRP_TRY(lmdb_read_begin(store));
    MDB_cursor *cursor;
    MDB_val key, data;
    int rc = mdb_cursor_open(store->read_txn, store->trees[TREE_CHANGES], &cursor);
    if (rc != 0)
        return lmdb_fail(store, rc, "read the change log");
    trp_status status = TRP_OK;
    size_t parts = 0;
    rc = mdb_cursor_get(cursor, &key, &data, MDB_FIRST);
    while (rc == 0 && parts < part_count && changes->size / sizeof(struct change) < count) {
        *last_part = lmdb_key_read(key);
        if (!changes_decode((trp_bytes){data.mv_data, data.mv_size}, changes)) {
            status = record_lost(store, "the change log's part", *last_part);
            break;
        }
        parts++;
        rc = mdb_cursor_get(cursor, &key, &data, MDB_NEXT);
    }
    mdb_cursor_close(cursor);
    if (status == TRP_OK && rc != 0 && rc != MDB_NOTFOUND)
        status = lmdb_fail(store, rc, "read the change log");
    return status;
}

void compaction_sort(struct compaction *compaction, const struct buffer *changes,
                     struct buffer *scratch)
{
    const struct change *all = (const struct change *)(const void *)changes->data;
    size_t count = changes->size / sizeof *all;
    compaction->updates = xmalloc((count + 1) * sizeof *all);
    compaction->deletes = xmalloc((count + 1) * sizeof *all);
    compaction->update_count = compaction->delete_count = compaction->next =
        compaction->next_delete = 0;
    for (size_t index = 0; index < count; index++) {
        if (change_op(all[index]) == CHANGE_DELETE)
            compaction->deletes[compaction->delete_count++] = all[index];
        else if (change_op(all[index]) != CHANGE_COUNTER)
            compaction->updates[compaction->update_count++] = all[index];
    }
    buffer_clear(scratch);
    buffer_reserve(scratch, count * sizeof *all);
    changes_sort(compaction->updates, (struct change *)(void *)scratch->data,
                 compaction->update_count);
    compaction->delete_count = runs_merge(compaction->deletes, compaction->delete_count, scratch);
}

bool compaction_deletes(struct compaction *compaction, uint64_t seq)
{
    size_t *next = &compaction->next_delete;
    while (*next < compaction->delete_count &&
           change_seq(compaction->deletes[*next]) + compaction->deletes[*next].value <= seq)
        ++*next;
    return *next < compaction->delete_count && change_seq(compaction->deletes[*next]) <= seq;
}

/* The first update of an item, or of one behind it. Most ask in ascending order. */
static size_t update_first(const struct compaction *compaction, uint64_t seq)
{
    size_t low = 0, high = compaction->update_count, next = compaction->next;
    if ((next == 0 || change_seq(compaction->updates[next - 1]) < seq) &&
        (next == high || change_seq(compaction->updates[next]) >= seq))
        return next;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (change_seq(compaction->updates[middle]) < seq)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void change_apply(struct change change, struct item_record *record)
{
    if (change_op(change) == CHANGE_PRIORITY)
        memcpy(&record->priority, &change.value, sizeof record->priority);
    else
        record->times_sampled = (int32_t)change.value;
}

void compaction_apply(struct compaction *compaction, uint64_t seq, struct item_record *record)
{
    size_t next = update_first(compaction, seq);
    for (; next < compaction->update_count && change_seq(compaction->updates[next]) == seq; next++)
        change_apply(compaction->updates[next], record);
    compaction->next = next;
}

void compaction_cleanup(struct compaction *compaction)
{
    free(compaction->updates);
    free(compaction->deletes);
    *compaction = (struct compaction){0};
}

trp_status compaction_begin(struct store *store)
{
    struct compaction *compaction = &store->log.compaction;
    if (compaction->active)
        return TRP_OK;
    struct buffer changes = {0};
    trp_status status = log_read(store, FOLD_CHANGES, FOLD_PARTS, &changes, &compaction->last_part);
    if (status == TRP_OK && changes.size > 0) {
        compaction_sort(compaction, &changes, &store->scratch);
        compaction->active = true;
    }
    buffer_cleanup(&changes);
    return status;
}

/* ---- a step --------------------------------------------------------------------------------- */

/* Applies the updates of one item, [update, end). *place: where its record lies now. */
static int compact_item(MDB_cursor *cursor, const struct change *update, const struct change *end,
                        const void **place)
{
    uint64_t seq = change_seq(*update), number = piece_key(seq, 0);
    uint8_t part[PIECE_BYTES];
    MDB_val key = lmdb_key(&number), data;
    int rc = mdb_cursor_get(cursor, &key, &data, MDB_SET_KEY);
    if (rc == MDB_NOTFOUND)
        return 0; /* deleted */
    if (rc != 0)
        return rc;
    struct item_record header;
    if (data.mv_size < sizeof header || data.mv_size > sizeof part)
        return MDB_CORRUPTED;
    memcpy(part, data.mv_data, data.mv_size);
    memcpy(&header, part, sizeof header);
    if (!item_state_valid(&header, seq))
        return 0; /* a new sum would make it look whole */
    for (; update < end; update++)
        change_apply(*update, &header);
    header.state_sum = item_state_sum(&header, seq);
    memcpy(part, &header, sizeof header);
    data.mv_data = part;
    rc = mdb_cursor_put(cursor, &key, &data, MDB_CURRENT);
    if (rc == 0)
        rc = mdb_cursor_get(cursor, &key, &data, MDB_GET_CURRENT);
    *place = data.mv_data;
    return rc;
}

static int compact_updates(struct store *store, MDB_cursor *cursor, uint64_t *quota,
                           struct budget *budget)
{
    enum { UPDATES_PER_QUOTA = 16 }; /* in a leaf that is copied already */
    struct compaction *compaction = &store->log.compaction;
    const uint64_t price = store->pages.account.items_depth + 1;
    const void *place = NULL;
    uintptr_t before = 0; /* leaf, whose copy is paid for */
    int rc = 0;
    for (unsigned done = 1; rc == 0 && compaction->next < compaction->update_count; done++) {
        const struct change *update = &compaction->updates[compaction->next];
        if (*quota == 0 || budget->pages < price || budget->frees < price)
            break;
        size_t end = compaction->next + 1;
        while (end < compaction->update_count &&
               change_seq(compaction->updates[end]) == change_seq(*update))
            end++;
        rc = compact_item(cursor, update, &compaction->updates[end], &place);
        uintptr_t leaf = (uintptr_t)place & ~(store->page_bytes - 1);
        compaction->next = end;
        if (leaf != before || done % UPDATES_PER_QUOTA == 0)
            --*quota;
        if (leaf != before)
            budget_take(budget, price);
        before = leaf;
    }
    return rc;
}

/* Removes the prefix, oldest part first, while the budget lasts. What it said of counters goes
 * where it cannot be lost before. */
static int compaction_finish(struct store *store, MDB_txn *txn, struct budget *budget)
{
    enum { PARTS_PER_LEAF = 64 }; /* at least */
    MDB_cursor *cursor;
    MDB_val key, data;
    bool more = true;
    int rc = counters_put(store, txn);
    if (rc == 0)
        rc = mdb_cursor_open(txn, store->trees[TREE_CHANGES], &cursor);
    if (rc != 0)
        return rc;
    for (unsigned done = 0; rc == 0; done++) {
        rc = mdb_cursor_get(cursor, &key, &data, MDB_FIRST);
        more = rc == 0 && lmdb_key_read(key) <= store->log.compaction.last_part;
        if (!more || budget->frees < 2 || (done % PARTS_PER_LEAF == 0 && !budget_take(budget, 2)))
            break;
        store->log.changes -= data.mv_size / sizeof(struct change);
        store->log.progress++;
        budget->frees--;
        rc = mdb_cursor_del(cursor, 0);
    }
    mdb_cursor_close(cursor);
    if (!more)
        compaction_cleanup(&store->log.compaction);
    return rc == MDB_NOTFOUND ? 0 : rc;
}

int compaction_step(struct store *store, MDB_txn *txn, uint64_t quota, struct budget *budget)
{
    struct compaction *compaction = &store->log.compaction;
    if (!compaction->active)
        return 0;
    MDB_cursor *cursor;
    int rc = mdb_cursor_open(txn, store->trees[TREE_ITEMS], &cursor);
    if (rc != 0)
        return rc;
    uint64_t before = quota;
    rc = runs_remove(store, cursor, compaction->deletes, &compaction->delete_count, &quota, budget);
    if (rc == 0)
        rc = compact_updates(store, cursor, &quota, budget);
    mdb_cursor_close(cursor);
    store->log.progress += before - quota;
    if (rc == 0 && compaction->next == compaction->update_count && compaction->delete_count == 0)
        rc = compaction_finish(store, txn, budget);
    return rc;
}

/* ---- between groups ------------------------------------------------------------------------- */

/* Room that other transactions cannot have taken: see group.c. */
static bool compaction_room(struct store *store, struct budget *budget)
{
    const uint64_t least = store->pages.account.items_depth + 2;
    *budget = pages_budget(&store->pages, store->pages.account.compaction);
    for (unsigned advance = 0; budget->pages < BUDGET_MIN && advance < ADVANCES_MAX; advance++) {
        if (!lmdb_advance(store))
            break;
        *budget = pages_budget(&store->pages, store->pages.account.compaction);
    }
    return budget->pages >= least && budget->frees >= least;
}

static int compaction_step_alone(struct store *store, MDB_txn *txn, void *budget)
{
    return compaction_step(store, txn, STEP_QUOTA, budget);
}

bool compaction_work(struct store *store)
{
    uint64_t progress = store->log.progress;
    struct budget budget;
    if (!compaction_room(store, &budget))
        return false;
    trp_status status = compaction_begin(store);
    if (status != TRP_OK || !store->log.compaction.active) {
        if (status != TRP_OK)
            store_break(store, status);
        return false;
    }
    status = store_transact(store, "compaction the change log", compaction_step_alone, &budget);
    return status == TRP_OK && store->log.progress != progress;
}
