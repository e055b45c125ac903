/* A server of our own for the clients that read: it answers as Reverb's does, or worse. Handlers
 * run under the server's lock; tests look at its fields through look(). */
#ifndef TRP_TESTS_SAMPLER_PEER_H
#define TRP_TESTS_SAMPLER_PEER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <troupe/rpc.h>

#include "core/thread.h"
#include "hex.h"
#include "replay/wire/wire.h"
#include "sample_message.h"

static const char limiter_text[] =
    "Rate Limiter: Timeout exceeded before the right to insert was acquired.";

struct peer {
    trp_server *server;
    trp_channel *channel;
    trp_server_call *sampling; /* the open stream */
    int64_t next;              /* sample to give next */
    int64_t available;         /* samples that the limiter allows in all */
    int64_t wanted;            /* of the request being served */
    int64_t requested, given;
    uint32_t request_count, stream_count;
    int64_t timeout_ms;  /* of the last request */
    int per_message;     /* samples in a message; 0: each in five messages */
    bool too_many;       /* one more than was asked for */
    int64_t break_after; /* end the stream after this many samples, with `break_status` */
    trp_status break_status;
    const char *signature; /* hex; of table "t" */
    struct mutex mutex;
    struct cond changed;
    int open_streams; /* guarded by `mutex` */
    struct wire_mutate_request mutated;
    uint32_t mutations;
    bool mute; /* do not answer mutations */
    trp_server_call *unanswered[8];
    uint32_t unanswered_count;
    char reset[16];
};

/* ---- SampleStream ---------------------------------------------------------------------------- */

static inline void send_buffer(trp_server_call *call, struct buffer *buffer)
{
    trp_message *message = trp_message_create(buffer->size);
    if (buffer->size)
        memcpy(trp_message_data(message), buffer->data, buffer->size);
    trp_server_call_send(call, message);
    buffer_clear(buffer);
}

static inline void send_in_parts(struct peer *peer, struct buffer *buffer, int64_t n)
{
    for (int part = 0; part < 5; part++) {
        add_sample_part(buffer, n, part);
        if (part == 4) /* the next sample's first part comes along with the last one's end */
            continue;
        send_buffer(peer->sampling, buffer);
        send_buffer(peer->sampling, buffer); /* an empty one between */
    }
}

static inline void serve(struct peer *peer)
{
    struct buffer buffer = {0};
    int in_message = 0;
    while (peer->sampling && peer->wanted > 0 && peer->next < peer->available) {
        if (peer->break_after && peer->given == peer->break_after) {
            if (buffer.size)
                send_buffer(peer->sampling, &buffer);
            trp_server_call_finish(peer->sampling, peer->break_status, "the peer said so");
            peer->break_after = 0;
            peer->wanted = 0;
            break;
        }
        peer->wanted--;
        peer->given++;
        if (peer->per_message == 0) {
            send_in_parts(peer, &buffer, peer->next++);
        } else {
            add_sample(&buffer, peer->next++);
            if (++in_message % peer->per_message == 0)
                send_buffer(peer->sampling, &buffer);
        }
    }
    if (peer->too_many)
        add_sample(&buffer, peer->next++);
    if (buffer.size)
        send_buffer(peer->sampling, &buffer);
    buffer_cleanup(&buffer);
    if (peer->sampling && peer->wanted == 0)
        trp_server_call_read(peer->sampling);
    else if (peer->sampling && peer->timeout_ms >= 0)
        trp_server_call_finish(peer->sampling, TRP_DEADLINE_EXCEEDED, limiter_text);
}

static inline void count_streams(struct peer *peer, int more)
{
    mutex_lock(&peer->mutex);
    peer->open_streams += more;
    cond_broadcast(&peer->changed);
    mutex_unlock(&peer->mutex);
}

static inline void nothing(void *arg)
{
    (void)arg;
}

/* Handlers run under the server's lock: they see what was written here before, and the other way
 * round. */
static inline void look(struct peer *peer)
{
    trp_server_run(peer->server, nothing, NULL);
}

/* Until the server has seen the end of every sampler: then its fields are the test's. */
static inline void settle(struct peer *peer)
{
    mutex_lock(&peer->mutex);
    struct deadline deadline = deadline_in_ms(&clock_monotonic, 5000);
    while (peer->open_streams > 0 && cond_wait(&peer->changed, &peer->mutex, deadline))
        continue;
    assert_int_equal(peer->open_streams, 0);
    mutex_unlock(&peer->mutex);
    look(peer);
}

static inline void sample_opened(void *service, trp_server_call *call)
{
    struct peer *peer = service;
    count_streams(peer, 1);
    peer->sampling = call;
    peer->wanted = 0;
    peer->stream_count++;
    trp_server_call_read(call);
}

static inline void sample_received(void *service, trp_server_call *call, trp_message *message)
{
    struct peer *peer = service;
    struct wire_sample_request request;
    trp_bytes bytes = {trp_message_data(message), trp_message_size(message)};
    (void)call;
    assert_int_equal(wire_sample_request_decode(bytes, &request), TRP_OK);
    assert_true(request.has_timeout);
    assert_int_equal(request.table.size, 1);
    peer->timeout_ms = request.timeout_ms;
    peer->wanted = request.num_samples;
    peer->requested += request.num_samples;
    peer->request_count++;
    trp_message_destroy(message);
    serve(peer);
}

static inline void finish_ok(void *service, trp_server_call *call)
{
    (void)service;
    trp_server_call_finish(call, TRP_OK, NULL);
}

static inline void sample_closed(void *service, trp_server_call *call)
{
    struct peer *peer = service;
    if (peer->sampling == call)
        peer->sampling = NULL;
    count_streams(peer, -1);
}

/* ---- unary calls ----------------------------------------------------------------------------- */

static inline void unary_opened(void *service, trp_server_call *call)
{
    (void)service;
    trp_server_call_read(call);
}

static inline void unary_half_closed(void *service, trp_server_call *call)
{
    (void)service;
    (void)call;
}

static inline void unary_closed(void *service, trp_server_call *call)
{
    struct peer *peer = service;
    for (uint32_t i = 0; i < peer->unanswered_count; i++)
        if (peer->unanswered[i] == call)
            peer->unanswered[i] = NULL;
}

static inline void info_received(void *service, trp_server_call *call, trp_message *message)
{
    struct peer *peer = service;
    struct buffer info = {0}, table = {0}, limiter = {0}, stats = {0};
    assert_int_equal(trp_message_size(message), 0);
    trp_message_destroy(message);
    pb_number(&table, 3, 100);
    pb_double(&limiter, 1, 2);
    pb_double(&limiter, 2, -4);
    pb_double(&limiter, 3, 8);
    pb_number(&limiter, 4, 5);
    pb_number(&stats, 2, 9);
    pb_part(&limiter, 5, &stats);
    pb_part(&limiter, 6, &stats);
    pb_part(&table, 5, &limiter);
    if (peer->signature) {
        uint8_t bytes[512];
        trp_bytes signature = hex_bytes(peer->signature, bytes);
        pb_bytes(&table, 6, signature.data, signature.size);
    }
    char longest[255];
    memset(longest, 'o', sizeof longest);
    pb_number(&table, 4, 3);
    pb_number(&table, 7, 6);
    pb_bytes(&table, 8, "t", 1);
    pb_number(&table, 9, 4);
    pb_number(&table, 10, 2);
    pb_number(&table, 11, 5);
    pb_part(&info, 2, &table);
    pb_bytes(&table, 8, longest, sizeof longest);
    pb_part(&info, 2, &table);
    send_buffer(call, &info);
    buffer_cleanup(&info);
    trp_server_call_finish(call, TRP_OK, NULL);
}

static inline void answer(trp_server_call *call, bool fail)
{
    if (fail) {
        trp_server_call_finish(call, TRP_NOT_FOUND, "Priority table gone was not found");
        return;
    }
    trp_server_call_send(call, trp_message_create(0));
    trp_server_call_finish(call, TRP_OK, NULL);
}

static inline void mutate_received(void *service, trp_server_call *call, trp_message *message)
{
    struct peer *peer = service;
    static char table[16];
    trp_bytes bytes = {trp_message_data(message), trp_message_size(message)};
    assert_int_equal(wire_mutate_request_decode(bytes, &peer->mutated), TRP_OK);
    memset(table, 0, sizeof table);
    memcpy(table, peer->mutated.table.data, peer->mutated.table.size);
    trp_message_destroy(message);
    peer->mutations++;
    if (peer->mute)
        peer->unanswered[peer->unanswered_count++] = call;
    else
        answer(call, strcmp(table, "gone") == 0);
}

static inline void answer_all(void *service)
{
    struct peer *peer = service;
    for (uint32_t i = 0; i < peer->unanswered_count; i++)
        if (peer->unanswered[i])
            answer(peer->unanswered[i], false);
    peer->unanswered_count = 0;
}

static inline void reset_received(void *service, trp_server_call *call, trp_message *message)
{
    struct peer *peer = service;
    const uint8_t *data = trp_message_data(message);
    assert_int_equal(data[0], 0x0a);
    memcpy(peer->reset, data + 2, data[1]);
    trp_message_destroy(message);
    answer(call, strcmp(peer->reset, "gone") == 0);
}

static const trp_raw_method methods[] = {
    {.path = "/deepmind.reverb.ReverbService/SampleStream",
     .opened = sample_opened,
     .received = sample_received,
     .half_closed = finish_ok,
     .closed = sample_closed},
    {.path = "/deepmind.reverb.ReverbService/ServerInfo",
     .opened = unary_opened,
     .received = info_received,
     .half_closed = unary_half_closed,
     .closed = unary_closed},
    {.path = "/deepmind.reverb.ReverbService/MutatePriorities",
     .opened = unary_opened,
     .received = mutate_received,
     .half_closed = unary_half_closed,
     .closed = unary_closed},
    {.path = "/deepmind.reverb.ReverbService/Reset",
     .opened = unary_opened,
     .received = reset_received,
     .half_closed = unary_half_closed,
     .closed = unary_closed},
};

/* ---- fixtures -------------------------------------------------------------------------------- */

static inline struct peer *peer_create(bool local)
{
    struct peer *peer = xcalloc(1, sizeof *peer);
    peer->available = 1000000;
    peer->per_message = 3;
    mutex_init(&peer->mutex);
    cond_init(&peer->changed);
    assert_int_equal(trp_server_create(&peer->server, NULL), TRP_OK);
    assert_int_equal(trp_server_add_raw(peer->server, methods, 4, peer, NULL), TRP_OK);
    if (local) {
        peer->channel = trp_channel_create_local(peer->server);
        return peer;
    }
    assert_int_equal(trp_server_start(peer->server), TRP_OK);
    assert_int_equal(trp_channel_create(&peer->channel, trp_server_address(peer->server), NULL),
                     TRP_OK);
    return peer;
}

static inline int setup_remote(void **state)
{
    *state = peer_create(false);
    return 0;
}

static inline int setup_local(void **state)
{
    *state = peer_create(true);
    return 0;
}

static inline int teardown(void **state)
{
    struct peer *peer = *state;
    trp_channel_destroy(peer->channel);
    trp_server_destroy(peer->server);
    wire_mutate_request_cleanup(&peer->mutated);
    cond_cleanup(&peer->changed);
    mutex_cleanup(&peer->mutex);
    free(peer);
    return 0;
}

#define BOTH(test)                                                                                 \
    cmocka_unit_test_setup_teardown(test, setup_remote, teardown),                                 \
        cmocka_unit_test_setup_teardown(test, setup_local, teardown)

#endif
