/* Tensors for people and for JSON: small ones whole, large ones summarised. */
#ifndef TRP_CLI_VALUES_H
#define TRP_CLI_VALUES_H

#include <cjson/cJSON.h>

#include <troupe/item.h>

/* "[2,3]"; nested as numpy prints, or minimum, maximum, mean and the first values. Caller frees. */
char *shape_text(const int64_t *shape, size_t rank);
char *values_text(const trp_item_array *array);

/* {"dtype", "shape", "squeezed", "values"}; instead of many values "min", "max", "mean", "first".
 * Strings are as json_bytes() has them. */
cJSON *values_json(const trp_item_array *array);

/* How many elements the shape says; SIZE_MAX: more than there can be. */
size_t values_count(const trp_item_array *array);

#endif
