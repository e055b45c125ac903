/* What a column of experience is: element type and shape, in TensorFlow's numbers. */
#ifndef TRP_TENSOR_H
#define TRP_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/status.h>

TRP_BEGIN_DECLS

/* Numbers are tensorflow.DataType's. */
typedef enum {
    TRP_FLOAT32 = 1,
    TRP_FLOAT64 = 2,
    TRP_INT32 = 3,
    TRP_UINT8 = 4,
    TRP_INT16 = 5,
    TRP_INT8 = 6,
    TRP_INT64 = 9,
    TRP_BOOL = 10,
    TRP_UINT16 = 17,
    TRP_UINT32 = 22,
    TRP_UINT64 = 23,
} trp_dtype;

enum { TRP_RANK_MAX = 8 };

typedef struct {
    const char *name;
    trp_dtype dtype;
    uint32_t rank; /* 0: a scalar */
    int64_t shape[TRP_RANK_MAX];
} trp_tensor_spec;

/* Bytes of one element; 0 for a number that is no trp_dtype. */
TRP_API size_t trp_dtype_size(trp_dtype dtype);

/* "float32" and so on; numbers that are no trp_dtype give "unlisted". */
TRP_API const char *trp_dtype_name(trp_dtype dtype);

/* Bytes of one tensor of this spec; 0 when it overflows or a dimension is negative. */
TRP_API size_t trp_tensor_bytes(const trp_tensor_spec *spec);

TRP_END_DECLS
#endif
