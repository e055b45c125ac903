#include <troupe/columns.h>

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"

enum { COLUMN_TEXT_BYTES = 256 }; /* of one column in a message; longer text is cut */

void trp_columns_add(trp_columns *columns, const char *name, const trp_tensor_spec *spec)
{
    const char *called = name ? name : spec->name;
    assert(called && trp_columns_find(columns, called) == columns->count);
    columns->specs = xrealloc(columns->specs, (columns->count + 1) * sizeof *columns->specs);
    trp_tensor_spec *copy = &columns->specs[columns->count++];
    *copy = *spec;
    copy->name = xstrdup(called);
}

void trp_columns_add_steps(trp_columns *columns, const char *name, const trp_tensor_spec *spec,
                           int64_t length)
{
    assert(spec->rank < TRP_RANK_MAX);
    trp_tensor_spec steps = *spec;
    steps.rank++;
    steps.shape[0] = length;
    memcpy(steps.shape + 1, spec->shape, spec->rank * sizeof *spec->shape);
    trp_columns_add(columns, name, &steps);
}

void trp_columns_add_all(trp_columns *columns, const trp_columns *from)
{
    for (size_t i = 0; i < from->count; i++)
        trp_columns_add(columns, NULL, &from->specs[i]);
}

void trp_columns_cleanup(trp_columns *columns)
{
    for (size_t i = 0; i < columns->count; i++)
        free((char *)(uintptr_t)columns->specs[i].name);
    free(columns->specs);
    *columns = (trp_columns){0};
}

size_t trp_columns_find(const trp_columns *columns, const char *name)
{
    size_t i = 0;
    while (i < columns->count && strcmp(columns->specs[i].name, name) != 0)
        i++;
    return i;
}

/* "reward float32[20]", or that there is no such column. */
static void describe(const trp_columns *columns, size_t place, char text[COLUMN_TEXT_BYTES])
{
    if (place == columns->count) {
        snprintf(text, COLUMN_TEXT_BYTES, "nothing");
        return;
    }
    const trp_tensor_spec *spec = &columns->specs[place];
    int size =
        snprintf(text, COLUMN_TEXT_BYTES, "%.128s %s[", spec->name, trp_dtype_name(spec->dtype));
    for (uint32_t axis = 0; axis < spec->rank && size < COLUMN_TEXT_BYTES - 32; axis++)
        size += snprintf(text + size, COLUMN_TEXT_BYTES - (size_t)size, "%s%" PRId64,
                         axis == 0 ? "" : ", ", spec->shape[axis]);
    snprintf(text + size, COLUMN_TEXT_BYTES - (size_t)size, "]");
}

static bool columns_agree(const trp_tensor_spec *a, const trp_tensor_spec *b)
{
    return a->dtype == b->dtype && a->rank == b->rank && strcmp(a->name, b->name) == 0 &&
           memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0;
}

trp_status trp_columns_check(const trp_columns *have, const trp_columns *want, const char *who)
{
    size_t place = 0;
    while (place < have->count && place < want->count &&
           columns_agree(&have->specs[place], &want->specs[place]))
        place++;
    if (place == have->count && place == want->count)
        return TRP_OK;
    char is[COLUMN_TEXT_BYTES], wanted[COLUMN_TEXT_BYTES];
    describe(have, place, is);
    describe(want, place, wanted);
    return trp_fail(TRP_INVALID_ARGUMENT, "%s: column %zu is %s, expected %s", who, place, is,
                    wanted);
}
