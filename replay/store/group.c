/* A group: what was asked for between two commits, noted in memory, then written in one
 * transaction. Inserts append to two trees, changes append to a third; only dead pieces and long
 * runs of dead items are taken out where they lie, because that is what gives pages back.
 *
 * Room is asked for before anything is noted (store_admit), in pages and at the worst: LMDB may
 * copy any page on the way to a leaf. A reserve is never given to inserts, so that deletes and the
 * change log always find room; deletes that do not fit wait in a list, and what a crash makes of
 * that list is found again as orphans.
 *
 * The log takes the reserve until it is compacted. A quarter of it is for compacting alone, which
 * gives back what it takes: so there is room again, whoever wants it and however much came. Changes
 * that the rest does not hold are written in several transactions, compacted in between: inserts
 * with the first, what is deleted with its last, so that a crash leaves more than was asked for,
 * never less. */
#include "internal.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/array.h"

enum {
    /* Deleting a shorter run in place copies more pages than logging it writes bytes. */
    RUN_IN_PLACE_MIN = 8,
    ADMIT_WAIT_MS = 10000, /* a disk that is busy takes its time */
    GROUP_WAIT_MS = 20,    /* the same for a group that somebody waits for */
    TIDY_MS = 1000,
    LOW_PAGES = 512, /* beyond the reserve: half of what the helper keeps ready at least */
    ENTRY_CHANGE_BYTES = sizeof(struct change),
    COALESCE_BYTES = 4096 * ENTRY_CHANGE_BYTES, /* 4096 changes are sorted in 40 us */
};

/* Of the notes, the bytes that one transaction writes. */
struct part {
    size_t changes, deletes, removed;
    bool compacts; /* and the change log gets shorter */
};

/* ---- cost ----------------------------------------------------------------------------------- */

_Static_assert((uint64_t)PIECES_MAX *PIECE_BYTES > STORE_ITEM_BYTES_MAX,
               "a chunk as large as an item has a number for every piece");

static struct part part_all(const struct group *group)
{
    return (struct part){
        .changes = group->changes.size,
        .deletes = group->deletes.size,
        .removed = group->removed.size,
    };
}

static size_t part_bytes(struct part part)
{
    return part.changes + part.deletes + part.removed;
}

static bool part_is_last(const struct group *group, struct part part)
{
    return part_bytes(part) == part_bytes(part_all(group));
}

/* At most `bytes` of the notes, in their order. */
static struct part part_first(const struct group *group, size_t bytes)
{
    struct part part = part_all(group);
    if (part.changes > bytes)
        part.changes = bytes / ENTRY_CHANGE_BYTES * ENTRY_CHANGE_BYTES;
    bytes -= part.changes;
    if (part.deletes > bytes)
        part.deletes = bytes / ENTRY_CHANGE_BYTES * ENTRY_CHANGE_BYTES;
    bytes -= part.deletes;
    if (part.removed > bytes)
        part.removed = bytes / sizeof(struct removed_record) * sizeof(struct removed_record);
    return part;
}

/* The cost of records of one size with their sums, a part being at least so full. */
static void cost_add_records(struct cost *cost, uint64_t bytes)
{
    enum { PART_BYTES = PIECE_BYTES - SUM_BYTES - sizeof(struct removed_record) };
    cost_add(cost, bytes / PART_BYTES * PIECE_BYTES + bytes % PART_BYTES + SUM_BYTES);
}

static uint64_t part_pages(const struct store *store, struct cost cost, struct part part)
{
    cost_add_records(&cost, part.changes);
    cost_add_records(&cost, part.deletes);
    cost_add_records(&cost, part.removed);
    if (store->group.counters_changed)
        cost_add(&cost, store->tables.count * COUNTERS * sizeof(struct change));
    return cost_pages(cost) + store->pages.account.fixed + MARGIN_PAGES;
}

static uint64_t group_pages(const struct store *store, struct cost cost)
{
    return part_pages(store, cost, part_all(&store->group));
}

/* Kept from groups; a store that is being loaded does not compact, and its groups are small. */
static uint64_t compaction_pages(const struct store *store)
{
    return store->loaded ? pages_spare(&store->pages) / 4 : 0;
}

/* A table may be as large as its signature, and the record that it replaces stays until then. */
static void table_cost(struct cost *cost, uint64_t signature_bytes)
{
    cost_add(cost, 2 * signature_bytes + 2 * PIECE_BYTES);
}

static uint64_t table_pages(const struct store *store)
{
    struct cost cost = {0};
    for (size_t index = 0; index < store->tables.count; index++)
        if (store->tables.at[index].changed)
            table_cost(&cost, store->tables.at[index].signature.size);
    for (size_t index = 0; index < store->tombstones.count; index++)
        if (!store->tombstones.at[index].marked)
            table_cost(&cost, 0);
    return cost.pages ? cost_pages(cost) : 0;
}

void group_cleanup(struct store *store)
{
    struct group *group = &store->group;
    for (size_t index = 0; index < group->chunk_count; index++)
        if (--group->chunks[index]->refs == 0)
            chunk_free(store, group->chunks[index]);
    buffer_cleanup(&group->records);
    buffer_cleanup(&group->noted);
    buffer_cleanup(&group->changes);
    buffer_cleanup(&group->deletes);
    buffer_cleanup(&group->removed);
    free(group->chunks);
    *group = (struct group){0};
}

/* ---- admission ------------------------------------------------------------------------------ */

static struct admitted item_cost(const struct item *item)
{
    struct admitted brings = {.item = item, .bytes = item_record_size(item)};
    cost_add(&brings.cost, brings.bytes);
    for (uint32_t index = 0; index < item->trajectory->chunk_count; index++) {
        const struct chunk *chunk = item->chunks[index];
        if (chunk->seq != 0)
            continue;
        cost_add(&brings.cost, (uint64_t)chunk->size + SUM_BYTES);
        brings.bytes += chunk->size;
    }
    return brings;
}

/* Pages that the last transaction freed may be taken after one more. */
static bool room_advance(struct store *store, const struct want *want)
{
    return room_available(&store->pages, want) + store->pages.account.recent >= want->need &&
           lmdb_advance(store);
}

static trp_status room_refuse(struct store *store, const struct want *want)
{
    int error = space_error(store->pages.space);
    unsigned long long bytes = want->bytes, limit = store->pages.limit * store->page_bytes;
    if (!room_is_out(&store->pages, want))
        return trp_fail(TRP_RESOURCE_EXHAUSTED,
                        "replay store %s: in %d s the disk gave no room for %s (%llu bytes)",
                        store->dir.path, ADMIT_WAIT_MS / 1000, want->what, bytes);
    if (error == 0)
        return trp_fail(TRP_RESOURCE_EXHAUSTED,
                        "replay store %s is full: no room for %s (%llu bytes) within %llu bytes "
                        "(max bytes, or the addresses that were reserved when it was opened)",
                        store->dir.path, want->what, bytes, limit);
    return trp_fail(TRP_RESOURCE_EXHAUSTED, "replay store %s: no room for %s (%llu bytes): %s",
                    store->dir.path, want->what, bytes, strerror(error));
}

/* Before a group's first item, or before a group is written that needs more than was thought: waits
 * for the helper; if that is all the room there is, tidies up, then takes what a copy kept and
 * tidies up again, then gives up. */
static trp_status room_wait(struct store *store, const struct want *want)
{
    enum { ADVANCES_MAX = 2 };
    struct deadline deadline = deadline_in_ms(&clock_monotonic, ADMIT_WAIT_MS);
    struct deadline tidy = deadline_in_ms(&clock_monotonic, TIDY_MS);
    unsigned advances = 0;
    while (room_available(&store->pages, want) < want->need) {
        if (room_allocate(&store->pages, want, deadline))
            continue;
        bool late = deadline_passed(tidy, &clock_monotonic);
        if (!late && store_work(store, true))
            continue;
        if (!late && want->notes && removed_work(store, true))
            continue; /* writers may send twice, but nothing else waits */
        if (store->failed != TRP_OK)
            return store_broken(store);
        if (!late && advances++ < ADVANCES_MAX && room_advance(store, want))
            continue;
        if (!room_is_out(&store->pages, want) || !copy_abandon(store))
            return room_refuse(store, want);
        tidy = deadline_in_ms(&clock_monotonic, TIDY_MS);
        advances = 0;
    }
    return TRP_OK;
}

trp_status store_admit(struct store *store, const struct item *item)
{
    assert(!store->options.read_only);
    if (store->failed != TRP_OK)
        return store_broken(store);
    struct admitted brings = store->group.admitted = item_cost(item);
    uint64_t payload = brings.bytes;
    if (payload > STORE_ITEM_BYTES_MAX)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "an item of %llu bytes: at most %d go in a group",
                        (unsigned long long)payload, STORE_ITEM_BYTES_MAX);
    if (!group_empty(store) && store->group.payload_bytes + payload > STORE_GROUP_BYTES_MAX)
        return trp_fail(TRP_ABORTED, "the group is full");
    uint64_t need = group_pages(store, cost_sum(store->group.cost, brings.cost));
    struct want want = {
        .need = need + pages_reserve(&store->pages, need), .what = "an item", .bytes = payload};
    if (want.need <= pages_insert(&store->pages))
        return TRP_OK;
    if (!group_empty(store)) {
        struct deadline deadline = deadline_in_ms(&clock_monotonic, GROUP_WAIT_MS);
        if (room_allocate(&store->pages, &want, deadline))
            return TRP_OK;
        return trp_fail(TRP_ABORTED, "the group is as large as there is room");
    }
    return room_wait(store, &want);
}

trp_status store_admit_table(struct store *store, trp_bytes signature, bool replaces)
{
    struct cost cost = {0};
    assert(group_empty(store));
    if (store->failed != TRP_OK)
        return store_broken(store);
    table_cost(&cost, signature.size);
    uint64_t need = group_pages(store, cost);
    /* Changes that let items go must be possible where nothing else is, but not for ever. */
    uint64_t spare = replaces ? pages_spare(&store->pages) / 2 : pages_reserve(&store->pages, need);
    struct want want = {.need = need + spare,
                        .notes = replaces,
                        .what = "a table",
                        .bytes = cost.leaf_bytes + cost.pages * PIECE_BYTES};
    return room_wait(store, &want);
}

/* ---- notes ---------------------------------------------------------------------------------- */

static void note_change(struct buffer *changes, struct change change)
{
    struct change *last = buffer_push(changes, sizeof change);
    *last = change;
}

/* However often one request, or many, change the same items: of each only the last counts. */
static void changes_coalesce(struct store *store)
{
    struct buffer *changes = &store->group.changes;
    struct change *all = (struct change *)(void *)changes->data;
    size_t count = changes->size / sizeof *all, kept = 0;
    buffer_clear(&store->scratch);
    buffer_reserve(&store->scratch, changes->size);
    changes_sort(all, (struct change *)(void *)store->scratch.data, count);
    for (size_t index = 0; index < count; index++) {
        struct change change = all[index];
        size_t end = kept;
        while (end > 0 && all[end - 1].tag != change.tag &&
               change_seq(all[end - 1]) == change_seq(change))
            end--;
        if (end > 0 && all[end - 1].tag == change.tag)
            all[end - 1] = change;
        else
            all[kept++] = change;
    }
    changes->size = kept * sizeof *all;
    store->group.coalesce_at = 2 * changes->size;
}

static void note_item_change(struct store *store, struct change change)
{
    struct group *group = &store->group;
    if (group->changes.size >= COALESCE_BYTES && group->changes.size >= group->coalesce_at)
        changes_coalesce(store);
    note_change(&group->changes, change);
}

void store_item_insert(struct store *store, uint32_t table_id, struct item *item)
{
    struct group *group = &store->group;
    assert(!store->options.read_only);
    assert(item->seq == 0 && item == group->admitted.item);
    assert(!isnan(item->priority));
    item->seq = store->next_item++;
    group->payload_bytes += group->admitted.bytes;
    group->cost = cost_sum(group->cost, group->admitted.cost);
    group->admitted.item = NULL;
    for (uint32_t index = 0; index < item->trajectory->chunk_count; index++) {
        struct chunk *chunk = item->chunks[index];
        if (chunk->seq != 0)
            continue;
        chunk->seq = store->next_chunk++;
        store->chunks.held_bytes -= chunk_memory(chunk);
        store->counts.chunks++;
        store->counts.live_bytes += chunk->size;
        chunk_ref(chunk);
        *ARRAY_PUSH(group->chunks, group->chunk_count, group->chunk_capacity) = chunk;
    }
    size_t before = group->records.size;
    item_record_encode(&group->records, table_id, item);
    struct noted *noted = buffer_push(&group->noted, sizeof *noted);
    *noted = (struct noted){.seq = item->seq, .bytes = group->records.size - before};
    store->counts.items++;
    store->counts.live_bytes += noted->bytes;
}

void store_item_priority(struct store *store, const struct item *item)
{
    assert(item->seq != 0);
    assert(!isnan(item->priority));
    uint64_t bits;
    memcpy(&bits, &item->priority, sizeof bits);
    note_item_change(store, change_make(CHANGE_PRIORITY, item->seq, bits));
}

void store_item_sampled(struct store *store, const struct item *item)
{
    assert(item->seq != 0);
    assert(item->times_sampled >= 0);
    note_item_change(store, change_make(CHANGE_TIMES, item->seq, (uint64_t)item->times_sampled));
}

void store_item_delete(struct store *store, const struct item *item)
{
    assert(item->seq != 0);
    store->counts.items--;
    store->counts.live_bytes -= item_record_size(item);
    runs_add(&store->group.deletes, item->seq);
}

void store_table_counters(struct store *store, const struct store_table *table)
{
    struct store_table *ours = table_find_id(store, table->id);
    assert(ours);
    memcpy(ours->counters, table->counters, sizeof ours->counters);
    store->group.counters_changed = true;
}

/* ---- commit --------------------------------------------------------------------------------- */

static trp_status group_put_pieces(struct store *store)
{
    const struct group *group = &store->group;
    struct cursor pieces;
    TRP_TRY(cursor_open(store, TREE_PIECES, &pieces));
    for (size_t index = 0; index < group->chunk_count; index++)
        if (group->chunks[index]->refs > 1) /* else its items went as they came */
            TRP_TRY(chunk_put(&pieces, group->chunks[index]));
    return TRP_OK;
}

static trp_status group_put_items(struct store *store)
{
    const struct group *group = &store->group;
    const struct noted *noted = (const struct noted *)(const void *)group->noted.data;
    size_t count = group->noted.size / sizeof *noted;
    const uint8_t *record = group->records.data;
    struct cursor items;
    TRP_TRY(cursor_open(store, TREE_ITEMS, &items));
    for (size_t index = 0; index < count; index++) {
        TRP_TRY(cursor_put_parts(&items, noted[index].seq, (trp_bytes){record, noted[index].bytes},
                                 MDB_APPEND));
        record += noted[index].bytes;
    }
    return TRP_OK;
}

/* Takes long runs out at once, while the budget lasts, and logs others; of the first `bytes`. */
static trp_status group_delete_items(struct store *store, size_t bytes, struct budget *budget)
{
    struct change *runs = (struct change *)(void *)store->group.deletes.data;
    size_t count = runs_merge(runs, bytes / sizeof *runs, &store->scratch), kept = 0;
    const bool held = copy_holds_records(store);
    struct cursor items;
    TRP_TRY(cursor_open(store, TREE_ITEMS, &items));
    for (size_t index = count; index-- > 0;) {
        uint64_t price = runs[index].value / store->pages.account.items_per_leaf * 2 +
                         store->pages.account.items_depth + 4;
        if (!held && runs[index].value >= RUN_IN_PLACE_MIN && budget_take(budget, price)) {
            uint64_t quota = UINT64_MAX;
            TRP_TRY(items_remove(&items, &runs[index], &quota));
        }
    }
    for (size_t index = 0; index < count; index++)
        if (runs[index].value > 0)
            runs[kept++] = runs[index];
    return log_append(store, span_of(runs, kept * sizeof *runs));
}

static trp_status log_append_counters(struct store *store)
{
    struct buffer *changes = &store->scratch;
    buffer_clear(changes);
    for (size_t index = 0; index < store->tables.count; index++) {
        struct store_table *table = &store->tables.at[index];
        for (unsigned which = 0; which < COUNTERS; which++) {
            if (table->counters[which] == table->logged[which])
                continue;
            table->logged[which] = table->counters[which];
            note_change(changes,
                        change_counter(table->id, which, (uint64_t)table->counters[which]));
        }
    }
    return log_append(store, buffer_bytes(changes));
}

/* Seqs are promised in blocks, so that none is given out twice even if all its items are gone. */
static trp_status group_put_ceilings(struct store *store)
{
    enum { BLOCK = 1 << 20 };
    struct meta_record *meta = &store->meta;
    if (store->next_item <= meta->item_ceiling && store->next_chunk <= meta->chunk_ceiling &&
        store->tables.next_id <= meta->table_ceiling)
        return TRP_OK;
    meta->table_ceiling = store->tables.next_id;
    meta->item_ceiling = store->next_item + BLOCK;
    meta->chunk_ceiling = store->next_chunk + BLOCK;
    return lmdb_put_meta(store, NULL);
}

/* A busy store never gets to store_idle(): past a bound, or when the log takes a good part of the
 * reserve, groups compact it along, faster than they add. */
static trp_status group_compaction_begin(struct store *store, bool *compacts)
{
    struct want want = {.need = pages_reserve(&store->pages, 0) + LOW_PAGES};
    bool short_of_room = pages_free(&store->pages) < want.need &&
                         store->log.changes > pages_part(&store->pages) * CHANGES_PER_PART;
    *compacts = store->log.changes >= STORE_LOG_CHANGES_MAX || short_of_room;
    if (short_of_room && room_is_out(&store->pages, &want))
        copy_abandon(store);
    if (copy_holds_records(store) || !store->loaded)
        *compacts = false;
    return *compacts ? compaction_begin(store) : TRP_OK;
}

/* Counters, and what items that are deleted had, come with the last part. */
static trp_status group_write(struct store *store, void *arg)
{
    const struct part part = *(const struct part *)arg;
    struct group *group = &store->group;
    const bool last = part_is_last(group, part);
    struct budget budget =
        pages_budget(&store->pages, part_pages(store, group->cost, part) + compaction_pages(store));
    if (group->tables_changed)
        TRP_TRY(tables_put(store));
    if (group->chunk_count)
        TRP_TRY(group_put_pieces(store));
    if (group->noted.size)
        TRP_TRY(group_put_items(store));
    TRP_TRY(log_append(store, (trp_bytes){group->changes.data, part.changes}));
    if (part.deletes)
        TRP_TRY(group_delete_items(store, part.deletes, &budget));
    if (last)
        TRP_TRY(log_append_counters(store));
    if (part.removed)
        TRP_TRY(removed_put(store, part.removed, &budget));
    if (last)
        dead_settle(store);
    TRP_TRY(pieces_remove(store, &budget));
    TRP_TRY(group_put_ceilings(store));
    uint64_t added = (part.changes + part.deletes) / ENTRY_CHANGE_BYTES;
    budget.pages /= 2;
    return part.compacts ? compaction_step(store, 4 * added + 256, &budget) : TRP_OK;
}

static void notes_drop(struct buffer *notes, size_t bytes)
{
    notes->size -= bytes;
    if (notes->size)
        memmove(notes->data, notes->data + bytes, notes->size);
}

/* After the commit: chunks are stored, and of the notes is left what is not in the part. */
static void group_finish(struct store *store, struct part part)
{
    struct group *group = &store->group;
    if (part_is_last(group, part)) {
        group->counters_changed = false;
        group->coalesce_at = 0;
    }
    for (size_t index = 0; index < group->chunk_count; index++) {
        struct chunk *chunk = group->chunks[index];
        if (--chunk->refs > 0) {
            chunk_settle(store, chunk);
            continue;
        }
        store->counts.chunks--;
        store->counts.live_bytes -= chunk->size;
        chunk_free(store, chunk);
    }
    group->chunk_count = 0;
    buffer_clear(&group->records);
    buffer_clear(&group->noted);
    notes_drop(&group->changes, part.changes);
    notes_drop(&group->deletes, part.deletes);
    notes_drop(&group->removed, part.removed);
    group->payload_bytes = 0;
    group->cost = (struct cost){0};
    group->tables_changed = false;
    store->counts.groups++;
}

/* Room for all of the group, or else for a part of it, which *part is. */
static trp_status group_make_room(struct store *store, struct part *part)
{
    struct group *group = &store->group;
    uint64_t more = table_pages(store) + compaction_pages(store);
    uint64_t need = group_pages(store, group->cost) + more;
    *part = part_all(group);
    if (need <= pages_free(&store->pages))
        return TRP_OK;
    *part = part_first(group, pages_part(&store->pages) * PIECE_BYTES);
    struct want want = {.need = part_pages(store, group->cost, *part) + more,
                        .notes = true,
                        .what = group->payload_bytes > 0 ? "items and changes" : "changes",
                        .bytes = group->payload_bytes + part_bytes(part_all(group))};
    return room_wait(store, &want);
}

static trp_status group_commit(struct store *store, struct part part)
{
    trp_status status = group_compaction_begin(store, &part.compacts);
    if (status != TRP_OK)
        return store_break(store, status);
    TRP_TRY(store_transact(store, group_write, &part));
    group_finish(store, part);
    return TRP_OK;
}

trp_status store_commit(struct store *store)
{
    assert(!store->options.read_only);
    if (store->failed != TRP_OK)
        return store_broken(store);
    struct deadline late = deadline_in_ms(&clock_monotonic, TIDY_MS);
    while (!group_empty(store)) {
        struct part part;
        TRP_TRY(group_make_room(store, &part));
        TRP_TRY(group_commit(store, part));
        if (!group_empty(store) && deadline_passed(late, &clock_monotonic))
            return trp_fail(TRP_RESOURCE_EXHAUSTED,
                            "replay store %s: %zu bytes of changes wait for those before them",
                            store->dir.path, part_bytes(part_all(&store->group)));
    }
    return TRP_OK;
}
