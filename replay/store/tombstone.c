/* Problem: a table that is emptied or dropped may have tens of millions of items, and to take their
 * records out takes minutes, during which everybody would wait; but whoever is told that they are
 * gone must not see them again, also after a crash.
 * Design: a record without a name says that all items with its table's number are gone. It stays
 * until they are: their owner deletes them a few at a time, and then the record. Items that a crash
 * leaves of them are found when the store is opened, as runs of seqs between items that live, and
 * removed in slices between groups. Their chunks need no care: one that no living item has is an
 * orphan. Guarantee: after the commit of the mark no such item is loaded or copied, and the record
 * does not go before the last of them. */
#include "internal.h"

#include <assert.h>
#include <stdlib.h>

#include "core/alloc.h"
#include "core/array.h"

enum {
    BUDGET_MIN = 16,   /* pages: below, a step would only copy its paths */
    SLICE_QUOTA = 512, /* items, about 0.3 ms */
};

static struct tombstone *tombstone_find(const struct store *store, uint64_t table_id)
{
    for (size_t at = 0; at < store->tombstones.count; at++)
        if (store->tombstones.at[at].id == table_id)
            return &store->tombstones.at[at];
    return NULL;
}

struct tombstone *tombstone_add(struct store *store, uint32_t table_id)
{
    struct tombstones *all = &store->tombstones;
    struct tombstone *tombstone = ARRAY_PUSH(all->at, all->count, all->capacity);
    *tombstone = (struct tombstone){.id = table_id};
    return tombstone;
}

bool tombstone_has(const struct store *store, uint64_t table_id)
{
    return store->tombstones.count > 0 && tombstone_find(store, table_id);
}

void store_table_end(struct store *store, uint32_t id)
{
    struct tombstone *tombstone = tombstone_find(store, id);
    assert(tombstone);
    tombstone->ended = true;
    store->group.tables_changed = true;
}

void tombstones_leave(struct store *store)
{
    for (size_t at = 0; at < store->tombstones.count; at++)
        store->tombstones.at[at].found = false;
    buffer_cleanup(&store->tombstones.runs);
}

void tombstones_cleanup(struct store *store)
{
    free(store->tombstones.at);
    buffer_cleanup(&store->tombstones.runs);
}

/* ---- in the file ---------------------------------------------------------------------------- */

trp_status table_record_put(struct store *store, uint32_t id, const struct table_view *view)
{
    struct buffer *record = &store->scratch;
    /* Parts of a longer predecessor must not stay. */
    struct change old = change_make(CHANGE_DELETE, id, 1);
    uint64_t quota = UINT64_MAX;
    struct cursor tables;
    TRP_TRY(cursor_open(store, TREE_TABLES, &tables));
    TRP_TRY(items_remove(&tables, &old, &quota));
    if (!view)
        return TRP_OK;
    buffer_clear(record);
    table_record_encode(record, view);
    return cursor_put_parts(&tables, id, buffer_bytes(record), 0);
}

static trp_status tombstone_erase(struct store *store, uint32_t id)
{
    struct cursor meta;
    TRP_TRY(cursor_open(store, TREE_META, &meta));
    TRP_TRY(cursor_seek(&meta, MDB_SET_KEY, META_COUNTERS_KEY + id));
    if (meta.there)
        TRP_TRY(cursor_delete(&meta));
    return table_record_put(store, id, NULL);
}

trp_status tombstones_put(struct store *store)
{
    static const struct table_view nameless;
    size_t kept = 0;
    for (size_t at = 0; at < store->tombstones.count; at++) {
        struct tombstone tombstone = store->tombstones.at[at];
        if (tombstone.ended) {
            TRP_TRY(tombstone_erase(store, tombstone.id));
            continue;
        }
        if (!tombstone.marked)
            TRP_TRY(table_record_put(store, tombstone.id, &nameless));
        tombstone.marked = true;
        store->tombstones.at[kept++] = tombstone;
    }
    store->tombstones.count = kept;
    return TRP_OK;
}

/* ---- what a crash left ---------------------------------------------------------------------- */

/* A run goes on over whatever lies between its items, if nothing of that lives. */
void tombstone_see(struct store *store, uint64_t seq, bool lives)
{
    struct buffer *runs = &store->tombstones.runs;
    if (lives || store->options.read_only) {
        store->tombstones.run_open = false;
        return;
    }
    if (!store->tombstones.run_open) {
        struct change *run = buffer_push(runs, sizeof *run);
        *run = change_make(CHANGE_DELETE, seq, 1);
        store->tombstones.run_open = true;
        return;
    }
    struct change *last = (struct change *)(void *)(runs->data + runs->size) - 1;
    last->value = seq - change_seq(*last) + 1;
}

/* A slice of the runs, from the last one on; then the records of their tables. */
static trp_status tombstones_step(struct store *store, void *budget)
{
    struct buffer *runs = &store->tombstones.runs;
    size_t count = runs->size / sizeof(struct change);
    uint64_t quota = SLICE_QUOTA;
    TRP_TRY(runs_remove(store, (struct change *)(void *)runs->data, &count, &quota, budget));
    runs->size = count * sizeof(struct change);
    if (count > 0)
        return TRP_OK;
    buffer_cleanup(runs);
    for (size_t at = 0; at < store->tombstones.count; at++)
        store->tombstones.at[at].ended |= store->tombstones.at[at].found;
    return tombstones_put(store);
}

static bool tombstones_left(const struct store *store)
{
    bool found = false;
    for (size_t at = 0; at < store->tombstones.count; at++)
        found |= store->tombstones.at[at].found;
    return found;
}

bool tombstones_work(struct store *store)
{
    struct budget budget = pages_budget(&store->pages, store->pages.account.fixed);
    if (!tombstones_left(store) || budget.pages < BUDGET_MIN || budget.frees < BUDGET_MIN)
        return false;
    return store_transact(store, tombstones_step, &budget) == TRP_OK;
}
