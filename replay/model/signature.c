/* Signatures say what the columns of a table's items are, in TensorFlow's StructuredValue.
 *
 * They come from anyone who could start a server, so they are walked with a bound on depth and on
 * leaves before anything is believed. A client of ours needs the flat order only; names are kept
 * for messages. We write a dict when the columns are sorted by name, because a dict flattens by
 * sorted key, and a named tuple, which flattens by field, when they are not: columns keep their
 * positions for every client. */
#include "signature.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/array.h"
#include "limits.h"
#include "options.h"
#include "core/utf8.h"
#include "core/protobuf.h"

enum { VARINT_BYTES_MAX = 10 };

/* ---- encoding -------------------------------------------------------------------------------- */

static void add_varint(struct buffer *out, uint64_t value)
{
    uint8_t *at = buffer_reserve(out, VARINT_BYTES_MAX);
    out->size += (size_t)(varint_write(at, value) - at);
}

static void add_varint_field(struct buffer *out, uint32_t number, uint64_t value)
{
    add_varint(out, TAG(number, VARINT));
    add_varint(out, value);
}

static void add_bytes_field(struct buffer *out, uint32_t number, trp_bytes bytes)
{
    add_varint(out, TAG(number, LEN));
    add_varint(out, bytes.size);
    buffer_append(out, bytes);
}

void signature_add_part(struct buffer *out, uint32_t number, struct buffer *part)
{
    add_bytes_field(out, number, buffer_bytes(part));
    buffer_clear(part);
}

void signature_add_tensor(struct buffer *out, const char *name, int32_t dtype, bool unknown_rank,
                          uint32_t rank, const int64_t *dims)
{
    struct buffer dim = {0}, shape = {0}, spec = {0};
    for (uint32_t i = 0; i < rank; i++) {
        if (dims[i] != 0)
            add_varint_field(&dim, 1, (uint64_t)dims[i]);
        signature_add_part(&shape, 2, &dim);
    }
    if (unknown_rank)
        add_varint_field(&shape, 3, 1);
    if (name)
        add_bytes_field(&spec, 1, text_bytes(name));
    signature_add_part(&spec, 2, &shape);
    add_varint_field(&spec, 3, (uint64_t)dtype);
    signature_add_part(out, KIND_TENSOR_SPEC, &spec);
    buffer_cleanup(&dim);
    buffer_cleanup(&shape);
    buffer_cleanup(&spec);
}

static trp_status check_columns(const trp_tensor_spec *columns, size_t count)
{
    if (count == 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "a signature needs at least one column");
    for (size_t i = 0; i < count; i++) {
        const trp_tensor_spec *column = &columns[i];
        if (!column->name || !*column->name)
            return trp_fail(TRP_INVALID_ARGUMENT, "column %zu has no name; a signature needs one",
                            i);
        if (trp_dtype_size(column->dtype) == 0)
            return trp_fail(TRP_INVALID_ARGUMENT, "column %s: %d is no dtype", column->name,
                            (int)column->dtype);
        if (column->rank > TRP_RANK_MAX)
            return trp_fail(TRP_INVALID_ARGUMENT,
                            "column %s has %u dimensions, at most %d are allowed", column->name,
                            column->rank, TRP_RANK_MAX);
        for (size_t j = 0; j < i; j++)
            if (strcmp(columns[j].name, column->name) == 0)
                return trp_fail(TRP_INVALID_ARGUMENT, "two columns have the name %s", column->name);
    }
    return TRP_OK;
}

static bool sorted_by_name(const trp_tensor_spec *columns, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (strcmp(columns[i - 1].name, columns[i].name) > 0)
            return false;
    return true;
}

trp_status trp_signature_encode(const trp_tensor_spec *columns, size_t count, trp_bytes *out)
{
    TRP_TRY(check_columns(columns, count));
    bool dict = sorted_by_name(columns, count);
    struct buffer value = {0}, pair = {0}, fields = {0}, whole = {0};
    if (!dict)
        add_bytes_field(&fields, 1, text_bytes("Columns"));
    for (size_t i = 0; i < count; i++) {
        signature_add_tensor(&value, columns[i].name, (int32_t)columns[i].dtype, false,
                             columns[i].rank, columns[i].shape);
        add_bytes_field(&pair, 1, text_bytes(columns[i].name));
        signature_add_part(&pair, 2, &value);
        signature_add_part(&fields, dict ? 1 : 2, &pair);
    }
    signature_add_part(&whole, dict ? KIND_DICT : KIND_NAMED_TUPLE, &fields);
    buffer_cleanup(&value);
    buffer_cleanup(&pair);
    buffer_cleanup(&fields);
    *out = buffer_bytes(&whole);
    return TRP_OK;
}

/* ---- decoding -------------------------------------------------------------------------------- */

static trp_status signature_malformed(void)
{
    return trp_fail(TRP_INVALID_ARGUMENT, "signature: malformed StructuredValue");
}

static trp_status decode_value(trp_bytes bytes, const char *path, int depth, struct signature *out);

/* Where protobuf has a string, its parsers want UTF-8. */
static trp_status check_text(trp_bytes bytes)
{
    return utf8_is_text(bytes) ? TRP_OK
                               : trp_fail(TRP_INVALID_ARGUMENT, "signature: a name is not UTF-8");
}

static trp_status decode_dim(trp_bytes bytes, int64_t *size)
{
    struct reader reader = reader_of(bytes);
    struct field field;
    *size = 0;
    while (read_field(&reader, &field))
        if (field.tag == TAG(1, VARINT))
            *size = (int64_t)field.value;
        else if (field.tag == TAG(2, LEN))
            TRP_TRY(check_text(field.bytes));
    return !reader.malformed && *size >= -1 ? TRP_OK : signature_malformed();
}

static trp_status decode_shape(trp_bytes bytes, struct signature_leaf *leaf)
{
    struct reader reader = reader_of(bytes);
    struct field field;
    while (read_field(&reader, &field)) {
        if (field.tag == TAG(3, VARINT))
            leaf->unknown_rank = field.value != 0;
        if (field.tag != TAG(2, LEN))
            continue;
        int64_t size;
        TRP_TRY(decode_dim(field.bytes, &size));
        if (leaf->rank < TRP_RANK_MAX)
            leaf->dims[leaf->rank] = size;
        leaf->rank++;
    }
    return reader.malformed ? signature_malformed() : TRP_OK;
}

void tensor_describe(char *text, size_t size, int32_t dtype, uint32_t rank, const int64_t *dims)
{
    const char *name = trp_dtype_name((trp_dtype)dtype);
    int used = trp_dtype_parse(name) ? snprintf(text, size, "%s[", name)
                                     : snprintf(text, size, "dtype %d[", (int)dtype);
    for (uint32_t i = 0; i < rank && i <= TRP_RANK_MAX && used > 0 && (size_t)used < size; i++) {
        const char *form = i == TRP_RANK_MAX ? "%s..." : dims[i] < 0 ? "%s?" : "%s%" PRId64;
        used += snprintf(text + used, size - (size_t)used, form, i ? "," : "",
                         i < TRP_RANK_MAX ? dims[i] : 0);
    }
    if (used > 0 && (size_t)used < size)
        snprintf(text + used, size - (size_t)used, "]");
}

/* ---- text ------------------------------------------------------------------------------------ */

const char signature_bare[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./-";

static void add_words(struct signature *out, const char *words)
{
    if (out->text)
        buffer_append(out->text, text_bytes(words));
}

static void add_name(struct signature *out, trp_bytes name)
{
    size_t plain = 0;
    while (plain < name.size && memchr(signature_bare, name.data[plain], sizeof signature_bare - 1))
        plain++;
    if (out->text && (plain < name.size || name.size == 0))
        quoted_append(out->text, name);
    else if (out->text)
        buffer_append(out->text, name);
}

static void add_leaf(struct signature *out, const struct signature_leaf *leaf)
{
    char text[256];
    if (!out->text)
        return;
    tensor_describe(text, sizeof text, leaf->dtype, leaf->rank, leaf->dims);
    if (leaf->unknown_rank || leaf->rank == 0)
        text[strcspn(text, "[")] = '\0';
    add_words(out, text);
    add_words(out, leaf->unknown_rank ? "[...]" : "");
}

static trp_status decode_spec(trp_bytes bytes, const char *path, struct signature *out)
{
    if (out->count == SIGNATURE_LEAVES_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "signature: more than %d tensors",
                        SIGNATURE_LEAVES_MAX);
    struct signature_leaf *leaf = ARRAY_PUSH(out->leaves, out->count, out->capacity);
    *leaf = (struct signature_leaf){.path = xstrdup(path)};
    struct reader reader = reader_of(bytes);
    struct field field;
    while (read_field(&reader, &field)) {
        if (field.tag == TAG(1, LEN))
            TRP_TRY(check_text(field.bytes));
        else if (field.tag == TAG(2, LEN))
            TRP_TRY(decode_shape(field.bytes, leaf));
        else if (field.tag == TAG(3, VARINT))
            leaf->dtype = (int32_t)field.value;
    }
    add_leaf(out, leaf);
    return reader.malformed ? signature_malformed() : TRP_OK;
}

static char *path_join(const char *path, trp_bytes name)
{
    int size = name.size > SIGNATURE_NAME_BYTES_MAX ? SIGNATURE_NAME_BYTES_MAX : (int)name.size;
    return xasprintf("%s%s%.*s", path, *path ? "/" : "", size, (const char *)name.data);
}

/* Lists and tuples: repeated StructuredValue in field 1. */
static trp_status decode_list(trp_bytes bytes, bool list, const char *path, int depth,
                              struct signature *out)
{
    struct reader reader = reader_of(bytes);
    struct field field;
    add_words(out, list ? "[" : "(");
    for (size_t i = 0; read_field(&reader, &field);) {
        if (field.tag != TAG(1, LEN))
            continue;
        char number[24];
        snprintf(number, sizeof number, "%zu", i);
        add_words(out, i++ ? ", " : "");
        char *inner = path_join(path, text_bytes(number));
        trp_status status = decode_value(field.bytes, inner, depth + 1, out);
        free(inner);
        TRP_TRY(status);
    }
    add_words(out, list ? "]" : ")");
    return reader.malformed ? signature_malformed() : TRP_OK;
}

/* A member of a dict or a named tuple. */
struct signature_member {
    trp_bytes name, value;
    size_t order;
};

static int member_compare(const void *a, const void *b)
{
    const struct signature_member *left = a, *right = b;
    size_t size = left->name.size < right->name.size ? left->name.size : right->name.size;
    int order = size ? memcmp(left->name.data, right->name.data, size) : 0;
    if (order)
        return order;
    if (left->name.size != right->name.size)
        return left->name.size < right->name.size ? -1 : 1;
    return left->order < right->order ? -1 : 1;
}

static bool decode_member(trp_bytes bytes, struct signature_member *member)
{
    struct reader reader = reader_of(bytes);
    struct field field;
    while (read_field(&reader, &field)) {
        if (field.tag == TAG(1, LEN))
            member->name = field.bytes;
        else if (field.tag == TAG(2, LEN))
            member->value = field.bytes;
    }
    return !reader.malformed;
}

/* Members in the order of the bytes; `name` of a named tuple. Caller frees them, in any case. */
static trp_status collect_members(trp_bytes bytes, bool dict, trp_bytes *name,
                                  struct signature_member **members, size_t *count)
{
    struct reader reader = reader_of(bytes);
    struct field field;
    uint32_t capacity = 0;
    while (read_field(&reader, &field)) {
        if (!dict && field.tag == TAG(1, LEN)) {
            *name = field.bytes;
            TRP_TRY(check_text(*name));
        }
        if (field.tag != TAG(dict ? 1 : 2, LEN))
            continue;
        if (*count == SIGNATURE_LEAVES_MAX)
            return trp_fail(TRP_INVALID_ARGUMENT, "signature: a dict of more than %d members",
                            SIGNATURE_LEAVES_MAX);
        struct signature_member *member = ARRAY_PUSH(*members, *count, capacity);
        *member = (struct signature_member){.order = *count};
        if (!decode_member(field.bytes, member))
            return signature_malformed();
        TRP_TRY(check_text(member->name));
    }
    return reader.malformed ? signature_malformed() : TRP_OK;
}

/* A dict counts by sorted key, and of equal keys the last; a named tuple by its fields' order. */
static trp_status decode_members(trp_bytes bytes, bool dict, const char *path, int depth,
                                 struct signature *out)
{
    struct signature_member *members = NULL;
    size_t count = 0;
    trp_bytes name = {0};
    trp_status status = collect_members(bytes, dict, &name, &members, &count);
    if (dict && count)
        qsort(members, count, sizeof *members, member_compare);
    if (!dict)
        add_name(out, name);
    add_words(out, dict ? "{" : "(");
    for (size_t i = 0, shown = 0; i < count && status == TRP_OK; i++) {
        if (dict && i + 1 < count && bytes_equal(members[i].name, members[i + 1].name))
            continue;
        add_words(out, shown++ ? ", " : "");
        add_name(out, members[i].name);
        add_words(out, ": ");
        char *inner = path_join(path, members[i].name);
        status = decode_value(members[i].value, inner, depth + 1, out);
        free(inner);
    }
    add_words(out, dict ? "}" : ")");
    free(members);
    return status;
}

static trp_status decode_value(trp_bytes bytes, const char *path, int depth, struct signature *out)
{
    if (depth > SIGNATURE_DEPTH_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "signature: nested deeper than %d",
                        SIGNATURE_DEPTH_MAX);
    struct reader reader = reader_of(bytes);
    struct field field, kind = {0};
    while (read_field(&reader, &field)) /* of a oneof the last member counts */
        kind = field;
    if (reader.malformed)
        return signature_malformed();
    if ((kind.tag & 7) != LEN)
        return trp_fail(TRP_INVALID_ARGUMENT, "signature: '%s' is no structure of tensors", path);
    switch (kind.tag >> 3) {
    case KIND_TENSOR_SPEC:
    case KIND_BOUNDED_TENSOR_SPEC:
        return decode_spec(kind.bytes, path, out);
    case KIND_LIST:
    case KIND_TUPLE:
        return decode_list(kind.bytes, kind.tag >> 3 == KIND_LIST, path, depth, out);
    case KIND_DICT:
        return decode_members(kind.bytes, true, path, depth, out);
    case KIND_NAMED_TUPLE:
        return decode_members(kind.bytes, false, path, depth, out);
    default:
        return trp_fail(TRP_INVALID_ARGUMENT, "signature: '%s' has the unknown kind %u", path,
                        kind.tag >> 3);
    }
}

trp_status signature_decode(trp_bytes bytes, struct signature *out)
{
    return decode_value(bytes, "", 0, out);
}

trp_status trp_signature_format(trp_bytes bytes, char **out)
{
    struct buffer text = {0};
    struct signature signature = {.text = &text};
    trp_status status = signature_decode(bytes, &signature);
    if (status == TRP_OK)
        buffer_text(&text);
    else
        buffer_cleanup(&text);
    signature_cleanup(&signature);
    *out = (char *)text.data;
    return status;
}

void signature_cleanup(struct signature *signature)
{
    for (size_t i = 0; i < signature->count; i++)
        free(signature->leaves[i].path);
    free(signature->leaves);
    *signature = (struct signature){0};
}

/* ---- comparing ------------------------------------------------------------------------------- */

static bool leaf_fits(const struct signature_leaf *leaf, const trp_tensor_spec *column)
{
    if (leaf->dtype != (int32_t)column->dtype)
        return false;
    if (leaf->unknown_rank)
        return true;
    if (leaf->rank != column->rank || column->rank > TRP_RANK_MAX)
        return false;
    for (uint32_t i = 0; i < leaf->rank; i++)
        if (leaf->dims[i] >= 0 && leaf->dims[i] != column->shape[i])
            return false;
    return true;
}

/* Of columns that fit as far as both go: the first that only one has. */
static trp_status wrong_count(const struct signature *signature, const trp_tensor_spec *columns,
                              size_t count, const char *table)
{
    char text[128];
    if (count < signature->count) {
        const struct signature_leaf *leaf = &signature->leaves[count];
        tensor_describe(text, sizeof text, leaf->dtype, leaf->rank, leaf->dims);
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "%zu columns were given, but table '%s' has %u: '%s', %s, is missing",
                        count, table, signature->count, leaf->path, text);
    }
    const trp_tensor_spec *column = &columns[signature->count];
    tensor_describe(text, sizeof text, (int32_t)column->dtype, column->rank, column->shape);
    return trp_fail(TRP_INVALID_ARGUMENT, "column %u (%s) is %s, but table '%s' has %u columns",
                    signature->count, column->name ? column->name : "unnamed", text, table,
                    signature->count);
}

trp_status signature_check(const struct signature *signature, const trp_tensor_spec *columns,
                           size_t count, const char *table)
{
    for (size_t i = 0; i < count && i < signature->count; i++) {
        const struct signature_leaf *leaf = &signature->leaves[i];
        if (leaf_fits(leaf, &columns[i]))
            continue;
        char ours[128], theirs[128];
        tensor_describe(ours, sizeof ours, (int32_t)columns[i].dtype, columns[i].rank,
                        columns[i].shape);
        tensor_describe(theirs, sizeof theirs, leaf->dtype, leaf->rank, leaf->dims);
        return trp_fail(
            TRP_INVALID_ARGUMENT, "column %zu (%s) is %s, but table '%s' has %s there ('%s')", i,
            columns[i].name ? columns[i].name : "unnamed", ours, table, theirs, leaf->path);
    }
    return count == signature->count ? TRP_OK : wrong_count(signature, columns, count, table);
}
