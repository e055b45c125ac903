/* The chunks that one insert stream keeps: by the client's key, with the facts of their tensor
 * headers. Keys mean nothing outside their stream. Owner: the stream (the server's lock). */
#ifndef TRP_REPLAY_SERVICE_KEEP_SET_H
#define TRP_REPLAY_SERVICE_KEEP_SET_H

#include <stdint.h>

#include <troupe/status.h>
#include "core/map.h"
#include "replay/model/item.h"
#include "replay/engine/engine.h"
#include "replay/wire/wire.h"

/* How far a slice may go in one tensor of a chunk. */
struct kept_tensor {
    int64_t rows;    /* -1: a scalar, which has none */
    uint64_t layout; /* hash of dtype and the other dimensions: equal where rows may be joined */
};

struct kept {
    uint64_t key;
    struct chunk *chunk;                 /* with a reference */
    uint32_t tensor_first, tensor_count; /* in keep_set.tensors */
    uint64_t shape;       /* of a row of all its tensors: equal where they can give the same */
    uint32_t mark;        /* the release that wants to keep it */
    uint32_t item_index;  /* its number in the item being built, */
    uint64_t item_serial; /* which is this one */
};

/* A zeroed struct is an empty set. */
struct keep_set {
    struct kept *kept;
    struct kept_tensor *tensors;
    struct map index; /* from key to number in kept[] + 1 */
    uint32_t count, capacity;
    uint32_t tensor_count, tensor_capacity;
    uint32_t mark;
    uint64_t item_serial;
    struct wire_tensor_memo *memos; /* TENSOR_MEMOS_MAX, once there was a chunk */
    trp_bytes *spans;               /* scratch */
    uint32_t span_capacity;
    uint64_t bytes; /* of chunks added since the last release: at most these are ours alone */
};

void keep_set_cleanup(struct keep_set *set, struct engine *engine);

/* Its memory without the chunks. */
uint64_t keep_set_memory(const struct keep_set *set);

/* NULL: not kept. Valid until the next add or release. */
struct kept *keep_set_find(const struct keep_set *set, uint64_t key);

/* Adds the chunk, whose bytes are borrowed (engine_chunk_create()), unless its key is kept already.
 * INVALID_ARGUMENT: a tensor or range that no client could read, with the chunk, the tensor, the
 * value that is expected and the one that is given; RESOURCE_EXHAUSTED: more than KEPT_CHUNKS_MAX
 * chunks. */
trp_status keep_set_add(struct keep_set *set, struct engine *engine,
                        const struct wire_chunk *chunk);

/* Drops every chunk that is not in `keys`. FAILED_PRECONDITION with Reverb's text when they are not
 * exactly those that are left: a key that is not kept, or one listed twice. */
trp_status keep_set_release(struct keep_set *set, struct engine *engine,
                            const struct wire_keys *keys);

#endif
