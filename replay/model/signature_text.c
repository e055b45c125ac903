/* Signatures as people write them, {obs: float32[4], action: int32}, and back; <troupe/replay.h>
 * has the grammar. The text is read by one function a rule, and written from the bytes once
 * signature_decode() found nothing wrong with them. */
#include "signature.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "limits.h"
#include "replay/wire/bytes.h"

static const char blanks[] = " \t\r\n";
static const char bare[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./-";

/* ---- reading --------------------------------------------------------------------------------- */

struct text_scan {
    const char *at;
};

static void scan_skip(struct text_scan *scan, size_t size)
{
    scan->at += size;
    scan->at += strspn(scan->at, blanks);
}

static bool scan_take(struct text_scan *scan, char letter)
{
    if (*scan->at != letter)
        return false;
    scan_skip(scan, 1);
    return true;
}

static trp_status scan_wrong(const struct text_scan *scan, const char *what)
{
    const char *quote = *scan->at ? "'" : "";
    return trp_fail(TRP_INVALID_ARGUMENT,
                    "signature: %s belongs at %s%.24s%s, as in "
                    "{obs: float32[4,?], action: int32}",
                    what, quote, *scan->at ? scan->at : "its end", quote);
}

/* A bare word, or one in double quotes, in which a backslash keeps the next character. */
static trp_status scan_name(struct text_scan *scan, struct buffer *name)
{
    buffer_clear(name);
    size_t size = strspn(scan->at, bare);
    if (size == 0 && *scan->at != '"')
        return scan_wrong(scan, "a name");
    buffer_append(name, (trp_bytes){(const uint8_t *)scan->at, size});
    if (*scan->at == '"') {
        const char *at = scan->at + 1;
        for (; *at && *at != '"'; at++) {
            at += *at == '\\' && at[1];
            buffer_append(name, (trp_bytes){(const uint8_t *)at, 1});
        }
        if (!*at)
            return scan_wrong(scan, "a name with both its quotes");
        size = (size_t)(at + 1 - scan->at);
    }
    scan_skip(scan, size);
    return TRP_OK;
}

/* The shape behind a dtype: nothing, [4,?], or [...]. */
static trp_status scan_tensor(struct text_scan *scan, int32_t dtype, struct buffer *value)
{
    int64_t dims[TRP_RANK_MAX];
    uint32_t rank = 0;
    bool unknown_rank = false;
    if (scan_take(scan, '[') && !scan_take(scan, ']')) {
        unknown_rank = strncmp(scan->at, "...", 3) == 0;
        if (unknown_rank)
            scan_skip(scan, 3);
        while (!unknown_rank) {
            char *end = (char *)(uintptr_t)scan->at + 1;
            bool digit = *scan->at >= '0' && *scan->at <= '9';
            if (rank == TRP_RANK_MAX)
                return scan_wrong(scan, "the end of at most 8 dimensions");
            if (!digit && *scan->at != '?')
                return scan_wrong(scan, "a size or ?");
            dims[rank++] = digit ? strtoll(scan->at, &end, 10) : -1;
            scan_skip(scan, (size_t)(end - scan->at));
            if (!scan_take(scan, ','))
                break;
        }
        if (!scan_take(scan, ']'))
            return scan_wrong(scan, "']'");
    }
    signature_add_tensor(value, NULL, dtype, unknown_rank, rank, dims);
    return TRP_OK;
}

static trp_status scan_value(struct text_scan *scan, int depth, struct buffer *value);

/* The text between brackets, up to `end`: values into field 1 of a list or a tuple, members into
 * field `number` of a dict or a named tuple. */
static trp_status scan_all(struct text_scan *scan, char end, bool named, uint32_t number, int depth,
                           struct buffer *out)
{
    struct buffer name = {0}, value = {0}, pair = {0};
    trp_status status = TRP_OK;
    while (status == TRP_OK && !scan_take(scan, end)) {
        if (named) {
            status = scan_name(scan, &name);
            if (status == TRP_OK && !scan_take(scan, ':'))
                status = scan_wrong(scan, "':'");
        }
        if (status == TRP_OK)
            status = scan_value(scan, depth + 1, &value);
        if (named) {
            signature_add_part(&pair, 1, &name);
            signature_add_part(&pair, 2, &value);
        }
        signature_add_part(out, number, named ? &pair : &value);
        if (status == TRP_OK && !scan_take(scan, ',') && *scan->at != end)
            status = scan_wrong(scan, "',' or the closing bracket");
    }
    buffer_cleanup(&name);
    buffer_cleanup(&value);
    buffer_cleanup(&pair);
    return status;
}

/* A dtype, or the name of a named tuple. */
static trp_status scan_word(struct text_scan *scan, int depth, struct buffer *value)
{
    struct buffer name = {0}, fields = {0};
    struct text_scan before = *scan;
    trp_status status = scan_name(scan, &name);
    if (status == TRP_OK && scan_take(scan, '(')) {
        signature_add_part(&fields, 1, &name);
        status = scan_all(scan, ')', true, 2, depth, &fields);
        signature_add_part(value, KIND_NAMED_TUPLE, &fields);
    } else if (status == TRP_OK) {
        buffer_append(&name, (trp_bytes){(const uint8_t *)"", 1});
        int32_t dtype = trp_dtype_parse((const char *)name.data);
        status = dtype ? scan_tensor(scan, dtype, value)
                       : scan_wrong(&before, "a type such as float32, or a bracket,");
    }
    buffer_cleanup(&name);
    buffer_cleanup(&fields);
    return status;
}

static trp_status scan_value(struct text_scan *scan, int depth, struct buffer *value)
{
    static const struct {
        char open, close;
        uint32_t kind;
    } brackets[] = {{'{', '}', KIND_DICT}, {'[', ']', KIND_LIST}, {'(', ')', KIND_TUPLE}};
    if (depth > SIGNATURE_DEPTH_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "signature: nested deeper than %d",
                        SIGNATURE_DEPTH_MAX);
    for (size_t i = 0; i < sizeof brackets / sizeof *brackets; i++) {
        if (!scan_take(scan, brackets[i].open))
            continue;
        struct buffer inside = {0};
        trp_status status =
            scan_all(scan, brackets[i].close, brackets[i].kind == KIND_DICT, 1, depth, &inside);
        signature_add_part(value, brackets[i].kind, &inside);
        buffer_cleanup(&inside);
        return status;
    }
    return scan_word(scan, depth, value);
}

trp_status trp_signature_parse(const char *text, trp_bytes *out)
{
    struct text_scan scan = {text};
    struct buffer value = {0};
    struct signature signature = {0};
    scan_skip(&scan, 0);
    trp_status status = scan_value(&scan, 0, &value);
    if (status == TRP_OK && *scan.at)
        status = scan_wrong(&scan, "the end");
    if (status == TRP_OK)
        status = signature_decode(buffer_bytes(&value), &signature);
    if (status != TRP_OK)
        buffer_cleanup(&value);
    signature_cleanup(&signature);
    *out = buffer_bytes(&value);
    return status;
}

bool signature_is_text(const char *value)
{
    size_t size = strspn(value, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");
    return (*value && strchr("{[(\"", *value)) ||
           (size > 0 && (value[size] == '(' || value[size] == '[')) || trp_dtype_parse(value) != 0;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void format_words(struct buffer *out, const char *text)
{
    buffer_append(out, (trp_bytes){(const uint8_t *)text, strlen(text)});
}

static void format_name(struct buffer *out, trp_bytes name)
{
    size_t plain = 0;
    while (plain < name.size && memchr(bare, name.data[plain], sizeof bare - 1))
        plain++;
    bool quoted = plain < name.size || name.size == 0;
    if (quoted)
        format_words(out, "\"");
    for (size_t i = 0; i < name.size; i++) {
        if (quoted && (name.data[i] == '"' || name.data[i] == '\\'))
            format_words(out, "\\");
        buffer_append(out, (trp_bytes){&name.data[i], 1});
    }
    if (quoted)
        format_words(out, "\"");
}

static void format_shape(struct buffer *out, trp_bytes bytes)
{
    struct reader reader = reader_of(bytes), dims;
    struct field field, dim;
    char text[32];
    bool any = false;
    while (read_field(&reader, &field)) {
        if (field.tag == TAG(3, VARINT) && field.value != 0)
            format_words(out, any ? ",..." : "[...");
        any = any || (field.tag == TAG(3, VARINT) && field.value != 0);
        if (field.tag != TAG(2, LEN))
            continue;
        int64_t size = 0;
        dims = reader_of(field.bytes);
        while (read_field(&dims, &dim))
            size = dim.tag == TAG(1, VARINT) ? (int64_t)dim.value : size;
        snprintf(text, sizeof text, size < 0 ? "%s?" : "%s%" PRId64, any ? "," : "[", size);
        format_words(out, text);
        any = true;
    }
    if (any)
        format_words(out, "]");
}

static void format_tensor(struct buffer *out, trp_bytes bytes)
{
    struct reader reader = reader_of(bytes);
    struct field field;
    trp_bytes shape = {0};
    int32_t dtype = 0;
    while (read_field(&reader, &field)) {
        if (field.tag == TAG(2, LEN))
            shape = field.bytes;
        else if (field.tag == TAG(3, VARINT))
            dtype = (int32_t)field.value;
    }
    format_words(out, trp_dtype_name((trp_dtype)dtype));
    format_shape(out, shape);
}

static void format_value(struct buffer *out, trp_bytes bytes);

static void format_list(struct buffer *out, trp_bytes bytes)
{
    struct reader reader = reader_of(bytes);
    struct field field;
    for (size_t i = 0; read_field(&reader, &field);) {
        if (field.tag != TAG(1, LEN))
            continue;
        format_words(out, i++ ? ", " : "");
        format_value(out, field.bytes);
    }
}

static void format_members(struct buffer *out, trp_bytes bytes, bool dict)
{
    struct signature_member *members;
    size_t count;
    trp_status status = signature_members(bytes, dict, &members, &count);
    for (size_t i = 0; status == TRP_OK && i < count; i++) {
        format_words(out, i ? ", " : "");
        format_name(out, members[i].name);
        format_words(out, ": ");
        format_value(out, members[i].value);
    }
    free(members);
}

static void format_named_tuple(struct buffer *out, trp_bytes bytes)
{
    struct reader reader = reader_of(bytes);
    struct field field;
    trp_bytes name = {0};
    while (read_field(&reader, &field))
        name = field.tag == TAG(1, LEN) ? field.bytes : name;
    format_name(out, name);
    format_words(out, "(");
    format_members(out, bytes, false);
    format_words(out, ")");
}

static void format_value(struct buffer *out, trp_bytes bytes)
{
    struct reader reader = reader_of(bytes);
    struct field field, kind = {0};
    while (read_field(&reader, &field))
        kind = field;
    bool list = kind.tag >> 3 == KIND_LIST, dict = kind.tag >> 3 == KIND_DICT;
    switch (kind.tag >> 3) {
    case KIND_TENSOR_SPEC:
    case KIND_BOUNDED_TENSOR_SPEC:
        format_tensor(out, kind.bytes);
        break;
    case KIND_NAMED_TUPLE:
        format_named_tuple(out, kind.bytes);
        break;
    default:
        format_words(out, list ? "[" : dict ? "{" : "(");
        dict ? format_members(out, kind.bytes, true) : format_list(out, kind.bytes);
        format_words(out, list ? "]" : dict ? "}" : ")");
        break;
    }
}

trp_status trp_signature_format(trp_bytes bytes, char **out)
{
    struct signature signature = {0};
    struct buffer text = {0};
    trp_status status = signature_decode(bytes, &signature);
    if (status == TRP_OK) {
        format_value(&text, bytes);
        buffer_append(&text, (trp_bytes){(const uint8_t *)"", 1});
    }
    signature_cleanup(&signature);
    *out = (char *)text.data;
    return status;
}
