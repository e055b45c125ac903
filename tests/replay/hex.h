/* Golden bytes as text. */
#ifndef TRP_TESTS_HEX_H
#define TRP_TESTS_HEX_H

#include <stdint.h>
#include <string.h>

#include <troupe/bytes.h>

static inline uint8_t hex_digit(char c)
{
    return (uint8_t)(c <= '9' ? c - '0' : c - 'a' + 10);
}

/* Decodes into `out` (at least strlen(hex) / 2 bytes). */
static inline trp_bytes hex_bytes(const char *hex, uint8_t *out)
{
    size_t size = strlen(hex) / 2;
    for (size_t i = 0; i < size; ++i)
        out[i] = (uint8_t)(hex_digit(hex[2 * i]) << 4 | hex_digit(hex[2 * i + 1]));
    return (trp_bytes){out, size};
}

#endif
