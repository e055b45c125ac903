/* Everything back into memory. Chunks are known from the keys and sizes of their pieces, whose
 * bytes are not touched; items from their records, to which the change log is applied on the way,
 * both being in the order of seqs. What the file says is believed only after it was checked: an
 * item whose chunks are not all there is a loss, a chunk that no item has is swept.
 *
 * A store that may not be trusted is checked further: the bytes of every chunk are compared with
 * its sum, and a damaged item is told and dropped instead of ending the load. */
#include "store_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/alloc.h"

struct found {
    uint64_t seq;
    struct chunk *chunk; /* NULL until an item refers to it */
    uint32_t size;
    uint32_t pieces : 31;
    uint32_t damaged : 1;
};

struct loading {
    struct store *store;
    struct found *found; /* ascending seq */
    size_t found_count, found_capacity;
    size_t last_found; /* items name chunks mostly in ascending order */
    bool check;
    struct fold fold; /* the whole log, sorted */
    size_t next_delete;
    struct buffer record; /* of an item in several parts */
    store_visit load;
    void *arg;
};

static trp_status damaged(const struct store *store, const char *what, uint64_t seq)
{
    return trp_fail(
        TRP_DATA_LOSS,
        "replay store %s: %s %llu is damaged; `troupe replay serve --verify` drops what is "
        "damaged",
        store->dir.data_path, what, (unsigned long long)seq);
}

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
    if (id == 0 || id > UINT32_MAX || !table_record_decode(bytes, &view) || view.name.size == 0)
        return false;
    size_t count = ++store->table_count;
    store->tables = xrealloc(store->tables, count * sizeof *store->tables);
    store->table_extras = xrealloc(store->table_extras, count * sizeof *store->table_extras);
    uint8_t *signature = view.signature.size ? xmalloc(view.signature.size) : NULL;
    if (signature)
        memcpy(signature, view.signature.data, view.signature.size);
    store->tables[count - 1] = (struct store_table){
        .id = (uint32_t)id,
        .options = bytes_text(view.options),
        .signature = {signature, view.signature.size},
        .given = view.given.size ? bytes_text(view.given) : NULL,
    };
    store->table_extras[count - 1] = (struct stored_table){.name = bytes_text(view.name)};
    return true;
}

/* Counters as of the last fold; the log has the rest. */
static trp_status counters_load(struct store *store, size_t index)
{
    uint64_t number = META_COUNTERS_KEY + store->tables[index].id;
    int64_t *logged = store->table_extras[index].logged;
    MDB_val key = lmdb_key(&number), data;
    int rc = mdb_get(store->read_txn, store->trees[TREE_META], &key, &data);
    if (rc == MDB_NOTFOUND)
        return TRP_OK;
    if (rc != 0)
        return lmdb_fail(store, rc, "read counters");
    if (!counters_decode((trp_bytes){data.mv_data, data.mv_size}, logged))
        return damaged(store, "counters of table", store->tables[index].id);
    return TRP_OK;
}

static void counter_apply(struct store *store, struct change change)
{
    size_t index;
    if (table_find_id(store, counter_table(change), &index))
        store->table_extras[index].logged[counter_index(change)] = (int64_t)change.value;
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
    store->log_changes = count;
    buffer_cleanup(&changes);
    for (size_t index = 0; index < store->table_count; index++)
        table_set_counters(&store->tables[index], store->table_extras[index].logged);
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
            status = damaged(store, "table", id);
    }
    mdb_cursor_close(cursor);
    if (status == TRP_OK && rc != MDB_NOTFOUND)
        status = lmdb_fail(store, rc, "read tables");
    for (size_t index = 0; status == TRP_OK && index < store->table_count; index++)
        status = counters_load(store, index);
    return status == TRP_OK ? log_counters_load(store) : status;
}

/* ---- chunks --------------------------------------------------------------------------------- */

static struct found *found_push(struct loading *loading, uint64_t seq)
{
    if (loading->found_count == loading->found_capacity) {
        loading->found_capacity = loading->found_capacity ? loading->found_capacity * 2 : 1024;
        loading->found = xrealloc(loading->found, loading->found_capacity * sizeof *loading->found);
    }
    struct found *found = &loading->found[loading->found_count++];
    *found = (struct found){.seq = seq};
    return found;
}

/* One more piece of `found`. False: it is not the one that comes next. */
static bool found_add(struct loading *loading, struct found *found, uint64_t number,
                      trp_bytes piece, struct chunk_check *check)
{
    uint32_t place = piece_key_piece(number);
    bool follows = place == found->pieces && found->size == (uint64_t)place * PIECE_BYTES &&
                   piece.size <= PIECE_BYTES;
    found->pieces = place + 1;
    found->size += (uint32_t)piece.size;
    if (loading->check && follows)
        chunk_check_piece(check, piece);
    return follows;
}

/* All its pieces came: what is left is the chunk's size. */
static bool found_end(struct loading *loading, struct found *found, struct chunk_check *check)
{
    bool whole = found->size >= SUM_BYTES && (!loading->check || chunk_check_end(check));
    found->damaged |= !whole;
    found->size -= found->size < SUM_BYTES ? found->size : SUM_BYTES;
    loading->store->checked_chunks += loading->check;
    loading->store->checked_bytes += loading->check ? found->size : 0;
    *check = (struct chunk_check){0};
    return whole || loading->check;
}

/* Finds all chunks and their sizes. */
static trp_status chunks_find(struct loading *loading)
{
    struct store *store = loading->store;
    MDB_val key, data;
    struct found *found = NULL;
    struct chunk_check check = {0};
    int rc = mdb_cursor_get(store->read_cursor, &key, &data, MDB_FIRST);
    for (; rc == 0; rc = mdb_cursor_get(store->read_cursor, &key, &data, MDB_NEXT)) {
        uint64_t number = lmdb_key_read(key), seq = piece_key_seq(number);
        if (!found || found->seq != seq) {
            if (found && !found_end(loading, found, &check))
                return damaged(store, "chunk", found->seq);
            found = found_push(loading, seq);
        }
        if (seq > 0 &&
            found_add(loading, found, number, (trp_bytes){data.mv_data, data.mv_size}, &check))
            continue;
        found->damaged = true;
        if (!loading->check)
            return damaged(store, "a piece of chunk", seq);
    }
    store->read_last = 0;
    if (rc != MDB_NOTFOUND)
        return lmdb_fail(store, rc, "read pieces");
    return !found || found_end(loading, found, &check) ? TRP_OK
                                                       : damaged(store, "chunk", found->seq);
}

static struct found *found_get(struct loading *loading, uint64_t seq)
{
    size_t low = 0, high = loading->found_count, next = loading->last_found;
    if (next < high && loading->found[next].seq == seq)
        return &loading->found[next];
    if (next + 1 < high && loading->found[next + 1].seq == seq) {
        loading->last_found = next + 1;
        return &loading->found[next + 1];
    }
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (loading->found[middle].seq < seq)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == loading->found_count || loading->found[low].seq != seq)
        return NULL;
    loading->last_found = low;
    return &loading->found[low];
}

static void orphans_sweep(struct loading *loading)
{
    struct store *store = loading->store;
    for (size_t index = 0; index < loading->found_count; index++) {
        struct found *found = &loading->found[index];
        if (!found->chunk)
            dead_push(&store->pending, (struct dead){found->seq, found->pieces});
    }
    bool more = true;
    while (!store->options.read_only && more && store_sweep(store, &more) == TRP_OK)
        ;
}

/* ---- items ---------------------------------------------------------------------------------- */

static bool item_deleted(struct loading *loading, uint64_t seq)
{
    const struct fold *fold = &loading->fold;
    size_t *next = &loading->next_delete;
    while (*next < fold->delete_count &&
           change_seq(fold->deletes[*next]) + fold->deletes[*next].value <= seq)
        ++*next;
    return *next < fold->delete_count && change_seq(fold->deletes[*next]) <= seq;
}

static void item_apply(struct loading *loading, struct item *item)
{
    struct fold *fold = &loading->fold;
    while (fold->next < fold->update_count && change_seq(fold->updates[fold->next]) < item->seq)
        fold->next++;
    for (; fold->next < fold->update_count && change_seq(fold->updates[fold->next]) == item->seq;
         fold->next++) {
        struct change change = fold->updates[fold->next];
        if (change_op(change) == CHANGE_PRIORITY)
            memcpy(&item->priority, &change.value, sizeof item->priority);
        else
            item->times_sampled = (int32_t)change.value;
    }
}

/* NULL, or what is wrong with the item's chunks. */
static const char *item_link(struct loading *loading, const struct item_view *view,
                             struct item *item)
{
    for (uint32_t index = 0; index < view->header.chunk_count; index++) {
        struct found *found = found_get(loading, item_view_chunk(view, index));
        if (!found || found->damaged)
            return found ? "a chunk is damaged" : "a chunk is missing";
        if (!found->chunk) {
            found->chunk = chunk_create_stored(loading->store, found->seq, found->size);
            found->chunk->episode = item_view_episode(view, index);
            loading->store->chunk_count++;
            loading->store->live_bytes += found->size;
        }
        found->chunk->refs++;
        item->chunks[index] = found->chunk;
    }
    return NULL;
}

static void found_release(struct loading *loading, struct found *found)
{
    struct chunk *chunk = found->chunk;
    if (--chunk->refs > 0)
        return;
    found->chunk = NULL; /* swept, unless another item refers to it */
    loading->store->chunk_count--;
    loading->store->live_bytes -= chunk->size;
    chunk_free(loading->store, chunk);
}

/* Takes back what item_link() did. */
static void item_unlink(struct loading *loading, struct item *item)
{
    for (uint32_t index = 0; index < item->trajectory->chunk_count; index++) {
        struct chunk *chunk = item->chunks[index];
        item->chunks[index] = NULL;
        if (chunk)
            found_release(loading, found_get(loading, chunk->seq));
    }
    store_item_destroy(loading->store, item);
}

/* So that whoever takes an item may destroy it, and the next item finds the chunks as they are. */
static void chunks_hold(struct loading *loading, const struct item_view *view)
{
    for (uint32_t index = 0; index < view->header.chunk_count; index++)
        store_chunk_ref(found_get(loading, item_view_chunk(view, index))->chunk);
}

static void chunks_release(struct loading *loading, const struct item_view *view)
{
    for (uint32_t index = 0; index < view->header.chunk_count; index++)
        found_release(loading, found_get(loading, item_view_chunk(view, index)));
}

/* Without a check the end of the load; else told, and its record goes. */
static trp_status item_drop(struct loading *loading, uint64_t seq, const struct item_view *view,
                            const char *what)
{
    struct store *store = loading->store;
    if (!loading->check)
        return trp_fail(
            TRP_DATA_LOSS,
            "replay store %s: item %llu: %s; `troupe replay serve --verify` drops what is "
            "damaged",
            store->dir.data_path, (unsigned long long)seq, what);
    store->dropped++;
    if (store->options.damage)
        store->options.damage(store->options.damage_arg, view ? view->header.table_id : 0,
                              view ? view->header.key : seq, what);
    if (!store->options.read_only)
        group_delete_seq(store, seq);
    return TRP_OK;
}

static trp_status item_load(struct loading *loading, uint64_t seq, trp_bytes bytes)
{
    struct store *store = loading->store;
    struct item_view view;
    if (item_deleted(loading, seq))
        return TRP_OK;
    if (seq == 0 || !item_record_decode(bytes, &view))
        return item_drop(loading, seq, NULL, "its record is damaged");
    if (!table_find_id(store, view.header.table_id, NULL))
        return item_drop(loading, seq, &view, "it is in a table that is not there");
    struct item *item =
        store_item_create(store, store_trajectory(store, view.trajectory, view.header.chunk_count));
    item->key = view.header.key;
    item->seq = seq;
    item->priority = view.header.priority;
    item->inserted_at_ns = view.header.inserted_at_ns;
    item->times_sampled = view.header.times_sampled;
    item->policy_version = view.header.policy_version;
    item->print = view.header.print;
    const char *wrong = item_link(loading, &view, item);
    if (wrong) {
        item_unlink(loading, item);
        return item_drop(loading, seq, &view, wrong);
    }
    item_apply(loading, item);
    if (!loading->check) {
        store->item_count++;
        store->live_bytes += bytes.size;
        return loading->load(loading->arg, view.header.table_id, item);
    }
    chunks_hold(loading, &view);
    trp_status status = loading->load(loading->arg, view.header.table_id, item);
    chunks_release(loading, &view);
    if (status == TRP_DATA_LOSS)
        return item_drop(loading, seq, &view, "it has a shape that no server wrote");
    store->item_count++;
    store->live_bytes += bytes.size;
    return status;
}

static trp_status items_load(struct loading *loading)
{
    struct store *store = loading->store;
    MDB_cursor *cursor;
    MDB_val key, data;
    int rc = mdb_cursor_open(store->read_txn, store->trees[TREE_ITEMS], &cursor);
    if (rc != 0)
        return lmdb_fail(store, rc, "read items");
    trp_status status = TRP_OK;
    rc = mdb_cursor_get(cursor, &key, &data, MDB_FIRST);
    while (rc == 0 && status == TRP_OK) {
        uint64_t seq = piece_key_seq(lmdb_key_read(key));
        trp_bytes bytes;
        if (parts_read(cursor, &key, &data, &loading->record, &bytes, &rc)) {
            status = item_load(loading, seq, bytes);
            continue;
        }
        status = item_drop(loading, seq, NULL, "its record is damaged");
        while (rc == 0 && piece_key_seq(lmdb_key_read(key)) == seq)
            rc = mdb_cursor_get(cursor, &key, &data, MDB_NEXT);
    }
    mdb_cursor_close(cursor);
    if (status == TRP_OK && rc != MDB_NOTFOUND)
        status = lmdb_fail(store, rc, "read items");
    return status;
}

/* What was dropped is gone for good before the store counts as one that can be trusted. */
static trp_status load_finish(struct loading *loading)
{
    struct store *store = loading->store;
    orphans_sweep(loading);
    /* From here on places are random: a fault that reads 128 KB for a page of 4 would waste most of
     * what the disk can do. What comes next is asked for by store_chunk_prefetch(). */
    madvise(store->map, store->map_bytes, MADV_RANDOM);
    store->loaded = true;
    if (store->options.read_only)
        return TRP_OK;
    if (store->dropped > 0)
        TRP_TRY(store_commit(store));
    return store->dir.suspect ? store_trust(store) : TRP_OK;
}

trp_status store_load(struct store *store, store_visit load, void *arg)
{
    assert(!store->loaded);
    if (!store->has_trees) {
        store->loaded = true;
        return TRP_OK;
    }
    struct loading loading = {.store = store,
                              .load = load,
                              .arg = arg,
                              .check = store->options.check || store->dir.suspect};
    struct buffer changes = {0};
    uint64_t last_part;
    trp_status status = lmdb_read_begin(store);
    if (status == TRP_OK)
        status = log_read(store, SIZE_MAX, SIZE_MAX, &changes, &last_part);
    if (status == TRP_OK) {
        fold_sort(&loading.fold, &changes, &store->scratch);
        status = chunks_find(&loading);
    }
    if (status == TRP_OK)
        status = items_load(&loading);
    if (status == TRP_OK)
        status = load_finish(&loading);
    buffer_cleanup(&changes);
    fold_cleanup(&loading.fold);
    buffer_cleanup(&loading.record);
    free(loading.found);
    return status == TRP_OK || store->failed != TRP_OK ? status : store_break(store, status);
}
