/* A member of a group of learners, from generation to generation. */
#ifndef TRP_LEARNER_MODES_LEARNERS_H
#define TRP_LEARNER_MODES_LEARNERS_H

#include <stdbool.h>
#include <stdint.h>

#include <troupe/collective.h>
#include <troupe/rendezvous.h>
#include <troupe/status.h>
#include <troupe/stop.h>

enum { LEARNERS_WORDS = 4 };

struct learners_options {
    const char *name; /* of the group; borrowed, as all that follows */
    trp_rendezvous *rendezvous;
    const char *listen; /* where the others reach this member; NULL: this host alone */
    bool insecure;      /* that may be neither loopback nor a unix socket */
    const char *sites;  /* of members in turn, as "east,east,west"; NULL: hosts */
    uint32_t timeout_ms;
    bool no_share;      /* as trp_collective_options.no_share */
    trp_device *device; /* of vectors; NULL: the host */
    trp_stop *stop;     /* may be NULL */
};

struct learners {
    struct learners_options options;
    trp_collective_listener *listener;
    trp_collective *collective; /* of this generation; NULL: there is none */
    uint64_t generation;
    uint32_t rank, size;
    uint32_t member;  /* index in the group */
    uint64_t nonce;   /* of the generation */
    uint32_t *firsts; /* by rank: the first rank of its site */
    bool founder;     /* nothing was learned before this member came */
    bool broken;      /* it failed, and the others go on without it or without each other */
    int32_t rest;     /* of bytes that are spread */
    uint64_t *words;  /* what ranks said in the last exchange, LEARNERS_WORDS each */
};

/* Listens. Fails as trp_collective_listener_create(). */
TRP_MUST_USE trp_status learners_create(struct learners *group,
                                        const struct learners_options *options);
void learners_destroy(struct learners *group); /* zeroed is fine */

/* Leaves the generation that there was and waits for the next one until all its members are
 * connected. `fingerprint` is of what has to be the same on all of them (FAILED_PRECONDITION).
 * CANCELLED: this one is to stop. UNAVAILABLE: the group has ended, and why. */
TRP_MUST_USE trp_status learners_meet(struct learners *group, uint64_t fingerprint);

/* With ranks of this generation, of which `ranks` says who they are: group, nonce, rank, size,
 * addresses, sites and fingerprint. All else is as the group has it. Fails as
 * trp_collective_connect(). */
TRP_MUST_USE trp_status learners_connect(struct learners *group, trp_collective_listener *listener,
                                         const trp_collective_options *ranks, trp_collective **out);

/* Of its operations no memory is touched any more. */
void learners_leave(struct learners *group);

/* Others are leaving this generation, for one with more members or fewer. */
bool learners_is_left(const struct learners *group);

/* Ends a generation for all, and says so: it `how`, "is broken", because of `why`. */
void learners_break(trp_rendezvous *rendezvous, uint64_t number, const char *how, const char *why);

/* This generation ends for all, because of this member. */
void learners_abort(struct learners *group, const char *why);

/* Waits for an operation of the generation. UNAVAILABLE, DEADLINE_EXCEEDED: it is broken. */
TRP_MUST_USE trp_status learners_wait(struct learners *group, uint64_t ticket);

/* The same, unless what follows on the operation's queue comes after it anyway: then what became of
 * it is known when a later operation is waited for. */
TRP_MUST_USE trp_status learners_settle(struct learners *group, uint64_t ticket);

/* Waits for one that some of its ranks have among themselves (circle.h): what ends that ends the
 * generation. */
TRP_MUST_USE trp_status learners_wait_in(struct learners *group, trp_collective *circle,
                                         uint64_t ticket);

/* Until everybody has come to this, or can no more. */
void learners_part(struct learners *group);

/* Everybody tells everybody else LEARNERS_WORDS words: they are in `words` when the ticket was
 * waited for. One exchange at a time. */
uint64_t learners_tell(struct learners *group, const uint64_t own[LEARNERS_WORDS]);

static inline const uint64_t *learners_told(const struct learners *group, uint32_t rank)
{
    return group->words + (size_t)rank * LEARNERS_WORDS;
}

/* Rank `root`'s bytes go to all. Fails as learners_wait(). */
TRP_MUST_USE trp_status learners_spread(struct learners *group, void *bytes, size_t size,
                                        uint32_t root);

#endif
