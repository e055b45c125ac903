/* Messages that raw calls have sent and their clients have not taken: bounded for all clients
 * together. A client is a connection, or all callers of this process. */
#ifndef TRP_RPC_UNREAD_H
#define TRP_RPC_UNREAD_H

#include <stdbool.h>
#include <stdint.h>

#include <grpc/grpc_security.h>
#include <troupe/rpc.h>

/* One with calls that asked for room. */
struct rpc_client {
    struct rpc_client *next, *previous;
    grpc_auth_context *connection; /* NULL: callers of this process */
    uint32_t calls;
    uint64_t bytes;                      /* of these calls */
    bool took;                           /* some of its bytes in this round */
    trp_server_call *first_in, *last_in; /* calls that wait for room, in their order */
};

/* All fields belong to whoever holds the server's lock. */
struct rpc_unread {
    uint64_t bytes, limit;
    struct rpc_client *clients;
    uint32_t waiting;      /* calls */
    struct deadline round; /* when those who took nothing since its start may be ended; never:
                              nobody waits */
};

/* After the call's queue has changed. */
void rpc_unread_count(trp_server_call *call);

/* True when one more message fits in; else the call waits for it: RPC_CALL_ROOM follows. */
bool rpc_unread_room(trp_server_call *call);

/* True when not even messages of calls that never asked for room fit in. */
bool rpc_unread_is_full(const struct rpc_unread *unread);

/* Tells those that wait and have room now; ends calls whose time is over. */
void rpc_unread_settle(trp_server *server);

/* The call is freed. */
void rpc_unread_leave(trp_server_call *call);

#endif
