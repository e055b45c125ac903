/* Builds an item's canonical trajectory from the wire's and its stream's kept chunks. */
#ifndef TRP_REPLAY_SERVICE_TRAJECTORY_BUILDER_H
#define TRP_REPLAY_SERVICE_TRAJECTORY_BUILDER_H

#include <stdint.h>

#include <troupe/status.h>
#include "core/buffer.h"
#include "limits.h"
#include "keep_set.h"
#include "replay/model/trajectory.h"
#include "replay/wire/wire.h"

/* Where a chunk key stands in the message of the item that was built last. */
struct trajectory_slot {
    uint32_t at, size; /* bytes */
    uint32_t chunk;
};

/* An item that was built, and as it was on the wire: one that differs in chunk keys only, with
 * chunks that can give the same, has the same canonical bytes. */
struct trajectory_template {
    struct buffer bytes, wire; /* the canonical ones, the others */
    struct trajectory_slot slots[TEMPLATE_SLOTS_MAX];
    uint32_t slot_count;                 /* 0: there is none */
    uint64_t shapes[TEMPLATE_SLOTS_MAX]; /* of its chunks, */
    int64_t rows[TEMPLATE_SLOTS_MAX];    /* of which they have at least so many */
};

/* Reused from item to item of one stream; a zeroed struct is fine. */
struct trajectory_builder {
    struct trajectory_template templates[TEMPLATES_MAX];
    uint32_t last;         /* of them, that of the item built last */
    struct chunk **chunks; /* its chunks, in first-seen order; borrowed from the set */
    uint32_t chunk_count, chunk_capacity;
};

static inline trp_bytes trajectory_built(const struct trajectory_builder *builder)
{
    return buffer_bytes(&builder->templates[builder->last].bytes);
}

/* Builds the canonical bytes of a decoded item whose chunks are in `set`, and checks that a client
 * can cut every column from them: INTERNAL: a chunk that is not kept; INVALID_ARGUMENT: nothing in
 * the first column, rows or tensors that a chunk does not have, slices of one column that cannot
 * be joined, a squeezed column that is not one row. Texts are Reverb's where it has them. */
trp_status trajectory_build(struct trajectory_builder *builder, struct wire_lists *lists,
                            struct wire_item *item, struct keep_set *set);
void trajectory_builder_cleanup(struct trajectory_builder *builder);

/* Its memory: as much as its largest item needed. */
uint64_t trajectory_builder_memory(const struct trajectory_builder *builder);

#endif
