/* What is known of a file while its items come into memory; shared by load.c and
 * chunk_scan.c. */
#ifndef TRP_REPLAY_STORE_LOADING_H
#define TRP_REPLAY_STORE_LOADING_H

#include "core/map.h"
#include "internal.h"

/* A chunk in the file. */
struct scanned_chunk {
    uint64_t seq;
    struct chunk *chunk; /* NULL until an item refers to it */
    uint32_t size;
    uint32_t pieces : 31;
    uint32_t damaged : 1;
};

struct loading {
    struct store *store;
    bool check;
    uint64_t renewed; /* store->renewed when the cursors were placed */

    struct scanned_chunk *scanned; /* ascending seq: all that are below scan_end */
    uint32_t scanned_count, scanned_capacity;
    size_t last_scanned; /* items name chunks mostly in ascending order */
    uint64_t scan_end;
    struct chunk_check sum; /* of the last one */
    MDB_cursor *pieces;     /* on the first one of scan_end, where pieces_rc says so */
    MDB_val piece_key, piece;
    int pieces_rc;
    struct map ahead; /* chunks that were wanted before their turn: by seq */

    struct compaction compaction; /* the whole log, sorted */
    MDB_cursor *items;            /* on the item with item_key, where items_rc says so */
    MDB_val item_key, item;
    int items_rc;
    struct buffer record; /* of an item in several parts */
};

/* Makes the cursors usable, and forgets where they stood when they were not. */
trp_status loading_renew(struct loading *loading);

/* ---- chunk_scan.c --------------------------------------------------------------------- */

/* The chunk's object, with a reference of the caller's; it is made if it is not there yet. NULL:
 * *status failed, or *wrong says what is wrong with the chunk. `in_turn`: an item that comes in the
 * order of items wants it. */
struct chunk *chunk_scan_take(struct loading *loading, uint64_t seq, uint64_t episode, bool in_turn,
                              const char **wrong, trp_status *status);

/* Takes that reference back. A chunk without any is as if no item had it. */
void chunk_scan_release(struct loading *loading, struct chunk *chunk);

/* Finds all chunks that are left. */
trp_status chunk_scan_rest(struct loading *loading);

void chunk_scan_cleanup(struct loading *loading);

#endif
