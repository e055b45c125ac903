/* Items and chunks that survive the process. LMDB is the store itself, not a checkpoint of it:
 * what is committed is there, and an open store is its records plus what can be rebuilt from them
 * (reference counts, interned trajectories, the cache).
 *
 * Here: the life of a store, its tables, and the small objects in memory. Guarantee: after a failed
 * commit nothing is accepted any more, so that memory and disk never disagree silently. */
#include "store_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"

enum { CACHE_BYTES_DEFAULT = 256 << 20, TRAJECTORY_SLOTS_MIN = 64, STOPPED_TAIL_PAGES = 192 };

/* ---- life ----------------------------------------------------------------------------------- */

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

/* Numbers go on behind everything that was ever given out. */
static trp_status numbers_load(struct store *store)
{
    store->next_item = store->meta.item_ceiling;
    store->next_chunk = store->meta.chunk_ceiling;
    store->next_change = store->next_parked = store->next_removed = 1;
    TRP_TRY(lmdb_read_begin(store));
    uint64_t *const last[] = {&store->next_item, &store->next_chunk, &store->next_change,
                              &store->next_parked, &store->next_removed};
    const enum store_tree tree[] = {TREE_ITEMS, TREE_PIECES, TREE_CHANGES, TREE_PARKED,
                                    TREE_REMOVED};
    for (unsigned index = 0; index < sizeof tree / sizeof *tree; index++) {
        MDB_cursor *cursor;
        MDB_val key;
        int rc = mdb_cursor_open(store->read_txn, store->trees[tree[index]], &cursor);
        if (rc != 0)
            return lmdb_fail(store, rc, "open");
        rc = mdb_cursor_get(cursor, &key, NULL, MDB_LAST);
        mdb_cursor_close(cursor);
        if (rc == MDB_NOTFOUND)
            continue;
        if (rc != 0)
            return lmdb_fail(store, rc, "open");
        uint64_t number = lmdb_key_read(key);
        if (tree[index] == TREE_ITEMS || tree[index] == TREE_PIECES)
            number = piece_key_seq(number);
        if (number >= *last[index])
            *last[index] = number + 1;
    }
    return TRP_OK;
}

bool store_trusted(const struct store *store)
{
    return store->has_trees && !store->options.check && !store->dir.suspect;
}

trp_status store_trust(struct store *store)
{
    return store_dir_mark(&store->dir, store->options.durability, false);
}

trp_status store_create(struct store **out, const struct store_options *options)
{
    struct store *store = xcalloc(1, sizeof *store);
    store->options = *options;
    store->options.dir = NULL;
    store->cache.cache_next = store->cache.cache_prev = &store->cache;
    store->cache_limit = options->cache_bytes ? options->cache_bytes : CACHE_BYTES_DEFAULT;
    store->trajectory_slots = TRAJECTORY_SLOTS_MIN;
    store->trajectories = xcalloc(store->trajectory_slots, sizeof *store->trajectories);
    trp_status status =
        store_dir_open(&store->dir, options->dir, options->durability, options->read_only);
    if (status == TRP_OK && !options->read_only)
        status = leases_revoke(store);
    if (status == TRP_OK)
        status = lmdb_open(store);
    if (status == TRP_OK && !options->read_only)
        loans_open(store);
    if (status == TRP_OK && store->has_trees)
        status = numbers_load(store);
    if (status == TRP_OK && store->has_trees)
        status = tables_load(store);
    /* What is there is only read until it proved to be in order; what is to be checked does so when
     * it is loaded. */
    if (status == TRP_OK && !options->read_only && !store->dir.suspect)
        status = store_trust(store);
    if (status != TRP_OK) {
        store_break(store, status);
        store_destroy(store);
        store = NULL;
    }
    *out = store;
    return status;
}

/* Folds and syncs while everything is known to be right. True: the file can be trusted. */
static bool store_settle(struct store *store)
{
    if (store->options.read_only || !store->env || store->failed != TRP_OK)
        return false;
    while (store_work(store, true))
        ;
    lmdb_read_end(store);
    return store->failed == TRP_OK && (store->loaded || !store->dir.suspect) &&
           (store->options.durability == TRP_DURABLE_MEMORY || mdb_env_sync(store->env, 1) == 0);
}

static void tables_free(struct store *store)
{
    for (size_t index = 0; index < store->table_count; index++) {
        free(store->tables[index].options);
        free(store->tables[index].given);
        free((void *)store->tables[index].signature.data);
        free(store->table_extras[index].name);
    }
    free(store->tables);
    free(store->table_extras);
}

void store_destroy(struct store *store)
{
    if (!store)
        return;
    assert(!store->copy);
    loans_close(store);
    group_cleanup(store);
    sharing_destroy(store->sharing);
    bool clean = store_settle(store);
    uint64_t file_bytes = (store->account.next + STOPPED_TAIL_PAGES) * store->page_bytes;
    lmdb_close(store);
    if (clean) {
        /* The pages allocated ahead go back, but for what the next start needs if the file
         * system fills up meanwhile. */
        if (truncate(store->dir.data_path, (off_t)file_bytes) == 0)
            clean = store_dir_mark(&store->dir, store->options.durability, true) == TRP_OK;
    }
    store_dir_close(&store->dir);
    fold_cleanup(&store->fold);
    free(store->pending.at);
    free(store->held.at);
    buffer_cleanup(&store->scratch);
    tables_free(store);
    spares_cleanup(store);
    slabs_cleanup(&store->slabs);
    free(store->trajectories);
    free(store->failed_words);
    free(store);
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
    uint64_t limit = store->limit_pages * store->page_bytes, capacity, map_bytes;
    if (store_dir_capacity(&store->dir, &capacity, &map_bytes) == TRP_OK &&
        (limit == 0 || limit > capacity))
        limit = capacity;
    *stats = (struct store_stats){
        .file_bytes = store->account.next * store->page_bytes,
        .live_bytes = store->live_bytes,
        .limit_bytes = limit,
        .allocated_bytes = (uint64_t)info.st_blocks * 512,
        .items = store->item_count,
        .chunks = store->chunk_count,
        .groups = store->group_count,
        .cache_bytes = store->cache_used,
        .dropped = store->dropped,
        .checked_chunks = store->checked_chunks,
        .checked_bytes = store->checked_bytes,
        .unswept = store->pending.count + store->held.count + store->group.dead.count,
    };
}

/* ---- tables --------------------------------------------------------------------------------- */

void table_counters(const struct store_table *table, int64_t counters[COUNTERS])
{
    const int64_t values[COUNTERS] = {
        table->inserts,          table->samples,         table->deletes,
        table->episodes_deleted, table->unique_samples,  (int64_t)table->rng[0],
        (int64_t)table->rng[1],  (int64_t)table->rng[2], (int64_t)table->rng[3]};
    memcpy(counters, values, sizeof values);
}

void table_set_counters(struct store_table *table, const int64_t counters[COUNTERS])
{
    table->inserts = counters[0];
    table->samples = counters[1];
    table->deletes = counters[2];
    table->episodes_deleted = counters[3];
    table->unique_samples = counters[4];
    for (unsigned i = 0; i < 4; i++)
        table->rng[i] = (uint64_t)counters[COUNTERS_SIGNED + i];
}

const struct store_table *store_tables(const struct store *store, size_t *count)
{
    *count = store->table_count;
    return store->tables;
}

struct store_table *table_find_id(struct store *store, uint64_t id, size_t *index)
{
    for (size_t at = 0; at < store->table_count; at++) {
        if (store->tables[at].id == id) {
            if (index)
                *index = at;
            return &store->tables[at];
        }
    }
    return NULL;
}

static trp_bytes bytes_copy(trp_bytes bytes)
{
    if (bytes.size == 0)
        return (trp_bytes){0};
    uint8_t *copy = xmalloc(bytes.size);
    memcpy(copy, bytes.data, bytes.size);
    return (trp_bytes){copy, bytes.size};
}

/* Takes `name`. */
static size_t table_add(struct store *store, uint32_t id, char *name)
{
    size_t index = store->table_count++;
    store->tables = xrealloc(store->tables, store->table_count * sizeof *store->tables);
    store->table_extras =
        xrealloc(store->table_extras, store->table_count * sizeof *store->table_extras);
    store->tables[index] = (struct store_table){.id = id};
    store->table_extras[index] = (struct stored_table){.name = name};
    return index;
}

/* A dropped table may have had the id, and the log what it counted. */
static void table_reset_counters(struct store *store, uint32_t id)
{
    for (unsigned which = 0; which < COUNTERS; which++) {
        struct change change = change_counter(id, which, 0);
        buffer_append(&store->group.changes, (trp_bytes){(const uint8_t *)&change, sizeof change});
    }
}

uint32_t store_table_put(struct store *store, const char *name, const char *options,
                         trp_bytes signature)
{
    assert(!store->options.read_only);
    size_t index = 0;
    uint32_t id = 1;
    while (index < store->table_count && strcmp(store->table_extras[index].name, name) != 0) {
        if (store->tables[index].id >= id)
            id = store->tables[index].id + 1;
        index++;
    }
    if (index == store->table_count) {
        table_add(store, id, xstrdup(name));
        table_reset_counters(store, id);
    }
    struct store_table *table = &store->tables[index];
    char *line = xstrdup(options);
    trp_bytes copy = bytes_copy(signature);
    free(table->options);
    free((void *)table->signature.data);
    table->options = line;
    table->signature = copy;
    store->table_extras[index].changed = true;
    store->group.tables_changed = true;
    return table->id;
}

void store_table_given(struct store *store, uint32_t id, const char *given)
{
    size_t index;
    struct store_table *table = table_find_id(store, id, &index);
    assert(table);
    char *copy = xstrdup(given);
    free(table->given);
    table->given = copy;
    store->table_extras[index].changed = true;
    store->group.tables_changed = true;
}

void store_table_drop(struct store *store, uint32_t id)
{
    size_t index;
    struct store_table *table = table_find_id(store, id, &index);
    assert(table);
    free(store->table_extras[index].name);
    store->table_extras[index].name = xstrdup(""); /* which no table has */
    store->table_extras[index].dropped = true;
    store->group.tables_changed = true;
}

/* Removes its record and counters. */
static int table_erase(struct store *store, MDB_txn *txn, uint32_t id)
{
    struct change run = change_make(CHANGE_DELETE, id, 1);
    uint64_t quota = UINT64_MAX, number = META_COUNTERS_KEY + id;
    MDB_val key = lmdb_key(&number);
    MDB_cursor *cursor;
    int rc = mdb_del(txn, store->trees[TREE_META], &key, NULL);
    if (rc == 0 || rc == MDB_NOTFOUND)
        rc = mdb_cursor_open(txn, store->trees[TREE_TABLES], &cursor);
    if (rc != 0)
        return rc;
    rc = items_remove(cursor, &run, &quota);
    mdb_cursor_close(cursor);
    return rc;
}

static void table_forget(struct store *store, size_t index)
{
    free(store->tables[index].options);
    free(store->tables[index].given);
    free((void *)store->tables[index].signature.data);
    free(store->table_extras[index].name);
    size_t behind = --store->table_count - index;
    memmove(&store->tables[index], &store->tables[index + 1], behind * sizeof *store->tables);
    memmove(&store->table_extras[index], &store->table_extras[index + 1],
            behind * sizeof *store->table_extras);
}

static int table_put(struct store *store, MDB_txn *txn, size_t index)
{
    const struct store_table *table = &store->tables[index];
    const char *name = store->table_extras[index].name;
    struct table_view view = {
        .name = {(const uint8_t *)name, strlen(name)},
        .options = {(const uint8_t *)table->options, strlen(table->options)},
        .signature = table->signature,
        .given = {(const uint8_t *)table->given, table->given ? strlen(table->given) : 0},
    };
    struct buffer record = {0};
    table_record_encode(&record, &view);
    /* Parts of a longer predecessor must not stay. */
    struct change old = change_make(CHANGE_DELETE, table->id, 1);
    uint64_t quota = UINT64_MAX;
    MDB_cursor *cursor;
    int rc = mdb_cursor_open(txn, store->trees[TREE_TABLES], &cursor);
    if (rc == 0) {
        rc = items_remove(cursor, &old, &quota);
        if (rc == 0)
            rc = lmdb_put_parts(cursor, table->id, buffer_bytes(&record), 0);
        mdb_cursor_close(cursor);
    }
    buffer_cleanup(&record);
    return rc;
}

int tables_put(struct store *store, MDB_txn *txn)
{
    int rc = 0;
    for (size_t index = store->table_count; rc == 0 && index-- > 0;) {
        struct stored_table *extra = &store->table_extras[index];
        if (extra->dropped) {
            rc = table_erase(store, txn, store->tables[index].id);
            table_forget(store, index);
        } else if (extra->changed) {
            extra->changed = false;
            rc = table_put(store, txn, index);
        }
    }
    return rc;
}

int counters_put(struct store *store, MDB_txn *txn)
{
    int rc = 0;
    for (size_t index = 0; rc == 0 && index < store->table_count; index++) {
        uint64_t number = META_COUNTERS_KEY + store->tables[index].id;
        MDB_val key = lmdb_key(&number);
        MDB_val data = {sizeof store->table_extras[index].logged,
                        store->table_extras[index].logged};
        rc = mdb_put(txn, store->trees[TREE_META], &key, &data, 0);
    }
    return rc;
}

/* ---- trajectories --------------------------------------------------------------------------- */

static uint32_t bytes_hash(trp_bytes bytes)
{
    uint64_t hash = UINT64_C(0x9E3779B97F4A7C15) ^ bytes.size;
    size_t at = 0;
    for (; at + 8 <= bytes.size; at += 8) {
        uint64_t word;
        memcpy(&word, bytes.data + at, sizeof word);
        hash = (hash ^ word) * UINT64_C(0xD6E8FEB86659FD93);
        hash ^= hash >> 32;
    }
    for (; at < bytes.size; at++)
        hash = (hash ^ bytes.data[at]) * UINT64_C(0x100000001B3);
    return (uint32_t)(hash ^ hash >> 32);
}

static void trajectories_grow(struct store *store)
{
    uint32_t slots = store->trajectory_slots * 2;
    struct trajectory **chains = xcalloc(slots, sizeof *chains);
    for (uint32_t slot = 0; slot < store->trajectory_slots; slot++) {
        for (struct trajectory *next, *at = store->trajectories[slot]; at; at = next) {
            next = at->next;
            at->next = chains[at->hash & (slots - 1)];
            chains[at->hash & (slots - 1)] = at;
        }
    }
    free(store->trajectories);
    store->trajectories = chains;
    store->trajectory_slots = slots;
}

struct trajectory *store_trajectory(struct store *store, trp_bytes bytes, uint32_t chunk_count)
{
    assert(bytes.size <= UINT32_MAX);
    uint32_t hash = bytes_hash(bytes);
    struct trajectory *at = store->trajectories[hash & (store->trajectory_slots - 1)];
    for (; at; at = at->next) {
        if (at->hash == hash && at->size == bytes.size && at->chunk_count == chunk_count &&
            (bytes.size == 0 || memcmp(at->bytes, bytes.data, bytes.size) == 0)) {
            at->refs++;
            return at;
        }
    }
    if (store->trajectory_count == store->trajectory_slots)
        trajectories_grow(store);
    at = xmalloc(sizeof *at + bytes.size);
    struct trajectory **chain = &store->trajectories[hash & (store->trajectory_slots - 1)];
    *at = (struct trajectory){.refs = 1,
                              .hash = hash,
                              .size = (uint32_t)bytes.size,
                              .chunk_count = chunk_count,
                              .next = *chain};
    if (bytes.size)
        memcpy(at->bytes, bytes.data, bytes.size);
    *chain = at;
    store->trajectory_count++;
    return at;
}

static void trajectory_unref(struct store *store, struct trajectory *trajectory)
{
    assert(trajectory->refs > 0);
    if (--trajectory->refs > 0)
        return;
    struct trajectory **link =
        &store->trajectories[trajectory->hash & (store->trajectory_slots - 1)];
    while (*link != trajectory)
        link = &(*link)->next;
    *link = trajectory->next;
    store->trajectory_count--;
    free(trajectory);
}

/* ---- items ---------------------------------------------------------------------------------- */

static size_t item_bytes(const struct trajectory *trajectory)
{
    return sizeof(struct item) + sizeof(struct chunk *) * (size_t)trajectory->chunk_count;
}

struct item *store_item_create(struct store *store, struct trajectory *trajectory)
{
    size_t bytes = item_bytes(trajectory);
    struct item *item = memset(slab_take(&store->slabs, bytes), 0, bytes);
    item->trajectory = trajectory;
    item->slot = SLOT_NONE;
    return item;
}

void store_item_destroy(struct store *store, struct item *item)
{
    if (!item)
        return;
    for (uint32_t index = 0; index < item->trajectory->chunk_count; index++)
        if (item->chunks[index])
            store_chunk_unref(store, item->chunks[index]);
    size_t bytes = item_bytes(item->trajectory);
    trajectory_unref(store, item->trajectory);
    slab_give(&store->slabs, item, bytes);
}
