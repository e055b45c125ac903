/* A stream that samples, over one of two transports.
 *
 *   sample_stream.c  lanes, the order of things; Reverb's SampleStream
 *   sample_draws.c   draws, and their pages from the disk
 *   sample_shared.c  SampleShared: pages of data.mdb are named, not sent
 *
 * A transport turns drawn samples into messages, says when no more may go, and reads requests. */
#ifndef TRP_REPLAY_SERVICE_SAMPLE_STREAM_H
#define TRP_REPLAY_SERVICE_SAMPLE_STREAM_H

#include "core/clock.h"
#include "replay/disk/disk.h"
#include "service.h"

/* A sample that has not left completely. */
struct drawn {
    struct wire_item info; /* its trajectory is in draws.trajectories */
    struct wire_draw draw;
    uint32_t chunk_first, chunk_count; /* in draws.chunks, a reference each */
    uint64_t handed;                   /* delivery_end() after this draw */
};

/* The samples that a stream drew in one turn and has not sent completely. */
struct draws {
    struct draws *next;
    struct sample_stream *stream; /* NULL: it is gone, while pages were on their way */
    struct drawn *drawn;
    struct chunk **chunks;
    struct buffer trajectories;
    uint32_t drawn_count, drawn_capacity, chunk_count, chunk_capacity;
    uint32_t drawn_next, chunk_next; /* the first that has not left */
    struct fetch fetch;              /* of the pages that are on the disk only */
    bool fetching;                   /* its pages are on their way */
    bool unknown;                    /* where some chunks are: the disk knows */
    uint32_t probes;                 /* that did not tell */
    bool cold;                       /* some of it was on the disk */
};

struct sample_transport {
    /* Appends the trajectory as the transport's messages have it. */
    void (*put_trajectory)(const struct item *item, struct buffer *out);
    bool (*full)(const struct sample_stream *stream);
    /* One message of samples of the first draws, from drawn_next on; keeps drawn_next and
     * chunk_next. */
    trp_status (*send)(struct sample_stream *stream);
    /* Everything that was asked for was sent; may be NULL. */
    void (*satisfied)(struct sample_stream *stream);
    /* The limiter held it back for the time that the client gave. */
    void (*expired)(struct sample_stream *stream);
    int64_t grace_ms; /* the least time between a batch and an expiry */
};

struct sample_stream {
    const struct sample_transport *transport;
    struct service *service;
    struct lane *lane; /* of the request being served; NULL: none */
    struct waiting_sampler request;
    int64_t timeout_ms; /* negative: none */
    struct deadline deadline;
    uint64_t queued_in; /* the group in which it began to wait */
    bool waiting;       /* in the lane */
    bool half_closed, finished;

    struct draws *first, *last; /* in the order in which they leave */
    struct draws *spare;        /* used up, for the next */
    uint64_t fetching_bytes;    /* of those that are fetching */

    struct delivery delivery;
    uint64_t left; /* items of the delivery that were in a message */
};

void sample_stream_init(struct sample_stream *stream, const struct sample_transport *transport,
                        struct service *service, trp_server_call *call);

/* Its client, or all clients together, have left so much unread that no message may follow. */
bool sample_stream_full(const struct sample_stream *stream);

/* Begins to serve `count` samples from `lane`; nothing is being served. */
void sample_stream_ask(struct sample_stream *stream, struct lane *lane, int64_t count,
                       int64_t timeout_ms);

/* Sends what may be sent, and lets the stream wait for the transport, its lane or its client. */
void sample_stream_continue(struct sample_stream *stream);

/* The transport took a message: goes on, and acks items that left where too many are unacked. */
void sample_stream_drained(struct sample_stream *stream);

/* Its turn: a batch behind those that it has. */
void sample_stream_draw(struct sample_stream *stream);

/* The first batch has left. */
void sample_stream_drop_first(struct sample_stream *stream);

/* All batches are dropped, also the used ones. */
void sample_stream_drop_draws(struct sample_stream *stream);

void sample_stream_finish(struct sample_stream *stream, trp_status status, const char *text);

/* Of calls whose state is the stream, or begins with it. */
void sample_half_closed(void *service, trp_server_call *call);
void sample_closed(void *service, trp_server_call *call); /* frees the state */

#endif
