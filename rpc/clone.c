/* A local caller owns its reply as if it had been unpacked, so replies are copied by their
 * descriptor: one block for the struct, one for each string, bytes, array and submessage, shared
 * only where protobuf-c's free function leaves a pointer alone (defaults, static empty strings). */
#include "wire.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"

static void *copy_block(const void *from, size_t size)
{
    void *copy = xmalloc(size ? size : 1);
    memcpy(copy, from, size);
    return copy;
}

static size_t element_size(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return 8;
    case PROTOBUF_C_TYPE_BOOL:
        return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    default:
        return 4;
    }
}

/* `value` was copied with its struct or array and still points at the original's memory. */
static void own_value(const ProtobufCFieldDescriptor *field, void *value, const void *fallback)
{
    if (field->type == PROTOBUF_C_TYPE_STRING) {
        char **text = value;
        if (*text && *text != fallback)
            *text = xstrdup(*text);
    } else if (field->type == PROTOBUF_C_TYPE_BYTES) {
        ProtobufCBinaryData *bytes = value;
        const ProtobufCBinaryData *initial = fallback;
        if (bytes->data && !(initial && initial->data == bytes->data))
            bytes->data = copy_block(bytes->data, bytes->len);
    } else if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
        ProtobufCMessage **message = value;
        if (*message && *message != fallback)
            *message = rpc_wire_clone(*message);
    }
}

static void own_repeated(const ProtobufCFieldDescriptor *field, uint8_t *message)
{
    size_t count = *(size_t *)(message + field->quantifier_offset);
    uint8_t **array = (uint8_t **)(message + field->offset);
    size_t size = element_size(field->type);
    if (count == 0) {
        *array = NULL;
        return;
    }
    *array = copy_block(*array, count * size);
    for (size_t i = 0; i < count; i++)
        own_value(field, *array + i * size, NULL);
}

static void own_unknown(ProtobufCMessage *message)
{
    if (message->n_unknown_fields == 0) {
        message->unknown_fields = NULL;
        return;
    }
    message->unknown_fields = copy_block(
        message->unknown_fields, message->n_unknown_fields * sizeof *message->unknown_fields);
    for (unsigned i = 0; i < message->n_unknown_fields; i++) {
        ProtobufCMessageUnknownField *field = &message->unknown_fields[i];
        field->data = copy_block(field->data, field->len);
    }
}

static bool has_own_memory(const ProtobufCFieldDescriptor *field)
{
    return field->label == PROTOBUF_C_LABEL_REPEATED || field->type == PROTOBUF_C_TYPE_STRING ||
           field->type == PROTOBUF_C_TYPE_BYTES || field->type == PROTOBUF_C_TYPE_MESSAGE;
}

/* A oneof's pointers share their place: only the one in use is a pointer. */
static bool is_in_use(const ProtobufCFieldDescriptor *field, const uint8_t *message)
{
    if (!(field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF))
        return true;
    return *(const uint32_t *)(message + field->quantifier_offset) == field->id;
}

ProtobufCMessage *rpc_wire_clone(const ProtobufCMessage *message)
{
    const ProtobufCMessageDescriptor *descriptor = message->descriptor;
    ProtobufCMessage *copy = copy_block(message, descriptor->sizeof_message);
    uint8_t *base = (uint8_t *)copy;
    for (unsigned i = 0; i < descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &descriptor->fields[i];
        if (!has_own_memory(field) || !is_in_use(field, base))
            continue;
        if (field->label == PROTOBUF_C_LABEL_REPEATED)
            own_repeated(field, base);
        else
            own_value(field, base + field->offset, field->default_value);
    }
    own_unknown(copy);
    return copy;
}
