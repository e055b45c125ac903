/* What a column of experience is: element type and shape, in TensorFlow's numbers. */
#ifndef TRP_TENSOR_H
#define TRP_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/status.h>

TRP_BEGIN_DECLS

/* Numbers are tensorflow.DataType's: everything that Reverb stores. Elements lie in memory as
 * NumPy's do: complex numbers are real and imaginary part, bfloat16 the upper half of a float32.
 * Strings have no fixed size: whole items hold them (item.h), columns of a writer or a sampler
 * do not. */
typedef enum {
    TRP_FLOAT32 = 1,
    TRP_FLOAT64 = 2,
    TRP_INT32 = 3,
    TRP_UINT8 = 4,
    TRP_INT16 = 5,
    TRP_INT8 = 6,
    TRP_STRING = 7,
    TRP_COMPLEX64 = 8,
    TRP_INT64 = 9,
    TRP_BOOL = 10,
    TRP_QINT8 = 11,
    TRP_QUINT8 = 12,
    TRP_QINT32 = 13,
    TRP_BFLOAT16 = 14,
    TRP_QINT16 = 15,
    TRP_QUINT16 = 16,
    TRP_UINT16 = 17,
    TRP_COMPLEX128 = 18,
    TRP_FLOAT16 = 19,
    TRP_UINT32 = 22,
    TRP_UINT64 = 23,
    TRP_FLOAT8_E5M2 = 24,
    TRP_FLOAT8_E4M3FN = 25,
} trp_dtype;

enum { TRP_RANK_MAX = 8 };

typedef struct {
    const char *name;
    trp_dtype dtype;
    uint32_t rank; /* 0: a scalar */
    int64_t shape[TRP_RANK_MAX];
} trp_tensor_spec;

/* Bytes of one element; 0 for strings and for a number that is no trp_dtype. */
TRP_API size_t trp_dtype_size(trp_dtype dtype);

/* TensorFlow's and NumPy's names, "float32" and so on; "?" for a number that is no trp_dtype. */
TRP_API const char *trp_dtype_name(trp_dtype dtype);

/* The number of a name; 0: there is none. */
TRP_API int32_t trp_dtype_parse(const char *name);

/* Bytes of one tensor of this spec; 0 when it overflows, a dimension is negative,
 * or the elements have no fixed size. */
TRP_API size_t trp_tensor_bytes(const trp_tensor_spec *spec);

/* Memory for the columns of batches, such as pinned memory that a device copies from: asked for
 * when a sampler, a rollout or a source of batches is made, and given back when it is destroyed, by
 * the threads that do so. */
typedef struct {
    void *(*allocate)(void *context, size_t bytes); /* aligned to 64; NULL: there is none */
    void (*release)(void *context, void *memory);
    void *context;
} trp_allocator;

TRP_END_DECLS
#endif
