/* Problem: an insert of 52 bytes travels in a message of 64 to 256 such items, and a microsecond is
 * all that one of them may cost; protobuf-c allocates for each of their thirty submessages.
 * Design: one decoder and one encoder a message, written out by hand next to each other. Decoders
 * push into arrays that are kept from message to message; encoders add up the size first and then
 * write from the end to the start (bytes.h).
 * Guarantee: bytes from a peer are never read outside their span, whatever they say, and what they
 * make us keep is bounded by MESSAGE_*_MAX. The bytes written are those that C++ protobuf writes:
 * fields ascending, repeated scalars packed, defaults left out. */
#include "wire.h"

#include <stdlib.h>

#include "parts.h"
#include "limits.h"

/* ---- shared by the decoders -------------------------------------------------------------- */

static trp_status keys_status(const struct wire_keys *keys)
{
    if (keys->count > MESSAGE_SLICES_MAX)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "a message of more than %d keys",
                        MESSAGE_SLICES_MAX);
    return TRP_OK;
}

/* Repeated varints come packed (LEN) or one by one. */
static trp_status keys_decode(const struct field *field, struct wire_keys *keys)
{
    if ((field->tag & 7) == VARINT) {
        wire_push_key(keys, field->value);
        return keys_status(keys);
    }
    struct reader reader = reader_of(field->bytes);
    uint64_t key;
    while (keys->count <= MESSAGE_SLICES_MAX && reader.at < reader.end &&
           read_varint(&reader, &key))
        wire_push_key(keys, key);
    TRP_TRY(keys_status(keys));
    return reader_status(&reader);
}

static size_t keys_content_size(const uint64_t *keys, size_t count)
{
    size_t size = 0;
    for (size_t i = 0; i < count; i++)
        size += varint_size(keys[i]);
    return size;
}

static void put_keys(struct writer *writer, uint32_t number, const uint64_t *keys, size_t count)
{
    if (count == 0)
        return;
    const uint8_t *end = writer->at;
    for (size_t i = count; i-- > 0;)
        put_varint(writer, keys[i]);
    put_len_header(writer, number, end);
}

/* A message of `size` bytes and a writer at its end. */
static trp_status encode_begin(size_t size, trp_message **message, struct writer *writer)
{
    *message = trp_message_create(size);
    if (!*message)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "no memory for a message of %zu bytes", size);
    writer->start = trp_message_data(*message);
    writer->at = writer->start + size;
    return TRP_OK;
}

static trp_status encode_end(const struct writer *writer)
{
    assert(writer->at == writer->start); /* the size and the writing agree */
    return TRP_OK;
}

/* ---- InsertStreamRequest ----------------------------------------------------------------- */

trp_status insert_request_field(const struct field *field, struct wire_insert_request *request)
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
    case TAG(INBOX_HELLO_FIELD, LEN):
        request->hello = field->bytes;
        return TRP_OK;
    default:
        return TRP_OK;
    }
}

trp_status wire_insert_request_decode(trp_bytes bytes, struct wire_insert_request *request)
{
    return wire_insert_request_decode_parts(&bytes, 1, request);
}

trp_status wire_insert_request_encode(const struct wire_insert_request *request,
                                      trp_message **message)
{
    const struct wire_lists *lists = &request->lists;
    size_t size = bytes_field_size(keys_content_size(request->keep.keys, request->keep.count));
    for (uint32_t i = 0; i < lists->chunk_count; i++)
        size += wire_chunk_size(&lists->chunks[i]);
    for (uint32_t i = 0; i < lists->item_count; i++)
        size += wire_item_size(lists, &lists->items[i]);

    struct writer writer = {0};
    TRP_TRY(encode_begin(size, message, &writer));
    put_keys(&writer, 3, request->keep.keys, request->keep.count);
    for (uint32_t i = lists->item_count; i-- > 0;)
        put_item(&writer, 2, lists, &lists->items[i]);
    for (uint32_t i = lists->chunk_count; i-- > 0;)
        put_chunk(&writer, 1, &lists->chunks[i]);
    return encode_end(&writer);
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
    bool lazy = lists->lazy;
    if (taken <= bytes)
        return;
    wire_insert_request_cleanup(request);
    request->lists.lazy = lazy;
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

trp_status wire_insert_response_encode(const uint64_t *keys, size_t count, trp_message **message)
{
    struct writer writer = {0};
    TRP_TRY(encode_begin(bytes_field_size(keys_content_size(keys, count)), message, &writer));
    put_keys(&writer, 1, keys, count);
    return encode_end(&writer);
}

trp_status wire_insert_inbox_encode(trp_bytes description, trp_message **message)
{
    struct writer writer = {0};
    size_t size = varint_size(TAG(INBOX_FIELD, LEN)) + varint_size(description.size);
    TRP_TRY(encode_begin(size + description.size, message, &writer));
    put_bytes_field(&writer, INBOX_FIELD, description);
    return encode_end(&writer);
}

trp_bytes wire_insert_inbox_decode(trp_bytes bytes)
{
    struct reader reader = reader_of(bytes);
    struct field field;
    while (read_field(&reader, &field))
        if (field.tag == TAG(INBOX_FIELD, LEN))
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
            struct reader timeout = reader_of(field.bytes);
            request->has_timeout = true;
            while (read_field(&timeout, &field))
                if (field.tag == TAG(1, VARINT))
                    request->timeout_ms = (int64_t)field.value;
            reader.malformed |= timeout.malformed;
        }
    }
    return decode_end("SampleStreamRequest", bytes.size, reader_status(&reader));
}

trp_status wire_sample_request_encode(const struct wire_sample_request *request,
                                      trp_message **message)
{
    size_t timeout = varint_field_size((uint64_t)request->timeout_ms);
    size_t size = bytes_field_size(request->table.size) +
                  varint_field_size((uint64_t)request->num_samples) +
                  (request->has_timeout ? len_field_size(timeout) : 0);
    struct writer writer = {0};
    TRP_TRY(encode_begin(size, message, &writer));
    if (request->has_timeout) {
        const uint8_t *end = writer.at;
        put_varint_field(&writer, 1, (uint64_t)request->timeout_ms);
        put_len_header(&writer, 3, end);
    }
    put_varint_field(&writer, 2, (uint64_t)request->num_samples);
    put_bytes_field(&writer, 1, request->table);
    return encode_end(&writer);
}

/* ---- SampleStreamResponse ---------------------------------------------------------------- */

static struct wire_entry *push_entry(struct wire_sample_response *response)
{
    void *out;
    response->entries = array_push(response->entries, &response->entry_count,
                                   &response->entry_capacity, sizeof *response->entries, &out);
    return out;
}

static trp_status info_decode(trp_bytes bytes, struct wire_sample_response *response,
                              struct wire_entry *entry)
{
    struct reader reader = reader_of(bytes);
    struct field field;
    entry->has_info = true;
    while (read_field(&reader, &field)) {
        switch (field.tag) {
        case TAG(1, LEN):
            entry->item = response->lists.item_count;
            TRP_TRY(item_decode(field.bytes, &response->lists));
            break;
        case TAG(2, FIXED64):
            entry->draw.probability = bits_double(field.value);
            break;
        case TAG(3, VARINT):
            entry->draw.table_size = (int64_t)field.value;
            break;
        case TAG(4, VARINT):
            entry->draw.rate_limited = field.value != 0;
            break;
        default:
            break;
        }
    }
    return reader_status(&reader);
}

static trp_status entry_decode(trp_bytes bytes, struct wire_sample_response *response)
{
    if (response->entry_count == MESSAGE_ITEMS_MAX)
        return TRP_RESOURCE_EXHAUSTED;
    struct wire_entry *entry = push_entry(response);
    struct reader reader = reader_of(bytes);
    struct field field;
    entry->chunk_first = response->lists.chunk_count;
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

static size_t info_content_size(const struct wire_entry_parts *parts)
{
    return len_field_size(item_content_size(parts->item, parts->trajectory.size)) +
           double_field_size(parts->draw.probability) +
           varint_field_size((uint64_t)parts->draw.table_size) +
           varint_field_size(parts->draw.rate_limited);
}

static void put_info(struct writer *writer, const struct wire_entry_parts *parts)
{
    put_varint_field(writer, 4, parts->draw.rate_limited);
    put_varint_field(writer, 3, (uint64_t)parts->draw.table_size);
    put_double_field(writer, 2, parts->draw.probability);
    const uint8_t *end = writer->at;
    put_bytes(writer, parts->trajectory);
    put_len_header(writer, 8, end);
    put_item_head(writer, parts->item);
    put_len_header(writer, 1, end);
}

static size_t entry_content_size(const struct wire_entry_parts *parts)
{
    size_t size = varint_field_size(parts->end_of_sequence);
    if (parts->item)
        size += len_field_size(info_content_size(parts));
    for (uint32_t i = 0; i < parts->slot_count; i++)
        size += len_field_size(varint_field_size(parts->slots[i].key) + parts->slots[i].size);
    return size;
}

size_t wire_entry_size(const struct wire_entry_parts *parts)
{
    return len_field_size(entry_content_size(parts));
}

static void put_entry(struct writer *writer, struct wire_entry_parts *parts)
{
    const uint8_t *entry_end = writer->at;
    size_t elsewhere = 0;
    put_varint_field(writer, 3, parts->end_of_sequence);
    for (uint32_t i = parts->slot_count; i-- > 0;) {
        struct wire_slot *slot = &parts->slots[i];
        const uint8_t *end = writer->at;
        slot->bytes = put_room(writer, slot->size - slot->elsewhere);
        put_varint_field(writer, 1, slot->key);
        put_len(writer, 2, (size_t)(end - writer->at) + slot->elsewhere);
        elsewhere += slot->elsewhere;
    }
    if (parts->item) {
        const uint8_t *end = writer->at;
        put_info(writer, parts);
        put_len_header(writer, 1, end);
    }
    put_len(writer, 1, (size_t)(entry_end - writer->at) + elsewhere);
}

trp_status wire_sample_response_encode(struct wire_entry_parts *entries, size_t count,
                                       trp_message **message)
{
    size_t size = 0;
    for (size_t i = 0; i < count; i++) {
        size += wire_entry_size(&entries[i]);
        for (uint32_t j = 0; j < entries[i].slot_count; j++)
            size -= entries[i].slots[j].elsewhere;
    }
    struct writer writer = {0};
    TRP_TRY(encode_begin(size, message, &writer));
    for (size_t i = count; i-- > 0;)
        put_entry(&writer, &entries[i]);
    return encode_end(&writer);
}

/* ---- MutatePrioritiesRequest ------------------------------------------------------------- */

struct wire_update *wire_push_update(struct wire_mutate_request *request)
{
    void *out;
    request->updates = array_push(request->updates, &request->update_count,
                                  &request->update_capacity, sizeof *request->updates, &out);
    return out;
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

static size_t update_size(const struct wire_update *update)
{
    return varint_field_size(update->key) + double_field_size(update->priority);
}

trp_status wire_mutate_request_encode(const struct wire_mutate_request *request,
                                      trp_message **message)
{
    const struct wire_keys *deletes = &request->deletes;
    size_t size = bytes_field_size(request->table.size) +
                  bytes_field_size(keys_content_size(deletes->keys, deletes->count));
    for (uint32_t i = 0; i < request->update_count; i++)
        size += len_field_size(update_size(&request->updates[i]));
    struct writer writer = {0};
    TRP_TRY(encode_begin(size, message, &writer));
    put_keys(&writer, 3, deletes->keys, deletes->count);
    for (uint32_t i = request->update_count; i-- > 0;) {
        const uint8_t *end = writer.at;
        put_double_field(&writer, 2, request->updates[i].priority);
        put_varint_field(&writer, 1, request->updates[i].key);
        put_len_header(&writer, 2, end);
    }
    put_bytes_field(&writer, 1, request->table);
    return encode_end(&writer);
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
