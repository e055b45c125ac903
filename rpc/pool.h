/* Threads of a server for the handlers of protobuf-c services. */
#ifndef TRP_RPC_POOL_H
#define TRP_RPC_POOL_H

#include <stdatomic.h>

#include <grpc/grpc.h>
#include <troupe/rpc.h>

struct rpc_method;
struct rpc_pool;
struct rpc_post;
struct rpc_worker;

/* Work for a pool thread; embedded in the struct that it is about. */
struct rpc_job {
    struct rpc_job *next;
    void (*run)(struct rpc_job *job, struct rpc_worker *worker); /* may free the job */
    /* How long such jobs took of late; NULL: may be long. 0 is not known. */
    _Atomic uint32_t *average_ns;
};

struct rpc_pool *rpc_pool_create(trp_server *server);
void rpc_pool_destroy(struct rpc_pool *pool);

/* Starts the threads unless they run. Any thread. */
TRP_MUST_USE trp_status rpc_pool_start(struct rpc_pool *pool);

/* Runs the queued work and joins. Idempotent. */
void rpc_pool_stop(struct rpc_pool *pool);

/* Queues the job; rpc_pool_wake() has to follow soon. UNAVAILABLE: max_pending jobs wait;
 * UNAVAILABLE: the pool has stopped. */
TRP_MUST_USE trp_status rpc_pool_submit(struct rpc_pool *pool, struct rpc_job *job);

/* Wakes a worker if jobs wait. `another`: even if one is at quick jobs already, because they take
 * longer than they should. */
void rpc_pool_wake(struct rpc_pool *pool, bool another);

/* Posts `post` to the server, soon, together with others. From a job. */
void rpc_worker_post(struct rpc_worker *worker, struct rpc_post *post);

#endif
