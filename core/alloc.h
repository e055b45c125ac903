/* Allocation that aborts: for small objects whose size no peer, file or user decides. */
#ifndef TRP_CORE_ALLOC_H
#define TRP_CORE_ALLOC_H

#include <stdbool.h>
#include <stddef.h>

enum { HUGE_PAGE = 2 << 20 };

/* Never NULL: out of memory prints the size and aborts. */
void *xmalloc(size_t size);
void *xcalloc(size_t count, size_t size);
void *xrealloc(void *memory, size_t size);
void *xaligned(size_t alignment, size_t size); /* a power of two; not cleared; free() frees */
char *xstrdup(const char *text);
void *xmemdup(const void *memory,
              size_t size); /* a copy, and a zero behind it; NULL of 0 bytes is fine */

/* Formatted string on the heap; caller frees. */
char *xasprintf(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* *product = a * b; false when that overflows. For sizes that come from data. */
static inline bool size_mul(size_t a, size_t b, size_t *product)
{
    return !__builtin_mul_overflow(a, b, product);
}

static inline bool size_add(size_t a, size_t b, size_t *sum)
{
    return !__builtin_add_overflow(a, b, sum);
}

#endif
