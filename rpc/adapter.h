/* An object in this process whose code was generated elsewhere than the caller's: the same .proto
 * gives two programs two descriptors, and protobuf-c's code asserts that it meets its own. */
#ifndef TRP_RPC_ADAPTER_H
#define TRP_RPC_ADAPTER_H

#include <troupe/rpc.h>

struct rpc_adapter {
    ProtobufCService base;    /* with the caller's descriptor */
    ProtobufCService *target; /* borrowed */
    struct rpc_adapter *next; /* of its channel */
};

/* INVALID_ARGUMENT names the first method or field in which the caller's `descriptor` and the
 * target's differ. */
TRP_MUST_USE trp_status rpc_adapter_create(struct rpc_adapter **out, ProtobufCService *target,
                                           const ProtobufCServiceDescriptor *descriptor);
void rpc_adapter_destroy(struct rpc_adapter *adapter);

/* The adapter that `service` is; NULL: it is none. */
struct rpc_adapter *rpc_adapter_of(ProtobufCService *service);

/* `message` in the words of another descriptor of the same message: the caller frees it. */
TRP_MUST_USE trp_status rpc_adapt(const ProtobufCMessage *message,
                                  const ProtobufCMessageDescriptor *descriptor,
                                  ProtobufCMessage **out);

/* The descriptors of a method's messages, of the target. `index` is the adapter's. */
const ProtobufCMethodDescriptor *rpc_adapter_method(const struct rpc_adapter *adapter,
                                                    unsigned index);

#endif
