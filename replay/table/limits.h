/* Bounds of replay/table/ that are no option, with their arithmetic. */
#ifndef TRP_REPLAY_TABLE_LIMITS_H
#define TRP_REPLAY_TABLE_LIMITS_H

enum {
    /* draw.c: drawn side by side: the first are in the cache when the last are asked for. */
    DRAW_BLOCK_SLOTS_MAX = 64,
    /* draw.c: what one request is kept from drawing twice; in the worst case each draw looks
     * at all of them, twice: a millisecond. 2^15 entries x 16 bytes. */
    DISTINCT_ITEMS_MAX = 1 << 14,
    /* table.c: slots looked at for the oldest item: 2 ms if each is a cache miss. */
    OLDEST_SLOTS_MAX = 20000,
};

#endif
