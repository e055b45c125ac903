/* Problem: a client that asks on thousands of streams and reads none has each of them send up to
 * its own bound; all together they are more than the memory there is.
 * Design: bytes are counted from the send until flow control has let them go. A call that sends
 * much asks for room first. Clients share half of the limit: one has room while it holds less than
 * what is left, so that however many stand still, each as large as the others, as much again is
 * free for the next. The other half is for messages of calls that never ask: they are few and
 * small, and one that is beyond it ends its call. Who finds no room waits in its client's line.
 * Many clients with one message each may leave no room all the same. So while somebody waits, there
 * are rounds of unread_timeout_ms: what took nothing during one is ended at its end, the largest of
 * the largest client first, one for each that waits and has nothing. Streams of a client that
 * pauses wait for each other, though, unless it has a large part of it all.
 * Guarantee: no more than the limit and one message; who reads gets room within a round. Who stands
 * still is ended only when others need the room. */
#include "server.h"

#include <assert.h>
#include <stdlib.h>

#include <troupe/log.h>
#include "core/alloc.h"
#include "limits.h"

void rpc_unread_count(trp_server_call *call)
{
    struct rpc_unread *unread = &call->server->unread;
    uint64_t before = call->unread_bytes;
    uint64_t now = rpc_messages_memory(&call->out) + call->sending_bytes;
    call->unread_bytes = now;
    unread->bytes += now - before; /* modulo 2^64 */
    call->took |= now < before || before == 0;
    if (!call->client)
        return;
    call->client->bytes += now - before;
    call->client->took |= now < before;
}

/* ---- clients ------------------------------------------------------------------------------- */

static struct rpc_client *client_of(trp_server_call *call)
{
    struct rpc_unread *unread = &call->server->unread;
    grpc_auth_context *connection = call->transport->connection(call);
    struct rpc_client *client = unread->clients;
    while (client && client->connection != connection)
        client = client->next;
    if (client) {
        grpc_auth_context_release(connection);
        return client;
    }
    client = xcalloc(1, sizeof *client);
    client->connection = connection; /* nobody else is at this address while we refer to it */
    client->next = unread->clients;
    if (client->next)
        client->next->previous = client;
    unread->clients = client;
    return client;
}

static void client_free(struct rpc_unread *unread, struct rpc_client *client)
{
    if (client->previous)
        client->previous->next = client->next;
    else
        unread->clients = client->next;
    if (client->next)
        client->next->previous = client->previous;
    grpc_auth_context_release(client->connection);
    free(client);
}

static void line_remove(trp_server_call *call)
{
    struct rpc_client *client = call->client;
    if (call->previous_in)
        call->previous_in->next_in = call->next_in;
    else
        client->first_in = call->next_in;
    if (call->next_in)
        call->next_in->previous_in = call->previous_in;
    else
        client->last_in = call->previous_in;
    call->in_line = false;
    call->server->unread.waiting--;
}

void rpc_unread_leave(trp_server_call *call)
{
    struct rpc_client *client = call->client;
    call->sending_bytes = 0;
    rpc_unread_count(call);
    if (!client)
        return;
    if (call->in_line)
        line_remove(call);
    if (--client->calls == 0)
        client_free(&call->server->unread, client);
}

/* ---- room ---------------------------------------------------------------------------------- */

static uint64_t room_of(const struct rpc_unread *unread, const struct rpc_client *client)
{
    uint64_t held = unread->bytes + client->bytes;
    return held < unread->limit / 2 ? unread->limit / 2 - held : 0;
}

static void round_begin(trp_server *server)
{
    server->unread.round = deadline_in_ms(&clock_monotonic, server->options.unread_timeout_ms);
    for (trp_server_call *call = server->calls; call; call = call->next)
        call->took = false;
    for (struct rpc_client *client = server->unread.clients; client; client = client->next)
        client->took = false;
}

static void line_append(trp_server_call *call)
{
    struct rpc_client *client = call->client;
    call->in_line = true;
    call->next_in = NULL;
    call->previous_in = client->last_in;
    if (call->previous_in)
        call->previous_in->next_in = call;
    else
        client->first_in = call;
    client->last_in = call;
    if (call->server->unread.waiting++ == 0)
        round_begin(call->server);
}

bool rpc_unread_room(trp_server_call *call)
{
    if (!call->client) {
        call->client = client_of(call);
        call->client->calls++;
        call->client->bytes += call->unread_bytes;
    }
    if (room_of(&call->server->unread, call->client) > 0)
        return true;
    if (!call->in_line)
        line_append(call);
    return false;
}

bool rpc_unread_is_full(const struct rpc_unread *unread)
{
    return unread->bytes >= unread->limit;
}

/* As many of the client's as will find it, going by messages of a usual size. */
static void tell_room(struct rpc_unread *unread, struct rpc_client *client)
{
    uint64_t room = room_of(unread, client);
    while (room > 0 && client->first_in) {
        trp_server_call *call = client->first_in;
        line_remove(call);
        rpc_call_event(call, RPC_CALL_ROOM);
        room -= room < RPC_UNREAD_BYTES_TYPICAL ? room : RPC_UNREAD_BYTES_TYPICAL;
    }
}

/* ---- who stands still ---------------------------------------------------------------------- */

static bool pauses(const struct rpc_unread *unread, const struct rpc_client *client)
{
    return !client->took && client->bytes > 0 &&
           client->bytes < unread->limit / RPC_UNREAD_PAUSE_SHARE;
}

static uint32_t count_starved(const struct rpc_unread *unread)
{
    uint32_t count = 0;
    for (const struct rpc_client *client = unread->clients; client; client = client->next)
        for (const trp_server_call *call = client->first_in; call && !pauses(unread, client);
             call = call->next_in)
            count += call->unread_bytes == 0;
    return count;
}

static bool stands_longer(const trp_server_call *call, const trp_server_call *other)
{
    uint64_t bytes = call->client ? call->client->bytes : 0;
    uint64_t others = other->client ? other->client->bytes : 0;
    return bytes != others ? bytes > others : call->unread_bytes > other->unread_bytes;
}

static trp_server_call *largest_still(const trp_server *server)
{
    trp_server_call *found = NULL;
    for (trp_server_call *call = server->calls; call; call = call->next)
        if (call->unread_bytes > 0 && !call->took && !call->ended && !call->closed_due &&
            (!found || stands_longer(call, found)))
            found = call;
    return found;
}

static void end_still(trp_server_call *call)
{
    const trp_server *server = call->server;
    char *text = xasprintf("%s: %llu bytes have been left unread for %lld ms, others need the room",
                           call->method->path, (unsigned long long)call->unread_bytes,
                           (long long)server->options.unread_timeout_ms);
    trp_log(TRP_WARN, "call ended peer=%s reason=%s", trp_server_call_peer(call), text);
    call->ended = true; /* also where the next round is over before it is closed */
    call->transport->abort(call, TRP_RESOURCE_EXHAUSTED, text);
    free(text);
}

static void round_end(trp_server *server)
{
    trp_server_call *call;
    uint32_t starved = count_starved(&server->unread);
    for (; starved > 0 && (call = largest_still(server)); starved--)
        end_still(call);
    round_begin(server);
}

void rpc_unread_settle(trp_server *server)
{
    struct rpc_unread *unread = &server->unread;
    for (struct rpc_client *client = unread->clients; client && unread->waiting > 0;
         client = client->next)
        tell_room(unread, client);
    if (unread->waiting == 0)
        unread->round = DEADLINE_NEVER;
    else if (!server->first_event && deadline_passed(unread->round, &clock_monotonic))
        round_end(server);
}
