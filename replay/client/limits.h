/* Bounds of replay/client/ that are no option, with their arithmetic. */
#ifndef TRP_REPLAY_CLIENT_LIMITS_H
#define TRP_REPLAY_CLIENT_LIMITS_H

enum {
    /* limiter_ask.c: what the wait for an explanation may add to a wait that timed out. */
    LIMITER_QUESTION_MS = 500,
    /* unary.c: a call whose caller gave no bound. */
    UNARY_TIMEOUT_MS = 30000,
    /* writer/writer.c, sampler/sampler.c: pauses between attempts to reach a server, doubling. */
    RECONNECT_PAUSE_MS_MIN = 1,
    RECONNECT_PAUSE_MS_MAX = 1000,
};

#endif
