/* Arithmetic of learners together beside the collective, as kernels (nn/cuda/forms.h). */
#ifndef TRP_LEARNER_MODES_KERNELS_H
#define TRP_LEARNER_MODES_KERNELS_H

#include <math.h>

#include "nn/cuda/forms.h"
#include "weighing.h"

/* ---- mode.weigh */

struct mode_weigh_arguments {
    float *grads;
    size_t count;
    float factor;
};

KERNEL_BODY size_t mode_weigh_count(const struct mode_weigh_arguments *a)
{
    return a->count;
}

KERNEL_BODY void mode_weigh_each(const struct mode_weigh_arguments *a, size_t i)
{
    a->grads[i] *= a->factor;
}

EACH_KERNEL(mode_weigh)

/* ---- mode.keep */

struct mode_keep_arguments {
    float *kept;
    const float *grads;
    size_t count;
    float factor;
};

KERNEL_BODY size_t mode_keep_count(const struct mode_keep_arguments *a)
{
    return a->count;
}

KERNEL_BODY void mode_keep_each(const struct mode_keep_arguments *a, size_t i)
{
    a->kept[i] += a->factor * a->grads[i];
}

EACH_KERNEL(mode_keep)

/* ---- mode.head */

struct mode_head_arguments {
    float *head;
    const float *watched, *more;
    float rows;
};

KERNEL_BODY size_t mode_head_count(const struct mode_head_arguments *a)
{
    (void)a;
    return 1;
}

KERNEL_BODY void mode_head_each(const struct mode_head_arguments *a, size_t i)
{
    float rows = a->rows, watched = 0;
    (void)i;
    if (a->watched && !isfinite(*a->watched))
        watched = *a->watched;
    if (a->more) {
        rows += a->more[HEAD_ROWS];
        watched += a->more[HEAD_WATCHED];
    }
    a->head[HEAD_ROWS] = rows;
    a->head[HEAD_WATCHED] = watched;
}

EACH_KERNEL(mode_head)

/* ---- mode.outer: what all go on from, of mean.c and local_sgd.c */

struct mode_outer_arguments {
    float *values;         /* the sum over all batches; then what all go on from */
    const float *way;      /* compressed: the sum of all learners' ways from `last`; else NULL */
    float *last, *average; /* x of the last mean, and u; NULL: no momentum */
    size_t count;
    float batches, momentum;
};

KERNEL_BODY size_t mode_outer_count(const struct mode_outer_arguments *a)
{
    return a->count;
}

KERNEL_BODY void mode_outer_each(const struct mode_outer_arguments *a, size_t i)
{
    float mean = a->way ? a->last[i] - a->way[i] / a->batches : a->values[i] / a->batches;
    if (a->average) {
        a->average[i] = a->momentum * a->average[i] + (a->last[i] - mean);
        mean = a->last[i] - a->average[i];
    }
    if (a->last)
        a->last[i] = mean;
    a->values[i] = mean;
}

EACH_KERNEL(mode_outer)

#endif
