/* Bounds of agents/ that are no option, with their arithmetic. */
#ifndef TRP_AGENTS_LIMITS_H
#define TRP_AGENTS_LIMITS_H

#include <stdint.h>

enum {
    /* dqn_options.c: rows of one update; 65 536 CartPole items are 4 MB of batch. */
    DQN_BATCH_MAX = 65536,
};

#endif
