/* What policies learn that imitate: the log-probability of what was done under a Gaussian, weighted
 * or not, on a queue, whose device's memory all pointers are to. Shared by BC, CQL, CRR and IQL. */
#ifndef TRP_AGENTS_CLONING_H
#define TRP_AGENTS_CLONING_H

#include <troupe/device.h>
#include "bodies/offline.h"
#include "control_learner.h"

/* The policy's phase, by trp_cloning_loss() of the batch's actions: it `said` means and log
 * deviations, [rows][size], which become their gradients, of the kind that the agent's policy is.
 * [rows] weights, NULL: 1; log_probs are room, and
 * so is [rows][size] within of a policy that is squashed. */
TRP_MUST_USE trp_status cloning_learn(struct control_learner *learner, const trp_update *update,
                                      const trp_net_rows *rows, float *const said[2],
                                      const float *weights, float *log_probs, float *within,
                                      struct cloning_numbers *numbers);

/* trp_crr_weights(). */
void advantage_weights_on(trp_queue *queue, const struct advantage_weights_arguments *job);

#endif
