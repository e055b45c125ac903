/* Who calls, for those who look at a server: a unix socket has no address at the caller's end, and
 * a port says little. A channel says it with each call, in the user agent, which HTTP/2 sends once
 * and then names by a number. */
#ifndef TRP_RPC_CALLER_H
#define TRP_RPC_CALLER_H

#include <grpc/grpc.h>

/* The user agent of a channel of this process; `name`: NULL is the program's. To be freed. */
char *rpc_caller_agent(const char *name);

/* The caller by a call's first metadata, with a reference; empty if it is not ours. */
grpc_slice rpc_caller_slice(const grpc_metadata_array *metadata);

/* "actor/1 (pid 4711) at ipv4:127.0.0.1:40000", or the address alone. To be freed. */
char *rpc_caller_peer(grpc_slice agent, const char *address);

#endif
