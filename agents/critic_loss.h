/* What critics of one value learn: targets of the lesser of the target critics, and the loss of
 * each, on a queue, whose device's memory all pointers are to. Shared by SAC and TD3, and by what
 * learns critics of the same kind from a data set. Arrays are [rows]. */
#ifndef TRP_AGENTS_CRITIC_LOSS_H
#define TRP_AGENTS_CRITIC_LOSS_H

#include <troupe/actor_critic_losses.h>
#include "control_batch.h"
#include "critics.h"

struct critic_targets_job {
    trp_critic_batch batch;       /* as trp_critic_targets() has it, without the temperature: */
    const float *log_temperature; /* one number; NULL: the temperature is 0 */
    float *targets;               /* written */
};

void critic_targets_on(trp_queue *queue, const struct critic_targets_job *job);

struct critic_numbers {
    float loss;   /* the sum of the critics' */
    float mean_q; /* of the first critic's values of what was done */
};

struct critic_loss_job {
    uint32_t rows, count; /* count: critics */
    const float *targets;
    const float *weights;           /* NULL: 1 */
    float *values[CRITICS_MAX];     /* derivatives afterwards */
    float *errors;                  /* written: the largest size of a row's errors; of priorities */
    struct critic_numbers *numbers; /* written */
};

/* trp_value_loss() of each. */
void critic_loss_on(trp_queue *queue, const struct critic_loss_job *job);

/* The whole phase of a vector of critics that learn `targets`, [rows], of what was done in the
 * batch, whose errors are written; in critics->values. Fails as trp_update_apply(). */
TRP_MUST_USE trp_status critics_learn(struct critics *critics, const trp_update *update,
                                      size_t vector, struct control_batch *batch,
                                      const float *targets, struct critic_numbers *numbers);

#endif
