/* A step is copied once, to where the wire wants it. The memory of a chunk is the message that a
 * full chunk of plain literals makes: headers that never change and rows that are written into
 * their places. Closing such a chunk costs nothing, sending it is one copy.
 *
 * Columns that are large enough are compressed in place when that pays; a column where it did not
 * pay a few times in a row is left alone for a while, because looking at noise costs as much as
 * copying it. Such chunks, and those closed early, are put together tensor by tensor. */
#include "history.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/limits.h"
#include "tensor.h"
#include "wire_bytes.h"

struct column {
    trp_dtype dtype;
    uint32_t rank;
    int64_t shape[TRP_RANK_MAX];
    size_t step_bytes;
    size_t offset;     /* of its first row in a chunk's memory */
    uint32_t failures; /* compressions in a row that did not pay */
    uint32_t pause;    /* chunks to leave alone */
};

struct step {
    struct history_chunk *chunk;
    uint32_t row;
};

struct history {
    struct column *columns;
    size_t column_count;
    size_t step_bytes;
    uint8_t *shape; /* what the memory of a chunk begins as */
    size_t shape_bytes;
    uint32_t chunk_length;
    trp_rng rng;
    struct step *ring;
    uint32_t depth, size, newest; /* ring[newest] is the step of age 0 */
    struct history_chunk *open, *free;
    uint64_t episode;
    int32_t step; /* number of the next step */
    uint8_t *scratch;
    size_t *packed; /* scratch: compressed bytes of each column */
};

/* ---- chunks ---------------------------------------------------------------------------------- */

static struct history_chunk *chunk_allocate(const struct history *history)
{
    struct history_chunk *chunk = xcalloc(1, sizeof *chunk);
    chunk->memory = xmalloc(history->shape_bytes);
    chunk->reshaped = true;
    chunk->tensors = xcalloc(history->column_count, sizeof *chunk->tensors);
    for (size_t i = 0; i < history->column_count; i++) {
        const struct column *column = &history->columns[i];
        struct wire_tensor *tensor = &chunk->tensors[i];
        tensor->dtype = (int32_t)column->dtype;
        tensor->rank = column->rank + 1;
        memcpy(&tensor->dims[1], column->shape, column->rank * sizeof *column->shape);
    }
    chunk->steps.tensors = chunk->tensors;
    chunk->steps.tensor_count = (uint32_t)history->column_count;
    return chunk;
}

static void chunk_free(struct history_chunk *chunk)
{
    free(chunk->memory);
    free(chunk->tensors);
    free(chunk);
}

static void chunk_open(struct history *history)
{
    struct history_chunk *chunk = history->free;
    if (chunk)
        history->free = chunk->next;
    else
        chunk = chunk_allocate(history);
    chunk->key = history_draw_key(history);
    varint_write(chunk->key_bytes, chunk->key);
    if (chunk->reshaped)
        memcpy(chunk->memory, history->shape, history->shape_bytes);
    chunk->reshaped = false;
    chunk->refs = 1;
    chunk->rows = 0;
    chunk->closed = false;
    chunk->in_history = true;
    chunk->last_item = chunk->seen_by = 0;
    chunk->sent = false;
    chunk->steps.episode_id = history->episode;
    chunk->steps.start = history->step;
    history->open = chunk;
}

void history_unref(struct history *history, struct history_chunk *chunk)
{
    assert(chunk->refs > 0);
    if (--chunk->refs > 0)
        return;
    chunk->next = history->free;
    history->free = chunk;
}

/* The rows of a column, compressed over themselves; 0 when that does not pay. */
static size_t compress_rows(struct history *history, struct column *column, uint8_t *rows,
                            size_t size)
{
    if (size < WRITER_COMPRESS_BYTES_MIN)
        return 0;
    if (column->pause > 0) {
        column->pause--;
        return 0;
    }
    size_t packed = block_compress((trp_bytes){rows, size}, history->scratch);
    if (packed > 0) {
        column->failures = 0;
        memcpy(rows, history->scratch, packed);
    } else if (++column->failures >= WRITER_COMPRESS_FAILURES) {
        column->pause = WRITER_COMPRESS_PAUSE;
    }
    return packed;
}

/* Tensors instead of the ready message: `packed` bytes of each column, 0 for as they are. */
static void reshape_chunk(struct history *history, struct history_chunk *chunk,
                          const size_t *packed)
{
    chunk->reshaped = true;
    for (size_t i = 0; i < history->column_count; i++) {
        const struct column *column = &history->columns[i];
        uint8_t *rows = chunk->memory + column->offset;
        size_t size = chunk->rows * column->step_bytes;
        uint8_t *start = packed[i] ? rows : block_literal_header(rows, (uint32_t)size);
        chunk->tensors[i].dims[0] = chunk->rows;
        chunk->tensors[i].content =
            (trp_bytes){start, packed[i] ? packed[i] : (size_t)(rows - start) + size};
    }
    chunk->steps.uncompressed_bytes = chunk->rows * history->step_bytes;
    chunk->wire = (struct wire_chunk){.key = chunk->key, .steps = &chunk->steps};
}

/* SequenceRange as field 2. */
static trp_bytes encode_range(struct history_chunk *chunk)
{
    struct writer writer = {.start = chunk->range, .at = chunk->range + RANGE_BYTES_MAX};
    const uint8_t *end = writer.at;
    put_varint_field(&writer, 3, (uint64_t)chunk->steps.end);
    put_varint_field(&writer, 2, (uint64_t)chunk->steps.start);
    put_varint_field(&writer, 1, chunk->steps.episode_id);
    put_len_header(&writer, 2, end);
    return (trp_bytes){writer.at, (size_t)(end - writer.at)};
}

void history_close(struct history *history)
{
    struct history_chunk *chunk = history->open;
    if (!chunk)
        return;
    bool whole = chunk->rows == history->chunk_length;
    for (size_t i = 0; i < history->column_count; i++) {
        struct column *column = &history->columns[i];
        history->packed[i] = compress_rows(history, column, chunk->memory + column->offset,
                                           chunk->rows * column->step_bytes);
        whole &= history->packed[i] == 0;
    }
    chunk->steps.end = chunk->steps.start + (int32_t)chunk->rows - 1;
    if (whole)
        chunk->wire = (struct wire_chunk){.key = chunk->key,
                                          .head = encode_range(chunk),
                                          .tail = {chunk->memory, history->shape_bytes}};
    else
        reshape_chunk(history, chunk, history->packed);
    chunk->wire_size = wire_chunk_size(&chunk->wire);
    chunk->closed = true;
    history->open = NULL;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Division would cost more than the rest of a step. */
static uint32_t ring_index(const struct history *history, uint32_t age)
{
    return history->newest >= age ? history->newest - age : history->newest + history->depth - age;
}

static void drop_oldest(struct history *history)
{
    uint32_t oldest = ring_index(history, history->size - 1);
    struct history_chunk *chunk = history->ring[oldest].chunk;
    history->size--;
    bool last =
        history->size == 0 || history->ring[ring_index(history, history->size - 1)].chunk != chunk;
    if (!last || chunk == history->open)
        return;
    chunk->in_history = false;
    history_unref(history, chunk);
}

/* Most columns are a few bytes: not worth a call. */
static void copy_row(uint8_t *to, const void *from, size_t size)
{
    if (size == 4)
        memcpy(to, from, 4);
    else if (size == 8)
        memcpy(to, from, 8);
    else if (size == 16)
        memcpy(to, from, 16);
    else
        memcpy(to, from, size);
}

void history_append(struct history *history, const void *const *columns)
{
    if (!history->open)
        chunk_open(history);
    struct history_chunk *chunk = history->open;
    for (size_t i = 0; i < history->column_count; i++) {
        const struct column *column = &history->columns[i];
        copy_row(chunk->memory + column->offset + chunk->rows * column->step_bytes, columns[i],
                 column->step_bytes);
    }
    if (history->size == history->depth)
        drop_oldest(history);
    history->newest = history->newest + 1 == history->depth ? 0 : history->newest + 1;
    history->ring[history->newest] = (struct step){chunk, chunk->rows};
    history->size++;
    history->step = history->step == INT32_MAX ? 0 : history->step + 1;
    if (++chunk->rows == history->chunk_length)
        history_close(history);
}

void history_forget(struct history *history)
{
    history_close(history);
    while (history->size > 0)
        drop_oldest(history);
    history->episode = history_draw_key(history);
    history->step = 0;
}

struct history_chunk *history_find(const struct history *history, uint32_t age, uint32_t *row)
{
    assert(age < history->size);
    const struct step *step = &history->ring[ring_index(history, age)];
    *row = step->row;
    return step->chunk;
}

uint32_t history_size(const struct history *history)
{
    return history->size;
}

size_t history_columns(const struct history *history)
{
    return history->column_count;
}

size_t history_step_bytes(const struct history *history)
{
    return history->step_bytes;
}

uint64_t history_draw_key(struct history *history)
{
    return trp_rng_u64(&history->rng) >> 1 | UINT64_C(1) << 62;
}

/* ---- life ------------------------------------------------------------------------------------ */

static trp_status column_init(struct column *column, const trp_tensor_spec *spec, size_t index,
                              uint32_t chunk_length)
{
    const char *name = spec->name ? spec->name : "unnamed";
    size_t bytes = trp_tensor_bytes(spec), rows_bytes;
    if (bytes == 0 || spec->rank >= TRP_RANK_MAX || !size_mul(bytes, chunk_length, &rows_bytes) ||
        rows_bytes > UINT32_MAX)
        return trp_fail(
            TRP_INVALID_ARGUMENT,
            "writer: column %zu (%s): %u steps of rank %u and %zu bytes are no chunk of "
            "a known dtype, at most %d dimensions and 4 GiB",
            index, name, chunk_length, spec->rank, bytes, TRP_RANK_MAX - 1);
    column->dtype = spec->dtype;
    column->rank = spec->rank;
    memcpy(column->shape, spec->shape, sizeof column->shape);
    column->step_bytes = bytes;
    return TRP_OK;
}

static trp_status init_columns(struct history *history, const trp_tensor_spec *specs)
{
    size_t scratch = 0;
    for (size_t i = 0; i < history->column_count; i++) {
        struct column *column = &history->columns[i];
        TRP_TRY(column_init(column, &specs[i], i, history->chunk_length));
        history->step_bytes += column->step_bytes;
        size_t most = block_compressed_max(column->step_bytes * history->chunk_length);
        scratch = most > scratch ? most : scratch;
    }
    history->scratch = xmalloc(scratch);
    return TRP_OK;
}

/* A request with one full chunk of zeros, made by the codec itself. */
static trp_status encode_model(struct history *history, trp_message **message)
{
    size_t bytes = 0;
    for (size_t i = 0; i < history->column_count; i++)
        bytes += BLOCK_HEADER_BYTES_MAX + history->columns[i].step_bytes * history->chunk_length;
    history->shape_bytes = bytes; /* for now: room for blocks alone */
    struct history_chunk *chunk = chunk_allocate(history);
    chunk->rows = history->chunk_length;
    memset(chunk->memory, 0, bytes);
    size_t offset = 0;
    for (size_t i = 0; i < history->column_count; i++) {
        struct column *column = &history->columns[i];
        column->offset = offset + BLOCK_HEADER_BYTES_MAX;
        offset = column->offset + column->step_bytes * history->chunk_length;
    }
    reshape_chunk(history, chunk, history->packed);
    chunk->wire.key = 1;
    struct wire_insert_request request = {0};
    *wire_push_chunk(&request.lists) = chunk->wire;
    trp_status status = wire_insert_request_encode(&request, message);
    wire_insert_request_cleanup(&request);
    chunk_free(chunk);
    return status;
}

/* Takes from the model what all chunks have in common, and where their rows go. */
static trp_status init_shape(struct history *history)
{
    trp_message *message;
    struct wire_insert_request request = {0};
    struct wire_tensor_reader tensors;
    TRP_TRY(encode_model(history, &message));
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
    for (size_t i = 0; i < history->column_count; i++) {
        struct wire_tensor tensor;
        trp_bytes rows = {0};
        bool more;
        status = wire_tensor_next(&tensors, &tensor, &more);
        assert(status == TRP_OK);
        assert(more);
        bool literal = block_literal(tensor.content, &rows);
        assert(literal);
        history->columns[i].offset = (size_t)(rows.data - chunk->tail.data);
    }
    history->shape_bytes = chunk->tail.size;
    history->shape = xmalloc(chunk->tail.size);
    memcpy(history->shape, chunk->tail.data, chunk->tail.size);
    wire_insert_request_cleanup(&request);
    trp_message_destroy(message);
    return TRP_OK;
}

trp_status history_create(struct history **out, const trp_tensor_spec *columns, size_t column_count,
                          uint32_t depth, uint32_t chunk_length, uint64_t seed)
{
    *out = NULL;
    if (column_count == 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "writer: a step needs at least one column");
    struct history *history = xcalloc(1, sizeof *history);
    history->columns = xcalloc(column_count, sizeof *history->columns);
    history->column_count = column_count;
    history->chunk_length = chunk_length;
    history->depth = depth;
    history->ring = xcalloc(depth, sizeof *history->ring);
    trp_rng_init(&history->rng, seed, 0);
    history->episode = history_draw_key(history);
    history->packed = xcalloc(column_count, sizeof *history->packed);
    trp_status status = init_columns(history, columns);
    if (status == TRP_OK)
        status = init_shape(history);
    if (status == TRP_OK)
        *out = history;
    else
        history_destroy(history);
    return status;
}

void history_destroy(struct history *history)
{
    if (!history)
        return;
    history_forget(history);
    for (struct history_chunk *chunk = history->free, *next; chunk; chunk = next) {
        next = chunk->next;
        chunk_free(chunk);
    }
    free(history->columns);
    free(history->ring);
    free(history->scratch);
    free(history->packed);
    free(history->shape);
    free(history);
}
