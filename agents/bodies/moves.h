/* Rows that are moved, and numbers one by one, as kernels (nn/cuda/forms.h). Of rows the host has a
 * function of its own, which moves whole ones. */
#ifndef TRP_AGENTS_BODIES_MOVES_H
#define TRP_AGENTS_BODIES_MOVES_H

#include "nn/cuda/forms.h"

/* ---- tile: each row several times */

struct tile_arguments {
    const float *from;
    float *to;
    size_t columns;
    uint32_t rows, times;
};

static inline struct kernel_shape tile_shape(const struct tile_arguments *a)
{
    return kernel_of((size_t)a->rows * a->times * a->columns);
}

KERNEL_BODY void tile_body(const struct tile_arguments *a, const struct kernel_at *at, void *shared)
{
    size_t i = thread_index(at);
    (void)shared;
    if (i < (size_t)a->rows * a->times * a->columns)
        a->to[i] = a->from[i / a->columns / a->times * a->columns + i % a->columns];
}

/* ---- control.discounts */

struct discounts_arguments {
    uint32_t rows;
    float gamma;
    const float *item_discounts;
    float *discounts;
};

KERNEL_BODY size_t discounts_count(const struct discounts_arguments *a)
{
    return a->rows;
}

KERNEL_BODY void discounts_each(const struct discounts_arguments *a, size_t row)
{
    a->discounts[row] = a->gamma * a->item_discounts[row];
}

EACH_KERNEL(discounts)

/* ---- critics.add */

struct add_actions_arguments {
    size_t count;
    const float *from;
    float *to;
};

KERNEL_BODY size_t add_actions_count(const struct add_actions_arguments *a)
{
    return a->count;
}

KERNEL_BODY void add_actions_each(const struct add_actions_arguments *a, size_t i)
{
    a->to[i] += a->from[i];
}

EACH_KERNEL(add_actions)

/* ---- states.normalize: to mean 0 and deviation 1 */

struct normalize_arguments {
    uint32_t rows, size;
    const float *numbers; /* [2][size]: means, deviations */
    const float *states;  /* [rows][size] */
    float *normal;
};

KERNEL_BODY size_t normalize_count(const struct normalize_arguments *a)
{
    return (size_t)a->rows * a->size;
}

KERNEL_BODY void normalize_each(const struct normalize_arguments *a, size_t i)
{
    size_t k = i % a->size;
    a->normal[i] = (a->states[i] - a->numbers[k]) / a->numbers[a->size + k];
}

EACH_KERNEL(normalize)

/* ---- torso.pixels: frames that lie one behind the other, as channels of one image */

/* A row of bytes, [frames][height][width][channels]; all 0: the network reads no image. */
struct torso_image {
    uint32_t frames, height, width, channels;
};

struct pixels_arguments {
    struct torso_image image;
    uint32_t rows;
    const uint8_t *observations;
    uint8_t *room;
};

KERNEL_BODY size_t pixels_count(const struct pixels_arguments *a)
{
    return (size_t)a->rows * a->image.height * a->image.width;
}

KERNEL_BODY void pixels_each(const struct pixels_arguments *a, size_t i)
{
    size_t channels = a->image.channels, frames = a->image.frames;
    size_t frame = (size_t)a->image.height * a->image.width * channels, at = i * channels;
    const uint8_t *from = a->observations + at / frame * frame * frames + at % frame;
    uint8_t *to = a->room + at * frames;
    for (size_t k = 0; k < frames; k++)
        for (size_t channel = 0; channel < channels; channel++)
            to[k * channels + channel] = from[k * frame + channel];
}

EACH_KERNEL(pixels)

/* ---- box.shrink: from between bounds to [-1, 1] */

struct box {
    uint32_t size;           /* numbers of an action */
    const float *low, *high; /* [size] */
};

struct shrink_arguments {
    struct box box;
    uint32_t rows;
    const float *actions;
    float *shrunk;
};

/* The bounds may be as far apart as floats are. */
KERNEL_BODY float box_half(const struct box *box, size_t i)
{
    return box->high[i] / 2 - box->low[i] / 2;
}

KERNEL_BODY float box_middle(const struct box *box, size_t i)
{
    return box->high[i] / 2 + box->low[i] / 2;
}

KERNEL_BODY size_t shrink_count(const struct shrink_arguments *a)
{
    return (size_t)a->rows * a->box.size;
}

KERNEL_BODY void shrink_each(const struct shrink_arguments *a, size_t k)
{
    const struct box *box = &a->box;
    size_t i = k % box->size;
    float action = kept_within(a->actions[k], box->low[i], box->high[i]);
    a->shrunk[k] = kept_within((action - box_middle(box, i)) / box_half(box, i), -1, 1);
}

EACH_KERNEL(shrink)

#endif
