/* A step is copied once, to where the wire wants it: rows of one column lie together behind room
 * for a block header, so closing a chunk of small columns only writes headers. Columns that are
 * large enough are compressed in place when that pays; a column where it did not pay a few times in
 * a row is left alone for a while, because looking at noise costs as much as copying it. */
#include "history.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/limits.h"
#include "tensor.h"

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
    size_t step_bytes, chunk_bytes;
    uint32_t chunk_length;
    trp_rng rng;
    struct step *ring;
    uint32_t depth, size, newest; /* ring[newest] is the step of age 0 */
    struct history_chunk *open, *free;
    uint64_t episode;
    int32_t step; /* number of the next step */
    uint8_t *scratch;
};

/* ---- chunks ---------------------------------------------------------------------------------- */

static struct history_chunk *chunk_allocate(const struct history *history)
{
    struct history_chunk *chunk = xcalloc(1, sizeof *chunk);
    chunk->memory = xmalloc(history->chunk_bytes);
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

/* The rows of a column as a block, compressed over themselves when that pays. */
static trp_bytes column_block(struct history *history, struct column *column, uint8_t *rows,
                              size_t size)
{
    if (size >= WRITER_COMPRESS_BYTES_MIN && column->pause == 0) {
        size_t packed = block_compress((trp_bytes){rows, size}, history->scratch);
        if (packed > 0) {
            column->failures = 0;
            memcpy(rows, history->scratch, packed);
            return (trp_bytes){rows, packed};
        }
        if (++column->failures >= WRITER_COMPRESS_FAILURES)
            column->pause = WRITER_COMPRESS_PAUSE;
    } else if (column->pause > 0) {
        column->pause--;
    }
    uint8_t *start = block_literal_header(rows, (uint32_t)size);
    return (trp_bytes){start, (size_t)(rows - start) + size};
}

void history_close(struct history *history)
{
    struct history_chunk *chunk = history->open;
    if (!chunk)
        return;
    for (size_t i = 0; i < history->column_count; i++) {
        struct column *column = &history->columns[i];
        chunk->tensors[i].dims[0] = chunk->rows;
        chunk->tensors[i].content = column_block(history, column, chunk->memory + column->offset,
                                                 chunk->rows * column->step_bytes);
    }
    chunk->steps.end = chunk->steps.start + (int32_t)chunk->rows - 1;
    chunk->steps.uncompressed_bytes = chunk->rows * history->step_bytes;
    chunk->wire_size =
        wire_chunk_size(&(struct wire_chunk){.key = chunk->key, .steps = &chunk->steps});
    chunk->closed = true;
    history->open = NULL;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void drop_oldest(struct history *history)
{
    uint32_t oldest = (history->newest + history->depth - history->size + 1) % history->depth;
    struct history_chunk *chunk = history->ring[oldest].chunk;
    history->size--;
    bool last = history->size == 0 || history->ring[(oldest + 1) % history->depth].chunk != chunk;
    if (!last || chunk == history->open)
        return;
    chunk->in_history = false;
    history_unref(history, chunk);
}

void history_append(struct history *history, const void *const *columns)
{
    if (!history->open)
        chunk_open(history);
    struct history_chunk *chunk = history->open;
    for (size_t i = 0; i < history->column_count; i++) {
        const struct column *column = &history->columns[i];
        memcpy(chunk->memory + column->offset + chunk->rows * column->step_bytes, columns[i],
               column->step_bytes);
    }
    if (history->size == history->depth)
        drop_oldest(history);
    history->newest = (history->newest + 1) % history->depth;
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
    const struct step *step =
        &history->ring[(history->newest + history->depth - age) % history->depth];
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
    uint64_t key;
    do
        key = trp_rng_u64(&history->rng) >> 1;
    while (key == 0);
    return key;
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
        size_t rows_bytes = column->step_bytes * history->chunk_length;
        column->offset = history->chunk_bytes + BLOCK_HEADER_BYTES_MAX;
        history->chunk_bytes = column->offset + rows_bytes;
        history->step_bytes += column->step_bytes;
        if (block_compressed_max(rows_bytes) > scratch)
            scratch = block_compressed_max(rows_bytes);
    }
    history->scratch = xmalloc(scratch);
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
    trp_status status = init_columns(history, columns);
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
    free(history);
}
