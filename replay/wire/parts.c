/* Problem: chunks and items are inside requests and responses, and both ends decode and encode
 * them. Design: decoders push into struct wire_lists; encoders write backwards (bytes.h).
 * Guarantee: as in wire.c; a chunk's bytes are passed on as they are, only its key is cut out. */
#include "parts.h"

#include <inttypes.h>

#include <stdlib.h>

#include "limits.h"

/* ---- failures -------------------------------------------------------------------------- */

trp_status decode_end(const char *what, size_t size, trp_status status)
{
    if (status == TRP_RESOURCE_EXHAUSTED)
        return trp_fail(status, "%s of %zu bytes has more parts than a message may have (%d)", what,
                        size, (int)MESSAGE_ITEMS_MAX);
    if (status != TRP_OK)
        return trp_fail(status, "%s of %zu bytes is not a valid protobuf message", what, size);
    return TRP_OK;
}

/* ---- arrays ------------------------------------------------------------------------------ */

struct wire_chunk *wire_push_chunk(struct wire_lists *lists)
{
    struct wire_chunk *chunk = ARRAY_PUSH(lists->chunks, lists->chunk_count, lists->chunk_capacity);
    *chunk = (struct wire_chunk){0};
    return chunk;
}

struct wire_item *wire_push_item(struct wire_lists *lists)
{
    struct wire_item *item = ARRAY_PUSH(lists->items, lists->item_count, lists->item_capacity);
    *item = (struct wire_item){.column_first = lists->column_count};
    return item;
}

static struct wire_column *push_column(struct wire_lists *lists, struct wire_item *item)
{
    struct wire_column *column =
        ARRAY_PUSH(lists->columns, lists->column_count, lists->column_capacity);
    *column = (struct wire_column){.slice_first = lists->slice_count};
    item->column_count++;
    return column;
}

struct wire_column *wire_push_column(struct wire_lists *lists)
{
    assert(lists->item_count > 0);
    return push_column(lists, &lists->items[lists->item_count - 1]);
}

struct wire_slice *wire_push_slice(struct wire_lists *lists)
{
    assert(lists->column_count > 0);
    struct wire_slice *slice = ARRAY_PUSH(lists->slices, lists->slice_count, lists->slice_capacity);
    *slice = (struct wire_slice){0};
    lists->columns[lists->column_count - 1].slice_count++;
    return slice;
}

void wire_lists_clear(struct wire_lists *lists)
{
    lists->chunk_count = lists->item_count = lists->column_count = lists->slice_count = 0;
}

void wire_lists_cleanup(struct wire_lists *lists)
{
    free(lists->chunks);
    free(lists->items);
    free(lists->columns);
    free(lists->slices);
    *lists = (struct wire_lists){0};
}

void wire_push_key(struct wire_keys *keys, uint64_t key)
{
    *ARRAY_PUSH(keys->keys, keys->count, keys->capacity) = key;
}

void wire_keys_cleanup(struct wire_keys *keys)
{
    free(keys->keys);
    *keys = (struct wire_keys){0};
}

void put_keys(struct writer *writer, uint32_t number, const struct wire_keys *keys)
{
    if (keys->count == 0)
        return;
    size_t end = writer_mark(writer);
    for (uint32_t i = keys->count; i-- > 0;)
        put_varint(writer, keys->keys[i]);
    put_len_header(writer, number, end);
}

/* ---- ChunkData --------------------------------------------------------------------------- */

trp_status chunk_read(trp_bytes bytes, struct wire_chunk *chunk)
{
    struct reader reader = reader_of(bytes);
    struct field field;
    bool found = false;
    chunk->head = bytes;
    while (read_field(&reader, &field)) {
        if (field.tag != TAG(1, VARINT))
            continue;
        if (found)
            return TRP_INVALID_ARGUMENT; /* two keys: legal, but nobody's; which bytes to keep? */
        found = true;
        chunk->key = field.value;
        chunk->head.size = (size_t)(field.before - bytes.data);
        chunk->tail = (trp_bytes){reader.at, (size_t)(reader.end - reader.at)};
    }
    return reader_status(&reader);
}

trp_status chunk_decode(trp_bytes bytes, struct wire_lists *lists)
{
    if (lists->chunk_count == MESSAGE_ITEMS_MAX)
        return TRP_RESOURCE_EXHAUSTED;
    return chunk_read(bytes, wire_push_chunk(lists));
}

static void put_tensor(struct writer *writer, const struct wire_tensor *tensor,
                       struct referring *referring)
{
    size_t end = writer_mark(writer);
    assert(tensor->rank <= TRP_RANK_MAX);
    if (tensor->content.size > 0) {
        if (referring && tensor->content.size >= SHARED_INLINE_BYTES)
            put_reference(writer, tensor->content, referring);
        else
            put_bytes(writer, tensor->content);
        put_len_header(writer, 4, end);
    }
    size_t shape_end = writer_mark(writer);
    for (uint32_t i = tensor->rank; i-- > 0;) {
        size_t dim_end = writer_mark(writer);
        put_varint_field(writer, 1, (uint64_t)tensor->dims[i]);
        put_len_header(writer, 2, dim_end);
    }
    put_len_header(writer, 2, shape_end);
    put_varint_field(writer, 1, (uint64_t)tensor->dtype);
    put_len_header(writer, 1, end);
}

void put_steps(struct writer *writer, const struct wire_steps *steps, struct referring *referring)
{
    put_varint_field(writer, 7, steps->uncompressed_bytes);
    put_varint_field(writer, 6, steps->tensor_count);
    size_t end = writer_mark(writer);
    for (uint32_t i = steps->tensor_count; i-- > 0;)
        put_tensor(writer, &steps->tensors[i], referring);
    put_len_header(writer, 5, end);
    put_varint_field(writer, 4, steps->delta_encoded);
    end = writer_mark(writer);
    put_varint_field(writer, 4, steps->sparse);
    put_varint_field(writer, 3, (uint64_t)steps->end);
    put_varint_field(writer, 2, (uint64_t)steps->start);
    put_varint_field(writer, 1, steps->episode_id);
    put_len_header(writer, 2, end);
}

void put_chunk(struct writer *writer, uint32_t number, const struct wire_chunk *chunk)
{
    size_t end = writer_mark(writer);
    if (chunk->steps) {
        put_steps(writer, chunk->steps, NULL);
    } else {
        put_bytes(writer, chunk->tail);
        put_bytes(writer, chunk->head);
    }
    put_varint_field(writer, 1, chunk->key);
    put_len_header(writer, number, end);
}

size_t wire_chunk_size(const struct wire_chunk *chunk)
{
    struct writer count = {0};
    put_chunk(&count, 1, chunk);
    return count.size;
}

/* ---- PrioritizedItem --------------------------------------------------------------------- */

static trp_status slice_decode(trp_bytes bytes, struct wire_lists *lists)
{
    if (lists->slice_count == MESSAGE_SLICES_MAX)
        return TRP_RESOURCE_EXHAUSTED;
    struct wire_slice *slice = wire_push_slice(lists);
    struct reader reader = reader_of(bytes);
    struct field field;
    while (read_field(&reader, &field)) {
        if (field.tag == TAG(1, VARINT)) {
            slice->chunk_key = field.value;
            slice->key_varint = field.before + 1;
        } else if (field.tag == TAG(2, VARINT))
            slice->offset = (int32_t)field.value;
        else if (field.tag == TAG(3, VARINT))
            slice->length = (int32_t)field.value;
        else if (field.tag == TAG(4, VARINT))
            slice->index = (int32_t)field.value;
    }
    return reader_status(&reader);
}

static trp_status column_decode(trp_bytes bytes, struct wire_lists *lists, struct wire_item *item)
{
    if (lists->column_count == MESSAGE_SLICES_MAX)
        return TRP_RESOURCE_EXHAUSTED;
    struct wire_column *column = push_column(lists, item);
    struct reader reader = reader_of(bytes);
    struct field field;
    while (read_field(&reader, &field)) {
        if (field.tag == TAG(1, LEN))
            TRP_TRY(slice_decode(field.bytes, lists));
        else if (field.tag == TAG(2, VARINT))
            column->squeeze = field.value != 0;
    }
    return reader_status(&reader);
}

static trp_status trajectory_decode(trp_bytes bytes, struct wire_lists *lists,
                                    struct wire_item *item)
{
    struct reader reader = reader_of(bytes);
    struct field field;
    while (read_field(&reader, &field))
        if (field.tag == TAG(1, LEN))
            TRP_TRY(column_decode(field.bytes, lists, item));
    return reader_status(&reader);
}

trp_status wire_item_columns(struct wire_lists *lists, struct wire_item *item)
{
    lists->column_count = lists->slice_count = 0;
    item->column_first = item->column_count = 0;
    return decode_end("a FlatTrajectory", item->trajectory.size,
                      trajectory_decode(item->trajectory, lists, item));
}

static trp_status timestamp_decode(trp_bytes bytes, int64_t *ns)
{
    uint64_t parts[2] = {0}; /* seconds, nanoseconds */
    trp_status status = read_varints(bytes, parts, 2);
    if (__builtin_mul_overflow((int64_t)parts[0], INT64_C(1000000000), ns) ||
        __builtin_add_overflow(*ns, (int32_t)parts[1], ns))
        *ns = 0; /* no time that a clock of ours shows */
    return status;
}

trp_status item_decode(trp_bytes bytes, struct wire_lists *lists)
{
    if (lists->item_count == MESSAGE_ITEMS_MAX)
        return TRP_RESOURCE_EXHAUSTED;
    struct wire_item *item = wire_push_item(lists);
    struct reader reader = reader_of(bytes);
    struct field field;
    while (read_field(&reader, &field)) {
        if (field.tag == TAG(1, VARINT))
            item->key = field.value;
        else if (field.tag == TAG(2, LEN))
            item->table = field.bytes;
        else if (field.tag == TAG(5, FIXED64))
            item->priority = bits_double(field.value);
        else if (field.tag == TAG(6, VARINT))
            item->times_sampled = (int32_t)field.value;
        else if (field.tag == TAG(7, LEN))
            TRP_TRY(timestamp_decode(field.bytes, &item->inserted_at_ns));
        else if (field.tag == TAG(8, LEN) && item->trajectory.size > 0) /* legal, but nobody's */
            return trp_fail(TRP_INVALID_ARGUMENT, "item %" PRIu64 " has two trajectories",
                            item->key);
        else if (field.tag == TAG(8, LEN))
            item->trajectory = field.bytes;
        else if (field.tag == TAG(POLICY_VERSION_FIELD, VARINT))
            item->policy_version = field.value;
    }
    return reader_status(&reader);
}

void put_columns(struct writer *writer, const struct wire_lists *lists,
                 const struct wire_item *item)
{
    for (uint32_t i = item->column_count; i-- > 0;) {
        const struct wire_column *column = &lists->columns[item->column_first + i];
        size_t column_end = writer_mark(writer);
        put_varint_field(writer, 2, column->squeeze);
        for (uint32_t j = column->slice_count; j-- > 0;) {
            const struct wire_slice *slice = &lists->slices[column->slice_first + j];
            size_t slice_end = writer_mark(writer);
            put_varint_field(writer, 4, (uint64_t)slice->index);
            put_varint_field(writer, 3, (uint64_t)slice->length);
            put_varint_field(writer, 2, (uint64_t)slice->offset);
            put_varint_field(writer, 1, slice->chunk_key);
            put_len_header(writer, 1, slice_end);
        }
        put_len_header(writer, 1, column_end);
    }
}
