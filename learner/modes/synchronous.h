/* Inner to modes/: what synchronous.c, meeting.c, guided.c, phases.c, compressed.c and sharded.c
 * share, and modes begin with whose learners step by themselves and meet in the same way. */
#ifndef TRP_LEARNER_MODES_SYNCHRONOUS_H
#define TRP_LEARNER_MODES_SYNCHRONOUS_H

#include "backup.h"
#include "buckets.h"
#include "limits.h"
#include "mode.h"
#include "weighing.h"

/* What there is for a learned vector. */
struct combined {
    struct buckets buckets;
    float *kept; /* the device's, as the gradient: of the rounds before in this step; NULL: none */
    bool has_kept;                 /* it is not 0 */
    bool reduced;                  /* the gradient is the mean already */
    struct compressor *compressor; /* NULL: gradients go as they are */
    void *after;    /* its rests when the generation broke, until the next one is there; or NULL */
    float *staged;  /* the host's, as the gradient of a device; or NULL */
    size_t *shards; /* by bucket: where in the state this rank's part of it begins; NULL: all */
};

struct synchronous {
    struct mode base;
    struct mode_options options;
    bool sharded;
    bool shared_out; /* of `sharded`: each has stepped a part, and perhaps not got the others' */
    struct learners group;
    uint64_t fingerprint;
    bool was_in_group;
    bool behind;    /* others have finished the step that this one was in */
    bool receiving; /* the state is half another's */
    struct combined each[TRP_UPDATER_VECTORS_MAX];
    struct backup backup;
    trp_phase_part *parts; /* the device's: of each rank */
    float *numbers;        /* the device's: of a head */
    /* The step: */
    uint64_t number;
    uint32_t round, rounds;
    uint64_t ticket;    /* of what everybody said at the beginning of the round */
    bool known;         /* that was waited for: */
    bool guided;        /* who comes to a phase tells the others first */
    uint64_t unsettled; /* operation, of this round, that is to be waited for at its end */
    uint64_t any, all;  /* flags of some learner, of all */
    uint32_t first;     /* rank that has a batch */
    uint64_t leader;    /* its flags */
};

/* Zeroed, the first member of a mode, whose `impl` it gets. Fails as mode_create(); it is to be
 * cleaned up then, too. */
TRP_MUST_USE trp_status synchronous_init(struct synchronous *s, const struct mode_impl *impl,
                                         struct vectors *vectors,
                                         const struct mode_options *options, bool sharded);

/* The same of modes whose sums go as they are, whatever `options` say of what else goes. */
TRP_MUST_USE trp_status synchronous_init_plain(struct synchronous *s, const struct mode_impl *impl,
                                               struct vectors *vectors,
                                               const struct mode_options *options);
void synchronous_cleanup(struct synchronous *s);

/* ---- meeting.c ----------------------------------------------------------------------------- */

TRP_MUST_USE trp_status synchronous_meet(struct mode *mode, struct mode_meeting *meeting);

/* Of what has to be the same on all ranks. */
uint64_t synchronous_fingerprint(const struct synchronous *s);

/* The next round begins: who has a batch in it. */
void synchronous_next_round(struct synchronous *s);

/* ---- guided.c ------------------------------------------------------------------------------ */

/* What a rank is about to do in a guided round; phases with the vector's index. */
enum deed { DEED_DONE, DEED_LARGEST, DEED_REDUCE, DEED_APPLY };

/* All ranks say what they do, and `bits` besides: learners_told()[0] and [1]. FAILED_PRECONDITION:
 * those who are not done do not do the same. */
TRP_MUST_USE trp_status guided_tell(struct synchronous *s, enum deed deed, size_t index,
                                    uint64_t bits);

/* Takes part in what the others do until all are done. Fails as guided_tell(). */
TRP_MUST_USE trp_status guided_follow(struct synchronous *s);

/* ---- phases.c ------------------------------------------------------------------------------ */

/* A part of a gradient is final. */
void phase_ready(struct synchronous *s, size_t index, size_t lo, size_t hi);

/* The gradient becomes the mean, of which a rank of `sharded` has its ranges. */
TRP_MUST_USE trp_status phase_reduce(struct synchronous *s, size_t index);

/* Waits for an operation of a phase; or the end of the round does, for all of them, where what
 * follows comes after it on the device anyway: so a step of a GPU is one graph. In a guided round
 * others are elsewhere, and the updater may look at what came of a phase. */
TRP_MUST_USE trp_status phase_settle(struct synchronous *s, uint64_t ticket);

/* Reduces it unless that is done, and ends the phase. */
TRP_MUST_USE trp_status phase_finish(struct synchronous *s, size_t index);

/* Keeps the gradient for the next round. RESOURCE_EXHAUSTED: the device has no memory for it. */
TRP_MUST_USE trp_status phase_keep(struct synchronous *s, size_t index);

/* What was begun is as if it had not been. */
void phases_forget(struct synchronous *s);

/* Where bucket `index` begins, of a vector's values or gradient, and how many numbers are moved:
 * the last one brings the head. */
struct bucket_memory {
    float *at;
    size_t count;
};
struct bucket_memory bucket_memory(const struct buckets *buckets, uint32_t index, float *vector);

/* What of a bucket is rank `rank`'s, in numbers of the vector. */
struct range bucket_share(const struct synchronous *s, const struct buckets *buckets,
                          uint32_t index, uint32_t rank);

/* ---- compressed.c -------------------------------------------------------------------------- */

void compressed_create(struct synchronous *s, size_t index);
void compressed_destroy(struct combined *combined); /* zeroed is fine */

/* Rests go with the copy from before the step. */
void compressed_back_up(struct synchronous *s);

/* The generation broke: rests are kept as they are, for others may have finished the step. They are
 * dropped when the next one is there. */
void compressed_keep_after(struct synchronous *s);
void compressed_drop_after(struct synchronous *s);

/* All go back to a checkpoint: what was not sent of the steps since is of none. */
void compressed_forget(struct synchronous *s);

/* The generation begins. All get from `root` what they have alike; a new member has sent nothing
 * yet. Fails as learners_spread(). */
TRP_MUST_USE trp_status compressed_meet(struct synchronous *s, size_t index, uint32_t root);

/* The gradient, weighed, becomes the sum over all ranks, of which one of `sharded` has its range,
 * and so does its head. `clips`: the norm of
 * this rank's part is bounded where the optimizer's max_norm says so. */
TRP_MUST_USE trp_status compressed_reduce(struct synchronous *s, size_t index, bool clips);

/* ---- sharded.c ----------------------------------------------------------------------------- */

/* The state is the host's until there are others. */
void sharded_prepare(struct vectors *vectors);

/* Makes room for this rank's parts of the state, which come from the whole one that `root` has. */
TRP_MUST_USE trp_status sharded_spread(struct synchronous *s, uint32_t root);

/* Whether this rank has all of what was learned. */
bool sharded_is_whole(const struct synchronous *s);

/* The whole state comes to rank 0; and goes again. */
TRP_MUST_USE trp_status sharded_gather(struct synchronous *s);
void sharded_release(struct synchronous *s);

/* Steps this rank's ranges, and gets those of others. */
TRP_MUST_USE trp_status sharded_step(struct synchronous *s, size_t index);

/* The rest of the means come from other ranks. */
TRP_MUST_USE trp_status sharded_gather_ranges(struct synchronous *s, const struct buckets *buckets,
                                              float *vector);

#endif
