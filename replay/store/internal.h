/* The inside of a store, shared by the files of this room. None of them calls one above it:
 *
 *   store.c         life
 *   load.c, share.c everything back into memory; readers on this host
 *   group.c         admission, notes, commit
 *   work.c          what is done between groups
 *   copy.c          everything, while the store goes on
 *   log.c           the change log, and how it gets shorter
 *   tables.c, removed.c   records of tables; keys of items that are gone
 *   tombstone.c     tables that are gone, and what is left of them
 *   chunk_scan.c    the chunks of a file that is loaded
 *   item.c, pin.c, fetch.c   items; pages that a transport sends from; pages fetched ahead
 *   remove.c        physical deletes
 *   chunk.c         chunks in memory: cache, reads
 *   leaf_scan.c     all entries of a tree, fast
 *   lmdb.c          environment, transactions
 *   pages.c         all page arithmetic */
#ifndef TRP_REPLAY_STORE_INTERNAL_H
#define TRP_REPLAY_STORE_INTERNAL_H

#include <lmdb.h>

#include "core/buffer.h"
#include "limits.h"
#include "pages.h"
#include "core/map.h"
#include "core/slab.h"
#include "core/spares.h"
#include "store.h"
#include "replay/disk/disk.h"
#include "replay/disk/page.h"

enum store_tree {
    TREE_META,
    TREE_TABLES,
    TREE_ITEMS,
    TREE_PIECES,
    TREE_CHANGES,
    TREE_PARKED,
    TREE_REMOVED,
    TREE_COUNT,
};

/* An item noted for writing: its record is `bytes` long in group.records. */
struct noted {
    uint64_t seq;
    uint64_t bytes;
};

/* An item that may join the group, and what it brings. */
struct admitted {
    const struct item *item;
    struct cost cost;
    uint64_t bytes; /* of chunks and record */
};

struct group {
    struct buffer records; /* encoded item records, back to back */
    struct buffer noted;   /* of struct noted */
    struct chunk **chunks; /* ascending seq, one reference each */
    uint32_t chunk_count, chunk_capacity;
    struct buffer changes;  /* of struct change, in the order of the calls; no deletes */
    struct buffer deletes;  /* of struct change, CHANGE_DELETE only */
    struct buffer removed;  /* of struct removed_record */
    size_t coalesce_at;     /* bytes of changes, at least */
    uint64_t payload_bytes; /* of chunks and records */
    struct cost cost;
    struct admitted admitted; /* by the last store_admit() */
    bool tables_changed, counters_changed;
};

/* A prefix of the change log on its way into the records. */
struct compaction {
    bool active;
    struct change *updates; /* ascending seq; [next, update_count) are left */
    size_t next, update_count;
    struct change *deletes; /* runs, ascending; [0, delete_count) are left */
    size_t delete_count;
    size_t next_delete; /* of a reader that asks in ascending order */
    uint64_t last_part; /* of the log, that is in here */
};

/* A table that is gone: what is in the file under its number is nobody's. */
struct tombstone {
    uint32_t id;
    bool marked; /* the file says so */
    bool found;  /* when the store was opened: its items are in runs */
    bool ended;  /* nothing is left of it: the mark goes, too */
};

/* Bytes that a chunk has of others' until store_borrowed_end(). */
struct borrowed {
    uint32_t at; /* in chunk_memory.borrowed */
    uint32_t count;
    bool shared; /* they may change under our eyes */
    trp_bytes spans[];
};

/* A chunk as the store has it. */
struct stored_chunk {
    struct chunk chunk;
    uint8_t *bytes; /* owned; always there until stored, later only while the cache keeps it */
    struct borrowed *borrowed; /* instead; NULL: none */
    uint64_t *pages;           /* where its pieces are, which do not move; NULL: not known */
    struct stored_chunk *cache_next, *cache_prev;
};

/* Reading one changes what is kept of it, not what it is. */
static inline struct stored_chunk *stored(const struct chunk *chunk)
{
    return (struct stored_chunk *)(uintptr_t)chunk;
}

/* Chunks in memory: chunk.c. */
struct chunk_memory {
    struct stored_chunk cache; /* ring: next is the most recently used */
    uint64_t cache_used, cache_limit;
    struct slabs slabs;             /* items, chunks and bytes of small chunks */
    struct spares spares;           /* buffers of chunks that are stored */
    struct stored_chunk **borrowed; /* chunks whose bytes are the caller's */
    uint32_t borrowed_count, borrowed_capacity;
    uint64_t held_bytes; /* see store_held_bytes() */
};

/* tables.c. */
struct stored_tables {
    struct store_table *at;
    uint32_t count, capacity;
    uint32_t next_id;
};

/* tombstone.c. */
struct tombstones {
    struct tombstone *at;
    uint32_t count, capacity;
    struct buffer runs; /* of struct change: seqs in the file that no living item has */
    bool run_open;      /* the last one may go on */
};

/* Keys of items that are gone: removed.c. */
struct removed_keys {
    uint64_t next, count, most; /* count: records in the tree; most: beyond are to go */
    int64_t newest_ns;
};

/* log.c. */
struct change_log {
    uint64_t next, changes;
    struct compaction compaction;
    uint64_t progress; /* rises with everything that a compaction did */
};

/* Where chunks are looked for before they are read: fetch.c. */
struct chunk_probes {
    uint64_t root; /* page of the tree of pieces; 0: not looked up in this read transaction */
    uint32_t depth;
    uint32_t resident; /* since a probe found a chunk on the disk only */
    uint32_t skipped;  /* chunks since the last probe */
    uint32_t kept;     /* leaves that were kept */
};

/* A chunk that nothing refers to: its pieces [0, pieces) are still there. */
struct dead {
    uint64_t seq; /* first: they are ordered by it */
    uint32_t pieces;
};

/* All of those: remove.c. [0, held) wait for the copy, which has yet to read them; [held, ready)
 * are removed from the last one on; [ready, count) wait for the commit of what let them go. */
struct dead_queue {
    struct dead *at;
    uint32_t held, ready, count, capacity;
};

/* Where a cursor of a tree stands: on an entry, if `there`. `value` lives until the next write. */
struct cursor {
    struct store *store;
    enum store_tree tree;
    MDB_cursor *lmdb;
    bool keys_only; /* set by who has no use for values */
    bool there;
    uint64_t key;
    trp_bytes value;
};

/* One is live at most: lmdb.c. */
struct transactions {
    MDB_txn *write; /* NULL: it is not live */
    MDB_txn *read;
    bool reading;                                                     /* it is live */
    uint64_t reads;                                                   /* times that it became so */
    MDB_cursor *write_cursors[TREE_COUNT], *read_cursors[TREE_COUNT]; /* see cursor_open() */
};

struct store_counts {
    uint64_t items, chunks, groups, live_bytes;
    uint64_t damaged; /* and in the file still */
};

struct store {
    struct store_dir dir;
    struct store_options options; /* dir: see store.dir */
    trp_status failed;            /* sticky, with its words */
    char *failed_words;

    MDB_env *env;
    MDB_dbi trees[TREE_COUNT];
    bool has_trees; /* false: a read-only look at a store that was never filled */
    size_t page_bytes;
    uint64_t map_bytes;
    uint8_t *map;            /* page 0 */
    int64_t looked_ns;       /* when data.mdb was last seen to have a name */
    struct meta_record meta; /* as the database has it */

    struct transactions txn;
    struct cursor reader; /* of chunks: one more of the read transaction, on pieces */

    struct pages pages;
    struct chunk_memory chunks;
    struct map trajectories; /* interned: item.c; by hash */
    struct stored_tables tables;
    struct tombstones tombstones;
    struct removed_keys removed;
    struct change_log log;
    struct chunk_probes probes;
    struct dead_queue dead;
    struct buffer kept; /* of struct chunk *, a reference each, of damaged items */
    struct store_counts counts;

    uint64_t next_item, next_chunk;
    struct group group;
    struct store_copy *copy; /* that is being read */
    struct buffer scratch;
    bool loaded;
    struct loading *loading; /* NULL: not begun, or all is there */

    struct store_sharing *sharing; /* NULL: nobody asked */
    struct pins *pins;             /* NULL: there cannot be any */
};

enum { MARGIN_PAGES = 32 }; /* free list records of an ordinary group */

/* ---- lmdb.c --------------------------------------------------------------------------- */

/* Opens or makes the environment and reads the meta record. */
trp_status lmdb_open(struct store *store);
void lmdb_close(struct store *store);

/* Makes data.mdb with empty trees in a directory that has none, to be filled without syncs. */
trp_status lmdb_make(struct store *store);

/* Gives the store another nonce: it is no longer the one that it was copied from. */
trp_status lmdb_rename(struct store *store);

/* A status for what LMDB returned; names the directory. */
trp_status lmdb_fail(const struct store *store, int rc, const char *what);

/* DATA_LOSS that no check of items mends, in the record of `what` with this number: the newest
 * checkpoint is named. */
trp_status record_lost(const struct store *store, const char *what, uint64_t number);

trp_status store_broken(const struct store *store);

/* The write transaction; the read one ends. */
trp_status lmdb_begin(struct store *store);
trp_status lmdb_commit(struct store *store);
void lmdb_abort(struct store *store);

/* The work of one write transaction. A step that fails leaves nothing. */
typedef trp_status transaction_step(struct store *store, void *arg);

/* Begins, takes the step, commits, and counts pages anew. */
trp_status lmdb_transact(struct store *store, transaction_step *step, void *arg);

/* The same; after a failure the store is of no use any more. */
trp_status store_transact(struct store *store, transaction_step *step, void *arg);

/* Makes the read transaction and the reader live. */
trp_status lmdb_read_begin(struct store *store);
void lmdb_read_end(struct store *store);

/* Where the tree is as the read transaction sees it, and how many pages of the file are in use. */
trp_status lmdb_tree(struct store *store, enum store_tree tree, struct tree_record *record,
                     uint64_t *pages);

/* Of the write transaction, if one is live, else of the read one, which it makes live. It ends with
 * its transaction, or when another one of the tree is opened. */
trp_status cursor_open(struct store *store, enum store_tree tree, struct cursor *cursor);

/* To the first, last, next or previous entry, be there one or not: `op` is MDB_FIRST and so on. */
trp_status cursor_move(struct cursor *cursor, MDB_cursor_op op);

/* To the entry with this key; MDB_SET_RANGE: or else the next one. */
trp_status cursor_seek(struct cursor *cursor, MDB_cursor_op op, uint64_t key);

/* A new entry; the caller writes its value. `flags`: MDB_APPEND behind everything in the tree. */
trp_status cursor_put(struct cursor *cursor, uint64_t key, size_t bytes, unsigned flags,
                      uint8_t **value);
trp_status cursor_delete(struct cursor *cursor);

/* Puts one value cut into parts. */
trp_status cursor_put_parts(struct cursor *cursor, uint64_t seq, trp_bytes bytes, unsigned flags);

/* The value whose first part is under the cursor, which moves behind its last one; no bytes: its
 * parts are not those that were written. `bytes` live, perhaps in `whole`, until the next call. */
trp_status cursor_get_parts(struct cursor *cursor, struct buffer *whole, trp_bytes *bytes);

/* Puts one entry; `flags` as above. */
trp_status lmdb_put(struct store *store, enum store_tree tree, uint64_t key, trp_bytes value,
                    unsigned flags);

/* Appends records of one size to a tree with ascending numbers, many in a value, with its sum. */
trp_status cursor_append_records(struct cursor *cursor, uint64_t *next, trp_bytes records,
                                 size_t value_bytes);

/* A step that writes store->meta. */
trp_status lmdb_put_meta(struct store *store, void *arg);

/* A transaction that only lets the next one have what the last one gave back. False: there is no
 * room even for that, or the store failed. */
bool lmdb_advance(struct store *store);

/* True when the value has a page to itself, which does not move while the value lives. */
bool page_of_piece(const struct store *store, const void *value, uint64_t *page);

static inline MDB_val lmdb_key(const uint64_t *key)
{
    return (MDB_val){.mv_size = sizeof *key, .mv_data = (void *)key};
}

static inline uint64_t lmdb_key_read(MDB_val key)
{
    uint64_t value = 0;
    if (key.mv_size == sizeof value)
        __builtin_memcpy(&value, key.mv_data, sizeof value);
    return value;
}

/* ---- chunk.c -------------------------------------------------------------------------- */

/* The memory of a chunk that is not stored yet, in round numbers. */
static inline uint64_t chunk_memory(const struct chunk *chunk)
{
    return sizeof(struct stored_chunk) + SLAB_STEP + chunk->size;
}

/* A stored chunk without bytes and references. */
struct chunk *chunk_create_stored(struct store *store, uint64_t seq, uint32_t size);
void chunk_free(struct store *store, struct chunk *chunk);
void chunks_unref(struct store *store, struct buffer *all); /* of struct chunk * */
void chunk_memory_cleanup(struct chunk_memory *memory);

/* store->reader to one of the chunk's pieces; a step only, from the piece before it. */
trp_status chunk_seek(struct store *store, const struct chunk *chunk, uint32_t piece);

/* Its pieces that have a page each, which stays where it is while the chunk lives: all but a small
 * last one, which lies in a leaf with others, and moves. */
static inline uint32_t chunk_paged(const struct chunk *chunk)
{
    return (chunk->size + PIECE_BYTES - STORE_PAGED_PIECE_BYTES_MIN) / PIECE_BYTES;
}

static inline size_t chunk_paged_bytes(const struct chunk *chunk)
{
    size_t bytes = (size_t)chunk_paged(chunk) * PIECE_BYTES;
    return bytes < chunk->size ? bytes : chunk->size;
}

/* The pages of a stored chunk, which live as long as it does. */
trp_status chunk_pages(struct store *store, const struct chunk *chunk, const uint64_t **pages);

/* Compares it with its sum, if nobody has, after chunk_pages(). `map`: page 0. */
trp_status chunk_compare(struct store *store, const struct chunk *chunk, const uint8_t *map);

/* Its bytes behind those, after chunk_pages(), with the sum as long as nobody has compared it. */
size_t chunk_tail_bytes(const struct chunk *chunk);
trp_status chunk_tail(struct store *store, const struct chunk *chunk, uint8_t *out);

/* Puts a chunk that has its bytes, and its sum, behind everything in the tree. */
trp_status chunk_put(struct cursor *pieces, const struct chunk *chunk);

/* Its bytes are on disk now: the cache keeps or drops them. */
void chunk_settle(struct store *store, struct chunk *chunk);

/* ---- share.c -------------------------------------------------------------------------- */

/* Ends the leases that a killed server left. Before the first write. */
trp_status leases_revoke(const struct store *store);
void sharing_destroy(struct store_sharing *sharing); /* NULL is fine */

/* ---- pin.c --------------------------------------------------------------------------- */

/* Makes pins possible, where they are; and takes back the references of those that are out. */
void pins_open(struct store *store);
void pins_close(struct store *store);

/* ---- group.c -------------------------------------------------------------------------- */

static inline bool group_empty(const struct store *store)
{
    const struct group *group = &store->group;
    return group->noted.size == 0 && group->chunk_count == 0 && group->changes.size == 0 &&
           group->deletes.size == 0 && group->removed.size == 0 &&
           store->dead.ready == store->dead.count && !group->tables_changed &&
           !group->counters_changed;
}

void group_cleanup(struct store *store);

/* ---- copy.c --------------------------------------------------------------------------- */

/* True: item records must stay as they are, changes go to the log. */
bool copy_holds_records(const struct store *store);

/* True: the copy has yet to read it. */
bool copy_holds_chunk(const struct store *store, uint64_t seq);

/* The rest of a new data.mdb, besides items and chunks. */
struct copy_rest {
    struct meta_record meta;
    struct buffer entries; /* of struct copy_entry: tables and their counters */
    struct buffer values;  /* of those, one behind the other */
    struct buffer bad; /* seqs, ascending, of chunks that are damaged or missing: items name them */
};
struct copy_entry {
    enum store_tree tree;
    uint64_t key;
    size_t size;
};
const struct copy_rest *store_copy_rest(const struct store_copy *copy);

/* Is the seq among these, which ascend? */
bool seqs_have(const struct buffer *seqs, uint64_t seq);

/* The store needs the room that the copy keeps: the copy fails. False: there is none. */
bool copy_abandon(struct store *store);

/* ---- load.c --------------------------------------------------------------------------- */

/* Forgets a load that is not at its end; none is fine. Before the environment is closed. */
void loading_end(struct store *store);

/* Reads tables and their counters as the database has them. */
trp_status tables_load(struct store *store);

/* From now on a crash of the host matters, and what is there counts as whole. */
trp_status store_trust(struct store *store);

/* ---- remove.c ------------------------------------------------------------------------- */

void dead_push(struct dead_queue *queue, struct dead dead);
void dead_swap(struct dead *left, struct dead *right);

/* With the commit of what let chunks go they are ready, but for what the copy holds. */
void dead_settle(struct store *store);

/* Removes dead chunks that are ready while the budget lasts. */
trp_status pieces_remove(struct store *store, struct budget *budget);

/* Removes up to `quota` items of the run from its back and shortens it. */
trp_status items_remove(struct cursor *items, struct change *run, uint64_t *quota);

/* The same of `*count` runs, from the last one on, while the budget lasts. */
trp_status runs_remove(struct store *store, struct change *runs, size_t *count, uint64_t *quota,
                       struct budget *budget);

/* Puts a seq behind those of the last run of a buffer of them (CHANGE_DELETE), or in a new one. */
void runs_add(struct buffer *runs, uint64_t seq);

/* Sorts runs and joins neighbours; the new count. */
size_t runs_merge(struct change *runs, size_t count, struct buffer *scratch);

/* ---- removed.c ------------------------------------------------------------------------ */

/* Appends the group's first `bytes` of removed keys and takes out those too old or too many. */
trp_status removed_put(struct store *store, size_t bytes, struct budget *budget);

/* Takes some of those out in a transaction of its own, or, with `give_up`, half of all, for room.
 * False: there are none, or no room. */
bool removed_work(struct store *store, bool give_up);

/* ---- log.c ---------------------------------------------------------------------------- */

/* Appends a group's changes to the log. */
trp_status log_append(struct store *store, trp_bytes changes);

/* One small step inside a transaction, for about `quota` leaves. */
trp_status compaction_step(struct store *store, uint64_t quota, struct budget *budget);

/* Starts a compaction if none is active and the log is not empty. */
trp_status compaction_begin(struct store *store);
void compaction_cleanup(struct compaction *compaction);

/* Reads the log's oldest parts, about `count` changes from `part_count` at most. Empty: so is it.
 */
trp_status log_read(struct store *store, size_t count, size_t part_count, struct buffer *changes,
                    uint64_t *last_part);

/* Sorts such a prefix of the log into the updates and deletes of `compaction`. */
trp_status compaction_read(struct store *store, size_t count, size_t part_count,
                           struct compaction *compaction);
void compaction_sort(struct compaction *compaction, const struct buffer *changes,
                     struct buffer *scratch);

/* For whoever reads records in ascending order while none is written: is the item deleted, and what
 * its record says by now. The second may be asked for any item. */
bool compaction_deletes(struct compaction *compaction, uint64_t seq);
void compaction_apply(struct compaction *compaction, uint64_t seq, struct item_record *record);

/* A step in a transaction of its own; false: no progress. */
bool compaction_work(struct store *store);

/* ---- work.c --------------------------------------------------------------------------- */

/* A step of whatever is to be done; false: there is nothing to do, or no room. */
bool store_work(struct store *store, bool all);

/* ---- tables.c ------------------------------------------------------------------------- */

/* Writes the records of tables that changed; of their counters, what the log has. */
trp_status tables_put(struct store *store);
trp_status counters_put(struct store *store);

/* A new one, of which nothing is known but its number; valid until the next. */
struct store_table *table_add(struct store *store, uint32_t id);
struct store_table *table_find_id(const struct store *store, uint64_t id);
void tables_free(struct store *store);

/* ---- tombstone.c ---------------------------------------------------------------------- */

/* Replaces the record of a table, or, with NULL, removes it. */
trp_status table_record_put(struct store *store, uint32_t id, const struct table_view *view);

struct tombstone *tombstone_add(struct store *store, uint32_t table_id);
bool tombstone_has(const struct store *store, uint64_t table_id);

/* Writes marks, and removes those of tables that ended. */
trp_status tombstones_put(struct store *store);

/* While items are loaded, in the order of their seqs: this one lives, or its table is gone. */
void tombstone_see(struct store *store, uint64_t seq, bool lives);

/* Removes some of what was seen, in a transaction of its own; false: all is gone, or no room. */
bool tombstones_work(struct store *store);

/* The next one to open the store is to do it. */
void tombstones_leave(struct store *store);
void tombstones_cleanup(struct store *store);

#endif
