/* Between our convolutions and a library's (lower_dnn.c): weights [patch][filters] here,
 * [filters][patch] there, and factors rounded to bfloat16 where that is asked for. Nobody adds to
 * another's place. */
#ifndef TRP_NN_CUDA_BODIES_CONVOLVE_H
#define TRP_NN_CUDA_BODIES_CONVOLVE_H

#include "gemm.h"

/* ---- to[images][values] = x, or bytes / 255
 * ------------------------------------------------------
 */

struct cast_images_arguments {
    const float *x;
    const uint8_t *bytes; /* in place of x */
    float *to;
    size_t x_stride;
    uint32_t images, values;
    bool rounded;
};

static inline struct kernel_shape cast_images_shape(const struct cast_images_arguments *a)
{
    return kernel_of((size_t)a->images * a->values);
}

static inline size_t cast_images_reaches(const struct cast_images_arguments *a,
                                         struct kernel_reach *r)
{
    r[0] = (struct kernel_reach){a->x, rows_reach(a->images, a->values, a->x_stride, 4), TRP_READ};
    r[1] =
        (struct kernel_reach){a->bytes, rows_reach(a->images, a->values, a->x_stride, 1), TRP_READ};
    r[2] = (struct kernel_reach){a->to, rows_reach(a->images, a->values, a->values, 4), TRP_WRITE};
    return 3;
}

KERNEL_BODY void cast_images_body(const struct cast_images_arguments *a, const struct kernel_at *at,
                                  void *shared)
{
    size_t i = thread_index(at), image = i / a->values, from = image * a->x_stride + i % a->values;
    (void)shared;
    if (image >= a->images)
        return;
    float value = a->bytes ? (float)a->bytes[from] / 255 : a->x[from];
    a->to[i] = a->rounded ? rounded_half(value) : value;
}

/* ---- to = activation(from + bias), or (+)= from times the slope of what made `kept`
 * --------------
 */

struct finish_images_arguments {
    const float *from;        /* may be `to` */
    const float *bias, *kept; /* of each channel; of each value: one of them */
    float *to;
    size_t from_stride, kept_stride, to_stride;
    uint32_t images, values, channels;
    enum activation activation;
    bool accumulate;
};

static inline struct kernel_shape finish_images_shape(const struct finish_images_arguments *a)
{
    return kernel_of((size_t)a->images * a->values);
}

static inline size_t finish_images_reaches(const struct finish_images_arguments *a,
                                           struct kernel_reach *r)
{
    bool slopes = !a->bias && a->activation != ACTIVATION_NONE;
    r[0] = (struct kernel_reach){a->from, rows_reach(a->images, a->values, a->from_stride, 4),
                                 TRP_READ};
    r[1] = (struct kernel_reach){a->bias, a->channels * sizeof(float), TRP_READ};
    r[2] = (struct kernel_reach){slopes ? a->kept : NULL,
                                 rows_reach(a->images, a->values, a->kept_stride, 4), TRP_READ};
    r[3] = (struct kernel_reach){a->to, rows_reach(a->images, a->values, a->to_stride, 4),
                                 a->accumulate ? TRP_READ | TRP_WRITE : TRP_WRITE};
    return 4;
}

KERNEL_BODY void finish_images_body(const struct finish_images_arguments *a,
                                    const struct kernel_at *at, void *shared)
{
    size_t i = thread_index(at), image = i / a->values, place = i % a->values;
    (void)shared;
    if (image >= a->images)
        return;
    float value = a->from[image * a->from_stride + place];
    float *to = &a->to[image * a->to_stride + place];
    if (a->bias)
        value = activated_cuda(a->activation, value + a->bias[place % a->channels]);
    else if (a->activation != ACTIVATION_NONE)
        value *= slope_cuda(a->activation, a->kept[image * a->kept_stride + place]);
    *to = a->accumulate ? *to + value : value;
}

/* ---- weights to a library, and their gradients back ---------------------------------------------
 */

struct turn_weights_arguments {
    const float *w;
    float *to;
    uint32_t patch, filters;
    bool rounded;
};

static inline struct kernel_shape turn_weights_shape(const struct turn_weights_arguments *a)
{
    return kernel_of((size_t)a->patch * a->filters);
}

static inline size_t turn_weights_reaches(const struct turn_weights_arguments *a,
                                          struct kernel_reach *r)
{
    size_t bytes = (size_t)a->patch * a->filters * sizeof(float);
    r[0] = (struct kernel_reach){a->w, bytes, TRP_READ};
    r[1] = (struct kernel_reach){a->to, bytes, TRP_WRITE};
    return 2;
}

KERNEL_BODY void turn_weights_body(const struct turn_weights_arguments *a,
                                   const struct kernel_at *at, void *shared)
{
    size_t i = thread_index(at), filter = i / a->patch, place = i % a->patch;
    (void)shared;
    if (filter >= a->filters)
        return;
    float value = a->w[place * a->filters + filter];
    a->to[i] = a->rounded ? rounded_half(value) : value;
}

struct turn_back_arguments {
    const float *from;
    float *dw; /* += */
    uint32_t patch, filters;
};

static inline struct kernel_shape turn_back_shape(const struct turn_back_arguments *a)
{
    return kernel_of((size_t)a->patch * a->filters);
}

static inline size_t turn_back_reaches(const struct turn_back_arguments *a, struct kernel_reach *r)
{
    size_t bytes = (size_t)a->patch * a->filters * sizeof(float);
    r[0] = (struct kernel_reach){a->from, bytes, TRP_READ};
    r[1] = (struct kernel_reach){a->dw, bytes, TRP_READ | TRP_WRITE};
    return 2;
}

KERNEL_BODY void turn_back_body(const struct turn_back_arguments *a, const struct kernel_at *at,
                                void *shared)
{
    size_t i = thread_index(at), place = i / a->filters, filter = i % a->filters;
    (void)shared;
    if (place < a->patch)
        a->dw[i] += a->from[filter * a->patch + place];
}

#endif
