/* Owned, growing bytes. A zeroed struct is an empty buffer. */
#ifndef TRP_CORE_BUFFER_H
#define TRP_CORE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <troupe/bytes.h>

struct buffer {
    uint8_t *data;
    size_t size, capacity;
};

/* Makes room for `more` bytes behind size and returns where they start; size is unchanged. */
uint8_t *buffer_reserve(struct buffer *buffer, size_t more);
void buffer_append(struct buffer *buffer, trp_bytes bytes);

/* The same for a size that comes from data; NULL: there is no such memory, nothing has changed. */
uint8_t *buffer_try_reserve(struct buffer *buffer, size_t more);

/* The same for one of many small things of a size, not set yet. */
static inline void *buffer_push(struct buffer *buffer, size_t size)
{
    uint8_t *at = buffer->capacity - buffer->size < size ? buffer_reserve(buffer, size)
                                                         : buffer->data + buffer->size;
    buffer->size += size;
    return at;
}

void buffer_clear(struct buffer *buffer); /* keeps the capacity */
void buffer_cleanup(struct buffer *buffer);

static inline trp_bytes buffer_bytes(const struct buffer *buffer)
{
    return (trp_bytes){buffer->data, buffer->size};
}

/* The bytes, behind which a 0 is put, as a string of the buffer's. */
char *buffer_text(struct buffer *buffer);

static inline trp_bytes span_of(const void *data, size_t size)
{
    return (trp_bytes){data, size};
}

static inline trp_bytes text_bytes(const char *text)
{
    return (trp_bytes){(const uint8_t *)text, strlen(text)};
}

static inline bool bytes_equal(trp_bytes a, trp_bytes b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

#endif
