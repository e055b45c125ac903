/* Bounds of learner/modes/ that are no option, with their arithmetic. */
#ifndef TRP_LEARNER_MODES_LIMITS_H
#define TRP_LEARNER_MODES_LIMITS_H

enum {
    /* learners.c: how long the next generation is waited for before the stop is looked at. */
    LEARNERS_LOOK_MS = 200,
    /* local_sgd.c: an allreduce of 1.7 M numbers is a tenth of 16 steps of a CNN. */
    LOCAL_STEPS = 16,
    /* hogwild_numbers.c: numbers of a block: with the state of an optimizer 4 to 6 copies of it, 16
     * to 24 KB, are in a first-level cache at once, and what a call of a kernel costs is little to
     * it. */
    HOGWILD_BLOCK = 1024,
    /* others.c: as many as a group has; a line each. How often they look at each other. */
    HOGWILD_LEARNERS_MAX = 256,
    HOGWILD_LOOK_MS = 50,
    HOGWILD_SILENCE_MS = 30000, /* where nobody says how long one is waited for: as collectives */
    /* hogwild.h: what processors exchange; counts of different learners are that far apart. */
    HOGWILD_LINE_BYTES = 64,
    /* dogwild_stream.h: numbers of a message, which with its head is in a frame of 1500 bytes. */
    DOGWILD_NUMBERS = 256,
    /* dogwild_stream.c: answers that are awaited: what a socket's buffer has room for, 208 KB of
     * messages with what the system has around them. A pass gives up those of 20 before it. */
    DOGWILD_WINDOW = 64,
    DOGWILD_PATIENCE = 20,
    /* streams.c: between two passes, as steps of small networks take a millisecond; how many
     * messages are taken before it is looked at the time. */
    DOGWILD_PASS_MS = 2,
    DOGWILD_BURST = 256,
    /* gaia.c: as the options' table has them: v0 with which nothing matters, and clocks of which
     * each keeps all that moved. */
    GAIA_SIGNIFICANCE_MAX = 1000000000,
    GAIA_SLACK_MAX = 64,
    /* server_link.c: between two tries to reach a server, the first; how long it is tried where the
     * group does not say. */
    SERVER_RETRY_MS = 10,
    /* server_link.c: "not yet" in a row without such a pause: one comes after LEARNERS_LOOK_MS, and
     * a new worker hears it for what it did not say. */
    SERVER_TURNS_AT_ONCE = 8,
    SERVER_TIMEOUT_MS = 30000,
    SERVER_LAST_TRY_MS = 1000, /* server_link.c: when the time is over */
    SERVER_WORDS_BYTES = 512,  /* server_link.c: how a server ended; what it said last is longer */
    /* server.c: who waits for batches says so twice as often; others take it for silent later. */
    SERVER_IDLE_MS = 5000,
    /* server_link.c: a copy of values that are written meanwhile is made again; 7 MB take less than
     * a step with them. */
    SERVER_COPY_TRIES = 8,
    /* server_link.c: a server that has begun again is told who asks and for what, each once. */
    SERVER_STRANGE_MAX = 8,
    /* server_link.c: of a gradient that is sent, or of values, in one call: a cache has room for
     * it. */
    SERVER_PART_BYTES = 1 << 20,
    /* mode.c: more steps than who leads next has not heard of, as LEARNER_VERSION_GAP has; more
     * versions than are published before learners meet. */
    MODE_STEPS_BITS = 20,
    MODE_FIRST_VERSION = 8,
};

#endif
