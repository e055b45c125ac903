/* Physical deletes. From the back of a range to its front: LMDB keeps the newest node of a leaf
 * at the low end of its data, so that taking the last key moves no bytes, and a leaf that falls
 * below a quarter borrows from the leaf that is emptied next. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/array.h"
#include "core/clock.h"

enum {
    /* LMDB looks at each page that it frees: one that is not in memory is waited for. Those that
     * are take a microsecond, so what a group may take keeps up with what it writes. */
    REMOVE_NS = 1000000,
    REMOVE_PAGE_NS = 10000,
    ASKED_CHUNKS = 64,
    ASKED_PIECES = 256, /* of each */
};

void dead_push(struct dead_list *list, struct dead dead)
{
    if (list->count == list->capacity)
        list->at = array_grow(list->at, &list->capacity, sizeof *list->at);
    list->at[list->count++] = dead;
}

size_t runs_merge(struct change *runs, size_t count, struct buffer *scratch)
{
    buffer_clear(scratch);
    buffer_reserve(scratch, count * sizeof *runs);
    changes_sort(runs, (struct change *)(void *)scratch->data, count);
    size_t kept = 0;
    for (size_t index = 0; index < count; index++) {
        struct change *last = kept ? &runs[kept - 1] : NULL;
        uint64_t first = change_seq(runs[index]), end = first + runs[index].value;
        if (last && first <= change_seq(*last) + last->value) {
            if (end > change_seq(*last) + last->value)
                last->value = end - change_seq(*last);
        } else {
            runs[kept++] = runs[index];
        }
    }
    return kept;
}

/* ---- pieces --------------------------------------------------------------------------------- */

/* The cursor on `wanted`; *adjacent: it stands right behind. */
static int piece_seek(MDB_cursor *cursor, uint64_t wanted, bool adjacent)
{
    MDB_val key = {0};
    if (adjacent && mdb_cursor_get(cursor, &key, NULL, MDB_PREV) == 0 &&
        lmdb_key_read(key) == wanted)
        return 0;
    key = lmdb_key(&wanted);
    return mdb_cursor_get(cursor, &key, NULL, MDB_SET);
}

/* Removes pieces from the last one on; stops early, with some left, when the budget ends. */
static int chunk_remove(MDB_cursor *cursor, struct dead *dead, bool adjacent, struct budget *budget)
{
    enum { PIECES_PER_LEAF = 64 }; /* at least */
    for (uint32_t done = 1; dead->pieces > 0; done++, dead->pieces--) {
        if (budget->frees == 0 || (done % PIECES_PER_LEAF == 0 && !budget_take(budget, 1)))
            return 0;
        int rc = piece_seek(cursor, piece_key(dead->seq, dead->pieces - 1), adjacent);
        adjacent = rc == 0;
        if (rc == MDB_NOTFOUND)
            continue; /* an orphan without all of its pieces */
        if (rc == 0)
            rc = mdb_cursor_del(cursor, 0);
        if (rc != 0)
            return rc;
        budget->frees--;
    }
    return 0;
}

/* Asks the disk for a chunk's pages, unless the first one is in memory. */
static void chunk_ask(const struct store *store, MDB_cursor *cursor, const struct dead *dead)
{
    uint64_t number = piece_key(dead->seq, 0), first = 0, count = 0, page;
    MDB_val key = lmdb_key(&number), data;
    int rc = mdb_cursor_get(cursor, &key, &data, MDB_SET);
    for (uint32_t piece = 0; rc == 0 && piece < ASKED_PIECES && piece < dead->pieces; piece++) {
        unsigned char resident = 0;
        if (!page_of_piece(store, data, &page))
            return;
        uint8_t *at = store->map + page * store->page_bytes;
        if (piece == 0 && mincore(at, store->page_bytes, &resident) == 0 && resident & 1)
            return;
        if (page != first + count) {
            madvise(store->map + first * store->page_bytes, count * store->page_bytes,
                    MADV_WILLNEED);
            first = page;
            count = 0;
        }
        count++;
        rc = mdb_cursor_get(cursor, &key, &data, MDB_NEXT);
    }
    if (count > 0)
        madvise(store->map + first * store->page_bytes, count * store->page_bytes, MADV_WILLNEED);
}

/* For what is removed next. */
static void chunks_ask(const struct store *store, MDB_cursor *cursor, const struct dead_list *list)
{
    for (size_t back = 1; back <= ASKED_CHUNKS && back <= list->count; back++)
        chunk_ask(store, cursor, &list->at[list->count - back]);
}

int pieces_remove(struct store *store, MDB_txn *txn, struct dead_list *list, struct budget *budget)
{
    int64_t until_ns = clock_now_ns(&clock_monotonic) + REMOVE_NS +
                       (int64_t)store->group.cost.pages * REMOVE_PAGE_NS;
    bool late = false;
    MDB_cursor *cursor;
    int rc = mdb_cursor_open(txn, store->trees[TREE_PIECES], &cursor);
    if (rc != 0)
        return rc;
    uint64_t before = 0; /* seq of the chunk removed last */
    while (rc == 0 && list->count > 0 && !late) {
        struct dead *dead = &list->at[list->count - 1];
        bool adjacent = dead->seq + 1 == before;
        /* Elsewhere: the path, perhaps two leaves, and what they are merged with. */
        if (!budget_take(budget, adjacent ? 1 : store->pages.account.pieces_depth + 2))
            break;
        rc = chunk_remove(cursor, dead, adjacent, budget);
        if (dead->pieces > 0)
            break;
        before = dead->seq;
        list->count--;
        late = clock_now_ns(&clock_monotonic) >= until_ns;
    }
    if (rc == 0 && late && store->map)
        chunks_ask(store, cursor, list);
    mdb_cursor_close(cursor);
    return rc;
}

/* ---- items ---------------------------------------------------------------------------------- */

/* The cursor on the last key below `end`. */
static int seek_below(MDB_cursor *cursor, uint64_t end_seq, MDB_val *key)
{
    if (end_seq > SEQ_MAX)
        return mdb_cursor_get(cursor, key, NULL, MDB_LAST);
    uint64_t number = piece_key(end_seq, 0);
    *key = lmdb_key(&number);
    int rc = mdb_cursor_get(cursor, key, NULL, MDB_SET_RANGE);
    if (rc == 0)
        return mdb_cursor_get(cursor, key, NULL, MDB_PREV);
    return rc == MDB_NOTFOUND ? mdb_cursor_get(cursor, key, NULL, MDB_LAST) : rc;
}

int items_remove(MDB_cursor *cursor, struct change *run, uint64_t *quota)
{
    MDB_val key;
    uint64_t first = change_seq(*run);
    int rc = seek_below(cursor, first + run->value, &key);
    while (rc == 0) {
        uint64_t seq = piece_key_seq(lmdb_key_read(key));
        if (seq < first)
            break;
        run->value = seq - first + 1;
        if (*quota == 0)
            return 0;
        --*quota;
        rc = mdb_cursor_del(cursor, 0);
        if (rc == 0)
            rc = mdb_cursor_get(cursor, &key, NULL, MDB_PREV);
    }
    if (rc == 0 || rc == MDB_NOTFOUND)
        run->value = 0;
    return rc == MDB_NOTFOUND ? 0 : rc;
}

int runs_remove(const struct store *store, MDB_cursor *cursor, struct change *runs, size_t *count,
                uint64_t *quota, struct budget *budget)
{
    const uint64_t per_leaf = store->pages.account.items_per_leaf;
    int rc = 0;
    while (rc == 0 && *count > 0 && *quota > 0 &&
           budget_take(budget, store->pages.account.items_depth + 2)) {
        struct change *run = &runs[*count - 1];
        uint64_t pages = budget->pages < budget->frees ? budget->pages : budget->frees;
        uint64_t most = pages / 2 * per_leaf + 1;
        uint64_t left = *quota < most ? *quota : most, before = left;
        rc = items_remove(cursor, run, &left);
        *quota -= before - left;
        budget_take(budget, (before - left) / per_leaf * 2);
        if (rc == 0 && run->value == 0) {
            --*count;
            *quota -= *quota > 0; /* what is not there any more takes a look, too */
        }
    }
    return rc;
}
