/* One environment, one writing thread, no lock file: the directory is ours alone. LMDB without its
 * lock does not know of readers; ours is the same thread, and its transaction ends before a write
 * transaction begins, so no page that it sees is ever recycled under it. */
#include "internal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <troupe/log.h>
#include "core/alloc.h"
#include "core/copy.h"
#include "core/file.h"

enum {
    FIRST_PAGES = 64, /* a new store has them before LMDB touches any: 256 KiB */
    OPEN_WAIT_MS = 50,
    MAP_SPARE_BYTES = 1 << 20, /* of a map are not used */
    AHEAD_BYTES_MAX = 1 << 28, /* more than pages_want() asks for */
    LOOK_MS = 100,             /* between looks at whether data.mdb is still there */
};

static const char *const tree_names[TREE_COUNT] = {
    [TREE_META] = "meta",       [TREE_TABLES] = "tables",   [TREE_ITEMS] = "items",
    [TREE_PIECES] = "pieces",   [TREE_CHANGES] = "changes", [TREE_PARKED] = "parked",
    [TREE_REMOVED] = "removed",
};

/* To LMDB, a write that a full file system cut short is an I/O error. */
static bool write_was_short(const struct store *store, int rc)
{
    enum { WRITE_BYTES_MAX = 1 << 20 }; /* LMDB writes 64 pages at once */
    struct statvfs fs;
    return rc == EIO && statvfs(store->dir.path, &fs) == 0 && fs.f_blocks > 0 &&
           (uint64_t)fs.f_bavail * fs.f_frsize < WRITE_BYTES_MAX;
}

trp_status lmdb_fail(const struct store *store, int rc, const char *what)
{
    if (write_was_short(store, rc))
        rc = ENOSPC;
    if (rc > 0)
        return store_errno(rc, store->dir.data_path, what);
    trp_status status = TRP_INTERNAL;
    if (rc == MDB_CORRUPTED || rc == MDB_PAGE_NOTFOUND || rc == MDB_INVALID ||
        rc == MDB_VERSION_MISMATCH || rc == MDB_NOTFOUND || rc == MDB_INCOMPATIBLE)
        status = TRP_DATA_LOSS;
    else if (rc == MDB_MAP_FULL || rc == MDB_TXN_FULL)
        status = TRP_RESOURCE_EXHAUSTED;
    return trp_fail(status, "replay store %s: cannot %s: %s", store->dir.data_path, what,
                    mdb_strerror(rc));
}

trp_status store_broken(const struct store *store)
{
    return trp_fail(store->failed, "%s", store->failed_words);
}

trp_status store_break(struct store *store, trp_status status)
{
    if (store->failed == TRP_OK) {
        store->failed = status;
        store->failed_words = xstrdup(trp_last_error());
    }
    return status;
}

/* ---- reading -------------------------------------------------------------------------------- */

trp_status lmdb_read_begin(struct store *store)
{
    if (store->txn.reading)
        return TRP_OK;
    int rc;
    if (!store->txn.read)
        rc = mdb_txn_begin(store->env, NULL, MDB_RDONLY, &store->txn.read);
    else
        rc = mdb_txn_renew(store->txn.read);
    MDB_cursor *reader = store->reader.lmdb;
    if (rc == 0 && store->has_trees)
        rc = reader ? mdb_cursor_renew(store->txn.read, reader)
                    : mdb_cursor_open(store->txn.read, store->trees[TREE_PIECES], &reader);
    if (rc != 0)
        return lmdb_fail(store, rc, "read");
    store->reader = (struct cursor){.store = store, .tree = TREE_PIECES, .lmdb = reader};
    store->txn.reading = true;
    store->txn.reads++;
    store->probes.root = 0;
    return TRP_OK;
}

void lmdb_read_end(struct store *store)
{
    if (store->txn.reading)
        mdb_txn_reset(store->txn.read);
    store->txn.reading = false;
}

trp_status lmdb_tree(struct store *store, enum store_tree tree, struct tree_record *record,
                     uint64_t *pages)
{
    MDB_val key = {strlen(tree_names[tree]), (void *)tree_names[tree]}, data;
    MDB_envinfo info;
    MDB_dbi main;
    int rc = mdb_dbi_open(store->txn.read, NULL, 0, &main);
    if (rc == 0)
        rc = mdb_get(store->txn.read, main, &key, &data);
    if (rc == 0 && data.mv_size != sizeof *record)
        rc = MDB_CORRUPTED;
    if (rc != 0)
        return lmdb_fail(store, rc, "find a tree");
    memcpy(record, data.mv_data, sizeof *record);
    mdb_env_info(store->env, &info);
    *pages = info.me_last_pgno + 1;
    return TRP_OK;
}

/* Nothing else can be right behind a page's header: in pages of a tree pointers to nodes are. So
 * the page need not be looked at, which may be on the disk. */
bool page_of_piece(const struct store *store, const void *value, uint64_t *page)
{
    uintptr_t at = (uintptr_t)value - (uintptr_t)store->map;
    *page = at / store->page_bytes;
    return store->map && at % store->page_bytes == PAGE_HEADER_BYTES;
}

/* ---- cursors -------------------------------------------------------------------------------- */

static trp_status cursor_fail(const struct cursor *cursor, int rc, const char *verb)
{
    char what[32];
    snprintf(what, sizeof what, "%s %s", verb, tree_names[cursor->tree]);
    return lmdb_fail(cursor->store, rc, what);
}

trp_status cursor_open(struct store *store, enum store_tree tree, struct cursor *cursor)
{
    int rc = 0;
    MDB_cursor **cached = &store->txn.write_cursors[tree];
    if (!store->txn.write) {
        TRP_TRY(lmdb_read_begin(store));
        cached = &store->txn.read_cursors[tree];
        rc = *cached ? mdb_cursor_renew(store->txn.read, *cached)
                     : mdb_cursor_open(store->txn.read, store->trees[tree], cached);
    } else if (!*cached) {
        rc = mdb_cursor_open(store->txn.write, store->trees[tree], cached);
    }
    *cursor = (struct cursor){.store = store, .tree = tree, .lmdb = *cached};
    return rc == 0 ? TRP_OK : cursor_fail(cursor, rc, "open");
}

static trp_status cursor_get(struct cursor *cursor, MDB_cursor_op op, MDB_val key)
{
    MDB_val value = {0};
    int rc = mdb_cursor_get(cursor->lmdb, &key, cursor->keys_only ? NULL : &value, op);
    cursor->there = rc == 0;
    if (rc != 0)
        return rc == MDB_NOTFOUND ? TRP_OK : cursor_fail(cursor, rc, "read");
    cursor->key = lmdb_key_read(key);
    cursor->value = (trp_bytes){value.mv_data, value.mv_size};
    return TRP_OK;
}

trp_status cursor_move(struct cursor *cursor, MDB_cursor_op op)
{
    return cursor_get(cursor, op, (MDB_val){0});
}

trp_status cursor_seek(struct cursor *cursor, MDB_cursor_op op, uint64_t key)
{
    return cursor_get(cursor, op, lmdb_key(&key));
}

trp_status cursor_put(struct cursor *cursor, uint64_t key, size_t bytes, unsigned flags,
                      uint8_t **value)
{
    MDB_val wanted = lmdb_key(&key), data = {bytes, NULL};
    int rc = mdb_cursor_put(cursor->lmdb, &wanted, &data, flags | MDB_RESERVE);
    *value = data.mv_data;
    return rc == 0 ? TRP_OK : cursor_fail(cursor, rc, "write");
}

trp_status cursor_delete(struct cursor *cursor)
{
    int rc = mdb_cursor_del(cursor->lmdb, 0);
    return rc == 0 ? TRP_OK : cursor_fail(cursor, rc, "remove");
}

trp_status cursor_put_parts(struct cursor *cursor, uint64_t seq, trp_bytes bytes, unsigned flags)
{
    uint32_t count = piece_count(bytes.size);
    for (uint32_t piece = 0; piece < count; piece++) {
        size_t offset = (size_t)piece * PIECE_BYTES;
        size_t size = bytes.size - offset < PIECE_BYTES ? bytes.size - offset : PIECE_BYTES;
        uint8_t *value;
        TRP_TRY(cursor_put(cursor, piece_key(seq, piece), size, flags, &value));
        if (size)
            copy_some(value, bytes.data + offset, size);
    }
    return TRP_OK;
}

trp_status cursor_get_parts(struct cursor *cursor, struct buffer *whole, trp_bytes *bytes)
{
    const uint64_t first = cursor->key;
    struct part_row row = {0};
    *bytes = cursor->value;
    buffer_clear(whole);
    while (cursor->there && piece_key_seq(cursor->key) == piece_key_seq(first)) {
        part_row_add(&row, cursor->key, cursor->value.size);
        if (row.parts > 1) {
            if (whole->size == 0)
                buffer_append(whole, *bytes);
            buffer_append(whole, cursor->value);
            *bytes = buffer_bytes(whole);
        }
        TRP_TRY(cursor_move(cursor, MDB_NEXT));
    }
    if (row.broken)
        *bytes = (trp_bytes){0};
    return TRP_OK;
}

trp_status cursor_append_records(struct cursor *cursor, uint64_t *next, trp_bytes records,
                                 size_t value_bytes)
{
    while (records.size > 0) {
        trp_bytes part = {records.data, records.size < value_bytes ? records.size : value_bytes};
        uint8_t *value;
        TRP_TRY(cursor_put(cursor, (*next)++, part.size + SUM_BYTES, MDB_APPEND, &value));
        records_encode(value, part);
        records = (trp_bytes){records.data + part.size, records.size - part.size};
    }
    return TRP_OK;
}

trp_status lmdb_put(struct store *store, enum store_tree tree, uint64_t key, trp_bytes value,
                    unsigned flags)
{
    struct cursor cursor;
    uint8_t *out;
    TRP_TRY(cursor_open(store, tree, &cursor));
    TRP_TRY(cursor_put(&cursor, key, value.size, flags, &out));
    if (value.size)
        memcpy(out, value.data, value.size);
    return TRP_OK;
}

/* ---- writing -------------------------------------------------------------------------------- */

static trp_status lmdb_account(struct store *store)
{
    TRP_TRY(lmdb_read_begin(store));
    int rc = pages_count(&store->pages, store->env, store->txn.read, store->trees);
    return rc == 0 ? TRP_OK : lmdb_fail(store, rc, "count pages");
}

trp_status lmdb_put_meta(struct store *store, void *arg)
{
    (void)arg;
    store->meta.sum = meta_record_sum(&store->meta);
    return lmdb_put(store, TREE_META, META_KEY, span_of(&store->meta, sizeof store->meta), 0);
}

bool lmdb_advance(struct store *store)
{
    return store->failed == TRP_OK && pages_free(&store->pages) >= store->pages.account.least &&
           store_transact(store, lmdb_put_meta, NULL) == TRP_OK;
}

trp_status lmdb_begin(struct store *store)
{
    assert(!store->options.read_only);
    lmdb_read_end(store);
    int rc = mdb_txn_begin(store->env, NULL, 0, &store->txn.write);
    return rc == 0 ? TRP_OK : lmdb_fail(store, rc, "begin");
}

/* LMDB has freed its cursors. */
static void transaction_forget(struct store *store)
{
    store->txn.write = NULL;
    memset(store->txn.write_cursors, 0, sizeof store->txn.write_cursors);
}

trp_status lmdb_commit(struct store *store)
{
    copy_away_end();
    int rc = mdb_txn_commit(store->txn.write);
    transaction_forget(store);
    return rc == 0 ? TRP_OK : lmdb_fail(store, rc, "commit");
}

void lmdb_abort(struct store *store)
{
    mdb_txn_abort(store->txn.write); /* NULL is fine */
    transaction_forget(store);
}

/* Without counting pages, which is for a store that is open. */
static trp_status lmdb_step(struct store *store, transaction_step *step, void *arg)
{
    TRP_TRY(lmdb_begin(store));
    trp_status status = step(store, arg);
    if (status == TRP_OK)
        return lmdb_commit(store);
    lmdb_abort(store);
    return status;
}

/* Somebody who removes the directory of a live store takes the file's name: what goes into it is
 * gone with this process. A system call for each commit would be a good part of a small one. */
static trp_status file_check(struct store *store)
{
    int64_t now = clock_now_ns(&clock_monotonic);
    struct stat info;
    int fd;
    if (store->looked_ns != 0 && now < store->looked_ns + LOOK_MS * INT64_C(1000000))
        return TRP_OK;
    mdb_env_get_fd(store->env, &fd);
    store->looked_ns = now;
    if (fstat(fd, &info) != 0 || info.st_nlink > 0)
        return TRP_OK;
    return trp_fail(TRP_DATA_LOSS,
                    "%s was deleted while the store was open: what is in it is lost when this "
                    "process ends; dump it meanwhile",
                    store->dir.data_path);
}

trp_status lmdb_transact(struct store *store, transaction_step *step, void *arg)
{
    TRP_TRY(lmdb_step(store, step, arg));
    TRP_TRY(file_check(store));
    TRP_TRY(lmdb_account(store));
    /* store_admit() saw to this; beyond it a full disk would kill us. */
    assert(store->pages.account.next <= space_watermark(store->pages.space));
    pages_want(&store->pages);
    return TRP_OK;
}

trp_status store_transact(struct store *store, transaction_step *step, void *arg)
{
    trp_status status = lmdb_transact(store, step, arg);
    return status == TRP_OK ? TRP_OK : store_break(store, status);
}

/* ---- opening -------------------------------------------------------------------------------- */

/* The remedy comes with it: the newest checkpoint, if there is one. */
static trp_status data_lost(const struct store *store, const char *what)
{
    char *root = checkpoint_root(store->dir.path, store->options.checkpoint_dir);
    char *newest = checkpoint_newest(root);
    trp_status status = trp_fail(
        TRP_DATA_LOSS, "replay store %s: %s; %s%s%s%s%s", store->dir.data_path, what,
        store->dir.suspect ? "its host went down while it was open; " : "",
        newest ? "its newest checkpoint comes back with: troupe replay restore --force " : "",
        newest ? newest : "it has no checkpoint: ", newest ? " " : "",
        newest ? store->dir.path
               : "restore data.mdb from a copy, or remove the directory to begin anew");
    free(newest);
    free(root);
    return status;
}

trp_status record_lost(const struct store *store, const char *what, uint64_t number)
{
    char *words = xasprintf("%s %llu is damaged", what, (unsigned long long)number);
    trp_status status = data_lost(store, words);
    free(words);
    return status;
}

static trp_status trees_open(struct store *store, MDB_txn *txn, unsigned flags)
{
    int rc = mdb_dbi_open(txn, tree_names[0], MDB_INTEGERKEY | flags, &store->trees[0]);
    for (unsigned tree = 1; rc == 0 && tree < TREE_COUNT; tree++)
        rc = mdb_dbi_open(txn, tree_names[tree], MDB_INTEGERKEY | flags, &store->trees[tree]);
    if (rc == MDB_NOTFOUND)
        return data_lost(store, "lacks a tree that every store has");
    if (rc != 0)
        return lmdb_fail(store, rc, "open trees");
    store->has_trees = true;
    return TRP_OK;
}

/* Reads store->meta and finds page 0: the page that the record lies in starts with its number. */
static trp_status meta_record_read(struct store *store, MDB_txn *txn)
{
    uint64_t number = META_KEY;
    MDB_val key = lmdb_key(&number), data;
    int rc = mdb_get(txn, store->trees[TREE_META], &key, &data);
    if (rc != 0)
        return lmdb_fail(store, rc, "read the meta record");
    if (!meta_record_decode((trp_bytes){data.mv_data, data.mv_size}, &store->meta))
        return data_lost(store, "the meta record is damaged");
    if (store->meta.format != STORE_FORMAT && store->meta.format != STORE_FORMAT_BEFORE)
        return trp_fail(TRP_FAILED_PRECONDITION,
                        "replay store %s has format %u, this program reads formats %d and %d",
                        store->dir.data_path, store->meta.format, STORE_FORMAT_BEFORE,
                        STORE_FORMAT);
    store->meta.format = STORE_FORMAT; /* what it has from the next time that it is written */
    uintptr_t page = (uintptr_t)data.mv_data & ~(store->page_bytes - 1);
    uint64_t page_number = page_header((const uint8_t *)page).number;
    if (page_number > store->map_bytes / store->page_bytes)
        return TRP_OK;
    uint8_t *map = (uint8_t *)page - page_number * store->page_bytes;
    unsigned char resident;
    if (mincore(map, store->page_bytes, &resident) == 0 && page_is_meta(map))
        store->map = map;
    return TRP_OK;
}

static trp_status nonce_draw(struct store *store)
{
    if (getrandom(store->meta.nonce, NONCE_BYTES, 0) == NONCE_BYTES)
        return TRP_OK;
    return store_errno(errno, store->dir.data_path, "get random bytes");
}

static trp_status trees_create(struct store *store, void *arg)
{
    (void)arg;
    TRP_TRY(trees_open(store, store->txn.write, MDB_CREATE));
    store->meta = (struct meta_record){.format = STORE_FORMAT,
                                       .map_bytes = store->map_bytes,
                                       .item_ceiling = 1,
                                       .chunk_ceiling = 1};
    TRP_TRY(nonce_draw(store));
    return lmdb_put_meta(store, NULL);
}

/* LMDB writes back what it has read of the free list under the numbers of past transactions, one
 * page to a number, or longer values if there are too few: so a young store gets a past. */
static trp_status trees_make(struct store *store)
{
    enum { NUMBERS = 2048 }; /* of 509 pages each: 4 GiB of free pages; 5 ms */
    TRP_TRY(lmdb_step(store, trees_create, NULL));
    int rc = mdb_env_set_flags(store->env, MDB_NOSYNC, 1);
    for (unsigned number = 0; rc == 0 && number < NUMBERS; number++)
        TRP_TRY(lmdb_step(store, lmdb_put_meta, NULL));
    if (rc == 0 && store->options.durability == TRP_DURABLE_SYSTEM)
        rc = mdb_env_set_flags(store->env, MDB_NOSYNC, 0);
    return rc == 0 ? TRP_OK : lmdb_fail(store, rc, "make");
}

static trp_status trees_check(struct store *store)
{
    MDB_txn *txn;
    int rc = mdb_txn_begin(store->env, NULL, MDB_RDONLY, &txn);
    if (rc != 0)
        return lmdb_fail(store, rc, "begin");
    trp_status status = trees_open(store, txn, 0);
    if (status == TRP_OK && store->has_trees)
        status = meta_record_read(store, txn);
    /* Committed, not aborted: handles of trees opened in an aborted transaction are gone. */
    rc = mdb_txn_commit(txn);
    return status != TRP_OK || rc == 0 ? status : lmdb_fail(store, rc, "commit");
}

/* data.mdb of a store that was made is there, and LMDB can read it. A file that a killed server had
 * open is as it left it: its pages are the kernel's, and LMDB's commits need no more than their
 * order. To go on with them is what that server would have done; and a walk through 10 GB of them
 * takes longer than all else until the first sample. */
static trp_status data_check(const struct store *store)
{
    struct stat info;
    const char *path = store->dir.data_path;
    if (stat(path, &info) != 0)
        return errno == ENOENT ? data_lost(store, "is missing") : store_errno(errno, path, "open");
    if (info.st_size == 0)
        return data_lost(store, "is empty");
    enum walk_depth depth = store->dir.killed ? WALK_METAS : WALK_TREES;
    if (store->dir.suspect || store->options.check)
        depth = WALK_VALUES;
    trp_status status = store_walk(path, depth, NULL);
    if (status != TRP_DATA_LOSS)
        return status;
    char *what = xstrdup(trp_last_error());
    status = data_lost(store, what);
    free(what);
    return status;
}

/* LMDB leaves out a map's last page. */
static uint64_t map_usable(uint64_t map_bytes)
{
    return map_bytes - (map_bytes < 2 * MAP_SPARE_BYTES ? map_bytes / 2 : MAP_SPARE_BYTES);
}

/* `before`: bytes of the file that is there. */
static trp_status env_open(struct store *store, unsigned flags, uint64_t before)
{
    flags |= MDB_NOSUBDIR | MDB_NOLOCK | MDB_NOTLS | MDB_NOMEMINIT;
    uint64_t map_bytes = 1; /* who only reads needs what is there, which LMDB knows */
    int rc = mdb_env_create(&store->env);
    if (rc == 0)
        rc = mdb_env_set_maxdbs(store->env, TREE_COUNT);
    if (rc == 0 && !(flags & MDB_RDONLY)) { /* again each time: file systems grow */
        uint64_t bytes, most = store->options.max_bytes;
        TRP_TRY(store_dir_capacity(&store->dir, &bytes, &map_bytes));
        if (most > 0 && most < before)
            most = before + store_tail_bytes(before);
        if (most > 0 && most < map_usable(map_bytes))
            map_bytes = (most / MAP_SPARE_BYTES + 2) * MAP_SPARE_BYTES;
    }
    if (rc == 0)
        rc = mdb_env_set_mapsize(store->env, map_bytes);
    if (rc == 0)
        rc = mdb_env_open(store->env, store->dir.data_path, flags, STORE_FILE_MODE);
    if (rc == ENOMEM)
        return trp_fail(TRP_RESOURCE_EXHAUSTED,
                        "replay store %s: no room in the address space for a map of at least "
                        "%" PRIu64 " bytes: raise `ulimit -v`, or bound the store with --max-bytes",
                        store->dir.data_path, map_bytes);
    if (rc != 0)
        return lmdb_fail(store, rc, "open");
    MDB_stat stat;
    MDB_envinfo info;
    mdb_env_stat(store->env, &stat);
    mdb_env_info(store->env, &info);
    store->page_bytes = stat.ms_psize;
    store->map_bytes = info.me_mapsize;
    return TRP_OK;
}

/* The file's. One that is longer than max_bytes may have what its changes need, and no more. */
static uint64_t pages_limit(const struct store *store, uint64_t first, uint64_t before)
{
    uint64_t most = store->options.max_bytes, usable = map_usable(store->map_bytes);
    uint64_t needed = pages_needed(&store->pages.account) * store->page_bytes;
    if (most > 0 && most < before && most < needed) {
        trp_log(
            TRP_WARN,
            "larger than max bytes path=%s bytes=%" PRIu64 " max_bytes=%" PRIu64
            " advice=\"it grows no more; removed items make room in it for others, and restoring "
            "a checkpoint makes it smaller\"",
            store->dir.data_path, needed, most);
        most = needed;
    }
    if (most == 0 || most > usable)
        most = usable;
    return most < first * store->page_bytes ? first : most / store->page_bytes;
}

static trp_status pages_open(struct store *store, int fd, uint64_t first, uint64_t before)
{
    struct pages *pages = &store->pages;
    uint64_t capacity, map_bytes;
    TRP_TRY(store_dir_capacity(&store->dir, &capacity, &map_bytes));
    TRP_TRY(lmdb_account(store));
    pages->limit = pages_limit(store, first, before);
    capacity /= store->page_bytes;
    pages->share = (pages->limit < capacity ? pages->limit : capacity) / 16;
    struct space_options options = {
        .fd = fd,
        .map = store->options.durability != TRP_DURABLE_SYSTEM ? store->map : NULL,
        .page_bytes = store->page_bytes,
        .first = first,
        .limit = pages->limit,
    };
    TRP_TRY(space_create(&pages->space, &options));
    pages_want(pages);
    /* The first group would wait for it; a full file system is for store_admit() to tell. */
    uint64_t ahead = 2 * pages_reserve(pages, 0);
    uint64_t aim = pages->account.next + ahead;
    if (pages_free(pages) < ahead)
        space_wait(pages->space, aim < options.limit ? aim : options.limit,
                   deadline_in_ms(&clock_monotonic, OPEN_WAIT_MS));
    return TRP_OK;
}

/* LMDB makes a file that it writes to through a map as long as the map. It is to be as long as what
 * it takes, for everybody who looks at it or copies it; the helper makes it longer before anything
 * is written there. Blocks that were taken ahead stay, should the file system be full by now. */
static trp_status data_shorten(const struct store *store, int fd, uint64_t first, uint64_t before)
{
    uint64_t bytes = first * store->page_bytes;
    struct stat info;
    if (before > bytes)
        bytes = before < bytes + AHEAD_BYTES_MAX ? before : bytes + AHEAD_BYTES_MAX;
    if (fstat(fd, &info) == 0 && (uint64_t)info.st_size > bytes && ftruncate(fd, (off_t)bytes) != 0)
        return store_errno(errno, store->dir.data_path, "shorten");
    return TRP_OK;
}

static trp_status data_make(struct store *store, int fd, uint64_t first)
{
    int error = posix_fallocate(fd, 0, (off_t)(first * store->page_bytes));
    if (error != 0)
        return store_errno(error, store->dir.data_path, "allocate the first pages");
    TRP_TRY(trees_make(store));
    int rc = store->options.durability == TRP_DURABLE_MEMORY ? 0 : mdb_env_sync(store->env, 1);
    if (rc != 0)
        return lmdb_fail(store, rc, "sync");
    return store_dir_make_end(&store->dir);
}

trp_status lmdb_make(struct store *store)
{
    store->dir.fresh = true;
    TRP_TRY(env_open(store, MDB_NOSYNC, 0));
    return trees_make(store);
}

/* Before a page is written through the map: on a full disk one that another file has, too, would
 * end us. A file system that shares but does not unshare (btrfs) writes every page to a new place,
 * shared or not: all that can be done is to say so. */
static trp_status data_own(const struct store *store)
{
    const char *path = store->dir.data_path;
    int fd = open(path, O_RDWR | O_CLOEXEC), error = fd < 0 ? errno : file_own_blocks(fd);
    fd_close(fd);
    if (error == EOPNOTSUPP)
        trp_log(TRP_WARN,
                "shares blocks with another file and cannot stop to path=%s advice=\"keep room on "
                "the disk: when it is full, writing to them ends the server\"",
                path);
    bool fine = error == 0 || error == EOPNOTSUPP;
    return fine ? TRP_OK : store_errno(error, path, "give it blocks of its own");
}

trp_status lmdb_open(struct store *store)
{
    bool fresh = store->dir.fresh;
    TRP_TRY(fresh ? store_dir_make_begin(&store->dir) : data_check(store));
    const struct store_options *options = &store->options;
    struct stat before = {0};
    unsigned flags = options->durability == TRP_DURABLE_SYSTEM ? 0 : MDB_WRITEMAP | MDB_NOSYNC;
    if (!fresh && !options->read_only)
        TRP_TRY(data_own(store));
    if (!fresh && stat(store->dir.data_path, &before) != 0)
        return store_errno(errno, store->dir.data_path, "open");
    TRP_TRY(env_open(store, options->read_only ? MDB_RDONLY : flags, (uint64_t)before.st_size));
    int fd;
    MDB_envinfo info;
    mdb_env_get_fd(store->env, &fd);
    mdb_env_info(store->env, &info);
    uint64_t first = store->pages.account.next = info.me_last_pgno + 1;
    if (options->read_only)
        return trees_check(store);
    if (fresh) {
        first = first < FIRST_PAGES ? FIRST_PAGES : first;
        TRP_TRY(data_make(store, fd, first));
    }
    TRP_TRY(trees_check(store));
    TRP_TRY(data_shorten(store, fd, first, (uint64_t)before.st_size));
    return pages_open(store, fd, first, (uint64_t)before.st_size);
}

trp_status lmdb_rename(struct store *store)
{
    if (pages_free(&store->pages) < store->pages.account.least)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "replay store %s has no room to be opened",
                        store->dir.data_path);
    TRP_TRY(nonce_draw(store));
    return lmdb_transact(store, lmdb_put_meta, NULL);
}

void lmdb_close(struct store *store)
{
    if (!store->env)
        return;
    space_destroy(store->pages.space);
    for (unsigned tree = 0; tree < TREE_COUNT; tree++)
        mdb_cursor_close(store->txn.read_cursors[tree]);
    mdb_cursor_close(store->reader.lmdb);
    mdb_txn_abort(store->txn.read);
    mdb_env_close(store->env);
    store->env = NULL;
}
