/* A long message comes in many slices of gRPC's. To join them, and then to have protobuf-c copy the
 * bytes again, is half of what such a message costs, in memory that is new each time. So its long
 * bytes, of the outermost message, go from the slices to where they stay, which may be where who
 * asked for them has its numbers; all the rest is short, and is joined, checked and unpacked as any
 * message. Of a field that comes again the last one counts, as everywhere: those before it are of
 * the rest.
 *
 * On the way out long bytes that stay as they are for long enough are parts of the message where
 * they lie. */
#include "wire.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/protobuf.h"
#include "limits.h"

enum { LONG_FIELDS_MAX = 8 };

struct long_field {
    const ProtobufCFieldDescriptor *field;
    size_t begin, at; /* of its key, of its bytes */
    ProtobufCBinaryData bytes;
    bool in_room; /* they are the caller's */
};

struct parts_walk {
    const ProtobufCMessageDescriptor *descriptor;
    const trp_bytes *parts;
    size_t part, in_part; /* the next byte */
    size_t at, size;      /* of the whole */
    struct long_field fields[LONG_FIELDS_MAX];
    size_t field_count, long_bytes;
    size_t rest; /* bytes that are not long fields */
    trp_reply_room *room;
    const ProtobufCFieldDescriptor *room_field; /* NULL: none */
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

static void forget_field(struct parts_walk *walk, const ProtobufCFieldDescriptor *field)
{
    struct long_field *noted = walk->fields, *end = walk->fields + walk->field_count;
    while (noted < end && noted->field != field)
        noted++;
    if (noted == end)
        return;
    walk->long_bytes -= noted->bytes.len;
    walk->rest += noted->at + noted->bytes.len - noted->begin;
    walk->field_count--;
    memmove(noted, noted + 1, (size_t)(end - noted - 1) * sizeof *noted);
}

static void note_long(struct parts_walk *walk, uint64_t key, size_t begin, size_t size)
{
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field(walk->descriptor, (unsigned)(key >> 3));
    forget_field(walk, field);
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
        if (!walk->fields[i].in_room)
            free(walk->fields[i].bytes.data);
}

static uint8_t *long_field_memory(struct parts_walk *walk, struct long_field *field)
{
    field->in_room = field->field == walk->room_field && field->bytes.len <= walk->room->size;
    return field->in_room ? walk->room->bytes : malloc(field->bytes.len);
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
        field->bytes.data = long_field_memory(walk, field);
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
        if (field->field == walk->room_field)
            walk->room->given = field->in_room ? field->bytes.len : 0;
        *bytes = field->in_room ? (ProtobufCBinaryData){0} : field->bytes;
        field->bytes.data = NULL;
    }
}

static trp_status unpack_parts(struct parts_walk *walk, struct rpc_allowance *allowance,
                               ProtobufCMessage **out)
{
    TRP_TRY(walk_outermost(walk));
    TRP_TRY(rpc_wire_take(walk->descriptor, walk->size, walk->size, allowance));
    uint8_t *rest = malloc(walk->rest + 1);
    if (!rest)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "%s: no memory for %zu bytes",
                        walk->descriptor->name, walk->rest);
    trp_status status = copy_parts(walk, rest);
    if (status == TRP_OK)
        status = rpc_wire_unpack(walk->descriptor, (trp_bytes){rest, walk->rest}, allowance, out);
    if (status == TRP_OK)
        put_long_fields(walk, *out);
    long_fields_free(walk);
    free(rest);
    return status;
}

trp_status rpc_wire_unpack_message(const ProtobufCMessageDescriptor *descriptor,
                                   trp_message *message, struct rpc_allowance *allowance,
                                   trp_reply_room *room, ProtobufCMessage **out)
{
    *out = NULL;
    const trp_bytes *parts;
    size_t count = trp_message_parts(message, &parts);
    if (count == 1 && !room)
        return rpc_wire_unpack(descriptor, parts[0], allowance, out);
    struct parts_walk walk;
    walk.descriptor = descriptor;
    walk.parts = parts;
    walk.room = room;
    walk.room_field =
        room ? protobuf_c_message_descriptor_get_field_by_name(descriptor, room->field) : NULL;
    walk.part = walk.in_part = walk.at = walk.field_count = walk.long_bytes = 0;
    walk.size = trp_message_size(message);
    return unpack_parts(&walk, allowance, out);
}

/* ---- on the way out -------------------------------------------------------------------------- */

enum { HEAD_BYTES_MAX = 5 + 10 }; /* a key, a length */

/* Within what is lent, and long. */
static bool is_lent(const ProtobufCFieldDescriptor *field, const ProtobufCBinaryData *bytes,
                    trp_bytes lent)
{
    uintptr_t begin = (uintptr_t)bytes->data, first = (uintptr_t)lent.data;
    return is_plain_bytes(field) && bytes->len >= RPC_LONG_BYTES_MIN && begin >= first &&
           begin - first <= lent.size && bytes->len <= lent.size - (begin - first);
}

/* The fields of `copy` that are lent, which it has not got any more. */
static size_t take_lent_fields(ProtobufCMessage *copy, trp_bytes lent, struct long_field *fields)
{
    const ProtobufCMessageDescriptor *descriptor = copy->descriptor;
    size_t count = 0;
    for (unsigned i = 0; i < descriptor->n_fields && count < LONG_FIELDS_MAX; i++) {
        const ProtobufCFieldDescriptor *field = &descriptor->fields[i];
        void *member = (uint8_t *)copy + field->offset;
        ProtobufCBinaryData *bytes = member;
        if (!is_plain_bytes(field) || !is_lent(field, bytes, lent))
            continue;
        fields[count++] = (struct long_field){.field = field, .bytes = *bytes};
        *bytes = (ProtobufCBinaryData){0};
    }
    return count;
}

static size_t put_head(uint8_t *to, const struct long_field *field)
{
    uint8_t *end = varint_write(to, (uint64_t)field->field->id << 3 | LEN);
    return (size_t)(varint_write(end, field->bytes.len) - to);
}

/* First comes all that is not lent, then for each field its head, which is the message's own, and
 * its bytes, which lie elsewhere. */
static trp_message *message_with_lent(const ProtobufCMessage *rest, const struct long_field *fields,
                                      size_t count, const struct rpc_lent *lent)
{
    size_t rest_bytes = protobuf_c_message_get_packed_size(rest);
    size_t parts_bytes = 2 * count * sizeof(trp_bytes);
    trp_message *message = trp_message_create(parts_bytes + rest_bytes + count * HEAD_BYTES_MAX);
    if (!message)
        return NULL;
    trp_bytes *parts = (trp_bytes *)(void *)trp_message_data(message);
    uint8_t *own = trp_message_data(message) + parts_bytes;
    size_t own_bytes = protobuf_c_message_pack(rest, own);
    for (size_t i = 0; i < count; i++) {
        own_bytes += put_head(own + own_bytes, &fields[i]);
        parts[2 * i] = (trp_bytes){own, own_bytes};
        parts[2 * i + 1] = (trp_bytes){fields[i].bytes.data, fields[i].bytes.len};
        own += own_bytes;
        own_bytes = 0;
    }
    trp_message_set_parts(message, parts, 2 * count, lent->done, lent->arg);
    return message;
}

trp_status rpc_wire_pack_lent(const ProtobufCMessage *message, struct rpc_lent *lent,
                              trp_message **out)
{
    if (!lent->done)
        return rpc_wire_pack(message, out);
    struct long_field fields[LONG_FIELDS_MAX];
    ProtobufCMessage *rest = xmemdup(message, message->descriptor->sizeof_message);
    size_t count = take_lent_fields(rest, lent->bytes, fields);
    *out = count > 0 ? message_with_lent(rest, fields, count, lent) : NULL;
    free(rest);
    if (count == 0)
        return rpc_wire_pack(message, out);
    if (!*out)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "%s: no memory for a message",
                        message->descriptor->name);
    lent->done = NULL;
    return TRP_OK;
}
