/* A compressed message of a few megabytes that inflates to a hundred times as much. */
#ifndef TESTS_GZIP_BOMB_H
#define TESTS_GZIP_BOMB_H

#include <stdint.h>
#include <string.h>

#include <troupe/bytes.h>
#include "core/alloc.h"

static inline void put_bits(uint8_t *data, size_t *at, uint32_t bits, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++, ++*at)
        data[*at / 8] |= (uint8_t)((bits >> i & 1) << *at % 8);
}

/* A compressed gRPC message of `zeros` zeros: a gzip stream of one zero and copies of the 258
 * bytes before (RFC 1951, fixed codes). Its sums are wrong, which shows when all is inflated. */
static inline trp_bytes bomb_create(size_t zeros)
{
    static const uint8_t gzip[10] = {0x1f, 0x8b, 8};
    enum { PREFIX = 5, TRAILER = 8, END = 1, FIXED = 1 };
    enum { ZERO_CODE = 0x0c, COPY_258_CODE = 0xa3 }; /* bits in the order in which they lie */
    size_t copies = zeros / 258;
    uint8_t *data = xcalloc(1, PREFIX + sizeof gzip + copies * 13 / 8 + 16 + TRAILER);
    memcpy(data + PREFIX, gzip, sizeof gzip);
    size_t at = 8 * (PREFIX + sizeof gzip);
    put_bits(data, &at, END | FIXED << 1, 3);
    put_bits(data, &at, ZERO_CODE, 8);
    for (size_t i = 0; i < copies; i++)
        put_bits(data, &at, COPY_258_CODE, 13); /* and five zeros: distance 1 */
    put_bits(data, &at, 0, 7);                  /* end of the block */
    size_t size = (at + 7) / 8 + TRAILER;
    data[0] = 1;
    for (int i = 0; i < 4; i++)
        data[1 + i] = (uint8_t)((size - PREFIX) >> (24 - 8 * i));
    return (trp_bytes){data, size};
}

#endif
