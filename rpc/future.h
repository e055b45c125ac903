/* Calls that run elsewhere: at a peer, or on a thread of this process. */
#ifndef TRP_RPC_FUTURE_H
#define TRP_RPC_FUTURE_H

#include <troupe/rpc.h>
#include "core/clock.h"

/* trp_call_async() with the method found and the request's type checked. */
trp_future *rpc_future_start(ProtobufCService *service, unsigned index,
                             const ProtobufCMessage *request, const trp_call_options *options);

/* The functions of a kind of future; each kind's struct starts with trp_future. */
struct rpc_future_impl {
    /* As trp_future_wait(), with a deadline. */
    trp_status (*wait)(trp_future *future, struct deadline deadline, ProtobufCMessage **reply);
    void (*cancel)(trp_future *future);
    void (*destroy)(trp_future *future);
};

struct trp_future {
    const struct rpc_future_impl *impl;
    bool given; /* the status was; then `status` and `text` are it */
    trp_status status;
    char *text;
    const ProtobufCMessageDescriptor *output; /* the reply is adapted to it; NULL: it is not */
};

/* A future of a call that is over, with this thread's last error; takes `reply`. */
trp_future *rpc_future_done(trp_status status, ProtobufCMessage *reply);

/* proxy.c: a call of a remote method. */
trp_future *rpc_proxy_start(ProtobufCService *service, unsigned index,
                            const ProtobufCMessage *request, const trp_call_options *options);

/* call.c: runs the handler on this thread. */
trp_status rpc_call_here(ProtobufCService *service, unsigned index, const ProtobufCMessage *request,
                         ProtobufCMessage **reply, const trp_call_options *options);

#endif
