/* Target networks: vectors that follow others. Shared by all agents that have any. */
#ifndef TRP_AGENTS_TARGET_H
#define TRP_AGENTS_TARGET_H

#include <troupe/updater.h>

struct target_rule {
    float rate;      /* above 0: the share of the way that it moves at a step (Polyak) */
    uint32_t period; /* else: learner steps between copies */
};

/* Vector `target` follows `params`, of the same count, on the update's queue. */
void target_follow(const struct target_rule *how, const trp_update *update, size_t target,
                   size_t params, size_t count);

#endif
