/* The recent steps of columns that share chunks, ready for the wire.
 *
 *   track --ring--> cells --(chunk, row)--> chunk: rows of every column
 *
 * A chunk is filled row by row, closed when it is full (or earlier, when it has to be sent), and
 * then never changes. It lives as long as somebody holds a reference: the track for its steps,
 * an item until it is confirmed, the stream while the server keeps it. Chunks are recycled, so that
 * a step allocates nothing once the writer is warm. One thread. */
#ifndef TRP_REPLAY_WRITER_TRACK_H
#define TRP_REPLAY_WRITER_TRACK_H

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

struct track;

struct track_chunk {
    struct track_chunk *next; /* among the free ones, or those that the track holds */
    struct track *track;
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
    struct room *room;   /* that it is in; NULL: the heap */
    uint32_t generation; /* of the track, when it was made */
    trp_bytes placed;    /* once closed, in a room: the field of a request that says where it is;
                            empty: nothing of it is large */
    uint8_t *placed_memory;
    size_t placed_capacity;
    /* The writer's marks. */
    uint64_t last_item; /* serial of the newest item that refers to it */
    uint64_t seen_by;   /* the item or message that looked at it last */
    uint32_t seen_at;   /* where that item lists it */
    bool sent;          /* the server has it and was not told to drop it */
};

struct track_options {
    uint32_t depth;        /* steps that can be found, at least 1 */
    uint32_t chunk_length; /* rows of a chunk, at least 1; tuned: of the longest */
    bool tuned;            /* the length is found out, from 1 on */
    double throughput_weight;
    trp_rng *rng; /* of chunk keys; borrowed */
};

/* Where a step stands: in the writer's life, and in its episode. */
struct step_number {
    uint64_t serial; /* from 0 on, without gaps */
    uint64_t episode;
    int32_t step;
};

/* Columns sources[0 .. count) of `columns`. INVALID_ARGUMENT: a column that is no tensor of 1 to
 * 2^32 - 1 bytes a chunk. */
trp_status track_create(struct track **out, const trp_tensor_spec *columns, const uint32_t *sources,
                        size_t count, const struct track_options *options);
void track_destroy(struct track *track); /* after every reference is gone; NULL is fine */

/* Where chunks are made from now on, if they are large and there is some; NULL: on the heap. */
void track_set_room(struct track *track, struct room *room);
bool track_is_large(const struct track *track); /* its chunks may be */

/* `count` whole steps from `first` on: columns[c] has the rows of column c, c as in `sources`. */
void track_append(struct track *track, const void *const *columns, uint32_t count,
                  const struct step_number *first);

/* The same in parts: a step without cells; some of its cells (columns[c] NULL: not this one), each
 * once; and its end. Cells never given are absent. */
void track_begin(struct track *track, const struct step_number *number);
void track_put(struct track *track, const void *const *columns, const struct step_number *number);
void track_end(struct track *track);

/* Closes the chunk that is being filled, if there is one; a step may go on in the next. */
void track_close(struct track *track);

/* Closes, then drops every step. */
void track_forget(struct track *track);

/* The chunk that holds column `index` of the step `age` steps back, and its row there; NULL: the
 * step has none. `age` is below the depth and the number of steps since track_forget(). */
struct track_chunk *track_find(const struct track *track, uint32_t index, uint32_t age,
                               uint32_t *row);

bool track_has_gaps(const struct track *track); /* some step may lack a cell */
uint32_t track_depth(const struct track *track);
size_t track_step_bytes(const struct track *track);
uint32_t track_chunk_length(const struct track *track);

/* An item took `rows` rows out of these closed chunks of the track. */
void track_note_item(struct track *track, const struct tuner_item *item);

static inline void track_ref(struct track_chunk *chunk)
{
    chunk->refs++;
}

void track_unref(struct track_chunk *chunk);

/* A key of 63 bits, the highest of them set: always nine bytes on the wire. */
uint64_t key_draw(trp_rng *rng);

#endif
