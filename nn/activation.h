/* Activations as a job of their own, and what is elementwise beside them. A plan fuses the ones
 * whose slope follows from the result into the layer before (see activation_keeps_input()); the
 * others need what they were given. All functions are pure; strides count elements. */
#ifndef TRP_NN_ACTIVATION_H
#define TRP_NN_ACTIVATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* As PyTorch defines them with its defaults: ELU with alpha 1, softplus with beta 1, GELU by erf,
 * GELU_TANH by its approximation by tanh. */
enum activation {
    ACTIVATION_NONE,
    ACTIVATION_RELU,
    ACTIVATION_TANH,
    ACTIVATION_SIGMOID,
    ACTIVATION_ELU,
    ACTIVATION_SOFTPLUS,
    ACTIVATION_SILU,
    ACTIVATION_GELU,
    ACTIVATION_GELU_TANH,
};

/* Whether the slope follows from the input alone: x must be kept, and the activation can be neither
 * fused into the layer that makes x nor be the `gate` of the one that reads y. */
static inline bool activation_keeps_input(enum activation activation)
{
    return activation >= ACTIVATION_SILU;
}

/* Forward: y = f(x); y may be x. Backward: dx = dy f', or += with `accumulate`; dx may be dy.
 * `kept` is x where activation_keeps_input() says so, else y. */
struct activation_job {
    enum activation activation;
    const void *in;   /* forward: x; backward: dy */
    const void *kept; /* backward */
    void *out;        /* forward: y; backward: dx */
    size_t in_stride, kept_stride, out_stride;
    uint32_t rows, columns;
    bool accumulate;
};

/* y = a + b; y may be a or b. b NULL: y = a, a copy. */
struct add_job {
    const void *a, *b;
    void *y;
    size_t a_stride, b_stride, y_stride;
    uint32_t rows, columns;
};

struct activation_kernels {
    void (*forward)(const struct activation_job *job);
    void (*backward)(const struct activation_job *job);
    void (*add)(const struct add_job *job);
};

#endif
