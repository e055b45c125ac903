/* Arrays that double when they are full; their owner has the pointer, the count and the capacity.
 */
#ifndef TRP_CORE_ARRAY_H
#define TRP_CORE_ARRAY_H

#include <stddef.h>
#include <stdint.h>

/* `array`, which has `*capacity` elements of so many bytes, with room for twice as many, 16 at
 * least:
 *
 *     if (list->count == list->capacity)
 *         list->at = array_grow(list->at, &list->capacity, sizeof *list->at);
 */
void *array_grow(void *array, uint32_t *capacity, size_t element_bytes);

#endif
