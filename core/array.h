/* Arrays that double when they are full; their owner has the pointer, the count and the capacity.
 */
#ifndef TRP_CORE_ARRAY_H
#define TRP_CORE_ARRAY_H

#include <stddef.h>
#include <stdint.h>

/* `array`, which has `*capacity` elements of so many bytes, with room for twice as many, 16 at
 * least. */
void *array_grow(void *array, uint32_t *capacity, size_t element_bytes);

/* The same where `count` elements leave no room for one more. */
static inline void *array_room(void *array, uint32_t count, uint32_t *capacity,
                               size_t element_bytes)
{
    return count < *capacity ? array : array_grow(array, capacity, element_bytes);
}

/* Where one more element of an array goes, which is counted; its bytes are the caller's to set. The
 * arguments are evaluated more than once:
 *
 *     *ARRAY_PUSH(list->at, list->count, list->capacity) = element;
 */
#define ARRAY_PUSH(array, count, capacity)                                                         \
    ((array) = array_room((array), (count), &(capacity), sizeof *(array)), &(array)[(count)++])

/* Of qsort() and bsearch(): elements that are, or begin with, a uint64_t. */
int u64_compare(const void *left, const void *right);

#endif
