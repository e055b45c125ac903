/* One table of element types, so that a name, a size and a number cannot disagree. */
#include <troupe/tensor.h>

#include <string.h>

#include "core/alloc.h"

static const struct {
    trp_dtype dtype;
    size_t size;
    const char *name;
} types[] = {
    {TRP_FLOAT32, 4, "float32"},
    {TRP_FLOAT64, 8, "float64"},
    {TRP_INT32, 4, "int32"},
    {TRP_UINT8, 1, "uint8"},
    {TRP_INT16, 2, "int16"},
    {TRP_INT8, 1, "int8"},
    {TRP_STRING, 0, "string"},
    {TRP_COMPLEX64, 8, "complex64"},
    {TRP_INT64, 8, "int64"},
    {TRP_BOOL, 1, "bool"},
    {TRP_QINT8, 1, "qint8"},
    {TRP_QUINT8, 1, "quint8"},
    {TRP_QINT32, 4, "qint32"},
    {TRP_BFLOAT16, 2, "bfloat16"},
    {TRP_QINT16, 2, "qint16"},
    {TRP_QUINT16, 2, "quint16"},
    {TRP_UINT16, 2, "uint16"},
    {TRP_COMPLEX128, 16, "complex128"},
    {TRP_FLOAT16, 2, "float16"},
    {TRP_UINT32, 4, "uint32"},
    {TRP_UINT64, 8, "uint64"},
    {TRP_FLOAT8_E5M2, 1, "float8_e5m2"},
    {TRP_FLOAT8_E4M3FN, 1, "float8_e4m3fn"},
};

enum { TYPE_COUNT = sizeof types / sizeof types[0] };

size_t trp_dtype_size(trp_dtype dtype)
{
    for (size_t i = 0; i < TYPE_COUNT; i++)
        if (types[i].dtype == dtype)
            return types[i].size;
    return 0;
}

const char *trp_dtype_name(trp_dtype dtype)
{
    for (size_t i = 0; i < TYPE_COUNT; i++)
        if (types[i].dtype == dtype)
            return types[i].name;
    return "?";
}

int32_t trp_dtype_parse(const char *name)
{
    for (size_t i = 0; i < TYPE_COUNT; i++)
        if (strcmp(types[i].name, name) == 0)
            return (int32_t)types[i].dtype;
    return 0;
}

size_t trp_tensor_bytes(const trp_tensor_spec *spec)
{
    size_t bytes = trp_dtype_size(spec->dtype);
    if (spec->rank > TRP_RANK_MAX)
        return 0;
    for (uint32_t i = 0; i < spec->rank; i++)
        if (spec->shape[i] < 0 || !size_mul(bytes, (size_t)spec->shape[i], &bytes))
            return 0;
    return bytes;
}
