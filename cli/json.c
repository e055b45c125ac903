/* Problem: some twenty messages have to be shown as JSON without a second description of each.
 * Design: protobuf-c's descriptors name and type every field, so one walk prints any message. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/printable.h"
#include "core/utf8.h"
#include "core/words.h"
#include "json.h"

void json_add_i64(cJSON *object, const char *name, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    cJSON_AddRawToObject(object, name, text);
}

void json_add_key(cJSON *object, const char *name, uint64_t key)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, key);
    cJSON_AddStringToObject(object, name, text);
}

cJSON *json_number(double value)
{
    if (isnan(value))
        return cJSON_CreateString("NaN");
    if (isinf(value))
        return cJSON_CreateString(value > 0 ? "Infinity" : "-Infinity");
    char text[DECIMAL_BYTES];
    return cJSON_CreateRaw(double_decimal(value, text)); /* its own text may lose the last bit */
}

bool json_read_number(const cJSON *json, double *value)
{
    const struct {
        const char *text;
        double value;
    } texts[] = {{"NaN", NAN}, {"Infinity", INFINITY}, {"-Infinity", -INFINITY}};
    const char *text = cJSON_GetStringValue(json);
    for (size_t i = 0; text && i < sizeof texts / sizeof *texts; i++)
        if (strcmp(text, texts[i].text) == 0) {
            *value = texts[i].value;
            return true;
        }
    if (cJSON_IsNumber(json))
        *value = json->valuedouble;
    return cJSON_IsNumber(json);
}

/* ---- base64 (RFC 4648) ------------------------------------------------------------------- */

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

cJSON *json_base64(trp_bytes bytes)
{
    char *text = xmalloc(bytes.size / 3 * 4 + 5), *out = text;
    for (size_t i = 0; i < bytes.size; i += 3) {
        size_t left = bytes.size - i;
        uint32_t group = (uint32_t)bytes.data[i] << 16;
        group |= left > 1 ? (uint32_t)bytes.data[i + 1] << 8 : 0;
        group |= left > 2 ? bytes.data[i + 2] : 0;
        *out++ = digits[group >> 18];
        *out++ = digits[group >> 12 & 63];
        *out++ = left > 1 ? digits[group >> 6 & 63] : '=';
        *out++ = left > 2 ? digits[group & 63] : '=';
    }
    *out = '\0';
    cJSON *json = cJSON_CreateString(text);
    free(text);
    return json;
}

bool base64_decode(char *text, trp_bytes *bytes)
{
    uint8_t *out = (uint8_t *)text;
    size_t size = strlen(text), padding = 0;
    while (padding < 2 && padding < size && text[size - 1 - padding] == '=')
        padding++;
    if (size % 4 != 0)
        return false;
    for (size_t i = 0; i < size; i += 4) {
        uint32_t group = 0;
        for (size_t j = 0; j < 4; j++) {
            const char *digit = i + j < size - padding ? strchr(digits, text[i + j]) : digits;
            if (!digit || !*digit)
                return false;
            group = group << 6 | (uint32_t)(digit - digits);
        }
        *out++ = (uint8_t)(group >> 16);
        *out++ = (uint8_t)(group >> 8);
        *out++ = (uint8_t)group;
    }
    *bytes = (trp_bytes){(const uint8_t *)text, size / 4 * 3 - padding};
    return true;
}

cJSON *json_bytes(trp_bytes bytes)
{
    if (!utf8_is_text(bytes) || (bytes.size > 0 && memchr(bytes.data, 0, bytes.size))) {
        cJSON *out = cJSON_CreateObject();
        cJSON_AddItemToObject(out, "base64", json_base64(bytes));
        return out;
    }
    char *text = xcalloc(1, bytes.size + 1);
    if (bytes.size > 0)
        memcpy(text, bytes.data, bytes.size);
    cJSON *out = cJSON_CreateString(text);
    free(text);
    return out;
}

bool json_read_bytes(const cJSON *json, trp_bytes *bytes)
{
    const char *text = cJSON_GetStringValue(json);
    if (text)
        *bytes = (trp_bytes){(const uint8_t *)text, strlen(text)};
    char *coded = cJSON_GetStringValue(cJSON_GetObjectItem(json, "base64"));
    return text || (coded && base64_decode(coded, bytes));
}

/* ---- messages ---------------------------------------------------------------------------- */

static cJSON *integer(const char *format_text)
{
    return cJSON_CreateRaw(format_text);
}

static bool is_key(const char *name)
{
    return strcmp(name, "key") == 0 || strcmp(name, "keys") == 0 ||
           strcmp(name, "damaged_keys") == 0;
}

static cJSON *u64_json(const char *name, uint64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, value);
    return is_key(name) ? cJSON_CreateString(text) : integer(text);
}

static cJSON *i64_json(int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    return integer(text);
}

static cJSON *enum_json(const ProtobufCFieldDescriptor *field, int value)
{
    const ProtobufCEnumValue *known =
        protobuf_c_enum_descriptor_get_value(field->descriptor, value);
    return known ? cJSON_CreateString(known->name) : i64_json(value);
}

static size_t member_size(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return 8;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    default:
        return 4; /* protobuf_c_boolean is an int */
    }
}

/* A rate limiter without a limit has -DBL_MAX or DBL_MAX, which is not a number to reckon with. */
static cJSON *limit_json(double value)
{
    return fabs(value) == DBL_MAX ? cJSON_CreateNull() : json_number(value);
}

/* The value at `at`, which is of the field's type; NULL: a message that is absent. */
static cJSON *value_json(const ProtobufCFieldDescriptor *field, const void *at)
{
    const ProtobufCMessage *message;
    const ProtobufCBinaryData *bytes;
    const char *text;
    switch (field->type) {
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        return i64_json(*(const int64_t *)at);
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        return u64_json(field->name, *(const uint64_t *)at);
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        return i64_json(*(const uint32_t *)at);
    case PROTOBUF_C_TYPE_FLOAT:
        return json_number((double)*(const float *)at);
    case PROTOBUF_C_TYPE_DOUBLE:
        return limit_json(*(const double *)at);
    case PROTOBUF_C_TYPE_BOOL:
        return cJSON_CreateBool(*(const protobuf_c_boolean *)at);
    case PROTOBUF_C_TYPE_ENUM:
        return enum_json(field, *(const int *)at);
    case PROTOBUF_C_TYPE_STRING:
        text = *(const char *const *)at;
        return cJSON_CreateString(text ? text : "");
    case PROTOBUF_C_TYPE_BYTES:
        bytes = at;
        return json_base64((trp_bytes){bytes->data, bytes->len});
    case PROTOBUF_C_TYPE_MESSAGE:
        message = *(const ProtobufCMessage *const *)at;
        return message ? json_message(message) : NULL;
    default:
        return i64_json(*(const int32_t *)at);
    }
}

cJSON *json_message(const ProtobufCMessage *message)
{
    const ProtobufCMessageDescriptor *descriptor = message->descriptor;
    cJSON *out = cJSON_CreateObject();
    for (unsigned i = 0; i < descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &descriptor->fields[i];
        const char *at = (const char *)message + field->offset;
        if (field->label != PROTOBUF_C_LABEL_REPEATED) {
            cJSON *value = value_json(field, at);
            if (value)
                cJSON_AddItemToObject(out, field->name, value);
            continue;
        }
        size_t count =
            *(const size_t *)(const void *)((const char *)message + field->quantifier_offset);
        const char *elements = *(const char *const *)(const void *)at;
        cJSON *array = cJSON_AddArrayToObject(out, field->name);
        for (size_t j = 0; j < count; j++)
            cJSON_AddItemToArray(array, value_json(field, elements + j * member_size(field->type)));
    }
    return out;
}

/* cJSON escapes C0 only. Everything else that no terminal may get stands in texts, too; bytes that
 * are no UTF-8 are none of JSON's. */
static void json_put(FILE *out, char *text)
{
    const uint8_t *at = (const uint8_t *)text, *end = at + strlen(text), *from = at;
    size_t size;
    uint32_t code;
    for (; at < end; at += size) {
        if (printable_next(at, end, &size, &code) || *at == '\n' || *at == '\t')
            continue;
        fwrite(from, 1, (size_t)(at - from), out);
        fprintf(out, "\\u%04x", size == 1 && code > 0x7f ? 0xfffd : (unsigned)code);
        from = at + size;
    }
    fwrite(from, 1, (size_t)(end - from), out);
    fputc('\n', out);
    cJSON_free(text);
}

void json_print(cJSON *json)
{
    json_put(stdout, cJSON_Print(json));
    cJSON_Delete(json);
}

void json_line(FILE *out, cJSON *json)
{
    json_put(out, cJSON_PrintUnformatted(json));
    cJSON_Delete(json);
}
