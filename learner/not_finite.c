/* It is looked for once a step has failed: while all is well it costs nothing. Batches come first,
 * as what they bring is what vectors have it from. */
#include "not_finite.h"

#include <inttypes.h>

#include "core/alloc.h"

static double number_at(const void *numbers, bool is_double, size_t place)
{
    return is_double ? ((const double *)numbers)[place] : (double)((const float *)numbers)[place];
}

/* The first of them; count: all are finite. */
static size_t first_not_finite(const void *numbers, bool is_double, size_t count)
{
    size_t place = 0;
    while (place < count && isfinite(number_at(numbers, is_double, place)))
        place++;
    return place;
}

static char *where_in_column(const trp_batch_spec *source, const trp_batch *batch, size_t column)
{
    const trp_tensor_spec *spec = &source->columns.specs[column];
    const void *numbers = batch->columns[column];
    bool is_double = spec->dtype == TRP_FLOAT64;
    if (!is_double && spec->dtype != TRP_FLOAT32)
        return NULL;
    size_t of_item = trp_tensor_bytes(spec) / trp_dtype_size(spec->dtype);
    size_t count = of_item * batch->rows, place = first_not_finite(numbers, is_double, count);
    if (place == count)
        return NULL;
    return xasprintf("'%s' of item %" PRIu64 " of '%s' is %g", spec->name,
                     batch->keys ? batch->keys[place / of_item] : place / of_item, source->table,
                     without_sign(number_at(numbers, is_double, place)));
}

static char *where_in_batch(const trp_batch_spec *source, const trp_batch *batch)
{
    char *where = NULL;
    for (size_t i = 0; i < source->columns.count && !where; i++)
        where = where_in_column(source, batch, i);
    return where;
}

static char *where_in_vector(const struct vector *vector)
{
    size_t place = first_not_finite(vector->values.there, false, vector->spec->count);
    if (place == vector->spec->count)
        return NULL;
    return xasprintf("number %zu of '%s' is %g", place, vector->spec->name,
                     without_sign(number_at(vector->values.there, false, place)));
}

char *not_finite_where(const struct trp_update_run *run, uint64_t step)
{
    const trp_update *update = &run->steps[step % 2];
    const trp_updater *updater = run->updater;
    char *where = NULL;
    if (update->step != step) /* others had batches, this learner had none */
        return NULL;
    for (size_t i = 0; i < updater->source_count && !where; i++)
        where = where_in_batch(&updater->sources[i], &update->batches[i]);
    for (size_t i = 0; i < run->vectors.count && run->is_host && !where; i++)
        where = where_in_vector(&run->vectors.each[i]);
    if (!where && run->is_host && !run->mode->group)
        where = xstrdup("all that it was made of is finite");
    return where;
}
