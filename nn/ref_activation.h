/* Activations, for REAL and NAME(). */

#include "activation_scalar.h"

static void NAME(activation_forward)(const struct activation_job *job)
{
    const REAL *in = job->in;
    REAL *out = job->out;
    for (size_t row = 0; row < job->rows; row++)
        for (size_t i = 0; i < job->columns; i++)
            out[row * job->out_stride + i] =
                NAME(activated)(job->activation, in[row * job->in_stride + i]);
}

static void NAME(activation_backward)(const struct activation_job *job)
{
    const REAL *in = job->in, *kept = job->kept;
    REAL *out = job->out;
    for (size_t row = 0; row < job->rows; row++)
        for (size_t i = 0; i < job->columns; i++) {
            REAL dx = in[row * job->in_stride + i] *
                      NAME(slope)(job->activation, kept[row * job->kept_stride + i]);
            REAL *to = &out[row * job->out_stride + i];
            *to = job->accumulate ? *to + dx : dx;
        }
}

static void NAME(add)(const struct add_job *job)
{
    const REAL *a = job->a, *b = job->b;
    REAL *y = job->y;
    for (size_t row = 0; row < job->rows; row++)
        for (size_t i = 0; i < job->columns; i++) {
            REAL sum = a[row * job->a_stride + i];
            if (b)
                sum += b[row * job->b_stride + i];
            y[row * job->y_stride + i] = sum;
        }
}

static const struct activation_kernels NAME(activation_kernels) = {
    .forward = NAME(activation_forward),
    .backward = NAME(activation_backward),
    .add = NAME(add),
};
