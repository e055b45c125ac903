/* grpc.health.v1, so that grpcurl, Kubernetes and load balancers can ask. Check and Watch are raw
 * methods: Watch streams, which protobuf-c's services cannot. */
#include "health.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "health.pb-c.h"
#include "wire.h"

/* A call of Watch; linked while it is open. */
struct watcher {
    struct watcher *next, *previous;
    trp_server_call *call;
};

struct rpc_health {
    char **names; /* "" is the server itself */
    size_t count;
    bool stopped;
    struct watcher *watchers;
};

typedef Grpc__Health__V1__HealthCheckRequest health_request;
typedef Grpc__Health__V1__HealthCheckResponse health_response;

struct rpc_health *rpc_health_create(void)
{
    struct rpc_health *health = xcalloc(1, sizeof *health);
    rpc_health_add(health, "");
    return health;
}

void rpc_health_destroy(struct rpc_health *health)
{
    if (!health)
        return;
    for (size_t i = 0; i < health->count; i++)
        free(health->names[i]);
    free(health->names);
    free(health);
}

static bool is_known(const struct rpc_health *health, const char *name)
{
    for (size_t i = 0; i < health->count; i++)
        if (strcmp(health->names[i], name) == 0)
            return true;
    return false;
}

void rpc_health_add(struct rpc_health *health, const char *service)
{
    if (is_known(health, service))
        return;
    health->names = xrealloc(health->names, (health->count + 1) * sizeof *health->names);
    health->names[health->count++] = xstrdup(service);
}

void rpc_health_add_path(struct rpc_health *health, const char *path)
{
    const char *end = strrchr(path, '/');
    char *service = xasprintf("%.*s", end > path ? (int)(end - path - 1) : 0, path + 1);
    rpc_health_add(health, service);
    free(service);
}

static void send_state(trp_server_call *call,
                       Grpc__Health__V1__HealthCheckResponse__ServingStatus s)
{
    health_response response = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    response.status = s;
    trp_message *message;
    if (rpc_wire_pack(&response.base, &message) == TRP_OK)
        trp_server_call_send(call, message);
}

/* The service that the message asks about; the caller frees. NULL: the call is finished. */
static char *asked_service(trp_server_call *call, trp_message *message)
{
    ProtobufCMessage *request;
    trp_bytes bytes = {trp_message_data(message), trp_message_size(message)};
    struct rpc_allowance allowance = {.most = 128 * bytes.size + 1024};
    trp_status status = rpc_wire_unpack(&grpc__health__v1__health_check_request__descriptor, bytes,
                                        &allowance, &request);
    trp_message_destroy(message);
    if (status != TRP_OK) {
        trp_server_call_finish(call, status, trp_last_error());
        return NULL;
    }
    char *service = xstrdup(((health_request *)request)->service);
    protobuf_c_message_free_unpacked(request, NULL);
    return service;
}

static void opened(void *service, trp_server_call *call)
{
    (void)service;
    trp_server_call_read(call);
}

static void check_received(void *service, trp_server_call *call, trp_message *message)
{
    struct rpc_health *health = service;
    char *name = asked_service(call, message);
    if (!name)
        return;
    if (is_known(health, name)) {
        send_state(call, GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING);
        trp_server_call_finish(call, TRP_OK, NULL);
    } else {
        char *text = xasprintf("no service %s", name);
        trp_server_call_finish(call, TRP_NOT_FOUND, text);
        free(text);
    }
    free(name);
}

static void watch_received(void *service, trp_server_call *call, trp_message *message)
{
    struct rpc_health *health = service;
    char *name = asked_service(call, message);
    if (!name)
        return;
    send_state(call,
               is_known(health, name)
                   ? GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
                   : GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN);
    free(name);
    struct watcher *watcher = xcalloc(1, sizeof *watcher);
    watcher->call = call;
    watcher->next = health->watchers;
    if (watcher->next)
        watcher->next->previous = watcher;
    health->watchers = watcher;
    trp_server_call_set_state(call, watcher);
}

static void half_closed(void *service, trp_server_call *call)
{
    (void)service;
    if (!trp_server_call_state(call))
        trp_server_call_finish(call, TRP_INVALID_ARGUMENT, "no request");
}

static void closed(void *service, trp_server_call *call)
{
    struct rpc_health *health = service;
    struct watcher *watcher = trp_server_call_state(call);
    if (!watcher)
        return;
    if (watcher->previous)
        watcher->previous->next = watcher->next;
    else
        health->watchers = watcher->next;
    if (watcher->next)
        watcher->next->previous = watcher->previous;
    free(watcher);
}

trp_status rpc_health_attach(struct rpc_health *health, trp_server *server)
{
    const trp_raw_method methods[] = {{.path = "/grpc.health.v1.Health/Check",
                                       .opened = opened,
                                       .received = check_received,
                                       .half_closed = half_closed,
                                       .closed = closed},
                                      {.path = "/grpc.health.v1.Health/Watch",
                                       .opened = opened,
                                       .received = watch_received,
                                       .half_closed = half_closed,
                                       .closed = closed}};
    return trp_server_add_raw(server, methods, 2, health, NULL);
}

void rpc_health_stop(struct rpc_health *health)
{
    if (health->stopped)
        return;
    health->stopped = true;
    for (struct watcher *watcher = health->watchers; watcher; watcher = watcher->next) {
        send_state(watcher->call,
                   GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING);
        trp_server_call_finish(watcher->call, TRP_UNAVAILABLE, "the server stops");
    }
}
