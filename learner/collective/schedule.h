/* Which rank sends what to whom in an operation, and when: the algorithms, as two lists of pieces,
 * those that a rank sends and those that it receives. Each list is gone through in order; a piece
 * that is sent may need pieces to have been received before, the last of them as far as the bytes
 * that go on (so a long vector is in many hands at once).
 *
 *   ring      reduce-scatter and all-gather in n - 1 steps each: every rank sends and receives
 *             2 (n - 1) / n of the bytes (Patarasuk and Yuan, 2009, "Bandwidth optimal all-reduce")
 *   doubling  recursive doubling: log2 n steps with everything; ranks beyond a power of two hand
 *             theirs to a neighbour before, and get the result after
 *   chain     broadcast from rank to rank
 *   tree      broadcast down a binomial tree
 *   direct    each rank sends its range to each other one
 *   pairwise  each rank sends each other one a block of its own
 *   shift     each rank sends one other a block
 *   sites     a sum in two levels: within a site from rank to rank to its first one, a ring of the
 *             first ones of all sites, and back (hierarchical allreduce)
 */
#ifndef TRP_LEARNER_SCHEDULE_H
#define TRP_LEARNER_SCHEDULE_H

#include "call.h"

/* The sizes in bytes of all values up to which algorithms for small ones are used. Rank 0's are
 * everybody's. */
struct schedule_table {
    uint64_t doubling_bytes; /* else ring; also the room for what is on its way in doubling */
    uint64_t tree_bytes;     /* else chain */
    uint64_t direct_bytes;   /* else ring */
};

enum { SCHEDULE_DOUBLING_BYTES_MAX = 1 << 20 };

enum schedule_algorithm {
    SCHEDULE_RING,
    SCHEDULE_DOUBLING,
    SCHEDULE_CHAIN,
    SCHEDULE_TREE,
    SCHEDULE_DIRECT,
    SCHEDULE_PAIRWISE,
    SCHEDULE_SHIFT,
    SCHEDULE_SITES,
};

/* Where a rank is in its site, and that among others: sites.h. */
struct schedule_place {
    uint32_t sites, site;   /* of so many the how manieth, in the order of first ranks */
    uint32_t before, after; /* ranks of this site; this rank itself: there is none */
    uint32_t left, right;   /* of a first rank: those of the sites before and after, in a ring */
};

struct schedule {
    struct group_call call;
    enum schedule_algorithm algorithm;
    uint32_t rank, size;
    uint32_t sends, receives; /* pieces */
    struct schedule_place place;
    bool calls_alone; /* no values go with them */
};

struct schedule_piece {
    uint32_t peer;
    size_t low, high; /* bytes of the values */
    bool first;       /* between the two in this direction: the call goes ahead */
    bool reduce;      /* received values are combined with those that are here */
    bool snapshot;    /* sent from a copy: the values change meanwhile */
    bool waits;       /* until all that it is `after` is there: it is not what came last */
    /* To send: so many pieces must have been received, the last of them as far. To receive: so many
     * must have been sent, the last of them copied at least. */
    uint32_t after;
};

/* The part of `count` values that is rank `rank`'s. */
void schedule_range(uint64_t count, uint32_t size, uint32_t rank, size_t *low, size_t *high);

void schedule_init(struct schedule *schedule, const struct group_call *call, uint32_t rank,
                   uint32_t size, const struct schedule_table *table,
                   const struct schedule_place *place);

/* The calls' way alone: done when all ranks have started it, with the same call. */
void schedule_init_calls(struct schedule *schedule, const struct group_call *call, uint32_t rank,
                         uint32_t size);

struct schedule_piece schedule_send(const struct schedule *schedule, uint32_t index);
struct schedule_piece schedule_receive(const struct schedule *schedule, uint32_t index);

#endif
