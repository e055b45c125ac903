/* Bounds of agents/ that are no option, with their arithmetic. */
#ifndef TRP_AGENTS_LIMITS_H
#define TRP_AGENTS_LIMITS_H

#include <stdint.h>

enum {
    /* dqn.c: one pull is a message: the 64 MiB of a server, less what else is in it. */
    PARAMS_BYTES_MAX = (64 << 20) - 4096,
    /* dqn.c: rows of one update; 65 536 CartPole items are 4 MB of batch. */
    DQN_BATCH_MAX = 65536,
};

#endif
