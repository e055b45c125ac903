/* How learners of a group combine what they compute: each way is a file here, and no agent knows of
 * them. A learner has one mode for its life; everything is called on its thread. */
#ifndef TRP_LEARNER_MODES_MODE_H
#define TRP_LEARNER_MODES_MODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/parameter_server.h>
#include "learner/compress/compress.h"
#include "learners.h"
#include "vectors.h"

struct mode;

/* What a learner brings to a round, and afterwards what all of them agree on. A step is one round
 * or, where fewer learners make the batches of more, several. */
struct mode_round {
    uint64_t number; /* the step's, of those of this learner */
    uint64_t steps;  /* afterwards: that all have done together */
    bool has_batch;
    bool stops;  /* a stop was requested; of any learner */
    bool over;   /* its time is over; of any learner */
    bool ended;  /* its batches ended; of all learners */
    bool saves;  /* a checkpoint is due; of the one that leads */
    bool leaves; /* all meet again, with more members or fewer */
    bool whole;  /* the step is done */
};

/* What learners that meet have, and afterwards what all of them have. */
struct mode_meeting {
    uint64_t steps, version;
    uint64_t generation;  /* that the version is of, then the one that it met in; 0: of no group */
    uint64_t version_gap; /* more versions than a generation publishes between two checkpoints */
    trp_rng *rng;         /* new members get a stream of their own */
    /* Reads what was last saved, the host's vectors and steps: nobody has all of it any more. */
    trp_status (*reload)(void *context, struct mode_meeting *meeting);
    void *context;
};

/* The version to go on from in `generation`: above all that were published in those since. */
uint64_t meeting_version(const struct mode_meeting *meeting, uint64_t generation);

/* The version after `version` where learners count by themselves, from the steps of all. Steps grow
 * from one version to the next. Who leads after another one may know of fewer, or have published
 * more often: a generation begins above all that the one before used. */
uint64_t mode_next_version(uint64_t generation, uint64_t steps, uint64_t version);

/* What is NULL does nothing. */
struct mode_impl {
    /* Before the first round, and when the group is another one or broken: all have the state of
     * the learner with most steps. What was begun of a step leaves no trace. Fails as
     * learners_meet().
     */
    trp_status (*meet)(struct mode *mode, struct mode_meeting *meeting);
    /* A round begins; the updater's step, where there is a batch, lies between it and the end. */
    trp_status (*begin)(struct mode *mode, const struct mode_round *round);
    trp_status (*end)(struct mode *mode, struct mode_round *round);
    /* [lo, hi) of the gradient of vector `index` is final: trp_update_ready(). */
    void (*ready)(struct mode *mode, size_t index, size_t lo, size_t hi);
    /* The gradient becomes the mean over all learners: trp_update_reduce(). */
    trp_status (*reduce)(struct mode *mode, size_t index);
    /* *value becomes the largest of all learners': trp_update_max(). */
    trp_status (*max)(struct mode *mode, double *value);
    /* Ends a phase: reduces, measures, steps, makes the gradient 0, all on the queue. How the phase
     * ended is in the vector's phases. */
    trp_status (*apply)(struct mode *mode, size_t index);
    /* All learners fail alike in a phase: nobody leaves before all know. NULL: each fails by
     * itself. */
    void (*refuse)(struct mode *mode);
    /* The version that is published next, after `version`, which this learner published last. NULL:
     * one more, as all learners count alike. */
    uint64_t (*next_version)(struct mode *mode, uint64_t version);
    /* The whole optimizer state comes to the one that leads, for a checkpoint; and goes again. All
     * call both. */
    trp_status (*gather)(struct mode *mode);
    void (*release)(struct mode *mode);
    /* The learner has failed and saves nothing: what of it is others' goes to them, or to the log.
     */
    void (*leave)(struct mode *mode);
    void (*destroy)(struct mode *mode);
};

/* The first member of every mode. */
struct mode {
    const struct mode_impl *impl;
    struct vectors *vectors; /* the learner's */
    struct learners *group;  /* others wait for this learner: it waits for nobody else for long */
    bool leads;              /* publishes and saves */
    bool idle;               /* brings no batch to the next round */
    bool partial;            /* of this round's phases none ends: gradients are kept for the next */
    float rows, batch_size;  /* of the batch of this round; 0: there is none */
    uint32_t more_steps;     /* beyond one, by which a round may move the group's count */
};

struct mode_options {
    const char *name; /* "synchronous", which NULL is, or as in mode.c */
    trp_updater *updater;
    struct learners_options group; /* without a rendezvous the learner is alone */
    uint32_t count;                /* learners whose batches are a step; 0: as many as there are */
    size_t bucket_bytes;
    uint32_t local_steps; /* local_sgd: between two means; 0: 16 */
    float outer_momentum;
    double significance;                /* gaia: v0 */
    uint32_t site_slack;                /* gaia: clocks */
    uint64_t max_steps;                 /* gaia: after which all end together; 0: no limit */
    struct compress_options compress;   /* of gradients on their way */
    const trp_learner_servers *servers; /* of the mode "server"; NULL: none */
};

/* INVALID_ARGUMENT: there is no such mode, or it cannot do what the updater wants. Borrows what
 * the options point to. */
TRP_MUST_USE trp_status mode_create(struct mode **out, struct vectors *vectors,
                                    const struct mode_options *options);

/* One learner, which nobody else is with. */
struct mode *alone_create(struct vectors *vectors);

/* How a phase ends where the gradient is this learner's own. */
TRP_MUST_USE trp_status alone_apply(struct mode *mode, size_t index);

/* All learners step by themselves, and go on from the mean of their vectors now and then. Fails as
 * mode_create(). */
TRP_MUST_USE trp_status local_sgd_create(struct mode **out, struct vectors *vectors,
                                         const struct mode_options *options);

/* All learners step by themselves, and swap their vectors with others after each step. Fails as
 * mode_create(). */
TRP_MUST_USE trp_status gossip_create(struct mode **out, struct vectors *vectors,
                                      const struct mode_options *options);

/* Learners of a site go on from their mean after every step, and tell other sites what matters.
 * Fails as mode_create(). */
TRP_MUST_USE trp_status gaia_mode_create(struct mode **out, struct vectors *vectors,
                                         const struct mode_options *options);

/* All learners step alike; `sharded`: each has a part of the optimizer's state and steps a part of
 * the vectors. Fails as mode_create(). */
TRP_MUST_USE trp_status synchronous_create(struct mode **out, struct vectors *vectors,
                                           const struct mode_options *options, bool sharded);

/* Their parameters are servers', where the optimizer steps. Fails as mode_create(). */
TRP_MUST_USE trp_status server_mode_create(struct mode **out, struct vectors *vectors,
                                           const struct mode_options *options);

#endif
