/* The calls of something large that goes, or comes, in parts: a few of them are under way at a
 * time, and are taken in the order in which they were begun. So one part is copied, in a cache,
 * while another is on the wire and a third is copied at the other end. A ring is one thread's. */
#ifndef TRP_RPC_CALL_RING_H
#define TRP_RPC_CALL_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/rpc.h>
#include "limits.h"

struct ring_call {
    trp_future *future;
    trp_reply_room room;
    int64_t asked_ns;
};

/* Zeroed to begin with. It stays where it is while calls are under way, and goes when none is: they
 * are taken, or dropped. */
struct call_ring {
    struct ring_call calls[RPC_RING_CALLS];
    uint32_t first, count; /* of those under way: the oldest */
};

static inline bool call_ring_has_room(const struct call_ring *ring)
{
    return ring->count < RPC_RING_CALLS;
}

/* Begins a call, where call_ring_has_room(), which the caller sees to. As trp_call_async(), but
 * that the description of the reply's room (NULL: none) is copied. The bytes in it are the
 * caller's, apart from those of other calls, and stay until the call was taken or dropped: they are
 * written by call_ring_take(), on its thread, and by nobody else. */
void call_ring_ask(struct call_ring *ring, ProtobufCService *service, const char *method,
                   const ProtobufCMessage *request, const trp_call_options *options);

/* Waits for the oldest call, of which there is one. As trp_future_finish(): whatever becomes of it,
 * it is over, and its place free for another. *taken (may be NULL) is what was known of it, with
 * its room and how much was given there; it has no future any more. */
TRP_MUST_USE trp_status call_ring_take(struct call_ring *ring, trp_stop *cancel,
                                       struct ring_call *taken, ProtobufCMessage **reply);

/* Cancels those under way, which nobody wants any more, and frees what has come for them, as
 * trp_future_destroy() does: on return the peer may still be at work on a request, but nothing of
 * the caller's is read or written any more. The ring may be used again. Without calls: nothing. */
void call_ring_drop(struct call_ring *ring);

#endif
