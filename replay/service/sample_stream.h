/* A stream that samples: what its two transports share.
 *
 *   sample_stream.c  lanes, the order of things; Reverb's SampleStream
 *   sample_draws.c   draws, and their pages from the disk
 *   sample_shared.c  SampleShared: pages of data.mdb are named, not sent
 *
 * A transport turns drawn samples into messages, says when no more may go, and reads what clients
 * ask for. */
#ifndef TRP_REPLAY_SERVICE_SAMPLE_STREAM_H
#define TRP_REPLAY_SERVICE_SAMPLE_STREAM_H

#include "core/clock.h"
#include "replay/disk/fetcher.h"
#include "service.h"

/* A sample that has not left completely. */
struct drawn {
    struct wire_item info;
    struct wire_draw draw;
    size_t trajectory_at; /* in draws.trajectories, which may be more than 4 GiB */
    uint32_t trajectory_size;
    uint32_t chunk_first, chunk_count; /* in draws.chunks, a reference each */
    uint64_t handed;                   /* delivery_end() after this draw */
};

/* What a stream drew in one turn and has not sent completely. */
struct draws {
    struct draws *next;
    struct sample_stream *stream; /* NULL: it is gone, while pages were on their way */
    struct drawn *drawn;
    struct chunk **chunks;
    struct buffer trajectories;
    uint32_t drawn_count, drawn_capacity, chunk_count, chunk_capacity;
    uint32_t drawn_next, chunk_next; /* the first that has not left */
    struct fetch fetch;              /* of what is on the disk only */
    bool fetching;                   /* its pages are on their way */
    bool look_again;                 /* then it can be told what else is */
    uint32_t looks;                  /* that did not tell */
    bool cold;                       /* some of it was on the disk */
};

struct sample_transport {
    /* Appends the trajectory as the transport's messages have it. */
    void (*put_trajectory)(const struct item *item, struct buffer *out);
    bool (*full)(const struct sample_stream *stream);
    /* One message of samples of the first draws, from drawn_next on; keeps drawn_next and
     * chunk_next. */
    trp_status (*send)(struct sample_stream *stream);
    /* Everything that was asked for was sent. */
    void (*satisfied)(struct sample_stream *stream);
    /* The limiter held it back for the time that the client gave. */
    void (*expired)(struct sample_stream *stream);
    int64_t grace_ms; /* the least time between a batch and an expiry */
};

struct sample_stream {
    const struct sample_transport *transport;
    struct service *service;
    trp_server_call *call;
    struct lane *lane;  /* of the request being served; NULL: none */
    int64_t remaining;  /* samples to draw */
    int64_t timeout_ms; /* negative: none */
    struct deadline deadline;
    int64_t since_ns;
    uint64_t queued_in; /* the group in which it began to wait */
    bool waiting;       /* in the lane */
    bool half_closed, finished;
    struct list_link link; /* in the lane, while it waits */

    struct draws *first, *last; /* in the order in which they leave */
    struct draws *spare;        /* used up, for the next */
    uint64_t fetching_bytes;    /* of those that are fetching */

    struct delivery delivery;
    uint64_t left; /* items of the delivery that were in a message */
};

/* Words with which clients tell a limiter's timeout: Reverb has them so, "insert" included. */
extern const char sample_timeout_text[];

void sample_stream_init(struct sample_stream *stream, const struct sample_transport *transport,
                        struct service *service, trp_server_call *call);

/* Acks what was handed out and frees what the stream has, not the stream. */
void sample_stream_cleanup(struct sample_stream *stream);

/* Its client, or all clients together, have left so much unread that no message may follow. */
bool sample_stream_full(const struct sample_stream *stream);

/* Begins to serve `count` samples from `lane`; nothing is being served. */
void sample_stream_ask(struct sample_stream *stream, struct lane *lane, int64_t count,
                       int64_t timeout_ms);

/* Sends what may be sent and decides what the stream waits for: the transport, its lane, or the
 * client. */
void sample_stream_continue(struct sample_stream *stream);

/* The transport took a message: goes on, and acks what left where too much is not. */
void sample_stream_drained(struct sample_stream *stream);

/* Its turn: a batch behind those that it has. */
void sample_stream_draw(struct sample_stream *stream);

/* The first batch has left. */
void sample_stream_drop_first(struct sample_stream *stream);

/* Everything that has not left is dropped, and what is kept for the next batches. */
void sample_stream_drop_draws(struct sample_stream *stream);

void sample_stream_finish(struct sample_stream *stream, trp_status status, const char *text);

#endif
