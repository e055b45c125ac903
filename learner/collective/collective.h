/* A rank's end of a group: who drives it, what is on its way, and how it fails.
 *
 * Everything is under one mutex, which is held while something moves and released for sleeps. The
 * calling thread drives the operations while it waits; the helper, a thread of the collective's
 * own, while it does not, and hears the other ranks' notices at any time. */
#ifndef TRP_LEARNER_COLLECTIVE_H
#define TRP_LEARNER_COLLECTIVE_H

#include <stdatomic.h>

#include <troupe/collective.h>

#include "carrier.h"
#include "core/thread.h"
#include "limits.h"
#include "notice.h"
#include "staging.h"
#include "transfer.h"

/* Started and not done. */
struct operation {
    struct operation *next;
    struct transfer transfer;
    int64_t began_ns; /* when it could begin; 0: not yet */
    /* Values of a device: */
    trp_queue *queue; /* NULL: the host's */
    void *device_values;
    struct staging *staging;
    uint64_t mark;
    bool staged; /* the queue has come to it */
    bool native; /* the carrier does it, on the queue; there is no staging. It was */
    bool asked;  /* told of it, */
    bool put;    /* and has put it there; */
    bool marked; /* `mark` is behind it: what is on the queue is on its way */
};

/* What is known of another rank. */
struct group_peer {
    struct notice_line line;
    struct notice waits;  /* in which call and for whom it said last that it waits; kind 0: never */
    uint64_t asked;       /* after the deadline of this operation whom it waits for, */
    int64_t asked_ns;     /* then, */
    struct notice answer; /* and what it said since; kind 0: nothing */
    int64_t broken_ns;    /* since when its lane fails; 0: it does not */
};

struct trp_collective {
    char group[COLLECTIVE_GROUP_BYTES_MAX + 1];
    uint64_t generation;
    uint32_t rank, size;
    int64_t timeout_ns;
    struct schedule_table table;
    uint32_t *sites; /* by rank */
    struct schedule_place place;
    struct peer_lane **lanes; /* by rank; its own is NULL */
    struct group_peer *peers;
    uint8_t *snapshot;

    struct mutex mutex;
    uint64_t started, done;                         /* sequences */
    struct operation *first, *last;                 /* those between */
    struct operation *spare;                        /* to be used again */
    struct group_call calls[COLLECTIVE_CALLS_KEPT]; /* by sequence, the newest */
    struct staging *stagings;
    struct carrier *carrier;   /* NULL: vectors of devices are staged */
    int64_t carrier_failed_ns; /* 0: it has not */
    trp_collective_counters counters;
    bool waiting;         /* the caller drives */
    _Atomic bool calling; /* it wants to */

    trp_status status; /* of the group; the first failure */
    char *words;
    bool broken;           /* a lane failed: who is gone is about to be known */
    bool disputed;         /* rank 0 decides who called what */
    struct notice dispute; /* as it was told */
    uint64_t told;         /* the last operation of which all were told that it waits; 0: none */
    uint64_t gave_up;      /* the operation in which it told so the rank that decides; 0: none */
    int64_t gave_up_ns;

    struct mutex abort_mutex;
    char *abort_words;       /* under abort_mutex; NULL: nobody aborted */
    _Atomic bool is_aborted; /* there are such words */

    struct thread helper;
    bool stopping;
    int caller_wake, helper_wake; /* eventfds: it looks again */
    int timer;                    /* timerfd: the helper looks whether it has to help */
    int64_t timer_ns;             /* for when it is set; 0: it is not */
    struct pollfd *caller_fds, *helper_fds;
};

static inline uint32_t collective_timeout_ms(const trp_collective_options *options)
{
    return options->timeout_ms > 0 ? options->timeout_ms : (uint32_t)COLLECTIVE_TIMEOUT_MS;
}

/* An end with lines and lanes that do not exist yet; the lines' descriptors are given by rank, and
 * its own from now on, also when it fails. */
TRP_MUST_USE trp_status collective_init(struct trp_collective **out,
                                        const trp_collective_options *options, const int *line_fds);

/* Its lanes, which are its own from now on, are complete: the helper starts. */
TRP_MUST_USE trp_status collective_start(struct trp_collective *c, struct peer_lane **lanes,
                                         const struct schedule_table *table);

/* ---- drive.c ------------------------------------------------------------------------------- */

/* The helper looks after `ns`, or before. With the mutex. */
void collective_help_in(struct trp_collective *c, int64_t ns);

/* Moves what can be moved of the first operation. `caller`: of devices', too. With the mutex. */
bool collective_advance(struct trp_collective *c, bool caller);

void collective_help(void *c); /* the helper's thread */

/* ---- failure.c; with the mutex -------------------------------------------------------------- */

/* The first failure is the group's: others are told of it, and offered values withdrawn. */
void collective_fail(struct trp_collective *c, trp_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* This rank's device has failed with that, and the last error: it cannot go on, and for the others
 * it is gone. What they would try again with it is none that this rank should. */
void collective_fail_alone(struct trp_collective *c, trp_status status);

/* Lets rank `judge` say it to all, the same one for all ranks that may know of a failure; and says
 * it by itself where nothing comes of that. To be called again until the group has failed. */
void collective_give_up(struct trp_collective *c, uint32_t judge, trp_status status,
                        const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Takes in what other ranks told, and what trp_collective_abort() left. */
void collective_hear(struct trp_collective *c);

/* Of the first operation, which waits: tells others, gives up ranks that are silent, and the group
 * when its time is over. */
void collective_worry(struct trp_collective *c);

/* When that has to be called again, at the latest. */
int64_t collective_worry_ns(const struct trp_collective *c);

/* A peer called `other` where this rank called `mine`. */
void collective_differs(struct trp_collective *c, const struct group_call *mine, uint32_t peer,
                        const struct group_call *other);

/* The lane of a peer failed. */
void collective_lane_failed(struct trp_collective *c, uint32_t peer);

#endif
