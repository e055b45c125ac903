/* A server with raw methods for tests, and a channel to it: in-process, unix socket or TCP.
 * Handlers count what they see; tests wait for the counts. */
#ifndef TESTS_RPC_NET_H
#define TESTS_RPC_NET_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <troupe/rpc.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "core/thread.h"

enum { WAIT_MS = 20000 };

/* What the handlers saw; the mutex lets tests wait for it. */
struct service {
    struct mutex mutex;
    struct cond changed;
    trp_server *server;
    uint32_t opened, closed, half_closed, received, drained, drained_too_early, groups,
        groups_at_wake;
    uint32_t received_since_group, largest_group;
    size_t weight;   /* of a message to Echo, beside its bytes */
    int64_t wake_ns; /* what group_end answers; reset when it has come */
    bool again;      /* after a message group_end wants to be called elsewhere, at once: */
    uint32_t groups_elsewhere; /* on another thread than the test's */
    bool owed;                 /* it has not been, yet */
    trp_server_call *held;     /* the last call of Hold */
    char peer[128];
};

struct net {
    const char *kind;
    char dir[64];
    struct service service;
    trp_server *server;
    trp_channel *channel;
};

static void note(struct service *service, uint32_t *counter)
{
    mutex_lock(&service->mutex);
    (*counter)++;
    cond_broadcast(&service->changed);
    mutex_unlock(&service->mutex);
}

/* Waits until the counter is at least `count`. */
static void await(struct service *service, const uint32_t *counter, uint32_t count)
{
    struct deadline deadline = deadline_in_ms(&clock_monotonic, WAIT_MS);
    mutex_lock(&service->mutex);
    bool in_time = true;
    while (*counter < count && in_time)
        in_time = cond_wait(&service->changed, &service->mutex, deadline);
    uint32_t seen = *counter;
    mutex_unlock(&service->mutex);
    assert_in_range(seen, count, UINT32_MAX);
}

static uint32_t count_of(struct service *service, const uint32_t *counter)
{
    mutex_lock(&service->mutex);
    uint32_t count = *counter;
    mutex_unlock(&service->mutex);
    return count;
}

static trp_message *message_of(const char *text)
{
    trp_message *message = trp_message_create(strlen(text));
    assert_non_null(message);
    memcpy(trp_message_data(message), text, strlen(text));
    return message;
}

static void any_opened(void *arg, trp_server_call *call)
{
    struct service *service = arg;
    snprintf(service->peer, sizeof service->peer, "%s", trp_server_call_peer(call));
    trp_server_call_read(call);
    note(service, &service->opened);
}

static void any_closed(void *arg, trp_server_call *call)
{
    struct service *service = arg;
    free(trp_server_call_state(call));
    note(service, &service->closed);
}

static void any_half_closed(void *arg, trp_server_call *call)
{
    struct service *service = arg;
    trp_server_call_finish(call, TRP_OK, NULL);
    note(service, &service->half_closed);
}

static void any_drained(void *arg, trp_server_call *call)
{
    struct service *service = arg;
    if (trp_server_call_queued(call) == 0)
        note(service, &service->drained);
    else
        note(service, &service->drained_too_early);
}

static void echo_received(void *arg, trp_server_call *call, trp_message *message)
{
    struct service *service = arg;
    mutex_lock(&service->mutex);
    service->received_since_group++;
    size_t weight = service->weight;
    mutex_unlock(&service->mutex);
    trp_server_call_charge(call, weight);
    trp_server_call_send(call, message);
    trp_server_call_read(call);
    note(service, &service->received);
}

static void hold_opened(void *arg, trp_server_call *call)
{
    struct service *service = arg;
    service->held = call;
    note(service, &service->opened);
}

static void swallow_received(void *arg, trp_server_call *call, trp_message *message)
{
    struct service *service = arg;
    (void)call;
    trp_message_destroy(message);
    note(service, &service->received);
}

/* Sends back what came, in one part. */
static void parts_received(void *arg, trp_server_call *call, trp_message *message)
{
    struct service *service = arg;
    const trp_bytes *parts;
    size_t count = trp_message_parts(message, &parts), at = 0;
    trp_message *whole = trp_message_create(trp_message_size(message));
    for (size_t i = 0; i < count; at += parts[i++].size)
        if (parts[i].size)
            memcpy(trp_message_data(whole) + at, parts[i].data, parts[i].size);
    trp_message_destroy(message);
    trp_server_call_send(call, whole);
    trp_server_call_read(call);
    note(service, &service->received);
}

static void read_held(void *arg)
{
    struct service *service = arg;
    trp_server_call_read(service->held);
}

/* The first byte is the status to end with, the rest its text. */
static void fail_received(void *arg, trp_server_call *call, trp_message *message)
{
    struct service *service = arg;
    const char *bytes = (const char *)trp_message_data(message);
    char *text = xasprintf("%.*s", (int)trp_message_size(message) - 1, bytes + 1);
    trp_server_call_finish(call, (trp_status)bytes[0], text);
    free(text);
    trp_message_destroy(message);
    note(service, &service->received);
}

/* 5000 of 9 bytes: as much as a stream of gRPC takes in unread. */
enum { LAST_WORDS = 5000 };

/* Takes one message, answers with many, and ends. */
static void last_received(void *arg, trp_server_call *call, trp_message *message)
{
    struct service *service = arg;
    trp_message_destroy(message);
    for (int i = 0; i < LAST_WORDS; i++)
        trp_server_call_send(call, message_of("done"));
    trp_server_call_finish(call, TRP_RESOURCE_EXHAUSTED, "no room for more");
    note(service, &service->received);
}

/* Answers a request with a thousand messages, ten at a time, as they drain. */
struct flood {
    uint32_t next;
};

enum { FLOOD_MESSAGES = 1000, FLOOD_BATCH = 10, FLOOD_BYTES = 1000 };

static void flood_some(trp_server_call *call)
{
    struct flood *flood = trp_server_call_state(call);
    for (uint32_t i = 0; i < FLOOD_BATCH && flood->next < FLOOD_MESSAGES; i++) {
        trp_message *message = trp_message_create(FLOOD_BYTES);
        memset(trp_message_data(message), 0, FLOOD_BYTES);
        memcpy(trp_message_data(message), &flood->next, sizeof flood->next);
        flood->next++;
        trp_server_call_send(call, message);
    }
    if (flood->next == FLOOD_MESSAGES)
        trp_server_call_finish(call, TRP_OK, NULL);
}

static void flood_received(void *arg, trp_server_call *call, trp_message *message)
{
    struct service *service = arg;
    trp_message_destroy(message);
    trp_server_call_set_state(call, xcalloc(1, sizeof(struct flood)));
    flood_some(call);
    note(service, &service->received);
}

static void flood_drained(void *arg, trp_server_call *call)
{
    struct service *service = arg;
    if (trp_server_call_state(call))
        flood_some(call);
    note(service, &service->drained);
}

static _Thread_local bool is_test_thread;

static int64_t group_end(void *arg)
{
    struct service *service = arg;
    mutex_lock(&service->mutex);
    service->owed =
        service->again && is_test_thread && (service->owed || service->received_since_group > 0);
    bool again = service->owed;
    service->groups++;
    service->groups_elsewhere += !is_test_thread;
    if (service->received_since_group > service->largest_group)
        service->largest_group = service->received_since_group;
    service->received_since_group = 0;
    int64_t wake_ns = service->wake_ns;
    if (wake_ns && clock_now_ns(&clock_monotonic) >= wake_ns) {
        service->groups_at_wake++;
        wake_ns = service->wake_ns = 0;
    }
    cond_broadcast(&service->changed);
    mutex_unlock(&service->mutex);
    if (again)
        return 0;
    return wake_ns ? wake_ns : INT64_MAX;
}

static const trp_raw_method methods[] = {
    {.path = "/test.Raw/Echo",
     .opened = any_opened,
     .received = echo_received,
     .half_closed = any_half_closed,
     .drained = any_drained,
     .closed = any_closed},
    {.path = "/test.Raw/Big",
     .any_size = true,
     .opened = any_opened,
     .received = echo_received,
     .half_closed = any_half_closed,
     .closed = any_closed},
    {.path = "/test.Raw/Parts",
     .in_parts = true,
     .opened = any_opened,
     .received = parts_received,
     .half_closed = any_half_closed,
     .closed = any_closed},
    {.path = "/test.Raw/Hold",
     .opened = hold_opened,
     .received = swallow_received,
     .half_closed = any_half_closed,
     .closed = any_closed},
    {.path = "/test.Raw/Fail",
     .opened = any_opened,
     .received = fail_received,
     .half_closed = any_half_closed,
     .closed = any_closed},
    {.path = "/test.Raw/Last",
     .opened = any_opened,
     .received = last_received,
     .half_closed = any_half_closed,
     .closed = any_closed},
    {.path = "/test.Raw/Flood",
     .opened = any_opened,
     .received = flood_received,
     .half_closed = any_half_closed,
     .drained = flood_drained,
     .closed = any_closed},
};

static struct net *net_create(const char *kind, trp_server_options options)
{
    struct net *net = xcalloc(1, sizeof *net);
    net->kind = kind;
    strcpy(net->dir, "/tmp/troupe-stream-XXXXXX");
    assert_non_null(mkdtemp(net->dir));
    char address[100];
    snprintf(address, sizeof address, "unix:%s/s", net->dir);
    options.address = strcmp(kind, "unix") == 0 ? address : NULL;
    mutex_init(&net->service.mutex);
    cond_init(&net->service.changed);
    assert_int_equal(trp_server_create(&net->server, &options), TRP_OK);
    net->service.server = net->server;
    assert_int_equal(trp_server_add_raw(net->server, methods, sizeof methods / sizeof *methods,
                                        &net->service, group_end),
                     TRP_OK);
    if (strcmp(kind, "local") == 0) {
        net->channel = trp_channel_create_local(net->server);
        return net;
    }
    assert_int_equal(trp_server_start(net->server), TRP_OK);
    assert_int_equal(trp_channel_create(&net->channel, trp_server_address(net->server), NULL),
                     TRP_OK);
    return net;
}

static void net_destroy(struct net *net)
{
    await(&net->service, &net->service.closed, count_of(&net->service, &net->service.opened));
    trp_channel_destroy(net->channel);
    trp_server_destroy(net->server);
    assert_int_equal(net->service.opened, net->service.closed);
    cond_cleanup(&net->service.changed);
    mutex_cleanup(&net->service.mutex);
    char path[80];
    snprintf(path, sizeof path, "%s/s", net->dir);
    unlink(path);
    assert_int_equal(rmdir(net->dir), 0);
    free(net);
}

#endif
