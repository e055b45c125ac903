/* Problem: a message of half a megabyte comes in tens of parts, and to join them costs as much as
 * to store it. Design: a field that lies in one part is decoded there. A chunk that goes on in the
 * next is left in parts when only contents of tensors do, each of them one literal, which nobody
 * has to look at; most large chunks are so. Everything else that goes on is joined, and then
 * decoded as always: fields one by one, all of the rest where the header of a field is cut (once in
 * some hundred parts). Guarantee: parts change nothing but where bytes lie. */
#include "parts.h"

#include <stdlib.h>

#include "core/alloc.h"
#include "tensor.h"
#include "limits.h"

/* ---- parts --------------------------------------------------------------------------------- */

static trp_bytes more_first(const struct wire_more *more)
{
    return (trp_bytes){more->parts[0].data, more->count == 1 ? more->last : more->parts[0].size};
}

uint64_t more_size(const struct wire_more *more)
{
    uint64_t size = 0;
    for (uint32_t i = 0; i < more->count; i++)
        size += i + 1 == more->count ? more->last : more->parts[i].size;
    return size;
}

struct spans spans_of(const trp_bytes *parts, size_t count)
{
    if (count == 0)
        return (struct spans){.more.count = 0};
    return (struct spans){parts[0], {parts + 1, (uint32_t)count - 1, parts[count - 1].size}};
}

size_t spans_size(const struct spans *spans)
{
    return spans->now.size + (size_t)more_size(&spans->more);
}

static bool is_hidden(trp_bytes part)
{
    return part.size > 0 && !part.data;
}

static void spans_step(struct spans *rest)
{
    rest->now = more_first(&rest->more);
    rest->more.parts++;
    rest->more.count--;
}

bool spans_advance(struct spans *rest)
{
    while (rest->now.size == 0 && rest->more.count > 0 && !is_hidden(more_first(&rest->more)))
        spans_step(rest);
    return rest->now.size > 0;
}

/* Moves the first `size` bytes to `out`, which are all of `now` and more; what is hidden as a
 * whole. */
static bool spans_cut(struct spans *rest, uint64_t size, struct spans *out)
{
    *out = (struct spans){.now = rest->now, .more.parts = rest->more.parts};
    size -= rest->now.size;
    rest->now.size = 0;
    while (size > 0) {
        if (rest->now.size == 0 && rest->more.count == 0)
            return false;
        if (rest->now.size == 0)
            spans_step(rest);
        size_t taken = size < rest->now.size ? (size_t)size : rest->now.size;
        if (is_hidden(rest->now) && taken < rest->now.size)
            return false;
        out->more.count = (uint32_t)(rest->more.parts - out->more.parts);
        out->more.last = taken;
        rest->now.size -= taken;
        rest->now.data = rest->now.size > 0 ? rest->now.data + taken : NULL;
        size -= taken;
    }
    return true;
}

trp_status spans_field(struct spans *rest, struct field *field, struct wire_more *beyond)
{
    struct reader reader = reader_of(rest->now);
    struct spans content;
    uint64_t size;
    field->before = reader.at;
    if (!read_tag(&reader, &field->tag) || (field->tag & 7) != LEN || !read_varint(&reader, &size))
        return TRP_ABORTED;
    rest->now = (trp_bytes){reader.at, (size_t)(reader.end - reader.at)};
    if (size < rest->now.size || !spans_cut(rest, size, &content))
        return TRP_INVALID_ARGUMENT;
    field->bytes = content.now;
    *beyond = content.more;
    return TRP_OK;
}

/* ---- joining ------------------------------------------------------------------------------- */

trp_status spans_join(const struct spans *spans, join_memory *memory, void *arg, trp_bytes *bytes)
{
    struct spans left = *spans;
    uint8_t *to = memory(arg, spans_size(spans));
    if (!to)
        return TRP_RESOURCE_EXHAUSTED;
    *bytes = (trp_bytes){to, spans_size(spans)};
    for (; left.now.size > 0 || spans_advance(&left); left.now.size = 0) {
        memcpy(to, left.now.data, left.now.size);
        to += left.now.size;
    }
    return TRP_OK;
}

struct assembler assembler_of(const trp_bytes *parts, size_t count, join_memory *memory, void *arg)
{
    struct spans rest = spans_of(parts, count);
    return (struct assembler){rest, reader_of(rest.now), memory, arg};
}

trp_status assembler_next(struct assembler *assembler, struct field *field,
                          struct wire_more *beyond, bool *more)
{
    struct reader *reader = &assembler->reader;
    struct spans *rest = &assembler->rest;
    beyond->count = 0;
    for (;;) {
        const uint8_t *start = reader->at;
        *more = read_field(reader, field);
        if (*more || rest->more.count == 0)
            return reader_status(reader);
        rest->now = (trp_bytes){start, (size_t)(reader->end - start)};
        if (rest->now.size == 0) {
            spans_advance(rest);
        } else {
            struct spans all = *rest;
            trp_status status = spans_field(rest, field, beyond);
            *more = status == TRP_OK;
            if (status == TRP_ABORTED) { /* its header is cut */
                *rest = (struct spans){.now = {NULL, 0}};
                status = spans_join(&all, assembler->memory, assembler->arg, &rest->now);
            }
            reader->malformed = status == TRP_INVALID_ARGUMENT;
            TRP_TRY(status);
        }
        *reader = reader_of(rest->now);
        if (*more)
            return TRP_OK;
    }
}

trp_status assembler_join(struct assembler *assembler, struct field *field,
                          const struct wire_more *beyond)
{
    size_t header = (size_t)(field->bytes.data - field->before);
    struct spans all = {{field->before, header + field->bytes.size}, *beyond};
    trp_bytes bytes;
    TRP_TRY(spans_join(&all, assembler->memory, assembler->arg, &bytes));
    field->before = bytes.data;
    field->bytes = (trp_bytes){bytes.data + header, bytes.size - header};
    return TRP_OK;
}

/* ---- chunks -------------------------------------------------------------------------------- */

/* Nothing goes on in another part but contents that are one literal. */
static trp_status chunk_check(const struct wire_chunk *chunk)
{
    enum { DTYPE_STRING = 7 };
    struct wire_tensor_reader reader;
    wire_tensors_open(&reader, chunk);
    for (bool end = false; !end;) {
        struct wire_tensor tensor;
        bool given = false;
        uint64_t size;
        TRP_TRY(tensors_step(&reader, &tensor, &given, &end));
        if (given && tensor.beyond > 0 &&
            (tensor.dtype == DTYPE_STRING ||
             !block_is_literal(tensor.content, tensor.beyond, &size)))
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

/* Pushed to the lists, if it is one. */
static bool parts_push(const struct spans *spans, struct wire_lists *lists)
{
    struct wire_chunk chunk;
    if (lists->chunk_count == MESSAGE_ITEMS_MAX || chunk_in_parts(spans, &chunk) != TRP_OK)
        return false;
    *wire_push_chunk(lists) = chunk;
    return true;
}

/* ---- requests ------------------------------------------------------------------------------ */

uint8_t *insert_request_memory(void *arg, size_t size)
{
    struct wire_insert_request *request = arg;
    trp_message *message = trp_message_create(size);
    if (!message)
        return NULL;
    if (request->joined_count == request->joined_capacity)
        request->joined =
            array_grow(request->joined, &request->joined_capacity, sizeof(trp_message *));
    request->joined[request->joined_count++] = message;
    return trp_message_data(message);
}

/* Decodes fields that lie in one part, to where one does not: small items are most of a message. */
static trp_status part_decode(struct assembler *assembler, struct wire_insert_request *request)
{
    struct reader reader = assembler->reader;
    struct field field;
    while (read_field(&reader, &field)) {
        assembler->reader.at = reader.at;
        TRP_TRY(insert_request_field(&field, request));
    }
    return TRP_OK;
}

/* Decodes the next field, which may go on in another part. */
static trp_status across_decode(struct assembler *assembler, struct wire_insert_request *request,
                                bool *more)
{
    struct field field;
    struct wire_more beyond;
    TRP_TRY(assembler_next(assembler, &field, &beyond, more));
    if (!*more)
        return TRP_OK;
    struct spans content = {field.bytes, beyond};
    if (beyond.count > 0 && field.tag == TAG(1, LEN) && parts_push(&content, &request->lists))
        return TRP_OK;
    if (beyond.count > 0)
        TRP_TRY(assembler_join(assembler, &field, &beyond));
    return insert_request_field(&field, request);
}

trp_status wire_insert_request_decode_parts(const trp_bytes *parts, size_t count,
                                            struct wire_insert_request *request)
{
    struct assembler assembler = assembler_of(parts, count, insert_request_memory, request);
    size_t size = spans_size(&assembler.rest);
    trp_status status = TRP_OK;
    wire_insert_request_clear(request);
    for (bool more = true; status == TRP_OK && more;) {
        status = part_decode(&assembler, request);
        if (status == TRP_OK)
            status = across_decode(&assembler, request, &more);
    }
    return decode_end("InsertStreamRequest", size, status);
}
