/* Table signatures: a tensorflow.StructuredValue, flattened as Reverb's clients flatten it. */
#ifndef TRP_REPLAY_MODEL_SIGNATURE_H
#define TRP_REPLAY_MODEL_SIGNATURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/bytes.h>
#include <troupe/replay.h>
#include <troupe/status.h>
#include <troupe/tensor.h>

#include "core/buffer.h"

/* One TensorSpec: its path in the structure ("obs/pixels", "0/1"), dtype and shape. */
struct signature_leaf {
    char *path;
    int32_t dtype;
    bool unknown_rank;
    uint32_t rank;
    int64_t dims[TRP_RANK_MAX]; /* -1: any size; the first TRP_RANK_MAX of `rank` */
};

/* Leaves in flatten order: lists and tuples in order, dicts by sorted key, named tuples by field.
 * A zeroed struct is empty. */
struct signature {
    struct signature_leaf *leaves;
    uint32_t count, capacity;
    struct buffer *text; /* its text is appended there; NULL: nobody wants it */
};

enum { /* oneof kind of StructuredValue */
       KIND_TENSOR_SPEC = 33,
       KIND_BOUNDED_TENSOR_SPEC = 35,
       KIND_LIST = 51,
       KIND_TUPLE = 52,
       KIND_DICT = 53,
       KIND_NAMED_TUPLE = 54,
};

/* Letters of names that need no quotes. */
extern const char signature_bare[];

/* Appends field `number` with the bytes of `part`, which is empty then; and the StructuredValue of
 * one tensor, `name` NULL: it has none. */
void signature_add_part(struct buffer *out, uint32_t number, struct buffer *part);
void signature_add_tensor(struct buffer *out, const char *name, int32_t dtype, bool unknown_rank,
                          uint32_t rank, const int64_t *dims);

/* INVALID_ARGUMENT: malformed, nested too deep, too many leaves, names that are not UTF-8, or a
 * kind that is no structure of TensorSpecs. `out` is to be cleaned up in any case. */
trp_status signature_decode(trp_bytes bytes, struct signature *out);
void signature_cleanup(struct signature *signature);

/* Whether the value of signature= is one, as trp_signature_parse() takes it, and no file's name. */
bool signature_is_text(const char *value);

/* INVALID_ARGUMENT names the first of the columns that does not fit `table`'s signature. */
trp_status signature_check(const struct signature *signature, const trp_tensor_spec *columns,
                           size_t count, const char *table);

/* "float32[4,?]" into `text`, cut to its size. */
void tensor_describe(char *text, size_t size, int32_t dtype, uint32_t rank, const int64_t *dims);

#endif
