/* LMDB writes it, in transactions of TXN_BYTES: everything is appended, so that pages leave in the
 * order of the file. Each transaction's pages are on the disk when the next but one begins, and out
 * of memory: the last sync finds little to do, what is dirty never holds up others' writes, and the
 * pages of the store that is copied stay in memory, although nobody reads the copy.
 *
 * That a chunk is damaged is known when the items that name it are written: they are taken out
 * again at the end. */
#include "checkpoint_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <troupe/log.h>
#include "core/alloc.h"
#include "internal.h"
#include "limits.h"

enum {
    TXN_BYTES = 16 << 20,
    DAMAGE_LOGGED = 16,
    MAP_FACTOR = 2, /* a copy is denser than the store; its map only takes addresses */
    MAP_BYTES_MIN = 64 << 20,
};

struct checkpoint_writer {
    struct store store; /* as much of one as LMDB needs */
    MDB_txn *txn;
    MDB_cursor *items, *pieces;
    uint64_t txn_bytes;
    off_t leaving, left;       /* where the last commit began, and the one before it */
    uint64_t told, unreadable; /* damaged items; of them, those whose record is */
};

static trp_status target_begin(struct checkpoint_writer *target)
{
    struct store *store = &target->store;
    int rc = mdb_txn_begin(store->env, NULL, 0, &target->txn);
    if (rc == 0)
        rc = mdb_cursor_open(target->txn, store->trees[TREE_ITEMS], &target->items);
    if (rc == 0)
        rc = mdb_cursor_open(target->txn, store->trees[TREE_PIECES], &target->pieces);
    target->txn_bytes = 0;
    return rc == 0 ? TRP_OK : lmdb_fail(store, rc, "begin");
}

static void cursors_close(struct checkpoint_writer *target)
{
    if (target->items)
        mdb_cursor_close(target->items);
    if (target->pieces)
        mdb_cursor_close(target->pieces);
    target->items = target->pieces = NULL;
}

static off_t pages_end(const struct checkpoint_writer *target)
{
    MDB_envinfo info;
    mdb_env_info(target->store.env, &info);
    return (off_t)((info.me_last_pgno + 1) * target->store.page_bytes);
}

/* After a commit: what it wrote starts for the disk, and what the one before wrote is waited for
 * and leaves memory. All hints: the sync is at the end. */
static void pages_leave(struct checkpoint_writer *target)
{
    int fd;
    off_t end = pages_end(target);
    mdb_env_get_fd(target->store.env, &fd);
    sync_file_range(fd, target->leaving, end - target->leaving, SYNC_FILE_RANGE_WRITE);
    if (target->leaving > target->left) {
        off_t size = target->leaving - target->left;
        sync_file_range(fd, target->left, size, SYNC_FILE_RANGE_WAIT_BEFORE);
        posix_fadvise(fd, target->left, size, POSIX_FADV_DONTNEED);
    }
    target->left = target->leaving;
    target->leaving = end;
}

static trp_status target_commit(struct checkpoint_writer *target)
{
    struct store *store = &target->store;
    cursors_close(target);
    int rc = mdb_txn_commit(target->txn);
    target->txn = NULL;
    if (rc != 0)
        return lmdb_fail(store, rc, "write");
    pages_leave(target);
    return TRP_OK;
}

trp_status checkpoint_writer_create(struct checkpoint_writer **out, const char *dir,
                                    uint64_t file_bytes)
{
    struct checkpoint_writer *target = xcalloc(1, sizeof *target);
    target->store.options.max_bytes = MAP_FACTOR * file_bytes + MAP_BYTES_MIN;
    target->store.dir = (struct store_dir){
        .path = xstrdup(dir), .data_path = xasprintf("%s/data.mdb", dir), .lock_fd = -1};
    trp_status status = lmdb_make(&target->store);
    if (status == TRP_OK)
        status = target_begin(target);
    if (status != TRP_OK) {
        checkpoint_writer_destroy(target);
        target = NULL;
    }
    *out = target;
    return status;
}

void checkpoint_writer_destroy(struct checkpoint_writer *target)
{
    if (!target)
        return;
    cursors_close(target);
    if (target->txn)
        mdb_txn_abort(target->txn);
    mdb_env_close(target->store.env);
    store_dir_close(&target->store.dir);
    free(target);
}

/* After a put. */
static trp_status target_count(struct checkpoint_writer *target, int rc, size_t bytes)
{
    if (rc != 0)
        return lmdb_fail(&target->store, rc, "write");
    target->txn_bytes += bytes;
    if (target->txn_bytes < TXN_BYTES)
        return TRP_OK;
    TRP_TRY(target_commit(target));
    return target_begin(target);
}

trp_status checkpoint_writer_item(void *arg, uint64_t seq, trp_bytes record)
{
    struct checkpoint_writer *target = arg;
    int rc = lmdb_put_parts(target->items, seq, record, MDB_APPEND);
    return target_count(target, rc, record.size);
}

trp_status checkpoint_writer_piece(void *arg, uint64_t seq, uint32_t piece, trp_bytes bytes)
{
    struct checkpoint_writer *target = arg;
    uint64_t number = piece_key(seq, piece);
    MDB_val key = lmdb_key(&number), data = {bytes.size, NULL};
    int rc = mdb_cursor_put(target->pieces, &key, &data, MDB_APPEND | MDB_RESERVE);
    if (rc == 0 && bytes.size)
        memcpy(data.mv_data, bytes.data, bytes.size);
    return target_count(target, rc, bytes.size);
}

trp_status checkpoint_writer_removed(void *arg, uint64_t number, trp_bytes records)
{
    struct checkpoint_writer *target = arg;
    MDB_val key = lmdb_key(&number), data = {records.size, (void *)records.data};
    int rc = mdb_put(target->txn, target->store.trees[TREE_REMOVED], &key, &data, MDB_APPEND);
    return target_count(target, rc, records.size);
}

trp_status checkpoint_writer_damage(void *arg, uint32_t table_id, uint64_t key, const char *what)
{
    struct checkpoint_writer *target = arg;
    target->unreadable += table_id == 0;
    if (target->told++ < DAMAGE_LOGGED)
        trp_log(TRP_WARN, "a checkpoint goes on without an item table_id=%u %s=%llu reason=\"%s\"",
                table_id, table_id ? "key" : "seq", (unsigned long long)key, what);
    return TRP_OK;
}

/* ---- the end -------------------------------------------------------------------------------- */

static bool item_names(trp_bytes record, uint64_t of, const uint64_t *bad, size_t count)
{
    struct item_view view;
    if (!item_record_decode(record, of, &view))
        return true;
    for (uint32_t i = 0; i < view.header.chunk_count; i++) {
        uint64_t seq = item_view_chunk(&view, i);
        if (bsearch(&seq, bad, count, sizeof seq, seq_compare))
            return true;
    }
    return false;
}

/* Appends the seqs of items that name a chunk of `bad`. */
static int items_find(MDB_cursor *cursor, const uint64_t *bad, size_t count, struct buffer *seqs)
{
    struct buffer record = {0};
    MDB_val key, data;
    int rc = mdb_cursor_get(cursor, &key, &data, MDB_FIRST);
    while (rc == 0) {
        uint64_t seq = piece_key_seq(lmdb_key_read(key));
        buffer_clear(&record);
        for (; rc == 0 && piece_key_seq(lmdb_key_read(key)) == seq;
             rc = mdb_cursor_get(cursor, &key, &data, MDB_NEXT))
            buffer_append(&record, (trp_bytes){data.mv_data, data.mv_size});
        if (item_names(buffer_bytes(&record), seq, bad, count))
            buffer_append(seqs, (trp_bytes){(const uint8_t *)&seq, sizeof seq});
    }
    buffer_cleanup(&record);
    return rc == MDB_NOTFOUND ? 0 : rc;
}

static int seqs_remove(MDB_cursor *cursor, const uint64_t *seqs, size_t count)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < count; i++) {
        struct change run = change_make(CHANGE_DELETE, seqs[i], 1);
        uint64_t quota = UINT64_MAX;
        rc = items_remove(cursor, &run, &quota);
    }
    return rc;
}

static trp_status damaged_drop(struct checkpoint_writer *target, const struct store_copy *copy,
                               uint64_t *dropped)
{
    size_t bad_count;
    const uint64_t *bad = store_copy_bad_chunks(copy, &bad_count);
    struct buffer seqs = {0};
    *dropped = 0;
    if (bad_count == 0)
        return TRP_OK;
    if (bad_count >= COPY_BAD_CHUNKS_MAX)
        return trp_fail(TRP_DATA_LOSS, "the store is too damaged for a checkpoint: see verify");
    int rc = items_find(target->items, bad, bad_count, &seqs);
    *dropped = seqs.size / sizeof(uint64_t);
    if (rc == 0)
        rc = seqs_remove(target->items, (const uint64_t *)(const void *)seqs.data, *dropped);
    if (rc == 0)
        rc = seqs_remove(target->pieces, bad, bad_count);
    buffer_cleanup(&seqs);
    return rc == 0 ? TRP_OK : lmdb_fail(&target->store, rc, "leave out damaged items");
}

static int pairs_put(struct checkpoint_writer *target, enum store_tree tree,
                     const struct copy_pair *pairs, size_t count)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < count; i++) {
        uint64_t number = pairs[i].key;
        MDB_val key = lmdb_key(&number), data = {pairs[i].value.size, (void *)pairs[i].value.data};
        rc = mdb_put(target->txn, target->store.trees[tree], &key, &data, 0);
    }
    return rc;
}

trp_status checkpoint_writer_finish(struct checkpoint_writer *target, const struct store_copy *copy,
                                    struct checkpoint_writer_stats *stats)
{
    struct store *store = &target->store;
    size_t tables, counters;
    uint64_t dropped;
    TRP_TRY(damaged_drop(target, copy, &dropped));
    const struct copy_pair *table = store_copy_tables(copy, &tables);
    const struct copy_pair *counter = store_copy_counters(copy, &counters);
    uint64_t map_bytes = store->map_bytes;
    store->meta = *store_copy_meta(copy);
    store->meta.map_bytes = map_bytes;
    int rc = pairs_put(target, TREE_TABLES, table, tables);
    if (rc == 0)
        rc = pairs_put(target, TREE_META, counter, counters);
    if (rc == 0)
        rc = lmdb_put_meta(store, target->txn);
    if (rc != 0)
        return lmdb_fail(store, rc, "write");
    TRP_TRY(target_commit(target));
    rc = mdb_env_sync(store->env, 1);
    if (rc != 0)
        return lmdb_fail(store, rc, "sync");
    stats->bytes = (uint64_t)pages_end(target);
    stats->items = store_copy_stats(copy).items - dropped;
    stats->damaged = target->unreadable + dropped;
    /* LMDB leaves it at the last page that it wrote. */
    int fd;
    mdb_env_get_fd(store->env, &fd);
    if (ftruncate(fd, (off_t)stats->bytes) != 0 || fsync(fd) != 0)
        return store_errno(errno, store->dir.data_path, "sync");
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    return TRP_OK;
}
