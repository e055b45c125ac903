/* Problem: a copy of a store takes seconds to hours, and the store may neither wait for it nor keep
 * one LMDB transaction open meanwhile: pages freed since would never be recycled.
 * Design: records only ever grow behind the cut, and what lies before it changes only by deletes
 * and by compacting. So the copy is read in many short transactions, and the store holds back what
 * would change its past: no compacting while records are read (the change log, as it was, comes
 * first and is applied to them on the way), and no removal of chunks that are yet to be read.
 * Pieces in pages of their own do not move while they live: with the store only their places are
 * collected, their bytes are read without it. Guarantee: what is given is the state of the moment
 * when the copy began, of all tables; a store that runs out of room takes back what it held, and
 * the copy fails. */
#include "copy.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/array.h"
#include "core/clock.h"
#include "core/mapped.h"
#include "internal.h"

enum {
    SLICE_NS = 400000,
    LOOK_ENTRIES = 32,   /* between two looks at the clock */
    LOOK_HELD = 1 << 12, /* dead chunks looked at with the store, a slice */
};

enum phase { PHASE_REMOVED, PHASE_LOG, PHASE_ITEMS, PHASE_CHUNKS, PHASE_NAMES, PHASE_DONE };

/* A value read: `data` in the file, or, where NULL, in store_copy.bytes. */
struct copied_value {
    uint64_t key;
    const uint8_t *data;
    size_t offset, size;
};

struct store_copy {
    struct copy_sink sink;
    const char *path;
    /* under the store's lock: */
    bool holds_records, abandoned;
    uint64_t cut_removed, cut_item, cut_chunk, cut_change;
    uint64_t passed; /* chunks below it have been read */
    uint32_t next_held;

    enum phase phase;
    bool phase_ends; /* with this batch */
    uint64_t next_key;
    struct buffer batch; /* of struct copied_value */
    struct buffer bytes;

    struct buffer changes, scratch;
    struct compaction compaction; /* the whole log, sorted */

    struct buffer record; /* the item on its way */
    uint64_t record_key;  /* of its last part; 0: none */
    struct part_row record_row;

    struct buffer wanted; /* runs of chunks that items refer to */
    size_t next_wanted, missing_wanted;
    struct chunk_check check;
    uint64_t chunk_key; /* of the last piece; 0: none */
    struct part_row chunk_row;
    struct copy_rest rest;
    struct buffer gone_tables; /* ids of tables whose items are gone */
    struct copy_stats stats;
};

/* ---- beginning and end ---------------------------------------------------------------------- */

static void rest_add(struct copy_rest *rest, enum store_tree tree, uint64_t key, trp_bytes value)
{
    struct copy_entry *entry = buffer_push(&rest->entries, sizeof *entry);
    *entry = (struct copy_entry){tree, key, value.size};
    buffer_append(&rest->values, value);
}

static trp_status tables_copy(struct store *store, struct store_copy *copy)
{
    struct cursor tables;
    TRP_TRY(cursor_open(store, TREE_TABLES, &tables));
    TRP_TRY(cursor_move(&tables, MDB_FIRST));
    while (tables.there) {
        if (!tombstone_has(store, piece_key_seq(tables.key)))
            rest_add(&copy->rest, TREE_TABLES, tables.key, tables.value);
        TRP_TRY(cursor_move(&tables, MDB_NEXT));
    }
    for (size_t i = 0; i < store->tombstones.count; i++)
        buffer_append(&copy->gone_tables,
                      span_of(&store->tombstones.at[i].id, sizeof store->tombstones.at[i].id));
    for (size_t i = 0; i < store->tables.count; i++) {
        uint8_t record[COUNTERS_BYTES];
        counters_encode(record, store->tables.at[i].logged);
        rest_add(&copy->rest, TREE_META, META_COUNTERS_KEY + store->tables.at[i].id,
                 (trp_bytes){record, sizeof record});
    }
    return TRP_OK;
}

trp_status store_copy_begin(struct store *store, struct store_copy **out,
                            const struct copy_sink *sink)
{
    *out = NULL;
    if (store->failed != TRP_OK)
        return store_broken(store);
    if (store->copy)
        return trp_fail(TRP_UNAVAILABLE, "replay store %s is being copied already",
                        store->dir.path);
    assert(group_empty(store));
    struct store_copy *copy = xcalloc(1, sizeof *copy);
    copy->sink = *sink;
    copy->path = store->dir.data_path;
    copy->cut_removed = sink->removed ? store->removed.next : 1;
    copy->cut_item = store->next_item;
    copy->cut_chunk = store->next_chunk;
    copy->cut_change = store->log.next;
    copy->next_key = 1;
    copy->holds_records = true;
    copy->rest.meta = store->meta;
    copy->stats.total_bytes =
        store->loaded ? store->counts.live_bytes : store->pages.account.next * store->page_bytes;
    trp_status status = store->has_trees ? tables_copy(store, copy) : TRP_OK;
    if (!store->has_trees)
        copy->phase = PHASE_DONE;
    store->copy = copy;
    if (status != TRP_OK) {
        store_copy_end(store, copy);
        return status;
    }
    *out = copy;
    return TRP_OK;
}

/* Nothing is held any more. */
static void copy_release(struct store *store)
{
    store->dead.held = 0;
    store->copy = NULL;
}

void store_copy_end(struct store *store, struct store_copy *copy)
{
    if (!copy)
        return;
    if (store->copy == copy)
        copy_release(store);
    compaction_cleanup(&copy->compaction);
    struct buffer *const buffers[] = {&copy->batch,        &copy->bytes,       &copy->changes,
                                      &copy->scratch,      &copy->record,      &copy->wanted,
                                      &copy->rest.entries, &copy->rest.values, &copy->rest.bad,
                                      &copy->gone_tables};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        buffer_cleanup(buffers[i]);
    free(copy);
}

/* ---- what the store asks -------------------------------------------------------------------- */

bool copy_holds_records(const struct store *store)
{
    return store->copy && store->copy->holds_records;
}

bool copy_holds_chunk(const struct store *store, uint64_t seq)
{
    return store->copy && seq >= store->copy->passed && seq < store->copy->cut_chunk;
}

/* Chunks that died before they were read, and have been read since, go: a full table takes new room
 * only until the copy is ahead of it. */
static void held_let_go(struct store *store, struct store_copy *copy)
{
    struct dead_queue *queue = &store->dead;
    copy->passed = piece_key_seq(copy->chunk_key);
    for (uint32_t looks = queue->held < LOOK_HELD ? queue->held : LOOK_HELD; looks > 0; looks--) {
        if (copy->next_held == 0 || copy->next_held > queue->held)
            copy->next_held = queue->held;
        struct dead *dead = &queue->at[--copy->next_held];
        if (dead->seq < copy->passed)
            dead_swap(dead, &queue->at[--queue->held]);
    }
}

bool copy_abandon(struct store *store)
{
    if (!store->copy)
        return false;
    store->copy->abandoned = true;
    copy_release(store);
    return true;
}

/* ---- finding, with the store ---------------------------------------------------------------- */

static void value_push(struct store_copy *copy, const struct cursor *cursor)
{
    struct copied_value *value = buffer_push(&copy->batch, sizeof *value);
    uint64_t page;
    *value = (struct copied_value){.key = cursor->key, .size = cursor->value.size};
    if (copy->phase == PHASE_CHUNKS && page_of_piece(cursor->store, cursor->value.data, &page)) {
        value->data = cursor->value.data;
        return;
    }
    value->offset = copy->bytes.size;
    buffer_append(&copy->bytes, cursor->value);
}

/* Is the chunk wanted? If not, *next is where the next one that is begins. */
static bool chunk_wanted(struct store_copy *copy, uint64_t seq, uint64_t *next)
{
    const struct change *runs = (const struct change *)(const void *)copy->wanted.data;
    size_t count = copy->wanted.size / sizeof *runs;
    while (copy->next_wanted < count && change_end(runs[copy->next_wanted]) <= seq)
        copy->next_wanted++;
    *next = UINT64_MAX;
    if (copy->next_wanted < count)
        *next = piece_key(change_seq(runs[copy->next_wanted]), 0);
    return copy->next_wanted < count && change_seq(runs[copy->next_wanted]) <= seq;
}

/* Where the phase's values lie, and the first key that is none of them. */
static enum store_tree phase_tree(const struct store_copy *copy, uint64_t *end)
{
    switch (copy->phase) {
    case PHASE_REMOVED:
        *end = copy->cut_removed;
        return TREE_REMOVED;
    case PHASE_LOG:
        *end = copy->cut_change;
        return TREE_CHANGES;
    case PHASE_CHUNKS:
        *end = piece_key(copy->cut_chunk, 0);
        return TREE_PIECES;
    default:
        *end = piece_key(copy->cut_item, 0);
        return TREE_ITEMS;
    }
}

/* The next value of the phase at or behind `next_key`. */
static trp_status value_seek(struct store_copy *copy, struct cursor *cursor, bool seek)
{
    for (uint64_t next;; seek = true, copy->next_key = next) {
        TRP_TRY(seek ? cursor_seek(cursor, MDB_SET_RANGE, copy->next_key)
                     : cursor_move(cursor, MDB_NEXT));
        if (!cursor->there || copy->phase != PHASE_CHUNKS ||
            chunk_wanted(copy, piece_key_seq(cursor->key), &next))
            return TRP_OK;
        cursor->there = next != UINT64_MAX;
        if (!cursor->there)
            return TRP_OK;
    }
}

static trp_status values_find(struct store_copy *copy, struct cursor *cursor, uint64_t end)
{
    int64_t until = clock_now_ns(&clock_monotonic) + SLICE_NS;
    uint64_t bytes = 0;
    for (unsigned count = 0;; count++) {
        TRP_TRY(value_seek(copy, cursor, count == 0));
        copy->phase_ends = !cursor->there || cursor->key >= end;
        if (copy->phase_ends)
            return TRP_OK;
        if (bytes >= COPY_BATCH_BYTES ||
            (count > 0 && count % LOOK_ENTRIES == 0 && clock_now_ns(&clock_monotonic) >= until)) {
            copy->next_key = cursor->key;
            return TRP_OK;
        }
        value_push(copy, cursor);
        bytes += cursor->value.size;
    }
}

trp_status store_copy_find(struct store *store, struct store_copy *copy)
{
    uint64_t end;
    struct cursor cursor;
    if (copy->abandoned)
        return trp_fail(TRP_RESOURCE_EXHAUSTED,
                        "replay store %s ran out of room and took what the copy kept",
                        store->dir.path);
    if (store->failed != TRP_OK)
        return store_broken(store);
    if (copy->phase == PHASE_DONE)
        return TRP_OK;
    enum store_tree tree = phase_tree(copy, &end);
    copy->holds_records = copy->phase < PHASE_CHUNKS;
    held_let_go(store, copy);
    buffer_clear(&copy->batch);
    buffer_clear(&copy->bytes);
    TRP_TRY(cursor_open(store, tree, &cursor));
    return values_find(copy, &cursor, end);
}

/* ---- items, without the store --------------------------------------------------------------- */

static void item_change(struct store_copy *copy, uint64_t seq, uint8_t *record)
{
    struct item_record header;
    memcpy(&header, record, sizeof header);
    compaction_apply(&copy->compaction, seq, &header);
    header.state_sum = item_state_sum(&header, seq);
    memcpy(record, &header, sizeof header);
}

bool seqs_have(const struct buffer *seqs, uint64_t seq)
{
    return bsearch(&seq, seqs->data, seqs->size / sizeof seq, sizeof seq, u64_compare) != NULL;
}

/* Does the item need a chunk that is bad? */
static trp_status item_name(struct store_copy *copy, const struct item_view *view)
{
    for (uint32_t i = 0; i < view->header.chunk_count; i++) {
        if (seqs_have(&copy->rest.bad, item_view_chunk(view, i)))
            return copy->sink.damage(copy->sink.arg, view->header.table_id, view->header.key,
                                     "a chunk is damaged or missing");
    }
    return TRP_OK;
}

static bool item_is_gone(const struct store_copy *copy, const struct item_view *view)
{
    const uint32_t *ids = (const uint32_t *)(const void *)copy->gone_tables.data;
    for (size_t i = 0; i < copy->gone_tables.size / sizeof *ids; i++)
        if (ids[i] == view->header.table_id)
            return true;
    return false;
}

/* The record that came in parts is complete. */
static trp_status item_end(struct store_copy *copy)
{
    struct item_view view;
    uint64_t seq = piece_key_seq(copy->record_key);
    bool names = copy->phase == PHASE_NAMES;
    if (copy->record_key == 0 || compaction_deletes(&copy->compaction, seq))
        return TRP_OK;
    bool whole = item_record_decode(buffer_bytes(&copy->record), seq, &view);
    if (item_is_gone(copy, &view))
        return TRP_OK;
    if (!whole || copy->record_row.broken)
        return names ? TRP_OK
                     : copy->sink.damage(copy->sink.arg, view.header.table_id, view.header.key,
                                         "its record is damaged");
    if (names)
        return item_name(copy, &view);
    for (uint32_t i = 0; i < view.header.chunk_count; i++)
        runs_add(&copy->wanted, item_view_chunk(&view, i));
    item_change(copy, seq, copy->record.data);
    copy->stats.items++;
    copy->stats.bytes += copy->record.size;
    return copy->sink.item(copy->sink.arg, seq, buffer_bytes(&copy->record),
                           view.header.state_sum == 0);
}

static trp_status item_part(struct store_copy *copy, uint64_t key, trp_bytes part)
{
    if (copy->record_key == 0 || piece_key_seq(key) != piece_key_seq(copy->record_key)) {
        TRP_TRY(item_end(copy));
        buffer_clear(&copy->record);
        copy->record_row = (struct part_row){0};
    }
    copy->record_key = key;
    part_row_add(&copy->record_row, key, part.size);
    buffer_append(&copy->record, part);
    return TRP_OK;
}

/* ---- chunks, without the store -------------------------------------------------------------- */

static void chunk_is_bad(struct store_copy *copy, uint64_t seq)
{
    buffer_append(&copy->rest.bad, span_of(&seq, sizeof seq));
}

static void chunk_end(struct store_copy *copy)
{
    if (copy->chunk_key == 0)
        return;
    uint64_t bytes = copy->chunk_row.bytes;
    if (copy->chunk_row.broken || !chunk_check_end(&copy->check))
        chunk_is_bad(copy, piece_key_seq(copy->chunk_key));
    copy->stats.chunks++;
    copy->stats.bytes += bytes > SUM_BYTES ? bytes - SUM_BYTES : 0;
}

/* Chunks from `first` on that some item refers to, below `end`, are not there. */
static void chunks_missing(struct store_copy *copy, uint64_t first, uint64_t end)
{
    const struct change *runs = (const struct change *)(const void *)copy->wanted.data;
    size_t count = copy->wanted.size / sizeof *runs;
    for (size_t i = copy->missing_wanted; i < count && change_seq(runs[i]) < end; i++) {
        uint64_t from = change_seq(runs[i]) > first ? change_seq(runs[i]) : first;
        for (uint64_t seq = from; seq < change_end(runs[i]) && seq < end; seq++)
            if (copy->rest.bad.size < COPY_BAD_CHUNKS_MAX * sizeof seq)
                chunk_is_bad(copy, seq);
        if (change_end(runs[i]) <= end)
            copy->missing_wanted = i + 1;
    }
}

static trp_status chunk_piece(struct store_copy *copy, uint64_t key, trp_bytes piece)
{
    uint64_t seq = piece_key_seq(key), before = piece_key_seq(copy->chunk_key);
    if (copy->chunk_key == 0 || seq != before) {
        chunk_end(copy);
        chunks_missing(copy, before + 1, seq);
        copy->check = (struct chunk_check){0};
        copy->chunk_row = (struct part_row){0};
    }
    copy->chunk_key = key;
    part_row_add(&copy->chunk_row, key, piece.size);
    chunk_check_piece(&copy->check, piece);
    return copy->sink.piece ? copy->sink.piece(copy->sink.arg, seq, piece_key_piece(key), piece)
                            : TRP_OK;
}

/* Reading pages one after the other waits for the disk each time. */
static void batch_prefetch(const struct store_copy *copy)
{
    const struct copied_value *values = (const struct copied_value *)(const void *)copy->batch.data;
    const size_t count = copy->batch.size / sizeof *values, page = (size_t)sysconf(_SC_PAGESIZE);
    struct page_run run = {0};
    for (size_t i = 0; i < count; i++) {
        uint8_t *at = (uint8_t *)((uintptr_t)values[i].data & ~(page - 1));
        if (i == 0 && at && pages_resident(at, page))
            return;
        if (at)
            page_run_add(&run, at, page);
    }
    page_run_ask(&run);
}

/* ---- phases --------------------------------------------------------------------------------- */

static trp_status value_give(struct store_copy *copy, uint64_t key, trp_bytes bytes)
{
    switch (copy->phase) {
    case PHASE_REMOVED:
        return copy->sink.removed(copy->sink.arg, key, bytes);
    case PHASE_LOG:
        if (changes_decode(bytes, &copy->changes))
            return TRP_OK;
        return trp_fail(TRP_DATA_LOSS, "replay store %s: part %llu of the change log is damaged",
                        copy->path, (unsigned long long)key);
    case PHASE_CHUNKS:
        return chunk_piece(copy, key, bytes);
    default:
        return item_part(copy, key, bytes);
    }
}

static trp_status phase_end(struct store_copy *copy)
{
    switch (copy->phase) {
    case PHASE_REMOVED:
        copy->phase = PHASE_LOG;
        break;
    case PHASE_LOG:
        compaction_sort(&copy->compaction, &copy->changes, &copy->scratch);
        copy->phase = PHASE_ITEMS;
        break;
    case PHASE_ITEMS:
        TRP_TRY(item_end(copy));
        copy->wanted.size = runs_merge((struct change *)(void *)copy->wanted.data,
                                       copy->wanted.size / sizeof(struct change), &copy->scratch) *
                            sizeof(struct change);
        copy->phase = PHASE_CHUNKS;
        break;
    case PHASE_CHUNKS:
        chunk_end(copy);
        chunks_missing(copy, piece_key_seq(copy->chunk_key) + 1, copy->cut_chunk);
        copy->record_key = 0;
        copy->compaction.next_delete = 0; /* items are read again */
        copy->phase = copy->rest.bad.size ? PHASE_NAMES : PHASE_DONE;
        break;
    default:
        TRP_TRY(item_end(copy));
        copy->phase = PHASE_DONE;
    }
    copy->next_key = 1;
    return TRP_OK;
}

trp_status store_copy_give(struct store_copy *copy)
{
    const struct copied_value *values = (const struct copied_value *)(const void *)copy->batch.data;
    size_t count = copy->batch.size / sizeof *values;
    if (copy->phase == PHASE_CHUNKS)
        batch_prefetch(copy);
    for (size_t i = 0; i < count; i++) {
        const uint8_t *data = values[i].data ? values[i].data : copy->bytes.data + values[i].offset;
        TRP_TRY(value_give(copy, values[i].key, (trp_bytes){data, values[i].size}));
    }
    /* A piece's place in its chunk is told by the next one, which may come with the next batch. */
    if (copy->phase == PHASE_CHUNKS && count > 0 && !values[count - 1].data) {
        buffer_clear(&copy->scratch);
        buffer_append(&copy->scratch, copy->check.last);
        copy->check.last = buffer_bytes(&copy->scratch);
    }
    return copy->phase_ends ? phase_end(copy) : TRP_OK;
}

void store_copy_set_argument(struct store_copy *copy, void *arg)
{
    copy->sink.arg = arg;
}

bool store_copy_done(const struct store_copy *copy)
{
    return copy->phase == PHASE_DONE;
}

struct copy_stats store_copy_stats(const struct store_copy *copy)
{
    return copy->stats;
}

const struct copy_rest *store_copy_rest(const struct store_copy *copy)
{
    return &copy->rest;
}
