/* How learners of a group combine what they compute: each way is a file here, and no agent knows of
 * them. A learner has one mode for its life; everything is called on its thread. */
#ifndef TRP_LEARNER_MODES_MODE_H
#define TRP_LEARNER_MODES_MODE_H

#include <stddef.h>

#include "vectors.h"

struct mode;

/* What is NULL does nothing. */
struct mode_impl {
    /* [lo, hi) of the gradient of vector `index` is final: trp_update_ready(). */
    void (*ready)(struct mode *mode, size_t index, size_t lo, size_t hi);
    /* The gradient becomes the mean over all learners: trp_update_reduce(). */
    trp_status (*reduce)(struct mode *mode, size_t index);
    /* *value becomes the largest of all learners': trp_update_max(). */
    trp_status (*max)(struct mode *mode, double *value);
    /* Ends a phase: reduces, measures, steps, makes the gradient 0, all on the queue. How the phase
     * ended is in the vector's phases. */
    trp_status (*apply)(struct mode *mode, size_t index);
    void (*destroy)(struct mode *mode);
};

/* The first member of every mode. */
struct mode {
    const struct mode_impl *impl;
    struct vectors *vectors; /* the learner's */
};

/* One learner, which nobody else is with. */
struct mode *alone_create(struct vectors *vectors);

#endif
