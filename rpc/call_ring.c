#include "call_ring.h"

#include <assert.h>

#include "core/clock.h"

void call_ring_ask(struct call_ring *ring, ProtobufCService *service, const char *method,
                   const ProtobufCMessage *request, const trp_call_options *options)
{
    assert(call_ring_has_room(ring));
    struct ring_call *call = &ring->calls[(ring->first + ring->count++) % RPC_RING_CALLS];
    trp_call_options own = *options;
    *call = (struct ring_call){.asked_ns = clock_now_ns(&clock_monotonic)};
    if (own.room) {
        call->room = *own.room;
        own.room = &call->room;
    }
    call->future = trp_call_async(service, method, request, &own);
}

trp_status call_ring_take(struct call_ring *ring, trp_stop *cancel, struct ring_call *taken,
                          ProtobufCMessage **reply)
{
    assert(ring->count > 0);
    struct ring_call *call = &ring->calls[ring->first++ % RPC_RING_CALLS];
    ring->count--;
    trp_status status = trp_future_finish(call->future, cancel, reply);
    call->future = NULL;
    if (taken)
        *taken = *call;
    return status;
}

void call_ring_drop(struct call_ring *ring)
{
    for (; ring->count > 0; ring->count--)
        trp_future_destroy(ring->calls[ring->first++ % RPC_RING_CALLS].future);
}
