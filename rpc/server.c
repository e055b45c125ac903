/* A server is a set of methods and a lock. Whoever brings something for a handler (the reactor, or
 * a caller in this process) holds the lock, lets handlers run, and settles before it lets go:
 * group_end commits what the handlers collected, then everything they sent goes out. So handlers
 * are single-threaded however many threads call, and one commit serves all that was ready.
 *
 * Sends, reads and finishes asked for by handlers are only noted in the call; flushing at the end
 * of the group lets one gRPC batch carry first metadata, message and status together. */
#include "server.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/log.h>
#include "core/alloc.h"
#include "limits.h"
#include "health.h"
#include "pool.h"
#include "registry.h"

static _Thread_local char thread_mark; /* its address tells threads apart */

bool rpc_server_held(trp_server *server)
{
    return atomic_load_explicit(&server->owner, memory_order_relaxed) == &thread_mark;
}

static void own(trp_server *server, const void *owner)
{
    atomic_store_explicit(&server->owner, owner, memory_order_relaxed);
}

void rpc_server_enter(trp_server *server)
{
    assert(!rpc_server_held(server)); /* a handler must not call its own server */
    mutex_lock(&server->gate);
    mutex_lock(&server->lock);
    mutex_unlock(&server->gate);
    own(server, &thread_mark);
}

void rpc_server_release(trp_server *server)
{
    own(server, NULL);
    mutex_unlock(&server->lock);
}

bool rpc_server_wait(trp_server *server, struct cond *cond, struct deadline deadline)
{
    own(server, NULL);
    bool in_time = cond_wait(cond, &server->lock, deadline);
    own(server, &thread_mark);
    return in_time;
}

static void flush_dirty(trp_server *server)
{
    for (trp_server_call *call; (call = server->dirty);) {
        server->dirty = call->next_dirty;
        call->dirty = false;
        call->transport->flush(call);
    }
}

static void call_free(trp_server_call *call)
{
    trp_server *server = call->server;
    if (call->previous)
        call->previous->next = call->next;
    else
        server->calls = call->next;
    if (call->next)
        call->next->previous = call->previous;
    server->call_count--;
    cond_broadcast(&server->changed);
    rpc_messages_clear(&call->out);
    rpc_unread_leave(call);
    free(call->finish_text);
    free(call->peer);
    call->transport->destroy(call);
}

static void give_event(trp_server_call *call)
{
    const trp_raw_method *raw = &call->method->raw;
    void *service = call->method->raw_service;
    if (call->half_closed_due && !call->closed_due && !call->finish_wanted)
        raw->half_closed(service, call);
    call->half_closed_due = false;
    bool drained = call->drained_due && trp_server_call_queued(call) == 0; /* still */
    if ((drained || call->room_due) && !call->closed_due && raw->drained)
        raw->drained(service, call);
    call->drained_due = call->room_due = false;
    if (!call->closed_due)
        return;
    raw->closed(service, call);
    if (call->dirty) { /* touched by a handler in this group: flushing must not see it again */
        trp_server_call **link = &call->server->dirty;
        while (*link != call)
            link = &(*link)->next_dirty;
        *link = call->next_dirty;
    }
    call_free(call);
}

static bool give_events(trp_server *server)
{
    if (!server->first_event)
        return false;
    for (trp_server_call *call; (call = server->first_event);) {
        server->first_event = call->next_event;
        if (!server->first_event)
            server->last_event = NULL;
        call->has_event = false;
        give_event(call);
    }
    return true;
}

void rpc_server_settle(trp_server *server)
{
    int64_t before = server->wake_ns;
    server->group_bytes = 0;
    do {
        do
            give_events(server);
        while (rpc_posts_run(server) && server->phase != RPC_SERVER_RUNNING);
        give_events(server);
        if (server->group_end)
            server->wake_ns = server->group_end(server->group_service);
        flush_dirty(server);
        rpc_unread_settle(server);
    } while (server->first_event);
    server->group++;
    if (server->wake_ns < before && server->phase == RPC_SERVER_NEW)
        rpc_local_wake(server);
}

bool rpc_server_wake_due(const trp_server *server)
{
    return deadline_passed((struct deadline){server->wake_ns}, &clock_monotonic);
}

void rpc_server_leave(trp_server *server)
{
    rpc_server_settle(server);
    server->local_groups = true;
    int64_t wake_ns = server->wake_ns;
    if (wake_ns < server->reactor_wait_ns && rpc_server_wake_due(server))
        wake_ns = deadline_in_ms(&clock_monotonic, RPC_LOCAL_PAUSE_MS).at_ns;
    bool kick = wake_ns < server->reactor_wait_ns || server->posted;
    rpc_server_release(server);
    if (kick)
        rpc_server_kick(server);
}

/* ---- calls ---- */

void rpc_call_open(trp_server_call *call, trp_server *server, const struct rpc_method *method,
                   const struct rpc_transport *transport)
{
    call->transport = transport;
    call->server = server;
    call->method = method;
    call->next = server->calls;
    if (call->next)
        call->next->previous = call;
    server->calls = call;
    server->call_count++;
    rpc_call_touch(call);
    method->raw.opened(method->raw_service, call);
}

void rpc_call_touch(trp_server_call *call)
{
    if (call->dirty)
        return;
    call->dirty = true;
    call->next_dirty = call->server->dirty;
    call->server->dirty = call;
}

void rpc_call_event(trp_server_call *call, enum rpc_call_event event)
{
    if (event == RPC_CALL_DRAINED)
        call->drained_due = true;
    else if (event == RPC_CALL_ROOM)
        call->room_due = true;
    else if (event == RPC_CALL_HALF_CLOSED)
        call->half_closed_due = true;
    else
        call->closed_due = true;
    if (call->has_event)
        return;
    trp_server *server = call->server;
    call->has_event = true;
    call->next_event = NULL;
    if (server->last_event)
        server->last_event->next_event = call;
    else
        server->first_event = call;
    server->last_event = call;
}

/* An answer from the server itself to a message that no handler gets to see. */
static void refuse_message(trp_server_call *call, trp_message *message, const char *format,
                           uint64_t limit)
{
    char *text = xasprintf(format, call->method->path, message->size, (unsigned long long)limit);
    trp_message_destroy(message);
    trp_server_call_finish(call, TRP_RESOURCE_EXHAUSTED, text);
    free(text);
}

void rpc_call_receive(trp_server_call *call, trp_message *message)
{
    trp_server *server = call->server;
    const trp_raw_method *raw = &call->method->raw;
    if (call->finish_wanted || call->closed_due) {
        trp_message_destroy(message);
        return;
    }
    if (!raw->any_size && message->size > server->options.max_message_bytes) {
        refuse_message(call, message, "%s: message of %zu bytes, the server takes %llu",
                       server->options.max_message_bytes);
        return;
    }
    if (!rpc_message_charge(message, &server->budget)) {
        refuse_message(call, message,
                       "%s: message of %zu bytes is beyond the %llu that the server holds at once",
                       server->budget.limit);
        return;
    }
    server->group_bytes += message->size;
    raw->received(call->method->raw_service, call, message);
}

void trp_server_call_set_state(trp_server_call *call, void *state)
{
    call->state = state;
}

void *trp_server_call_state(const trp_server_call *call)
{
    return call->state;
}

const char *trp_server_call_peer(const trp_server_call *call)
{
    trp_server_call *owner = (trp_server_call *)call;
    if (!owner->peer)
        owner->peer = call->transport->peer(owner);
    return call->peer;
}

void trp_server_call_read(trp_server_call *call)
{
    assert(rpc_server_held(call->server));
    call->read_wanted = true;
    call->transport->read(call);
}

void trp_server_call_charge(trp_server_call *call, size_t bytes)
{
    assert(rpc_server_held(call->server));
    call->server->group_bytes += bytes;
}

void trp_server_call_send(trp_server_call *call, trp_message *message)
{
    assert(rpc_server_held(call->server));
    if (call->finish_wanted || call->closed_due) {
        trp_message_destroy(message);
        return;
    }
    uint64_t most = call->server->options.max_message_bytes;
    if (!call->method->raw.any_size && message->size > most) {
        refuse_message(call, message, "%s: answer of %zu bytes, the server sends %llu", most);
        return;
    }
    if (!call->client && rpc_unread_is_full(&call->server->unread)) {
        refuse_message(call, message,
                       "%s: answer of %zu bytes is beyond the %llu that clients may leave unread",
                       call->server->unread.limit);
        return;
    }
    rpc_message_uncharge(message); /* it may be one that was received: it leaves our hands */
    rpc_messages_push(&call->out, message);
    rpc_unread_count(call);
    rpc_call_touch(call);
}

bool trp_server_call_room(trp_server_call *call)
{
    assert(rpc_server_held(call->server));
    return rpc_unread_room(call);
}

size_t trp_server_call_queued(const trp_server_call *call)
{
    return call->out.count + call->sending;
}

size_t trp_server_call_queued_bytes(const trp_server_call *call)
{
    return call->out.bytes;
}

void trp_server_call_finish(trp_server_call *call, trp_status status, const char *text)
{
    assert(rpc_server_held(call->server));
    if (call->finish_wanted)
        return;
    call->finish_wanted = true;
    call->finish_status = status;
    call->finish_text = xstrdup(text ? text : "");
    rpc_call_touch(call);
}

/* ---- methods ---- */

const struct rpc_method *rpc_server_find(trp_server *server, const char *path)
{
    for (const struct rpc_method *method = server->methods; method; method = method->next)
        if (strcmp(method->path, path) == 0)
            return method;
    return NULL;
}

static void add_method(trp_server *server, struct rpc_method method)
{
    struct rpc_method *copy = xcalloc(1, sizeof *copy);
    *copy = method;
    copy->next = server->methods;
    server->methods = copy;
}

static bool named_in(const char *const *names, const char *name)
{
    for (; names && *names; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

static trp_status check_descriptor(const ProtobufCServiceDescriptor *descriptor)
{
    if (!descriptor->name || !descriptor->name[0])
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "a service without a name: its .proto says optimize_for = CODE_SIZE");
    for (unsigned i = 0; i < descriptor->n_methods; i++)
        if (!descriptor->methods[i].name)
            return trp_fail(TRP_INVALID_ARGUMENT, "service %s has methods without names",
                            descriptor->name);
    return TRP_OK;
}

static trp_status check_blocking(const ProtobufCServiceDescriptor *descriptor,
                                 const char *const *blocking)
{
    for (; blocking && *blocking; blocking++)
        if (!protobuf_c_service_descriptor_get_method_by_name(descriptor, *blocking))
            return trp_fail(TRP_INVALID_ARGUMENT, "service %s has no method %s to be blocking",
                            descriptor->name, *blocking);
    return TRP_OK;
}

static void add_methods(trp_server *server, ProtobufCService *service)
{
    const ProtobufCServiceDescriptor *descriptor = service->descriptor;
    for (unsigned i = 0; i < descriptor->n_methods; i++)
        add_method(server, (struct rpc_method){.path = xasprintf("/%s/%s", descriptor->name,
                                                                 descriptor->methods[i].name),
                                               .service = service,
                                               .index = i});
}

trp_status trp_server_add(trp_server *server, ProtobufCService *service,
                          const char *const *blocking)
{
    const ProtobufCServiceDescriptor *descriptor = service->descriptor;
    TRP_TRY(check_descriptor(descriptor));
    TRP_TRY(check_blocking(descriptor, blocking));
    if (server->phase != RPC_SERVER_NEW)
        return trp_fail(TRP_FAILED_PRECONDITION, "service %s comes after the server's start",
                        descriptor->name);
    for (const struct rpc_service *other = server->services; other; other = other->next)
        if (strcmp(other->service->descriptor->name, descriptor->name) == 0)
            return trp_fail(TRP_ALREADY_EXISTS, "the server has a service %s", descriptor->name);
    struct rpc_service *entry =
        xcalloc(1, sizeof *entry + descriptor->n_methods * sizeof entry->blocking[0]);
    entry->service = service;
    entry->pool = server->pool;
    for (unsigned i = 0; i < descriptor->n_methods; i++)
        entry->blocking[i] = named_in(blocking, descriptor->methods[i].name);
    trp_status status = rpc_registry_add(entry);
    if (status != TRP_OK) {
        free(entry);
        return status;
    }
    entry->next = server->services;
    server->services = entry;
    add_methods(server, service);
    rpc_health_add(server->health, descriptor->name);
    return TRP_OK;
}

trp_status trp_server_add_raw(trp_server *server, const trp_raw_method *methods, size_t count,
                              void *service, trp_group_end group_end)
{
    if (server->phase != RPC_SERVER_NEW)
        return trp_fail(TRP_FAILED_PRECONDITION, "raw methods come after the server's start");
    if (group_end && server->group_end)
        return trp_fail(TRP_ALREADY_EXISTS, "the server has a group_end");
    for (size_t i = 0; i < count; i++)
        if (rpc_server_find(server, methods[i].path))
            return trp_fail(TRP_ALREADY_EXISTS, "the server has a method %s", methods[i].path);
    for (size_t i = 0; i < count; i++) {
        struct rpc_method method = {
            .path = xstrdup(methods[i].path), .raw = methods[i], .raw_service = service};
        method.raw.path = method.path;
        add_method(server, method);
        rpc_health_add_path(server->health, method.path);
    }
    if (group_end) {
        server->group_end = group_end;
        server->group_service = service;
    }
    return TRP_OK;
}

/* ---- life ---- */

trp_status trp_server_create(trp_server **out, const trp_server_options *options)
{
    *out = NULL;
    TRP_TRY(rpc_library_acquire());
    trp_server *server = xcalloc(1, sizeof *server);
    if (options)
        server->options = *options;
    trp_server_options *own_options = &server->options;
    own_options->address = xstrdup(own_options->address ? own_options->address : "127.0.0.1:0");
    if (!own_options->threads)
        own_options->threads = 4;
    if (!own_options->max_pending)
        own_options->max_pending = 1024;
    if (!own_options->max_message_bytes)
        own_options->max_message_bytes = 64ULL << 20;
    if (!own_options->in_flight_bytes)
        own_options->in_flight_bytes = 1ULL << 30;
    if (!own_options->unread_timeout_ms)
        own_options->unread_timeout_ms = 10000;
    server->budget.limit = server->replies.limit = own_options->in_flight_bytes;
    if (server->replies.limit / RPC_REPLIES_MIN < own_options->max_message_bytes)
        server->replies.limit = own_options->max_message_bytes * RPC_REPLIES_MIN;
    server->unread = (struct rpc_unread){.limit = server->replies.limit, .round = DEADLINE_NEVER};
    server->wake_ns = INT64_MAX;
    server->reactor_wait_ns = INT64_MIN;
    mutex_init(&server->gate);
    mutex_init(&server->lock);
    mutex_init(&server->post_lock);
    mutex_init(&server->stop_lock);
    cond_init(&server->changed);
    server->pool = rpc_pool_create(server);
    server->health = rpc_health_create();
    trp_status status = rpc_health_attach(server->health, server);
    if (status != TRP_OK) {
        trp_server_destroy(server);
        return status;
    }
    *out = server;
    return TRP_OK;
}

const char *trp_server_address(const trp_server *server)
{
    return server->address ? server->address : "in-process";
}

void trp_server_run(trp_server *server, void (*work)(void *arg), void *arg)
{
    rpc_server_enter(server);
    work(arg);
    rpc_server_leave(server);
}

size_t trp_server_open_calls(const trp_server *server)
{
    return server->call_count;
}

static void destroy_methods(trp_server *server)
{
    while (server->methods) {
        struct rpc_method *method = server->methods;
        server->methods = method->next;
        free(method->path);
        free(method);
    }
    while (server->services) {
        struct rpc_service *service = server->services;
        server->services = service->next;
        rpc_registry_remove(service);
        free(service);
    }
}

void trp_server_destroy(trp_server *server)
{
    if (!server)
        return;
    trp_server_stop(server, 0);
    destroy_methods(server);
    rpc_health_destroy(server->health);
    rpc_pool_destroy(server->pool);
    assert(!server->calls);
    rpc_library_release();
    cond_cleanup(&server->changed);
    mutex_cleanup(&server->stop_lock);
    mutex_cleanup(&server->post_lock);
    mutex_cleanup(&server->lock);
    mutex_cleanup(&server->gate);
    free((char *)server->options.address);
    free(server->address);
    free(server);
}
