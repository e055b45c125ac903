/* Physical deletes. From the back of a range to its front: LMDB keeps the newest node of a leaf
 * at the low end of its data, so that taking the last key moves no bytes, and a leaf that falls
 * below a quarter borrows from the leaf that is emptied next. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

#include "core/array.h"
#include "core/clock.h"
#include "core/mapped.h"

enum {
    /* LMDB looks at each page that it frees: one that is not in memory is waited for. Pages that
     * are take a microsecond, so what a group may take keeps up with what it writes. */
    REMOVE_NS = 1000000,
    REMOVE_PAGE_NS = 10000,
    ASKED_CHUNKS = 64,
    ASKED_PIECES = 256, /* of each */
};

void dead_push(struct dead_queue *queue, struct dead dead)
{
    *ARRAY_PUSH(queue->at, queue->count, queue->capacity) = dead;
}

void dead_swap(struct dead *left, struct dead *right)
{
    struct dead dead = *left;
    *left = *right;
    *right = dead;
}

void dead_settle(struct store *store)
{
    struct dead_queue *queue = &store->dead;
    struct dead *fresh = queue->at + queue->ready;
    const uint32_t count = queue->count - queue->ready;
    bool sorted = true;
    for (uint32_t index = 1; sorted && index < count; index++)
        sorted = fresh[index - 1].seq < fresh[index].seq;
    if (!sorted)
        qsort(fresh, count, sizeof *fresh, u64_compare);
    for (uint32_t index = 0; index < count; index++)
        if (copy_holds_chunk(store, fresh[index].seq))
            dead_swap(&fresh[index], &queue->at[queue->held++]);
    queue->ready = queue->count;
}

void runs_add(struct buffer *runs, uint64_t seq)
{
    struct change *last = NULL;
    if (runs->size > 0)
        last = (struct change *)(void *)(runs->data + runs->size) - 1;
    if (last && change_seq(*last) <= seq && seq <= change_end(*last)) {
        last->value += seq == change_end(*last);
        return;
    }
    last = buffer_push(runs, sizeof *last);
    *last = change_make(CHANGE_DELETE, seq, 1);
}

size_t runs_merge(struct change *runs, size_t count, struct buffer *scratch)
{
    buffer_clear(scratch);
    buffer_reserve(scratch, count * sizeof *runs);
    changes_sort(runs, (struct change *)(void *)scratch->data, count);
    size_t kept = 0;
    for (size_t index = 0; index < count; index++) {
        struct change *last = kept ? &runs[kept - 1] : NULL;
        if (!last || change_seq(runs[index]) > change_end(*last))
            runs[kept++] = runs[index];
        else if (change_end(runs[index]) > change_end(*last))
            last->value = change_end(runs[index]) - change_seq(*last);
    }
    return kept;
}

/* ---- pieces --------------------------------------------------------------------------------- */

/* The cursor on `wanted`; `adjacent`: it stands right behind. */
static trp_status piece_seek(struct cursor *pieces, uint64_t wanted, bool adjacent)
{
    if (adjacent)
        TRP_TRY(cursor_move(pieces, MDB_PREV));
    if (adjacent && pieces->there && pieces->key == wanted)
        return TRP_OK;
    return cursor_seek(pieces, MDB_SET_KEY, wanted);
}

/* Removes pieces from the last one on; stops early, with some left, when the budget ends. */
static trp_status chunk_remove(struct cursor *pieces, struct dead *dead, bool adjacent,
                               struct budget *budget)
{
    enum { PIECES_PER_LEAF = 64 }; /* at least */
    for (uint32_t done = 1; dead->pieces > 0; done++, dead->pieces--) {
        if (budget->frees == 0 || (done % PIECES_PER_LEAF == 0 && !budget_take(budget, 1)))
            return TRP_OK;
        TRP_TRY(piece_seek(pieces, piece_key(dead->seq, dead->pieces - 1), adjacent));
        adjacent = pieces->there;
        if (!pieces->there)
            continue; /* an orphan without all of its pieces */
        TRP_TRY(cursor_delete(pieces));
        budget->frees--;
    }
    return TRP_OK;
}

/* Asks the disk for a chunk's pages, unless the first one is in memory. */
static trp_status chunk_ask(struct cursor *pieces, const struct dead *dead)
{
    const struct store *store = pieces->store;
    struct page_run run = {0};
    uint64_t page;
    TRP_TRY(cursor_seek(pieces, MDB_SET_KEY, piece_key(dead->seq, 0)));
    for (uint32_t piece = 0; pieces->there && piece < ASKED_PIECES && piece < dead->pieces;
         piece++) {
        if (!page_of_piece(store, pieces->value.data, &page))
            break;
        uint8_t *at = store->map + page * store->page_bytes;
        if (piece == 0 && pages_resident(at, store->page_bytes))
            return TRP_OK;
        page_run_add(&run, at, store->page_bytes);
        TRP_TRY(cursor_move(pieces, MDB_NEXT));
    }
    page_run_ask(&run);
    return TRP_OK;
}

/* For what is removed next. */
static trp_status chunks_ask(struct cursor *pieces, const struct dead_queue *queue)
{
    const uint32_t ready = queue->ready - queue->held;
    pieces->keys_only = false;
    for (uint32_t back = 1; back <= ASKED_CHUNKS && back <= ready; back++)
        TRP_TRY(chunk_ask(pieces, &queue->at[queue->ready - back]));
    return TRP_OK;
}

/* The queue has a gap, then, before those that are not ready. */
static trp_status ready_remove(struct store *store, struct budget *budget)
{
    struct dead_queue *queue = &store->dead;
    int64_t until_ns = clock_now_ns(&clock_monotonic) + REMOVE_NS +
                       (int64_t)store->group.cost.pages * REMOVE_PAGE_NS;
    bool late = false;
    struct cursor pieces;
    TRP_TRY(cursor_open(store, TREE_PIECES, &pieces));
    pieces.keys_only = true;
    uint64_t before = 0; /* seq of the chunk removed last */
    while (queue->ready > queue->held && !late) {
        struct dead *dead = &queue->at[queue->ready - 1];
        bool adjacent = dead->seq + 1 == before;
        /* Elsewhere: the path, perhaps two leaves, and what they are merged with. */
        if (!budget_take(budget, adjacent ? 1 : store->pages.account.pieces_depth + 2))
            break;
        TRP_TRY(chunk_remove(&pieces, dead, adjacent, budget));
        if (dead->pieces > 0)
            break;
        before = dead->seq;
        queue->ready--;
        late = clock_now_ns(&clock_monotonic) >= until_ns;
    }
    return late && store->map ? chunks_ask(&pieces, queue) : TRP_OK;
}

trp_status pieces_remove(struct store *store, struct budget *budget)
{
    struct dead_queue *queue = &store->dead;
    const uint32_t ready = queue->ready, fresh = queue->count - ready;
    if (ready == queue->held)
        return TRP_OK;
    trp_status status = ready_remove(store, budget);
    if (fresh > 0)
        memmove(queue->at + queue->ready, queue->at + ready, fresh * sizeof *queue->at);
    queue->count = queue->ready + fresh;
    return status;
}

/* ---- items ---------------------------------------------------------------------------------- */

/* The cursor on the last key below `end_seq`. */
static trp_status seek_below(struct cursor *items, uint64_t end_seq)
{
    items->there = false;
    if (end_seq <= SEQ_MAX)
        TRP_TRY(cursor_seek(items, MDB_SET_RANGE, piece_key(end_seq, 0)));
    return cursor_move(items, items->there ? MDB_PREV : MDB_LAST);
}

trp_status items_remove(struct cursor *items, struct change *run, uint64_t *quota)
{
    uint64_t first = change_seq(*run);
    items->keys_only = true;
    TRP_TRY(seek_below(items, first + run->value));
    while (items->there && piece_key_seq(items->key) >= first) {
        run->value = piece_key_seq(items->key) - first + 1;
        if (*quota == 0)
            return TRP_OK;
        --*quota;
        TRP_TRY(cursor_delete(items));
        TRP_TRY(cursor_move(items, MDB_PREV));
    }
    run->value = 0;
    return TRP_OK;
}

trp_status runs_remove(struct store *store, struct change *runs, size_t *count, uint64_t *quota,
                       struct budget *budget)
{
    const uint64_t per_leaf = store->pages.account.items_per_leaf;
    struct cursor items;
    TRP_TRY(cursor_open(store, TREE_ITEMS, &items));
    while (*count > 0 && *quota > 0 && budget_take(budget, store->pages.account.items_depth + 2)) {
        struct change *run = &runs[*count - 1];
        uint64_t pages = budget->pages < budget->frees ? budget->pages : budget->frees;
        uint64_t most = pages / 2 * per_leaf + 1;
        uint64_t left = *quota < most ? *quota : most, before = left;
        TRP_TRY(items_remove(&items, run, &left));
        *quota -= before - left;
        budget_take(budget, (before - left) / per_leaf * 2);
        if (run->value == 0) {
            --*count;
            *quota -= *quota > 0; /* what is not there any more takes a look, too */
        }
    }
    return TRP_OK;
}
