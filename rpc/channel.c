/* A channel is gRPC's channel with our rules: its own connection (the default pools connections of
 * equal channels), no HTTP proxy, quick reconnection, no retries behind the caller's back. A local
 * channel is a pointer to the server. */
#include "channel.h"
#include "adapter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <grpc/grpc_security.h>
#include "core/alloc.h"
#include "core/limits.h"
#include "core/address.h"
#include "core/reach.h"
#include "caller.h"
#include "library.h"
#include "limits.h"
#include "registry.h"
#include "server.h"

enum {
    CONNECT_TIMEOUT_MS = 60000,
    RECONNECT_FIRST_MS = 100,
    RECONNECT_MOST_MS = 1000,
};

static grpc_channel *make_grpc_channel(const char *address, const trp_channel_options *options)
{
    struct rpc_args args = {.count = 0};
    rpc_args_add(&args, GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    rpc_args_add(&args, GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    rpc_args_add(&args, GRPC_ARG_ENABLE_RETRIES, 0);
    rpc_args_add(&args, GRPC_ARG_ENABLE_CHANNELZ, 0);
    rpc_args_add(&args, GRPC_ARG_ENABLE_DEADLINE_CHECKS, 0); /* a timer per call: waits see to it */
    if (!options->max_message_bytes)
        rpc_args_add(&args, GRPC_ARG_MINIMAL_STACK, 1); /* no filter that looks at messages */
    rpc_args_refuse_compression(&args);
    rpc_args_add(&args, GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
    rpc_args_add(&args, GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, RECONNECT_FIRST_MS);
    rpc_args_add(&args, GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, RECONNECT_MOST_MS);
    if (!address_is_unix(address)) {
        rpc_args_add(&args, GRPC_ARG_KEEPALIVE_TIME_MS, RPC_KEEPALIVE_MS);
        rpc_args_add(&args, GRPC_ARG_KEEPALIVE_TIMEOUT_MS, RPC_KEEPALIVE_TIMEOUT_MS);
    }
    uint64_t most = options->max_message_bytes ? options->max_message_bytes : UINT64_MAX;
    rpc_args_add(&args, GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, rpc_limit_arg(most));
    rpc_args_add(&args, GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, rpc_limit_arg(most));
    char *agent = rpc_caller_agent(options->name);
    args.items[args.count++] = (grpc_arg){
        .type = GRPC_ARG_STRING, .key = GRPC_ARG_PRIMARY_USER_AGENT_STRING, .value.string = agent};
    grpc_channel_args list = {.num_args = args.count, .args = args.items};
    grpc_channel_credentials *credentials = grpc_insecure_credentials_create();
    grpc_channel *channel = grpc_channel_create(address, credentials, &list);
    grpc_channel_credentials_release(credentials);
    free(agent);
    return channel;
}

trp_status trp_channel_create(trp_channel **out, const char *address,
                              const trp_channel_options *options)
{
    static const trp_channel_options defaults;
    *out = NULL;
    if (!options)
        options = &defaults;
    TRP_TRY(address_check(address));
    TRP_TRY(rpc_library_acquire());
    trp_channel *channel = xcalloc(1, sizeof *channel);
    channel->address = xstrdup(address);
    channel->connect_timeout_ms =
        options->connect_timeout_ms ? options->connect_timeout_ms : CONNECT_TIMEOUT_MS;
    channel->fail_fast = options->fail_fast;
    channel->grpc = make_grpc_channel(address, options);
    mutex_init(&channel->mutex);
    *out = channel;
    return TRP_OK;
}

trp_channel *trp_channel_create_local(trp_server *server)
{
    trp_channel *channel = xcalloc(1, sizeof *channel);
    channel->server = server;
    channel->address = xstrdup("in-process");
    mutex_init(&channel->mutex);
    return channel;
}

void trp_channel_destroy(trp_channel *channel)
{
    if (!channel)
        return;
    while (channel->adapters) {
        struct rpc_adapter *adapter = channel->adapters;
        channel->adapters = adapter->next;
        rpc_adapter_destroy(adapter);
    }
    while (channel->proxies) {
        struct rpc_proxy *proxy = channel->proxies;
        channel->proxies = proxy->next;
        rpc_proxy_destroy(proxy);
    }
    for (size_t i = 0; i < channel->idle_count; i++)
        rpc_queue_destroy(channel->idle[i]);
    if (channel->grpc) {
        grpc_channel_destroy(channel->grpc);
        rpc_library_release();
    }
    mutex_cleanup(&channel->mutex);
    free(channel->address);
    free(channel);
}

const char *trp_channel_address(const trp_channel *channel)
{
    return channel->address;
}

static struct rpc_adapter *find_adapter(const trp_channel *channel,
                                        const ProtobufCServiceDescriptor *descriptor)
{
    struct rpc_adapter *adapter = channel->adapters;
    while (adapter && adapter->base.descriptor != descriptor)
        adapter = adapter->next;
    return adapter;
}

/* `target` for a caller whose generated code is not the service's own. */
static trp_status adapt_local(trp_channel *channel, ProtobufCService *target,
                              const ProtobufCServiceDescriptor *descriptor,
                              ProtobufCService **service)
{
    trp_status status = TRP_OK;
    mutex_lock(&channel->mutex);
    struct rpc_adapter *adapter = find_adapter(channel, descriptor);
    if (!adapter && (status = rpc_adapter_create(&adapter, target, descriptor)) == TRP_OK) {
        adapter->next = channel->adapters;
        channel->adapters = adapter;
    }
    mutex_unlock(&channel->mutex);
    *service = status == TRP_OK ? &adapter->base : NULL;
    return status;
}

static trp_status find_local(trp_channel *channel, const ProtobufCServiceDescriptor *descriptor,
                             ProtobufCService **service)
{
    for (const struct rpc_service *entry = channel->server->services; entry; entry = entry->next)
        if (strcmp(entry->service->descriptor->name, descriptor->name) == 0) {
            *service = entry->service;
            if (entry->service->descriptor == descriptor)
                return TRP_OK;
            return adapt_local(channel, entry->service, descriptor, service);
        }
    return trp_fail(TRP_NOT_FOUND, "the server has no service %s", descriptor->name);
}

static struct rpc_proxy *find_proxy(const trp_channel *channel,
                                    const ProtobufCServiceDescriptor *descriptor)
{
    for (struct rpc_proxy *proxy = channel->proxies; proxy; proxy = proxy->next)
        if (proxy->base.descriptor == descriptor)
            return proxy;
    return NULL;
}

trp_status trp_channel_service(trp_channel *channel, const ProtobufCServiceDescriptor *descriptor,
                               ProtobufCService **service)
{
    *service = NULL;
    if (!descriptor->name || !descriptor->name[0])
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "a service without a name: its .proto says optimize_for = CODE_SIZE");
    if (channel->server)
        return find_local(channel, descriptor, service);
    mutex_lock(&channel->mutex);
    struct rpc_proxy *proxy = find_proxy(channel, descriptor);
    if (!proxy) {
        proxy = rpc_proxy_create(channel, descriptor);
        proxy->next = channel->proxies;
        channel->proxies = proxy;
    }
    mutex_unlock(&channel->mutex);
    *service = &proxy->base;
    return TRP_OK;
}

grpc_completion_queue *rpc_channel_take_queue(trp_channel *channel)
{
    grpc_completion_queue *queue = NULL;
    mutex_lock(&channel->mutex);
    if (channel->idle_count > 0)
        queue = channel->idle[--channel->idle_count];
    mutex_unlock(&channel->mutex);
    return queue ? queue : grpc_completion_queue_create_for_next(NULL);
}

void rpc_channel_give_queue(trp_channel *channel, grpc_completion_queue *queue)
{
    mutex_lock(&channel->mutex);
    if (channel->idle_count < RPC_IDLE_QUEUES) {
        channel->idle[channel->idle_count++] = queue;
        queue = NULL;
    }
    mutex_unlock(&channel->mutex);
    rpc_queue_destroy(queue);
}

uint32_t rpc_channel_open_flags(const trp_channel *channel)
{
    return GRPC_INITIAL_METADATA_WAIT_FOR_READY_EXPLICITLY_SET |
           (channel->fail_fast ? 0 : GRPC_INITIAL_METADATA_WAIT_FOR_READY);
}

static bool is_connected(const trp_channel *channel)
{
    return grpc_channel_check_connectivity_state(channel->grpc, 0) == GRPC_CHANNEL_READY;
}

/* gRPC keeps to itself why calls wait for a connection: one of our own tells. */
static void call_cancel_because(const trp_channel *channel, grpc_call *call, grpc_status_code code,
                                const char *what)
{
    char *why = is_connected(channel) ? NULL : reach(channel->address, RPC_REACH_MS);
    char *text = xasprintf("%s%s%s", what, why ? ": " : "", why ? why : "");
    grpc_call_cancel_with_status(call, code, text, NULL);
    free(text);
    free(why);
}

void rpc_channel_give_up(trp_channel *channel, grpc_call *call)
{
    char what[64];
    if (is_connected(channel))
        return;
    snprintf(what, sizeof what, "the peer did not come up within %lld ms",
             (long long)channel->connect_timeout_ms);
    call_cancel_because(channel, call, GRPC_STATUS_UNAVAILABLE, what);
}

void rpc_channel_end_late(trp_channel *channel, grpc_call *call)
{
    call_cancel_because(channel, call, GRPC_STATUS_DEADLINE_EXCEEDED,
                        "took longer than its deadline");
}

static bool has_mark(const grpc_metadata_array *trailing)
{
    for (size_t i = 0; i < trailing->count; i++)
        if (grpc_slice_str_cmp(trailing->metadata[i].key, "troupe-status") == 0)
            return true;
    return false;
}

trp_status rpc_channel_failure(const trp_channel *channel, const char *path, grpc_status_code code,
                               grpc_slice details, const grpc_metadata_array *trailing,
                               bool cancelled)
{
    trp_status status =
        code >= 0 && code <= GRPC_STATUS_UNAUTHENTICATED ? (trp_status)code : TRP_UNKNOWN;
    int length = (int)GRPC_SLICE_LENGTH(details);
    const char *text = (const char *)GRPC_SLICE_START_PTR(details);
    if (has_mark(trailing))
        return trp_fail(status, "%.*s", length, text);
    if (status == TRP_CANCELLED && !cancelled) /* a peer that stops ends calls so */
        status = TRP_UNAVAILABLE;
    return trp_fail(status, "%s at %s: %.*s", path, channel->address, length, text);
}
