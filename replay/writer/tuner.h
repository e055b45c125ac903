/* Finds how many steps a chunk of one column group should have, from what the group's items took.
 * Its owner is the group. One thread. */
#ifndef TRP_REPLAY_WRITER_TUNER_H
#define TRP_REPLAY_WRITER_TUNER_H

#include <stdbool.h>
#include <stdint.h>

/* The chunks that one item took from a group, and how many rows of them. */
struct tuner_item {
    uint64_t first_key, last_key; /* of its chunks */
    uint32_t chunks, chunk_rows;  /* and all the rows in them */
    uint64_t chunk_bytes;
    uint32_t rows;
};

/* A score: over some items. */
struct tuner_score {
    double length, cost;
};

struct tuner {
    double weight;       /* of what an item costs beside what a chunk costs */
    uint32_t length_max; /* lengths are 1 to this */
    uint32_t length;     /* what the next chunk should have */
    struct tuner_score last;
    uint32_t items, chunks; /* since the last score */
    uint64_t seen_key;
    double length_sum, chunk_sum, item_sum;
};

void tuner_init(struct tuner *tuner, double weight, uint32_t length_max);

/* Looks at an item whose chunks are complete; may change `length`. */
void tuner_note(struct tuner *tuner, const struct tuner_item *item);

#endif
