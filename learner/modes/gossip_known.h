/* Gossip whose messages are compressed (Koloskova et al. 2019, "Decentralized Stochastic
 * Optimization and Gossip Algorithms with Compressed Communication", CHOCO). Who sends and who
 * receives both know what the receiver has heard of the sender's vector so far, h; a message is a
 * code of x - h, and h is what came of it then. So what a code has not got is in the next
 * difference. A rank that sends to one and hears of another goes on from
 *
 *     x += share / 2 * (h of whom it hears - h that it is heard with)
 *
 * which with whole differences is the mean of the two, and whatever the code leaves the mean of all
 * ranks as it was. `share` is of a difference what its code is sure to bring; ranks that went
 * further would run away from each other. There is an h for each distance at which one sends and
 * one hears; all begin as what all ranks have alike. Messages in, messages out: no sockets. */
#ifndef TRP_LEARNER_MODES_GOSSIP_KNOWN_H
#define TRP_LEARNER_MODES_GOSSIP_KNOWN_H

#include <stddef.h>
#include <stdint.h>

#include <troupe/status.h>
#include "learner/compress/compress.h"

/* Of one rank and one vector. */
struct gossip_known {
    struct compress_options compress;
    size_t count;
    uint32_t size;  /* of the group */
    float *base;    /* what all have alike */
    float **said;   /* by distance: h of this rank; NULL: it is `base` */
    float **heard;  /* the other one's */
    float *decoded; /* of one message */
};

void gossip_known_create(struct gossip_known *known, size_t count,
                         const struct compress_options *compress);
void gossip_known_destroy(struct gossip_known *known); /* zeroed is fine */

/* All ranks have these values. */
void gossip_known_begin(struct gossip_known *known, uint32_t size, const float *values);

/* Words of a message. `step` is the same on all ranks, and grows. */
size_t gossip_known_words(const struct gossip_known *known, uint64_t step);

/* To the rank at this distance. INVALID_ARGUMENT: numbers of `values` are beyond all codes. */
TRP_MUST_USE trp_status gossip_known_say(struct gossip_known *known, uint32_t distance,
                                         uint64_t step, uint64_t key, const float *values,
                                         uint32_t *words);

/* What came from as far before, after this round's was said: values move. INVALID_ARGUMENT: it is
 * no code. */
TRP_MUST_USE trp_status gossip_known_hear(struct gossip_known *known, uint32_t distance,
                                          uint64_t step, const uint32_t *words, float *values);

#endif
