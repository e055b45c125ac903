/* SampleStreamResponses made field by field, apart from the codec under test. Sample `n` has the
 * columns of sample_columns: cut from three chunks, compressed, plain and delta-coded. */
#ifndef TRP_TESTS_SAMPLE_MESSAGE_H
#define TRP_TESTS_SAMPLE_MESSAGE_H

#include <stdlib.h>
#include <string.h>

#include <snappy-c.h>
#include <troupe/tensor.h>

#include "core/alloc.h"
#include "core/buffer.h"

enum { SAMPLE_COLUMNS = 4 };

static const trp_tensor_spec sample_columns[SAMPLE_COLUMNS] = {
    {.name = "x", .dtype = TRP_INT64},
    {.name = "frames", .dtype = TRP_UINT8, .rank = 2, .shape = {3, 40}},
    {.name = "y", .dtype = TRP_FLOAT32, .rank = 1, .shape = {2}},
    {.name = "d", .dtype = TRP_INT32, .rank = 2, .shape = {2, 2}},
};

struct sample_row {
    int64_t x;
    uint8_t frames[3][40];
    float y[2];
    int32_t d[2][2];
};

static inline struct sample_row sample_row(int64_t n)
{
    struct sample_row row = {.x = 10 * n + 2, .y = {(float)n, (float)n + 1}};
    for (int i = 0; i < 3; i++)
        memset(row.frames[i], (int)(n + i + 1), sizeof row.frames[i]);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++)
            row.d[i][j] = (int32_t)(n * 100 + i * 10 + j);
    return row;
}

static inline void pb_varint(struct buffer *out, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        buffer_append(out, (trp_bytes){&(uint8_t){(uint8_t)(value | 0x80)}, 1});
    buffer_append(out, (trp_bytes){&(uint8_t){(uint8_t)value}, 1});
}

static inline void pb_number(struct buffer *out, uint32_t field, uint64_t value)
{
    pb_varint(out, field << 3);
    pb_varint(out, value);
}

static inline void pb_double(struct buffer *out, uint32_t field, double value)
{
    pb_varint(out, field << 3 | 1);
    buffer_append(out, (trp_bytes){(const uint8_t *)&value, sizeof value});
}

static inline void pb_bytes(struct buffer *out, uint32_t field, const void *data, size_t size)
{
    pb_varint(out, field << 3 | 2);
    pb_varint(out, size);
    buffer_append(out, (trp_bytes){data, size});
}

/* `part` as a field of `out`; `part` is freed. */
static inline void pb_part(struct buffer *out, uint32_t field, struct buffer *part)
{
    pb_bytes(out, field, part->data, part->size);
    buffer_cleanup(part);
}

/* A TensorProto with `content` compressed by snappy itself, as field 1 of a Data message. */
static inline void add_tensor(struct buffer *data, int dtype, uint32_t rank, const int64_t *dims,
                              const void *content, size_t size)
{
    struct buffer tensor = {0}, shape = {0};
    pb_number(&tensor, 1, (uint64_t)dtype);
    for (uint32_t i = 0; i < rank; i++) {
        struct buffer dim = {0};
        if (dims[i])
            pb_number(&dim, 1, (uint64_t)dims[i]);
        pb_part(&shape, 2, &dim);
    }
    pb_part(&tensor, 2, &shape);
    size_t packed = snappy_max_compressed_length(size);
    char *block = xmalloc(packed);
    snappy_compress(content, size, block, &packed);
    pb_bytes(&tensor, 4, block, packed);
    free(block);
    pb_part(data, 1, &tensor);
}

/* The ChunkData around `data`, as field 2 of an entry. */
static inline void add_chunk(struct buffer *entry, uint64_t key, bool delta, struct buffer *data)
{
    struct buffer chunk = {0};
    pb_number(&chunk, 1, key);
    if (delta)
        pb_number(&chunk, 4, 1);
    pb_part(&chunk, 5, data);
    pb_part(entry, 2, &chunk);
}

static inline void add_slice(struct buffer *column, uint64_t chunk, int offset, int length,
                             int index)
{
    struct buffer slice = {0};
    pb_number(&slice, 1, chunk);
    if (offset)
        pb_number(&slice, 2, (uint64_t)(int64_t)offset);
    if (length)
        pb_number(&slice, 3, (uint64_t)(int64_t)length);
    if (index)
        pb_number(&slice, 4, (uint64_t)(int64_t)index);
    pb_part(column, 1, &slice);
}

static inline void add_info(struct buffer *entry, int64_t n)
{
    struct buffer info = {0}, item = {0}, trajectory = {0}, column = {0};
    uint64_t key = 10 * (uint64_t)n;
    add_slice(&column, key + 1, 2, 1, 0);
    pb_number(&column, 2, 1); /* squeeze */
    pb_part(&trajectory, 1, &column);
    add_slice(&column, key + 1, 1, 2, 1);
    add_slice(&column, key + 2, 0, 1, 0);
    pb_part(&trajectory, 1, &column);
    add_slice(&column, key + 1, 0, 2, 2);
    pb_part(&trajectory, 1, &column);
    add_slice(&column, key + 3, 0, 2, 0);
    pb_part(&trajectory, 1, &column);
    pb_number(&item, 1, 1000 + (uint64_t)n);
    pb_bytes(&item, 2, "t", 1);
    pb_double(&item, 5, 0.5 + (double)n);
    pb_number(&item, 6, 3);
    pb_part(&item, 8, &trajectory);
    pb_part(&info, 1, &item);
    pb_double(&info, 2, 1.0 / (double)(n + 1));
    pb_number(&info, 3, 77);
    pb_part(entry, 1, &info);
}

/* Chunk `which` (1 to 3) of sample `n`. */
static inline void add_sample_chunk(struct buffer *entry, int64_t n, int which)
{
    struct buffer data = {0};
    uint64_t key = 10 * (uint64_t)n + (uint64_t)which;
    int64_t x[3];
    uint8_t frames[4][40];
    float y[3];
    for (int i = 0; i < 3; i++) {
        x[i] = 10 * n + i;
        y[i] = (float)(n + i);
    }
    for (int i = 0; i < 4; i++)
        memset(frames[i], (int)(n + i), sizeof frames[i]);
    if (which == 1) {
        add_tensor(&data, TRP_INT64, 1, (int64_t[]){3}, x, sizeof x);
        add_tensor(&data, TRP_UINT8, 2, (int64_t[]){3, 40}, frames, 120);
        add_tensor(&data, TRP_FLOAT32, 1, (int64_t[]){3}, y, sizeof y);
    } else if (which == 2) {
        add_tensor(&data, TRP_UINT8, 2, (int64_t[]){1, 40}, frames[3], 40);
    } else {
        int32_t d[4] = {(int32_t)(n * 100), (int32_t)(n * 100 + 1), 10, 10}; /* row 1 minus row 0 */
        add_tensor(&data, TRP_INT32, 2, (int64_t[]){2, 2}, d, sizeof d);
    }
    add_chunk(entry, key, which == 3, &data);
}

/* A sample in one entry, as field 1 of a response. */
static inline void add_sample(struct buffer *response, int64_t n)
{
    struct buffer entry = {0};
    add_info(&entry, n);
    for (int which = 1; which <= 3; which++)
        add_sample_chunk(&entry, n, which);
    pb_number(&entry, 3, 1);
    pb_part(response, 1, &entry);
}

/* Part `part` (0 to 4) of a sample in five entries: info, three chunks, the end. */
static inline void add_sample_part(struct buffer *response, int64_t n, int part)
{
    struct buffer entry = {0};
    if (part == 0)
        add_info(&entry, n);
    else if (part < 4)
        add_sample_chunk(&entry, n, part);
    else
        pb_number(&entry, 3, 1);
    pb_part(response, 1, &entry);
}

/* A TensorProto whose content is one literal, as field 1 of a Data message. */
static inline void add_plain_tensor(struct buffer *data, int dtype, uint32_t rank,
                                    const int64_t *dims, const void *content, size_t size)
{
    struct buffer tensor = {0}, shape = {0}, block = {0};
    pb_number(&tensor, 1, (uint64_t)dtype);
    for (uint32_t i = 0; i < rank; i++) {
        struct buffer dim = {0};
        pb_number(&dim, 1, (uint64_t)dims[i]);
        pb_part(&shape, 2, &dim);
    }
    pb_part(&tensor, 2, &shape);
    pb_varint(&block, size);
    if (size <= 60)
        buffer_append(&block, (trp_bytes){&(uint8_t){(uint8_t)((size - 1) << 2)}, 1});
    else
        buffer_append(&block, (trp_bytes){(uint8_t[]){60 << 2, (uint8_t)(size - 1)}, 2});
    buffer_append(&block, (trp_bytes){content, size});
    pb_part(&tensor, 4, &block);
    pb_part(data, 1, &tensor);
}

/* The same sample with nothing compressed: all columns in one chunk, or two in each of `chunks`. */
static inline void add_plain_sample(struct buffer *response, int64_t n, int chunks)
{
    struct buffer entry = {0}, info = {0}, item = {0}, trajectory = {0}, column = {0};
    struct sample_row row = sample_row(n);
    const void *contents[] = {&row.x, row.frames, row.y, row.d};
    const int64_t dims[][2] = {{1}, {3, 40}, {2}, {2, 2}};
    int per_chunk = SAMPLE_COLUMNS / chunks;
    for (int i = 0; i < SAMPLE_COLUMNS; i++) {
        add_slice(&column, 200 + (uint64_t)n + (uint64_t)(i / per_chunk), 0, (int)dims[i][0],
                  i % per_chunk);
        if (i == 0)
            pb_number(&column, 2, 1);
        pb_part(&trajectory, 1, &column);
    }
    pb_number(&item, 1, 1000 + (uint64_t)n);
    pb_bytes(&item, 2, "t", 1);
    pb_double(&item, 5, 0.5 + (double)n);
    pb_number(&item, 6, 3);
    pb_part(&item, 8, &trajectory);
    pb_part(&info, 1, &item);
    pb_double(&info, 2, 1.0 / (double)(n + 1));
    pb_number(&info, 3, 77);
    pb_part(&entry, 1, &info);
    for (int which = 0; which < chunks; which++) {
        struct buffer chunk = {0}, range = {0}, data = {0};
        for (int i = which * per_chunk; i < (which + 1) * per_chunk; i++)
            add_plain_tensor(&data, (int)sample_columns[i].dtype, i % 2 ? 2 : 1, dims[i],
                             contents[i], trp_tensor_bytes(&sample_columns[i]));
        pb_number(&chunk, 1, 200 + (uint64_t)(n + which));
        pb_number(&range, 1, 9);
        pb_number(&range, 2, (uint64_t)n);
        pb_number(&range, 3, (uint64_t)n);
        pb_part(&chunk, 2, &range);
        pb_part(&chunk, 5, &data);
        pb_part(&entry, 2, &chunk);
    }
    pb_number(&entry, 3, 1);
    pb_part(response, 1, &entry);
}

#endif
