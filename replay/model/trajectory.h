/* Canonical trajectories: a FlatTrajectory with indices into its item's chunks in place of keys.
 *
 * Items of one shape have the same bytes, whatever their chunks, and share one interned struct
 * trajectory. The bytes are a sequence of columns, each a varint (slices << 1 | squeeze) and per
 * slice four varints: chunk index, offset, length, tensor index. No function blocks. */
#ifndef TRP_REPLAY_MODEL_TRAJECTORY_H
#define TRP_REPLAY_MODEL_TRAJECTORY_H

#include <stdbool.h>
#include <stdint.h>

#include <troupe/bytes.h>
#include "core/buffer.h"
#include "item.h"

/* False for bytes that no server wrote, for an item of so many chunks: for records from a file. */
bool trajectory_valid(trp_bytes bytes, uint32_t chunk_count);

/* Appends the FlatTrajectory message with the chunks' seqs as keys. */
void trajectory_encode(const struct trajectory *trajectory, struct chunk *const *chunks,
                       struct buffer *out);

/* ---- reading one column by column -------------------------------------------------------- */

struct trajectory_reader {
    const uint8_t *at, *end;
    uint32_t slices_left; /* of the current column */
};

struct trajectory_slice {
    uint32_t chunk, offset, length, index;
};

void trajectory_open(struct trajectory_reader *reader, const struct trajectory *trajectory);

/* The next column; call trajectory_next_slice() until it is false before the next one. */
bool trajectory_next_column(struct trajectory_reader *reader, uint32_t *slices, bool *squeeze);
bool trajectory_next_slice(struct trajectory_reader *reader, struct trajectory_slice *slice);

#endif
