/* Bounds of learner/server/ that are no option, with their arithmetic. */
#ifndef TRP_LEARNER_SERVER_LIMITS_H
#define TRP_LEARNER_SERVER_LIMITS_H

enum {
    /* shard.c: versions that gradients of DynSGD may be of, where max_staleness says nothing: each
     * is a vector in memory. */
    SHARD_WINDOW = 16,
    SHARD_WINDOW_MAX = 1024,
    SHARD_WORKERS_MAX = 4096,
    /* placement.c: a range begins at a cache line: what one server steps no other one has. */
    PLACEMENT_NUMBERS = 16,
};

#endif
