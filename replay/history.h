/* The recent steps of a writer, in chunks ready for the wire.
 *
 *   history --ring--> steps --(chunk, row)--> chunk: rows of every column
 *
 * A chunk is filled row by row, closed when it is full (or earlier, when it has to be sent), and
 * then never changes. It lives as long as somebody holds a reference: the history for its steps,
 * an item until it is confirmed, the stream while the server keeps it. Chunks are recycled, so that
 * a step allocates nothing once the writer is warm. One thread. */
#ifndef TRP_REPLAY_HISTORY_H
#define TRP_REPLAY_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/rng.h>
#include <troupe/status.h>
#include <troupe/tensor.h>
#include "wire.h"

enum { KEY_VARINT_BYTES = 9, RANGE_BYTES_MAX = 1 + 1 + 11 + 11 + 11 };

struct history_chunk {
    struct history_chunk *next; /* among the free ones */
    uint64_t key;
    uint8_t key_bytes[KEY_VARINT_BYTES]; /* as a varint */
    uint32_t refs;
    uint32_t rows;
    bool closed, in_history;
    bool reshaped;          /* `memory` is no longer a message of full rows */
    struct wire_chunk wire; /* complete once closed */
    size_t wire_size;       /* as field 1 of a request; once closed */
    uint8_t range[RANGE_BYTES_MAX];
    struct wire_steps steps;
    struct wire_tensor *tensors; /* one a column */
    uint8_t *memory;             /* a ChunkData without key and range, rows in their places */
    /* The writer's marks. */
    uint64_t last_item; /* serial of the newest item that refers to it */
    uint64_t seen_by;   /* the item or message that looked at it last */
    bool sent;          /* the server has it and was not told to drop it */
};

struct history;

/* INVALID_ARGUMENT: no columns, a column that is no tensor of 1 to 2^32 - 1 bytes a chunk. `depth`
 * and `chunk_length` are at least 1. */
trp_status history_create(struct history **out, const trp_tensor_spec *columns, size_t column_count,
                          uint32_t depth, uint32_t chunk_length, uint64_t seed);
void history_destroy(struct history *history); /* after every reference is gone; NULL is fine */

/* Copies one step, dropping the oldest when there are `depth`. */
void history_append(struct history *history, const void *const *columns);

/* Closes the chunk that is being filled, if there is one. */
void history_close(struct history *history);

/* Closes, then drops every step; the next one is step 0 of a new episode. */
void history_forget(struct history *history);

uint32_t history_size(const struct history *history); /* steps */
size_t history_columns(const struct history *history);
size_t history_step_bytes(const struct history *history);

/* The chunk that holds the step `age` steps back (age < size), and its row there. */
struct history_chunk *history_find(const struct history *history, uint32_t age, uint32_t *row);

/* A key of 63 bits, the highest of them set: always nine bytes on the wire. */
uint64_t history_draw_key(struct history *history);

static inline void history_ref(struct history_chunk *chunk)
{
    chunk->refs++;
}

void history_unref(struct history *history, struct history_chunk *chunk);

#endif
