/* Copies that memcpy() is not the best for: a few bytes are not worth a call, and most columns of a
 * step are so small; pages that are written once and read much later, if at all, need not come
 * into the cache, and what is there need not leave it for them. */
#ifndef TRP_CORE_COPY_H
#define TRP_CORE_COPY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

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

/* Some hundred bytes. Where GCC sees a bound of the size it makes `rep movsq` of memcpy(), which
 * begins slowly: twice as long as the library's. */
static inline void copy_some(void *to, const void *from, size_t size)
{
    __asm__("" : "+r"(size)); /* hides the bound */
    memcpy(to, from, size);
}

enum { COPY_LINE_BYTES = 64 };

/* Asks for bytes that are read soon: they come while something else is done. */
static inline void copy_ahead(const void *from, size_t size)
{
    for (size_t at = 0; at < size; at += COPY_LINE_BYTES)
        __builtin_prefetch((const uint8_t *)from + at);
}

#ifdef __SSE2__
/* Past the cache, whole lines at a time. copy_away_end() before anybody is told of it. */
static inline void copy_away(void *to, const void *from, size_t size)
{
    uint8_t *out = to;
    const uint8_t *in = from;
    size_t before = -(uintptr_t)out & (COPY_LINE_BYTES - 1);
    if (before > size)
        before = size;
    memcpy(out, in, before);
    for (out += before, in += before, size -= before; size >= COPY_LINE_BYTES;
         out += COPY_LINE_BYTES, in += COPY_LINE_BYTES, size -= COPY_LINE_BYTES)
        for (size_t at = 0; at < COPY_LINE_BYTES; at += sizeof(__m128i))
            _mm_stream_si128((__m128i *)(void *)(out + at),
                             _mm_loadu_si128((const __m128i *)(const void *)(in + at)));
    memcpy(out, in, size);
}

static inline void copy_away_end(void)
{
    _mm_sfence();
}
#else
static inline void copy_away(void *to, const void *from, size_t size)
{
    memcpy(to, from, size);
}

static inline void copy_away_end(void)
{
}
#endif

#endif
