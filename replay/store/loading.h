/* A file while its items come into memory; shared by load.c, chunk_scan.c and leaf_scan.c. */
#ifndef TRP_REPLAY_STORE_LOADING_H
#define TRP_REPLAY_STORE_LOADING_H

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
    bool check;       /* and damaged items go, else they are left out */
    uint64_t renewed; /* store->txn.reads when the cursors were opened */

    struct scanned_chunk *scanned; /* ascending seq: all that are below scan_end */
    uint32_t scanned_count, scanned_capacity;
    size_t last_scanned;    /* items name chunks mostly in ascending order */
    uint64_t scan_end;      /* SEQ_MAX + 1: there are no more */
    struct chunk_check sum; /* of the last one */
    struct cursor pieces;   /* on the first one of scan_end, unless it lost its place */
    struct map ahead;       /* chunks that were wanted before their turn: by seq */

    struct compaction compaction; /* the whole log, sorted */
    struct cursor items;
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

/* Finds all chunks up to `seq`. */
trp_status chunk_scan_until(struct loading *loading, uint64_t seq);

void chunk_scan_cleanup(struct loading *loading);

/* ---- leaf_scan.c ---------------------------------------------------------------------- */

/* All entries of a tree, read from its pages in the map: several times faster than a cursor. In
 * ascending order of the keys; the first failure ends it. `value`: its first bytes, as many as
 * there are in one page. The snapshot is that of the read transaction. */
typedef trp_status leaf_scan_visit(void *arg, uint64_t key, trp_bytes value);
trp_status leaf_scan_run(struct store *store, enum store_tree tree, leaf_scan_visit *visit,
                         void *arg);

#endif
