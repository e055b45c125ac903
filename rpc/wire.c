/* protobuf-c unpacks recursively and believes every number: a few hundred bytes nest deep enough
 * to end the stack, and two bytes of an empty submessage become a hundred in memory. So bytes from
 * outside are walked first, with an explicit stack of fixed depth, adding up the bytes that
 * unpacking would allocate. A message that passes can still be refused by protobuf-c, but not hurt.
 */
#include "wire.h"

#include <inttypes.h>

#include "core/limits.h"
#include "core/protobuf.h"
#include "message.h"

enum {
    /* protobuf-c's note of a field while it unpacks, 32 bytes in blocks each twice the one before,
     * and the field's place among others of its number: 24 bytes of one that nobody knows. */
    FIELD_BYTES = 2 * 32 + 32,
    /* A number that nobody knows is kept as it came. */
    UNKNOWN_NUMBER_BYTES = 10,
};

/* At least what malloc takes for `size` bytes: its own 8, rounded to 16, 32 in all at least; of
 * long ones a page that is not full. */
static uint64_t block_bytes(uint64_t size)
{
    return size + size / 32 + 32;
}

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
    walk->memory += block_bytes(descriptor->sizeof_message);
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
    walk->memory += block_bytes(field ? packed_memory(field, size) : size);
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
    walk->memory += FIELD_BYTES;
    if (!field && (key & 7) != LEN)
        walk->memory += block_bytes(UNKNOWN_NUMBER_BYTES);
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

trp_status rpc_wire_take(const ProtobufCMessageDescriptor *descriptor, size_t bytes,
                         uint64_t memory, struct rpc_allowance *allowance)
{
    struct rpc_budget *budget = allowance->budget;
    if (memory > allowance->most - allowance->taken)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "%s: %zu bytes take more than %" PRIu64 " decoded",
                        descriptor->name, bytes, allowance->most);
    if (budget && !rpc_budget_take(budget, memory, budget->limit))
        return trp_fail(TRP_UNAVAILABLE,
                        "%s: %zu bytes take %" PRIu64
                        " decoded, more than others leave of %" PRIu64,
                        descriptor->name, bytes, memory, budget->limit);
    allowance->taken += memory;
    return TRP_OK;
}

/* walk->memory is the most that unpacking takes then, or more than `memory_max`. */
static trp_status walk_message(struct wire_walk *walk, uint64_t memory_max)
{
    while (walk->depth > 0 && walk->memory <= memory_max) {
        if (walk->at == walk->levels[walk->depth - 1].end)
            walk->depth--;
        else
            TRP_TRY(walk_field(walk));
    }
    return TRP_OK;
}

trp_status rpc_wire_unpack(const ProtobufCMessageDescriptor *descriptor, trp_bytes bytes,
                           struct rpc_allowance *allowance, ProtobufCMessage **out)
{
    struct wire_walk walk;
    *out = NULL;
    walk.bytes = bytes;
    walk.at = 0;
    walk.memory = 0;
    walk.depth = 0;
    TRP_TRY(enter_message(&walk, descriptor, bytes.size));
    TRP_TRY(walk_message(&walk, allowance->most - allowance->taken));
    TRP_TRY(rpc_wire_take(descriptor, bytes.size, walk.memory, allowance));
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
