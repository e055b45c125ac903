/* The recent steps of columns that share chunks, ready for the wire.
 *
 *   group --ring--> cells --(chunk, row)--> chunk: rows of every column
 *
 * A chunk is filled row by row, closed when it is full (or earlier, when it has to be sent), and
 * then never changes. The group owns the memory of its chunks; a chunk is used again when nobody
 * holds a reference any more: the group for its steps, an item until it is confirmed, the outbox
 * while the server keeps it. So a step allocates nothing once the writer is warm. One thread. */
#ifndef TRP_REPLAY_WRITER_COLUMN_GROUP_H
#define TRP_REPLAY_WRITER_COLUMN_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/rng.h>
#include <troupe/status.h>
#include <troupe/tensor.h>
#include "shm_arena.h"
#include "tuner.h"
#include "replay/wire/wire.h"

enum { KEY_VARINT_BYTES = 9, RANGE_BYTES_MAX = 1 + 1 + 11 + 11 + 11 + 2 };

struct column_group;

struct group_chunk {
    struct group_chunk *next; /* among the free ones, or those that the group holds */
    struct column_group *group;
    uint64_t key;
    uint8_t key_bytes[KEY_VARINT_BYTES]; /* as a varint */
    uint32_t refs;
    uint32_t rows, capacity;
    uint64_t last_step; /* serial of the step of its last row */
    bool closed, in_history;
    bool reshaped;          /* `memory` is no longer a message of full rows */
    struct wire_chunk wire; /* complete once closed */
    size_t wire_size;       /* as field 1 of a request; once closed */
    uint8_t range[RANGE_BYTES_MAX];
    struct wire_steps steps;
    struct wire_tensor *tensors; /* one a column */
    uint8_t *memory;             /* a ChunkData without key and range, rows in their places */
    size_t memory_bytes;
    struct shm_arena *arena; /* that it is in; NULL: the heap */
    uint32_t generation;     /* of the group, when it was made */
    trp_bytes reference; /* once closed, in an arena: the field of a request that says where it is;
                         empty: nothing of it is large */
    uint8_t *reference_memory;
    size_t reference_capacity;
    /* The writer's marks. */
    uint64_t last_item; /* serial of the newest item that refers to it */
    uint64_t seen_by;   /* the item or message that looked at it last */
    uint32_t seen_at;   /* where that item lists it */
    bool sent;          /* the server has it and was not told to drop it */
};

struct column_group_options {
    uint32_t depth;        /* steps that can be found, at least 1 */
    uint32_t chunk_length; /* rows of a chunk, at least 1; tuned: of the longest */
    bool tuned;            /* the length is found out, from 1 on */
    double throughput_weight;
    trp_rng *rng; /* of chunk keys; borrowed */
    size_t *held; /* counts the bytes of chunks with steps that can be found; borrowed */
};

/* Where a step stands: in the writer's life, and in its episode. */
struct step_number {
    uint64_t serial; /* from 0 on, without gaps */
    uint64_t episode;
    int32_t step;
};

/* Columns sources[0 .. count) of `columns`, each with a name. INVALID_ARGUMENT: a column that is no
 * tensor of 1 to 2^32 - 1 bytes a chunk. */
trp_status column_group_create(struct column_group **out, const trp_tensor_spec *columns,
                               const uint32_t *sources, size_t count,
                               const struct column_group_options *options);
void column_group_destroy(
    struct column_group *group); /* after every reference is gone; NULL is fine */

/* Where chunks are made from now on, if they are large and there is some; NULL: on the heap. */
void column_group_set_arena(struct column_group *group, struct shm_arena *arena);

/* `count` whole steps from `first` on: columns[c] has the rows of column c, c as in `sources`. */
void column_group_append(struct column_group *group, const void *const *columns, uint32_t count,
                         const struct step_number *first);

/* The same in parts: a step without cells; some of its cells (columns[c] NULL: not this one), each
 * once; and its end. Cells never given are absent. */
void column_group_begin(struct column_group *group, const struct step_number *number);
void column_group_put(struct column_group *group, const void *const *columns,
                      const struct step_number *number);
void column_group_end(struct column_group *group);

/* Closes the chunk that is being filled, if there is one; a step may go on in the next. */
void column_group_close(struct column_group *group);

/* Closes, then drops every step. */
void column_group_forget(struct column_group *group);

/* The chunk that holds column `index` of the step `age` steps back, and its row there; NULL: the
 * step has none. `age` is below the depth and the number of steps since column_group_forget(). */
struct group_chunk *column_group_find(const struct column_group *group, uint32_t index,
                                      uint32_t age, uint32_t *row);

/* An item took `rows` rows out of these closed chunks of the group. */
void column_group_note_item(struct column_group *group, const struct tuner_item *item);

static inline void group_chunk_ref(struct group_chunk *chunk)
{
    chunk->refs++;
}

void group_chunk_unref(struct group_chunk *chunk);

/* A key of 63 bits, the highest of them set: always nine bytes on the wire. */
uint64_t key_draw(trp_rng *rng);

#endif
