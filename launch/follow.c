/* Who pulls from a group of learners follows whichever of them publishes. The body of a node keeps
 * one service for its life, a relay; where that leads to is decided here, on whatever thread learns
 * that something has changed: another learner publishes, it serves, or it withdraws.
 *
 * Channels to other processes are kept until the body has returned: a call may still be inside one
 * to a server that is gone. */
#include <stdlib.h>
#include <string.h>

#include <troupe/log.h>
#include "core/alloc.h"
#include "host.h"

/* A server in another process, as one relay calls it. */
struct relay_peer {
    struct relay_peer *next;
    char *address;
    trp_channel *channel;
    ProtobufCService *service;
};

static const struct peer *publisher_locked(const struct host *host, const struct node_group *group)
{
    uint32_t place = host->publishers[group->id - 1];
    return place > 0 ? &host->peers[place - 1] : NULL;
}

static bool can_be_reached(const struct peer *peer)
{
    return peer && (peer->server || (peer->address && !peer->gone));
}

/* ---- where a relay leads ----------------------------------------------------------------- */

static void lead_nowhere(struct context_relay *relay)
{
    if (!relay->server)
        return;
    trp_relay_set(relay->relay, NULL);
    trp_channel_destroy(relay->local);
    relay->local = NULL;
    relay->server = NULL;
}

static trp_status lead_here(struct context_relay *relay, trp_server *server)
{
    ProtobufCService *service;
    if (relay->server == server)
        return TRP_OK;
    lead_nowhere(relay);
    trp_channel *channel = trp_channel_create_local(server);
    trp_status status = trp_channel_service(channel, relay->descriptor, &service);
    if (status != TRP_OK) {
        trp_channel_destroy(channel);
        return status;
    }
    relay->local = channel;
    relay->server = server;
    trp_relay_set(relay->relay, service);
    return TRP_OK;
}

static trp_status relay_peer_create(struct context_relay *relay, const char *name,
                                    const char *address)
{
    struct relay_peer *peer = xcalloc(1, sizeof *peer);
    trp_status status = trp_channel_create(&peer->channel, address,
                                           &(trp_channel_options){.name = name, .fail_fast = true});
    if (status == TRP_OK)
        status = trp_channel_service(peer->channel, relay->descriptor, &peer->service);
    if (status != TRP_OK) {
        trp_channel_destroy(peer->channel);
        free(peer);
        return status;
    }
    peer->address = xstrdup(address);
    peer->next = relay->peers;
    relay->peers = peer;
    return TRP_OK;
}

static trp_status lead_elsewhere(struct context_relay *relay, const char *name, const char *address)
{
    struct relay_peer **place = &relay->peers;
    while (*place && strcmp((*place)->address, address) != 0)
        place = &(*place)->next;
    struct relay_peer *known = *place;
    if (!known)
        TRP_TRY(relay_peer_create(relay, name, address));
    else if (known != relay->peers) {
        *place = known->next;
        known->next = relay->peers;
        relay->peers = known;
    }
    lead_nowhere(relay); /* if it led to a server of this process */
    trp_relay_set(relay->relay, relay->peers->service);
    return TRP_OK;
}

static trp_status lead_locked(const trp_context *context, struct context_relay *relay)
{
    const struct peer *peer = publisher_locked(context->host, relay->group);
    if (peer && peer->server)
        return lead_here(relay, peer->server);
    if (can_be_reached(peer))
        return lead_elsewhere(relay, context->name, peer->address);
    lead_nowhere(relay);
    return TRP_OK;
}

void follow_update_locked(struct host *host)
{
    for (uint32_t i = 0; i < host->options.count; i++) {
        const trp_context *context = host_context(host, host->options.first + i);
        for (struct context_relay *relay = context->relays; relay; relay = relay->next)
            if (lead_locked(context, relay) != TRP_OK)
                trp_log(TRP_ERROR, "%s cannot follow %s: %s", context->name, relay->group->name,
                        trp_last_error());
    }
}

/* ---- dialling ---------------------------------------------------------------------------- */

/* Learners that are gone may be started again, or the program ends of it. */
static trp_status wait_for_publisher_locked(const trp_context *context,
                                            const struct node_group *group)
{
    struct host *host = context->host;
    struct deadline deadline = deadline_in_ms(&clock_monotonic, PUBLISHER_TIMEOUT_MS);
    bool in_time = true;
    while (!can_be_reached(publisher_locked(host, group)) && in_time &&
           !trp_stop_requested(context->stop))
        in_time = cond_wait(&host->changed, &host->mutex, deadline);
    if (can_be_reached(publisher_locked(host, group)))
        return TRP_OK;
    if (trp_stop_requested(context->stop))
        return trp_fail(TRP_CANCELLED, "stopped while waiting for a learner of %s to publish",
                        group->name);
    return trp_fail(TRP_UNAVAILABLE, "no learner of %s published within %d s", group->name,
                    PUBLISHER_TIMEOUT_MS / 1000);
}

static void relay_forget(struct context_relay *relay)
{
    lead_nowhere(relay);
    trp_relay_destroy(relay->relay);
    while (relay->peers) {
        struct relay_peer *peer = relay->peers;
        relay->peers = peer->next;
        trp_channel_destroy(peer->channel);
        free(peer->address);
        free(peer);
    }
    free(relay);
}

static const struct context_relay *find_relay(const trp_context *context,
                                              const struct node_group *group,
                                              const ProtobufCServiceDescriptor *descriptor)
{
    const struct context_relay *relay = context->relays;
    while (relay && (relay->group != group || relay->descriptor != descriptor))
        relay = relay->next;
    return relay;
}

trp_status follow_dial(trp_context *context, const struct node_group *group,
                       const ProtobufCServiceDescriptor *descriptor, ProtobufCService **service)
{
    struct host *host = context->host;
    const struct context_relay *open = find_relay(context, group, descriptor);
    if (open) {
        *service = trp_relay_service(open->relay);
        return TRP_OK;
    }
    struct context_relay *relay = xcalloc(1, sizeof *relay);
    relay->group = group;
    relay->descriptor = descriptor;
    relay->relay = trp_relay_create(descriptor);
    mutex_lock(&host->mutex);
    trp_status status = wait_for_publisher_locked(context, group);
    if (status == TRP_OK)
        status = lead_locked(context, relay);
    if (status == TRP_OK) {
        relay->next = context->relays;
        context->relays = relay;
        *service = trp_relay_service(relay->relay);
    }
    mutex_unlock(&host->mutex);
    if (status != TRP_OK)
        relay_forget(relay);
    return status;
}

void follow_close(trp_context *context)
{
    mutex_lock(&context->host->mutex);
    struct context_relay *relays = context->relays;
    context->relays = NULL;
    mutex_unlock(&context->host->mutex);
    while (relays) {
        struct context_relay *relay = relays;
        relays = relay->next;
        relay_forget(relay);
    }
}
