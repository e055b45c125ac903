/* Where a sampler's rows come from: a stream to one server, which it opens again when it is lost.
 * On the server's host it is SampleShared, otherwise Reverb's SampleStream; whoever fills batches
 * cannot tell. One thread, except source_stop(). */
#ifndef TRP_REPLAY_SAMPLE_SOURCE_H
#define TRP_REPLAY_SAMPLE_SOURCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "link.h"
#include "shared_view.h"
#include "unpack.h"

struct sample_source {
    struct link link;
    struct unpacker *unpacker;
    char *table;
    int64_t limiter_timeout_ms;
    int64_t requested; /* samples asked for on this stream that are in no batch yet */
    bool refused;      /* the stream takes no more requests; what is on its way still comes */
    _Atomic bool unreachable; /* the last stream was lost, nothing came since */

    bool ordinary;            /* this server's files are not for us */
    bool greeting;            /* its welcome is on its way */
    struct shared_view *view; /* NULL: the stream is an ordinary one */
    uint64_t round;           /* of the last message */
    uint64_t released;        /* messages done with; */
    uint64_t told;            /* of them, those that the server knows of */
    bool reading;             /* the unpacker has a message of SampleShared */
    bool release_soon;        /* the server waits to be told */
};

void source_init(struct sample_source *source, trp_channel *channel, const char *table,
                 int64_t limiter_timeout_ms, const trp_tensor_spec *columns, size_t column_count);
void source_cleanup(struct sample_source *source); /* a zeroed struct is fine */

/* Until `batch` is full, asking for `ahead` samples more than it needs, `step` at a time.
 * DEADLINE_EXCEEDED: the deadline or the limiter; UNAVAILABLE: the server; in both cases call
 * again. Rows that came are kept. */
trp_status source_fill(struct sample_source *source, struct batch *batch, int64_t ahead,
                       int64_t step, struct deadline deadline);

/* Ends waits with CANCELLED, from any thread. */
void source_stop(struct sample_source *source);

#endif
