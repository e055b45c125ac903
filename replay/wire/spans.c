/* Problem: a message of half a megabyte comes in tens of parts, and to join them costs as much as
 * to store it. Design: a field that lies in one part is decoded there. A chunk that goes on in the
 * next is left in parts where chunk_in_parts() allows it. Everything else that goes on is joined,
 * and then decoded as always: fields one by one, all of the rest where the header of a field is cut
 * (once in some hundred parts). Guarantee: parts change nothing but where bytes lie. */
#include "parts.h"

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

/* Moves the first `size` bytes to `out`, which are all of `now` and more; a hidden part
 * only as a whole. */
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

trp_status assembler_next(struct assembler *assembler, struct field *field,
                          struct wire_more *beyond, bool *more)
{
    struct spans all = assembler->rest;
    trp_status status;
    *more = rest_field(&assembler->rest, field, beyond, &status);
    if (status != TRP_ABORTED)
        return status;
    assembler->rest = (struct spans){.now = {NULL, 0}}; /* its header is cut */
    TRP_TRY(spans_join(&all, assembler->memory, assembler->arg, &assembler->rest.now));
    *more = rest_field(&assembler->rest, field, beyond, &status);
    return status;
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
