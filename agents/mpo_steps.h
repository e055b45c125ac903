/* MPO's two steps on a queue: what actions of the target policy weigh, and what the policy learns
 * of them. */
#ifndef TRP_AGENTS_MPO_STEPS_H
#define TRP_AGENTS_MPO_STEPS_H

#include <stdbool.h>

#include "bodies/mpo.h"
#include "critic_loss.h"
#include "room.h"

/* For batches of at most `rows`. */
TRP_MUST_USE trp_status mpo_steps_create(struct mpo_steps *steps, uint32_t rows, struct room *room);

/* What is learned beside networks, in one vector: the temperature, that of costs, and multipliers
 * of the divergence by means and by deviations, each one number or one for each of an action. */
size_t mpo_dual_count(const struct mpo_steps *steps);

/* What they begin at, on the host: both temperatures, and multipliers. */
void mpo_duals_init(const struct mpo_steps *steps, float temperature, float by_means,
                    float by_deviations, float *duals);

/* Actions, as the target policy draws them. */
void mpo_draw_on(trp_queue *queue, const struct mpo_steps *steps, const struct draw *draw);

/* The E-step: next_values and weights from values, and the temperatures' gradients. */
void mpo_weigh_on(trp_queue *queue, const struct mpo_steps *steps, const float *duals,
                  float *dduals);

/* The M-step: dmean and dlog_std, and the multipliers' gradients. */
void mpo_follow_on(trp_queue *queue, const struct mpo_steps *steps, const float *duals,
                   float *dduals);

#endif
