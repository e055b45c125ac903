/* A long message comes in many slices of gRPC's. To join them, and then to have protobuf-c copy the
 * bytes again, is half of what such a message costs, in memory that is new each time. So its long
 * bytes, of the outermost message, go from the slices to where they stay; all the rest is short,
 * and is joined, checked and unpacked as any message. Of a field that comes twice, against the
 * rules for who writes, the long one counts. */
#include "wire.h"

#include <stdlib.h>
#include <string.h>

#include "core/protobuf.h"
#include "limits.h"

enum { LONG_FIELDS_MAX = 8 };

struct long_field {
    const ProtobufCFieldDescriptor *field;
    size_t begin, at; /* of its key, of its bytes */
    ProtobufCBinaryData bytes;
};

struct parts_walk {
    const ProtobufCMessageDescriptor *descriptor;
    const trp_bytes *parts;
    size_t part, in_part; /* the next byte */
    size_t at, size;      /* of the whole */
    struct long_field fields[LONG_FIELDS_MAX];
    size_t field_count, long_bytes;
    size_t rest; /* bytes that are not long fields */
};

static trp_status parts_broken(const struct parts_walk *walk)
{
    return trp_fail(TRP_INVALID_ARGUMENT, "%s: a field is cut off at byte %zu of %zu",
                    walk->descriptor->name, walk->at, walk->size);
}

/* Goes on by `size`, which are there. `to` gets them; NULL: nobody does. */
static void parts_take(struct parts_walk *walk, size_t size, uint8_t *to)
{
    walk->at += size;
    while (size > 0) {
        const trp_bytes *part = &walk->parts[walk->part];
        size_t left = part->size - walk->in_part, now = size < left ? size : left;
        if (to && now > 0) {
            memcpy(to, part->data + walk->in_part, now);
            to += now;
        }
        size -= now;
        walk->in_part += now;
        if (walk->in_part == part->size) {
            walk->part++;
            walk->in_part = 0;
        }
    }
}

static bool parts_varint(struct parts_walk *walk, uint64_t *value)
{
    uint8_t byte;
    *value = 0;
    for (unsigned shift = 0; shift < 64 && walk->at < walk->size; shift += 7) {
        parts_take(walk, 1, &byte);
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return true;
    }
    return false;
}

static bool is_plain_bytes(const ProtobufCFieldDescriptor *field)
{
    return field && field->type == PROTOBUF_C_TYPE_BYTES && field->label == PROTOBUF_C_LABEL_NONE &&
           !field->default_value && !(field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF);
}

static void note_long(struct parts_walk *walk, uint64_t key, size_t begin, size_t size)
{
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field(walk->descriptor, (unsigned)(key >> 3));
    if (size < RPC_LONG_BYTES_MIN || walk->field_count == LONG_FIELDS_MAX || !is_plain_bytes(field))
        return;
    walk->fields[walk->field_count++] =
        (struct long_field){.field = field, .begin = begin, .at = walk->at, .bytes.len = size};
    walk->long_bytes += size;
    walk->rest -= walk->at + size - begin;
}

static trp_status walk_outermost(struct parts_walk *walk)
{
    walk->rest = walk->size;
    while (walk->at < walk->size) {
        size_t begin = walk->at;
        uint64_t key, size = 0;
        bool read = parts_varint(walk, &key) && key <= UINT32_MAX;
        if (read && ((key & 7) == VARINT || (key & 7) == LEN))
            read = parts_varint(walk, &size);
        if (!read)
            return parts_broken(walk);
        if ((key & 7) == VARINT)
            continue;
        if ((key & 7) != LEN)
            size = (key & 7) == FIXED64 ? 8 : 4;
        if (size > walk->size - walk->at)
            return parts_broken(walk);
        if ((key & 7) == LEN)
            note_long(walk, key, begin, (size_t)size);
        parts_take(walk, (size_t)size, NULL);
    }
    return TRP_OK;
}

static void long_fields_free(struct parts_walk *walk)
{
    for (size_t i = 0; i < walk->field_count; i++)
        free(walk->fields[i].bytes.data);
}

/* From the beginning again: `rest` gets all that is not long. */
static trp_status copy_parts(struct parts_walk *walk, uint8_t *rest)
{
    walk->part = walk->in_part = walk->at = 0;
    for (size_t i = 0; i < walk->field_count; i++) {
        struct long_field *field = &walk->fields[i];
        size_t before = field->begin - walk->at;
        parts_take(walk, before, rest);
        rest += before;
        parts_take(walk, field->at - field->begin, NULL);
        field->bytes.data = malloc(field->bytes.len);
        if (!field->bytes.data)
            return trp_fail(TRP_RESOURCE_EXHAUSTED, "%s: no memory for %zu bytes of '%s'",
                            walk->descriptor->name, field->bytes.len, field->field->name);
        parts_take(walk, field->bytes.len, field->bytes.data);
    }
    parts_take(walk, walk->size - walk->at, rest);
    return TRP_OK;
}

static void put_long_fields(struct parts_walk *walk, ProtobufCMessage *message)
{
    for (size_t i = 0; i < walk->field_count; i++) {
        struct long_field *field = &walk->fields[i];
        void *member = (uint8_t *)message + field->field->offset;
        ProtobufCBinaryData *bytes = member;
        free(bytes->data);
        *bytes = field->bytes;
        field->bytes.data = NULL;
    }
}

static trp_status unpack_parts(struct parts_walk *walk, uint64_t memory_max, ProtobufCMessage **out)
{
    TRP_TRY(walk_outermost(walk));
    if (walk->long_bytes > memory_max)
        return rpc_wire_too_much(walk->descriptor, walk->size, memory_max);
    uint8_t *rest = malloc(walk->rest + 1);
    if (!rest)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "%s: no memory for %zu bytes",
                        walk->descriptor->name, walk->rest);
    trp_status status = copy_parts(walk, rest);
    if (status == TRP_OK)
        status = rpc_wire_unpack(walk->descriptor, (trp_bytes){rest, walk->rest},
                                 memory_max - walk->long_bytes, out);
    if (status == TRP_OK)
        put_long_fields(walk, *out);
    long_fields_free(walk);
    free(rest);
    return status;
}

trp_status rpc_wire_unpack_message(const ProtobufCMessageDescriptor *descriptor,
                                   trp_message *message, uint64_t memory_max,
                                   ProtobufCMessage **out)
{
    *out = NULL;
    const trp_bytes *parts;
    size_t count = trp_message_parts(message, &parts);
    if (count == 1)
        return rpc_wire_unpack(descriptor, parts[0], memory_max, out);
    struct parts_walk walk;
    walk.descriptor = descriptor;
    walk.parts = parts;
    walk.part = walk.in_part = walk.at = walk.field_count = walk.long_bytes = 0;
    walk.size = trp_message_size(message);
    return unpack_parts(&walk, memory_max, out);
}
