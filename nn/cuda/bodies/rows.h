/* Rows of columns: elementwise kernels and sums. Strides count elements. */
#ifndef TRP_NN_CUDA_BODIES_ROWS_H
#define TRP_NN_CUDA_BODIES_ROWS_H

#include <math.h>
#include <stdbool.h>

#include "nn/activation.h"
#include "nn/cuda/kernel.h"

#define REAL       float
#define NAME(name) name##_cuda
#define MATH(name) name##f
#define SCALAR     KERNEL_BODY
#include "nn/activation_scalar.h"
#undef REAL
#undef NAME
#undef MATH
#undef SCALAR

/* Bytes from the first element of a matrix to behind its last one. */
static inline size_t rows_reach(uint32_t rows, uint32_t columns, size_t stride, size_t element)
{
    return rows > 0 && columns > 0 ? ((rows - 1) * stride + columns) * element : 0;
}

/* ---- bytes: to = scale * from ---------------------------------------------------------------- */

struct bytes_rows_arguments {
    const uint8_t *from;
    float *to;
    size_t from_stride, to_stride;
    uint32_t rows, columns;
    float scale;
};

static inline struct kernel_shape bytes_rows_shape(const struct bytes_rows_arguments *a)
{
    return kernel_of((size_t)a->rows * a->columns);
}

static inline size_t bytes_rows_reaches(const struct bytes_rows_arguments *a,
                                        struct kernel_reach *r)
{
    r[0] = (struct kernel_reach){a->from, rows_reach(a->rows, a->columns, a->from_stride, 1),
                                 TRP_READ};
    r[1] =
        (struct kernel_reach){a->to, rows_reach(a->rows, a->columns, a->to_stride, 4), TRP_WRITE};
    return 2;
}

KERNEL_BODY void bytes_rows_body(const struct bytes_rows_arguments *a, const struct kernel_at *at,
                                 void *shared)
{
    size_t i = thread_index(at), row = i / a->columns, column = i % a->columns;
    (void)shared;
    if (row < a->rows)
        a->to[row * a->to_stride + column] =
            a->scale * (float)a->from[row * a->from_stride + column];
}

/* ---- add: to = a + b, or a where there is no b, or 0 where there is no a ----------------------
 */

struct add_rows_arguments {
    const float *a, *b;
    float *to;
    size_t a_stride, b_stride, to_stride;
    uint32_t rows, columns;
};

static inline struct kernel_shape add_rows_shape(const struct add_rows_arguments *a)
{
    return kernel_of((size_t)a->rows * a->columns);
}

static inline size_t add_rows_reaches(const struct add_rows_arguments *a, struct kernel_reach *r)
{
    r[0] =
        (struct kernel_reach){a->to, rows_reach(a->rows, a->columns, a->to_stride, 4), TRP_WRITE};
    r[1] = (struct kernel_reach){a->a, rows_reach(a->rows, a->columns, a->a_stride, 4), TRP_READ};
    r[2] = (struct kernel_reach){a->b, rows_reach(a->rows, a->columns, a->b_stride, 4), TRP_READ};
    return 3;
}

KERNEL_BODY void add_rows_body(const struct add_rows_arguments *a, const struct kernel_at *at,
                               void *shared)
{
    size_t i = thread_index(at), row = i / a->columns, column = i % a->columns;
    (void)shared;
    if (row >= a->rows)
        return;
    float sum = a->a ? a->a[row * a->a_stride + column] : 0;
    if (a->b)
        sum += a->b[row * a->b_stride + column];
    a->to[row * a->to_stride + column] = sum;
}

/* ---- activations ----------------------------------------------------------------------------- */

/* Forward: out = f(in). Backward: out (+)= in f', from `kept` as in nn/activation.h. */
struct activate_rows_arguments {
    const float *in, *kept;
    float *out;
    size_t in_stride, kept_stride, out_stride;
    uint32_t rows, columns;
    enum activation activation;
    bool backward, accumulate;
};

static inline struct kernel_shape activate_rows_shape(const struct activate_rows_arguments *a)
{
    return kernel_of((size_t)a->rows * a->columns);
}

static inline size_t activate_rows_reaches(const struct activate_rows_arguments *a,
                                           struct kernel_reach *r)
{
    r[0] = (struct kernel_reach){a->in, rows_reach(a->rows, a->columns, a->in_stride, 4), TRP_READ};
    r[1] = (struct kernel_reach){a->backward ? a->kept : NULL,
                                 rows_reach(a->rows, a->columns, a->kept_stride, 4), TRP_READ};
    r[2] = (struct kernel_reach){a->out, rows_reach(a->rows, a->columns, a->out_stride, 4),
                                 a->accumulate ? TRP_READ | TRP_WRITE : TRP_WRITE};
    return 3;
}

KERNEL_BODY void activate_rows_body(const struct activate_rows_arguments *a,
                                    const struct kernel_at *at, void *shared)
{
    size_t i = thread_index(at), row = i / a->columns, column = i % a->columns;
    (void)shared;
    if (row >= a->rows)
        return;
    float in = a->in[row * a->in_stride + column];
    float *out = &a->out[row * a->out_stride + column];
    float value = a->backward
                      ? in * slope_cuda(a->activation, a->kept[row * a->kept_stride + column])
                      : activated_cuda(a->activation, in);
    *out = a->accumulate ? *out + value : value;
}

/* ---- dueling (struct dueling_job) --------------------------------------------------------------
 */

struct dueling_rows_arguments {
    const float *in;
    float *out;
    size_t in_stride, out_stride;
    uint32_t rows, outputs, atoms;
    bool backward, accumulate;
};

static inline struct kernel_shape dueling_rows_shape(const struct dueling_rows_arguments *a)
{
    return kernel_of((size_t)a->rows * a->atoms);
}

static inline size_t dueling_rows_reaches(const struct dueling_rows_arguments *a,
                                          struct kernel_reach *r)
{
    uint32_t streams = a->outputs + a->atoms;
    r[0] = (struct kernel_reach){
        a->in, rows_reach(a->rows, a->backward ? a->outputs : streams, a->in_stride, 4), TRP_READ};
    r[1] = (struct kernel_reach){
        a->out, rows_reach(a->rows, a->backward ? streams : a->outputs, a->out_stride, 4),
        a->accumulate ? TRP_READ | TRP_WRITE : TRP_WRITE};
    return 2;
}

KERNEL_BODY void dueling_put(float *to, float value, bool accumulate)
{
    *to = accumulate ? *to + value : value;
}

KERNEL_BODY void dueling_rows_body(const struct dueling_rows_arguments *a,
                                   const struct kernel_at *at, void *shared)
{
    size_t i = thread_index(at), row = i / a->atoms, atom = i % a->atoms;
    uint32_t actions = a->outputs / a->atoms;
    (void)shared;
    if (row >= a->rows)
        return;
    const float *in = a->in + row * a->in_stride + atom;
    float *out = a->out + row * a->out_stride + atom;
    float sum = 0;
    const float *advantages = a->backward ? in : in + a->atoms;
    for (uint32_t action = 0; action < actions; action++)
        sum += advantages[(size_t)action * a->atoms];
    float mean = sum / (float)actions;
    if (a->backward)
        dueling_put(out, sum, a->accumulate);
    for (uint32_t action = 0; action < actions; action++) {
        size_t k = (size_t)action * a->atoms;
        if (a->backward)
            dueling_put(out + a->atoms + k, in[k] - mean, a->accumulate);
        else
            dueling_put(out + k, in[0] + advantages[k] - mean, a->accumulate);
    }
}

/* ---- sums of columns: sum += of all rows --------------------------------------------------------
 */

enum { SUM_COLUMNS = 32, SUM_LANES = KERNEL_THREADS / SUM_COLUMNS, SUM_PARTS_MAX = 64 };

/* Of values dy, or with `x` of dy times the normalised x. Row r is at (r / inner) * stride +
 * (r % inner) * columns: the pixels of an image lie together. Parts of the rows are summed first,
 * into `partial` [parts][columns]. */
struct sum_columns_arguments {
    const float *dy, *x, *kept; /* kept[rows][2]: mean and 1 / deviation */
    float *partial;
    size_t dy_stride, x_stride;
    uint32_t rows, inner, columns, parts;
};

static inline struct kernel_shape sum_columns_shape(const struct sum_columns_arguments *a)
{
    struct kernel_shape shape = {(a->columns + SUM_COLUMNS - 1) / SUM_COLUMNS * a->parts,
                                 KERNEL_THREADS, 2, KERNEL_THREADS * sizeof(float)};
    return shape;
}

static inline size_t sum_columns_reaches(const struct sum_columns_arguments *a,
                                         struct kernel_reach *r)
{
    uint32_t outer = a->rows / a->inner;
    r[0] = (struct kernel_reach){a->dy, rows_reach(outer, a->inner * a->columns, a->dy_stride, 4),
                                 TRP_READ};
    r[1] = (struct kernel_reach){a->x, rows_reach(a->rows, a->columns, a->x_stride, 4), TRP_READ};
    r[2] = (struct kernel_reach){a->kept, (size_t)a->rows * 2 * sizeof(float), TRP_READ};
    r[3] =
        (struct kernel_reach){a->partial, (size_t)a->parts * a->columns * sizeof(float), TRP_WRITE};
    return 4;
}

KERNEL_BODY float sum_columns_value(const struct sum_columns_arguments *a, size_t row,
                                    uint32_t column)
{
    size_t place = row / a->inner * a->dy_stride + row % a->inner * a->columns + column;
    float value = a->dy[place];
    if (a->x)
        value *= (a->x[row * a->x_stride + column] - a->kept[2 * row]) * a->kept[2 * row + 1];
    return value;
}

KERNEL_BODY void sum_columns_body(const struct sum_columns_arguments *a, const struct kernel_at *at,
                                  void *shared)
{
    float *sums = (float *)shared; /* [lanes][columns] */
    uint32_t groups = at->blocks / a->parts, part = at->block / groups;
    uint32_t lane = at->thread / SUM_COLUMNS;
    uint32_t column = at->block % groups * SUM_COLUMNS + at->thread % SUM_COLUMNS;
    if (at->phase == 0) {
        size_t share = ((size_t)a->rows + a->parts - 1) / a->parts, low = part * share;
        size_t high = low + share < a->rows ? low + share : a->rows;
        float sum = 0;
        for (size_t row = low + lane; row < high && column < a->columns; row += SUM_LANES)
            sum += sum_columns_value(a, row, column);
        sums[at->thread] = sum;
    } else if (lane == 0 && column < a->columns) {
        float sum = 0;
        for (uint32_t i = 0; i < SUM_LANES; i++)
            sum += sums[i * SUM_COLUMNS + at->thread];
        a->partial[(size_t)part * a->columns + column] = sum;
    }
}

struct sum_parts_arguments {
    const float *partial;
    float *sum;
    uint32_t columns, parts;
};

static inline struct kernel_shape sum_parts_shape(const struct sum_parts_arguments *a)
{
    return kernel_of(a->columns);
}

static inline size_t sum_parts_reaches(const struct sum_parts_arguments *a, struct kernel_reach *r)
{
    r[0] =
        (struct kernel_reach){a->partial, (size_t)a->parts * a->columns * sizeof(float), TRP_READ};
    r[1] = (struct kernel_reach){a->sum, a->columns * sizeof(float), TRP_READ | TRP_WRITE};
    return 2;
}

KERNEL_BODY void sum_parts_body(const struct sum_parts_arguments *a, const struct kernel_at *at,
                                void *shared)
{
    size_t column = thread_index(at);
    float sum = 0;
    (void)shared;
    if (column >= a->columns)
        return;
    for (uint32_t part = 0; part < a->parts; part++)
        sum += a->partial[(size_t)part * a->columns + column];
    a->sum[column] += sum;
}

#endif
