/* A client's stream that comes back: opened when first used, again after its server went away, with
 * pauses that double. One thread, except link_stop(). */
#ifndef TRP_REPLAY_CLIENT_LINK_H
#define TRP_REPLAY_CLIENT_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include <troupe/rpc.h>
#include <troupe/status.h>
#include <troupe/stop.h>
#include "core/clock.h"

struct link {
    trp_channel *channel;
    const char *path;
    bool in_parts;      /* messages may come in parts */
    trp_stream *stream; /* NULL: none is open */
    trp_stop *stop;
    int64_t pause_ms;         /* before the next attempt */
    struct deadline retry_at; /* no attempt before */
    bool answered;            /* a message came on this stream */
    char *lost;               /* why the last stream ended; NULL: none did */
};

void link_init(struct link *link, trp_channel *channel, const char *path);
void link_cleanup(struct link *link);

/* Opens the stream unless it is open: waits for the time of the next attempt, then makes one.
 * UNAVAILABLE: it failed, call again; DEADLINE_EXCEEDED: `deadline` is before the next attempt;
 * CANCELLED: after link_stop(). */
trp_status link_open(struct link *link, struct deadline deadline);

/* True when link_open() would try at once (or has nothing to do). */
bool link_is_due(const struct link *link);

/* trp_stream_send() and trp_stream_receive() on the open stream, until `deadline`.
 * DEADLINE_EXCEEDED means that it passed; a stream that its server ended with that code gives it
 * with `*ended`, which any other failure sets too. */
trp_status link_send(struct link *link, trp_message *message, struct deadline deadline,
                     bool *ended);
trp_status link_receive(struct link *link, trp_message **message, struct deadline deadline,
                        bool *ended);

/* True for statuses of a server that went away or restarts: the stream may be reopened. */
bool link_is_transient(trp_status status);

/* Gives up the stream, which ended with trp_last_error(); the next attempt waits. */
void link_lose(struct link *link);

/* Gives up the stream; the next attempt is at once. */
void link_close(struct link *link);

/* The peer answered: the next loss starts from the shortest pause. */
void link_works(struct link *link);

/* Ends pauses with CANCELLED, from any thread. */
void link_stop(struct link *link);

#endif
