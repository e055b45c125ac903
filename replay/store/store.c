/* Items and chunks that survive the process. LMDB is the store itself, not a checkpoint of it:
 * what is committed is there, and an open store is its records plus what can be rebuilt from them
 * (reference counts, interned trajectories, the cache).
 *
 * Here: the life of a store and the small objects in memory. Guarantee: after a failed
 * commit nothing is accepted any more, so that memory and disk never disagree silently. */
#include "internal.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"

enum { CACHE_BYTES_DEFAULT = 256 << 20 };

/* ---- life ----------------------------------------------------------------------------------- */

/* Numbers go on behind everything that was ever given out. */
static trp_status numbers_load(struct store *store)
{
    store->next_item = store->meta.item_ceiling;
    store->next_chunk = store->meta.chunk_ceiling;
    store->log.next = store->removed.next = 1;
    uint64_t *const last[] = {&store->next_item, &store->next_chunk, &store->log.next,
                              &store->removed.next};
    const enum store_tree tree[] = {TREE_ITEMS, TREE_PIECES, TREE_CHANGES, TREE_REMOVED};
    store->tables.next_id = store->meta.table_ceiling ? store->meta.table_ceiling : 1;
    for (unsigned index = 0; index < sizeof tree / sizeof *tree; index++) {
        struct cursor cursor;
        TRP_TRY(cursor_open(store, tree[index], &cursor));
        TRP_TRY(cursor_move(&cursor, MDB_LAST));
        bool in_parts = tree[index] == TREE_ITEMS || tree[index] == TREE_PIECES;
        uint64_t number = in_parts ? piece_key_seq(cursor.key) : cursor.key;
        if (cursor.there && number >= *last[index])
            *last[index] = number + 1;
    }
    return TRP_OK;
}

static trp_status store_start(struct store *store, const char *dir)
{
    const struct store_options *options = &store->options;
    TRP_TRY(store_dir_open(&store->dir, dir, options->durability, options->read_only));
    if (!options->read_only)
        TRP_TRY(leases_revoke(store));
    TRP_TRY(lmdb_open(store));
    if (!options->read_only)
        pins_open(store);
    if (store->has_trees) {
        TRP_TRY(numbers_load(store));
        TRP_TRY(tables_load(store));
    }
    if (options->read_only)
        return TRP_OK;
    if (store->dir.another)
        TRP_TRY(lmdb_rename(store));
    /* A store that is there is only read until it proved to be in order; one that is to be checked
     * does so when it is loaded. */
    TRP_TRY(store_dir_upgrade(&store->dir));
    return store->dir.suspect ? TRP_OK : store_trust(store);
}

trp_status store_create(struct store **out, const struct store_options *options)
{
    struct store *store = xcalloc(1, sizeof *store);
    store->options = *options;
    store->options.dir = NULL;
    store->chunks.cache.cache_next = store->chunks.cache.cache_prev = &store->chunks.cache;
    store->chunks.cache_limit = options->cache_bytes ? options->cache_bytes : CACHE_BYTES_DEFAULT;
    trp_status status = store_start(store, options->dir);
    if (status != TRP_OK) {
        store_break(store, status);
        store_destroy(store);
        store = NULL;
    }
    *out = store;
    return status;
}

/* Compacts and syncs while everything is known to be right. True: the file can be trusted. */
static bool store_settle(struct store *store)
{
    if (store->options.read_only || !store->env || store->failed != TRP_OK)
        return false;
    tombstones_leave(store);
    while (store_work(store, true))
        ;
    lmdb_read_end(store);
    return store->failed == TRP_OK && (store->loaded || !store->dir.suspect) &&
           (store->options.durability == TRP_DURABLE_MEMORY || mdb_env_sync(store->env, 1) == 0);
}

void store_destroy(struct store *store)
{
    if (!store)
        return;
    assert(!store->copy);
    pins_close(store);
    chunks_unref(store, &store->kept);
    group_cleanup(store);
    sharing_destroy(store->sharing);
    bool clean = store_settle(store);
    loading_end(store);
    uint64_t file_bytes = clean ? pages_kept(&store->pages) * store->page_bytes : 0;
    lmdb_close(store);
    if (clean) {
        /* The pages allocated ahead go back, but for what the next life needs if the file
         * system fills up meanwhile. */
        if (truncate(store->dir.data_path, (off_t)file_bytes) == 0)
            clean = store_dir_mark(&store->dir, store->options.durability, true) == TRP_OK;
    }
    store_dir_close(&store->dir);
    compaction_cleanup(&store->log.compaction);
    free(store->dead.at);
    buffer_cleanup(&store->scratch);
    buffer_cleanup(&store->kept);
    tables_free(store);
    chunk_memory_cleanup(&store->chunks);
    map_cleanup(&store->trajectories);
    free(store->failed_words);
    free(store);
}

uint64_t store_tail_bytes(uint64_t bytes)
{
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE); /* as LMDB's */
    return pages_tail_kept(bytes / page_bytes) * page_bytes;
}

const uint8_t *store_identity(const struct store *store)
{
    return store->meta.nonce;
}

void store_stats(const struct store *store, struct store_stats *stats)
{
    struct stat info = {0};
    if (stat(store->dir.data_path, &info) != 0)
        info.st_blocks = 0;
    uint64_t limit = store->pages.limit * store->page_bytes, capacity, map_bytes;
    if (store_dir_capacity(&store->dir, &capacity, &map_bytes) == TRP_OK &&
        (limit == 0 || limit > capacity))
        limit = capacity;
    *stats = (struct store_stats){
        .file_bytes = store->pages.account.next * store->page_bytes,
        .live_bytes = store->counts.live_bytes,
        .limit_bytes = limit,
        .allocated_bytes = (uint64_t)info.st_blocks * 512,
        .items = store->counts.items,
        .chunks = store->counts.chunks,
        .groups = store->counts.groups,
        .cache_bytes = store->chunks.cache_used,
        .damaged = store->counts.damaged,
        .unswept = store->dead.count,
    };
}
