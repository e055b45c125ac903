/* The sum behind a chunk, which lies in pieces. */
#ifndef TRP_REPLAY_MODEL_CHUNK_SUM_H
#define TRP_REPLAY_MODEL_CHUNK_SUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/bytes.h>

enum { SUM_BYTES = 4 /* behind a chunk and behind a record */ };

/* A chunk's sum: that of what came before, 0 at first, with the next piece or the rest of it. */
uint32_t chunk_sum_add(uint32_t sum, const uint8_t *bytes, size_t size);

/* Compares a chunk with its sum while its pieces come one by one. The bytes of a piece live until
 * the next one came. A zeroed struct is the beginning. */
struct chunk_check {
    trp_bytes last; /* the piece whose place in the chunk the next one tells */
    uint64_t bytes; /* so far, with the sum */
    uint32_t sum;
    uint8_t tail[SUM_BYTES]; /* of the stored sum */
    uint32_t tail_bytes;
    bool cached; /* the pieces were copied just now: nothing has to be fetched ahead */
};

void chunk_check_piece(struct chunk_check *check, trp_bytes piece);
bool chunk_check_end(struct chunk_check *check);

#endif
