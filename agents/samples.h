/* Several actions that a Gaussian policy draws at each state: what a critic is asked of at once; on
 * a queue, whose device's memory all pointers are to. */
#ifndef TRP_AGENTS_SAMPLES_H
#define TRP_AGENTS_SAMPLES_H

#include "control.h"

void samples_on(trp_queue *queue, const struct samples_arguments *job);

#endif
