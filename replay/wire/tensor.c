/* The two codings of tensors in chunks: raw snappy blocks and row deltas.
 *
 * Most tensors of a step are a few bytes, where a compressor only costs time, so a block of one
 * literal is written and read without calling snappy. Any valid block is read. Bytes that are
 * broken give a status, never a wrong tensor: a block must decompress to exactly the size that its
 * shape says. */
#include "tensor.h"

#include <inttypes.h>
#include <snappy-c.h>
#include <string.h>

#include "core/protobuf.h"

/* ---- blocks ---------------------------------------------------------------------------------- */

uint8_t *block_literal_header(uint8_t *end, uint32_t size)
{
    uint8_t header[BLOCK_HEADER_BYTES_MAX];
    uint8_t *out = varint_write(header, size);
    if (size > 0 && size <= 60) {
        *out++ = (uint8_t)((size - 1) << 2);
    } else if (size > 60) {
        uint32_t value = size - 1;
        uint32_t count = value < 1u << 8 ? 1 : value < 1u << 16 ? 2 : value < 1u << 24 ? 3 : 4;
        *out++ = (uint8_t)((59 + count) << 2);
        for (uint32_t i = 0; i < count; i++)
            *out++ = (uint8_t)(value >> (8 * i));
    }
    size_t length = (size_t)(out - header);
    memcpy(end - length, header, length);
    return end - length;
}

bool block_literal(trp_bytes block, uint64_t beyond, trp_bytes *raw)
{
    struct reader reader = reader_of(block);
    uint64_t size, tag, length = 0;
    if (!read_varint(&reader, &size) || size > UINT32_MAX)
        return false;
    if (size > 0) {
        if (!read_fixed(&reader, 1, &tag) || (tag & 3) != 0)
            return false;
        length = tag >> 2;
        if (length >= 60 && !read_fixed(&reader, (size_t)length - 59, &length))
            return false;
        length++;
    }
    *raw = (trp_bytes){reader.at, (size_t)(reader.end - reader.at)};
    return length == size && raw->size + beyond == size;
}

trp_status block_decompress(trp_bytes block, uint8_t *out, size_t size)
{
    trp_bytes raw;
    if (block_literal(block, 0, &raw) && raw.size == size) {
        if (size)
            memcpy(out, raw.data, size);
        return TRP_OK;
    }
    size_t length = 0;
    const char *data = (const char *)block.data;
    if (snappy_uncompressed_length(data, block.size, &length) != SNAPPY_OK || length != size)
        return trp_fail(TRP_DATA_LOSS, "a compressed tensor has %zu bytes where its shape says %zu",
                        length, size);
    if (snappy_uncompress(data, block.size, (char *)out, &length) != SNAPPY_OK || length != size)
        return trp_fail(TRP_DATA_LOSS, "a compressed tensor of %zu bytes is broken", size);
    return TRP_OK;
}

bool block_size_plausible(trp_bytes block, size_t size)
{
    /* The densest element is a copy: 3 bytes make at most 64. */
    return size <= UINT32_MAX && size / 22 <= block.size;
}

trp_status block_check(trp_bytes block, uint64_t size)
{
    trp_bytes raw;
    if (block_literal(block, 0, &raw) && raw.size == size)
        return TRP_OK;
    const char *data = (const char *)block.data;
    size_t length = 0;
    if (block.size == 0 && size == 0)
        return TRP_OK;
    if (block.size == 0 || snappy_uncompressed_length(data, block.size, &length) != SNAPPY_OK)
        return trp_fail(TRP_INVALID_ARGUMENT, "its content is no snappy block (%zu bytes)",
                        block.size);
    if (length != size)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "its content decompresses to %zu bytes, its shape says %" PRIu64, length,
                        size);
    if (snappy_validate_compressed_buffer(data, block.size) != SNAPPY_OK)
        return trp_fail(TRP_INVALID_ARGUMENT, "its content is a broken snappy block (%zu bytes)",
                        block.size);
    return TRP_OK;
}

trp_status strings_check(trp_bytes content, uint64_t count)
{
    struct reader reader = reader_of(content);
    uint64_t length, total = 0;
    for (uint64_t i = 0; i < count; i++) {
        if (!read_varint(&reader, &length) || length > UINT32_MAX)
            return trp_fail(TRP_INVALID_ARGUMENT,
                            "its content has no length for string %" PRIu64 " of %" PRIu64, i,
                            count);
        total += length; /* at most as many as bytes, of 4 GB each */
    }
    if (total != (uint64_t)(reader.end - reader.at))
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "its %" PRIu64 " strings have %" PRIu64 " bytes in all, its content %zu",
                        count, total, (size_t)(reader.end - reader.at));
    return TRP_OK;
}

size_t tensor_element_bytes(int32_t dtype)
{
    static const uint8_t sizes[] = {
        [1] = 4,   [2] = 8,  [3] = 4,  [4] = 1,  [5] = 2,  [6] = 1,  [8] = 8,  [9] = 8,
        [10] = 1,  [11] = 1, [12] = 1, [13] = 4, [14] = 2, [15] = 2, [16] = 2, [17] = 2,
        [18] = 16, [19] = 2, [22] = 4, [23] = 8, [24] = 1, [25] = 1, [26] = 1, [27] = 1,
        [28] = 1,  [29] = 1, [30] = 1, [31] = 1, [32] = 1};
    return dtype > 0 && dtype < (int32_t)(sizeof sizes) ? sizes[dtype] : 0;
}

size_t block_compressed_max(size_t size)
{
    return snappy_max_compressed_length(size);
}

size_t block_compress(trp_bytes raw, uint8_t *out)
{
    size_t size = block_compressed_max(raw.size);
    if (snappy_compress((const char *)raw.data, raw.size, (char *)out, &size) != SNAPPY_OK)
        return 0;
    return size <= raw.size - raw.size / 8 ? size : 0;
}

/* ---- deltas ---------------------------------------------------------------------------------- */

bool delta_applies(int32_t dtype, uint32_t rank)
{
    if (rank < 2)
        return false;
    switch (dtype) {
    case TRP_INT8:
    case TRP_INT16:
    case TRP_INT32:
    case TRP_INT64:
    case TRP_UINT8:
    case TRP_UINT16:
    case TRP_UINT32:
    case TRP_UINT64:
        return true;
    default:
        return false;
    }
}

#define DELTA_SUM(type)                                                                            \
    static void sum_##type(size_t count, const uint8_t *before, uint8_t *row)                      \
    {                                                                                              \
        for (size_t i = 0; i < count; i++) {                                                       \
            type a, b;                                                                             \
            memcpy(&a, before + i * sizeof a, sizeof a);                                           \
            memcpy(&b, row + i * sizeof b, sizeof b);                                              \
            b = (type)(a + b);                                                                     \
            memcpy(row + i * sizeof b, &b, sizeof b);                                              \
        }                                                                                          \
    }

DELTA_SUM(uint8_t)
DELTA_SUM(uint16_t)
DELTA_SUM(uint32_t)
DELTA_SUM(uint64_t)

void delta_decode(int32_t dtype, size_t rows, size_t row_elements, uint8_t *data)
{
    size_t element = trp_dtype_size((trp_dtype)dtype);
    size_t row_bytes = element * row_elements;
    for (size_t row = 1; row < rows; row++) {
        uint8_t *here = data + row * row_bytes;
        if (element == 1)
            sum_uint8_t(row_elements, here - row_bytes, here);
        else if (element == 2)
            sum_uint16_t(row_elements, here - row_bytes, here);
        else if (element == 4)
            sum_uint32_t(row_elements, here - row_bytes, here);
        else
            sum_uint64_t(row_elements, here - row_bytes, here);
    }
}
