#include "core/words.h"

#include <string.h>

#include "core/alloc.h"
#include "core/buffer.h"

char *shell_word(const char *text)
{
    if (text[0] && text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                     "0123456789_-+=.,:/@%")] == '\0')
        return xstrdup(text);
    struct buffer word = {0};
    buffer_append(&word, (trp_bytes){(const uint8_t *)"'", 1});
    for (; *text; text++) {
        const char *part = *text == '\'' ? "'\\''" : text;
        buffer_append(&word, (trp_bytes){(const uint8_t *)part, part == text ? 1 : 4});
    }
    buffer_append(&word, (trp_bytes){(const uint8_t *)"'", 2});
    return (char *)word.data;
}
