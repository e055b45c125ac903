/* Learners of one host on one vector, without locks (Niu et al. 2011, "HOGWILD!: A Lock-Free
 * Approach to Parallelizing Stochastic Gradient Descent"; Mnih et al. 2016 with an optimizer whose
 * state is shared, too). Each has a copy of the vectors that are learned, computes on it, and ends
 * a phase by adding its step to what all have. Every number is loaded and stored whole, so that it
 * always is one that some learner stored; of two steps that meet at one number, one may be lost.
 *
 *     load the numbers that all have -> a step of the optimizer with the own gradient -> store
 *
 * What is not learned (target networks) each learner has for itself; one that joins begins with
 * what the one that publishes had when it last did. */
#ifndef TRP_LEARNER_MODES_HOGWILD_H
#define TRP_LEARNER_MODES_HOGWILD_H

#include "limits.h"
#include "mode.h"
#include "others.h"
#include "shared_memory.h"
#include "shared_pairs.h"

/* A count on a cache line of its own. */
struct shared_count {
    _Alignas(HOGWILD_LINE_BYTES) _Atomic uint64_t value;
};

/* What the memory begins with. */
struct hogwild_head {
    uint64_t layout;                                     /* what is in it: its kind */
    struct shared_count steps, versions, known;          /* known 0: a new member's, of nothing */
    struct shared_count phases[TRP_UPDATER_VECTORS_MAX]; /* of the optimizers */
    struct shared_count beats[HOGWILD_LEARNERS_MAX];     /* of each member: rounds so far */
};

/* Where of the memory a vector lies. */
struct hogwild_vector {
    shared_pair *values, *state[TRP_OPTIMIZER_STATES_MAX];
    _Atomic uint32_t *changes; /* of each block; NULL: every phase goes through all blocks */
    uint32_t *seen;            /* of them, in the learner's copy */
};

struct hogwild {
    struct mode base;
    struct learners_options group;
    uint64_t generation;
    bool shares; /* its vectors are those of a generation */
    uint32_t member;
    struct others others;
    struct shared_memory *memory;
    struct hogwild_head *head;
    struct hogwild_vector each[TRP_UPDATER_VECTORS_MAX];
    float *before, *after, *state[TRP_OPTIMIZER_STATES_MAX]; /* of a block */
};

/* A learner that meets the others at the rendezvous of `group`; where that has none it is alone
 * with what it shares until it joins somebody. INVALID_ARGUMENT: its device is no host, or an
 * optimizer is none of RMSProp, Adam, and SGD without momentum. RESOURCE_EXHAUSTED: there is no
 * memory. */
TRP_MUST_USE trp_status hogwild_create(struct mode **out, struct vectors *vectors,
                                       const struct learners_options *group);

/* Where others find what it shares: an address of shared_memory.h. */
const char *hogwild_address(const struct mode *mode);

/* From here on it shares what `owner`, at `address`, does; its vectors become those. Fails as
 * shared_memory_adopt(), and FAILED_PRECONDITION: they do not learn the same. */
TRP_MUST_USE trp_status hogwild_join(struct mode *mode, const char *address, const char *owner);

/* ---- for dogwild.c ----------------------------------------------------------------------------
 */

/* Ends the generation. */
void hogwild_break(struct hogwild *hogwild, const char *why);

TRP_MUST_USE trp_status hogwild_apply(struct mode *mode, size_t index);

/* Zeroed, the first member of a mode, whose `impl` it gets. Fails as hogwild_create(); it is to be
 * cleaned up then, too. */
TRP_MUST_USE trp_status hogwild_init(struct hogwild *hogwild, const struct mode_impl *impl,
                                     struct vectors *vectors, const struct learners_options *group);
void hogwild_cleanup(struct hogwild *hogwild);

/* ---- hogwild_numbers.c -------------------------------------------------------------------------
 */

/* Finds everything in `memory`; NULL: only says how many bytes it has. */
size_t hogwild_place(struct hogwild *hogwild, uint8_t *memory);

/* The same number where two learners learn the same. */
uint64_t hogwild_layout(const struct vectors *vectors);

/* What this learner alone has for its steps. */
void hogwild_take_room(struct hogwild *hogwild);
void hogwild_drop_room(struct hogwild *hogwild); /* none is fine */

/* What is shared becomes the learner's vectors, and the other way round. */
TRP_MUST_USE trp_status hogwild_gather(struct mode *mode);
void hogwild_share_vectors(struct hogwild *hogwild);

/* What is not learned, of the one that leads: who joins later has it, too. */
void hogwild_share_unlearned(struct hogwild *hogwild);
void hogwild_load_unlearned(struct hogwild *hogwild);

#endif
