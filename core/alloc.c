/* Small allocations abort when memory is gone: half of all error paths vanish, and a process that
 * cannot get 100 bytes could not report it either. Large ones ask for huge pages: who looks up
 * random places in a gigabyte spends half of the time on page tables otherwise. */
#include "core/alloc.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { LARGE = 2 * HUGE_PAGE };

static void *check(void *memory, size_t size)
{
    if (!memory) {
        fprintf(stderr, "out of memory: %zu bytes\n", size);
        abort();
    }
    return memory;
}

static void *advise(void *memory, size_t size)
{
    if (size < LARGE)
        return memory;
    uintptr_t first = ((uintptr_t)memory + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    uintptr_t end = ((uintptr_t)memory + size) / HUGE_PAGE * HUGE_PAGE;
    madvise((void *)first, end - first, MADV_HUGEPAGE); /* a wish: a failure changes nothing */
    return memory;
}

void *xmalloc(size_t size)
{
    return advise(check(malloc(size ? size : 1), size), size);
}

void *xcalloc(size_t count, size_t size)
{
    return advise(check(calloc(count ? count : 1, size ? size : 1), count * size), count * size);
}

void *xrealloc(void *memory, size_t size)
{
    return advise(check(realloc(memory, size ? size : 1), size), size);
}

void *xaligned(size_t alignment, size_t size)
{
    void *memory = NULL;
    return advise(check(posix_memalign(&memory, alignment, size) == 0 ? memory : NULL, size), size);
}

char *xstrdup(const char *text)
{
    return check(strdup(text), strlen(text) + 1);
}

void *xmemdup(const void *memory, size_t size)
{
    char *copy = xmalloc(size + 1);
    if (size)
        memcpy(copy, memory, size);
    copy[size] = '\0';
    return copy;
}

char *xasprintf(const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    int size = vasprintf(&text, format, args);
    va_end(args);
    return check(size < 0 ? NULL : text, 0);
}
