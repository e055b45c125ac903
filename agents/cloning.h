/* What policies learn that imitate: the log-probability of what was done under a Gaussian, weighted
 * or not, on a queue, whose device's memory all pointers are to. Shared by BC, CRR and IQL. */
#ifndef TRP_AGENTS_CLONING_H
#define TRP_AGENTS_CLONING_H

#include <troupe/device.h>
#include "bodies/offline.h"

/* trp_cloning_loss(). */
void cloning_on(trp_queue *queue, const struct cloning_loss_arguments *job);

/* trp_crr_weights(). */
void advantage_weights_on(trp_queue *queue, const struct advantage_weights_arguments *job);

#endif
