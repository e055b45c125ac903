/* The chunks of a file, from the keys and sizes of their pieces, whose bytes are not touched unless
 * they are to be checked. They are found in the order of their seqs, just ahead of the items that
 * refer to them; an item that is wanted before its turn has its chunks looked up, and their objects
 * are adopted when their turn comes. A chunk without an object at the end has no item. */
#include "loading.h"

#include <stdlib.h>

#include "core/array.h"

trp_status loading_renew(struct loading *loading)
{
    struct store *store = loading->store;
    TRP_TRY(lmdb_read_begin(store));
    if (loading->renewed == store->txn.reads)
        return TRP_OK;
    TRP_TRY(cursor_open(store, TREE_ITEMS, &loading->items));
    TRP_TRY(cursor_open(store, TREE_PIECES, &loading->pieces));
    loading->renewed = store->txn.reads;
    return TRP_OK;
}

/* ---- before their turn ---------------------------------------------------------------------- */

static struct chunk *ahead_get(const struct loading *loading, uint64_t seq)
{
    return (struct chunk *)(uintptr_t)map_get(&loading->ahead, seq);
}

/* The size of its pieces, one after the other, without the sum; *wrong: they are not a chunk's. */
static trp_status ahead_size(struct store *store, uint64_t seq, uint32_t *size, const char **wrong)
{
    struct cursor *pieces = &store->reader;
    struct part_row row = {0};
    TRP_TRY(cursor_seek(pieces, MDB_SET_KEY, piece_key(seq, 0)));
    *wrong = pieces->there ? NULL : "a chunk is missing";
    while (pieces->there && piece_key_seq(pieces->key) == seq) {
        part_row_add(&row, pieces->key, pieces->value.size);
        TRP_TRY(cursor_move(pieces, MDB_NEXT));
    }
    *size = (uint32_t)(row.bytes - SUM_BYTES);
    if (!*wrong && (row.broken || row.bytes < SUM_BYTES))
        *wrong = "a chunk is damaged";
    return TRP_OK;
}

/* ---- in their order ------------------------------------------------------------------------- */

/* One more piece of `found`. False: it is not the one that comes next. */
static bool scanned_add(struct loading *loading, struct scanned_chunk *scanned, uint64_t number,
                        trp_bytes piece)
{
    uint32_t place = piece_key_piece(number);
    bool follows = place == scanned->pieces && scanned->size == (uint64_t)place * PIECE_BYTES &&
                   piece.size <= PIECE_BYTES;
    scanned->pieces = place + 1;
    scanned->size += (uint32_t)piece.size;
    if (loading->check && follows)
        chunk_check_piece(&loading->sum, piece);
    return follows;
}

/* All its pieces came: what is left is the chunk's size. */
static void scanned_finish(struct loading *loading, struct scanned_chunk *scanned)
{
    bool whole = scanned->size >= SUM_BYTES && (!loading->check || chunk_check_end(&loading->sum));
    scanned->damaged |= !whole;
    scanned->size -= scanned->size < SUM_BYTES ? scanned->size : SUM_BYTES;
    loading->sum = (struct chunk_check){0};
}

/* The chunk whose first piece is under the cursor; the cursor goes to the next one. */
static trp_status chunk_scan_next(struct loading *loading)
{
    struct cursor *pieces = &loading->pieces;
    uint64_t seq = piece_key_seq(pieces->key);
    struct scanned_chunk *scanned =
        ARRAY_PUSH(loading->scanned, loading->scanned_count, loading->scanned_capacity);
    *scanned = (struct scanned_chunk){.seq = seq};
    do {
        if (seq == 0 || !scanned_add(loading, scanned, pieces->key, pieces->value))
            scanned->damaged = true;
        TRP_TRY(cursor_move(pieces, MDB_NEXT));
    } while (pieces->there && piece_key_seq(pieces->key) == seq);
    scanned_finish(loading, scanned);
    loading->scan_end = pieces->there ? seq + 1 : SEQ_MAX + 1;
    scanned->chunk = ahead_get(loading, seq);
    return TRP_OK;
}

trp_status chunk_scan_until(struct loading *loading, uint64_t seq)
{
    struct cursor *pieces = &loading->pieces;
    TRP_TRY(loading_renew(loading));
    if (loading->scan_end > SEQ_MAX)
        return TRP_OK;
    if (!pieces->there)
        TRP_TRY(cursor_seek(pieces, MDB_SET_RANGE, piece_key(loading->scan_end, 0)));
    while (pieces->there && piece_key_seq(pieces->key) <= seq)
        TRP_TRY(chunk_scan_next(loading));
    if (!pieces->there)
        loading->scan_end = SEQ_MAX + 1;
    return TRP_OK;
}

static struct scanned_chunk *scanned_find(struct loading *loading, uint64_t seq)
{
    size_t low = 0, high = loading->scanned_count, next = loading->last_scanned;
    if (next < high && loading->scanned[next].seq == seq)
        return &loading->scanned[next];
    if (next + 1 < high && loading->scanned[next + 1].seq == seq) {
        loading->last_scanned = next + 1;
        return &loading->scanned[next + 1];
    }
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (loading->scanned[middle].seq < seq)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == loading->scanned_count || loading->scanned[low].seq != seq)
        return NULL;
    loading->last_scanned = low;
    return &loading->scanned[low];
}

/* ---- objects -------------------------------------------------------------------------------- */

static struct chunk *chunk_make(struct store *store, uint64_t seq, uint32_t size, uint64_t episode)
{
    struct chunk *chunk = chunk_create_stored(store, seq, size);
    chunk->episode = episode;
    chunk->unchecked = !store->loading->check;
    store->counts.chunks++;
    store->counts.live_bytes += size;
    return chunk;
}

/* Of a chunk that is behind those that were scanned. */
static struct chunk *take_ahead(struct loading *loading, uint64_t seq, uint64_t episode,
                                const char **wrong, trp_status *status)
{
    struct chunk *chunk = ahead_get(loading, seq);
    uint32_t size;
    if (chunk)
        return chunk;
    *status = ahead_size(loading->store, seq, &size, wrong);
    if (*status != TRP_OK || *wrong)
        return NULL;
    chunk = chunk_make(loading->store, seq, size, episode);
    *map_at(&loading->ahead, seq) = (uintptr_t)chunk;
    return chunk;
}

static struct chunk *take_scanned(struct loading *loading, uint64_t seq, uint64_t episode,
                                  const char **wrong)
{
    struct scanned_chunk *scanned = scanned_find(loading, seq);
    if (!scanned || scanned->damaged) {
        *wrong = scanned ? "a chunk is damaged" : "a chunk is missing";
        return NULL;
    }
    if (!scanned->chunk)
        scanned->chunk = chunk_make(loading->store, seq, scanned->size, episode);
    return scanned->chunk;
}

struct chunk *chunk_scan_take(struct loading *loading, uint64_t seq, uint64_t episode, bool in_turn,
                              const char **wrong, trp_status *status)
{
    struct chunk *chunk = NULL;
    *wrong = NULL;
    *status = loading_renew(loading);
    if (*status == TRP_OK && in_turn && seq >= loading->scan_end)
        *status = chunk_scan_until(loading, seq);
    if (*status == TRP_OK && (in_turn || seq < loading->scan_end))
        chunk = take_scanned(loading, seq, episode, wrong);
    else if (*status == TRP_OK)
        chunk = take_ahead(loading, seq, episode, wrong, status);
    if (chunk)
        chunk->refs++;
    return chunk;
}

void chunk_scan_release(struct loading *loading, struct chunk *chunk)
{
    struct store *store = loading->store;
    if (--chunk->refs > 0)
        return;
    if (chunk->seq < loading->scan_end)
        scanned_find(loading, chunk->seq)->chunk = NULL;
    else
        map_remove(&loading->ahead, chunk->seq);
    store->counts.chunks--;
    store->counts.live_bytes -= chunk->size;
    chunk_free(store, chunk);
}

void chunk_scan_cleanup(struct loading *loading)
{
    free(loading->scanned);
    map_cleanup(&loading->ahead);
}
