/* Problem: both ends have to know a chunk's tensors, and thousands of chunks a second
 * look the same but for their contents, which may lie in several parts of a message.
 * Design: a walk over the fields that decompresses nothing; headers that were seen before are
 * recognised by comparing. A chunk stays in parts when only the contents of its tensors go on from
 * one to the next, each of them one literal, which nobody has to look at; most large chunks are so.
 * Guarantee: as in wire.c. */
#include "parts.h"

#include "core/hash.h"
#include "tensor.h"

/* ---- tensors of a chunk ------------------------------------------------------------------ */

void wire_tensors_open(struct wire_tensor_reader *reader, const struct wire_chunk *chunk)
{
    *reader = (struct wire_tensor_reader){
        .parts = {{.now = chunk->head}, {.now = chunk->tail, .more = chunk->more}}};
}

static trp_status dim_decode(trp_bytes bytes, struct wire_tensor *tensor)
{
    uint64_t field = 0; /* an empty Dim is a dimension of size 0 */
    trp_status status = read_varints(bytes, &field, 1);
    int64_t size = (int64_t)field;
    if (tensor->rank < TRP_RANK_MAX)
        tensor->dims[tensor->rank] = size;
    else
        tensor->hidden = hash_u64(tensor->hidden ^ (uint64_t)size);
    tensor->rank++;
    if (size < 0 || tensor->extent == UINT64_MAX ||
        __builtin_mul_overflow(tensor->extent, size ? (uint64_t)size : 1, &tensor->extent))
        tensor->elements = tensor->extent = UINT64_MAX; /* and they stay so */
    else
        tensor->elements *= (uint64_t)size;
    return status;
}

static trp_status shape_decode(trp_bytes bytes, struct wire_tensor *tensor)
{
    struct reader reader = reader_of(bytes);
    struct field field;
    while (read_field(&reader, &field)) {
        if (field.tag == TAG(2, LEN))
            TRP_TRY(dim_decode(field.bytes, tensor));
        else if (field.tag == TAG(3, VARINT) && field.value)
            tensor->elements = tensor->extent = UINT64_MAX; /* of unknown rank */
    }
    return reader_status(&reader);
}

static trp_status tensor_decode(struct spans rest, struct wire_tensor *tensor)
{
    struct field field;
    struct wire_more beyond;
    trp_status status;
    *tensor = (struct wire_tensor){.elements = 1, .extent = 1};
    while (rest_field(&rest, &field, &beyond, &status)) {
        if (field.tag == TAG(1, VARINT))
            tensor->dtype = (int32_t)field.value;
        else if (field.tag == TAG(2, LEN)) {
            if (beyond.count > 0)
                return TRP_ABORTED;
            TRP_TRY(shape_decode(field.bytes, tensor));
        } else if (field.tag == TAG(4, LEN)) {
            tensor->content = field.bytes;
            tensor->beyond = more_size(&beyond);
        }
    }
    return status;
}

/* True when the tensor is the remembered header, then content to the end and nothing else. */
static bool memo_matches(const struct wire_tensor_memo *memo, trp_bytes bytes,
                         struct wire_tensor *tensor)
{
    if (memo->size == 0 || bytes.size <= memo->size || bytes.data[memo->size] != TAG(4, LEN) ||
        memcmp(bytes.data, memo->prefix, memo->size) != 0)
        return false;
    struct reader reader = {bytes.data + memo->size + 1, bytes.data + bytes.size, false};
    trp_bytes content;
    if (!read_span(&reader, &content) || reader.at != reader.end)
        return false;
    *tensor = memo->tensor;
    tensor->content = content;
    return true;
}

static void memo_set(struct wire_tensor_memo *memo, trp_bytes bytes,
                     const struct wire_tensor *tensor)
{
    memo->size = 0;
    if (tensor->content.size == 0 ||
        tensor->content.data + tensor->content.size != bytes.data + bytes.size)
        return; /* the content is not last: fields behind it would be missed */
    size_t header = (size_t)(tensor->content.data - bytes.data);
    size_t length = varint_size(tensor->content.size) + 1;
    if (header <= length || header - length > sizeof memo->prefix ||
        bytes.data[header - length] != TAG(4, LEN))
        return;
    memo->size = (uint32_t)(header - length);
    memcpy(memo->prefix, bytes.data, memo->size);
    memo->tensor = *tensor;
}

static trp_status tensor_read(struct wire_tensor_reader *reader, trp_bytes bytes,
                              const struct wire_more *beyond, struct wire_tensor *tensor)
{
    if (reader->count >= reader->memo_count || beyond->count > 0)
        return tensor_decode((struct spans){bytes, *beyond}, tensor);
    struct wire_tensor_memo *memo = &reader->memos[reader->count];
    if (memo_matches(memo, bytes, tensor))
        return TRP_OK;
    trp_status status = tensor_decode((struct spans){.now = bytes}, tensor);
    if (status == TRP_OK)
        memo_set(memo, bytes, tensor);
    return status;
}

/* A range that is malformed breaks nobody: it only describes the steps. */
static void range_decode(trp_bytes bytes, struct wire_range *range)
{
    uint64_t fields[] = {range->episode_id, (uint64_t)range->start, (uint64_t)range->end};
    (void)read_varints(bytes, fields, 3);
    range->episode_id = fields[0];
    range->start = (int32_t)fields[1];
    range->end = (int32_t)fields[2];
}

static bool is_left(const struct spans *rest)
{
    return rest->now.size > 0 || rest->more.count > 0;
}

/* ABORTED: something else than a tensor's content goes on in the next part of the message; never
 * in a chunk that was not decoded from parts. */
static trp_status tensors_step(struct wire_tensor_reader *reader, struct wire_tensor *tensor,
                               bool *given, bool *end)
{
    struct field field;
    struct wire_more beyond;
    trp_status status;
    if (is_left(&reader->data)) {
        if (rest_field(&reader->data, &field, &beyond, &status) && field.tag == TAG(1, LEN)) {
            *given = true;
            return tensor_read(reader, field.bytes, &beyond, tensor);
        }
        return status;
    }
    struct spans *part = is_left(&reader->parts[0]) ? &reader->parts[0] : &reader->parts[1];
    *end = !is_left(part);
    if (*end || !rest_field(part, &field, &beyond, &status))
        return *end ? TRP_OK : status;
    if (field.tag == TAG(5, LEN)) {
        reader->data = (struct spans){field.bytes, beyond};
    } else if (field.tag == TAG(3, LEN)) {
        *given = true;
        return tensor_read(reader, field.bytes, &beyond, tensor);
    } else if (beyond.count > 0 || field.tag == TAG(1, VARINT)) {
        return TRP_ABORTED; /* of the keys, one was cut out */
    } else if (field.tag == TAG(4, VARINT)) {
        reader->delta_encoded = field.value != 0;
    } else if (field.tag == TAG(2, LEN)) {
        range_decode(field.bytes, &reader->range);
    } else if (field.tag == TAG(6, VARINT)) {
        reader->range.tensor_total = (int32_t)field.value;
    }
    return TRP_OK;
}

trp_status wire_tensor_next(struct wire_tensor_reader *reader, struct wire_tensor *tensor,
                            bool *more)
{
    bool end = false;
    *more = false;
    while (!*more && !end)
        if (tensors_step(reader, tensor, more, &end) != TRP_OK)
            return trp_fail(TRP_INVALID_ARGUMENT, "a chunk's tensor %u is malformed",
                            reader->count);
    reader->count += *more;
    return TRP_OK;
}

/* ---- chunks in parts ------------------------------------------------------------------------- */

/* Nothing goes on in another part but contents that are one literal. */
static trp_status chunk_check(const struct wire_chunk *chunk)
{
    enum { DTYPE_STRING = 7 };
    struct wire_tensor_reader reader;
    wire_tensors_open(&reader, chunk);
    for (bool end = false; !end;) {
        struct wire_tensor tensor;
        bool given = false;
        trp_bytes raw;
        TRP_TRY(tensors_step(&reader, &tensor, &given, &end));
        if (given && tensor.beyond > 0 &&
            (tensor.dtype == DTYPE_STRING || !block_literal(tensor.content, tensor.beyond, &raw)))
            return TRP_ABORTED;
    }
    return TRP_OK;
}

/* The key first, as every writer has it. */
trp_status chunk_in_parts(const struct spans *spans, struct wire_chunk *chunk)
{
    struct reader reader = reader_of(spans->now);
    struct field field;
    if (!read_field(&reader, &field) || field.tag != TAG(1, VARINT))
        return TRP_ABORTED;
    *chunk = (struct wire_chunk){
        .key = field.value,
        .head = {spans->now.data, 0},
        .tail = {reader.at, (size_t)(reader.end - reader.at)},
        .more = spans->more,
    };
    return chunk_check(chunk);
}
