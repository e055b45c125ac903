/* Calls of protobuf-c methods that came over gRPC. */
#ifndef TRP_RPC_POOL_CALL_H
#define TRP_RPC_POOL_CALL_H

#include <stdbool.h>

#include <grpc/grpc.h>
#include <troupe/rpc.h>

struct rpc_method;

/* A new call with its request; takes both. On the reactor, with the server's lock. */
void rpc_pool_call_open(trp_server *server, const struct rpc_method *method, grpc_call *call,
                        gpr_timespec deadline, grpc_byte_buffer *payload);

/* Asks for the close notice of calls that have run for some time, or of all. Returns when to look
 * again, INT64_MAX: no need. With the server's lock. */
int64_t rpc_pool_calls_watch(trp_server *server, bool all);

/* After a reply found no room: ends calls whose own has been on its way for unread_timeout_ms. On
 * the reactor, with the server's lock. */
void rpc_pool_calls_end_unread(trp_server *server);

#endif
