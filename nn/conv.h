/* Convolutions and pools of images [rows][height][width][channels]. All functions are pure; strides
 * count elements and go from image to image, an image lies together. */
#ifndef TRP_NN_CONV_H
#define TRP_NN_CONV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "activation.h"

/* Who compiles functions of windows for a device defines WINDOW. */
#ifndef WINDOW
#define WINDOW static inline
#endif

/* A window that passes over an image. `filters`: channels of the result; a pool's are `channels`.
 */
struct window {
    uint32_t height, width, channels;
    uint32_t kernel_height, kernel_width;
    uint32_t stride_height, stride_width; /* >= 1 */
    uint32_t pad_height, pad_width;       /* on either side; less than the kernel */
    uint32_t filters;
};

WINDOW uint32_t window_out_height(const struct window *w)
{
    return (w->height + 2 * w->pad_height - w->kernel_height) / w->stride_height + 1;
}

WINDOW uint32_t window_out_width(const struct window *w)
{
    return (w->width + 2 * w->pad_width - w->kernel_width) / w->stride_width + 1;
}

/* Values under one position of the window. */
WINDOW size_t window_patch(const struct window *w)
{
    return (size_t)w->kernel_height * w->kernel_width * w->channels;
}

/* y = activation(x * w + bias): w[kernel_height][kernel_width][channels][filters], a
 * cross-correlation as everybody's; padding is zeros. */
struct conv_forward_job {
    struct window window;
    const void *x; /* uint8_t with `bytes` */
    bool bytes;    /* x / 255 */
    const void *w, *bias;
    void *y;
    size_t x_stride, y_stride;
    uint32_t rows;
    enum activation activation; /* none that keeps its input */
    void *scratch;
};

/* dw (+)= x' dy, dbias (+)= sum dy, dx = (w' dy) gate'(x); dx may be NULL, and is with
 * `bytes`; dw with dbias may be NULL. */
struct conv_backward_job {
    struct window window;
    const void *x;
    bool bytes;
    const void *w, *dy;
    void *dw, *dbias, *dx;
    size_t x_stride, dy_stride, dx_stride;
    uint32_t rows;
    enum activation gate; /* the activation that made x */
    bool overwrite;       /* dw, dbias: = instead of += */
    bool accumulate_dx;   /* dx: += instead of = */
    void *scratch;
};

/* Max: padding never wins, the first of equals does, a NaN always does. Mean: padding counts as
 * zeros. As PyTorch's defaults. */
enum pool_kind { POOL_MAX, POOL_MEAN };

enum { POOL_WINDOW_MAX = 255 }; /* positions: an index fits into a byte */

/* Forward: in is x, out is y; backward: in is dy, out is dx, all of which is written, or
 * added to with `accumulate`. */
struct pool_job {
    struct window window;
    enum pool_kind kind;
    const void *in;
    void *out;
    uint8_t *index; /* max, [rows][out_height][out_width][channels]: forward writes which one of the
                       window it was, backward reads it; NULL in a forward without a backward */
    size_t in_stride, out_stride;
    uint32_t rows;
    bool accumulate;
};

/* Products sum what their factors are; kernels of backend.h's conv_bf16 round these first: x, w and
 * dy, but not the dy that goes into dbias. */
struct conv_kernels {
    /* Elements of scratch that a convolution needs, either way, for any number of rows. */
    size_t (*scratch)(const struct window *window);
    void (*forward)(const struct conv_forward_job *job);
    void (*backward)(const struct conv_backward_job *job);
    void (*pool_forward)(const struct pool_job *job);
    void (*pool_backward)(const struct pool_job *job);
};

#undef WINDOW

#endif
