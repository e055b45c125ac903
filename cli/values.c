/* Problem: a column may be one number or a video; both have to make sense on one line.
 * Design: up to VALUES_SHOWN_MAX elements are printed nested, as numpy does; of more the minimum,
 * maximum, mean and the first few. Whole numbers keep all digits. */
#include "values.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/buffer.h"
#include "core/protobuf.h"
#include "core/words.h"
#include "json.h"
#include "output.h"

enum {
    VALUES_SHOWN_MAX = 24,
    VALUES_FIRST = 6,
    VALUES_JSON_MAX = 1024,
    ELEMENT_SIZE = 2 * TEXT_SIZE + 2
};

size_t values_count(const trp_item_array *array)
{
    size_t count = array->dtype == 0 ? 0 : 1;
    if (array->rank > TRP_RANK_MAX)
        return 0; /* there are no values */
    for (uint32_t i = 0; i < array->rank; i++)
        if (!size_mul(count, (size_t)array->shape[i], &count))
            return SIZE_MAX;
    return count;
}

/* ---- one element ------------------------------------------------------------------------- */

static double half_value(uint16_t bits)
{
    int exponent = bits >> 10 & 31;
    double mantissa = bits & 1023, sign = bits & 0x8000 ? -1 : 1;
    if (exponent == 31)
        return mantissa != 0 ? (double)NAN : sign * (double)INFINITY;
    return sign * (exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24));
}

static double bfloat_value(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return (double)value;
}

#define LOAD(type) (*(const type *)memcpy(&(type){0}, at, sizeof(type)))

/* False: a type whose elements are no real numbers. */
static bool value_at(const trp_item_array *array, size_t index, double *value)
{
    const uint8_t *at = array->data.data + index * trp_dtype_size((trp_dtype)array->dtype);
    switch (array->dtype) {
    case TRP_FLOAT32:
        *value = (double)LOAD(float);
        return true;
    case TRP_FLOAT64:
        *value = LOAD(double);
        return true;
    case TRP_FLOAT16:
        *value = half_value(LOAD(uint16_t));
        return true;
    case TRP_BFLOAT16:
        *value = bfloat_value(LOAD(uint16_t));
        return true;
    case TRP_INT8:
    case TRP_QINT8:
        *value = LOAD(int8_t);
        return true;
    case TRP_INT16:
    case TRP_QINT16:
        *value = LOAD(int16_t);
        return true;
    case TRP_INT32:
    case TRP_QINT32:
        *value = LOAD(int32_t);
        return true;
    case TRP_INT64:
        *value = (double)LOAD(int64_t);
        return true;
    case TRP_BOOL:
    case TRP_UINT8:
    case TRP_QUINT8:
        *value = *at;
        return true;
    case TRP_UINT16:
    case TRP_QUINT16:
        *value = LOAD(uint16_t);
        return true;
    case TRP_UINT32:
        *value = LOAD(uint32_t);
        return true;
    case TRP_UINT64:
        *value = (double)LOAD(uint64_t);
        return true;
    default:
        return false;
    }
}

/* Real and imaginary part; false: no complex type. */
static bool complex_at(const trp_item_array *array, size_t index, double parts[2])
{
    const uint8_t *at = array->data.data + index * trp_dtype_size((trp_dtype)array->dtype);
    if (array->dtype == TRP_COMPLEX64) {
        float floats[2];
        memcpy(floats, at, sizeof floats);
        parts[0] = (double)floats[0];
        parts[1] = (double)floats[1];
    } else if (array->dtype == TRP_COMPLEX128) {
        memcpy(parts, at, 2 * sizeof *parts);
    }
    return array->dtype == TRP_COMPLEX64 || array->dtype == TRP_COMPLEX128;
}

/* As numpy writes it: 1+2j. */
static void complex_text(const double parts[2], char *text)
{
    char real[TEXT_SIZE], imaginary[TEXT_SIZE];
    snprintf(text, ELEMENT_SIZE, "%s%s%sj", double_text(parts[0], real),
             signbit(parts[1]) ? "" : "+", double_text(parts[1], imaginary));
}

/* The element as text, shortest that reads back to the same. `text` holds ELEMENT_SIZE. */
static void element_text(const trp_item_array *array, size_t index, char *text)
{
    const uint8_t *at = array->data.data + index * trp_dtype_size((trp_dtype)array->dtype);
    double value = 0, parts[2];
    value_at(array, index, &value);
    if (complex_at(array, index, parts))
        complex_text(parts, text);
    else if (array->dtype == TRP_INT64)
        snprintf(text, TEXT_SIZE, "%" PRId64, LOAD(int64_t));
    else if (array->dtype == TRP_UINT64)
        snprintf(text, TEXT_SIZE, "%" PRIu64, LOAD(uint64_t));
    else if (array->dtype == TRP_BOOL)
        snprintf(text, TEXT_SIZE, "%s", value != 0 ? "true" : "false");
    else if (array->dtype == TRP_FLOAT32)
        float_decimal((float)value, text);
    else
        snprintf(text, TEXT_SIZE, "%s", double_text(value, (char[TEXT_SIZE]){0}));
}

/* ---- strings ----------------------------------------------------------------------------- */

/* The strings of a column one after the other: lengths stand in front of all of them. */
struct strings {
    trp_bytes lengths, bytes;
};

/* The next length, below 4 GB. */
static bool length_take(trp_bytes *bytes, uint64_t *length)
{
    struct reader reader = reader_of(*bytes);
    bool taken = read_varint(&reader, length) && *length <= UINT32_MAX;
    *bytes = (trp_bytes){reader.at, (size_t)(reader.end - reader.at)};
    return taken;
}

static struct strings strings_open(const trp_item_array *array)
{
    trp_bytes rest = array->data;
    uint64_t length;
    for (size_t i = 0, count = values_count(array); i < count; i++)
        if (!length_take(&rest, &length))
            return (struct strings){{NULL, 0}, {NULL, 0}};
    return (struct strings){array->data, rest};
}

static trp_bytes strings_next(struct strings *strings)
{
    uint64_t length;
    trp_bytes none = {(const uint8_t *)"", 0};
    if (!length_take(&strings->lengths, &length) || length > strings->bytes.size)
        return none;
    trp_bytes text = {strings->bytes.data, length};
    strings->bytes.data += length;
    strings->bytes.size -= length;
    return text;
}

/* ---- text -------------------------------------------------------------------------------- */

char *shape_text(const int64_t *shape, size_t rank)
{
    struct buffer out = {0};
    char text[TEXT_SIZE];
    buffer_append(&out, text_bytes("["));
    for (size_t i = 0; i < rank && (rank <= TRP_RANK_MAX || i + 1 < TRP_RANK_MAX); i++) {
        snprintf(text, sizeof text, "%s%" PRId64, i ? "," : "", shape[i]);
        buffer_append(&out, text_bytes(text));
    }
    if (rank > TRP_RANK_MAX)
        buffer_append(&out, text_bytes(",..."));
    buffer_append(&out, (trp_bytes){(const uint8_t *)"]", 2});
    return (char *)out.data;
}

static void add_element(struct buffer *out, const trp_item_array *array, size_t index,
                        struct strings *strings)
{
    char text[ELEMENT_SIZE];
    if (array->dtype == TRP_STRING) {
        trp_bytes bytes = strings_next(strings);
        buffer_append(out, text_bytes("'"));
        for (size_t i = 0; i < bytes.size; i++) {
            uint8_t byte = bytes.data[i];
            snprintf(text, sizeof text, byte < 32 || byte > 126 ? "\\x%02x" : "%c", byte);
            buffer_append(out, text_bytes(text));
        }
        buffer_append(out, text_bytes("'"));
        return;
    }
    element_text(array, index, text);
    buffer_append(out, text_bytes(text));
}

/* Brackets open where a row begins and close where it ends, at every level. */
static void add_nested(struct buffer *out, const trp_item_array *array, size_t count)
{
    struct strings strings = strings_open(array);
    for (size_t i = 0; i < count; i++) {
        size_t row = 1;
        if (i > 0)
            buffer_append(out, text_bytes(" "));
        for (uint32_t d = array->rank; d-- > 0;) {
            row *= (size_t)array->shape[d];
            if (i % row == 0)
                buffer_append(out, text_bytes("["));
        }
        add_element(out, array, i, &strings);
        row = 1;
        for (uint32_t d = array->rank; d-- > 0;) {
            row *= (size_t)array->shape[d];
            if ((i + 1) % row == 0)
                buffer_append(out, text_bytes("]"));
        }
    }
    if (count == 0)
        buffer_append(out, text_bytes("[]"));
}

struct summary {
    double min, max, mean;
};

static struct summary array_summarise(const trp_item_array *array, size_t count)
{
    struct summary out = {INFINITY, -INFINITY, 0};
    for (size_t i = 0; i < count; i++) {
        double value = 0;
        value_at(array, i, &value);
        out.min = value < out.min ? value : out.min;
        out.max = value > out.max ? value : out.max;
        out.mean += (value - out.mean) / (double)(i + 1);
    }
    return out;
}

static bool is_real(const trp_item_array *array)
{
    double value;
    return array->dtype != TRP_STRING && value_at(array, 0, &value);
}

static void add_summary(struct buffer *out, const trp_item_array *array, size_t count)
{
    struct strings strings = strings_open(array);
    char text[128];
    if (is_real(array)) {
        struct summary summary = array_summarise(array, count);
        snprintf(text, sizeof text, "min %.6g, max %.6g, mean %.6g; ", summary.min, summary.max,
                 summary.mean);
        buffer_append(out, text_bytes(text));
    }
    for (size_t i = 0; i < VALUES_FIRST; i++) {
        add_element(out, array, i, &strings);
        buffer_append(out, text_bytes(" "));
    }
    buffer_append(out, text_bytes("..."));
}

/* Whether there are values, as many as the shape says: it comes from a peer. */
static bool shown(const trp_item_array *array, size_t count)
{
    double parts[2];
    size_t bytes;
    if (array->rank > TRP_RANK_MAX || count == 0)
        return array->rank <= TRP_RANK_MAX;
    bool whole = array->dtype == TRP_STRING
                     ? count <= array->data.size /* a length each */
                     : size_mul(count, trp_dtype_size((trp_dtype)array->dtype), &bytes) &&
                           bytes == array->data.size;
    return whole && array->data.size > 0 &&
           (array->dtype == TRP_STRING || is_real(array) || complex_at(array, 0, parts));
}

char *values_text(const trp_item_array *array)
{
    struct buffer out = {0};
    size_t count = values_count(array);
    char text[2 * TEXT_SIZE];
    snprintf(text, sizeof text, "rank %u, values not shown", array->rank);
    if (array->rank > TRP_RANK_MAX)
        buffer_append(&out, text_bytes(text));
    else if (!shown(array, count))
        buffer_append(&out, text_bytes("(not shown)"));
    else if (count > VALUES_SHOWN_MAX)
        add_summary(&out, array, count);
    else
        add_nested(&out, array, count);
    return buffer_text(&out);
}

/* ---- JSON -------------------------------------------------------------------------------- */

static cJSON *element_json(const trp_item_array *array, size_t index, struct strings *strings)
{
    char text[ELEMENT_SIZE];
    double value = 0, parts[2];
    if (array->dtype == TRP_STRING)
        return json_bytes(strings_next(strings));
    if (complex_at(array, index, parts)) {
        cJSON *pair = cJSON_CreateArray();
        cJSON_AddItemToArray(pair, json_number(parts[0]));
        cJSON_AddItemToArray(pair, json_number(parts[1]));
        return pair;
    }
    value_at(array, index, &value);
    if (!isfinite(value))
        return json_number(value);
    element_text(array, index, text);
    return cJSON_CreateRaw(text);
}

cJSON *values_json(const trp_item_array *array)
{
    size_t count = values_count(array);
    struct strings strings = strings_open(array);
    cJSON *out = cJSON_CreateObject();
    cJSON_AddStringToObject(out, "dtype", trp_dtype_name((trp_dtype)array->dtype));
    bool deep = array->rank > TRP_RANK_MAX;
    cJSON *shape = deep ? cJSON_AddNumberToObject(out, "rank", array->rank)
                        : cJSON_AddArrayToObject(out, "shape");
    for (uint32_t i = 0; !deep && i < array->rank; i++)
        cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)array->shape[i]));
    cJSON_AddBoolToObject(out, "squeezed", array->squeezed);
    if (!shown(array, count))
        return out;
    bool whole = count <= VALUES_JSON_MAX;
    if (!whole && is_real(array)) {
        struct summary summary = array_summarise(array, count);
        cJSON_AddItemToObject(out, "min", json_number(summary.min));
        cJSON_AddItemToObject(out, "max", json_number(summary.max));
        cJSON_AddItemToObject(out, "mean", json_number(summary.mean));
    }
    cJSON *values = cJSON_AddArrayToObject(out, whole ? "values" : "first");
    for (size_t i = 0; i < (whole ? count : VALUES_FIRST); i++)
        cJSON_AddItemToArray(values, element_json(array, i, &strings));
    return out;
}
