/* In which order a list may run: each work has a lane, whose works follow each other, and waits for
 * works of other lanes. Two works that meet in memory, one of them writing, are ordered as in the
 * list, and no wait could be left out without losing that. */
#ifndef TRP_NN_CUDA_SCHEDULE_H
#define TRP_NN_CUDA_SCHEDULE_H

#include "limits.h"
#include "work.h"

struct cuda_step {
    uint32_t lane;
    uint32_t wait_count;
    uint32_t waits[SCHEDULE_LANES]; /* numbers of works of other lanes */
};

struct cuda_schedule {
    const struct cuda_list *list; /* borrowed */
    struct cuda_step *steps;      /* of each work */
};

void schedule_make(struct cuda_schedule *schedule, const struct cuda_list *list);
void schedule_cleanup(struct cuda_schedule *schedule);

/* Whether `first`, which comes earlier in the list, is sure to be done before `then` begins. Of
 * more than a few pairs: slow. */
bool schedule_orders(const struct cuda_schedule *schedule, uint32_t first, uint32_t then);

#endif
