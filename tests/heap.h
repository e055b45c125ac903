/* How much this process has allocated. What is resident says less: each thread's freed memory stays
 * its own. */
#ifndef TEST_HEAP_H
#define TEST_HEAP_H

#include <stddef.h>

#include <malloc.h>

/* A sanitizer's allocator counts itself: of it mallinfo2() knows nothing. */
size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

static inline size_t heap_bytes(void)
{
    if (__sanitizer_get_current_allocated_bytes)
        return __sanitizer_get_current_allocated_bytes();
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

#endif
