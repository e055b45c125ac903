/* How calls see that a service is a relay, and where it leads. */
#ifndef TRP_RPC_RELAY_H
#define TRP_RPC_RELAY_H

#include <troupe/rpc.h>

/* The relay that `service` belongs to; NULL: none. */
trp_relay *rpc_relay_of(ProtobufCService *service);

/* trp_call() and trp_call_async() of the target. An object of this process is called at once in
 * both forms, as nobody else would keep it there until its handler has run. */
TRP_MUST_USE trp_status rpc_relay_call(trp_relay *relay, const char *method,
                                       const ProtobufCMessage *request, ProtobufCMessage **reply,
                                       const trp_call_options *options);
trp_future *rpc_relay_start(trp_relay *relay, const char *method, const ProtobufCMessage *request,
                            const trp_call_options *options);

#endif
