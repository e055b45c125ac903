/* Growth doubles, so appending n bytes costs O(n) in all. */
#include "core/buffer.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"

uint8_t *buffer_reserve(struct buffer *buffer, size_t more)
{
    if (buffer->capacity - buffer->size < more) {
        size_t capacity = buffer->capacity ? buffer->capacity * 2 : 256;
        while (capacity - buffer->size < more)
            capacity *= 2;
        buffer->data = xrealloc(buffer->data, capacity);
        buffer->capacity = capacity;
    }
    return buffer->data + buffer->size;
}

uint8_t *buffer_try_reserve(struct buffer *buffer, size_t more)
{
    size_t capacity;
    if (buffer->capacity - buffer->size >= more)
        return buffer_reserve(buffer, 0);
    uint8_t *data =
        size_add(buffer->size, more, &capacity) ? realloc(buffer->data, capacity) : NULL;
    if (!data)
        return NULL;
    buffer->data = data;
    buffer->capacity = capacity;
    return data + buffer->size;
}

void buffer_append(struct buffer *buffer, trp_bytes bytes)
{
    if (bytes.size == 0)
        return;
    memcpy(buffer_reserve(buffer, bytes.size), bytes.data, bytes.size);
    buffer->size += bytes.size;
}

char *buffer_text(struct buffer *buffer)
{
    buffer_append(buffer, (trp_bytes){(const uint8_t *)"", 1});
    return (char *)buffer->data;
}

void buffer_clear(struct buffer *buffer)
{
    buffer->size = 0;
}

void buffer_cleanup(struct buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct buffer){0};
}
