/* Reverb's hot messages: InsertStreamRequest and -Response, SampleStreamRequest and -Response,
 * MutatePrioritiesRequest, and the ChunkData and FlatTrajectory inside them.
 *
 * Decoders take bytes from a peer and give spans into them (zero copy): nothing outlives the
 * message. Their results live in structs that are reused from message to message, so that a
 * message costs no allocation once the arrays have grown. Encoders compute the exact size and
 * write one trp_message. Everything is checked against the end of the bytes; unknown fields are
 * skipped; repeated scalars may be packed or not. No function blocks; no state is shared. */
#ifndef TRP_REPLAY_WIRE_WIRE_H
#define TRP_REPLAY_WIRE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/bytes.h>
#include <troupe/rpc.h>
#include <troupe/status.h>
#include <troupe/tensor.h>
#include "core/buffer.h"
#include "limits.h"

static inline trp_bytes message_bytes(trp_message *message)
{
    return (trp_bytes){trp_message_data(message), trp_message_size(message)};
}

/* ---- parts ------------------------------------------------------------------------------- */

/* One tensor of a chunk. `rank` counts every dimension of the message, dims[] has the first
 * TRP_RANK_MAX of them; dims[0] is the number of rows. `content` is compressed (raw snappy) unless
 * dtype is DT_STRING. */
struct wire_tensor {
    int32_t dtype;
    uint32_t rank;
    int64_t dims[TRP_RANK_MAX];
    uint64_t elements; /* decoded: of all dimensions; UINT64_MAX: negative, unknown or too many */
    uint64_t extent;   /* decoded: the same, dimensions of size 0 left out */
    uint64_t hidden;   /* decoded: a hash of the dimensions that dims[] has no room for */
    trp_bytes content;
    uint64_t beyond; /* decoded from parts: bytes of the content, one literal then, that follow */
};

/* Bytes of a message that go on for `count` parts, `last` bytes of the last of them. */
struct wire_more {
    const trp_bytes *parts;
    uint32_t count;
    size_t last;
};

/* The rest of some bytes in parts. */
struct spans {
    trp_bytes now;
    struct wire_more more;
};

/* A writer's chunk without its key. */
struct wire_steps {
    uint64_t episode_id;
    int32_t start, end; /* numbers of the first and the last step */
    bool sparse, delta_encoded;
    uint64_t uncompressed_bytes;
    const struct wire_tensor *tensors;
    uint32_t tensor_count;
};

/* A ChunkData: its key, and the message before and after the key field. For an encoder `steps`, if
 * not NULL, stands for head and tail. */
struct wire_chunk {
    uint64_t key;
    trp_bytes head, tail;
    struct wire_more more; /* decoded from parts: behind the tail */
    const struct wire_steps *steps;
    bool by_reference;         /* decoded: `tail` only says where it is; see wire_chunk_resolve() */
    const trp_bytes *resolved; /* resolved: as more.parts, but with an address for each */
};

struct wire_slice {
    uint64_t chunk_key;
    int32_t offset, length;    /* rows of the chunk */
    int32_t index;             /* of the tensor in the chunk */
    const uint8_t *key_varint; /* decoded: where the key stands in the message; NULL: absent */
};

struct wire_column {
    uint32_t slice_first, slice_count; /* in wire_lists.slices */
    bool squeeze;
};

struct wire_item {
    uint64_t key;
    trp_bytes table;
    double priority;
    int32_t times_sampled;
    int64_t inserted_at_ns;
    uint64_t policy_version;             /* ours, field 1000; 0: not said */
    uint32_t column_first, column_count; /* in wire_lists.columns */
    trp_bytes trajectory;                /* decoded: the FlatTrajectory that the columns are in */
};

/* The arrays that a message's parts lie in; grown, never shrunk. A zeroed struct is empty. */
struct wire_lists {
    struct wire_chunk *chunks;
    struct wire_item *items;
    struct wire_column *columns;
    struct wire_slice *slices;
    uint32_t chunk_count, item_count, column_count, slice_count;
    uint32_t chunk_capacity, item_capacity, column_capacity, slice_capacity;
};

/* Appends a zeroed element; valid until the next push to the same array. A column belongs to the
 * last item and a slice to the last column (their counts are kept). */
struct wire_chunk *wire_push_chunk(struct wire_lists *lists);
struct wire_item *wire_push_item(struct wire_lists *lists);
struct wire_column *wire_push_column(struct wire_lists *lists);
struct wire_slice *wire_push_slice(struct wire_lists *lists);
void wire_lists_clear(struct wire_lists *lists); /* keeps the memory */
void wire_lists_cleanup(struct wire_lists *lists);

/* Decodes the columns of a decoded item, dropping those of the item before (so that only one item's
 * are there at a time). INVALID_ARGUMENT, RESOURCE_EXHAUSTED as the decoder. */
trp_status wire_item_columns(struct wire_lists *lists, struct wire_item *item);

/* 64-bit keys, grown like the lists. */
struct wire_keys {
    uint64_t *keys;
    uint32_t count, capacity;
};
void wire_push_key(struct wire_keys *keys, uint64_t key);
void wire_keys_cleanup(struct wire_keys *keys);

/* ---- tensors of a chunk ------------------------------------------------------------------ */

/* The header of a tensor seen before, as it was on the wire: chunks of one writer differ in little
 * but their contents. A zeroed one remembers nothing. */
struct wire_tensor_memo {
    uint8_t prefix[WIRE_MEMO_BYTES_MAX]; /* everything before the content */
    uint32_t size;
    struct wire_tensor tensor;
};

/* The header of a chunk: which steps it has. */
struct wire_range {
    uint64_t episode_id;
    int32_t start, end;   /* numbers of the first and the last step */
    int32_t tensor_total; /* data_tensors_len; 0: not said */
};

/* Walks the tensors of one chunk without decompressing them. */
struct wire_tensor_reader {
    struct spans parts[2]; /* the rest of head and tail */
    struct spans data;     /* the rest of the Data submessage being read */
    bool delta_encoded;    /* complete, as `range`, once wire_tensor_next() gave no more */
    struct wire_range range;
    uint32_t count;                 /* tensors given so far */
    struct wire_tensor_memo *memos; /* of the first `memo_count` tensors; may be set after open */
    uint32_t memo_count;
};

void wire_tensors_open(struct wire_tensor_reader *reader, const struct wire_chunk *chunk);

/* The next tensor into `tensor`, `*more` false at the end. INVALID_ARGUMENT: malformed. Also reads
 * the deprecated field 3 where old writers put tensors. */
trp_status wire_tensor_next(struct wire_tensor_reader *reader, struct wire_tensor *tensor,
                            bool *more);

/* ---- InsertStream ------------------------------------------------------------------------ */

struct wire_insert_request {
    struct wire_lists lists;
    struct wire_keys keep; /* keep_chunk_keys */
    /* Copies of fields that could not be decoded in parts: the lists refer to them, too. A caller
     * that takes them leaves `joined_count` 0. */
    trp_message **joined;
    uint32_t joined_count, joined_capacity;
    trp_bytes hello; /* ours, field 1002: a writer that would like a shared memory segment */
    /* Of the chunk found last. */
    trp_bytes *visible, *resolved;
    uint32_t resolved_count, visible_capacity, resolved_capacity;
    uint64_t referenced_bytes; /* of this message, in shared memory */
};

/* Decodes a message in `count` parts. Only large contents of chunks go on from one part to another
 * (wire_chunk.more); whatever else does is joined. INVALID_ARGUMENT: malformed; RESOURCE_EXHAUSTED:
 * no memory, or more of something than MESSAGE_*_MAX. */
trp_status wire_insert_request_decode(const trp_bytes *parts, size_t count,
                                      struct wire_insert_request *request);

/* Makes a referenced chunk one in parts, of which those in `memory` are contents that are one
 * literal: its writer may change them at any time, and no valid chunk becomes another thing by
 * that. Bytes that somebody has to look at are copied (`joined`). Valid until the next one is
 * found. INVALID_ARGUMENT: malformed, or it is not in `memory`, or a message has more of it than
 * there is; RESOURCE_EXHAUSTED: no memory. */
trp_status wire_chunk_resolve(struct wire_insert_request *request, trp_bytes memory,
                              struct wire_chunk *chunk);

/* RESOURCE_EXHAUSTED: no memory for the message. */
trp_status wire_insert_request_encode(const struct wire_insert_request *request,
                                      trp_message **message);

/* Bytes that a chunk adds to a request: for a writer that cuts messages by size. */
size_t wire_chunk_size(const struct wire_chunk *chunk);
void wire_insert_request_clear(struct wire_insert_request *request);
void wire_insert_request_cleanup(struct wire_insert_request *request);

/* Clears it and gives its memory back if it takes more than `bytes`. */
void wire_insert_request_trim(struct wire_insert_request *request, size_t bytes);

/* The confirmed keys, appended to `keys`. */
trp_status wire_insert_response_decode(trp_bytes bytes, struct wire_keys *keys);
trp_status wire_insert_response_encode(const struct wire_keys *keys, trp_message **message);

/* A response that only describes a shared memory segment; and the description, empty: none. */
trp_status wire_insert_segment_encode(trp_bytes description, trp_message **message);
trp_bytes wire_insert_segment_decode(trp_bytes bytes);

/* ---- SampleStream ------------------------------------------------------------------------ */

struct wire_sample_request {
    trp_bytes table;
    int64_t num_samples;
    bool has_timeout; /* the submessage is there, be it empty */
    int64_t timeout_ms;
};

trp_status wire_sample_request_decode(trp_bytes bytes, struct wire_sample_request *request);
trp_status wire_sample_request_encode(const struct wire_sample_request *request,
                                      trp_message **message);

/* How a sample was drawn. */
struct wire_draw {
    double probability;
    int64_t table_size;
    bool rate_limited;
};

/* One decoded SampleEntry. The first of a sample has info, the one with its last chunk ends it. */
struct wire_entry {
    bool has_info, end_of_sequence;
    uint32_t item; /* in lists.items, when has_info */
    struct wire_draw draw;
    uint32_t chunk_first, chunk_count; /* in lists.chunks */
};

struct wire_sample_response {
    struct wire_lists lists;
    struct wire_entry *entries;
    uint32_t entry_count, entry_capacity;
};

trp_status wire_sample_response_decode(trp_bytes bytes, struct wire_sample_response *response);
void wire_sample_response_cleanup(struct wire_sample_response *response);

/* A chunk of a response being built, `size` bytes without the key. The first `elsewhere` of them
 * are not in the message that the encoder makes: the caller puts them in before `bytes`, where the
 * encoder leaves room for the others, which the caller fills. */
struct wire_slot {
    uint64_t key;
    size_t size, elsewhere;
    uint8_t *bytes;
};

/* One SampleEntry being built. */
struct wire_entry_parts {
    const struct wire_item *item; /* with its trajectory, not its columns; NULL: no info */
    struct wire_draw draw;
    struct wire_slot *slots;
    uint32_t slot_count;
    bool end_of_sequence;
};

trp_status wire_sample_response_encode(struct wire_entry_parts *entries, size_t count,
                                       trp_message **message);

/* ---- MutatePriorities -------------------------------------------------------------------- */

struct wire_update {
    uint64_t key;
    double priority;
};

struct wire_mutate_request {
    trp_bytes table;
    struct wire_update *updates;
    uint32_t update_count, update_capacity;
    struct wire_keys deletes;
};

trp_status wire_mutate_request_decode(trp_bytes bytes, struct wire_mutate_request *request);
trp_status wire_mutate_request_encode(const struct wire_mutate_request *request,
                                      trp_message **message);
struct wire_update *wire_push_update(struct wire_mutate_request *request);
void wire_mutate_request_cleanup(struct wire_mutate_request *request);

/* Empties it and gives its memory back if it takes more than `bytes`. */
void wire_mutate_request_trim(struct wire_mutate_request *request, size_t bytes);

#endif
