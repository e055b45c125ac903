#include "core/printable.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/utf8.h"

/* The longest escape is \u{2069}, the longest character has 4 bytes. */
enum { ESCAPE_BYTES = 9 };

static uint32_t code_of(const uint8_t *at, size_t size)
{
    uint32_t code = size == 1 ? at[0] : at[0] & (0x7fu >> size);
    for (size_t i = 1; i < size; i++)
        code = code << 6 | (at[i] & 0x3fu);
    return code;
}

bool printable_next(const uint8_t *at, const uint8_t *end, size_t *size, uint32_t *code)
{
    *size = utf8_size(at, end);
    *code = *size > 0 ? code_of(at, *size) : at[0];
    if (*size == 0) {
        *size = 1;
        return false;
    }
    bool control = *code < 0x20 || (*code >= 0x7f && *code < 0xa0);
    bool direction = *code == 0x61c || *code == 0x200e || *code == 0x200f ||
                     (*code >= 0x2028 && *code <= 0x202e) || (*code >= 0x2066 && *code <= 0x2069);
    return !control && !direction;
}

size_t printable_copy(char *out, size_t room, trp_bytes text)
{
    size_t used = 0, size;
    uint32_t code;
    const uint8_t *end = text.data + text.size;
    while (used < text.size && used < room - 1 && text.data[used] >= 0x20 && text.data[used] < 0x7f)
        used++; /* mostly all of it */
    memcpy(out, text.data, used);
    for (const uint8_t *at = text.data + used; at < end; at += size) {
        char escape[ESCAPE_BYTES + 1];
        const void *bytes = escape;
        size_t length;
        if (printable_next(at, end, &size, &code)) {
            bytes = at;
            length = size;
        } else {
            length = (size_t)snprintf(escape, sizeof escape, size == 1 ? "\\x%02x" : "\\u{%x}",
                                      (unsigned)code);
        }
        if (length >= room - used)
            break;
        memcpy(out + used, bytes, length);
        used += length;
    }
    out[used] = '\0';
    return used;
}

char *printable(trp_bytes text)
{
    size_t room = 4 * text.size + 1; /* \xNN for a byte is the most that a byte becomes */
    char *out = xmalloc(room);
    size_t used = printable_copy(out, room, text);
    return xrealloc(out, used + 1);
}

void vprint_text(FILE *out, const char *format, va_list args)
{
    char *text;
    int size = vasprintf(&text, format, args);
    if (size < 0)
        return;
    size_t first = strspn(format, "\n"), last = 0, length = strlen(format);
    while (last < length - first && format[length - 1 - last] == '\n')
        last++;
    char *inner = printable((trp_bytes){(uint8_t *)text + first, (size_t)size - first - last});
    fprintf(out, "%.*s%s%.*s", (int)first, format, inner, (int)last, format + length - last);
    free(inner);
    free(text);
}

void print_text(FILE *out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vprint_text(out, format, args);
    va_end(args);
}
