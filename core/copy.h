/* Copies of a few bytes that are not worth a call; most columns of a step are so small. */
#ifndef TRP_CORE_COPY_H
#define TRP_CORE_COPY_H

#include <stddef.h>
#include <string.h>

static inline void copy_small(void *to, const void *from, size_t size)
{
    if (size == 4)
        memcpy(to, from, 4);
    else if (size == 8)
        memcpy(to, from, 8);
    else if (size == 16)
        memcpy(to, from, 16);
    else
        memcpy(to, from, size);
}

#endif
