/* A range of a learned vector with its optimizer, and how often each worker has pushed: the rules
 * of parameter servers. It has no clock and no sockets: what comes in which order decides all, so
 * that the same messages give the same bits, in a test as after a restart. */
#ifndef TRP_LEARNER_SERVER_SHARD_H
#define TRP_LEARNER_SERVER_SHARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/optimizer.h>
#include <troupe/parameter_server.h>
#include "passes.h"

struct shard_options {
    trp_optimizer optimizer;
    trp_server_rule rule;
    uint32_t workers;       /* that are expected from the beginning */
    uint32_t slack;         /* TRP_SERVER_SSP */
    uint32_t softness;      /* TRP_SERVER_SOFTSYNC, at least 1 */
    uint32_t max_staleness; /* versions; older gradients are dropped, but in SYNC and SSP; 0: any */
    struct passes *passes;  /* for long ranges, borrowed; NULL: on the calling thread */
};

/* [lo, hi) of the shard's numbers. */
struct shard_range {
    uint64_t lo, hi;
};

struct shard_worker {
    bool present;
    uint64_t clock; /* pushes that were taken: the sequence number of the next one */
};

/* The gradients that were computed on one version. */
struct shard_effect {
    uint64_t version;
    uint64_t pushes; /* so many; 0: it is free */
};

struct param_shard {
    struct shard_options options;
    size_t count;
    float *values;                          /* the owner's memory */
    float *state[TRP_OPTIMIZER_STATES_MAX]; /* of the optimizer */
    uint64_t steps;                         /* of the optimizer */
    uint64_t version;                       /* of the values; grows with each change */
    uint64_t first_version;                 /* of this life: gradients are of no older one */
    uint64_t rounds;                        /* TRP_SERVER_SYNC: clocks that are complete */
    uint64_t pushes, dropped, repeated;     /* taken; of them too old; that came again */
    atomic_bool harmed;                     /* the last push had numbers that are not finite */
    double *sum;                            /* of gradients for one step; or NULL */
    uint32_t summed;                        /* so many */
    float *gradient;                        /* room for one that is stepped with */
    struct shard_worker *workers;
    struct shard_effect *effects; /* TRP_SERVER_DYNSGD; by version modulo their number */
    float *means;                 /* of their gradients, [effect_count][count] */
    uint32_t effect_count;
};

/* `values`, [count], are the ones to begin with, and borrowed. INVALID_ARGUMENT: options that do
 * not go together; *shard is empty then. */
TRP_MUST_USE trp_status shard_create(struct param_shard *shard, const struct shard_options *options,
                                     float *values, size_t count);
void shard_destroy(struct param_shard *shard); /* zeroed is fine */

/* Goes on with other options and as many workers. By another rule what was pushed for a step that
 * is not whole makes one, all workers are where the one with most pushes is, and gradients are of
 * no older version than this one. FAILED_PRECONDITION: the optimizer has a state that the one
 * before has not; the shard is to be destroyed then. INVALID_ARGUMENT as shard_create(). */
TRP_MUST_USE trp_status shard_change(struct param_shard *shard,
                                     const struct shard_options *options);

/* INVALID_ARGUMENT: ranges that are empty, not in order or not of this shard. */
TRP_MUST_USE trp_status shard_check(const struct param_shard *shard,
                                    const struct shard_range *ranges, size_t count,
                                    size_t *numbers);

struct shard_push {
    uint32_t worker;
    uint64_t sequence;                /* counts from 0 */
    uint64_t version;                 /* that the gradient was computed on */
    float scale;                      /* of the gradient */
    const struct shard_range *ranges; /* checked */
    size_t range_count;
    const float *grads; /* of the ranges, one behind the other */
    bool moves; /* others may be writing to them, and nobody has looked at them: each is read once,
                   and where one of SHARD_BLOCK is not finite these count as 0, and the shard is
                   harmed. Not with TRP_SERVER_DYNSGD */
};

enum shard_answer {
    SHARD_TAKEN,    /* it took effect, or does with others */
    SHARD_DROPPED,  /* it was too old */
    SHARD_REPEATED, /* it was taken before, and does nothing */
    SHARD_AHEAD,    /* pushes before it are missing: the worker's clock says which is next */
    SHARD_EARLY,    /* others have to push first, then again */
};

/* What shard_push() would answer to a worker that is there. */
enum shard_answer shard_judge(const struct param_shard *shard, const struct shard_push *push);

/* A worker that is not there joins with it. */
enum shard_answer shard_push(struct param_shard *shard, const struct shard_push *push);

/* Whether a worker may read now; with TRP_SERVER_SSP it may not where it is too far ahead. */
bool shard_may_read(const struct param_shard *shard, uint32_t worker);

/* The worker that others wait for: of those that are there the one with fewest pushes. */
uint32_t shard_awaited(const struct param_shard *shard);

/* A worker joins, where the slowest of the others is; and goes, and nobody waits for it. */
void shard_join(struct param_shard *shard, uint32_t worker);
void shard_leave(struct param_shard *shard, uint32_t worker);

/* After a life whose last versions are lost: no number of one is used again. */
void shard_skip_versions(struct param_shard *shard, uint64_t gap);

#endif
