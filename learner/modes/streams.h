/* A stream (dogwild_stream.h) at work: a thread takes messages from a socket, and sends what came
 * of the learner's steps to whom it follows. */
#ifndef TRP_LEARNER_MODES_STREAMS_H
#define TRP_LEARNER_MODES_STREAMS_H

#include "core/thread.h"
#include "datagrams.h"
#include "dogwild_stream.h"

struct streams {
    struct datagrams socket;
    struct thread thread;
    _Atomic bool ends;
    struct mutex mutex; /* all that follows, and the numbers that the stream moves */
    struct cond heard;  /* a message */
    struct stream stream;
    struct datagram_peer *peers; /* by rank */
};

/* Zeroed but for the stream, which is created. Fails as datagrams_open(). */
TRP_MUST_USE trp_status streams_open(struct streams *streams, const char *listen, bool insecure);
TRP_MUST_USE trp_status streams_start(struct streams *streams);

/* Stops, too. */
void streams_close(struct streams *streams);

/* The mutex is held: a generation begins, whose ranks are at `addresses`. INVALID_ARGUMENT: one is
 * none. */
TRP_MUST_USE trp_status streams_enter_locked(struct streams *streams,
                                             const struct stream_place *place,
                                             const char *const *addresses);

/* The rank that it follows; its own: the others follow this one. */
uint32_t streams_followed(struct streams *streams);

#endif
