/* Learners on one vector that share no memory: Hogwild in each process, whose numbers streams of
 * datagrams keep alike (dogwild_stream.h). What is learned goes there, optimizers' states stay each
 * learner's own. */
#ifndef TRP_LEARNER_MODES_DOGWILD_H
#define TRP_LEARNER_MODES_DOGWILD_H

#include "mode.h"

/* Fails as hogwild_create(), and UNAVAILABLE: there is no socket. */
TRP_MUST_USE trp_status dogwild_create(struct mode **out, struct vectors *vectors,
                                       const struct learners_options *group,
                                       const struct compress_options *compress);

#endif
