/* Actions that a squashed Gaussian policy draws now, and gradients that go through them, on a
 * queue, whose device's memory all pointers are to. Shared by SAC and what has its policy. */
#ifndef TRP_AGENTS_SQUASHED_H
#define TRP_AGENTS_SQUASHED_H

#include "control.h"

void squashed_draw_on(trp_queue *queue, const struct squashed *squashed, const struct draw *draw);

/* From derivatives with respect to the actions and, in their place, the log-probabilities. */
void squashed_backward_on(trp_queue *queue, const struct squashed *squashed, const float *dactions);

#endif
