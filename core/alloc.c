/* Small allocations abort when memory is gone: half of all error paths vanish, and a process that
 * cannot get 100 bytes could not report it either. */
#include "core/alloc.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *check(void *memory, size_t size)
{
    if (!memory) {
        fprintf(stderr, "out of memory: %zu bytes\n", size);
        abort();
    }
    return memory;
}

void *xmalloc(size_t size)
{
    return check(malloc(size ? size : 1), size);
}

void *xcalloc(size_t count, size_t size)
{
    return check(calloc(count ? count : 1, size ? size : 1), size);
}

void *xrealloc(void *memory, size_t size)
{
    return check(realloc(memory, size ? size : 1), size);
}

void *xaligned(size_t alignment, size_t size)
{
    void *memory = NULL;
    return check(posix_memalign(&memory, alignment, size) == 0 ? memory : NULL, size);
}

char *xstrdup(const char *text)
{
    return check(strdup(text), strlen(text) + 1);
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
