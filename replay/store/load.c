/* Everything back into memory: items from their records, to which the change log is applied on the
 * way, both being in the order of seqs. What the file says is believed only after it was checked:
 * an item whose chunks are not all there is a loss, a chunk that no item has is swept.
 *
 * It is done in two ways. A store that may not be trusted is loaded at once: all bytes of all
 * chunks are compared with their sums, and a damaged item is told and dropped. Any other is only
 * scanned for its items, so that they can be sampled; the items themselves are brought one by one,
 * in their order when there is time, and any of them before its turn when it is wanted. Until all
 * are there, nobody knows who else has a chunk: so until then nothing may be deleted. */
#include "loading.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/alloc.h"
#include "leaf_scan.h"

/* ---- records in parts ----------------------------------------------------------------------- */

/* The value whose first part is under the cursor. Moves to the first part of the next one; rc is
 * that move's. `bytes` live until the next call. */
static bool parts_read(MDB_cursor *cursor, MDB_val *key, MDB_val *data, struct buffer *whole,
                       trp_bytes *bytes, int *rc)
{
    uint64_t first = lmdb_key_read(*key);
    if (piece_key_piece(first) != 0 || key->mv_size != sizeof first)
        return false;
    *bytes = (trp_bytes){data->mv_data, data->mv_size};
    size_t last = data->mv_size;
    buffer_clear(whole);
    for (uint64_t expected = first + 1;; expected++) {
        *rc = mdb_cursor_get(cursor, key, data, MDB_NEXT);
        if (*rc != 0 || piece_key_seq(lmdb_key_read(*key)) != piece_key_seq(first))
            break;
        if (lmdb_key_read(*key) != expected || last != PIECE_BYTES)
            return false;
        if (whole->size == 0)
            buffer_append(whole, *bytes);
        buffer_append(whole, (trp_bytes){data->mv_data, data->mv_size});
        *bytes = buffer_bytes(whole);
        last = data->mv_size;
    }
    return true;
}

/* ---- tables --------------------------------------------------------------------------------- */

static char *bytes_text(trp_bytes bytes)
{
    char *text = xcalloc(bytes.size + 1, 1);
    if (bytes.size)
        memcpy(text, bytes.data, bytes.size);
    return text;
}

static bool table_load(struct store *store, uint64_t id, trp_bytes bytes)
{
    struct table_view view;
    if (id == 0 || id >= UINT32_MAX || !table_record_decode(bytes, &view))
        return false;
    if (store->tables.next_id <= id)
        store->tables.next_id = (uint32_t)id + 1;
    if (view.name.size == 0) {
        struct tombstone *tombstone = tombstone_add(store, (uint32_t)id);
        tombstone->marked = tombstone->found = true;
        return true;
    }
    size_t count = ++store->tables.count;
    store->tables.at = xrealloc(store->tables.at, count * sizeof *store->tables.at);
    store->tables.extras = xrealloc(store->tables.extras, count * sizeof *store->tables.extras);
    uint8_t *signature = view.signature.size ? xmalloc(view.signature.size) : NULL;
    if (signature)
        memcpy(signature, view.signature.data, view.signature.size);
    store->tables.at[count - 1] = (struct store_table){
        .id = (uint32_t)id,
        .options = bytes_text(view.options),
        .signature = {signature, view.signature.size},
        .given = view.given.size ? bytes_text(view.given) : NULL,
    };
    store->tables.extras[count - 1] = (struct stored_table){.name = bytes_text(view.name)};
    return true;
}

/* Counters as of the last compaction; the log has the rest. */
static trp_status counters_load(struct store *store, size_t index)
{
    uint64_t number = META_COUNTERS_KEY + store->tables.at[index].id;
    int64_t *logged = store->tables.extras[index].logged;
    MDB_val key = lmdb_key(&number), data;
    int rc = mdb_get(store->read_txn, store->trees[TREE_META], &key, &data);
    if (rc == MDB_NOTFOUND)
        return TRP_OK;
    if (rc != 0)
        return lmdb_fail(store, rc, "read counters");
    if (!counters_decode((trp_bytes){data.mv_data, data.mv_size}, logged))
        return record_lost(store, "the record of counters of table", store->tables.at[index].id);
    return TRP_OK;
}

static void counter_apply(struct store *store, struct change change)
{
    size_t index;
    uint64_t id = counter_table(change);
    if (store->tables.next_id <= id && id < UINT32_MAX)
        store->tables.next_id = (uint32_t)id + 1; /* of a store that has no ceiling yet */
    if (table_find_id(store, id, &index))
        store->tables.extras[index].logged[counter_index(change)] = (int64_t)change.value;
}

static trp_status log_counters_load(struct store *store)
{
    struct buffer changes = {0};
    uint64_t last_part;
    trp_status status = log_read(store, SIZE_MAX, SIZE_MAX, &changes, &last_part);
    const struct change *all = (const struct change *)(const void *)changes.data;
    size_t count = changes.size / sizeof *all;
    for (size_t index = 0; index < count; index++)
        if (change_op(all[index]) == CHANGE_COUNTER)
            counter_apply(store, all[index]);
    store->log.changes = count;
    buffer_cleanup(&changes);
    for (size_t index = 0; index < store->tables.count; index++)
        table_set_counters(&store->tables.at[index], store->tables.extras[index].logged);
    return status;
}

trp_status tables_load(struct store *store)
{
    TRP_TRY(lmdb_read_begin(store));
    MDB_cursor *cursor;
    MDB_val key, data;
    int rc = mdb_cursor_open(store->read_txn, store->trees[TREE_TABLES], &cursor);
    if (rc != 0)
        return lmdb_fail(store, rc, "read tables");
    trp_status status = TRP_OK;
    rc = mdb_cursor_get(cursor, &key, &data, MDB_FIRST);
    while (rc == 0 && status == TRP_OK) {
        uint64_t id = piece_key_seq(lmdb_key_read(key));
        trp_bytes bytes;
        if (!parts_read(cursor, &key, &data, &store->scratch, &bytes, &rc) ||
            !table_load(store, id, bytes))
            status = record_lost(store, "the record of table", id);
    }
    mdb_cursor_close(cursor);
    if (status == TRP_OK && rc != MDB_NOTFOUND)
        status = lmdb_fail(store, rc, "read tables");
    for (size_t index = 0; status == TRP_OK && index < store->tables.count; index++)
        status = counters_load(store, index);
    return status == TRP_OK ? log_counters_load(store) : status;
}

/* ---- items ---------------------------------------------------------------------------------- */

/* Takes back what was made of it. */
static void item_unmake(struct loading *loading, struct item *item)
{
    for (uint32_t index = 0; index < item->trajectory->chunk_count; index++) {
        struct chunk *chunk = item->chunks[index];
        item->chunks[index] = NULL;
        if (chunk)
            chunk_scan_release(loading, chunk);
    }
    store_item_destroy(loading->store, item);
}

/* An item of its record. NULL: *status failed, or *wrong says what is wrong with it. */
static struct item *item_of_record(struct loading *loading, uint64_t seq,
                                   const struct item_view *view, bool in_turn, const char **wrong,
                                   trp_status *status)
{
    struct store *store = loading->store;
    struct item_record state = view->header, *header = &state;
    compaction_apply(&loading->compaction, seq, header);
    struct item *item =
        store_item_create(store, store_trajectory(store, view->trajectory, header->chunk_count));
    item->key = header->key;
    item->seq = seq;
    item->priority = header->priority;
    item->inserted_at_ns = header->inserted_at_ns;
    item->times_sampled = header->times_sampled;
    item->policy_version = header->policy_version;
    item->print = header->print;
    for (uint32_t index = 0; index < header->chunk_count; index++) {
        item->chunks[index] =
            chunk_scan_take(loading, item_view_chunk(view, index), item_view_episode(view, index),
                            in_turn, wrong, status);
        if (!item->chunks[index]) {
            item_unmake(loading, item);
            return NULL;
        }
    }
    return item;
}

/* So that whoever takes an item may destroy it, and the next item finds the chunks as they are. */
static struct chunk **chunks_hold(const struct item *item)
{
    uint32_t count = item->trajectory->chunk_count;
    struct chunk **chunks = xmalloc((count + 1) * sizeof(struct chunk *));
    for (uint32_t index = 0; index < count; index++)
        chunk_ref(chunks[index] = item->chunks[index]);
    return chunks;
}

static void chunks_release(struct loading *loading, struct chunk **chunks, uint32_t count)
{
    for (uint32_t index = 0; index < count; index++)
        chunk_scan_release(loading, chunks[index]);
    free(chunks);
}

static trp_status item_lost(const struct store *store, uint64_t seq, const char *what)
{
    return trp_fail(TRP_DATA_LOSS,
                    "replay store %s: item %llu: %s; `troupe replay serve --verify` drops what is "
                    "damaged",
                    store->dir.data_path, (unsigned long long)seq, what);
}

/* It is told, and its record goes. */
static void item_forget(struct store *store, uint64_t seq, const struct item_view *view,
                        const char *what)
{
    store->counts.dropped++;
    if (store->options.damage)
        store->options.damage(store->options.damage_arg, view ? view->header.table_id : 0,
                              view ? view->header.key : seq, what);
    if (!store->options.read_only)
        group_delete_seq(store, seq);
}

/* Without a check the end of the load. */
static trp_status item_drop(struct loading *loading, uint64_t seq, const struct item_view *view,
                            const char *what)
{
    if (!loading->check)
        return item_lost(loading->store, seq, what);
    item_forget(loading->store, seq, view, what);
    return TRP_OK;
}

static trp_status record_load(struct loading *loading, uint64_t seq, trp_bytes bytes,
                              store_visit load, void *arg)
{
    struct store *store = loading->store;
    struct item_view view;
    const char *wrong;
    trp_status status = TRP_OK;
    if (compaction_deletes(&loading->compaction, seq))
        return TRP_OK;
    if (seq == 0 || !item_record_decode(bytes, seq, &view))
        return item_drop(loading, seq, NULL, "its record is damaged");
    bool gone = tombstone_has(store, view.header.table_id);
    tombstone_see(store, seq, !gone);
    if (gone)
        return TRP_OK;
    if (!table_find_id(store, view.header.table_id, NULL))
        return item_drop(loading, seq, &view, "it is in a table that is not there");
    struct item *item = item_of_record(loading, seq, &view, true, &wrong, &status);
    if (!item)
        return status == TRP_OK ? item_drop(loading, seq, &view, wrong) : status;
    store->counts.items++;
    store->counts.live_bytes += bytes.size;
    if (!loading->check)
        return load(arg, view.header.table_id, item);
    struct chunk **chunks = chunks_hold(item);
    status = load(arg, view.header.table_id, item);
    chunks_release(loading, chunks, view.header.chunk_count);
    if (status != TRP_DATA_LOSS)
        return status;
    store->counts.items--;
    store->counts.live_bytes -= bytes.size;
    return item_drop(loading, seq, &view, "it has a shape that no server wrote");
}

static trp_status records_load(struct loading *loading, store_visit load, void *arg)
{
    MDB_val *key = &loading->item_key, *data = &loading->item;
    int *rc = &loading->items_rc;
    trp_status status = loading_renew(loading);
    if (status == TRP_OK)
        *rc = mdb_cursor_get(loading->items, key, data, MDB_FIRST);
    while (*rc == 0 && status == TRP_OK) {
        uint64_t seq = piece_key_seq(lmdb_key_read(*key));
        trp_bytes bytes;
        if (parts_read(loading->items, key, data, &loading->record, &bytes, rc)) {
            status = record_load(loading, seq, bytes, load, arg);
            continue;
        }
        status = item_drop(loading, seq, NULL, "its record is damaged");
        while (*rc == 0 && piece_key_seq(lmdb_key_read(*key)) == seq)
            *rc = mdb_cursor_get(loading->items, key, data, MDB_NEXT);
    }
    if (status == TRP_OK && *rc != MDB_NOTFOUND)
        status = lmdb_fail(loading->store, *rc, "read items");
    return status;
}

/* ---- trust --------------------------------------------------------------------------------- */

bool store_trusted(const struct store *store)
{
    return store->has_trees && !store->options.check && !store->dir.suspect;
}

trp_status store_trust(struct store *store)
{
    /* A server that was killed, with another durability, may have left pages that no disk has. */
    int rc = store->options.durability == TRP_DURABLE_SYSTEM ? mdb_env_sync(store->env, 1) : 0;
    if (rc != 0)
        return lmdb_fail(store, rc, "sync");
    return store_dir_mark(&store->dir, store->options.durability, false);
}

/* ---- one load ------------------------------------------------------------------------------- */

static trp_status loading_begin(struct store *store)
{
    assert(!store->loaded && !store->loading);
    struct loading *loading = store->loading = xcalloc(1, sizeof *loading);
    loading->store = store;
    loading->check = !store_trusted(store);
    struct buffer changes = {0};
    uint64_t last_part;
    trp_status status = log_read(store, SIZE_MAX, SIZE_MAX, &changes, &last_part);
    if (status == TRP_OK)
        compaction_sort(&loading->compaction, &changes, &store->scratch);
    buffer_cleanup(&changes);
    return status;
}

void loading_end(struct store *store)
{
    struct loading *loading = store->loading;
    if (!loading)
        return;
    if (loading->pieces)
        mdb_cursor_close(loading->pieces);
    if (loading->items)
        mdb_cursor_close(loading->items);
    compaction_cleanup(&loading->compaction);
    buffer_cleanup(&loading->record);
    chunk_scan_cleanup(loading);
    free(loading);
    store->loading = NULL;
}

static void orphans_note(struct loading *loading)
{
    for (size_t index = 0; index < loading->scanned_count; index++) {
        struct scanned_chunk *scanned = &loading->scanned[index];
        if (!scanned->chunk)
            dead_push(&loading->store->dead.pending, (struct dead){scanned->seq, scanned->pieces});
    }
}

/* All items are there. What was dropped is gone for good before the store counts as one that can be
 * trusted. */
static trp_status load_finish(struct store *store)
{
    TRP_TRY(chunk_scan_rest(store->loading));
    orphans_note(store->loading);
    loading_end(store);
    /* From here on places are random: a fault that reads 128 KB for a page of 4 would waste most of
     * what the disk can do. What comes next is asked for by store_chunk_prefetch(). */
    if (store->map)
        madvise(store->map, store->map_bytes, MADV_RANDOM);
    store->loaded = true;
    if (store->options.read_only)
        return TRP_OK;
    if (store->counts.dropped > 0)
        TRP_TRY(store_commit(store));
    if (store->dir.suspect)
        TRP_TRY(store_trust(store));
    return store_dir_known(&store->dir, store->options.durability);
}

/* `status`, after which the store is of no use if it is a failure. */
static trp_status load_result(struct store *store, trp_status status)
{
    if (status == TRP_OK)
        return TRP_OK;
    loading_end(store);
    return store->failed != TRP_OK ? status : store_break(store, status);
}

trp_status store_load(struct store *store, store_visit load, void *arg)
{
    bool more = !store->options.read_only;
    if (!store->has_trees) {
        store->loaded = true;
        return TRP_OK;
    }
    trp_status status = loading_begin(store);
    if (status == TRP_OK)
        status = records_load(store->loading, load, arg);
    if (status == TRP_OK)
        status = load_finish(store);
    while (status == TRP_OK && more && store_sweep(store, &more) == TRP_OK)
        ;
    return load_result(store, status);
}

/* ---- items one by one ----------------------------------------------------------------------- */

struct scan {
    struct loading *loading;
    store_scan_visit visit;
    void *arg;
};

static trp_status item_scan(void *arg, uint64_t key, trp_bytes record)
{
    const struct scan *scan = arg;
    struct loading *loading = scan->loading;
    uint64_t seq = piece_key_seq(key);
    struct item_record header;
    if (piece_key_piece(key) != 0 || compaction_deletes(&loading->compaction, seq))
        return TRP_OK;
    if (seq == 0 || record.size < sizeof header)
        return item_lost(loading->store, seq, "its record is damaged");
    memcpy(&header, record.data, sizeof header);
    if (!item_state_valid(&header, seq))
        return item_lost(loading->store, seq, "its record is damaged");
    bool gone = tombstone_has(loading->store, header.table_id);
    tombstone_see(loading->store, seq, !gone);
    if (gone)
        return TRP_OK;
    compaction_apply(&loading->compaction, seq, &header);
    loading->store->counts.items++;
    return scan->visit(scan->arg, header.table_id, seq, header.priority);
}

trp_status store_scan(struct store *store, store_scan_visit visit, void *arg)
{
    assert(store_trusted(store));
    TRP_TRY(load_result(store, loading_begin(store)));
    struct scan scan = {store->loading, visit, arg};
    trp_status status = leaf_scan_run(store, TREE_ITEMS, item_scan, &scan);
    if (status == TRP_OK && !store->options.read_only)
        status = store_dir_known(&store->dir, store->options.durability);
    return load_result(store, status);
}

/* The record under the cursor, which goes to the next one. NULL: *status failed, or it is damaged,
 * and so forgotten. */
static struct item *item_read(struct loading *loading, uint64_t seq, bool in_turn,
                              trp_status *status)
{
    struct store *store = loading->store;
    struct item_view view;
    const char *wrong = "its record is damaged";
    trp_bytes bytes;
    if (!parts_read(loading->items, &loading->item_key, &loading->item, &loading->record, &bytes,
                    &loading->items_rc)) {
        loading->item_key = (MDB_val){0}; /* the cursor may stand anywhere in it */
        item_forget(store, seq, NULL, wrong);
        return NULL;
    }
    if (!item_record_decode(bytes, seq, &view)) {
        item_forget(store, seq, NULL, wrong);
        return NULL;
    }
    struct item *item = item_of_record(loading, seq, &view, in_turn, &wrong, status);
    if (item)
        store->counts.live_bytes += bytes.size;
    else if (*status == TRP_OK)
        item_forget(store, seq, &view, wrong);
    return item;
}

struct item *store_load_item(struct store *store, uint64_t seq, bool in_turn, bool *damaged)
{
    struct loading *loading = store->loading;
    uint64_t number = piece_key(seq, 0);
    struct item *item = NULL;
    *damaged = false;
    if (store->failed != TRP_OK)
        return NULL;
    assert(loading);
    trp_status status = loading_renew(loading);
    if (status == TRP_OK && lmdb_key_read(loading->item_key) != number) {
        loading->item_key = lmdb_key(&number);
        loading->items_rc =
            mdb_cursor_get(loading->items, &loading->item_key, &loading->item, MDB_SET_KEY);
        if (loading->items_rc != 0)
            status = lmdb_fail(store, loading->items_rc, "read an item");
    }
    if (status == TRP_OK)
        item = item_read(loading, seq, in_turn, &status);
    *damaged = status == TRP_OK && !item;
    store->counts.items -= *damaged;
    load_result(store, status);
    return item;
}

trp_status store_load_end(struct store *store)
{
    if (store->failed != TRP_OK)
        return store_broken(store);
    return load_result(store, load_finish(store));
}
