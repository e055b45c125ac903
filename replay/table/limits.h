/* Bounds of replay/table/ that are no option, with their arithmetic. */
#ifndef TRP_REPLAY_TABLE_LIMITS_H
#define TRP_REPLAY_TABLE_LIMITS_H

#include <stdint.h>

enum {
    /* service/sample_stream.c, Reverb's numbers: a batch is 1 MiB of chunks, a response 2 MiB,
     * three responses are queued, so that a stream takes 6 MiB, or three chunks, or one item's
     * chunks. A batch of 1024 small samples is 0.3 ms. */
    SAMPLE_BLOCK_ITEMS_MAX = 64, /* the first are in the cache when the last are asked for */
    /* table.c: what one request is kept from drawing twice; in the worst case each draw looks
     * at all of them, twice: a millisecond. 2^15 entries x 16 bytes. */
    DISTINCT_ITEMS_MAX = 1 << 14,
    /* server/admin_items.c: an answer; what is sorted for it: 2^20 candidates x 40 bytes = 42 MB;
     * slots looked at with the lock held: 2 ms if each is a cache miss. */
    REPLAY_SLICE_SLOTS = 20000,
};

#endif
