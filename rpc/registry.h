/* Which server of this process a service object belongs to. */
#ifndef TRP_RPC_REGISTRY_H
#define TRP_RPC_REGISTRY_H

#include <stdbool.h>

#include <troupe/rpc.h>

struct rpc_pool;

/* A service in a server: owned by the server, constant while it is registered. */
struct rpc_service {
    struct rpc_service *next; /* of the same server */
    ProtobufCService *service;
    struct rpc_pool *pool;
    bool blocking[]; /* by method */
};

/* RESOURCE_EXHAUSTED: RPC_SERVICES_MAX are there; ALREADY_EXISTS: it is in another server. */
TRP_MUST_USE trp_status rpc_registry_add(const struct rpc_service *service);
void rpc_registry_remove(const struct rpc_service *service);

/* NULL: in no server. Lock-free. */
const struct rpc_service *rpc_registry_find(const ProtobufCService *service);

#endif
