/* Actions that a squashed Gaussian policy draws now, and gradients that go through them, on a
 * queue, whose device's memory all pointers are to. Shared by SAC and what has its policy. */
#ifndef TRP_AGENTS_SQUASHED_H
#define TRP_AGENTS_SQUASHED_H

#include "control.h"

struct squashed {
    uint32_t rows, size;
    float *mean, *log_std; /* [rows][size]: what control_spec()'s network says; gradients after
                              squashed_backward_on() */
    float *noise;          /* [rows][size], written by a draw, and what follows */
    float *actions;        /* [rows][size], in [-1, 1] */
    float *log_probs;      /* [rows] */
};

/* The noise follows from the seed. */
void squashed_draw_on(trp_queue *queue, const struct squashed *squashed, uint64_t seed);

/* From derivatives with respect to the actions and, in their place, the log-probabilities. */
void squashed_backward_on(trp_queue *queue, const struct squashed *squashed, const float *dactions);

#endif
