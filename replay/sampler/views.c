/* Problem: a batch that is not copied lies in as many places as it has pages, and nobody knows how
 * many before it has come.
 * Design: one list of spans for the batch, and where in it each column of each row begins. A column
 * whose next bytes follow the last ones in memory stays one span. To settle a row is to write one
 * span over those that it has, which are as many or more, so that the list is packed in place. */
#include "views.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/array.h"

struct views *views_create(const trp_tensor_spec *columns, size_t column_count, uint32_t rows)
{
    struct views *views = xcalloc(1, sizeof *views);
    views->column_count = column_count;
    views->bytes = xcalloc(column_count, sizeof *views->bytes);
    for (size_t i = 0; i < column_count; i++)
        views->bytes[i] = trp_tensor_bytes(&columns[i]);
    views->first = xcalloc(rows * column_count + 1, sizeof *views->first);
    return views;
}

void views_destroy(struct views *views)
{
    if (!views)
        return;
    free(views->bytes);
    free(views->spans);
    free(views->first);
    free(views);
}

void views_begin(struct views *views, uint32_t row)
{
    for (size_t i = row * views->column_count, c = 0; c < views->column_count; c++)
        views->first[i + c + 1] = views->first[i];
    if (row < views->settled)
        views->settled = row;
}

void views_push(struct views *views, uint32_t row, size_t column, const uint8_t *data, size_t size)
{
    uint32_t *first = &views->first[row * views->column_count + column], count = first[1];
    if (count < *first)
        count = *first; /* the column's first span */
    trp_bytes *last = count > *first ? &views->spans[count - 1] : NULL;
    if (last && last->data + last->size == data) {
        last->size += size;
        return;
    }
    if (count == views->span_capacity)
        views->spans = array_grow(views->spans, &views->span_capacity, sizeof *views->spans);
    assert(count < UINT32_MAX);
    views->spans[count] = (trp_bytes){data, size};
    first[1] = count + 1;
}

static void column_settle(struct views *views, size_t index, uint8_t *to)
{
    uint8_t *out = to;
    /* first[index + 1] is still where this column's old spans end: writes are behind reads. */
    for (uint32_t i = views->first[index]; i < views->first[index + 1]; i++) {
        if (out != views->spans[i].data)
            memcpy(out, views->spans[i].data, views->spans[i].size);
        out += views->spans[i].size;
    }
    views->spans[index] = (trp_bytes){to, (size_t)(out - to)};
}

void views_settle(struct views *views, uint32_t rows, void *const *columns)
{
    size_t columns_count = views->column_count;
    for (uint32_t row = views->settled; row < rows; row++)
        for (size_t c = 0; c < columns_count; c++)
            column_settle(views, row * columns_count + c,
                          (uint8_t *)columns[c] + row * views->bytes[c]);
    for (size_t i = views->settled * columns_count; i <= rows * columns_count; i++)
        views->first[i] = (uint32_t)i;
    if (rows > views->settled)
        views->settled = rows;
}
