/* The client's end: the parts of a channel that its streams and proxies use. */
#ifndef TRP_RPC_CHANNEL_H
#define TRP_RPC_CHANNEL_H

#include <grpc/grpc.h>
#include <troupe/rpc.h>
#include "core/thread.h"

struct rpc_proxy;

/* Completion queues kept for the next call: making one costs as much as a tenth of a call. */
enum { RPC_IDLE_QUEUES = 16 };

struct trp_channel {
    trp_server *server; /* local; NULL: remote, and the rest is used */
    char *address;
    int64_t connect_timeout_ms;
    bool fail_fast;
    grpc_channel *grpc; /* has locks of its own */
    struct mutex mutex; /* guards the fields behind it */
    struct rpc_proxy *proxies;
    struct rpc_adapter *adapters; /* of a local one */
    grpc_completion_queue *idle[RPC_IDLE_QUEUES];
    size_t idle_count;
};

grpc_completion_queue *rpc_channel_take_queue(trp_channel *channel);

/* Of an empty queue. */
void rpc_channel_give_queue(trp_channel *channel, grpc_completion_queue *queue);

/* Flags of the operation that opens a call: wait for the peer, or not. */
uint32_t rpc_channel_open_flags(const trp_channel *channel);

/* Cancels `call` with UNAVAILABLE unless the channel is connected; when the wait for the peer is
 * over. */
void rpc_channel_give_up(trp_channel *channel, grpc_call *call);

/* Cancels `call` with DEADLINE_EXCEEDED, as its own deadline has passed. Both say why nobody is
 * connected to, if so. */
void rpc_channel_end_late(trp_channel *channel, grpc_call *call);

/* The failure that a finished call reports, as a last error. Statuses that the peer's handler gave
 * keep their message; others get method and address. `cancelled`: this end asked for it. */
trp_status rpc_channel_failure(const trp_channel *channel, const char *path, grpc_status_code code,
                               grpc_slice details, const grpc_metadata_array *trailing,
                               bool cancelled);

/* proxy.c */
struct rpc_proxy {
    ProtobufCService base;
    struct rpc_proxy *next;
    trp_channel *channel;
    void **handles; /* gRPC's, by method */
    char **paths;
};
struct rpc_proxy *rpc_proxy_create(trp_channel *channel,
                                   const ProtobufCServiceDescriptor *descriptor);
void rpc_proxy_destroy(struct rpc_proxy *proxy);

#endif
