/* Bounds of agents/ that are no option, with their arithmetic. */
#ifndef TRP_AGENTS_LIMITS_H
#define TRP_AGENTS_LIMITS_H

#include <stdint.h>

enum {
    /* Option tables: items of one update; 65 536 CartPole transitions are 4 MB of batch. */
    BATCH_MAX = 65536,
    /* dqn_options.c, d4pg.c: numbers for an action: the papers' sweeps end at 201. */
    ATOMS_MAX = 1024,
    /* mpo.c: actions at a state; with a batch of 256, 262 144 rows through the critic. */
    MPO_SAMPLES_MAX = 1024,
    /* a3c_options.c, impala_options.c, ppo_options.c, r2d2.c: steps of a sequence; an item has one
     * row more. */
    UNROLL_MAX = 65534,
    /* unroll.c: items of a copy that the table has not confirmed: one on its way while the next is
     * made. All of them stand in front of what is newer, as the queue does: with 1024 an actor, as
     * writers have by themselves, four actors' items were 130 versions old in a queue for one. */
    UNROLLS_IN_FLIGHT_PER_COPY = 2,
    /* unroll.c, r2d2.c: steps of an update, and control_agent.c: actions that critics are asked of;
     * 4 M rows of CartPole are 300 MB of batch and room. */
    UPDATE_ROWS_MAX = 1 << 22,
    /* a3c_options.c, impala_options.c, r2d2.c: sequences of one update. */
    SEQUENCES_MAX = 4096,
    /* impala_options.c: updates in the queue: 819 200 items at most, fewer than the 1 000 000 that
     * a table keeps. */
    IMPALA_QUEUE_MAX = 200,
    /* normalizer.c: rows of a batch of a pass over a dataset, and how long one is waited for before
     * it is asked for again. */
    NORMALIZER_BATCH = 1024,
    NORMALIZER_WAIT_MS = 1000,
};

#endif
