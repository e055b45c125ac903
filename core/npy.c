/* An .npy header is a magic, a version, a length, and the text of a Python dict with three keys. It
 * may come from anywhere: it is looked through for the three, and everything else is refused. */
#include "npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char magic[] = "\x93NUMPY";
enum { MAGIC_BYTES = 6, LENGTH_AT = 8 };

/* tensorflow.DataType; where several have one type, the one that is meant comes first. */
static const struct {
    int32_t dtype;
    const char *type;
} types[] = {
    {1, "<f4"},  {2, "<f8"},   {3, "<i4"},  {13, "<i4"}, {4, "|u1"},  {12, "|u1"},
    {5, "<i2"},  {15, "<i2"},  {6, "|i1"},  {11, "|i1"}, {8, "<c8"},  {9, "<i8"},
    {10, "|b1"}, {17, "<u2"},  {16, "<u2"}, {19, "<f2"}, {22, "<u4"}, {23, "<u8"},
    {14, "|V2"}, {18, "<c16"}, {24, "|V1"}, {25, "|V1"},
};

const char *npy_type(int32_t dtype)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].dtype == dtype)
            return types[i].type;
    return NULL;
}

int32_t npy_dtype(const char *type)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].type, type) == 0)
            return types[i].dtype;
    return 0;
}

void npy_header_write(char *out, const struct npy_header *header)
{
    char dims[192] = "", text[NPY_HEADER_BYTES];
    size_t length = 0;
    for (uint32_t i = 0; i < header->rank; i++)
        length +=
            (size_t)snprintf(dims + length, sizeof dims - length, "%" PRId64 ",", header->dims[i]);
    memset(out, ' ', NPY_HEADER_BYTES);
    memcpy(out, magic, MAGIC_BYTES);
    out[MAGIC_BYTES] = 1;
    out[MAGIC_BYTES + 1] = 0;
    out[LENGTH_AT] = (char)((NPY_HEADER_BYTES - 10) & 255);
    out[LENGTH_AT + 1] = (NPY_HEADER_BYTES - 10) >> 8;
    int size =
        snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }",
                 header->type, dims);
    memcpy(out + 10, text, (size_t)size);
    out[NPY_HEADER_BYTES - 1] = '\n';
}

size_t npy_header_size(const char *bytes, size_t size)
{
    const uint8_t *at = (const uint8_t *)bytes;
    if (size < 12 || memcmp(bytes, magic, MAGIC_BYTES) != 0)
        return 0;
    size_t length = (size_t)at[LENGTH_AT] | (size_t)at[LENGTH_AT + 1] << 8;
    if (bytes[MAGIC_BYTES] == 1)
        return 10 + length;
    length |= (size_t)at[LENGTH_AT + 2] << 16 | (size_t)at[LENGTH_AT + 3] << 24;
    return 12 + length;
}

/* The value behind a key of the dict, or "". */
static const char *value_of(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    if (!at)
        return "";
    at += strlen(key);
    return at + strspn(at, " :");
}

static bool dims_read(struct npy_header *header, const char *text)
{
    if (*text++ != '(')
        return false;
    for (;;) {
        text += strspn(text, " ,");
        if (*text == ')')
            return true;
        char *end;
        int64_t size = strtoll(text, &end, 10);
        if (end == text || size < 0 || header->rank == TRP_RANK_MAX + 1)
            return false;
        header->dims[header->rank++] = size;
        text = end;
    }
}

bool npy_header_read(struct npy_header *header, const char *bytes, size_t size, const char **wrong)
{
    char text[1024];
    size_t skip = bytes[MAGIC_BYTES] == 1 ? 10 : 12;
    *header = (struct npy_header){.rank = 0};
    snprintf(text, sizeof text, "%.*s", (int)(size - skip), bytes + skip);
    const char *type = value_of(text, "'descr'");
    *wrong = NULL;
    if (*type != '\'' || strcspn(type + 1, "'") >= sizeof header->type)
        *wrong = "its elements are no plain numbers";
    else
        snprintf(header->type, sizeof header->type, "%.*s", (int)strcspn(type + 1, "'"), type + 1);
    if (!*wrong && npy_dtype(header->type) == 0)
        *wrong = "its elements are of a type that no table has";
    if (!*wrong && strncmp(value_of(text, "'fortran_order'"), "False", 5) != 0)
        *wrong = "its order is not C's";
    if (!*wrong && !dims_read(header, value_of(text, "'shape'")))
        *wrong = "its shape cannot be read";
    return !*wrong;
}
