/* Encoding for the wire is one pass: a slice is shorter than 128 bytes, so its length takes one
 * byte that is filled in afterwards; a column that needs more is moved. */
#include "trajectory.h"

#include <assert.h>
#include <string.h>

#include "core/protobuf.h"

/* ---- reading ----------------------------------------------------------------------------- */

/* The bytes were built here or have passed trajectory_valid(). */
static inline uint32_t varint32_read(const uint8_t **at)
{
    uint32_t value = *(*at)++;
    if (value < 0x80)
        return value;
    value &= 0x7f;
    for (unsigned shift = 7;; shift += 7) {
        uint8_t byte = *(*at)++;
        value |= (uint32_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return value;
    }
}

void trajectory_open(struct trajectory_reader *reader, const struct trajectory *trajectory)
{
    *reader =
        (struct trajectory_reader){trajectory->bytes, trajectory->bytes + trajectory->size, 0};
}

bool trajectory_next_column(struct trajectory_reader *reader, uint32_t *slices, bool *squeeze)
{
    assert(reader->slices_left == 0);
    if (reader->at >= reader->end)
        return false;
    uint32_t head = varint32_read(&reader->at);
    *slices = reader->slices_left = head >> 1;
    *squeeze = head & 1;
    return true;
}

bool trajectory_next_slice(struct trajectory_reader *reader, struct trajectory_slice *slice)
{
    if (reader->slices_left == 0)
        return false;
    reader->slices_left--;
    slice->chunk = varint32_read(&reader->at);
    slice->offset = varint32_read(&reader->at);
    slice->length = varint32_read(&reader->at);
    slice->index = varint32_read(&reader->at);
    return true;
}

static bool read_varint32(struct reader *reader, uint32_t *value)
{
    const uint8_t *start = reader->at;
    uint64_t wide = 0;
    bool read = read_varint(reader, &wide) && reader->at - start <= 5; /* more have no 32 bits */
    *value = (uint32_t)wide;
    return read && wide <= UINT32_MAX;
}

bool trajectory_valid(trp_bytes bytes, uint32_t chunk_count)
{
    struct reader reader = reader_of(bytes);
    bool first = true;
    while (reader.at < reader.end) {
        uint32_t head, part;
        if (!read_varint32(&reader, &head) || (first && head >> 1 == 0))
            return false;
        first = false;
        for (uint32_t i = 0; i < head >> 1; i++) {
            if (!read_varint32(&reader, &part) || part >= chunk_count)
                return false;
            for (uint32_t j = 0; j < 3; j++)
                if (!read_varint32(&reader, &part) || part > INT32_MAX)
                    return false;
        }
    }
    return !first;
}

/* ---- encoding ---------------------------------------------------------------------------- */

static inline uint8_t *put_scalar(uint8_t *at, uint8_t tag, uint64_t value)
{
    if (value == 0)
        return at;
    *at++ = tag;
    return varint_write(at, value);
}

static uint8_t *slice_encode(uint8_t *at, const struct trajectory_slice *slice, uint64_t seq)
{
    uint8_t *start = at;
    at += 2;
    at = put_scalar(at, TAG(1, VARINT), seq);
    at = put_scalar(at, TAG(2, VARINT), slice->offset);
    at = put_scalar(at, TAG(3, VARINT), slice->length);
    at = put_scalar(at, TAG(4, VARINT), slice->index);
    start[0] = TAG(1, LEN);
    start[1] = (uint8_t)(at - start - 2);
    return at;
}

/* Puts the header before the bytes from start + 2 to `end`. */
static uint8_t *column_close(uint8_t *start, uint8_t *end)
{
    size_t size = (size_t)(end - start - 2);
    size_t length = varint_size(size);
    if (length > 1)
        memmove(start + 1 + length, start + 2, size);
    start[0] = TAG(1, LEN);
    varint_write(start + 1, size);
    return start + 1 + length + size;
}

void trajectory_encode(const struct trajectory *trajectory, struct chunk *const *chunks,
                       struct buffer *out)
{
    /* At most: a slice of n >= 4 bytes becomes n + 16, a column of n >= 1 becomes n + 7. */
    uint8_t *at = buffer_reserve(out, 8 * (size_t)trajectory->size);
    uint8_t *start = at;
    struct trajectory_reader reader;
    struct trajectory_slice slice;
    uint32_t slices;
    bool squeeze;
    trajectory_open(&reader, trajectory);
    while (trajectory_next_column(&reader, &slices, &squeeze)) {
        uint8_t *column = at;
        at += 2;
        while (trajectory_next_slice(&reader, &slice))
            at = slice_encode(at, &slice, chunks[slice.chunk]->seq);
        at = put_scalar(at, TAG(2, VARINT), squeeze);
        at = column_close(column, at);
    }
    out->size += (size_t)(at - start);
}
