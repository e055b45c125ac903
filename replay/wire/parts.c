/* Problem: chunks and items are inside requests and responses, and both ends decode and encode
 * them. Design: decoders push into struct wire_lists; encoders write backwards (bytes.h).
 * Guarantee: as in wire.c; a chunk's bytes are passed on as they are, only its key is cut out. */
#include "parts.h"

#include <inttypes.h>

#include <stdlib.h>

#include "core/alloc.h"
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
    void *out;
    lists->chunks = array_push(lists->chunks, &lists->chunk_count, &lists->chunk_capacity,
                               sizeof *lists->chunks, &out);
    return out;
}

struct wire_item *wire_push_item(struct wire_lists *lists)
{
    void *out;
    lists->items = array_push(lists->items, &lists->item_count, &lists->item_capacity,
                              sizeof *lists->items, &out);
    struct wire_item *item = out;
    item->column_first = lists->column_count;
    return item;
}

static struct wire_column *push_column(struct wire_lists *lists, struct wire_item *item)
{
    void *out;
    lists->columns = array_push(lists->columns, &lists->column_count, &lists->column_capacity,
                                sizeof *lists->columns, &out);
    struct wire_column *column = out;
    column->slice_first = lists->slice_count;
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
    void *out;
    assert(lists->column_count > 0);
    lists->slices = array_push(lists->slices, &lists->slice_count, &lists->slice_capacity,
                               sizeof *lists->slices, &out);
    lists->columns[lists->column_count - 1].slice_count++;
    return out;
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
    void *out;
    keys->keys = array_push(keys->keys, &keys->count, &keys->capacity, sizeof *keys->keys, &out);
    *(uint64_t *)out = key;
}

void wire_keys_cleanup(struct wire_keys *keys)
{
    free(keys->keys);
    *keys = (struct wire_keys){0};
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

static size_t shape_size(const struct wire_tensor *tensor)
{
    size_t size = 0;
    for (uint32_t i = 0; i < tensor->rank; i++)
        size += len_field_size(varint_field_size((uint64_t)tensor->dims[i]));
    return size;
}

static size_t tensor_size(const struct wire_tensor *tensor)
{
    return varint_field_size((uint64_t)tensor->dtype) + len_field_size(shape_size(tensor)) +
           bytes_field_size(tensor->content.size);
}

static void put_tensor(struct writer *writer, const struct wire_tensor *tensor,
                       struct referring *referring)
{
    assert(tensor->rank <= TRP_RANK_MAX);
    if (tensor->content.size > 0) {
        if (referring && tensor->content.size >= SHARED_INLINE_BYTES)
            put_reference(writer, tensor->content, referring);
        else
            put_bytes(writer, tensor->content);
        put_len(writer, 4, tensor->content.size);
    }
    const uint8_t *shape_end = writer->at;
    for (uint32_t i = tensor->rank; i-- > 0;) {
        const uint8_t *dim_end = writer->at;
        put_varint_field(writer, 1, (uint64_t)tensor->dims[i]);
        put_len_header(writer, 2, dim_end);
    }
    put_len_header(writer, 2, shape_end);
    put_varint_field(writer, 1, (uint64_t)tensor->dtype);
    put_len(writer, 1, tensor_size(tensor));
}

static size_t range_size(const struct wire_steps *steps)
{
    return varint_field_size(steps->episode_id) + varint_field_size((uint64_t)steps->start) +
           varint_field_size((uint64_t)steps->end) + varint_field_size(steps->sparse);
}

static size_t steps_data_size(const struct wire_steps *steps)
{
    size_t size = 0;
    for (uint32_t i = 0; i < steps->tensor_count; i++)
        size += len_field_size(tensor_size(&steps->tensors[i]));
    return size;
}

static size_t steps_size(const struct wire_steps *steps)
{
    return len_field_size(range_size(steps)) + varint_field_size(steps->delta_encoded) +
           len_field_size(steps_data_size(steps)) + varint_field_size(steps->tensor_count) +
           varint_field_size(steps->uncompressed_bytes);
}

void put_steps(struct writer *writer, const struct wire_steps *steps, struct referring *referring)
{
    put_varint_field(writer, 7, steps->uncompressed_bytes);
    put_varint_field(writer, 6, steps->tensor_count);
    for (uint32_t i = steps->tensor_count; i-- > 0;)
        put_tensor(writer, &steps->tensors[i], referring);
    put_len(writer, 5, steps_data_size(steps));
    put_varint_field(writer, 4, steps->delta_encoded);
    const uint8_t *end = writer->at;
    put_varint_field(writer, 4, steps->sparse);
    put_varint_field(writer, 3, (uint64_t)steps->end);
    put_varint_field(writer, 2, (uint64_t)steps->start);
    put_varint_field(writer, 1, steps->episode_id);
    put_len_header(writer, 2, end);
}

static size_t chunk_content_size(const struct wire_chunk *chunk)
{
    size_t body = chunk->steps ? steps_size(chunk->steps) : chunk->head.size + chunk->tail.size;
    return varint_field_size(chunk->key) + body;
}

size_t wire_chunk_size(const struct wire_chunk *chunk)
{
    return len_field_size(chunk_content_size(chunk));
}

void put_chunk(struct writer *writer, uint32_t number, const struct wire_chunk *chunk)
{
    const uint8_t *end = writer->at;
    if (chunk->steps) {
        put_steps(writer, chunk->steps, NULL);
    } else {
        put_bytes(writer, chunk->tail);
        put_bytes(writer, chunk->head);
    }
    put_varint_field(writer, 1, chunk->key);
    put_len_header(writer, number, end);
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
        switch (field.tag) {
        case TAG(1, VARINT):
            slice->chunk_key = field.value;
            slice->key_varint = field.before + 1;
            break;
        case TAG(2, VARINT):
            slice->offset = (int32_t)field.value;
            break;
        case TAG(3, VARINT):
            slice->length = (int32_t)field.value;
            break;
        case TAG(4, VARINT):
            slice->index = (int32_t)field.value;
            break;
        default:
            break;
        }
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

/* A message in two parts is rare but legal: then nothing is left for later. */
static trp_status trajectory_take(trp_bytes bytes, struct wire_lists *lists, struct wire_item *item)
{
    if (!lists->lazy)
        return trajectory_decode(bytes, lists, item);
    /* Only one can be put off; nobody sends it in parts. */
    if (item->trajectory.size > 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "item %" PRIu64 " has two trajectories", item->key);
    item->trajectory = bytes;
    return TRP_OK;
}

trp_status wire_item_columns(struct wire_lists *lists, struct wire_item *item)
{
    if (item->trajectory.size == 0)
        return TRP_OK;
    lists->column_count = lists->slice_count = 0;
    item->column_first = item->column_count = 0;
    return decode_end("a FlatTrajectory", item->trajectory.size,
                      trajectory_decode(item->trajectory, lists, item));
}

static trp_status timestamp_decode(trp_bytes bytes, int64_t *ns)
{
    struct reader reader = reader_of(bytes);
    struct field field;
    int64_t seconds = 0, nanos = 0;
    while (read_field(&reader, &field)) {
        if (field.tag == TAG(1, VARINT))
            seconds = (int64_t)field.value;
        else if (field.tag == TAG(2, VARINT))
            nanos = (int32_t)field.value;
    }
    if (__builtin_mul_overflow(seconds, INT64_C(1000000000), ns) ||
        __builtin_add_overflow(*ns, nanos, ns))
        *ns = 0; /* no time that a clock of ours shows */
    return reader_status(&reader);
}

trp_status item_decode(trp_bytes bytes, struct wire_lists *lists)
{
    if (lists->item_count == MESSAGE_ITEMS_MAX)
        return TRP_RESOURCE_EXHAUSTED;
    struct wire_item *item = wire_push_item(lists);
    struct reader reader = reader_of(bytes);
    struct field field;
    while (read_field(&reader, &field)) {
        switch (field.tag) {
        case TAG(1, VARINT):
            item->key = field.value;
            break;
        case TAG(2, LEN):
            item->table = field.bytes;
            break;
        case TAG(5, FIXED64):
            item->priority = bits_double(field.value);
            break;
        case TAG(6, VARINT):
            item->times_sampled = (int32_t)field.value;
            break;
        case TAG(7, LEN):
            TRP_TRY(timestamp_decode(field.bytes, &item->inserted_at_ns));
            break;
        case TAG(8, LEN):
            TRP_TRY(trajectory_take(field.bytes, lists, item));
            break;
        case TAG(POLICY_VERSION_FIELD, VARINT):
            item->policy_version = field.value;
            break;
        default:
            break;
        }
    }
    return reader_status(&reader);
}

static size_t slice_size(const struct wire_slice *slice)
{
    return varint_field_size(slice->chunk_key) + varint_field_size((uint64_t)slice->offset) +
           varint_field_size((uint64_t)slice->length) + varint_field_size((uint64_t)slice->index);
}

static size_t lists_trajectory_size(const struct wire_lists *lists, const struct wire_item *item)
{
    size_t size = 0;
    for (uint32_t i = 0; i < item->column_count; i++) {
        const struct wire_column *column = &lists->columns[item->column_first + i];
        size_t column_size = column->squeeze ? 2 : 0;
        for (uint32_t j = 0; j < column->slice_count; j++)
            column_size += len_field_size(slice_size(&lists->slices[column->slice_first + j]));
        size += len_field_size(column_size);
    }
    return size;
}

static void put_lists_trajectory(struct writer *writer, const struct wire_lists *lists,
                                 const struct wire_item *item)
{
    for (uint32_t i = item->column_count; i-- > 0;) {
        const struct wire_column *column = &lists->columns[item->column_first + i];
        const uint8_t *column_end = writer->at;
        put_varint_field(writer, 2, column->squeeze);
        for (uint32_t j = column->slice_count; j-- > 0;) {
            const struct wire_slice *slice = &lists->slices[column->slice_first + j];
            const uint8_t *slice_end = writer->at;
            put_varint_field(writer, 4, (uint64_t)slice->index);
            put_varint_field(writer, 3, (uint64_t)slice->length);
            put_varint_field(writer, 2, (uint64_t)slice->offset);
            put_varint_field(writer, 1, slice->chunk_key);
            put_len_header(writer, 1, slice_end);
        }
        put_len_header(writer, 1, column_end);
    }
}

static size_t timestamp_size(int64_t ns)
{
    return varint_field_size((uint64_t)(ns / 1000000000)) +
           varint_field_size((uint64_t)(ns % 1000000000));
}

/* An item around a trajectory of `trajectory` bytes. */
size_t item_content_size(const struct wire_item *item, size_t trajectory)
{
    size_t size = varint_field_size(item->key) + bytes_field_size(item->table.size) +
                  double_field_size(item->priority) +
                  varint_field_size((uint64_t)item->times_sampled) + len_field_size(trajectory);
    if (item->inserted_at_ns)
        size += len_field_size(timestamp_size(item->inserted_at_ns));
    if (item->policy_version)
        size += varint_size(TAG(POLICY_VERSION_FIELD, VARINT)) + varint_size(item->policy_version);
    return size;
}

/* Everything before the trajectory. */
void put_item_head(struct writer *writer, const struct wire_item *item)
{
    if (item->inserted_at_ns) {
        const uint8_t *end = writer->at;
        put_varint_field(writer, 2, (uint64_t)(item->inserted_at_ns % 1000000000));
        put_varint_field(writer, 1, (uint64_t)(item->inserted_at_ns / 1000000000));
        put_len_header(writer, 7, end);
    }
    put_varint_field(writer, POLICY_VERSION_FIELD, item->policy_version);
    put_varint_field(writer, 6, (uint64_t)item->times_sampled);
    put_double_field(writer, 5, item->priority);
    put_bytes_field(writer, 2, item->table);
    put_varint_field(writer, 1, item->key);
}

size_t wire_item_size(const struct wire_lists *lists, const struct wire_item *item)
{
    return len_field_size(item_content_size(item, lists_trajectory_size(lists, item)));
}

void put_item(struct writer *writer, uint32_t number, const struct wire_lists *lists,
              const struct wire_item *item)
{
    const uint8_t *end = writer->at;
    put_lists_trajectory(writer, lists, item);
    put_len_header(writer, 8, end);
    put_item_head(writer, item);
    put_len_header(writer, number, end);
}
