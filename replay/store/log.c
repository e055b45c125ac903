/* The change log: what happened to items after they were written. A group appends a few
 * sequential bytes instead of copying a leaf per item; open replays all of it. Compacting writes a
 * prefix of it into the records in the order of their keys, so that changes of one leaf share its
 * copy, in small transactions; the last one removes the prefix. A crash between them repeats work
 * and nothing else: every change says what is, not what is different. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"

enum {
    COMPACT_CHANGES = 1 << 17, /* 2 MiB, sorted in about 2 ms */
    COMPACT_PARTS = 4096,
    BUDGET_MIN = 16,  /* pages: below, a step mostly copies its paths */
    ADVANCES_MAX = 2, /* transactions until what one gave back can be taken */
    STEP_QUOTA = 256, /* about 0.3 ms */
};

trp_status log_append(struct store *store, trp_bytes changes)
{
    struct cursor log;
    if (changes.size == 0)
        return TRP_OK;
    TRP_TRY(cursor_open(store, TREE_CHANGES, &log));
    store->log.changes += changes.size / sizeof(struct change);
    return cursor_append_records(&log, &store->log.next, changes,
                                 CHANGES_PER_PART * sizeof(struct change));
}

trp_status log_read(struct store *store, size_t count, size_t part_count, struct buffer *changes,
                    uint64_t *last_part)
{
    struct cursor log;
    TRP_TRY(cursor_open(store, TREE_CHANGES, &log));
    TRP_TRY(cursor_move(&log, MDB_FIRST));
    for (size_t parts = 0; log.there && parts < part_count; parts++) {
        if (changes->size / sizeof(struct change) >= count)
            break;
        *last_part = log.key;
        if (!changes_decode(log.value, changes))
            return record_lost(store, "the change log's part", log.key);
        TRP_TRY(cursor_move(&log, MDB_NEXT));
    }
    return TRP_OK;
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
    while (*next < compaction->delete_count && change_end(compaction->deletes[*next]) <= seq)
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

trp_status compaction_read(struct store *store, size_t count, size_t part_count,
                           struct compaction *compaction)
{
    struct buffer changes = {0};
    trp_status status = log_read(store, count, part_count, &changes, &compaction->last_part);
    compaction->active = status == TRP_OK && changes.size > 0;
    if (compaction->active)
        compaction_sort(compaction, &changes, &store->scratch);
    buffer_cleanup(&changes);
    return status;
}

trp_status compaction_begin(struct store *store)
{
    struct compaction *compaction = &store->log.compaction;
    if (compaction->active)
        return TRP_OK;
    return compaction_read(store, COMPACT_CHANGES, COMPACT_PARTS, compaction);
}

/* ---- a step --------------------------------------------------------------------------------- */

/* Applies the updates of one item, [update, end). *place: where its record lies now. */
static trp_status compact_item(struct cursor *items, const struct change *update,
                               const struct change *end, uint8_t **place)
{
    uint64_t seq = change_seq(*update);
    uint8_t part[PIECE_BYTES];
    struct item_record header;
    TRP_TRY(cursor_seek(items, MDB_SET_KEY, piece_key(seq, 0)));
    if (!items->there)
        return TRP_OK; /* deleted */
    if (items->value.size < sizeof header || items->value.size > sizeof part)
        return TRP_OK; /* damaged */
    memcpy(part, items->value.data, items->value.size);
    memcpy(&header, part, sizeof header);
    if (!item_state_valid(&header, seq))
        return TRP_OK; /* a new sum would make it look whole */
    for (; update < end; update++)
        change_apply(*update, &header);
    header.state_sum = item_state_sum(&header, seq);
    memcpy(part, &header, sizeof header);
    TRP_TRY(cursor_put(items, items->key, items->value.size, MDB_CURRENT, place));
    memcpy(*place, part, items->value.size);
    return TRP_OK;
}

static trp_status compact_updates(struct store *store, uint64_t *quota, struct budget *budget)
{
    enum { UPDATES_PER_QUOTA = 16 }; /* in a leaf that is copied already */
    struct compaction *compaction = &store->log.compaction;
    const uint64_t price = store->pages.account.items_depth + 1;
    uint8_t *place = NULL;
    uintptr_t before = 0; /* leaf, whose copy is paid for */
    struct cursor items;
    TRP_TRY(cursor_open(store, TREE_ITEMS, &items));
    for (unsigned done = 1; compaction->next < compaction->update_count; done++) {
        const struct change *update = &compaction->updates[compaction->next];
        if (*quota == 0 || budget->pages < price || budget->frees < price)
            break;
        size_t end = compaction->next + 1;
        while (end < compaction->update_count &&
               change_seq(compaction->updates[end]) == change_seq(*update))
            end++;
        TRP_TRY(compact_item(&items, update, &compaction->updates[end], &place));
        uintptr_t leaf = (uintptr_t)place & ~(store->page_bytes - 1);
        compaction->next = end;
        if (leaf != before || done % UPDATES_PER_QUOTA == 0)
            --*quota;
        if (leaf != before)
            budget_take(budget, price);
        before = leaf;
    }
    return TRP_OK;
}

/* Removes the prefix, oldest part first, while the budget lasts. Its counters are written where
 * they cannot be lost before. */
static trp_status compaction_finish(struct store *store, struct budget *budget)
{
    enum { PARTS_PER_LEAF = 64 }; /* at least */
    struct cursor log;
    TRP_TRY(counters_put(store));
    TRP_TRY(cursor_open(store, TREE_CHANGES, &log));
    TRP_TRY(cursor_move(&log, MDB_FIRST));
    for (unsigned done = 0; log.there && log.key <= store->log.compaction.last_part; done++) {
        if (budget->frees < 2 || (done % PARTS_PER_LEAF == 0 && !budget_take(budget, 2)))
            return TRP_OK;
        store->log.changes -= log.value.size / sizeof(struct change);
        store->log.progress++;
        budget->frees--;
        TRP_TRY(cursor_delete(&log));
        TRP_TRY(cursor_move(&log, MDB_FIRST));
    }
    compaction_cleanup(&store->log.compaction);
    return TRP_OK;
}

trp_status compaction_step(struct store *store, uint64_t quota, struct budget *budget)
{
    struct compaction *compaction = &store->log.compaction;
    uint64_t before = quota;
    if (!compaction->active)
        return TRP_OK;
    TRP_TRY(runs_remove(store, compaction->deletes, &compaction->delete_count, &quota, budget));
    TRP_TRY(compact_updates(store, &quota, budget));
    store->log.progress += before - quota;
    if (compaction->next < compaction->update_count || compaction->delete_count > 0)
        return TRP_OK;
    return compaction_finish(store, budget);
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

static trp_status compaction_step_alone(struct store *store, void *budget)
{
    return compaction_step(store, STEP_QUOTA, budget);
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
    status = store_transact(store, compaction_step_alone, &budget);
    return status == TRP_OK && store->log.progress != progress;
}
