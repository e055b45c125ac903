/* Columns: an ordered list of named tensors. What a policy writes beside its actions, what an item
 * of a table has, what a batch has: policy, adder, table and updater are given the same list, and
 * find a column by its name.
 *
 *     static trp_status declare(trp_columns *columns)
 *     {
 *         trp_columns_add(columns, "log_prob", &(trp_tensor_spec){.dtype = TRP_FLOAT32});
 *         trp_columns_add_steps(columns, "value", &(trp_tensor_spec){.dtype = TRP_FLOAT32}, 20);
 *         return TRP_OK; // value is float32[20]: trp_columns_cleanup() frees the list
 *     }
 */
#ifndef TRP_COLUMNS_H
#define TRP_COLUMNS_H

#include <stddef.h>
#include <stdint.h>

#include <troupe/status.h>
#include <troupe/tensor.h>

TRP_BEGIN_DECLS

/* Zeroed: empty. The specs and their names belong to the list. */
typedef struct {
    trp_tensor_spec *specs;
    size_t count;
} trp_columns;

/* Appends a copy of `spec` under `name` (NULL: the spec's own). A name that is there already, or
 * none, is a bug (asserted). */
TRP_API void trp_columns_add(trp_columns *columns, const char *name, const trp_tensor_spec *spec);

/* The same with an axis of `length` steps before the spec's own; its rank is below
 * TRP_RANK_MAX. */
TRP_API void trp_columns_add_steps(trp_columns *columns, const char *name,
                                   const trp_tensor_spec *spec, int64_t length);

/* Appends copies of all columns of `from`. */
TRP_API void trp_columns_add_all(trp_columns *columns, const trp_columns *from);

/* Frees what is in it; the list is empty after it. */
TRP_API void trp_columns_cleanup(trp_columns *columns);

/* The place of a column; `columns->count` when there is none of that name. */
TRP_API size_t trp_columns_find(const trp_columns *columns, const char *name);

/* OK when `have` is the list `want`. Otherwise INVALID_ARGUMENT names the first column that
 * differs, with what both say of it; `who` ("table transitions") begins the message. */
TRP_API TRP_MUST_USE trp_status trp_columns_check(const trp_columns *have, const trp_columns *want,
                                                  const char *who);

TRP_END_DECLS
#endif
