/* Lines of several nodes share a terminal, so only whole lines may reach it. A line that never ends
 * (a progress bar, a megabyte of dots) is passed on in bounded pieces or after a while, so that
 * nothing a node prints is held back for good or grows without bound. */
#include "lines.h"

#include <string.h>

#include "limits.h"

static void emit_partial(struct lines *lines, lines_emit emit, void *arg)
{
    emit(arg, (const char *)lines->partial.data, lines->partial.size);
    buffer_clear(&lines->partial);
}

/* A piece of a line, at most as much as the partial line has room for. */
static size_t take_piece(struct lines *lines, const char *data, size_t size)
{
    size_t room = NODE_LINE_BYTES_MAX - lines->partial.size;
    size_t piece = size < room ? size : room;
    buffer_append(&lines->partial, (trp_bytes){(const uint8_t *)data, piece});
    return piece;
}

void lines_feed(struct lines *lines, const char *data, size_t size, int64_t now_ns, lines_emit emit,
                void *arg)
{
    while (size > 0) {
        const char *newline = memchr(data, '\n', size);
        size_t length = newline ? (size_t)(newline - data) : size;
        if (lines->partial.size == 0)
            lines->since_ns = now_ns;
        size_t taken = take_piece(lines, data, length);
        data += taken;
        size -= taken;
        if (newline && taken == length) {
            emit_partial(lines, emit, arg);
            data++;
            size--;
        } else if (lines->partial.size == NODE_LINE_BYTES_MAX) {
            emit_partial(lines, emit, arg);
        }
    }
}

void lines_flush(struct lines *lines, int64_t now_ns, int64_t age_ns, lines_emit emit, void *arg)
{
    if (lines->partial.size > 0 && now_ns - lines->since_ns >= age_ns)
        emit_partial(lines, emit, arg);
}
