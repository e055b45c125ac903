/* protobuf-c methods of a server, run on threads so that none of them holds up the reactor. */
#ifndef TRP_RPC_POOL_H
#define TRP_RPC_POOL_H

#include <grpc/grpc.h>
#include <troupe/rpc.h>

struct rpc_method;
struct rpc_pool;

/* Something to run on a pool thread; embedded in what it is about. */
struct rpc_job {
    void (*run)(struct rpc_job *job);
};

struct rpc_pool *rpc_pool_create(trp_server *server);
void rpc_pool_destroy(struct rpc_pool *pool);

/* Starts the threads unless they run. Any thread. */
TRP_MUST_USE trp_status rpc_pool_start(struct rpc_pool *pool);

/* Runs what is queued and joins. Idempotent. */
void rpc_pool_stop(struct rpc_pool *pool);

/* Queues the job. RESOURCE_EXHAUSTED: max_pending jobs wait; UNAVAILABLE: the pool has stopped. */
TRP_MUST_USE trp_status rpc_pool_submit(struct rpc_pool *pool, struct rpc_job *job);

/* A new remote call with its request; takes both. On the reactor, with the server's lock. */
void rpc_pool_open(trp_server *server, const struct rpc_method *method, grpc_call *call,
                   gpr_timespec deadline, grpc_byte_buffer *payload);

#endif
