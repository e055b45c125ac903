/* Problem: a writer that lost its connection sends again what was not confirmed to it, and what was
 * inserted and consumed meanwhile must not come twice, also when the server was killed in between.
 * Design: the keys of what leaves a table are written with the group in which it leaves, one value
 * a group, in ascending numbers; a group also takes out the oldest values while there are too many
 * keys or they are too old.
 * Guarantee: after a commit the keys of its group are there for REMOVED_KEYS_MS, or until
 * REMOVED_KEYS_MAX others came. */
#include "internal.h"

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

void store_removed_note(struct store *store, const struct removed_record *removed)
{
    buffer_append(&store->group.removed, span_of(removed, sizeof *removed));
}

/* A small store has no room for all of them. */
static uint64_t records_max(const struct store *store)
{
    uint64_t most = store->pages.share * RECORDS_MAX;
    return most < REMOVED_KEYS_MAX ? most : REMOVED_KEYS_MAX;
}

/* And one that is short of room has none for more than are there: they would take the reserve. */
static uint64_t records_max_now(const struct store *store)
{
    uint64_t most = records_max(store);
    bool short_of_room =
        pages_free(&store->pages) < pages_reserve(&store->pages, 0) + 2 * pages_part(&store->pages);
    return short_of_room && store->removed.count < most ? store->removed.count : most;
}

/* Is the oldest value to go? */
static bool removed_over(const struct store *store, trp_bytes value)
{
    struct removed_record oldest;
    if (store->removed.count > store->removed.most || value.size < sizeof oldest)
        return true;
    size_t last = records_in(value.size) - 1;
    memcpy(&oldest, value.data + last * sizeof oldest, sizeof oldest);
    return store->removed.newest_ns - oldest.at_ns > REMOVED_KEYS_MS * INT64_C(1000000);
}

/* Takes out up to `trims` values. They lie side by side: a leaf is copied once, and given back when
 * it is empty, so that no more pages are taken than for the path to the first. */
static trp_status removed_trim(struct cursor *keys, uint64_t trims, struct budget *budget)
{
    struct store *store = keys->store;
    for (; trims > 0; trims--) {
        TRP_TRY(cursor_move(keys, MDB_FIRST));
        if (!keys->there || !removed_over(store, keys->value) || budget->frees < TRIM_FREES)
            break;
        budget->frees -= TRIM_FREES;
        store->removed.count -= records_in(keys->value.size);
        TRP_TRY(cursor_delete(keys));
    }
    return TRP_OK;
}

/* Twice as many values go as come, so that their number falls back to its bound. */
trp_status removed_put(struct store *store, size_t bytes, struct budget *budget)
{
    struct cursor keys;
    struct removed_record newest;
    const uint8_t *records = store->group.removed.data;
    uint64_t trims = 2 * (records_in(bytes) / RECORDS_MAX + 1);
    store->removed.most = records_max_now(store);
    memcpy(&newest, records + bytes - sizeof newest, sizeof newest);
    store->removed.newest_ns = newest.at_ns;
    store->removed.count += records_in(bytes);
    TRP_TRY(cursor_open(store, TREE_REMOVED, &keys));
    TRP_TRY(cursor_append_records(&keys, &store->removed.next, (trp_bytes){records, bytes},
                                  RECORDS_MAX * sizeof newest));
    return removed_trim(&keys, trims > TRIMS_MIN ? trims : TRIMS_MIN, budget);
}

static trp_status removed_step(struct store *store, void *budget)
{
    struct cursor keys;
    TRP_TRY(cursor_open(store, TREE_REMOVED, &keys));
    return removed_trim(&keys, UINT64_MAX, budget);
}

bool removed_work(struct store *store, bool give_up)
{
    struct budget budget = pages_budget(&store->pages, store->pages.account.compaction);
    uint64_t before = store->removed.count;
    store->removed.most = give_up ? before / 2 : records_max(store);
    return before > store->removed.most && budget.pages > 0 &&
           store_transact(store, removed_step, &budget) == TRP_OK && store->removed.count < before;
}

/* Records that nobody wrote are passed over: a key that is not known is inserted. */
static void removed_visit(trp_bytes value, store_removed_visit visit, void *arg)
{
    trp_bytes records;
    if (!records_decode(value, sizeof(struct removed_record), &records))
        return;
    for (size_t at = 0; at < records.size; at += sizeof(struct removed_record)) {
        struct removed_record record;
        memcpy(&record, records.data + at, sizeof record);
        visit(arg, &record);
    }
}

trp_status store_removed_load(struct store *store, store_removed_visit visit, void *arg)
{
    struct cursor keys;
    if (!store->has_trees)
        return TRP_OK;
    TRP_TRY(cursor_open(store, TREE_REMOVED, &keys));
    TRP_TRY(cursor_move(&keys, MDB_FIRST));
    while (keys.there) {
        store->removed.count += records_in(keys.value.size);
        removed_visit(keys.value, visit, arg);
        TRP_TRY(cursor_move(&keys, MDB_NEXT));
    }
    return TRP_OK;
}
