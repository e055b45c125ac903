/* A context joins a body to the rest of the program. What a peer is (another thread here, another
 * process) is settled once, in open_channel(); after that everything goes through trp_channel.
 *
 * A server may not be destroyed while channels of this process lead to it, so it counts its users,
 * and a body that wants to end first stops and waits for them (trp_context_withdraw()). That cannot
 * go round in circles: the graph has none. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "control.h"
#include "core/alloc.h"
#include "core/hash.h"
#include "devices.h"
#include "host.h"
#include "run_dir.h"
#include "core/limits.h"
#include "limits.h"

void context_init(trp_context *context, struct host *host, uint32_t number)
{
    *context = (trp_context){
        .host = host, .number = number, .seed = host->options.seed, .resume = host->options.resume};
    context->group = program_node(host->options.program, number, &context->index);
    snprintf(context->name, sizeof context->name, "%s/%u", context->group->name, context->index);
    char *path = run_dir_socket_path(host->options.socket_dir, context->group, context->index);
    context->address = xasprintf("unix:%s", path);
    free(path);
    context->stop = trp_stop_create();
    if (group_is_gang(context->group))
        context->meeting = meeting_create(context);
    mutex_init(&context->mutex);
}

void context_cleanup(trp_context *context)
{
    mutex_cleanup(&context->mutex);
    meeting_destroy(context->meeting);
    trp_stop_destroy(context->stop);
    free(context->address);
}

const char *trp_context_name(const trp_context *context)
{
    return context->name;
}

uint32_t trp_context_index(const trp_context *context)
{
    return context->index;
}

uint32_t trp_context_group_size(const trp_context *context)
{
    return context->group->count;
}

uint64_t trp_context_seed(const trp_context *context)
{
    return context->seed;
}

const char *trp_context_run_dir(const trp_context *context)
{
    return context->host->options.run_dir;
}

bool trp_context_resume(const trp_context *context)
{
    return context->resume;
}

trp_stop *trp_context_stop(trp_context *context)
{
    return context->stop;
}

const char *trp_context_address(const trp_context *context)
{
    return context->address;
}

/* ---- serving ----------------------------------------------------------------------------- */

void context_publish(trp_context *context, trp_server *server, const char *address)
{
    struct host *host = context->host;
    mutex_lock(&host->mutex);
    host->peers[context->number].server = server;
    follow_update_locked(host);
    cond_broadcast(&host->changed);
    mutex_unlock(&host->mutex);
    context->serving = true;
    trp_status status = control_send(host->options.control_fd, CONTROL_SEND_MS, CONTROL_READY,
                                     context->number, "%s", address);
    if (status != TRP_OK)
        trp_log(TRP_WARN, "%s: the launcher was not told the address", context->name);
}

static bool runs_whole_program(const trp_context *context)
{
    const struct host_options *options = &context->host->options;
    return options->count == options->program->node_count && options->count > 1;
}

trp_status trp_context_serve(trp_context *context, ProtobufCService *service,
                             const trp_serve_options *options)
{
    trp_serve_options serve = options ? *options : (trp_serve_options){0};
    if (context->serving)
        return trp_fail(TRP_FAILED_PRECONDITION, "%s serves already: a node serves once",
                        context->name);
    bool local = runs_whole_program(context);
    trp_server *server = NULL;
    trp_status status = trp_server_create(
        &server, &(trp_server_options){.address = context->address, .threads = serve.threads});
    if (status == TRP_OK)
        status = trp_server_add(server, service, serve.blocking);
    if (status == TRP_OK && !local)
        status = trp_server_start(server);
    if (status != TRP_OK) {
        trp_server_destroy(server);
        return status;
    }
    context->server = server;
    context->service = service;
    context_publish(context, server, local ? IN_PROCESS : trp_server_address(server));
    return TRP_OK;
}

/* Waits for the peers in this process that call `peer`; host->mutex is held. */
static bool wait_for_callers_locked(trp_context *context, const struct peer *peer)
{
    struct host *host = context->host;
    struct deadline deadline = deadline_in_ms(&clock_monotonic, host->options.grace_ms);
    for (uint32_t i = 0; peer->users > 0 && i < host->options.count; i++) {
        uint32_t index, number = host->options.first + i;
        if (group_uses(program_node(host->options.program, number, &index), context->group))
            host_stop_member_locked(host, number);
    }
    cond_broadcast(&host->changed);
    bool in_time = true;
    while (peer->users > 0 && in_time)
        in_time = cond_wait(&host->changed, &host->mutex, deadline);
    return peer->users == 0;
}

bool trp_context_withdraw(trp_context *context, trp_status status)
{
    context_ended(context, status);
    if (!context->serving)
        return true;
    struct host *host = context->host;
    mutex_lock(&host->mutex);
    struct peer *peer = &host->peers[context->number];
    peer->server = NULL;
    if (!peer->gone)
        peer->gone = xstrdup("it is ending");
    follow_update_locked(host);
    context->serving = !wait_for_callers_locked(context, peer);
    mutex_unlock(&host->mutex);
    if (!context->serving)
        trp_server_destroy(context->server); /* otherwise it is left as it is, with its callers */
    context->server = NULL;
    context->service = NULL;
    if (context->serving)
        trp_log(TRP_ERROR, "peers did not stop calling this node within %g s",
                (double)host->options.grace_ms / 1000);
    return !context->serving;
}

/* ---- dialling ---------------------------------------------------------------------------- */

/* Waits until `peer` can be reached; `host->mutex` is held. */
static trp_status wait_for_peer_locked(trp_context *context, const struct peer *peer,
                                       const char *name)
{
    struct host *host = context->host;
    struct deadline deadline = deadline_in_ms(&clock_monotonic, DIAL_TIMEOUT_MS);
    bool in_time = true;
    while (!peer->server && !peer->address && !peer->gone && in_time &&
           !trp_stop_requested(context->stop))
        in_time = cond_wait(&host->changed, &host->mutex, deadline);
    if (peer->gone)
        return trp_fail(TRP_UNAVAILABLE, "%s cannot be reached: %s", name, peer->gone);
    if (peer->server || peer->address)
        return TRP_OK;
    const char *how =
        peer->begun ? "it has started, but published no address" : "its process has not started";
    if (trp_stop_requested(context->stop))
        return trp_fail(TRP_CANCELLED, "stopped while waiting for %s: %s", name, how);
    return trp_fail(TRP_UNAVAILABLE, "%s did not serve within %d s: %s", name,
                    DIAL_TIMEOUT_MS / 1000, how);
}

static trp_status open_channel(trp_context *context, uint32_t number, const char *name,
                               struct context_channel *channel)
{
    uint32_t index;
    bool serves = program_node(context->host->options.program, number, &index)->kind == NODE_SERVER;
    struct host *host = context->host;
    struct peer *peer = &host->peers[number];
    char *address = NULL;
    mutex_lock(&host->mutex);
    trp_status status = wait_for_peer_locked(context, peer, name);
    if (status == TRP_OK && peer->server) {
        channel->channel = trp_channel_create_local(peer->server);
        channel->local = true;
        peer->users++;
    } else if (status == TRP_OK) {
        address = xstrdup(peer->address);
    }
    mutex_unlock(&host->mutex);
    if (address)
        status = trp_channel_create(
            &channel->channel, address,
            &(trp_channel_options){.name = context->name,
                                   .connect_timeout_ms = serves ? SERVER_CONNECT_MS : 0});
    free(address);
    return status;
}

static trp_status find_edge(const trp_context *context, trp_node node, uint32_t index,
                            const struct node_group **group)
{
    *group = program_group(context->host->options.program, node);
    if (*group && group_uses(context->group, *group) && index < (*group)->count)
        return TRP_OK;
    return trp_fail(TRP_INVALID_ARGUMENT, "%s has no edge to node %u of %s: name it in .uses",
                    context->name, index, *group ? (*group)->name : "a group that does not exist");
}

trp_status trp_context_channel(trp_context *context, trp_node node, uint32_t index,
                               trp_channel **channel)
{
    const struct node_group *group;
    TRP_TRY(find_edge(context, node, index, &group));
    uint32_t number = group->first + index;
    for (struct context_channel *open = context->channels; open; open = open->next) {
        if (open->number == number) {
            *channel = open->channel;
            return TRP_OK;
        }
    }
    char name[NODE_NAME_BYTES_MAX];
    snprintf(name, sizeof name, "%s/%u", group->name, index);
    struct context_channel *fresh = xcalloc(1, sizeof *fresh);
    fresh->number = number;
    trp_status status = open_channel(context, number, name, fresh);
    if (status != TRP_OK) {
        free(fresh);
        return status;
    }
    fresh->next = context->channels;
    context->channels = fresh;
    *channel = fresh->channel;
    return TRP_OK;
}

trp_status trp_dial(trp_context *context, trp_node node, uint32_t index,
                    const ProtobufCServiceDescriptor *descriptor, ProtobufCService **service)
{
    const struct node_group *group;
    TRP_TRY(find_edge(context, node, index, &group));
    if (group_is_gang(group))
        return follow_dial(context, group, descriptor, service);
    trp_channel *channel;
    TRP_TRY(trp_context_channel(context, node, index, &channel));
    return trp_channel_service(channel, descriptor, service);
}

trp_status trp_context_params(trp_context *context, trp_node node, uint32_t index,
                              trp_params_client **client)
{
    ProtobufCService *service;
    *client = NULL;
    TRP_TRY(trp_dial(context, node, index, trp_params_descriptor(), &service));
    trp_params_client_options options = {
        .service = service, .name = context->name, .stop = context->stop};
    TRP_TRY(trp_params_client_create(client, &options));
    struct context_params *owned = xcalloc(1, sizeof *owned);
    *owned = (struct context_params){.next = context->params, .client = *client};
    context->params = owned;
    return TRP_OK;
}

/* What the body served: nobody calls it any more, or it stays. */
static void end_service(trp_context *context)
{
    ProtobufCService *service = context->service;
    if (context->server && trp_context_withdraw(context, TRP_OK) && service->destroy)
        service->destroy(service);
}

void context_close(trp_context *context)
{
    struct host *host = context->host;
    end_service(context);
    while (context->params) {
        struct context_params *params = context->params;
        context->params = params->next;
        trp_params_client_destroy(params->client);
        free(params);
    }
    follow_close(context);
    while (context->channels) {
        struct context_channel *channel = context->channels;
        context->channels = channel->next;
        trp_channel_destroy(channel->channel);
        mutex_lock(&host->mutex);
        if (channel->local)
            host->peers[channel->number].users--;
        cond_broadcast(&host->changed);
        mutex_unlock(&host->mutex);
        free(channel);
    }
    mutex_lock(&host->mutex);
    host->peers[context->number].server = NULL;
    mutex_unlock(&host->mutex);
}

/* ---- reports ----------------------------------------------------------------------------- */

trp_status trp_context_device(trp_context *context, trp_device **device)
{
    bool shared = context->host->options.launcher == 0; /* all nodes are in this process */
    return devices_find(context->group, context->index, shared, device);
}

void context_log_device(const trp_context *context, trp_device *device)
{
    trp_device_bytes bytes = trp_device_memory(device);
    if (!trp_device_is_host(device))
        trp_log(TRP_INFO, "%s uses device=%s memory_mib=%.1f left_mib=%.1f",
                node_kind_word(context->group->kind), trp_device_name(device),
                (double)bytes.used / (1 << 20), (double)bytes.left / (1 << 20));
}

void trp_context_report(trp_context *context, const char *name, double value)
{
    mutex_lock(&context->mutex);
    metrics_set(&context->metrics, name, value);
    mutex_unlock(&context->mutex);
}

void context_set_poll(trp_context *context, context_poll poll, void *polled)
{
    mutex_lock(&context->mutex);
    if (!poll && context->poll)
        context->poll(&context->metrics, context->polled); /* the final figures */
    context->poll = poll;
    context->polled = polled;
    mutex_unlock(&context->mutex);
}

void trp_context_stop_program(trp_context *context, bool success, const char *reason)
{
    struct host *host = context->host;
    mutex_lock(&host->mutex);
    bool first = !host->program_stopped;
    host->program_stopped = true;
    mutex_unlock(&host->mutex);
    if (!first)
        return;
    trp_status status =
        control_send(host->options.control_fd, CONTROL_SEND_MS, CONTROL_PROGRAM, context->number,
                     "%s %s", success ? "success" : "failure", reason);
    if (status != TRP_OK)
        trp_log(TRP_WARN, "%s: the launcher was not asked to stop: %s", context->name, reason);
    host_program_stops(host);
}

/* ---- for the built-in nodes ------------------------------------------------------------------ */

uint64_t node_seed(const trp_context *context, uint64_t draw)
{
    uint64_t place = hash_bytes(HASH_BYTES_EMPTY, context->name, strlen(context->name));
    trp_rng rng;
    trp_rng_init(&rng, trp_context_seed(context), place + draw);
    return trp_rng_u64(&rng) | 1; /* 0 would mean: from the operating system */
}

char *node_dir(const trp_context *context)
{
    return xasprintf("%s/%s", trp_context_run_dir(context), context->group->name);
}
