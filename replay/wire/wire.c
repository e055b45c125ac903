/* Problem: an insert of 52 bytes travels in a message of 64 to 256 such items, and a microsecond is
 * all that one of them may cost; protobuf-c allocates for each of their thirty submessages.
 * Design: one decoder and one encoder a message, written out by hand next to each other. Decoders
 * push into arrays that are kept from message to message; encoders
 * put everything twice, to count it and to write it (bytes.h).
 * Guarantee: bytes from a peer are never read outside their span, whatever they say, and the memory
 * they make us keep is bounded by MESSAGE_*_MAX. The bytes written are those that C++ protobuf
 * writes: fields ascending, repeated scalars packed, defaults left out. */
#include "wire.h"

#include <stdlib.h>

#include "parts.h"

/* ---- shared by the decoders -------------------------------------------------------------- */

/* Repeated varints come packed (LEN) or one by one. */
static trp_status keys_decode(const struct field *field, struct wire_keys *keys)
{
    struct reader reader = {0};
    uint64_t key;
    if ((field->tag & 7) == VARINT)
        wire_push_key(keys, field->value);
    else
        reader = reader_of(field->bytes);
    while (keys->count <= MESSAGE_SLICES_MAX && reader.at < reader.end &&
           read_varint(&reader, &key))
        wire_push_key(keys, key);
    if (keys->count > MESSAGE_SLICES_MAX)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "a message of more than %d keys",
                        MESSAGE_SLICES_MAX);
    return reader_status(&reader);
}

/* ---- InsertStreamRequest ----------------------------------------------------------------- */

static trp_status insert_request_field(const struct field *field,
                                       struct wire_insert_request *request)
{
    switch (field->tag) {
    case TAG(1, LEN):
        return chunk_decode(field->bytes, &request->lists);
    case TAG(2, LEN):
        return item_decode(field->bytes, &request->lists);
    case TAG(3, LEN):
    case TAG(3, VARINT):
        return keys_decode(field, &request->keep);
    case TAG(SHM_REFERENCE_FIELD, LEN):
        if (request->lists.chunk_count == MESSAGE_ITEMS_MAX)
            return TRP_RESOURCE_EXHAUSTED;
        *wire_push_chunk(&request->lists) =
            (struct wire_chunk){.tail = field->bytes, .by_reference = true};
        return TRP_OK;
    case TAG(SHM_HELLO_FIELD, LEN):
        request->hello = field->bytes;
        return TRP_OK;
    default:
        return TRP_OK;
    }
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

uint8_t *insert_request_memory(void *arg, size_t size)
{
    struct wire_insert_request *request = arg;
    trp_message *message = trp_message_create(size);
    if (!message)
        return NULL;
    *ARRAY_PUSH(request->joined, request->joined_count, request->joined_capacity) = message;
    return trp_message_data(message);
}

/* Decodes fields that lie in one part, to where one does not: small items are most of a message. */
static trp_status part_decode(struct assembler *assembler, struct wire_insert_request *request)
{
    struct reader reader = reader_of(assembler->rest.now);
    struct field field;
    while (read_field(&reader, &field)) {
        assembler->rest.now = (trp_bytes){reader.at, (size_t)(reader.end - reader.at)};
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

trp_status wire_insert_request_decode(const trp_bytes *parts, size_t count,
                                      struct wire_insert_request *request)
{
    struct assembler assembler = {spans_of(parts, count), insert_request_memory, request};
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

static void put_insert_request(struct writer *writer, const void *of)
{
    const struct wire_insert_request *request = of;
    const struct wire_lists *lists = &request->lists;
    put_keys(writer, 3, &request->keep);
    for (uint32_t i = lists->item_count; i-- > 0;)
        put_item(writer, 2, lists, &lists->items[i]);
    for (uint32_t i = lists->chunk_count; i-- > 0;)
        put_chunk(writer, 1, &lists->chunks[i]);
}

trp_status wire_insert_request_encode(const struct wire_insert_request *request,
                                      trp_message **message)
{
    return message_encode(put_insert_request, request, message);
}

void wire_insert_request_clear(struct wire_insert_request *request)
{
    wire_lists_clear(&request->lists);
    request->keep.count = 0;
    request->hello.size = 0;
    request->referenced_bytes = 0;
    while (request->joined_count > 0)
        trp_message_destroy(request->joined[--request->joined_count]);
}

void wire_insert_request_cleanup(struct wire_insert_request *request)
{
    wire_insert_request_clear(request);
    wire_lists_cleanup(&request->lists);
    wire_keys_cleanup(&request->keep);
    free(request->joined);
    free(request->visible);
    free(request->resolved);
    *request = (struct wire_insert_request){0};
}

void wire_insert_request_trim(struct wire_insert_request *request, size_t bytes)
{
    const struct wire_lists *lists = &request->lists;
    size_t taken = lists->chunk_capacity * sizeof *lists->chunks +
                   lists->item_capacity * sizeof *lists->items +
                   lists->column_capacity * sizeof *lists->columns +
                   lists->slice_capacity * sizeof *lists->slices +
                   request->keep.capacity * sizeof *request->keep.keys +
                   request->joined_capacity * sizeof *request->joined +
                   request->visible_capacity * sizeof *request->visible +
                   request->resolved_capacity * sizeof *request->resolved;
    if (taken > bytes)
        wire_insert_request_cleanup(request);
}

trp_status wire_insert_response_decode(trp_bytes bytes, struct wire_keys *keys)
{
    struct reader reader = reader_of(bytes);
    struct field field;
    trp_status status = TRP_OK;
    while (status == TRP_OK && read_field(&reader, &field))
        if (field.tag == TAG(1, LEN) || field.tag == TAG(1, VARINT))
            status = keys_decode(&field, keys);
    if (status == TRP_OK)
        status = reader_status(&reader);
    return decode_end("InsertStreamResponse", bytes.size, status);
}

static void put_insert_response(struct writer *writer, const void *of)
{
    put_keys(writer, 1, of);
}

trp_status wire_insert_response_encode(const struct wire_keys *keys, trp_message **message)
{
    return message_encode(put_insert_response, keys, message);
}

static void put_segment(struct writer *writer, const void *of)
{
    put_bytes_field(writer, SHM_SEGMENT_FIELD, *(const trp_bytes *)of);
}

trp_status wire_insert_segment_encode(trp_bytes description, trp_message **message)
{
    return message_encode(put_segment, &description, message);
}

trp_bytes wire_insert_segment_decode(trp_bytes bytes)
{
    struct reader reader = reader_of(bytes);
    struct field field;
    while (read_field(&reader, &field))
        if (field.tag == TAG(SHM_SEGMENT_FIELD, LEN))
            return field.bytes;
    return (trp_bytes){0};
}

/* ---- SampleStreamRequest ----------------------------------------------------------------- */

trp_status wire_sample_request_decode(trp_bytes bytes, struct wire_sample_request *request)
{
    struct reader reader = reader_of(bytes);
    struct field field;
    *request = (struct wire_sample_request){0};
    while (read_field(&reader, &field)) {
        if (field.tag == TAG(1, LEN)) {
            request->table = field.bytes;
        } else if (field.tag == TAG(2, VARINT)) {
            request->num_samples = (int64_t)field.value;
        } else if (field.tag == TAG(3, LEN)) {
            uint64_t timeout_ms = (uint64_t)request->timeout_ms;
            request->has_timeout = true;
            reader.malformed |= read_varints(field.bytes, &timeout_ms, 1) != TRP_OK;
            request->timeout_ms = (int64_t)timeout_ms;
        }
    }
    return decode_end("SampleStreamRequest", bytes.size, reader_status(&reader));
}

static void put_sample_request(struct writer *writer, const void *of)
{
    const struct wire_sample_request *request = of;
    if (request->has_timeout) {
        size_t end = writer_mark(writer);
        put_varint_field(writer, 1, (uint64_t)request->timeout_ms);
        put_len_header(writer, 3, end);
    }
    put_varint_field(writer, 2, (uint64_t)request->num_samples);
    put_bytes_field(writer, 1, request->table);
}

trp_status wire_sample_request_encode(const struct wire_sample_request *request,
                                      trp_message **message)
{
    return message_encode(put_sample_request, request, message);
}

/* ---- SampleStreamResponse ---------------------------------------------------------------- */

static trp_status info_decode(trp_bytes bytes, struct wire_sample_response *response,
                              struct wire_entry *entry)
{
    struct reader reader = reader_of(bytes);
    struct field field;
    entry->has_info = true;
    while (read_field(&reader, &field)) {
        if (field.tag == TAG(1, LEN)) {
            entry->item = response->lists.item_count;
            TRP_TRY(item_decode(field.bytes, &response->lists));
        } else if (field.tag == TAG(2, FIXED64))
            entry->draw.probability = bits_double(field.value);
        else if (field.tag == TAG(3, VARINT))
            entry->draw.table_size = (int64_t)field.value;
        else if (field.tag == TAG(4, VARINT))
            entry->draw.rate_limited = field.value != 0;
    }
    return reader_status(&reader);
}

static trp_status entry_decode(trp_bytes bytes, struct wire_sample_response *response)
{
    if (response->entry_count == MESSAGE_ITEMS_MAX)
        return TRP_RESOURCE_EXHAUSTED;
    struct wire_entry *entry =
        ARRAY_PUSH(response->entries, response->entry_count, response->entry_capacity);
    struct reader reader = reader_of(bytes);
    struct field field;
    *entry = (struct wire_entry){.chunk_first = response->lists.chunk_count};
    while (read_field(&reader, &field)) {
        if (field.tag == TAG(1, LEN))
            TRP_TRY(info_decode(field.bytes, response, entry));
        else if (field.tag == TAG(2, LEN))
            TRP_TRY(chunk_decode(field.bytes, &response->lists));
        else if (field.tag == TAG(3, VARINT))
            entry->end_of_sequence = field.value != 0;
    }
    entry->chunk_count = response->lists.chunk_count - entry->chunk_first;
    if (entry->has_info && entry->item == response->lists.item_count)
        return TRP_INVALID_ARGUMENT; /* info without an item */
    return reader_status(&reader);
}

trp_status wire_sample_response_decode(trp_bytes bytes, struct wire_sample_response *response)
{
    struct reader reader = reader_of(bytes);
    struct field field;
    trp_status status = TRP_OK;
    wire_lists_clear(&response->lists);
    response->entry_count = 0;
    while (status == TRP_OK && read_field(&reader, &field))
        if (field.tag == TAG(1, LEN))
            status = entry_decode(field.bytes, response);
    if (status == TRP_OK)
        status = reader_status(&reader);
    return decode_end("SampleStreamResponse", bytes.size, status);
}

void wire_sample_response_cleanup(struct wire_sample_response *response)
{
    wire_lists_cleanup(&response->lists);
    free(response->entries);
    *response = (struct wire_sample_response){0};
}

static inline __attribute__((always_inline)) void put_info(struct writer *writer,
                                                           const struct wire_entry_parts *parts)
{
    put_varint_field(writer, 4, parts->draw.rate_limited);
    put_varint_field(writer, 3, (uint64_t)parts->draw.table_size);
    put_double_field(writer, 2, parts->draw.probability);
    put_item(writer, 1, NULL, parts->item);
}

static inline __attribute__((always_inline)) void put_entry(struct writer *writer,
                                                            struct wire_entry_parts *parts)
{
    size_t entry_end = writer_mark(writer);
    put_varint_field(writer, 3, parts->end_of_sequence);
    for (uint32_t i = parts->slot_count; i-- > 0;) {
        struct wire_slot *slot = &parts->slots[i];
        size_t end = writer_mark(writer);
        slot->bytes = put_room(writer, slot->size - slot->elsewhere);
        writer->elsewhere += slot->elsewhere;
        put_varint_field(writer, 1, slot->key);
        put_len_header(writer, 2, end);
    }
    if (parts->item) {
        size_t end = writer_mark(writer);
        put_info(writer, parts);
        put_len_header(writer, 1, end);
    }
    put_len_header(writer, 1, entry_end);
}

struct entries {
    struct wire_entry_parts *parts;
    size_t count;
};

static inline __attribute__((always_inline)) void put_sample_response(struct writer *writer,
                                                                      const void *of)
{
    const struct entries *entries = of;
    for (size_t i = entries->count; i-- > 0;)
        put_entry(writer, &entries->parts[i]);
}

trp_status wire_sample_response_encode(struct wire_entry_parts *entries, size_t count,
                                       trp_message **message)
{
    return message_encode(put_sample_response, &(struct entries){entries, count}, message);
}

/* ---- MutatePrioritiesRequest ------------------------------------------------------------- */

struct wire_update *wire_push_update(struct wire_mutate_request *request)
{
    struct wire_update *update =
        ARRAY_PUSH(request->updates, request->update_count, request->update_capacity);
    *update = (struct wire_update){0};
    return update;
}

static trp_status update_decode(trp_bytes bytes, struct wire_mutate_request *request)
{
    if (request->update_count == MESSAGE_SLICES_MAX)
        return TRP_RESOURCE_EXHAUSTED;
    struct wire_update *update = wire_push_update(request);
    struct reader reader = reader_of(bytes);
    struct field field;
    while (read_field(&reader, &field)) {
        if (field.tag == TAG(1, VARINT))
            update->key = field.value;
        else if (field.tag == TAG(2, FIXED64))
            update->priority = bits_double(field.value);
    }
    return reader_status(&reader);
}

trp_status wire_mutate_request_decode(trp_bytes bytes, struct wire_mutate_request *request)
{
    struct reader reader = reader_of(bytes);
    struct field field;
    trp_status status = TRP_OK;
    request->table = (trp_bytes){0};
    request->update_count = request->deletes.count = 0;
    while (status == TRP_OK && read_field(&reader, &field)) {
        if (field.tag == TAG(1, LEN))
            request->table = field.bytes;
        else if (field.tag == TAG(2, LEN))
            status = update_decode(field.bytes, request);
        else if (field.tag == TAG(3, LEN) || field.tag == TAG(3, VARINT))
            status = keys_decode(&field, &request->deletes);
    }
    if (status == TRP_OK)
        status = reader_status(&reader);
    return decode_end("MutatePrioritiesRequest", bytes.size, status);
}

static void put_mutate_request(struct writer *writer, const void *of)
{
    const struct wire_mutate_request *request = of;
    put_keys(writer, 3, &request->deletes);
    for (uint32_t i = request->update_count; i-- > 0;) {
        size_t end = writer_mark(writer);
        put_double_field(writer, 2, request->updates[i].priority);
        put_varint_field(writer, 1, request->updates[i].key);
        put_len_header(writer, 2, end);
    }
    put_bytes_field(writer, 1, request->table);
}

trp_status wire_mutate_request_encode(const struct wire_mutate_request *request,
                                      trp_message **message)
{
    return message_encode(put_mutate_request, request, message);
}

void wire_mutate_request_cleanup(struct wire_mutate_request *request)
{
    free(request->updates);
    wire_keys_cleanup(&request->deletes);
    *request = (struct wire_mutate_request){0};
}

void wire_mutate_request_trim(struct wire_mutate_request *request, size_t bytes)
{
    size_t taken = request->update_capacity * sizeof *request->updates +
                   request->deletes.capacity * sizeof *request->deletes.keys;
    if (taken > bytes)
        wire_mutate_request_cleanup(request);
}
