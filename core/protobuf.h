/* Protobuf's bytes: a reader of fields and a writer that goes backwards. Nothing is read outside of
 * the reader's bytes, whatever they say.
 *
 * The writer starts at the end: a length is known once what it counts has been put. The right size
 * of the buffer is found by putting everything twice, the first time only to count. */
#ifndef TRP_CORE_PROTOBUF_H
#define TRP_CORE_PROTOBUF_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <troupe/bytes.h>
#include "core/limits.h"

enum wire_type { VARINT = 0, FIXED64 = 1, LEN = 2, GROUP = 3, GROUP_END = 4, FIXED32 = 5 };

/* A constant for switch labels. */
#define TAG(number, type) ((uint32_t)((number) << 3 | (type)))

struct reader {
    const uint8_t *at, *end;
    bool malformed;
};

struct field {
    uint32_t tag;
    uint64_t value;        /* of a VARINT, FIXED64 or FIXED32 */
    trp_bytes bytes;       /* of a LEN */
    const uint8_t *before; /* where the tag began */
};

static inline struct reader reader_of(trp_bytes bytes)
{
    return (struct reader){bytes.data, bytes.data + bytes.size, false};
}

/* The seven low bits of each of eight bytes, joined. */
static inline uint64_t varint_join(uint64_t bytes)
{
    bytes &= UINT64_C(0x7f7f7f7f7f7f7f7f);
    bytes = (bytes & UINT64_C(0x7f007f007f007f00)) >> 1 | (bytes & UINT64_C(0x007f007f007f007f));
    bytes = (bytes & UINT64_C(0x3fff00003fff0000)) >> 2 | (bytes & UINT64_C(0x00003fff00003fff));
    return (bytes & UINT64_C(0x0fffffff00000000)) >> 4 | (bytes & UINT64_C(0x000000000fffffff));
}

/* More than one byte: keys have nine or ten, so eight are taken at a time where they are there. */
static __attribute__((noinline, unused)) bool read_long_varint(struct reader *reader,
                                                               uint64_t *value)
{
    uint64_t result = 0;
    unsigned shift = 0;
    if (reader->end - reader->at >= 8) {
        uint64_t bytes;
        memcpy(&bytes, reader->at, 8);
        uint64_t stop = ~bytes & UINT64_C(0x8080808080808080);
        if (stop) {
            reader->at += __builtin_ctzll(stop) / 8 + 1;
            *value = varint_join(bytes & (stop ^ (stop - 1)));
            return true;
        }
        result = varint_join(bytes);
        reader->at += 8;
        shift = 56;
    }
    for (; shift < 70 && reader->at < reader->end; shift += 7) {
        uint8_t byte = *reader->at++;
        if (shift == 63 && byte > 1)
            break; /* more than 64 bits */
        result |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *value = result;
            return true;
        }
    }
    reader->malformed = true;
    return false;
}

static inline __attribute__((always_inline)) bool read_varint(struct reader *reader,
                                                              uint64_t *value)
{
    if (reader->at < reader->end && *reader->at < 0x80) {
        *value = *reader->at++;
        return true;
    }
    return read_long_varint(reader, value);
}

static inline bool read_fixed(struct reader *reader, size_t size, uint64_t *value)
{
    *value = 0;
    if ((size_t)(reader->end - reader->at) < size) {
        reader->malformed = true;
        return false;
    }
    memcpy(value, reader->at, size); /* little endian, like every host we build for */
    reader->at += size;
    return true;
}

static inline __attribute__((always_inline)) bool read_span(struct reader *reader, trp_bytes *bytes)
{
    uint64_t size;
    if (!read_varint(reader, &size))
        return false;
    if (size > (uint64_t)(reader->end - reader->at)) {
        reader->malformed = true;
        return false;
    }
    *bytes = (trp_bytes){reader->at, (size_t)size};
    reader->at += size;
    return true;
}

/* The value behind `tag`; groups are left open for skip_group(). */
static inline __attribute__((always_inline)) bool read_value(struct reader *reader,
                                                             struct field *field)
{
    unsigned type = field->tag & 7;
    if (type == VARINT)
        return read_varint(reader, &field->value);
    if (type == LEN)
        return read_span(reader, &field->bytes);
    if (type == FIXED64)
        return read_fixed(reader, 8, &field->value);
    if (type == FIXED32)
        return read_fixed(reader, 4, &field->value);
    reader->malformed = true;
    return false;
}

static inline __attribute__((always_inline)) bool read_tag(struct reader *reader, uint32_t *tag)
{
    uint64_t value;
    if (!read_varint(reader, &value))
        return false;
    if (value > UINT32_MAX || value >> 3 == 0)
        reader->malformed = true;
    *tag = (uint32_t)value;
    return !reader->malformed;
}

/* Behind the start of a group: nobody sends them any more, so they are only stepped over. */
static __attribute__((noinline, unused)) bool skip_group(struct reader *reader)
{
    for (unsigned depth = 1; depth > 0;) {
        struct field field;
        if (reader->at == reader->end || !read_tag(reader, &field.tag))
            break;
        if ((field.tag & 7) == GROUP && depth++ < MESSAGE_DEPTH_MAX)
            continue;
        if ((field.tag & 7) == GROUP_END && --depth == 0)
            return true;
        if ((field.tag & 7) != GROUP_END && !read_value(reader, &field))
            break;
    }
    reader->malformed = true;
    return false;
}

/* The next field; false at the end and when malformed. Inlined: where the tags that come are known,
 * most of it folds away. */
static inline __attribute__((always_inline)) bool read_field(struct reader *reader,
                                                             struct field *field)
{
    while (reader->at < reader->end) {
        field->before = reader->at;
        if (!read_tag(reader, &field->tag))
            return false;
        if ((field->tag & 7) != GROUP)
            return read_value(reader, field);
        if (!skip_group(reader))
            return false;
    }
    return false;
}

/* ---- writing ----------------------------------------------------------------------------- */

/* Where bytes are put, from the last to the first. A zeroed one only counts them. */
struct writer {
    uint8_t *end;
    size_t room;      /* before `end` */
    size_t size;      /* of the bytes put there so far */
    size_t elsewhere; /* of the bytes that belong between them and are kept somewhere else */
};

static inline struct writer writer_of(uint8_t *bytes, size_t size)
{
    return (struct writer){.end = bytes + size, .room = size};
}

static inline trp_bytes writer_bytes(const struct writer *writer)
{
    return (trp_bytes){writer->end - writer->size, writer->size};
}

/* For put_len_header(). */
static inline size_t writer_mark(const struct writer *writer)
{
    return writer->size + writer->elsewhere;
}

static inline size_t varint_size(uint64_t value)
{
    unsigned bits = 64 - (unsigned)__builtin_clzll(value | 1);
    return (bits * 9 + 64) / 64;
}

static inline uint8_t *varint_write(uint8_t *at, uint64_t value)
{
    while (value >= 0x80) {
        *at++ = (uint8_t)value | 0x80;
        value >>= 7;
    }
    *at++ = (uint8_t)value;
    return at;
}

/* NULL: they are only counted. */
static inline uint8_t *put_room(struct writer *writer, size_t size)
{
    writer->size += size;
    if (!writer->end)
        return NULL;
    assert(writer->size <= writer->room);
    return writer->end - writer->size;
}

static inline void put_varint(struct writer *writer, uint64_t value)
{
    uint8_t *at = put_room(writer, varint_size(value));
    if (at)
        varint_write(at, value);
}

static inline void put_bytes(struct writer *writer, trp_bytes bytes)
{
    uint8_t *at = put_room(writer, bytes.size);
    if (at && bytes.size)
        memcpy(at, bytes.data, bytes.size);
}

static inline void put_fixed64(struct writer *writer, uint64_t value)
{
    put_bytes(writer, (trp_bytes){(const uint8_t *)&value, 8});
}

/* Optional scalars: a default is not written. Negative int32 take ten bytes, as protobuf says. */
static inline void put_varint_field(struct writer *writer, uint32_t number, uint64_t value)
{
    if (value == 0)
        return;
    put_varint(writer, value);
    put_varint(writer, TAG(number, VARINT));
}

static inline double bits_double(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline void put_double_field(struct writer *writer, uint32_t number, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (bits == 0)
        return;
    put_fixed64(writer, bits);
    put_varint(writer, TAG(number, FIXED64));
}

/* The header of everything put since `mark` was the writer_mark(). */
static inline void put_len_header(struct writer *writer, uint32_t number, size_t mark)
{
    put_varint(writer, writer_mark(writer) - mark);
    put_varint(writer, TAG(number, LEN));
}

static inline void put_bytes_field(struct writer *writer, uint32_t number, trp_bytes bytes)
{
    if (bytes.size == 0)
        return;
    size_t mark = writer_mark(writer);
    put_bytes(writer, bytes);
    put_len_header(writer, number, mark);
}

#endif
