/* Bounds of replay/store/ that are no option, with their arithmetic. */
#ifndef TRP_REPLAY_STORE_LIMITS_H
#define TRP_REPLAY_STORE_LIMITS_H

#include "core/limits.h"

enum {
    /* chunk.c: chunks in memory in a row, then one of so many is looked at: with one in a
     * thousand on the disk all are, with fewer their reads are a tenth of the time or less. */
    STORE_RESIDENT_PROBES = 4096,
    STORE_PROBE_EVERY = 16,
    /* engine/removed.c: a writer whose confirmations are lost sends again when it knows of it, and
     * has 40 s more to reach the server: pauses between attempts are 1 s. It has 1024 items
     * unconfirmed unless it was made for more: those of 256 writers; 2 x 2^19 x 16 bytes are 16
     * MiB, their filter is one. */
    REMOVED_KEYS_MAX = 1 << 18,
    REMOVED_KEYS_MS = RPC_KEEPALIVE_MS + RPC_KEEPALIVE_TIMEOUT_MS + 40000,
    /* store.h: chunk and record bytes of one group: 16 449 of LMDB's 131 071 dirty pages. */
    STORE_GROUP_BYTES_MAX = 64 << 20,
    /* store.h: what one item brings: a group of its own of 98 700 pages, of the same 131 071. */
    STORE_ITEM_BYTES_MAX = 384 << 20,
    /* group.c: entries of the change log before groups compact it: 4 MiB, replayed in 10 ms. */
    STORE_LOG_CHANGES_MAX = 1 << 18,
    /* store.h: chunks whose bytes are worth keeping in memory: a tree walk is 0.5 us, a copy
     * of a larger one takes longer. */
    STORE_CACHED_CHUNK_BYTES_MAX = 4080,
    /* pin.c: chunks that are sent from where they lie (of one page a copy is cheaper); pages
     * of ten slow clients' windows, and a sixteenth of what the file may grow to. */
    STORE_PIN_CHUNK_BYTES_MIN = 6144,
    STORE_PIN_BYTES_MAX = 64 << 20,
    STORE_PIN_SHARE = 16,
    /* chunk.c: a piece that surely has a page to itself. */
    STORE_PAGED_PIECE_BYTES_MIN = 2048,
    /* copy.c: what is found in one go: 2000 pages, whose copy takes 2 ms; chunks that are
     * named one by one: 8 MB of numbers. */
    COPY_BATCH_BYTES = 8 << 20,
    COPY_BAD_CHUNKS_MAX = 1 << 20,
    /* chunk.c: buffers kept for the next chunks: four groups of 4 MiB. */
    STORE_SPARE_BYTES_MAX = 16 << 20,
};

#endif
