/* The specification: one obvious loop per formula, in float and in double. Nothing here is tuned;
 * the other backends are tested against it, and the double one against finite differences. */
#include "ref.h"
#include "core/bfloat16.h"

#include <math.h>
#include <string.h>

#define REAL       float
#define NAME(name) name##_f32
#define MATH(name) name##f
#include "ref_activation.h"
#include "ref_cell.h"
#include "ref_real.h"
#include "ref_conv.h"
#include "ref_layers.h"
#include "ref_steps.h"
#undef REAL
#undef NAME
#undef MATH

#define REAL       double
#define NAME(name) name##_f64
#define MATH(name) name
#include "ref_activation.h"
#include "ref_cell.h"
#include "ref_real.h"
#include "ref_conv.h"
#include "ref_layers.h"
#include "ref_steps.h"
#undef REAL
#undef NAME
#undef MATH

static void activate_f32(enum activation activation, float *y, size_t stride, size_t rows,
                         size_t columns)
{
    for (size_t row = 0; row < rows; row++, y += stride)
        for (size_t column = 0; column < columns; column++)
            y[column] = activated_f32(activation, y[column]);
}

static double norm2_f32(const float *values, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)values[i] * (double)values[i];
    return sum;
}

void dueling_plain(const struct dueling_job *job)
{
    dueling_f32(job);
}

void embedding_forward_plain(const struct embedding_job *job)
{
    embedding_forward_f32(job);
}

void embedding_backward_plain(const struct embedding_job *job)
{
    embedding_backward_f32(job);
}

const struct backend backend_ref_f32 = {
    .name = "ref_f32",
    .element_bytes = sizeof(float),
    .linear = &linear_kernels_f32,
    .linear_bf16 = &linear_bf16_kernels_f32,
    .dueling = dueling_f32,
    .activation = &activation_kernels_f32,
    .cell = &cell_kernels_f32,
    .conv = &conv_kernels_f32,
    .conv_bf16 = &conv_bf16_kernels_f32,
    .layer = &layer_kernels_f32,
    .step = &step_kernels_f32,
    .activate = activate_f32,
    .norm2 = norm2_f32,
};

const struct backend backend_ref_f64 = {
    .name = "ref_f64",
    .element_bytes = sizeof(double),
    .linear = &linear_kernels_f64,
    .linear_bf16 = &linear_bf16_kernels_f64,
    .dueling = dueling_f64,
    .activation = &activation_kernels_f64,
    .cell = &cell_kernels_f64,
    .conv = &conv_kernels_f64,
    .conv_bf16 = &conv_bf16_kernels_f64,
    .layer = &layer_kernels_f64,
    .step = &step_kernels_f64,
};
