#include "core/array.h"

#include <assert.h>

#include "core/alloc.h"

enum { ARRAY_CAPACITY_MIN = 16 };

void *array_grow(void *array, uint32_t *capacity, size_t element_bytes)
{
    assert(*capacity <= UINT32_MAX / 2);
    *capacity = *capacity ? 2 * *capacity : ARRAY_CAPACITY_MIN;
    return xrealloc(array, *capacity * element_bytes);
}

int u64_compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}
