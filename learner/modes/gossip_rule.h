/* GossipGraD's rule (Daily et al. 2018, "GossipGraD: Scalable Deep Learning using Gossip
 * Communication based Asynchronous Gradient Descent"): in a round each rank sends what it has to
 * one other, receives what a third one has, and goes on from the mean of the two. Of p ranks the
 * one that rank i sends to in round t is i + u 2^(t mod log2 p), so that with p a power of two all
 * have the mean of all after log2 p rounds in a row in which nothing else changed; with other p the
 * mean stays what it was and ranks come closer to it. After log2 p rounds partners are others: u
 * goes through the numbers that have no divisor in common with p.
 *
 * There is no sum over all ranks, so flags travel the same way: each message has what its sender
 * has heard of the last rounds. After as many rounds as have all partners of a u in them
 * (`span`), all know of a round, and all the same; what is decided about it is decided then.
 *
 * Messages in and messages out: no clock, no sockets. */
#ifndef TRP_LEARNER_MODES_GOSSIP_RULE_H
#define TRP_LEARNER_MODES_GOSSIP_RULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gossip_flag {
    GOSSIP_HAS_BATCH,
    GOSSIP_STOPS,
    GOSSIP_OVER,
    GOSSIP_GOES_ON, /* its batches have not ended */
    GOSSIP_SAVES,
    GOSSIP_LEAVES,
    GOSSIP_FLAGS,
};

/* A message begins with it. Of each flag a bit a round, this one's the lowest. */
struct gossip_head {
    uint64_t round;
    uint64_t said[GOSSIP_FLAGS];
    uint64_t reserved;
};
_Static_assert(sizeof(struct gossip_head) == 64, "a line of the wire: change COLLECTIVE_WIRE");

/* A rank's end. */
struct gossip {
    uint32_t rank, size;
    uint32_t partners; /* log2 of size, rounded up */
    uint32_t span;
    struct gossip_head head; /* as it is sent */
};

void gossip_init(struct gossip *gossip, uint32_t rank, uint32_t size);

/* How far the rank is that is sent to in this round: 0 where this one is alone. */
uint32_t gossip_distance(const struct gossip *gossip);

/* Before the message of this round is sent. */
void gossip_say(struct gossip *gossip, enum gossip_flag flag);

/* Somebody said it, and what comes of it is not known yet. */
bool gossip_is_said(const struct gossip *gossip, enum gossip_flag flag);

enum gossip_answer {
    GOSSIP_TAKEN,
    GOSSIP_EARLY, /* a later round's: it is to be heard again then */
    GOSSIP_LATE,  /* an older round's */
};

/* A message came. Once that of this round is taken, its values are averaged with the own ones, as
 * they were sent, and the round ends: a round has one message to each rank. */
enum gossip_answer gossip_hear(struct gossip *gossip, const struct gossip_head *head);
void gossip_average(float *values, const float *others, size_t count);

/* The round ends. True: all know of the one `span` - 1 before, and have the same bits of those
 * flags that some rank had there. */
bool gossip_end(struct gossip *gossip, uint32_t *flags);

#endif
