/* Several actions that a Gaussian policy draws at each state: what a critic is asked of at once; on
 * a queue, whose device's memory all pointers are to. */
#ifndef TRP_AGENTS_SAMPLES_H
#define TRP_AGENTS_SAMPLES_H

#include "control.h"

struct samples_job {
    enum control_kind kind; /* of a distribution */
    uint32_t rows, size;
    uint32_t count, stride; /* `count` draws a row, of the `stride` that what is written has room
                               for; 0: as many as are drawn */
    const float *mean, *log_std; /* [rows][size] */
    uint64_t seed;               /* draws follow from it */
    float *actions;              /* [rows][stride][size], in [-1, 1]: cut where not squashed */
    float *log_probs;            /* [rows][stride]: of squashed ones; NULL: not wanted */
};

void samples_on(trp_queue *queue, const struct samples_job *job);

#endif
