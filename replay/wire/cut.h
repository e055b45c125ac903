/* Cuts the rows that slices name out of the tensors of an item's chunks. Everything comes from a
 * peer: every number is compared with another before memory is touched. One thread. */
#ifndef TRP_REPLAY_WIRE_CUT_H
#define TRP_REPLAY_WIRE_CUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/bytes.h>
#include <troupe/status.h>
#include "wire.h"

/* The tensors of one chunk; it is walked when the first slice wants one. */
struct cut_chunk {
    uint32_t first, count; /* in cutter.tensors */
    bool walked, delta_encoded;
};

/* The chunks of one item, and scratch memory, used again for the next. A zeroed struct has none. */
struct cutter {
    const struct wire_chunk *chunks; /* borrowed */
    uint32_t chunk_count, walk_capacity;
    struct cut_chunk *walks; /* one a chunk */
    uint32_t found;          /* chunk of the last slice */
    struct wire_tensor *tensors;
    uint32_t tensor_count, tensor_capacity;
    uint8_t *plain; /* a tensor decompressed */
    size_t plain_capacity;
    const uint8_t *plain_of; /* its block; NULL: none */
};

/* The slices to come are of these chunks, which stay until the next call. */
void cutter_begin(struct cutter *cutter, const struct wire_chunk *chunks, uint32_t count);
void cutter_cleanup(struct cutter *cutter);

/* The tensor that `slice` names, and whether its rows are differences; valid until the next call.
 * INVALID_ARGUMENT: there is no such chunk or tensor, or a chunk is malformed. */
trp_status cutter_find(struct cutter *cutter, const struct wire_slice *slice,
                       const struct wire_tensor **tensor, bool *delta);

/* The rows that `slice` cuts out of the tensor it names, of `row_bytes` each, which go with the
 * tensor's dtype and shape (of numbers; it has at least one dimension). Rows of a literal stay in
 * the chunk and `*rows` says where; others are written to `out`, which has room for all of them.
 * INVALID_ARGUMENT: the tensor has not these rows; DATA_LOSS: its bytes contradict its shape. */
trp_status cutter_cut(struct cutter *cutter, const struct wire_slice *slice,
                      const struct wire_tensor *tensor, bool delta, size_t row_bytes, uint8_t *out,
                      trp_bytes *rows);

/* INVALID_ARGUMENT: the tensor, which has at least one dimension, has not the slice's rows. */
trp_status slice_in_tensor(const struct wire_slice *slice, const struct wire_tensor *tensor);

/* A sample may be spread over entries and messages: adds the chunks of `entry` of a decoded
 * response to the lists `to`, which are emptied and get its item first if it has info. All bytes
 * stay where they are. RESOURCE_EXHAUSTED: a sample of more than MESSAGE_ITEMS_MAX chunks. */
trp_status sample_add(struct wire_lists *to, const struct wire_sample_response *from,
                      const struct wire_entry *entry);

#endif
