/* One pass over all rows of a batch of unrolls, and one phase of a loss on it: what updaters share
 * that learn from a batch once. Items come as [sequences][steps]; the network, which may have a
 * core, reads [steps][sequences], in which order the rows are put first. */
#ifndef TRP_AGENTS_UNROLL_STEPS_H
#define TRP_AGENTS_UNROLL_STEPS_H

#include <troupe/returns.h>
#include "unroll_updater.h"

/* Memory of the device, [rows] where nothing else is said. */
struct unroll_steps {
    int32_t *order;
    uint8_t *observations, *actions;
    bool *mask, *first, *valid; /* mask NULL: everything may be done */
    float *rewards, *item_discounts, *old_log_probs;
    float *discounts, *log_probs, *entropies, *advantages, *returns, *weights; /* a loss's own */
    int32_t *orders[2]; /* the host's, of the last step and the one before */
};

/* For batches of `updater`, in its room. Fails as room_add(). */
TRP_MUST_USE trp_status unroll_steps_init(struct unroll_steps *steps,
                                          struct unroll_updater *updater);
void unroll_steps_cleanup(struct unroll_steps *steps);

/* Puts the rows of a batch in order, and through the network: each sequence from the state that the
 * actor's core had before it. */
trp_net_rows unroll_steps_forward(struct unroll_steps *steps, const struct unroll_updater *updater,
                                  const trp_update *update);

/* The rows of that pass for a loss: what was done in them, and what came of it, which lacks values
 * and discounts. */
struct decisions unroll_steps_decisions(const struct unroll_steps *steps,
                                        const struct unroll_updater *updater,
                                        const trp_update *update);
trp_trajectories unroll_steps_items(const struct unroll_steps *steps,
                                    const struct unroll_updater *updater, const trp_update *update);

/* Backward, and the phase of the loss, which is watched. */
TRP_MUST_USE trp_status unroll_steps_apply(struct unroll_updater *updater, const trp_update *update,
                                           const trp_net_rows *pass, const float *loss);

#endif
