/* Everything that a store holds at one moment, read while the store goes on.
 *
 * Owner of a copy: one thread, any. It alternates between store_copy_find(), which needs the store
 * to itself for less than a millisecond, and store_copy_give(), which does the work and does not.
 * While a copy is open the store keeps what the copy has yet to read: deletes are noted, their
 * pages stay in the file until the copy has read them. */
#ifndef TRP_REPLAY_STORE_COPY_H
#define TRP_REPLAY_STORE_COPY_H

#include "store.h"

struct store_copy;

/* Where it goes. Items come first, then chunks, both in ascending seq; each piece of a chunk once.
 * A failure ends the copy. */
struct copy_sink {
    /* `doubtful`: its priority had no sum. */
    trp_status (*item)(void *arg, uint64_t seq, trp_bytes record, bool doubtful);
    /* NULL: not wanted. */
    trp_status (*piece)(void *arg, uint64_t seq, uint32_t piece, trp_bytes bytes);
    /* An item that cannot be copied; table_id 0: `key` is its seq. TRP_OK: leave it out. */
    trp_status (*damage)(void *arg, uint32_t table_id, uint64_t key, const char *what);
    void *arg;
    /* A value of the tree `removed`; NULL: not wanted. Before all others. */
    trp_status (*removed)(void *arg, uint64_t number, trp_bytes records);
};

/* With the store to itself, and nothing noted since the last commit: this is the moment.
 * UNAVAILABLE: another copy is open. `sink` is copied. */
trp_status store_copy_begin(struct store *store, struct store_copy **out,
                            const struct copy_sink *sink);

/* With the store to itself; once more when the copy is done, because the last pages may have been
 * recycled while they were read. RESOURCE_EXHAUSTED: the store needed the room that the copy kept,
 * and took it. */
trp_status store_copy_find(struct store *store, struct store_copy *copy);

/* Without. The sink's failure, or a status of a file that cannot be read. */
trp_status store_copy_give(struct store_copy *copy);
/* The sink's argument from now on. */
void store_copy_set_argument(struct store_copy *copy, void *arg);
bool store_copy_done(const struct store_copy *copy);

/* With the store to itself. NULL is fine. */
void store_copy_end(struct store *store, struct store_copy *copy);

struct copy_stats {
    uint64_t items, chunks, bytes; /* so far; bytes are those of chunks and records */
    uint64_t total_bytes;          /* what it will be, about */
};
struct copy_stats store_copy_stats(const struct store_copy *copy);

#endif
