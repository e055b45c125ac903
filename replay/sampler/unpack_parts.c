/* Problem: a message of a megabyte comes in parts of 64 KB, and to join them first costs as much as
 * to copy its samples into a batch. Design: samples are read from the parts, and one that goes on
 * in the next part is joined, into memory that is used again. Where the header of a field is cut,
 * once in some hundred parts, all that is left of the message is. Guarantee: what a sample that has
 * begun, or a view, refers to stays. */
#include "unpack_internal.h"

#include <string.h>

#include "replay/wire/parts.h"

/* `size` bytes for what is joined next. What was joined before is kept if it is needed. */
static trp_status joined_reserve(struct unpacker *unpacker, size_t size)
{
    enum { STEP = 4096 };
    bool kept = unpacker->needed || unpacker->keeps;
    if (unpacker->joined && !kept && trp_message_size(unpacker->joined) >= size)
        return TRP_OK;
    unpacker_drop_joined(unpacker);
    unpacker->joined = trp_message_create((size + STEP - 1) / STEP * STEP);
    if (!unpacker->joined)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "no memory for a sample of %zu bytes", size);
    return TRP_OK;
}

static trp_status join(struct unpacker *unpacker, struct spans spans, trp_bytes *bytes)
{
    size_t size = spans_size(&spans);
    TRP_TRY(joined_reserve(unpacker, size));
    *bytes = (trp_bytes){trp_message_data(unpacker->joined), size};
    spans_copy(spans, trp_message_data(unpacker->joined));
    return TRP_OK;
}

/* The field that begins at rest.now and goes on in the next part. `*more` false: there is none, the
 * message is malformed or to be read on. */
static trp_status cut_field(struct unpacker *unpacker, struct field *field, bool *more)
{
    struct spans *rest = &unpacker->rest, all = *rest, whole = {.now = {NULL, 0}};
    trp_bytes bytes;
    trp_status status = spans_field(rest, field, &whole.more);
    *more = false;
    if (status == TRP_ABORTED) {
        TRP_TRY(join(unpacker, all, &bytes));
        *rest = (struct spans){.now = bytes};
        unpacker->reader = reader_of(bytes);
        return TRP_OK;
    }
    unpacker->reader = reader_of(rest->now);
    unpacker->reader.malformed = status != TRP_OK;
    if (status != TRP_OK)
        return TRP_OK;
    const uint8_t *end = field->bytes.data + field->bytes.size;
    size_t header = (size_t)(field->bytes.data - field->before);
    whole.now = (trp_bytes){field->before, (size_t)(end - field->before)};
    TRP_TRY(join(unpacker, whole, &bytes));
    field->before = bytes.data;
    field->bytes = (trp_bytes){bytes.data + header, bytes.size - header};
    *more = true;
    return TRP_OK;
}

void unpacker_open_parts(struct unpacker *unpacker, trp_message *message)
{
    const trp_bytes *parts;
    size_t count = trp_message_parts(message, &parts);
    unpacker->rest = spans_of(parts, count);
    unpacker->reader = reader_of(unpacker->rest.now);
}

trp_status unpacker_field(struct unpacker *unpacker, struct field *field, bool *more)
{
    struct reader *reader = &unpacker->reader;
    struct spans *rest = &unpacker->rest;
    for (;;) {
        const uint8_t *start = reader->at;
        *more = read_field(reader, field);
        if (*more || rest->more.count == 0)
            return TRP_OK;
        rest->now = (trp_bytes){start, (size_t)(reader->end - start)};
        if (rest->now.size == 0) {
            spans_advance(rest);
            *reader = reader_of(rest->now);
            continue;
        }
        TRP_TRY(cut_field(unpacker, field, more));
        if (*more || reader->malformed)
            return TRP_OK;
    }
}
