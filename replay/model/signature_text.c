/* Reads signatures as people write them, {obs: float32[4], action: int32}: one function for each
 * rule of the grammar in <troupe/replay.h>. */
#include "signature.h"

#include <stdlib.h>
#include <string.h>

#include "core/printable.h"
#include "limits.h"
#include "options.h"

static const char blanks[] = " \t\r\n";
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
    enum { SHOWN_BYTES = 25 };
    char shown[SHOWN_BYTES];
    const char *quote = *scan->at ? "'" : "";
    printable_copy(shown, sizeof shown, text_bytes(*scan->at ? scan->at : "its end"));
    return trp_fail(TRP_INVALID_ARGUMENT,
                    "signature: %s belongs at %s%s%s, as in {obs: float32[4,?], action: int32}",
                    what, quote, shown, quote);
}

/* A bare word, or one in double quotes, in which a backslash keeps the next character. */
static trp_status scan_name(struct text_scan *scan, struct buffer *name)
{
    buffer_clear(name);
    size_t size = strspn(scan->at, signature_bare);
    bool quoted = size == 0 && *scan->at == '"';
    if (size == 0 && !quoted)
        return scan_wrong(scan, "a name");
    buffer_append(name, span_of(scan->at, size));
    if (quoted)
        size = quoted_read(scan->at, name);
    if (size == 0)
        return scan_wrong(scan, "a name with both its quotes");
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
        int32_t dtype = trp_dtype_parse(buffer_text(&name));
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
