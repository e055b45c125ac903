/* The chunks of a file, from the keys and sizes of their pieces, whose bytes are not touched unless
 * they are to be checked. They are found in the order of their seqs, just ahead of the items that
 * refer to them; an item that is wanted before its turn has its chunks looked up, and their objects
 * are adopted when their turn comes. What is left without an object at the end, no item has. */
#include "loading.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/array.h"
#include "core/map.h"

static int cursor_renew(struct store *store, enum store_tree tree, MDB_cursor **cursor)
{
    return *cursor ? mdb_cursor_renew(store->read_txn, *cursor)
                   : mdb_cursor_open(store->read_txn, store->trees[tree], cursor);
}

trp_status loading_renew(struct loading *loading)
{
    struct store *store = loading->store;
    TRP_TRY(lmdb_read_begin(store));
    if (loading->renewed == store->reads)
        return TRP_OK;
    loading->item_key = loading->piece_key = (MDB_val){0};
    int rc = cursor_renew(store, TREE_ITEMS, &loading->items);
    if (rc == 0)
        rc = cursor_renew(store, TREE_PIECES, &loading->pieces);
    if (rc != 0)
        return lmdb_fail(store, rc, "read items");
    loading->renewed = store->reads;
    return TRP_OK;
}

/* ---- before their turn ---------------------------------------------------------------------- */

static struct chunk *ahead_get(const struct loading *loading, uint64_t seq)
{
    return (struct chunk *)(uintptr_t)map_get(&loading->ahead, seq);
}

/* Its pieces, one after the other; false: they are not those of a chunk. */
static bool ahead_size(struct store *store, uint64_t seq, uint32_t *size, int *rc)
{
    uint64_t number = piece_key(seq, 0), bytes = 0;
    MDB_val key = lmdb_key(&number), data;
    bool follow = true;
    store->read_last = 0; /* the cursor is the readers' */
    *rc = mdb_cursor_get(store->read_cursor, &key, &data, MDB_SET_KEY);
    if (*rc != 0)
        return false;
    for (uint64_t place = 0; *rc == 0 && piece_key_seq(lmdb_key_read(key)) == seq; place++) {
        follow = follow && piece_key_piece(lmdb_key_read(key)) == place &&
                 bytes == place * PIECE_BYTES && data.mv_size <= PIECE_BYTES;
        bytes += data.mv_size;
        *rc = mdb_cursor_get(store->read_cursor, &key, &data, MDB_NEXT);
    }
    *rc = *rc == MDB_NOTFOUND ? 0 : *rc;
    *size = (uint32_t)(bytes - SUM_BYTES);
    return follow && *rc == 0 && bytes >= SUM_BYTES;
}

/* ---- in their order ------------------------------------------------------------------------- */

static struct scanned_chunk *scanned_push(struct loading *loading, uint64_t seq)
{
    if (loading->scanned_count == loading->scanned_capacity) {
        loading->scanned =
            array_grow(loading->scanned, &loading->scanned_capacity, sizeof *loading->scanned);
    }
    struct scanned_chunk *scanned = &loading->scanned[loading->scanned_count++];
    *scanned = (struct scanned_chunk){.seq = seq};
    return scanned;
}

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
    struct store *store = loading->store;
    bool whole = scanned->size >= SUM_BYTES && (!loading->check || chunk_check_end(&loading->sum));
    scanned->damaged |= !whole;
    scanned->size -= scanned->size < SUM_BYTES ? scanned->size : SUM_BYTES;
    store->counts.checked_chunks += loading->check;
    store->counts.checked_bytes += loading->check ? scanned->size : 0;
    loading->sum = (struct chunk_check){0};
}

/* The chunk whose first piece is under the cursor; the cursor goes to the next one. */
static void chunk_scan_next(struct loading *loading)
{
    uint64_t number = lmdb_key_read(loading->piece_key), seq = piece_key_seq(number);
    struct scanned_chunk *scanned = scanned_push(loading, seq);
    do {
        trp_bytes piece = {loading->piece.mv_data, loading->piece.mv_size};
        if (seq == 0 || !scanned_add(loading, scanned, number, piece))
            scanned->damaged = true;
        loading->pieces_rc =
            mdb_cursor_get(loading->pieces, &loading->piece_key, &loading->piece, MDB_NEXT);
        number = lmdb_key_read(loading->piece_key);
    } while (loading->pieces_rc == 0 && piece_key_seq(number) == seq);
    scanned_finish(loading, scanned);
    loading->scan_end = seq + 1;
    scanned->chunk = ahead_get(loading, seq);
}

/* All chunks up to `seq`. */
static trp_status chunk_scan_until(struct loading *loading, uint64_t seq)
{
    struct store *store = loading->store;
    TRP_TRY(loading_renew(loading));
    if (loading->pieces_rc == MDB_NOTFOUND)
        return TRP_OK;
    if (loading->piece_key.mv_size == 0) {
        uint64_t first = piece_key(loading->scan_end, 0);
        loading->piece_key = lmdb_key(&first);
        loading->pieces_rc =
            mdb_cursor_get(loading->pieces, &loading->piece_key, &loading->piece, MDB_SET_RANGE);
    }
    while (loading->pieces_rc == 0 && piece_key_seq(lmdb_key_read(loading->piece_key)) <= seq)
        chunk_scan_next(loading);
    return loading->pieces_rc == 0 || loading->pieces_rc == MDB_NOTFOUND
               ? TRP_OK
               : lmdb_fail(store, loading->pieces_rc, "read pieces");
}

trp_status chunk_scan_rest(struct loading *loading)
{
    return chunk_scan_until(loading, SEQ_MAX);
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
    int rc;
    if (!chunk && ahead_size(loading->store, seq, &size, &rc)) {
        chunk = chunk_make(loading->store, seq, size, episode);
        *map_at(&loading->ahead, seq) = (uintptr_t)chunk;
    } else if (!chunk && rc != 0 && rc != MDB_NOTFOUND) {
        *status = lmdb_fail(loading->store, rc, "read pieces");
    } else if (!chunk) {
        *wrong = rc == MDB_NOTFOUND ? "a chunk is missing" : "a chunk is damaged";
    }
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
