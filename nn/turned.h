/* The gradient of a convolution's input as a convolution of dy, for strides of 1. */
#ifndef TRP_NN_TURNED_H
#define TRP_NN_TURNED_H

#include "conv.h"

/* Its products are as many as there are pixels in the image, not in the result. */
static inline bool window_turns(const struct window *w)
{
    size_t results = (size_t)window_out_height(w) * window_out_width(w);
    return w->stride_height == 1 && w->stride_width == 1 &&
           (size_t)w->height * w->width * 4 <= results * 5;
}

static inline struct window turned_window(const struct window *w)
{
    return (struct window){
        .height = window_out_height(w),
        .width = window_out_width(w),
        .channels = w->filters,
        .kernel_height = w->kernel_height,
        .kernel_width = w->kernel_width,
        .stride_height = 1,
        .stride_width = 1,
        .pad_height = w->kernel_height - 1 - w->pad_height,
        .pad_width = w->kernel_width - 1 - w->pad_width,
        .filters = w->channels,
    };
}

/* [kernel][channels][filters] to [the kernel from behind][filters][channels]. */
static inline void turn_weights(const struct window *w, const float *from, float *to)
{
    size_t positions = (size_t)w->kernel_height * w->kernel_width, channels = w->channels;
    size_t filters = w->filters, matrix = channels * filters;
    for (size_t p = 0; p < positions; p++, from += matrix)
        for (size_t f = 0; f < filters; f++)
            for (size_t c = 0; c < channels; c++)
                to[(positions - 1 - p) * matrix + f * channels + c] = from[c * filters + f];
}

#endif
