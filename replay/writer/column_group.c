/* A step is copied once, to where the wire wants it. The memory of a chunk is the message that a
 * full chunk of plain literals makes: headers that never change and rows that are written into
 * their places. Closing such a chunk costs nothing, sending it is one copy.
 *
 * Columns that are large enough are compressed in place when that pays; a column where it did not
 * pay a few times in a row is left alone for a while, because looking at noise costs as much as
 * copying it. Such chunks, and those closed early, are put together tensor by tensor.
 *
 * A server on this host may give us room that it sees, too: then a chunk is made there, and what is
 * sent of it is all but its large contents.
 *
 * A ring says for each step which row it is. Only when steps come in parts can its columns be in
 * different rows (a flush between two parts closes the chunk) or nowhere; from the first part on
 * there is a second ring that says it for each column. */
#include "column_group.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/copy.h"
#include "replay/wire/limits.h"
#include "limits.h"
#include "replay/wire/tensor.h"
#include "replay/wire/bytes.h"

struct column {
    trp_dtype dtype;
    uint32_t rank;
    uint32_t source; /* which of the writer's columns it is */
    int64_t shape[TRP_RANK_MAX];
    size_t step_bytes;
    size_t offset;     /* of its first row in a chunk's memory */
    uint32_t failures; /* compressions in a row that did not pay */
    uint32_t pause;    /* chunks to leave alone */
};

struct cell {
    struct track_chunk *chunk; /* NULL: absent */
    uint32_t row;
};

struct track {
    struct column *columns;
    size_t column_count;
    size_t step_bytes;
    uint8_t *shape; /* what the memory of a chunk begins as */
    size_t shape_bytes;
    uint32_t chunk_length;
    trp_rng *rng;
    struct cell *ring;            /* where a step's row begins; NULL: it has none */
    struct cell *cells;           /* depth x column_count; NULL: all columns are as in `ring` */
    bool gaps;                    /* some step lacked a cell */
    bool row_open;                /* the row at open->rows is being filled */
    uint32_t depth, newest;       /* ring[newest] is the step of age 0 */
    struct track_chunk *held;     /* oldest of the chunks with rows that can be found ... */
    struct track_chunk *held_end; /* ... and the newest */
    struct track_chunk *open, *free;
    struct room *room;   /* NULL: none */
    uint32_t generation; /* of how chunks are made; earlier ones are not used again */
    bool large;
    uint8_t *scratch;
    size_t *packed; /* scratch: compressed bytes of each column */
    bool tuned;
    struct tuner tuner;
};

uint64_t key_draw(trp_rng *rng)
{
    return trp_rng_u64(rng) >> 1 | UINT64_C(1) << 62;
}

/* ---- chunks ---------------------------------------------------------------------------------- */

static struct track_chunk *chunk_allocate(struct track *track, size_t memory_bytes)
{
    struct track_chunk *chunk = xcalloc(1, sizeof *chunk);
    chunk->track = track;
    chunk->capacity = track->chunk_length;
    chunk->generation = track->generation;
    chunk->memory_bytes = memory_bytes;
    if (track->room && memory_bytes >= SHARED_INLINE_BYTES)
        chunk->memory = room_take(track->room, memory_bytes);
    if (chunk->memory)
        chunk->room = track->room;
    else
        chunk->memory = xmalloc(memory_bytes);
    chunk->reshaped = true;
    chunk->tensors = xcalloc(track->column_count, sizeof *chunk->tensors);
    for (size_t i = 0; i < track->column_count; i++) {
        const struct column *column = &track->columns[i];
        struct wire_tensor *tensor = &chunk->tensors[i];
        tensor->dtype = (int32_t)column->dtype;
        tensor->rank = column->rank + 1;
        memcpy(&tensor->dims[1], column->shape, column->rank * sizeof *column->shape);
    }
    chunk->steps.tensors = chunk->tensors;
    chunk->steps.tensor_count = (uint32_t)track->column_count;
    return chunk;
}

static void chunk_free(struct track_chunk *chunk)
{
    if (chunk->room)
        room_give(chunk->room, chunk->memory, chunk->memory_bytes);
    else
        free(chunk->memory);
    free(chunk->placed_memory);
    free(chunk->tensors);
    free(chunk);
}

static void free_all(struct track *track)
{
    for (struct track_chunk *chunk = track->free, *next; chunk; chunk = next) {
        next = chunk->next;
        chunk_free(chunk);
    }
    track->free = NULL;
}

static void hold_chunk(struct track *track, struct track_chunk *chunk)
{
    chunk->next = NULL;
    if (track->held)
        track->held_end->next = chunk;
    else
        track->held = chunk;
    track->held_end = chunk;
}

static void track_retune(struct track *track);

static void chunk_open(struct track *track, const struct step_number *number)
{
    if (track->tuned && track->tuner.length != track->chunk_length)
        track_retune(track);
    struct track_chunk *chunk = track->free;
    if (chunk)
        track->free = chunk->next;
    else
        chunk = chunk_allocate(track, track->shape_bytes);
    chunk->key = key_draw(track->rng);
    varint_write(chunk->key_bytes, chunk->key);
    if (chunk->reshaped)
        memcpy(chunk->memory, track->shape, track->shape_bytes);
    chunk->reshaped = false;
    chunk->refs = 1;
    chunk->rows = 0;
    chunk->closed = false;
    chunk->in_history = true;
    chunk->last_item = chunk->seen_by = 0;
    chunk->sent = false;
    chunk->steps.episode_id = number->episode;
    chunk->steps.start = number->step;
    hold_chunk(track, chunk);
    track->open = chunk;
}

void track_unref(struct track_chunk *chunk)
{
    struct track *track = chunk->track;
    assert(chunk->refs > 0);
    if (--chunk->refs > 0)
        return;
    if (chunk->generation != track->generation) {
        chunk_free(chunk);
        return;
    }
    chunk->next = track->free;
    track->free = chunk;
}

/* The rows of a column, compressed over themselves; 0 when that does not pay. */
static size_t compress_rows(struct track *track, struct column *column, uint8_t *rows, size_t size)
{
    if (size < WRITER_COMPRESS_BYTES_MIN)
        return 0;
    if (column->pause > 0) {
        column->pause--;
        return 0;
    }
    size_t packed = block_compress((trp_bytes){rows, size}, track->scratch);
    if (packed > 0) {
        column->failures = 0;
        memcpy(rows, track->scratch, packed);
    } else if (++column->failures >= WRITER_COMPRESS_FAILURES) {
        column->pause = WRITER_COMPRESS_PAUSE;
    }
    return packed;
}

/* Tensors instead of the ready message: `packed` bytes of each column, 0 for as they are. */
static void describe_chunk(struct track *track, struct track_chunk *chunk, const size_t *packed)
{
    for (size_t i = 0; i < track->column_count; i++) {
        const struct column *column = &track->columns[i];
        uint8_t *rows = chunk->memory + column->offset;
        size_t size = chunk->rows * column->step_bytes;
        uint8_t *start = packed[i] ? rows : block_literal_header(rows, (uint32_t)size);
        chunk->tensors[i].dims[0] = chunk->rows;
        chunk->tensors[i].content =
            (trp_bytes){start, packed[i] ? packed[i] : (size_t)(rows - start) + size};
    }
    chunk->steps.uncompressed_bytes = chunk->rows * track->step_bytes;
    chunk->wire = (struct wire_chunk){.key = chunk->key, .steps = &chunk->steps};
}

static bool has_large_content(const struct track_chunk *chunk)
{
    for (uint32_t i = 0; i < chunk->steps.tensor_count; i++)
        if (chunk->tensors[i].content.size >= SHARED_INLINE_BYTES)
            return true;
    return false;
}

static void place_chunk(struct track_chunk *chunk)
{
    chunk->placed = (trp_bytes){0};
    if (!chunk->room || !has_large_content(chunk))
        return;
    size_t size = wire_placed_size_max(&chunk->wire);
    if (size > chunk->placed_capacity) {
        chunk->placed_capacity = size;
        chunk->placed_memory = xrealloc(chunk->placed_memory, size);
    }
    chunk->placed = wire_chunk_place(&chunk->wire, room_memory(chunk->room),
                                     chunk->placed_memory + chunk->placed_capacity);
}

/* SequenceRange as field 2. */
static trp_bytes encode_range(struct track_chunk *chunk)
{
    struct writer writer = {.start = chunk->range, .at = chunk->range + RANGE_BYTES_MAX};
    const uint8_t *end = writer.at;
    put_varint_field(&writer, 4, chunk->steps.sparse);
    put_varint_field(&writer, 3, (uint64_t)chunk->steps.end);
    put_varint_field(&writer, 2, (uint64_t)chunk->steps.start);
    put_varint_field(&writer, 1, chunk->steps.episode_id);
    put_len_header(&writer, 2, end);
    return (trp_bytes){writer.at, (size_t)(end - writer.at)};
}

void track_close(struct track *track)
{
    struct track_chunk *chunk = track->open;
    if (!chunk)
        return;
    chunk->rows += track->row_open;
    track->row_open = false;
    bool whole = chunk->rows == chunk->capacity;
    for (size_t i = 0; i < track->column_count; i++) {
        struct column *column = &track->columns[i];
        track->packed[i] = compress_rows(track, column, chunk->memory + column->offset,
                                         chunk->rows * column->step_bytes);
        whole &= track->packed[i] == 0;
    }
    chunk->steps.sparse =
        (uint32_t)chunk->steps.end - (uint32_t)chunk->steps.start + 1 != chunk->rows;
    if (whole && !chunk->room)
        chunk->wire = (struct wire_chunk){.key = chunk->key,
                                          .head = encode_range(chunk),
                                          .tail = {chunk->memory, track->shape_bytes}};
    else
        describe_chunk(track, chunk, track->packed);
    chunk->reshaped = !whole;
    chunk->wire_size = wire_chunk_size(&chunk->wire);
    place_chunk(chunk);
    chunk->closed = true;
    track->open = NULL;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Division would cost more than the rest of a step. */
static uint32_t ring_index(const struct track *track, uint32_t age)
{
    return track->newest >= age ? track->newest - age : track->newest + track->depth - age;
}

static void drop_held(struct track *track)
{
    struct track_chunk *chunk = track->held;
    track->held = chunk->next;
    chunk->in_history = false;
    track_unref(chunk);
}

/* Step `serial` begins: what lies `depth` steps back leaves. */
static void ring_advance(struct track *track, uint64_t serial)
{
    track->newest = track->newest + 1 == track->depth ? 0 : track->newest + 1;
    while (track->held && track->held != track->open &&
           track->held->last_step + track->depth <= serial)
        drop_held(track);
}

/* Row `row` of the open chunk holds all of the newest step. */
static void ring_set(struct track *track, uint32_t row)
{
    struct cell cell = {track->open, row};
    track->ring[track->newest] = cell;
    for (size_t i = 0; track->cells && i < track->column_count; i++)
        track->cells[track->newest * track->column_count + i] = cell;
}

/* One whole step: the way that has to be fast. */
static void append_one(struct track *track, const void *const *columns,
                       const struct step_number *number)
{
    if (!track->open)
        chunk_open(track, number);
    struct track_chunk *chunk = track->open;
    for (size_t i = 0; i < track->column_count; i++) {
        const struct column *column = &track->columns[i];
        copy_small(chunk->memory + column->offset + chunk->rows * column->step_bytes,
                   columns[column->source], column->step_bytes);
    }
    ring_advance(track, number->serial);
    ring_set(track, chunk->rows);
    chunk->last_step = number->serial;
    chunk->steps.end = number->step;
    if (++chunk->rows == chunk->capacity)
        track_close(track);
}

/* Rows [done, done + count) of each column, which the open chunk has room for. */
static void append_rows(struct track *track, const void *const *columns, size_t done,
                        uint32_t count, const struct step_number *number)
{
    struct track_chunk *chunk = track->open;
    for (size_t i = 0; i < track->column_count; i++) {
        const struct column *column = &track->columns[i];
        memcpy(chunk->memory + column->offset + chunk->rows * column->step_bytes,
               (const uint8_t *)columns[column->source] + done * column->step_bytes,
               count * column->step_bytes);
    }
    chunk->last_step = number->serial + count - 1;
    chunk->steps.end = number->step + (int32_t)(count - 1);
    for (uint32_t i = 0; i < count; i++) {
        ring_advance(track, number->serial + i);
        ring_set(track, chunk->rows++);
    }
}

void track_append(struct track *track, const void *const *columns, uint32_t count,
                  const struct step_number *first)
{
    if (count == 1) {
        append_one(track, columns, first);
        return;
    }
    struct step_number number = *first;
    for (uint32_t done = 0, fitting; done < count; done += fitting) {
        if (!track->open)
            chunk_open(track, &number);
        fitting = track->open->capacity - track->open->rows;
        if (fitting > count - done)
            fitting = count - done;
        append_rows(track, columns, done, fitting, &number);
        number.serial += fitting;
        number.step += (int32_t)fitting;
        if (track->open->rows == track->open->capacity)
            track_close(track);
    }
}

/* ---- steps in parts -------------------------------------------------------------------------- */

static void need_cells(struct track *track)
{
    if (track->cells || track->column_count == 1)
        return;
    track->cells = xcalloc(track->depth * track->column_count, sizeof *track->cells);
    for (uint32_t i = 0; i < track->depth; i++)
        for (size_t j = 0; j < track->column_count; j++)
            track->cells[i * track->column_count + j] = track->ring[i];
}

void track_begin(struct track *track, const struct step_number *number)
{
    need_cells(track);
    ring_advance(track, number->serial);
    track->gaps = true;
    track->ring[track->newest] = (struct cell){0};
    if (track->cells)
        memset(&track->cells[track->newest * track->column_count], 0,
               track->column_count * sizeof *track->cells);
}

static void open_row(struct track *track, const struct step_number *number)
{
    if (!track->open)
        chunk_open(track, number);
    struct track_chunk *chunk = track->open;
    for (size_t i = 0; i < track->column_count; i++) {
        const struct column *column = &track->columns[i];
        memset(chunk->memory + column->offset + chunk->rows * column->step_bytes, 0,
               column->step_bytes);
    }
    chunk->last_step = number->serial;
    chunk->steps.end = number->step;
    track->ring[track->newest] = (struct cell){chunk, chunk->rows};
    track->row_open = true;
}

void track_put(struct track *track, const void *const *columns, const struct step_number *number)
{
    for (size_t i = 0; i < track->column_count; i++) {
        const struct column *column = &track->columns[i];
        if (!columns[column->source])
            continue;
        if (!track->row_open)
            open_row(track, number);
        struct track_chunk *chunk = track->open;
        copy_small(chunk->memory + column->offset + chunk->rows * column->step_bytes,
                   columns[column->source], column->step_bytes);
        if (track->cells)
            track->cells[track->newest * track->column_count + i] =
                (struct cell){chunk, chunk->rows};
    }
}

void track_end(struct track *track)
{
    if (!track->row_open)
        return;
    track->row_open = false;
    if (++track->open->rows == track->open->capacity)
        track_close(track);
}

void track_forget(struct track *track)
{
    track_close(track);
    while (track->held)
        drop_held(track);
    free(track->cells);
    track->cells = NULL;
    track->gaps = false;
}

struct track_chunk *track_find(const struct track *track, uint32_t index, uint32_t age,
                               uint32_t *row)
{
    assert(age < track->depth);
    uint32_t at = ring_index(track, age);
    const struct cell *cell =
        track->cells ? &track->cells[at * track->column_count + index] : &track->ring[at];
    *row = cell->row;
    return cell->chunk;
}

bool track_has_gaps(const struct track *track)
{
    return track->gaps;
}

uint32_t track_depth(const struct track *track)
{
    return track->depth;
}

size_t track_step_bytes(const struct track *track)
{
    return track->step_bytes;
}

uint32_t track_chunk_length(const struct track *track)
{
    return track->chunk_length;
}

void track_note_item(struct track *track, const struct tuner_item *item)
{
    if (track->tuned)
        tuner_note(&track->tuner, item);
}

/* ---- life ------------------------------------------------------------------------------------ */

static trp_status column_init(struct column *column, const trp_tensor_spec *spec, uint32_t index,
                              uint32_t chunk_length)
{
    const char *name = spec->name ? spec->name : "unnamed";
    size_t bytes = trp_tensor_bytes(spec), rows_bytes;
    if (bytes == 0 || spec->rank >= TRP_RANK_MAX || !size_mul(bytes, chunk_length, &rows_bytes) ||
        rows_bytes > UINT32_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "writer: column %u (%s): %u steps of rank %u and %zu bytes are no chunk of "
                        "a known dtype, at most %d dimensions and 4 GiB",
                        index, name, chunk_length, spec->rank, bytes, TRP_RANK_MAX - 1);
    column->dtype = spec->dtype;
    column->rank = spec->rank;
    column->source = index;
    memcpy(column->shape, spec->shape, sizeof column->shape);
    column->step_bytes = bytes;
    return TRP_OK;
}

static trp_status init_columns(struct track *track, const trp_tensor_spec *specs,
                               const uint32_t *sources, uint32_t length_max)
{
    for (size_t i = 0; i < track->column_count; i++) {
        struct column *column = &track->columns[i];
        TRP_TRY(column_init(column, &specs[sources[i]], sources[i], length_max));
        track->step_bytes += column->step_bytes;
        track->large |= column->step_bytes * length_max >= SHARED_INLINE_BYTES;
    }
    return TRP_OK;
}

/* A request with one full chunk of zeros, made by the codec itself. */
static trp_status encode_model(struct track *track, trp_message **message)
{
    size_t bytes = 0, scratch = 0;
    for (size_t i = 0; i < track->column_count; i++) {
        size_t size = track->columns[i].step_bytes * track->chunk_length;
        size_t most = block_compressed_max(size);
        bytes += BLOCK_HEADER_BYTES_MAX + size;
        scratch = most > scratch ? most : scratch;
        track->packed[i] = 0;
    }
    track->scratch = xrealloc(track->scratch, scratch);
    struct track_chunk *chunk = chunk_allocate(track, bytes); /* room for its blocks alone */
    chunk->rows = track->chunk_length;
    memset(chunk->memory, 0, bytes);
    size_t offset = 0;
    for (size_t i = 0; i < track->column_count; i++) {
        struct column *column = &track->columns[i];
        column->offset = offset + BLOCK_HEADER_BYTES_MAX;
        offset = column->offset + column->step_bytes * track->chunk_length;
    }
    describe_chunk(track, chunk, track->packed);
    chunk->wire.key = 1;
    struct wire_insert_request request = {0};
    *wire_push_chunk(&request.lists) = chunk->wire;
    trp_status status = wire_insert_request_encode(&request, message);
    wire_insert_request_cleanup(&request);
    chunk_free(chunk);
    return status;
}

/* Takes from the model what all chunks have in common, and where their rows go. */
static trp_status init_shape(struct track *track)
{
    trp_message *message;
    struct wire_insert_request request = {0};
    struct wire_tensor_reader tensors;
    TRP_TRY(encode_model(track, &message));
    trp_bytes bytes = {trp_message_data(message), trp_message_size(message)};
    trp_status status = wire_insert_request_decode(bytes, &request);
    assert(status == TRP_OK); /* our own bytes */
    struct wire_chunk *chunk = &request.lists.chunks[0];
    struct reader reader = reader_of(chunk->tail);
    struct field range;
    bool found = read_field(&reader, &range);
    assert(found);
    assert(range.tag == TAG(2, LEN));
    chunk->tail = (trp_bytes){reader.at, (size_t)(reader.end - reader.at)};
    wire_tensors_open(&tensors, chunk);
    for (size_t i = 0; i < track->column_count; i++) {
        struct wire_tensor tensor;
        trp_bytes rows = {0};
        bool more;
        status = wire_tensor_next(&tensors, &tensor, &more);
        assert(status == TRP_OK);
        assert(more);
        bool literal = block_literal(tensor.content, &rows);
        assert(literal);
        track->columns[i].offset = (size_t)(rows.data - chunk->tail.data);
    }
    track->shape_bytes = chunk->tail.size;
    track->shape = xmalloc(chunk->tail.size);
    memcpy(track->shape, chunk->tail.data, chunk->tail.size);
    wire_insert_request_cleanup(&request);
    trp_message_destroy(message);
    return TRP_OK;
}

/* Chunks of another length from now on. Those out there are freed when they come back. */
static void track_retune(struct track *track)
{
    free_all(track);
    track->generation++;
    free(track->shape);
    track->chunk_length = track->tuner.length;
    if (init_shape(track) != TRP_OK)
        abort(); /* as every allocation of a chunk does */
}

void track_set_room(struct track *track, struct room *room)
{
    if (room)
        room_ref(room);
    room_unref(track->room);
    track->room = room;
    track->generation++;
    free_all(track);
}

bool track_is_large(const struct track *track)
{
    return track->large;
}

trp_status track_create(struct track **out, const trp_tensor_spec *columns, const uint32_t *sources,
                        size_t count, const struct track_options *options)
{
    *out = NULL;
    struct track *track = xcalloc(1, sizeof *track);
    track->columns = xcalloc(count, sizeof *track->columns);
    track->column_count = count;
    track->depth = options->depth;
    track->ring = xcalloc(track->depth, sizeof *track->ring);
    track->rng = options->rng;
    track->packed = xcalloc(count, sizeof *track->packed);
    track->tuned = options->tuned;
    track->chunk_length = options->tuned ? 1 : options->chunk_length;
    tuner_init(&track->tuner, options->throughput_weight, options->chunk_length);
    trp_status status = init_columns(track, columns, sources, options->chunk_length);
    if (status == TRP_OK)
        status = init_shape(track);
    if (status == TRP_OK)
        *out = track;
    else
        track_destroy(track);
    return status;
}

void track_destroy(struct track *track)
{
    if (!track)
        return;
    track_forget(track);
    free_all(track);
    room_unref(track->room);
    free(track->columns);
    free(track->ring);
    free(track->scratch);
    free(track->packed);
    free(track->shape);
    free(track);
}
