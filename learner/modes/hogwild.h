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

#include "mode.h"

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

#endif
