/* Rows that are moved, and numbers one by one, as kernels (nn/cuda/kernel.h). */
#ifndef TRP_AGENTS_MOVES_H
#define TRP_AGENTS_MOVES_H

#include "nn/cuda/kernel.h"

/* ---- gather: to[i] = from[order[i]] */

struct gather_arguments {
    const int32_t *order;
    const uint8_t *from;
    uint8_t *to;
    size_t bytes; /* of a row */
    uint32_t count;
};

/* Rows of whole words are moved word by word. */
KERNEL_BODY bool gathers_words(const struct gather_arguments *a)
{
    return ((uintptr_t)a->from | (uintptr_t)a->to | a->bytes) % sizeof(uint32_t) == 0;
}

static inline struct kernel_shape gather_shape(const struct gather_arguments *a)
{
    return kernel_of(a->count * (gathers_words(a) ? a->bytes / sizeof(uint32_t) : a->bytes));
}

KERNEL_BODY void gather_body(const struct gather_arguments *a, const struct kernel_at *at,
                             void *shared)
{
    bool words = gathers_words(a);
    size_t units = words ? a->bytes / sizeof(uint32_t) : a->bytes, i = thread_index(at);
    (void)shared;
    if (i >= a->count * units)
        return;
    size_t from = (size_t)a->order[i / units] * units + i % units;
    if (words)
        ((uint32_t *)(void *)a->to)[i] = ((const uint32_t *)(const void *)a->from)[from];
    else
        a->to[i] = a->from[from];
}

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

/* ---- torso.pixels: frames behind the pixels, as channels */

struct pixels_arguments {
    const uint8_t *from; /* [rows][frames][pixels][channels] */
    uint8_t *to;         /* [rows][pixels][frames][channels] */
    size_t pixels;
    uint32_t channels, rows, frames;
};

static inline struct kernel_shape pixels_shape(const struct pixels_arguments *a)
{
    return kernel_of(a->rows * a->pixels);
}

KERNEL_BODY void pixels_body(const struct pixels_arguments *a, const struct kernel_at *at,
                             void *shared)
{
    size_t i = thread_index(at), frame = a->pixels * a->channels;
    (void)shared;
    if (i >= a->rows * a->pixels)
        return;
    const uint8_t *from = a->from + i / a->pixels * a->frames * frame + i % a->pixels * a->channels;
    uint8_t *to = a->to + i * a->frames * a->channels;
    for (uint32_t k = 0; k < a->frames; k++)
        for (uint32_t c = 0; c < a->channels; c++)
            to[k * a->channels + c] = from[k * frame + c];
}

/* ---- control.discounts */

struct discounts_arguments {
    uint32_t rows;
    float gamma;
    const float *item_discounts;
    float *discounts;
};

KERNEL_BODY void discount_row(const struct discounts_arguments *a, size_t row)
{
    a->discounts[row] = a->gamma * a->item_discounts[row];
}

static inline struct kernel_shape discounts_shape(const struct discounts_arguments *a)
{
    return kernel_of(a->rows);
}

KERNEL_BODY void discounts_body(const struct discounts_arguments *a, const struct kernel_at *at,
                                void *shared)
{
    (void)shared;
    if (thread_index(at) < a->rows)
        discount_row(a, thread_index(at));
}

/* ---- critics.add */

struct add_actions_arguments {
    size_t count;
    const float *from;
    float *to;
};

KERNEL_BODY void add_action(const struct add_actions_arguments *a, size_t i)
{
    a->to[i] += a->from[i];
}

static inline struct kernel_shape add_actions_shape(const struct add_actions_arguments *a)
{
    return kernel_of(a->count);
}

KERNEL_BODY void add_actions_body(const struct add_actions_arguments *a, const struct kernel_at *at,
                                  void *shared)
{
    (void)shared;
    if (thread_index(at) < a->count)
        add_action(a, thread_index(at));
}

#endif
