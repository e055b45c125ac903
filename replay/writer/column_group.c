/* A step is copied once, to where the wire wants it. The memory of a chunk is the message that a
 * full chunk of plain literals makes: headers that never change and rows that are written into
 * their places. Closing such a chunk costs nothing, sending it is one copy.
 *
 * Columns that are large enough are compressed in place when that pays; a column where it did not
 * pay a few times in a row is left alone for a while, because looking at noise costs as much as
 * copying it. Such chunks, and those closed early, are put together tensor by tensor.
 *
 * A server on this host may give us an arena, memory that it sees, too: then a chunk is made there,
 * and everything but its large contents is sent.
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
#include "replay/wire/parts.h"
#include "replay/wire/tensor.h"

struct group_column {
    trp_dtype dtype;
    uint32_t rank;
    uint32_t source; /* which of the writer's columns it is */
    int64_t shape[TRP_RANK_MAX];
    size_t step_bytes;
    size_t offset;     /* of its first row in a chunk's memory */
    uint32_t failures; /* compressions in a row that did not pay */
    uint32_t pause;    /* chunks to leave alone */
};

struct group_cell {
    struct group_chunk *chunk; /* NULL: absent */
    uint32_t row;
};

struct column_group {
    struct group_column *columns;
    size_t column_count;
    size_t step_bytes;
    uint8_t *shape; /* the first contents of a chunk's memory */
    size_t shape_bytes;
    uint32_t chunk_length;
    trp_rng *rng;
    struct group_cell *ring;      /* where a step's row begins; NULL: it has none */
    struct group_cell *cells;     /* depth x column_count; NULL: all columns are as in `ring` */
    bool row_open;                /* the row at open->rows is being filled */
    uint32_t depth, newest;       /* ring[newest] is the step of age 0 */
    struct group_chunk *held;     /* oldest of the chunks with rows that can be found ... */
    struct group_chunk *held_end; /* ... and the newest */
    size_t *held_bytes;
    struct group_chunk *open, *free;
    struct shm_arena *arena; /* NULL: none */
    uint32_t generation;     /* of how chunks are made; earlier ones are not used again */
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

static struct group_chunk *group_chunk_allocate(struct column_group *group, size_t memory_bytes)
{
    struct group_chunk *chunk = xcalloc(1, sizeof *chunk);
    chunk->group = group;
    chunk->capacity = group->chunk_length;
    chunk->generation = group->generation;
    chunk->memory_bytes = memory_bytes;
    if (group->arena && memory_bytes >= SHARED_INLINE_BYTES)
        chunk->memory = shm_arena_take(group->arena, memory_bytes);
    if (chunk->memory)
        chunk->arena = group->arena;
    else
        chunk->memory = xmalloc(memory_bytes);
    chunk->reshaped = true;
    chunk->tensors = xcalloc(group->column_count, sizeof *chunk->tensors);
    for (size_t i = 0; i < group->column_count; i++) {
        const struct group_column *column = &group->columns[i];
        struct wire_tensor *tensor = &chunk->tensors[i];
        tensor->dtype = (int32_t)column->dtype;
        tensor->rank = column->rank + 1;
        memcpy(&tensor->dims[1], column->shape, column->rank * sizeof *column->shape);
    }
    chunk->steps.tensors = chunk->tensors;
    chunk->steps.tensor_count = (uint32_t)group->column_count;
    return chunk;
}

static void group_chunk_free(struct group_chunk *chunk)
{
    if (chunk->arena)
        shm_arena_give(chunk->arena, chunk->memory, chunk->memory_bytes);
    else
        free(chunk->memory);
    free(chunk->reference_memory);
    free(chunk->tensors);
    free(chunk);
}

static void group_chunks_free(struct column_group *group)
{
    for (struct group_chunk *chunk = group->free, *next; chunk; chunk = next) {
        next = chunk->next;
        group_chunk_free(chunk);
    }
    group->free = NULL;
}

static void column_group_retune(struct column_group *group);

static void group_chunk_open(struct column_group *group, const struct step_number *number)
{
    if (group->tuned && group->tuner.length != group->chunk_length)
        column_group_retune(group);
    struct group_chunk *chunk = group->free;
    if (chunk)
        group->free = chunk->next;
    else
        chunk = group_chunk_allocate(group, group->shape_bytes);
    chunk->key = key_draw(group->rng);
    varint_write(chunk->key_bytes, chunk->key);
    if (chunk->reshaped)
        memcpy(chunk->memory, group->shape, group->shape_bytes);
    chunk->reshaped = false;
    chunk->refs = 1;
    chunk->rows = 0;
    chunk->closed = false;
    chunk->in_history = true;
    chunk->last_item = chunk->seen_by = 0;
    chunk->sent = false;
    chunk->steps.episode_id = number->episode;
    chunk->steps.start = number->step;
    chunk->next = NULL;
    if (group->held)
        group->held_end->next = chunk;
    else
        group->held = chunk;
    group->held_end = group->open = chunk;
    *group->held_bytes += chunk->memory_bytes;
}

void group_chunk_unref(struct group_chunk *chunk)
{
    struct column_group *group = chunk->group;
    assert(chunk->refs > 0);
    if (--chunk->refs > 0)
        return;
    if (chunk->generation != group->generation) {
        group_chunk_free(chunk);
        return;
    }
    chunk->next = group->free;
    group->free = chunk;
}

/* The rows of a column, compressed over themselves; 0 when that does not pay. */
static size_t compress_rows(struct column_group *group, struct group_column *column, uint8_t *rows,
                            size_t size)
{
    if (size < WRITER_COMPRESS_BYTES_MIN)
        return 0;
    if (column->pause > 0) {
        column->pause--;
        return 0;
    }
    size_t packed = block_compress((trp_bytes){rows, size}, group->scratch);
    if (packed > 0) {
        column->failures = 0;
        memcpy(rows, group->scratch, packed);
    } else if (++column->failures >= WRITER_COMPRESS_FAILURES) {
        column->pause = WRITER_COMPRESS_PAUSE;
    }
    return packed;
}

/* Tensors instead of the ready message: `packed` bytes of each column, 0 for as they are. */
static void describe_chunk(struct column_group *group, struct group_chunk *chunk,
                           const size_t *packed)
{
    for (size_t i = 0; i < group->column_count; i++) {
        const struct group_column *column = &group->columns[i];
        uint8_t *rows = chunk->memory + column->offset;
        size_t size = chunk->rows * column->step_bytes;
        uint8_t *start = packed[i] ? rows : block_literal_header(rows, (uint32_t)size);
        chunk->tensors[i].dims[0] = chunk->rows;
        chunk->tensors[i].content =
            (trp_bytes){start, packed[i] ? packed[i] : (size_t)(rows - start) + size};
    }
    chunk->steps.uncompressed_bytes = chunk->rows * group->step_bytes;
    chunk->wire = (struct wire_chunk){.key = chunk->key, .steps = &chunk->steps};
}

static bool has_large_content(const struct group_chunk *chunk)
{
    for (uint32_t i = 0; i < chunk->steps.tensor_count; i++)
        if (chunk->tensors[i].content.size >= SHARED_INLINE_BYTES)
            return true;
    return false;
}

static void refer_to_chunk(struct group_chunk *chunk)
{
    chunk->reference = (trp_bytes){0};
    if (!chunk->arena || !has_large_content(chunk))
        return;
    const uint8_t *arena = shm_arena_memory(chunk->arena);
    struct writer count = {0};
    put_chunk_reference(&count, &chunk->wire, arena);
    if (count.size > chunk->reference_capacity) {
        chunk->reference_capacity = count.size;
        chunk->reference_memory = xrealloc(chunk->reference_memory, count.size);
    }
    struct writer writer = writer_of(chunk->reference_memory, count.size);
    put_chunk_reference(&writer, &chunk->wire, arena);
    chunk->reference = writer_bytes(&writer);
}

/* SequenceRange as field 2. */
static trp_bytes encode_range(struct group_chunk *chunk)
{
    struct writer writer = writer_of(chunk->range, RANGE_BYTES_MAX);
    put_varint_field(&writer, 4, chunk->steps.sparse);
    put_varint_field(&writer, 3, (uint64_t)chunk->steps.end);
    put_varint_field(&writer, 2, (uint64_t)chunk->steps.start);
    put_varint_field(&writer, 1, chunk->steps.episode_id);
    put_len_header(&writer, 2, 0);
    return writer_bytes(&writer);
}

void column_group_close(struct column_group *group)
{
    struct group_chunk *chunk = group->open;
    if (!chunk)
        return;
    chunk->rows += group->row_open;
    group->row_open = false;
    bool whole = chunk->rows == chunk->capacity;
    for (size_t i = 0; i < group->column_count; i++) {
        struct group_column *column = &group->columns[i];
        group->packed[i] = compress_rows(group, column, chunk->memory + column->offset,
                                         chunk->rows * column->step_bytes);
        whole &= group->packed[i] == 0;
    }
    chunk->steps.sparse =
        (uint32_t)chunk->steps.end - (uint32_t)chunk->steps.start + 1 != chunk->rows;
    if (whole && !chunk->arena)
        chunk->wire = (struct wire_chunk){.key = chunk->key,
                                          .head = encode_range(chunk),
                                          .tail = {chunk->memory, group->shape_bytes}};
    else
        describe_chunk(group, chunk, group->packed);
    chunk->reshaped = !whole;
    chunk->wire_size = wire_chunk_size(&chunk->wire);
    refer_to_chunk(chunk);
    chunk->closed = true;
    group->open = NULL;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Division would cost more than the rest of a step. */
static uint32_t ring_index(const struct column_group *group, uint32_t age)
{
    return group->newest >= age ? group->newest - age : group->newest + group->depth - age;
}

static void drop_held(struct column_group *group)
{
    struct group_chunk *chunk = group->held;
    group->held = chunk->next;
    *group->held_bytes -= chunk->memory_bytes;
    chunk->in_history = false;
    group_chunk_unref(chunk);
}

/* Step `serial` begins: the step `depth` back leaves. */
static void ring_advance(struct column_group *group, uint64_t serial)
{
    group->newest = group->newest + 1 == group->depth ? 0 : group->newest + 1;
    while (group->held && group->held != group->open &&
           group->held->last_step + group->depth <= serial)
        drop_held(group);
}

/* Row `row` of the open chunk holds all of the newest step. */
static void ring_set(struct column_group *group, uint32_t row)
{
    struct group_cell cell = {group->open, row};
    group->ring[group->newest] = cell;
    for (size_t i = 0; group->cells && i < group->column_count; i++)
        group->cells[group->newest * group->column_count + i] = cell;
}

/* Rows [done, done + count) of each column, which the open chunk has room for. */
static void append_rows(struct column_group *group, const void *const *columns, size_t done,
                        uint32_t count, const struct step_number *number)
{
    struct group_chunk *chunk = group->open;
    for (size_t i = 0; i < group->column_count; i++) {
        const struct group_column *column = &group->columns[i];
        copy_small(chunk->memory + column->offset + chunk->rows * column->step_bytes,
                   (const uint8_t *)columns[column->source] + done * column->step_bytes,
                   count * column->step_bytes);
    }
    chunk->last_step = number->serial + count - 1;
    chunk->steps.end = number->step + (int32_t)(count - 1);
    for (uint32_t i = 0; i < count; i++) {
        ring_advance(group, number->serial + i);
        ring_set(group, chunk->rows++);
    }
}

void column_group_append(struct column_group *group, const void *const *columns, uint32_t count,
                         const struct step_number *first)
{
    struct step_number number = *first;
    for (uint32_t done = 0, fitting; done < count; done += fitting) {
        if (!group->open)
            group_chunk_open(group, &number);
        fitting = group->open->capacity - group->open->rows;
        if (fitting > count - done)
            fitting = count - done;
        append_rows(group, columns, done, fitting, &number);
        number.serial += fitting;
        number.step += (int32_t)fitting;
        if (group->open->rows == group->open->capacity)
            column_group_close(group);
    }
}

/* ---- steps in parts -------------------------------------------------------------------------- */

static void need_cells(struct column_group *group)
{
    if (group->cells || group->column_count == 1)
        return;
    group->cells = xcalloc(group->depth * group->column_count, sizeof *group->cells);
    for (uint32_t i = 0; i < group->depth; i++)
        for (size_t j = 0; j < group->column_count; j++)
            group->cells[i * group->column_count + j] = group->ring[i];
}

void column_group_begin(struct column_group *group, const struct step_number *number)
{
    need_cells(group);
    ring_advance(group, number->serial);
    group->ring[group->newest] = (struct group_cell){0};
    if (group->cells)
        memset(&group->cells[group->newest * group->column_count], 0,
               group->column_count * sizeof *group->cells);
}

static void open_row(struct column_group *group, const struct step_number *number)
{
    if (!group->open)
        group_chunk_open(group, number);
    struct group_chunk *chunk = group->open;
    for (size_t i = 0; i < group->column_count; i++) {
        const struct group_column *column = &group->columns[i];
        memset(chunk->memory + column->offset + chunk->rows * column->step_bytes, 0,
               column->step_bytes);
    }
    chunk->last_step = number->serial;
    chunk->steps.end = number->step;
    group->ring[group->newest] = (struct group_cell){chunk, chunk->rows};
    group->row_open = true;
}

void column_group_put(struct column_group *group, const void *const *columns,
                      const struct step_number *number)
{
    for (size_t i = 0; i < group->column_count; i++) {
        const struct group_column *column = &group->columns[i];
        if (!columns[column->source])
            continue;
        if (!group->row_open)
            open_row(group, number);
        struct group_chunk *chunk = group->open;
        copy_small(chunk->memory + column->offset + chunk->rows * column->step_bytes,
                   columns[column->source], column->step_bytes);
        if (group->cells)
            group->cells[group->newest * group->column_count + i] =
                (struct group_cell){chunk, chunk->rows};
    }
}

void column_group_end(struct column_group *group)
{
    if (!group->row_open)
        return;
    group->row_open = false;
    if (++group->open->rows == group->open->capacity)
        column_group_close(group);
}

void column_group_forget(struct column_group *group)
{
    column_group_close(group);
    while (group->held)
        drop_held(group);
    free(group->cells);
    group->cells = NULL;
}

struct group_chunk *column_group_find(const struct column_group *group, uint32_t index,
                                      uint32_t age, uint32_t *row)
{
    assert(age < group->depth);
    uint32_t at = ring_index(group, age);
    const struct group_cell *cell =
        group->cells ? &group->cells[at * group->column_count + index] : &group->ring[at];
    *row = cell->row;
    return cell->chunk;
}

void column_group_note_item(struct column_group *group, const struct tuner_item *item)
{
    if (group->tuned)
        tuner_note(&group->tuner, item);
}

/* ---- life ------------------------------------------------------------------------------------ */

static trp_status init_columns(struct column_group *group, const trp_tensor_spec *specs,
                               const uint32_t *sources, uint32_t length_max)
{
    for (size_t i = 0; i < group->column_count; i++) {
        const trp_tensor_spec *spec = &specs[sources[i]];
        size_t bytes = trp_tensor_bytes(spec), rows_bytes;
        if (bytes == 0 || spec->rank >= TRP_RANK_MAX || !size_mul(bytes, length_max, &rows_bytes) ||
            rows_bytes > UINT32_MAX)
            return trp_fail(
                TRP_INVALID_ARGUMENT,
                "writer: column %u (%s): %u steps of rank %u and %zu bytes are no chunk of "
                "a known dtype, at most %d dimensions and 4 GiB",
                sources[i], spec->name, length_max, spec->rank, bytes, TRP_RANK_MAX - 1);
        struct group_column *column = &group->columns[i];
        column->dtype = spec->dtype;
        column->rank = spec->rank;
        column->source = sources[i];
        memcpy(column->shape, spec->shape, sizeof column->shape);
        column->step_bytes = bytes;
        group->step_bytes += bytes;
    }
    return TRP_OK;
}

/* Takes the bytes that all full chunks have in common, and the places of their rows, from a chunk
 * of zeros that the codec makes. */
static void init_shape(struct column_group *group)
{
    size_t bytes = 0, scratch = 0;
    for (size_t i = 0; i < group->column_count; i++) {
        struct group_column *column = &group->columns[i];
        size_t size = column->step_bytes * group->chunk_length;
        size_t most = block_compressed_max(size);
        column->offset = bytes + BLOCK_HEADER_BYTES_MAX;
        bytes = column->offset + size;
        scratch = most > scratch ? most : scratch;
        group->packed[i] = 0;
    }
    group->scratch = xrealloc(group->scratch, scratch);
    struct group_chunk *chunk = group_chunk_allocate(group, bytes); /* room for its blocks alone */
    chunk->rows = group->chunk_length;
    memset(chunk->memory, 0, bytes);
    describe_chunk(group, chunk, group->packed);
    struct writer count = {0};
    put_steps(&count, &chunk->steps, NULL);
    group->shape = xrealloc(group->shape, count.size);
    struct writer writer = writer_of(group->shape, count.size);
    put_steps(&writer, &chunk->steps, NULL);
    group_chunk_free(chunk);

    struct reader reader = reader_of(writer_bytes(&writer));
    struct field range;
    bool found = read_field(&reader, &range);
    assert(found);
    assert(range.tag == TAG(2, LEN));
    group->shape_bytes = (size_t)(reader.end - reader.at);
    memmove(group->shape, reader.at, group->shape_bytes);
    struct wire_tensor_reader tensors;
    wire_tensors_open(&tensors, &(struct wire_chunk){.tail = {group->shape, group->shape_bytes}});
    for (size_t i = 0; i < group->column_count; i++) {
        struct wire_tensor tensor;
        trp_bytes rows = {0};
        bool more = false;
        found = wire_tensor_next(&tensors, &tensor, &more) == TRP_OK && more &&
                block_literal(tensor.content, 0, &rows);
        assert(found);
        group->columns[i].offset = (size_t)(rows.data - group->shape);
    }
}

/* Chunks of another length from now on. Those out there are freed when they come back. */
static void column_group_retune(struct column_group *group)
{
    group_chunks_free(group);
    group->generation++;
    group->chunk_length = group->tuner.length;
    init_shape(group);
}

void column_group_set_arena(struct column_group *group, struct shm_arena *arena)
{
    if (arena)
        shm_arena_ref(arena);
    shm_arena_unref(group->arena);
    group->arena = arena;
    group->generation++;
    group_chunks_free(group);
}

trp_status column_group_create(struct column_group **out, const trp_tensor_spec *columns,
                               const uint32_t *sources, size_t count,
                               const struct column_group_options *options)
{
    *out = NULL;
    struct column_group *group = xcalloc(1, sizeof *group);
    group->columns = xcalloc(count, sizeof *group->columns);
    group->column_count = count;
    group->depth = options->depth;
    group->ring = xcalloc(group->depth, sizeof *group->ring);
    group->rng = options->rng;
    group->held_bytes = options->held;
    group->packed = xcalloc(count, sizeof *group->packed);
    group->tuned = options->tuned;
    group->chunk_length = options->tuned ? 1 : options->chunk_length;
    tuner_init(&group->tuner, options->throughput_weight, options->chunk_length);
    trp_status status = init_columns(group, columns, sources, options->chunk_length);
    if (status != TRP_OK) {
        column_group_destroy(group);
        return status;
    }
    init_shape(group);
    *out = group;
    return TRP_OK;
}

void column_group_destroy(struct column_group *group)
{
    if (!group)
        return;
    column_group_forget(group);
    group_chunks_free(group);
    shm_arena_unref(group->arena);
    free(group->columns);
    free(group->ring);
    free(group->scratch);
    free(group->packed);
    free(group->shape);
    free(group);
}
