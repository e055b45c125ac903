/* The rows of a batch that was not copied: for each column of each row the spans of bytes that it
 * consists of, in order, in memory that others own. A row is settled once its bytes are the
 * batch's own. One thread. */
#ifndef TRP_REPLAY_SAMPLER_VIEWS_H
#define TRP_REPLAY_SAMPLER_VIEWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/bytes.h>
#include <troupe/tensor.h>

struct views {
    size_t column_count;
    size_t *bytes; /* of each column of a row */
    trp_bytes *spans;
    uint32_t *first; /* spans[first[i]] .. spans[first[i + 1]], i = row * column_count + column */
    uint32_t span_capacity;
    uint32_t settled; /* rows */
};

struct views *views_create(const trp_tensor_spec *columns, size_t column_count, uint32_t rows);
void views_destroy(struct views *views); /* NULL is fine */

/* Spans of `row` follow; earlier ones of it are forgotten. */
void views_begin(struct views *views, uint32_t row);

/* The next bytes of a column; the columns come in order. */
void views_push(struct views *views, uint32_t row, size_t column, const uint8_t *data, size_t size);

/* Copies rows up to `rows` to columns[c] + row * bytes[c]; each column is one span then. */
void views_settle(struct views *views, uint32_t rows, void *const *columns);

#endif
