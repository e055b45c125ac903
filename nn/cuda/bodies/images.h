/* Images [height][width][channels] (nn/conv.h): patches of convolutions as rows of a matrix, and
 * pools. Nobody adds to another's place: each number of an image looks for the windows that see it.
 */
#ifndef TRP_NN_CUDA_BODIES_IMAGES_H
#define TRP_NN_CUDA_BODIES_IMAGES_H

#include "nn/cuda/window.h"
#include "rows.h"

KERNEL_BODY size_t image_values(const struct window *w)
{
    return (size_t)w->height * w->width * w->channels;
}

/* Where element (ky, kx) of the window over (oy, ox) lies in the image; false: in the padding. */
KERNEL_BODY bool pixel_under(const struct window *w, size_t oy, size_t ox, size_t ky, size_t kx,
                             size_t *pixel)
{
    size_t y = oy * w->stride_height + ky, x = ox * w->stride_width + kx;
    if (y < w->pad_height || x < w->pad_width)
        return false;
    y -= w->pad_height;
    x -= w->pad_width;
    *pixel = y * w->width + x;
    return y < w->height && x < w->width;
}

/* The windows of one axis that see a pixel: [first, last], where `first` > `last` is none. */
struct seeing {
    uint32_t first, last;
};

KERNEL_BODY struct seeing windows_over(uint32_t pixel, uint32_t pad, uint32_t kernel,
                                       uint32_t stride, uint32_t outs)
{
    uint32_t place = pixel + pad;
    struct seeing seeing = {place < kernel ? 0 : (place - kernel) / stride + 1, place / stride};
    if (seeing.last >= outs)
        seeing.last = outs - 1;
    return seeing;
}

/* A number of an image, with its place in padding counted, and the windows that see it. */
struct seen_number {
    uint32_t channel, y, x;
    struct seeing down, along;
};

KERNEL_BODY struct seen_number number_seen(const struct window *w, size_t value)
{
    struct seen_number seen;
    uint32_t pixel = (uint32_t)(value / w->channels);
    uint32_t y = pixel / w->width, x = pixel % w->width;
    seen.channel = (uint32_t)(value % w->channels);
    seen.y = y + w->pad_height;
    seen.x = x + w->pad_width;
    seen.down =
        windows_over(y, w->pad_height, w->kernel_height, w->stride_height, window_out_height(w));
    seen.along =
        windows_over(x, w->pad_width, w->kernel_width, w->stride_width, window_out_width(w));
    return seen;
}

/* Where the window over (oy, ox) has it. */
KERNEL_BODY uint32_t position_in(const struct window *w, const struct seen_number *seen,
                                 uint32_t oy, uint32_t ox)
{
    uint32_t ky = seen->y - oy * w->stride_height, kx = seen->x - ox * w->stride_width;
    return ky * w->kernel_width + kx;
}

/* ---- patches[images][out pixels][kernel][channels] of x
 * ------------------------------------------ */

struct patches_arguments {
    struct window window;
    const float *x;
    const uint8_t *bytes; /* in place of x: bytes / 255 */
    float *patches;
    size_t x_stride;
    uint32_t images;
};

KERNEL_BODY size_t patches_count(const struct window *w, uint32_t images)
{
    return (size_t)images * window_out_height(w) * window_out_width(w) * window_patch(w);
}

static inline struct kernel_shape patches_shape(const struct patches_arguments *a)
{
    return kernel_of(patches_count(&a->window, a->images));
}

static inline size_t patches_reaches(const struct patches_arguments *a, struct kernel_reach *r)
{
    uint32_t image = (uint32_t)image_values(&a->window);
    r[0] = (struct kernel_reach){a->x, rows_reach(a->images, image, a->x_stride, 4), TRP_READ};
    r[1] = (struct kernel_reach){a->bytes, rows_reach(a->images, image, a->x_stride, 1), TRP_READ};
    r[2] = (struct kernel_reach){a->patches, patches_count(&a->window, a->images) * sizeof(float),
                                 TRP_WRITE};
    return 3;
}

KERNEL_BODY void patches_body(const struct patches_arguments *a, const struct kernel_at *at,
                              void *shared)
{
    const struct window *w = &a->window;
    size_t i = thread_index(at), patch = window_patch(w), k = i % patch, pixel = 0;
    size_t out = i / patch, outs = (size_t)window_out_height(w) * window_out_width(w);
    size_t image = out / outs, place = out % outs;
    (void)shared;
    if (image >= a->images)
        return;
    size_t channel = k % w->channels, position = k / w->channels;
    bool inside = pixel_under(w, place / window_out_width(w), place % window_out_width(w),
                              position / w->kernel_width, position % w->kernel_width, &pixel);
    size_t from = image * a->x_stride + pixel * w->channels + channel;
    float value = 0;
    if (inside)
        value = a->bytes ? (float)a->bytes[from] / 255 : a->x[from];
    a->patches[i] = value;
}

/* ---- dx (+)= the sum of the patches that see it, times the slope of what made x
 * ------------------- */

struct unpatch_arguments {
    struct window window;
    const float *patches, *x;
    float *dx;
    size_t x_stride, dx_stride;
    uint32_t images;
    enum activation gate;
    bool accumulate;
};

static inline struct kernel_shape unpatch_shape(const struct unpatch_arguments *a)
{
    return kernel_of(a->images * image_values(&a->window));
}

static inline size_t unpatch_reaches(const struct unpatch_arguments *a, struct kernel_reach *r)
{
    uint32_t image = (uint32_t)image_values(&a->window);
    r[0] = (struct kernel_reach){a->patches, patches_count(&a->window, a->images) * sizeof(float),
                                 TRP_READ};
    r[1] = (struct kernel_reach){a->gate == ACTIVATION_NONE ? NULL : a->x,
                                 rows_reach(a->images, image, a->x_stride, 4), TRP_READ};
    r[2] = (struct kernel_reach){a->dx, rows_reach(a->images, image, a->dx_stride, 4),
                                 a->accumulate ? TRP_READ | TRP_WRITE : TRP_WRITE};
    return 3;
}

KERNEL_BODY void unpatch_body(const struct unpatch_arguments *a, const struct kernel_at *at,
                              void *shared)
{
    const struct window *w = &a->window;
    size_t i = thread_index(at), image = i / image_values(w), value = i % image_values(w);
    (void)shared;
    if (image >= a->images)
        return;
    struct seen_number seen = number_seen(w, value);
    uint32_t wide = window_out_width(w);
    size_t patch = window_patch(w), outs = (size_t)window_out_height(w) * wide;
    float sum = 0;
    for (uint32_t oy = seen.down.first; oy <= seen.down.last; oy++)
        for (uint32_t ox = seen.along.first; ox <= seen.along.last; ox++) {
            size_t out = image * outs + (size_t)oy * wide + ox;
            size_t position = position_in(w, &seen, oy, ox);
            sum += a->patches[out * patch + position * w->channels + seen.channel];
        }
    if (a->gate != ACTIVATION_NONE)
        sum *= slope_cuda(a->gate, a->x[image * a->x_stride + value]);
    float *dx = &a->dx[image * a->dx_stride + value];
    *dx = a->accumulate ? *dx + sum : sum;
}

/* ---- pools (struct pool_job) -------------------------------------------------------------------
 */

struct pool_images_arguments {
    struct window window;
    const float *in;
    float *out;
    uint8_t *index; /* max: which one of the window it was; NULL: nobody asks */
    size_t in_stride, out_stride;
    uint32_t rows;
    bool max, accumulate;
};

KERNEL_BODY size_t pooled_of(const struct window *w)
{
    return (size_t)window_out_height(w) * window_out_width(w) * w->channels;
}

static inline struct kernel_shape pool_images_shape(const struct pool_images_arguments *a)
{
    return kernel_of(a->rows * pooled_of(&a->window));
}

static inline size_t pool_images_reaches(const struct pool_images_arguments *a,
                                         struct kernel_reach *r)
{
    uint32_t image = (uint32_t)image_values(&a->window), pooled = (uint32_t)pooled_of(&a->window);
    r[0] = (struct kernel_reach){a->in, rows_reach(a->rows, image, a->in_stride, 4), TRP_READ};
    r[1] = (struct kernel_reach){a->out, rows_reach(a->rows, pooled, a->out_stride, 4), TRP_WRITE};
    r[2] = (struct kernel_reach){a->index, (size_t)a->rows * pooled, TRP_WRITE};
    return 3;
}

KERNEL_BODY void pool_images_body(const struct pool_images_arguments *a, const struct kernel_at *at,
                                  void *shared)
{
    const struct window *w = &a->window;
    size_t i = thread_index(at), pooled = pooled_of(w), row = i / pooled, value = i % pooled;
    (void)shared;
    if (row >= a->rows)
        return;
    size_t channel = value % w->channels, out = value / w->channels, pixel;
    uint32_t positions = w->kernel_height * w->kernel_width, best = 0;
    float sum = 0, most = -INFINITY;
    bool found = false;
    for (uint32_t p = 0; p < positions; p++) {
        if (!pixel_under(w, out / window_out_width(w), out % window_out_width(w),
                         p / w->kernel_width, p % w->kernel_width, &pixel))
            continue;
        float x = a->in[row * a->in_stride + pixel * w->channels + channel];
        sum += x;
        if (!found || x > most || x != x) {
            most = x;
            best = p;
            found = true;
        }
    }
    a->out[row * a->out_stride + value] = a->max ? most : sum / (float)positions;
    if (a->index)
        a->index[i] = (uint8_t)best;
}

struct unpool_images_arguments {
    struct window window;
    const float *dy;
    float *dx;
    const uint8_t *index; /* of a max pool */
    size_t dy_stride, dx_stride;
    uint32_t rows;
    bool max, accumulate;
};

static inline struct kernel_shape unpool_images_shape(const struct unpool_images_arguments *a)
{
    return kernel_of(a->rows * image_values(&a->window));
}

static inline size_t unpool_images_reaches(const struct unpool_images_arguments *a,
                                           struct kernel_reach *r)
{
    uint32_t image = (uint32_t)image_values(&a->window), pooled = (uint32_t)pooled_of(&a->window);
    r[0] = (struct kernel_reach){a->dy, rows_reach(a->rows, pooled, a->dy_stride, 4), TRP_READ};
    r[1] = (struct kernel_reach){a->dx, rows_reach(a->rows, image, a->dx_stride, 4),
                                 a->accumulate ? TRP_READ | TRP_WRITE : TRP_WRITE};
    r[2] = (struct kernel_reach){a->max ? a->index : NULL, (size_t)a->rows * pooled, TRP_READ};
    return 3;
}

KERNEL_BODY void unpool_images_body(const struct unpool_images_arguments *a,
                                    const struct kernel_at *at, void *shared)
{
    const struct window *w = &a->window;
    size_t i = thread_index(at), row = i / image_values(w), value = i % image_values(w);
    (void)shared;
    if (row >= a->rows)
        return;
    struct seen_number seen = number_seen(w, value);
    uint32_t wide = window_out_width(w);
    float sum = 0;
    for (uint32_t oy = seen.down.first; oy <= seen.down.last; oy++)
        for (uint32_t ox = seen.along.first; ox <= seen.along.last; ox++) {
            size_t out = ((size_t)oy * wide + ox) * w->channels + seen.channel;
            float dy = a->dy[row * a->dy_stride + out];
            if (!a->max)
                sum += dy / (float)(w->kernel_height * w->kernel_width);
            else if (a->index[row * pooled_of(w) + out] == position_in(w, &seen, oy, ox))
                sum += dy;
        }
    float *dx = &a->dx[row * a->dx_stride + value];
    *dx = a->accumulate ? *dx + sum : sum;
}

#endif
