/* Everything back into memory: items from their records, to which the change log is applied on the
 * way, both being in the order of seqs. The file is believed only after it was checked: an item
 * whose chunks are not all there is a loss, a chunk that no item has is swept.
 *
 * First the store is scanned for its items, so that they can be sampled; the items themselves are
 * brought one by one, in their order when there is time, and any of them before its turn when it is
 * wanted. Until all are there, nobody knows who else has a chunk: so until then nothing may be
 * deleted. A damaged item is told and left out, and its record stays: as long as it does, chunks
 * without an item may be its, and stay, too. Of a store that may not be trusted all bytes of all
 * chunks are compared with their sums on the way, and damaged items are dropped for good. */
#include "loading.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/alloc.h"

/* ---- tables --------------------------------------------------------------------------------- */

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
    struct store_table *table = table_add(store, (uint32_t)id);
    table->name = xmemdup(view.name.data, view.name.size);
    table->options = xmemdup(view.options.data, view.options.size);
    table->signature.data = xmemdup(view.signature.data, view.signature.size);
    table->signature.size = view.signature.size;
    table->given = view.given.size ? xmemdup(view.given.data, view.given.size) : NULL;
    return true;
}

/* Counters as of the last compaction; the log has the rest. */
static trp_status counters_load(struct store *store, size_t index)
{
    struct cursor meta;
    TRP_TRY(cursor_open(store, TREE_META, &meta));
    TRP_TRY(cursor_seek(&meta, MDB_SET_KEY, META_COUNTERS_KEY + store->tables.at[index].id));
    if (meta.there && !counters_decode(meta.value, store->tables.at[index].logged))
        return record_lost(store, "the record of counters of table", store->tables.at[index].id);
    return TRP_OK;
}

static void counter_apply(struct store *store, struct change change)
{
    uint64_t id = counter_table(change);
    struct store_table *table = table_find_id(store, id);
    if (store->tables.next_id <= id && id < UINT32_MAX)
        store->tables.next_id = (uint32_t)id + 1; /* of a store that has no ceiling yet */
    if (table)
        table->logged[counter_index(change)] = (int64_t)change.value;
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
        memcpy(store->tables.at[index].counters, store->tables.at[index].logged,
               sizeof store->tables.at[index].logged);
    return status;
}

trp_status tables_load(struct store *store)
{
    struct cursor tables;
    TRP_TRY(cursor_open(store, TREE_TABLES, &tables));
    TRP_TRY(cursor_move(&tables, MDB_FIRST));
    while (tables.there) {
        uint64_t id = piece_key_seq(tables.key);
        trp_bytes bytes;
        TRP_TRY(cursor_get_parts(&tables, &store->scratch, &bytes));
        if (!table_load(store, id, bytes))
            return record_lost(store, "the record of table", id);
    }
    for (size_t index = 0; index < store->tables.count; index++)
        TRP_TRY(counters_load(store, index));
    return log_counters_load(store);
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

/* Those that its record names, as long as we live. */
static trp_status chunks_keep(struct loading *loading, const struct item_view *view)
{
    trp_status status = TRP_OK;
    for (uint32_t index = 0; status == TRP_OK && index < view->header.chunk_count; index++) {
        const char *wrong;
        struct chunk *chunk =
            chunk_scan_take(loading, item_view_chunk(view, index), item_view_episode(view, index),
                            false, &wrong, &status);
        if (chunk)
            buffer_append(&loading->store->kept, span_of(&chunk, sizeof(struct chunk *)));
    }
    return status;
}

/* It is told, and it goes or is left out. */
static trp_status item_damaged(struct loading *loading, uint64_t seq, const struct item_view *view,
                               const char *what)
{
    struct store *store = loading->store;
    if (store->options.damage)
        store->options.damage(store->options.arg, view->header.table_id, view->header.key, what);
    bool goes = loading->check && !store->options.read_only;
    if (goes)
        runs_add(&store->group.deletes, seq);
    store->counts.damaged += !goes;
    return loading->check || store->options.read_only ? TRP_OK : chunks_keep(loading, view);
}

/* A mistake that the sums of a record do not show. A shape that other items have, too, was looked
 * at with the first of them. */
static const char *record_wrong(const struct loading *loading, const struct item_view *view,
                                const struct item *item)
{
    const struct store_options *options = &loading->store->options;
    bool doubtful = loading->check && view->header.state_sum == 0;
    if (!options->item_wrong || (!doubtful && item->trajectory->refs > 1))
        return NULL;
    return options->item_wrong(options->arg, view->header.table_id, view->trajectory,
                               view->header.chunk_count, doubtful ? &item->priority : NULL);
}

/* An item of its record. NULL: it is damaged, which was told. */
static trp_status item_of_record(struct loading *loading, uint64_t seq,
                                 const struct item_view *view, bool in_turn, struct item **out)
{
    trp_status status = TRP_OK;
    struct store *store = loading->store;
    struct item_record header = view->header;
    compaction_apply(&loading->compaction, seq, &header);
    struct item *item = store_item_create(
        store, store_trajectory(store, view->trajectory, header.chunk_count), NULL);
    item->key = header.key;
    item->seq = seq;
    item->priority = header.priority;
    item->inserted_at_ns = header.inserted_at_ns;
    item->times_sampled = header.times_sampled;
    item->policy_version = header.policy_version;
    item->fingerprint = header.fingerprint;
    const char *wrong = record_wrong(loading, view, item);
    for (uint32_t index = 0; status == TRP_OK && !wrong && index < header.chunk_count; index++)
        item->chunks[index] =
            chunk_scan_take(loading, item_view_chunk(view, index), item_view_episode(view, index),
                            in_turn, &wrong, &status);
    if (status == TRP_OK && !wrong) {
        *out = item;
        return TRP_OK;
    }
    item_unmake(loading, item);
    return wrong ? item_damaged(loading, seq, view, wrong) : status;
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
    return compaction_read(store, SIZE_MAX, SIZE_MAX, &loading->compaction);
}

void loading_end(struct store *store)
{
    struct loading *loading = store->loading;
    if (!loading)
        return;
    compaction_cleanup(&loading->compaction);
    buffer_cleanup(&loading->record);
    chunk_scan_cleanup(loading);
    free(loading);
    store->loading = NULL;
}

/* No commit is to come for those. */
static void orphans_note(struct loading *loading)
{
    struct dead_queue *queue = &loading->store->dead;
    for (size_t index = 0; index < loading->scanned_count; index++) {
        struct scanned_chunk *scanned = &loading->scanned[index];
        if (scanned->chunk)
            continue;
        dead_push(queue, (struct dead){scanned->seq, scanned->pieces});
        dead_swap(&queue->at[queue->ready++], &queue->at[queue->count - 1]);
    }
}

/* All items are there. Dropped items are gone for good before the store can be trusted. */
static trp_status load_finish(struct store *store)
{
    TRP_TRY(chunk_scan_until(store->loading, SEQ_MAX));
    if (store->counts.damaged == 0)
        orphans_note(store->loading);
    loading_end(store);
    /* From here on places are random: a fault that reads 128 KB for a page of 4 would waste most of
     * what the disk can do. store_chunk_prefetch() asks for the next ones. */
    if (store->map)
        madvise(store->map, store->map_bytes, MADV_RANDOM);
    store->loaded = true;
    if (store->options.read_only)
        return TRP_OK;
    if (store->group.deletes.size > 0)
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

/* ---- items one by one ----------------------------------------------------------------------- */

static trp_status record_read(struct loading *loading, uint64_t seq, struct item_view *view,
                              const char **wrong)
{
    struct cursor *items = &loading->items;
    trp_bytes bytes = {0};
    TRP_TRY(loading_renew(loading));
    if (!items->there || items->key != piece_key(seq, 0))
        TRP_TRY(cursor_seek(items, MDB_SET_KEY, piece_key(seq, 0)));
    if (items->there)
        TRP_TRY(cursor_get_parts(items, &loading->record, &bytes));
    *wrong = item_record_decode(bytes, seq, view) ? NULL : "its record is damaged";
    return TRP_OK;
}

struct scan {
    struct loading *loading;
    store_scan_visit visit;
    void *arg;
    uint64_t seq; /* of the last record */
};

static trp_status item_scan(void *arg, uint64_t key, trp_bytes record)
{
    struct scan *scan = arg;
    struct loading *loading = scan->loading;
    struct store *store = loading->store;
    uint64_t seq = piece_key_seq(key);
    struct item_view view;
    const char *wrong = NULL;
    bool first = piece_key_piece(key) == 0,
         there = first && seq != 0 && record.size >= sizeof view.header;
    if ((!first && seq == scan->seq) || compaction_deletes(&loading->compaction, seq))
        return TRP_OK;
    scan->seq = seq;
    if (there)
        memcpy(&view.header, record.data, sizeof view.header);
    if (!there || !item_state_valid(&view.header, seq) ||
        !table_find_id(store, view.header.table_id)) /* of a dropped one: that may be damage */
        TRP_TRY(record_read(loading, seq, &view, &wrong));
    bool gone = tombstone_has(store, view.header.table_id);
    tombstone_see(store, seq, !gone);
    if (gone)
        return TRP_OK;
    if (!wrong && !table_find_id(store, view.header.table_id))
        wrong = "it is in a table that is not there";
    if (wrong)
        return item_damaged(loading, seq, &view, wrong);
    compaction_apply(&loading->compaction, seq, &view.header);
    store->counts.items++;
    return scan->visit(scan->arg, view.header.table_id, seq, view.header.priority);
}

trp_status store_scan(struct store *store, store_scan_visit visit, void *arg)
{
    store->loaded = !store->has_trees;
    if (store->loaded)
        return TRP_OK;
    TRP_TRY(load_result(store, loading_begin(store)));
    struct scan scan = {store->loading, visit, arg, 0};
    trp_status status = leaf_scan_run(store, TREE_ITEMS, item_scan, &scan);
    if (status == TRP_OK && store_trusted(store) && !store->options.read_only)
        status = store_dir_known(&store->dir, store->options.durability);
    return load_result(store, status);
}

static trp_status item_read(struct loading *loading, uint64_t seq, bool in_turn, struct item **item)
{
    struct item_view view;
    const char *wrong;
    TRP_TRY(record_read(loading, seq, &view, &wrong));
    if (wrong)
        return item_damaged(loading, seq, &view, wrong);
    TRP_TRY(item_of_record(loading, seq, &view, in_turn, item));
    loading->store->counts.live_bytes += *item ? item_record_size(*item) : 0;
    return TRP_OK;
}

struct item *store_load_item(struct store *store, uint64_t seq, bool in_turn, bool *damaged)
{
    struct item *item = NULL;
    *damaged = false;
    if (store->failed != TRP_OK)
        return NULL;
    assert(store->loading);
    trp_status status = item_read(store->loading, seq, in_turn, &item);
    *damaged = status == TRP_OK && !item;
    store->counts.items -= *damaged;
    load_result(store, status);
    return item;
}

trp_status store_load_end(struct store *store)
{
    if (store->failed != TRP_OK)
        return store_broken(store);
    return store->loading ? load_result(store, load_finish(store)) : TRP_OK;
}
