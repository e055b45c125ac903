/* grpc.health.v1 on every server. */
#ifndef TRP_RPC_HEALTH_H
#define TRP_RPC_HEALTH_H

#include <troupe/rpc.h>

struct rpc_health;

struct rpc_health *rpc_health_create(void);
void rpc_health_destroy(struct rpc_health *health);

/* Adds Check and Watch to the server. */
TRP_MUST_USE trp_status rpc_health_attach(struct rpc_health *health, trp_server *server);

/* A service that is served from now on: by its name, or by the path of one of its methods. */
void rpc_health_add(struct rpc_health *health, const char *service);
void rpc_health_add_path(struct rpc_health *health, const char *path);

/* Nothing is served any more: watchers are told, and their calls end. Server's lock held. */
void rpc_health_stop(struct rpc_health *health);

#endif
