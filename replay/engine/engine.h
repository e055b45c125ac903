/* The store and the tables of one server, kept in step: whatever changes a table is noted in the
 * store, and a group of changes becomes durable at engine_commit().
 *
 *   engine --owns--> store, tables --own--> items
 *   delivery: items that a stream has been given and that are out of their table for good; their
 *            records stay until the stream acks, so that a crash before that gives them again
 *
 * One thread at a time (the server's lock). Blocks only in the store, as said there. */
#ifndef TRP_REPLAY_ENGINE_ENGINE_H
#define TRP_REPLAY_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <troupe/replay.h>
#include "core/clock.h"
#include "core/list.h"
#include "core/map.h"
#include "replay/model/item.h"
#include "replay/model/store_stats.h"
#include "replay/model/table_facts.h"
#include "replay/wire/wire.h"

struct buffer;
struct engine;
struct fetch;
struct fetcher;
struct shared_welcome;

struct engine_options {
    const char *dir; /* of the store, as are the next five: see struct store_options */
    trp_durability durability;
    uint64_t max_bytes;
    bool read_only, check;
    bool without_items; /* read_only: they stay in the file, for who copies them from there */
    const char *checkpoint_dir;
    const trp_table_options *tables; /* none: those that are stored are opened */
    size_t table_count;
    uint64_t seed;
    bool shrink; /* a table may lose items to a smaller limit */
};

/* Means over what was sampled or removed of late. */
struct engine_staleness {
    double age_seconds, versions_behind; /* of samples */
    double times_sampled;                /* of what was removed */
    uint32_t samples, removed;           /* counted up to STALENESS_SAMPLES */
    uint64_t newest_version;             /* of all inserts */
};

/* Where it lies does not change while the table is there. The fields of items and draws are read by
 * the functions below; the rest changes inside the engine only. */
struct engine_table {
    struct engine *engine;
    struct table *table;       /* the engine's; NULL: dropped */
    struct table_facts *facts; /* of it; only looked at outside of the engine */
    char *name;
    size_t name_size;
    uint32_t index; /* 0 to engine_table_count() - 1 */
    /* Samples whose items are in deliveries: counted by the limiter, not yet by the store. */
    int64_t unacked;
    struct engine_table *feed; /* its insert_on_sample; NULL: none */
    int64_t feed_dropped;      /* copies for it that its limiter would have held back */
    int64_t known_inserts;     /* of keys that were there */
    int32_t times_before;      /* max_times_sampled as it was stored; for the open only */
    bool as_stored;            /* its options are, or newer; for the open only */
    bool changed;              /* counters differ from the store's */
    struct clearing *clearing; /* its limits became smaller, and items are still to go; or NULL */
    int64_t shrunk;            /* items that went so */
    int64_t inserted_at_ns;    /* the last insert, wall clock */
    uint64_t found_end;        /* behind the newest item of another life of the store */
    struct engine_staleness staleness;
    struct map damaged; /* items, with the chunk; see damage.c */
};

/* Opens the store and its tables. `options->tables` win over what is stored: each difference is
 * logged as a warning. FAILED_PRECONDITION: a stored table is missing from them, or would lose
 * items to a smaller limit and `shrink` is false; ALREADY_EXISTS: two of one name;
 * INVALID_ARGUMENT: trp_table_options_check(); DATA_LOSS: a record that no server wrote; else as
 * store_create(). */
trp_status engine_create(struct engine **out, const struct engine_options *options);

/* Commits what is noted, closes the store cleanly. NULL is fine. Deliveries are acked before. */
void engine_destroy(struct engine *engine);

size_t engine_table_count(const struct engine *engine);
struct engine_table *engine_table(struct engine *engine, size_t index);

static inline bool engine_table_is(const struct engine_table *table, trp_bytes name)
{
    return table->name_size == name.size && memcmp(table->name, name.data, name.size) == 0;
}

/* NULL: no such table. */
struct engine_table *engine_find(const struct engine *engine, trp_bytes name);
struct engine_table *engine_table_with_id(const struct engine *engine, uint32_t id);

/* "Priority table x was not found": Reverb's words. */
trp_status engine_not_found(trp_bytes name);

/* ---- looking at a table (tables.c) --------------------------------------------------- */

/* NULL: none. For walks in slices: slots are below engine_table_slots(), an item keeps its own, and
 * a slot that becomes free may get another item. By key: the engine is ready. */
const struct item *engine_item_in_slot(const struct engine_table *table, uint32_t slot);
const struct item *engine_item_with_key(const struct engine_table *table, uint64_t key);
uint32_t engine_table_slots(const struct engine_table *table);

/* No item has this key. True: one had that was damaged, as far as is known. */
bool engine_key_damaged(const struct engine_table *table, uint64_t key);

/* Exact where a selector is fifo, and after a few calls otherwise. NULL: it is empty. */
const struct item *engine_oldest_item(struct engine_table *table);

/* ---- changing the tables (tables.c); durable at the next commit --------------------- */

/* Room for what a table's record will say; everything before is committed first.
 * RESOURCE_EXHAUSTED: there is none, or none for its signature besides those of the other tables,
 * and nothing was changed. engine_table_create() asks itself. */
trp_status engine_table_admit(struct engine *engine, const trp_table_options *options,
                              bool replaces);

/* ALREADY_EXISTS; INVALID_ARGUMENT: trp_table_options_check(); RESOURCE_EXHAUSTED: too many, or no
 * room. */
trp_status engine_table_create(struct engine *engine, const trp_table_options *options,
                               struct engine_table **table);

/* INVALID_ARGUMENT: these options' insert_on_sample is no table. */
trp_status engine_feed_check(const struct engine *engine, const trp_table_options *options);

/* May it go? FAILED_PRECONDITION: another one's insert_on_sample. */
trp_status engine_table_droppable(const struct engine *engine, const struct engine_table *table);

/* The engine is ready. Items, deliveries, record: all go, and `table->table`. The struct stays
 * until engine_table_free(). */
void engine_table_drop(struct engine *engine, struct engine_table *table);
void engine_table_free(struct engine_table *table); /* dropped */

/* May the table go on with `options`? The engine is ready. FAILED_PRECONDITION: another sampler or
 * remover, which only a start can give it; or items would go, about `*removed`, and `shrink` is
 * false. */
trp_status engine_table_alterable(const struct engine_table *table,
                                  const trp_table_options *options, bool shrink, int64_t *removed);

/* The engine is ready. The table goes on with `options` (of the same name), and those that are used
 * up by them go; how many that were. Items beyond their limits go with engine_clear_step(). */
int64_t engine_table_alter(struct engine *engine, struct engine_table *table,
                           const trp_table_options *options);

/* ---- what is left to do after a reopen --------------------------------------------------- */

/* All items are in memory, and their keys in the index. Until then items are only sampled and
 * looked at; key operations (insert, mutate) wait. */
bool engine_ready(const struct engine *engine);

/* A slice of the work, about a millisecond; true while there is more. */
bool engine_index_step(struct engine *engine);

/* How a thread comes to an engine that another one has: `enter` runs `work(arg)` with it to itself
 * and returns its status; UNAVAILABLE: there is no engine any more. */
struct engine_door {
    trp_status (*enter)(void *owner, trp_status (*work)(void *arg, struct engine *engine),
                        void *arg);
    void *owner;
};

/* All of it, others served between slices. CANCELLED: `goes_on(arg)`, asked before each.
 * UNAVAILABLE: as `door` has it. */
trp_status engine_load(const struct engine_door *door, bool (*goes_on)(void *arg), void *arg);

/* All of it at once. A failure is the store's. */
trp_status engine_index_finish(struct engine *engine);

/* ---- operations -------------------------------------------------------------------------- */

bool engine_can_insert(const struct engine_table *table);

/* INVALID_ARGUMENT (Reverb's words) when one of the table's selectors refuses the priority. */
trp_status engine_check_priority(const struct engine_table *table, double priority);

/* Samples that take items out of a table, or put them in another, wait as inserts do. */
bool engine_can_sample(const struct engine_table *table);

/* An item that left the table of late (see removed.h), or is in it, and comes again just as it came
 * then, is taken as sent again by a writer that missed the confirmation: nothing changes.
 *
 * Inserts, or updates the priority of the item that has this key (not counted as an insert, the
 * new item is freed). The limiter allows it, the table takes the priority, and the index is ready.
 * Takes the item on TRP_OK, which means noted, not yet durable. INVALID_ARGUMENT: larger than
 * max_bytes; RESOURCE_EXHAUSTED: the store has no room; a failed store's status. */
trp_status engine_insert(struct engine *engine, struct engine_table *table, struct item *item);

/* The part of engine_insert() that the limiter has no say in: an item with a known key is an
 * update, one that comes as the known one did, or that left the table of late, is passed over.
 * False: it is a new one, and still the caller's. The index is ready, the priority one that the
 * table takes. */
bool engine_take_known(struct engine *engine, struct engine_table *table, struct item *item);

/* Stamps what is inserted from now on; once per message is enough. */
void engine_set_time(struct engine *engine, int64_t wall_ns);

/* `key` will be inserted soon: its places in memory are fetched meanwhile. */
void engine_prefetch(const struct engine *engine, const struct engine_table *table, uint64_t key);

struct delivery {
    struct engine_table *table; /* of all items */
    struct item **items;
    uint32_t count, capacity;
    uint64_t acked;        /* items that have left it */
    struct list_link link; /* in the engine's list, while count > 0 */
    struct map drawn;      /* in answer to this request, where no item comes twice */
};

/* A new request. */
void delivery_begin(struct delivery *delivery);

/* The number of the item that comes into it next: they count from 0. */
static inline uint64_t delivery_end(const struct delivery *delivery)
{
    return delivery->acked + delivery->count;
}

/* Draws up to `count` items, as many as the limiter allows; how many. One whose times are used up
 * goes into `delivery`, which has items of this table only, and is not drawn again. sample->item is
 * valid until the next operation on the table, or until the delivery is acked. */
uint32_t engine_sample_many(struct engine *engine, struct engine_table *table, uint32_t count,
                            struct table_sample *samples, struct delivery *delivery);

/* The client has those whose numbers are below `end`: deletes the records and frees the items. */
void engine_ack(struct engine *engine, struct delivery *delivery, uint64_t end);
void delivery_cleanup(struct delivery *delivery); /* acked */

/* Deletes first, then updates, as Reverb; unknown keys are ignored. The index is ready.
 * INVALID_ARGUMENT: a priority that the table refuses; what came before stays. */
trp_status engine_mutate(struct engine *engine, struct engine_table *table,
                         const struct wire_mutate_request *request);

/* The engine is ready. Empties the table and its deliveries, zeroes its counters. */
void engine_reset(struct engine *engine, struct engine_table *table);

/* A step of what resets, drops and smaller limits leave to be done: up to `items` of them, or fewer
 * that are large; none while what went before waits for room. False: nothing is left. */
bool engine_clear_step(struct engine *engine, uint32_t items);
bool engine_clear_waits(const struct engine *engine); /* something is left */

/* A read of a chunk of the item with this key ended with `status`, which is returned. DATA_LOSS:
 * with the table and the key in its words, and the item goes, unless the store is only read. */
trp_status engine_unreadable(struct engine_table *table, uint64_t key, uint64_t chunk_seq,
                             trp_status status);

/* ---- items and chunks of streams (chunks.c) ---------------------------------------------- */

/* An item that is in no table yet. Its trajectory is in canonical form; it gets a reference to each
 * of `count` chunks. */
struct item *engine_item_create(struct engine *engine, trp_bytes trajectory,
                                struct chunk *const *chunks, uint32_t count);
void engine_item_destroy(struct engine *engine, struct item *item); /* in no table */

/* A new chunk with one reference; its bytes are the `count` spans one after the other. Those of a
 * large one are not copied: the message that they lie in is pinned until engine_unpin_messages(),
 * which copies what was not stored meanwhile. `shared`: somebody else may write to them, each is
 * looked at once. */
struct chunk *engine_chunk_create(struct engine *engine, const trp_bytes *spans, uint32_t count,
                                  bool shared);
bool engine_pins_messages(const struct engine *engine); /* bytes of some have to stay */
void engine_unpin_messages(struct engine *engine);
void engine_chunk_unref(struct engine *engine, struct chunk *chunk);

/* The memory of chunks that are in no item that was inserted. */
uint64_t engine_held_bytes(const struct engine *engine);

/* Copies chunk->size bytes to `out`. DATA_LOSS: they are not the bytes that were written, see
 * engine_unreadable(); INTERNAL: the file cannot be read. */
trp_status engine_chunk_read(struct engine *engine, const struct chunk *chunk, uint8_t *out);

/* Ahead of a read, without waiting for the disk: adds the chunk's pages to `fetch`, as far as they
 * are on the disk only. False: so is what says where they are, which was added; ask again when it
 * is there. */
bool engine_chunk_prefetch(struct engine *engine, const struct chunk *chunk, struct fetch *fetch);

/* Fetches such pages until its destroy, which is before the engine's. NULL: nothing to fetch. */
trp_status engine_fetcher(struct engine *engine, void (*done)(void *arg), void *arg,
                          struct fetcher **out);

/* Chunks may be pinned in the file for the transport, which sends them from there: so many bytes
 * now, and so many of a chunk's first ones (0: it is small, or not stored yet). */
uint64_t engine_pin_room(const struct engine *engine);
size_t engine_chunk_pinnable(const struct chunk *chunk);

/* Fills the message's slots, of `count` chunks in order, and drops a reference to each chunk, also
 * on failure. `pins`: some have bytes elsewhere, which stay pinned until the transport has sent
 * them. Failures as of engine_chunk_read(), with the chunk's number. */
trp_status engine_message_fill(struct engine *engine, trp_message *message, bool pins,
                               const struct wire_slot *slots, struct chunk *const *chunks,
                               uint32_t count, uint32_t *damaged);

/* Drops references of messages that were sent; true: some are out. */
bool engine_unpin_chunks(struct engine *engine);
bool engine_wait_unpinned(struct engine *engine, struct deadline deadline); /* false: it passed */

/* Makes the store's files ready for readers on this host; on failure they stay as they are. */
trp_status engine_share(struct engine *engine);

/* A lease of such a reader, and how it finds the files; the paths are the engine's, the window is
 * the caller's to say. Until it ends, pages that the reader was told of and whose chunks have
 * references stay what they are. FAILED_PRECONDITION: the files are not ready. */
trp_status engine_lease_begin(struct engine *engine, struct shared_welcome *welcome);
void engine_lease_end(struct engine *engine, uint32_t index);

/* Where such a reader finds the chunk: appends the numbers (uint64_t) of the pages that its first
 * pieces have to themselves, and the bytes of what comes after them. A chunk that is small, or not
 * stored yet, is all bytes. With chunk->unchecked afterwards, its sum follows, for the reader. */
trp_status engine_chunk_locate(struct engine *engine, const struct chunk *chunk,
                               struct buffer *pages, struct buffer *rest);

/* The name by which checkpoints of the store are known: 32 digits. */
enum { ENGINE_IDENTITY_BYTES = 33 };
void engine_identity(const struct engine *engine, char text[ENGINE_IDENTITY_BYTES]);

struct store_stats engine_usage(const struct engine *engine);

/* ---- groups ------------------------------------------------------------------------------ */

/* Makes everything since the last commit durable, if anything is noted that a client waits for or
 * that has waited for long. RESOURCE_EXHAUSTED: not all of it yet, see store_commit(). Any other
 * failure is permanent: the store refuses everything from then on. */
trp_status engine_commit(struct engine *engine);

/* Makes everything since the last commit durable, whatever it is. */
trp_status engine_flush(struct engine *engine);

/* Between groups, when nothing else is to be done; engine_commit() follows. True: there is more. */
bool engine_idle(struct engine *engine);

#endif
