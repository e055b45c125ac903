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
    uint64_t txn_bytes;
    off_t leaving, left;       /* where the last commit began, and the one before it */
    uint64_t told, unreadable; /* damaged items; of them, those whose record is */
};

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
    TRP_TRY(lmdb_commit(&target->store));
    pages_leave(target);
    target->txn_bytes = 0;
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
        status = lmdb_begin(&target->store);
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
    lmdb_abort(&target->store);
    lmdb_close(&target->store);
    buffer_cleanup(&target->store.scratch);
    store_dir_close(&target->store.dir);
    free(target);
}

/* After a put. */
static trp_status target_count(struct checkpoint_writer *target, size_t bytes)
{
    target->txn_bytes += bytes;
    if (target->txn_bytes < TXN_BYTES)
        return TRP_OK;
    TRP_TRY(target_commit(target));
    return lmdb_begin(&target->store);
}

trp_status checkpoint_writer_item(void *arg, uint64_t seq, trp_bytes record, bool doubtful)
{
    (void)doubtful;
    struct checkpoint_writer *target = arg;
    struct cursor items;
    TRP_TRY(cursor_open(&target->store, TREE_ITEMS, &items));
    TRP_TRY(cursor_put_parts(&items, seq, record, MDB_APPEND));
    return target_count(target, record.size);
}

static trp_status target_append(struct checkpoint_writer *target, enum store_tree tree,
                                uint64_t key, trp_bytes value)
{
    TRP_TRY(lmdb_put(&target->store, tree, key, value, MDB_APPEND));
    return target_count(target, value.size);
}

trp_status checkpoint_writer_piece(void *arg, uint64_t seq, uint32_t piece, trp_bytes bytes)
{
    return target_append(arg, TREE_PIECES, piece_key(seq, piece), bytes);
}

trp_status checkpoint_writer_removed(void *arg, uint64_t number, trp_bytes records)
{
    return target_append(arg, TREE_REMOVED, number, records);
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

static bool item_names(trp_bytes record, uint64_t of, const struct buffer *bad)
{
    struct item_view view;
    bool names = !item_record_decode(record, of, &view);
    for (uint32_t i = 0; !names && i < view.header.chunk_count; i++)
        names = seqs_have(bad, item_view_chunk(&view, i));
    return names;
}

/* Appends the seqs of items that name a chunk of `bad`. */
static trp_status items_find(struct store *store, const struct buffer *bad, struct buffer *seqs)
{
    struct cursor items;
    trp_bytes record;
    TRP_TRY(cursor_open(store, TREE_ITEMS, &items));
    TRP_TRY(cursor_move(&items, MDB_FIRST));
    while (items.there) {
        uint64_t seq = piece_key_seq(items.key);
        TRP_TRY(cursor_get_parts(&items, &store->scratch, &record));
        if (item_names(record, seq, bad))
            buffer_append(seqs, span_of(&seq, sizeof seq));
    }
    return TRP_OK;
}

static trp_status seqs_remove(struct store *store, enum store_tree tree, const struct buffer *seqs)
{
    struct cursor cursor;
    TRP_TRY(cursor_open(store, tree, &cursor));
    for (size_t at = 0; at < seqs->size; at += sizeof(uint64_t)) {
        uint64_t seq, quota = UINT64_MAX;
        memcpy(&seq, seqs->data + at, sizeof seq);
        struct change run = change_make(CHANGE_DELETE, seq, 1);
        TRP_TRY(items_remove(&cursor, &run, &quota));
    }
    return TRP_OK;
}

static trp_status damaged_drop(struct store *store, const struct buffer *bad, uint64_t *dropped)
{
    struct buffer seqs = {0};
    *dropped = 0;
    if (bad->size == 0)
        return TRP_OK;
    if (bad->size >= COPY_BAD_CHUNKS_MAX * sizeof(uint64_t))
        return trp_fail(TRP_DATA_LOSS, "the store is too damaged for a checkpoint: see verify");
    trp_status status = items_find(store, bad, &seqs);
    *dropped = seqs.size / sizeof(uint64_t);
    if (status == TRP_OK)
        status = seqs_remove(store, TREE_ITEMS, &seqs);
    buffer_cleanup(&seqs);
    return status == TRP_OK ? seqs_remove(store, TREE_PIECES, bad) : status;
}

static trp_status rest_put(struct store *store, const struct copy_rest *rest)
{
    const uint8_t *value = rest->values.data;
    uint64_t map_bytes = store->map_bytes;
    for (size_t at = 0; at < rest->entries.size; at += sizeof(struct copy_entry)) {
        struct copy_entry entry;
        memcpy(&entry, rest->entries.data + at, sizeof entry);
        TRP_TRY(lmdb_put(store, entry.tree, entry.key, (trp_bytes){value, entry.size}, 0));
        value += entry.size;
    }
    store->meta = rest->meta;
    store->meta.map_bytes = map_bytes;
    return lmdb_put_meta(store, NULL);
}

trp_status checkpoint_writer_finish(struct checkpoint_writer *target, const struct store_copy *copy,
                                    struct checkpoint_writer_stats *stats)
{
    struct store *store = &target->store;
    const struct copy_rest *rest = store_copy_rest(copy);
    uint64_t dropped;
    TRP_TRY(damaged_drop(store, &rest->bad, &dropped));
    TRP_TRY(rest_put(store, rest));
    TRP_TRY(target_commit(target));
    int rc = mdb_env_sync(store->env, 1);
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
