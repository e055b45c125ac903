/* protobuf-c unpacks recursively and believes every number: a few hundred bytes nest deep enough
 * to end the stack, and two bytes of an empty submessage become a hundred in memory. So bytes from
 * outside are walked first, with an explicit stack of fixed depth, adding up the bytes that
 * unpacking would allocate. A message that passes can still be refused by protobuf-c, but not hurt.
 */
#include "wire.h"

#include <inttypes.h>

#include "core/limits.h"
#include "core/protobuf.h"

/* Bytes that malloc adds to each block, and protobuf-c's note of a field while it unpacks. */
enum { ALLOCATION_BYTES = 16, SCANNED_FIELD_BYTES = 40 };

struct level {
    const ProtobufCMessageDescriptor *descriptor;
    size_t end;
};

struct wire_walk {
    trp_bytes bytes;
    size_t at;
    uint64_t memory;
    struct level levels[MESSAGE_DEPTH_MAX];
    uint32_t depth;
};

static bool walk_varint(struct wire_walk *walk, size_t end, uint64_t *value)
{
    struct reader reader = {walk->bytes.data + walk->at, walk->bytes.data + end, false};
    bool read = read_varint(&reader, value);
    walk->at = (size_t)(reader.at - walk->bytes.data);
    return read;
}

static trp_status walk_broken(const struct wire_walk *walk, const char *what)
{
    return trp_fail(TRP_INVALID_ARGUMENT, "%s: %s at byte %zu of %zu",
                    walk->levels[0].descriptor->name, what, walk->at, walk->bytes.size);
}

static trp_status enter_message(struct wire_walk *walk,
                                const ProtobufCMessageDescriptor *descriptor, size_t end)
{
    if (walk->depth == MESSAGE_DEPTH_MAX)
        return walk_broken(walk, "nested too deep");
    walk->levels[walk->depth++] = (struct level){descriptor, end};
    walk->memory += descriptor->sizeof_message + ALLOCATION_BYTES;
    return TRP_OK;
}

/* Decoded size of `size` packed bytes: each element takes at least one on the wire. */
static uint64_t packed_memory(const ProtobufCFieldDescriptor *field, uint64_t size)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_UINT64:
        return size * 8;
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_ENUM:
    case PROTOBUF_C_TYPE_BOOL:
        return size * 4;
    default:
        return size;
    }
}

static trp_status walk_bytes(struct wire_walk *walk, const ProtobufCFieldDescriptor *field,
                             size_t end)
{
    uint64_t size;
    if (!walk_varint(walk, end, &size))
        return walk_broken(walk, "a length is cut off");
    if (size > end - walk->at)
        return walk_broken(walk, "a length goes beyond the end");
    size_t field_end = walk->at + (size_t)size;
    if (field && field->type == PROTOBUF_C_TYPE_MESSAGE)
        return enter_message(walk, field->descriptor, field_end);
    walk->memory += ALLOCATION_BYTES + (field ? packed_memory(field, size) : size);
    walk->at = field_end;
    return TRP_OK;
}

static trp_status walk_field(struct wire_walk *walk)
{
    const struct level *level = &walk->levels[walk->depth - 1];
    uint64_t key, value;
    if (!walk_varint(walk, level->end, &key) || key > UINT32_MAX || key >> 3 == 0)
        return walk_broken(walk, "bad field key");
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field(level->descriptor, (unsigned)(key >> 3));
    walk->memory += SCANNED_FIELD_BYTES;
    size_t fixed = 0;
    switch (key & 7) {
    case VARINT:
        return walk_varint(walk, level->end, &value) ? TRP_OK
                                                     : walk_broken(walk, "a number is cut off");
    case LEN:
        return walk_bytes(walk, field, level->end);
    case FIXED64:
        fixed = 8;
        break;
    case FIXED32:
        fixed = 4;
        break;
    default:
        return walk_broken(walk, "bad wire type");
    }
    if (fixed > level->end - walk->at)
        return walk_broken(walk, "a number is cut off");
    walk->at += fixed;
    return TRP_OK;
}

trp_status rpc_wire_too_much(const ProtobufCMessageDescriptor *descriptor, size_t bytes,
                             uint64_t memory_max)
{
    return trp_fail(TRP_RESOURCE_EXHAUSTED, "%s: %zu bytes take more than %" PRIu64 " decoded",
                    descriptor->name, bytes, memory_max);
}

trp_status rpc_wire_check(const ProtobufCMessageDescriptor *descriptor, trp_bytes bytes,
                          uint64_t memory_max)
{
    struct wire_walk walk;
    walk.bytes = bytes;
    walk.at = 0;
    walk.memory = 0;
    walk.depth = 0;
    TRP_TRY(enter_message(&walk, descriptor, bytes.size));
    while (walk.depth > 0) {
        if (walk.memory > memory_max)
            return rpc_wire_too_much(descriptor, bytes.size, memory_max);
        if (walk.at == walk.levels[walk.depth - 1].end)
            walk.depth--;
        else
            TRP_TRY(walk_field(&walk));
    }
    return TRP_OK;
}

trp_status rpc_wire_unpack(const ProtobufCMessageDescriptor *descriptor, trp_bytes bytes,
                           uint64_t memory_max, ProtobufCMessage **out)
{
    *out = NULL;
    TRP_TRY(rpc_wire_check(descriptor, bytes, memory_max));
    *out = protobuf_c_message_unpack(descriptor, NULL, bytes.size, bytes.data);
    if (!*out)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: %zu bytes that do not decode", descriptor->name,
                        bytes.size);
    return TRP_OK;
}

trp_status rpc_wire_pack(const ProtobufCMessage *message, trp_message **out)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    *out = trp_message_create(size);
    if (!*out)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "%s: no memory for %zu bytes",
                        message->descriptor->name, size);
    size_t packed = protobuf_c_message_pack(message, trp_message_data(*out));
    trp_message_truncate(*out, packed);
    return TRP_OK;
}
