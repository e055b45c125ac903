/* One run of a protobuf-c handler on this thread. */
#ifndef TRP_RPC_CALL_H
#define TRP_RPC_CALL_H

#include <stdatomic.h>
#include <stdbool.h>

#include <troupe/rpc.h>
#include "core/clock.h"
#include "wire.h"

struct rpc_invocation {
    ProtobufCService *service;
    unsigned index;
    struct deadline deadline;
    trp_stop *cancel;         /* NULL: none */
    const _Atomic bool *gone; /* the caller cancelled or went away; NULL: cannot be known */
    /* Takes its part of the reply, which is valid only meanwhile, but for what the handler lent:
     * that may be taken over, too. */
    trp_status (*take)(struct rpc_invocation *invocation, const ProtobufCMessage *reply);
    struct rpc_lent lent; /* zeroed */

    bool answered; /* call.c's from here on */
    trp_status status;
    struct rpc_invocation *outer;
};

/* Runs the handler. Any failure has its message in trp_last_error(). */
TRP_MUST_USE trp_status rpc_invoke(struct rpc_invocation *invocation,
                                   const ProtobufCMessage *request);

/* The index of `method`, or UNIMPLEMENTED. */
TRP_MUST_USE trp_status rpc_method_index(const ProtobufCService *service, const char *method,
                                         unsigned *index);

/* INVALID_ARGUMENT: not the method's input type. */
TRP_MUST_USE trp_status rpc_check_request(const ProtobufCMethodDescriptor *method,
                                          const ProtobufCMessage *request);

/* 0: 30 s; negative: never. */
struct deadline rpc_call_deadline(int64_t timeout_ms);

/* The `invoke` of proxies, adapters and relays, which a generated stub calls: trp_call() with its
 * defaults. trp_call() itself and trp_call_async() look at `invoke` first and never come here. */
void rpc_call_from_stub(ProtobufCService *service, unsigned index, const ProtobufCMessage *input,
                        ProtobufCClosure closure, void *data);

/* True for services made by rpc_proxy_create(). */
bool rpc_is_proxy(const ProtobufCService *service);

#endif
