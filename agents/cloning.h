/* What policies learn that imitate: the log-probability of what was done under a Gaussian, weighted
 * or not, on a queue, whose device's memory all pointers are to. Shared by BC, CRR and IQL. */
#ifndef TRP_AGENTS_CLONING_H
#define TRP_AGENTS_CLONING_H

#include "control.h"

struct cloning_numbers {
    float loss;
    float log_prob; /* the mean of what was done, unweighted */
};

struct cloning_job {
    uint32_t rows, size;
    float *mean, *log_std; /* [rows][size]: what a CONTROL_GAUSSIAN says; gradients afterwards */
    const float *actions;  /* [rows][size]: what was done, in [-1, 1] */
    const float *weights;  /* [rows]; NULL: 1 */
    float *log_probs;      /* [rows]: room */
    struct cloning_numbers *numbers; /* written */
};

/* trp_cloning_loss(). */
void cloning_on(trp_queue *queue, const struct cloning_job *job);

#endif
