/* One table of everything that TensorFlow calls a type and Reverb stores. */
#include <troupe/item.h>

#include <string.h>

static const struct {
    int32_t dtype;
    size_t bytes;
    const char *name;
} elements[] = {
    {1, 4, "float32"}, {2, 8, "float64"},      {3, 4, "int32"},          {4, 1, "uint8"},
    {5, 2, "int16"},   {6, 1, "int8"},         {7, 0, "string"},         {8, 8, "complex64"},
    {9, 8, "int64"},   {10, 1, "bool"},        {11, 1, "qint8"},         {12, 1, "quint8"},
    {13, 4, "qint32"}, {14, 2, "bfloat16"},    {15, 2, "qint16"},        {16, 2, "quint16"},
    {17, 2, "uint16"}, {18, 16, "complex128"}, {19, 2, "float16"},       {22, 4, "uint32"},
    {23, 8, "uint64"}, {24, 1, "float8_e5m2"}, {25, 1, "float8_e4m3fn"},
};

enum { ELEMENTS = sizeof elements / sizeof *elements };

size_t trp_element_bytes(int32_t dtype)
{
    for (size_t i = 0; i < ELEMENTS; ++i)
        if (elements[i].dtype == dtype)
            return elements[i].bytes;
    return 0;
}

const char *trp_element_name(int32_t dtype)
{
    for (size_t i = 0; i < ELEMENTS; ++i)
        if (elements[i].dtype == dtype)
            return elements[i].name;
    return "?";
}

int32_t trp_element_parse(const char *name)
{
    for (size_t i = 0; i < ELEMENTS; ++i)
        if (strcmp(elements[i].name, name) == 0)
            return elements[i].dtype;
    return 0;
}
