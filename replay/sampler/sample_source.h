/* Where a sampler's rows come from: a stream to one server, which it opens again when it is lost.
 * On the server's host it is SampleShared, otherwise Reverb's SampleStream; whoever fills batches
 * cannot tell. One thread, except link_stop(). */
#ifndef TRP_REPLAY_SAMPLER_SAMPLE_SOURCE_H
#define TRP_REPLAY_SAMPLER_SAMPLE_SOURCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <troupe/sampler.h>
#include "replay/client/link.h"
#include "replay/client/shared_view.h"
#include "unpack.h"

/* The sources of one sampler share this. */
struct sampling {
    int64_t ahead, step;    /* samples asked for beyond a batch, so many at a time */
    int64_t in_flight_max;  /* samples asked for at once */
    int64_t on_stream_max;  /* then a stream makes way for another */
    bool end_on_timeout;    /* the limiter's timeout is the end */
    _Atomic int64_t budget; /* samples that may still be asked for */
};

struct sample_source {
    struct link link;
    struct sampling *sampling;
    struct unpacker *unpacker;
    char *table;
    int64_t limiter_timeout_ms;
    int64_t requested; /* samples asked for on this stream that are in no batch yet */
    int64_t on_stream; /* samples asked for on this stream */
    bool exhausted;    /* the limiter's timeout was the end */
    bool refused;      /* the stream takes no more requests; what is on its way still comes */
    _Atomic bool unreachable; /* nothing came since a stream was lost, or ever */

    bool ordinary;            /* this server's files are not for us */
    bool greeting;            /* its welcome is on its way */
    struct shared_view *view; /* NULL: the stream is an ordinary one */
    uint64_t round;           /* of the last message */
    uint64_t released;        /* messages done with */
    uint64_t reported;        /* of them, as many as the server knows of */
    bool release_soon;        /* the server waits to be told */
    bool damaged;             /* and of the item `damaged_key`; then it ends the stream */
    uint64_t damaged_key;
};

/* `sampling` outlives it. */
void source_init(struct sample_source *source, trp_channel *channel, struct sampling *sampling,
                 const trp_sampler_options *options);
void source_cleanup(struct sample_source *source); /* a zeroed struct is fine */

/* Until `batch` is full, or as full as it will be when the source is exhausted. DEADLINE_EXCEEDED:
 * the deadline or the limiter; UNAVAILABLE: the server; call again, rows that came are kept. */
trp_status source_fill(struct sample_source *source, struct batch *batch, struct deadline deadline);

/* True when nothing will come any more: the budget was delivered, or the limiter ended it. */
bool source_is_exhausted(const struct sample_source *source);

#endif
