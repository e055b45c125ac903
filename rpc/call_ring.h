/* The calls of something large that goes, or comes, in parts: a few of them are under way at a
 * time, and are taken in the order in which they were begun. So one part is copied, in a cache,
 * while another is on the wire and a third is copied at the other end. A ring is one thread's. */
#ifndef TRP_RPC_CALL_RING_H
#define TRP_RPC_CALL_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/rpc.h>

enum { CALL_RING = 3 };

struct ring_call {
    trp_future *future;
    trp_reply_room room;
    int64_t asked_ns;
};

/* Zeroed to begin with. It stays where it is while calls are under way. */
struct call_ring {
    struct ring_call calls[CALL_RING];
    uint32_t first, count; /* of those under way: the oldest */
};

static inline bool call_ring_has_room(const struct call_ring *ring)
{
    return ring->count < CALL_RING;
}

/* Begins a call, where there is room. As trp_call_async(), but that the reply's room (NULL: none)
 * is copied. */
void call_ring_ask(struct call_ring *ring, ProtobufCService *service, const char *method,
                   const ProtobufCMessage *request, const trp_call_options *options);

/* Waits for the oldest call, of which there is one. As trp_future_finish(); *taken (may be NULL) is
 * what was known of it, with its room and how much was given there. */
TRP_MUST_USE trp_status call_ring_take(struct call_ring *ring, trp_stop *cancel,
                                       struct ring_call *taken, ProtobufCMessage **reply);

/* Ends those under way, which nobody wants any more. */
void call_ring_drop(struct call_ring *ring);

#endif
