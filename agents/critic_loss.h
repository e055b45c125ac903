/* What critics of one value learn: targets of the lesser of the target critics, and the loss of
 * each, on a queue, whose device's memory all pointers are to. Shared by SAC and TD3, and by what
 * learns critics of the same kind from a data set. Arrays are [rows]. */
#ifndef TRP_AGENTS_CRITIC_LOSS_H
#define TRP_AGENTS_CRITIC_LOSS_H

#include "bodies/critics.h"
#include "control_batch.h"
#include "critics.h"

void critic_targets_on(trp_queue *queue, const struct critic_targets_arguments *job);

/* trp_value_loss() of each. */
void critic_loss_on(trp_queue *queue, const struct critic_loss_arguments *job);

/* The whole phase of a vector of critics that learn `targets`, [rows], of what was done in the
 * batch, whose errors are written; in critics->values. Fails as trp_update_apply(). */
TRP_MUST_USE trp_status critics_learn(struct critics *critics, const trp_update *update,
                                      size_t vector, struct control_batch *batch,
                                      const float *targets, struct critic_numbers *numbers);

#endif
