/* The durable side of a replay server: items and chunks in one LMDB environment.
 *
 * Calls between two commits form a group. Mutations only note what is to be done (they cannot
 * fail); store_commit() writes the whole group in one transaction. Room is checked before, by
 * store_admit(), so that LMDB never touches a page the file system has not given us.
 *
 * One thread at a time (the server's lock); a helper thread of the store's own allocates pages. */
#ifndef TRP_REPLAY_STORE_STORE_H
#define TRP_REPLAY_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/bytes.h>
#include <troupe/replay.h>
#include <troupe/status.h>
#include "core/buffer.h"
#include "core/clock.h"
#include "replay/disk/record.h"
#include "replay/model/item.h"
#include "replay/model/store_stats.h"

struct fetch;
struct fetcher;
struct store;

struct store_options {
    const char *dir; /* made when missing */
    trp_durability durability;
    uint64_t max_bytes;         /* of data.mdb; 0: what the file system has */
    uint64_t cache_bytes;       /* of small chunks kept in memory; 0: 256 MiB */
    bool read_only;             /* look at a stopped store: no lock on the directory is taken for
                                   writing, nothing is changed, mutations are not allowed */
    bool check;                 /* trust nothing: every byte is read, and damaged items are dropped.
                                   Implied when the host went down (see store_create()) */
    const char *checkpoint_dir; /* where a damaged store's newest checkpoint is looked for; NULL:
                                   checkpoints/ in `dir` */
    /* Told of each item that is damaged and not loaded; `key` is its seq when its record cannot be
     * believed, table_id 0 then. Without `check` its record stays, and so does each chunk that no
     * item has. May be NULL. */
    void (*damage)(void *arg, uint32_t table_id, uint64_t key, const char *what);
    /* Why an item that is loaded is damaged though its sums are right, or NULL. `priority`: NULL:
     * it has a sum. May be NULL. */
    const char *(*item_wrong)(void *arg, uint32_t table_id, trp_bytes trajectory,
                              uint32_t chunk_count, const double *priority);
    void *arg; /* of both */
};

/* The part of a table that survives besides its items. */
struct store_table {
    uint32_t id; /* assigned by the store, never reused */
    char *name;
    char *options; /* the table's line as in trp_table_options_format() */
    char *given;   /* see store_table_given(); NULL: never */
    trp_bytes signature;
    union {
        struct {
            int64_t inserts, samples, deletes; /* limiter counters */
            int64_t episodes_deleted, unique_samples;
            uint64_t rng[4]; /* the state of what it draws from; zeros: it never drew */
        };
        int64_t counters[9]; /* all of them */
    };
    int64_t logged[9]; /* the store's: counters as the database has them */
    bool changed;      /* the store's: its record is to be written */
};

/* Opens or creates. FAILED_PRECONDITION: a foreign directory, another format version, or a
 * directory that another process has open (its pid is named); UNAVAILABLE and the like: the errno
 * of the file system, with the path; DATA_LOSS: the structure of the file is damaged (the newest
 * checkpoint is named). A `process` store whose host went down while it was open is checked as with
 * `options->check`. */
trp_status store_create(struct store **out, const struct store_options *options);

/* Clean stop: commits nothing (destroying the items before is no delete: that is
 * store_item_delete()); compacts the change log, syncs, marks the store clean. NULL is fine. */
void store_destroy(struct store *store);

/* Tables known to the store; valid until the next call that changes tables. */
const struct store_table *store_tables(const struct store *store, size_t *count);

/* Adds a table or replaces the options and signature of the one with `name`; its id. Durable at the
 * next commit. */
uint32_t store_table_put(struct store *store, const char *name, const char *options,
                         trp_bytes signature);

/* Notes a text of the caller's with a table. */
void store_table_given(struct store *store, uint32_t id, const char *given);

/* Its items are gone with the next commit, all of them, and with `drop` the table is; with `renew`
 * it goes on under the new id that is returned. Their records may go later: they are the caller's
 * to delete as ever, before store_table_end(); those that it leaves go after the next
 * store_create(). */
void store_table_drop(struct store *store, uint32_t id);
uint32_t store_table_renew(struct store *store, uint32_t id);
void store_table_end(struct store *store, uint32_t id);

/* Is what it holds believed? Not if it is to be checked. */
bool store_trusted(const struct store *store);

/* Tells of every item that is in the store, in ascending seq, changes already applied; `visit`'s
 * first failure ends it. Once, right after create. Until store_load_end() nothing may be inserted,
 * deleted or copied. */
typedef trp_status (*store_scan_visit)(void *arg, uint32_t table_id, uint64_t seq, double priority);
trp_status store_scan(struct store *store, store_scan_visit visit, void *arg);

/* One of them, once. `in_turn`: those before it were brought, which is several times faster. NULL:
 * it is *damaged, which was told; or cannot be read: the store failed. */
struct item *store_load_item(struct store *store, uint64_t seq, bool in_turn, bool *damaged);

/* All were brought: removes chunks that no item refers to. */
trp_status store_load_end(struct store *store);

/* The store is of no use any more, for the reason that trp_last_error() has; returns `status`. */
trp_status store_break(struct store *store, trp_status status);

/* ---- chunks and items -------------------------------------------------------------------- */

/* Interns a canonical trajectory; the caller gets one reference. */
struct trajectory *store_trajectory(struct store *store, trp_bytes bytes, uint32_t chunk_count);

/* A new chunk, one reference, not stored yet. Its bytes are the `count` spans one after the other.
 * Those of a large one are not copied: they have to stay where they are until store_borrowed_end(),
 * which copies what was not stored meanwhile. */
struct chunk *store_chunk_create(struct store *store, const trp_bytes *spans, uint32_t count);
void store_borrowed_end(struct store *store);

/* The memory of chunks that are in no item that was inserted, borrowed bytes counted as if they
 * were copied. */
uint64_t store_held_bytes(const struct store *store);

/* Somebody else may write to its bytes: each is looked at once. Right after it was created. */
void store_chunk_shared(struct chunk *chunk);
bool store_has_borrowed(const struct store *store); /* some bytes have to stay */

/* The last reference to a stored chunk deletes its pieces in this group. */
void store_chunk_unref(struct store *store, struct chunk *chunk);

/* Copies chunk->size bytes to `out`. The `bytes` of a chunk may go with any call that reads another
 * or commits. DATA_LOSS: they are not the bytes that were written (what an earlier life wrote is
 * compared with its sum when it is first read or pinned); INTERNAL: the file cannot be read. */
trp_status store_chunk_read(struct store *store, const struct chunk *chunk, uint8_t *out);

/* Ahead of store_chunk_read(), without waiting for the disk: adds the chunk's pages to `fetch`, as
 * far as they are on the disk only. False: so is what says where they are, which was added; look
 * again when it is there. */
bool store_chunk_prefetch(struct store *store, const struct chunk *chunk, struct fetch *fetch);

/* Fetches such pages until the destroy, which is before the store's; see fetcher_create(). NULL:
 * there is nothing to fetch. */
trp_status store_fetcher(struct store *store, void (*done)(void *arg), void *arg,
                         struct fetcher **out);

/* Where a reader of data.mdb finds the chunk: appends the numbers (uint64_t) of the pages that its
 * first pieces have to themselves, and the bytes of the pieces after them. A chunk that is small,
 * or not stored yet, is all bytes. The pages stay what they are while the chunk has references.
 * With chunk->unchecked afterwards, the sum follows the chunk, for the reader to compare. */
trp_status store_chunk_locate(struct store *store, const struct chunk *chunk, struct buffer *pages,
                              struct buffer *rest);

/* An item of these chunks, a reference each, or, with NULL, only with room for them; takes the
 * trajectory reference. */
struct item *store_item_create(struct store *store, struct trajectory *trajectory,
                               struct chunk *const *chunks);

/* Frees an item and drops its references. Not the record: see store_item_delete(). */
void store_item_destroy(struct store *store, struct item *item);

/* ---- a group ----------------------------------------------------------------------------- */

/* May this item (its unsaved chunks and record) still join the group? ABORTED: the group is full,
 * commit and ask again; RESOURCE_EXHAUSTED: the file system or max_bytes has no room (after a
 * bounded wait for the allocating helper): refuse the item. A group is at most 64 MiB, except that
 * one item of up to STORE_ITEM_BYTES_MAX is admitted into an empty one; a larger item is
 * RESOURCE_EXHAUSTED. */
trp_status store_admit(struct store *store, const struct item *item);

/* May a table with this signature be put into the next group? Nothing is noted yet.
 * RESOURCE_EXHAUSTED as above; one that `replaces` another may take half of what changes have. */
trp_status store_admit_table(struct store *store, trp_bytes signature, bool replaces);

/* Assigns item->seq and its unsaved chunks' seqs, and notes them for writing. Admitted before. */
void store_item_insert(struct store *store, uint32_t table_id, struct item *item);
void store_item_priority(struct store *store, const struct item *item);
void store_item_sampled(struct store *store, const struct item *item);

/* The record goes in this group; the item in memory stays the caller's. */
void store_item_delete(struct store *store, const struct item *item);

/* Limiter counters of a table after this group. */
void store_table_counters(struct store *store, const struct store_table *table);

/* Keeps it with this group: the last REMOVED_KEYS_MAX, or those of REMOVED_KEYS_MS. */
void store_removed_note(struct store *store, const struct removed_record *removed);

/* The keys that are kept, oldest first. Once, after store_scan(). */
typedef void (*store_removed_visit)(void *arg, const struct removed_record *removed);
trp_status store_removed_load(struct store *store, store_removed_visit visit, void *arg);

/* Writes the group; a group without changes costs nothing. A group that finds no room at once is
 * written in parts, for a second or two. RESOURCE_EXHAUSTED: then there was something left, which
 * is for the next call; as often as not it is time that it takes, not room. After any other failure
 * (which only a broken disk or file causes) the store refuses everything with that status. */
trp_status store_commit(struct store *store);

/* Between groups, when there is nothing else to do: compacts the change log a bit. True:
 * there is more. */
bool store_idle(struct store *store);

/* ---- chunks that a transport sends from where they lie --------------------------------------- */

/* Parts of a message: spans of chunks in the file, and bytes of the caller's. */
struct pin;

/* Bytes of chunks that may be pinned now: pins are bounded, and not every store can make any. */
uint64_t store_pin_room(const struct store *store);

/* So many of the chunk's first bytes can be pinned; 0: it is small, or not stored yet. */
size_t store_chunk_pinnable(const struct chunk *chunk);

/* An empty pin, of a store that had room for it; and the next of its parts. */
struct pin *store_pin_begin(struct store *store);
void pin_add(struct pin *pin, trp_bytes bytes);

/* Adds what can be pinned of the chunk, with a reference of the caller's (also on failure), and
 * copies the bytes behind it to `rest`. The spans stay what they are until the pin is returned.
 * Failures as of store_chunk_read(). */
trp_status store_pin_chunk(struct store *store, struct pin *pin, struct chunk *chunk,
                           uint8_t *rest);

/* Valid until it is returned. */
const trp_bytes *pin_parts(const struct pin *pin, size_t *count);

/* Any thread, also after the store was destroyed; `pin` is a struct pin. */
void pin_return(void *pin);

/* Drops the references of pins that were returned. True: some are out. */
bool store_pins_collect(struct store *store);

/* The same when all were; false: `deadline` passed before. Pins that are out when the store is
 * destroyed can be read still, but may read as anything once the store is opened again. */
bool store_pins_wait(struct store *store, struct deadline deadline);

/* ---- readers of data.mdb on this host ------------------------------------------------------- */

/* The files as they find them; the paths are absolute. */
struct store_share {
    char *data_path, *lease_path;
    uint64_t page_bytes, map_bytes, piece_offset, piece_bytes;
    uint64_t device, inode, nonce_at;
    uint8_t nonce[NONCE_BYTES];
};

/* Makes the files ready for readers; once. Any status: they are not, and the store is as before. */
trp_status store_share(struct store *store);

/* NULL: the files are not ready. */
const struct store_share *store_shared(const struct store *store);

/* A word of the lease file that has `value` (not 0) until the lease is ended: before
 * references to chunks that its reader was told of are dropped. Other readers get the word once it
 * is ended. RESOURCE_EXHAUSTED: all words are taken. */
trp_status store_lease_begin(struct store *store, uint64_t value, uint32_t *index);
void store_lease_end(struct store *store, uint32_t index);

/* NONCE_BYTES that its checkpoints have, too, and no other store. */
const uint8_t *store_identity(const struct store *store);

void store_stats(const struct store *store, struct store_stats *stats);

/* Behind the last page of a stopped store with so many bytes there are at most so many more, which
 * changes need: the file system may fill up before it is started again. */
uint64_t store_tail_bytes(uint64_t bytes);

#endif
