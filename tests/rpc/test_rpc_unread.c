/* Clients that ask on many streams and do not read what comes: what a server keeps for them, and
 * what that is to those who read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <unistd.h>

#include <troupe/rpc.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "core/thread.h"
#include "echo_service.h"
#include "http2_peer.h"
#include "tests/core/captured.h"
#include "tests/heap.h"

enum {
    WAIT_MS = 20000,
    UNREAD_MS = 200,
    IN_FLIGHT_BYTES = 16 << 20, /* half of it for streams */
    QUEUED_MAX = 3,
};

static const int64_t PROMPT_NS = 5000000000;

/* ---- a server whose streams never end -------------------------------------------------------- */

struct flood {
    char dir[64], address[90];
    trp_server *server;
    size_t bytes; /* of a message */
    uint32_t closed;
    struct mutex mutex;
    struct cond changed;
    uint32_t asked; /* streams that have been sent what there was room for */
};

static void flood_send(void *arg, trp_server_call *call)
{
    const struct flood *flood = arg;
    while (trp_server_call_queued(call) < (size_t)QUEUED_MAX && trp_server_call_room(call)) {
        trp_message *message = trp_message_create(flood->bytes);
        memset(trp_message_data(message), 7, flood->bytes);
        trp_server_call_send(call, message);
    }
}

static void flood_received(void *arg, trp_server_call *call, trp_message *message)
{
    struct flood *flood = arg;
    trp_message_destroy(message);
    flood_send(arg, call);
    mutex_lock(&flood->mutex);
    flood->asked++;
    cond_signal(&flood->changed);
    mutex_unlock(&flood->mutex);
}

static void flood_opened(void *arg, trp_server_call *call)
{
    (void)arg;
    trp_server_call_read(call);
}

static void flood_half_closed(void *arg, trp_server_call *call)
{
    (void)arg;
    trp_server_call_finish(call, TRP_OK, NULL);
}

static void flood_closed(void *arg, trp_server_call *call)
{
    struct flood *flood = arg;
    (void)call;
    flood->closed++;
}

static const trp_raw_method flood_method = {.path = "/test.Raw/Flood",
                                            .opened = flood_opened,
                                            .received = flood_received,
                                            .half_closed = flood_half_closed,
                                            .drained = flood_send,
                                            .closed = flood_closed};

static int start(void **state, int64_t unread_ms)
{
    struct flood *flood = xcalloc(1, sizeof *flood);
    strcpy(flood->dir, "/tmp/troupe-unread-XXXXXX");
    if (!mkdtemp(flood->dir))
        return -1;
    snprintf(flood->address, sizeof flood->address, "unix:%s/s", flood->dir);
    trp_server_options options = {.address = flood->address,
                                  .in_flight_bytes = IN_FLIGHT_BYTES,
                                  .max_message_bytes = IN_FLIGHT_BYTES / 4,
                                  .unread_timeout_ms = unread_ms};
    mutex_init(&flood->mutex);
    cond_init(&flood->changed);
    *state = flood;
    return trp_server_create(&flood->server, &options) == TRP_OK &&
                   trp_server_add_raw(flood->server, &flood_method, 1, flood, NULL) == TRP_OK &&
                   trp_server_add_raw(flood->server, &echo_method, 1, &flood->closed, NULL) ==
                       TRP_OK &&
                   trp_server_start(flood->server) == TRP_OK
               ? 0
               : -1;
}

static int setup(void **state)
{
    return start(state, UNREAD_MS);
}

/* Rounds are over before a call that was ended is closed. */
static int setup_impatient(void **state)
{
    return start(state, 1);
}

static int teardown(void **state)
{
    struct flood *flood = *state;
    trp_server_destroy(flood->server);
    cond_cleanup(&flood->changed);
    mutex_cleanup(&flood->mutex);
    assert_int_equal(rmdir(flood->dir), 0);
    free(flood);
    return 0;
}

static uint32_t asked(struct flood *flood)
{
    mutex_lock(&flood->mutex);
    uint32_t count = flood->asked;
    mutex_unlock(&flood->mutex);
    return count;
}

static void await_asked(struct flood *flood, uint32_t count)
{
    struct deadline deadline = deadline_in_ms(&clock_monotonic, WAIT_MS);
    mutex_lock(&flood->mutex);
    while (flood->asked < count)
        assert_true(cond_wait(&flood->changed, &flood->mutex, deadline));
    mutex_unlock(&flood->mutex);
}

/* ---- clients --------------------------------------------------------------------------------- */

/* One that takes 64 KB of each stream and no more. */
static struct peer *connect_still(const struct flood *flood)
{
    return peer_connect(flood->address + strlen("unix:"));
}

static void ask_still(struct flood *flood, struct peer *peer, uint32_t index)
{
    static const uint8_t request[] = {0, 0, 0, 0, 1, 'a'};
    uint32_t before = asked(flood);
    peer_call(peer, index, "/test.Raw/Flood", "identity");
    peer_frame(peer, DATA, 0, 2 * index + 1, request, sizeof request);
    await_asked(flood, before + 1);
}

struct reader {
    trp_channel *channel;
    trp_stream *stream;
};

static struct reader reader_open(const struct flood *flood, const char *path)
{
    struct reader reader;
    trp_message *message = trp_message_create(1);
    trp_message_data(message)[0] = 'a';
    assert_int_equal(trp_channel_create(&reader.channel, flood->address, NULL), TRP_OK);
    assert_int_equal(trp_stream_open(&reader.stream, reader.channel, path, NULL), TRP_OK);
    assert_int_equal(trp_stream_send(reader.stream, message, WAIT_MS), TRP_OK);
    return reader;
}

static trp_status receive(struct reader reader)
{
    trp_message *message;
    trp_status status = trp_stream_receive(reader.stream, &message, WAIT_MS);
    trp_message_destroy(message);
    return status;
}

static void reader_close(struct reader reader)
{
    trp_stream_destroy(reader.stream);
    trp_channel_destroy(reader.channel);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void streams_that_nobody_reads_take_a_bounded_memory_and_hold_nobody_up(void **state)
{
    struct flood *flood = *state;
    flood->bytes = 1 << 20;
    size_t before = heap_bytes();
    struct peer *peer = connect_still(flood);
    for (uint32_t i = 0; i < PEER_STREAMS; i++)
        ask_still(flood, peer, i);
    size_t most = heap_bytes();
    int64_t begin = clock_now_ns(&clock_monotonic);
    struct reader reader = reader_open(flood, "/test.Raw/Flood");
    assert_int_equal(receive(reader), TRP_OK);
    int64_t first_ns = clock_now_ns(&clock_monotonic) - begin;
    for (uint32_t i = 0; i < 50; i++)
        assert_int_equal(receive(reader), TRP_OK);
    reader_close(reader);
    peer_close(peer);
    assert_true(most < before + IN_FLIGHT_BYTES);
    assert_true(first_ns < PROMPT_NS);
}

/* Three connections that have a message each leave no room for a fourth. */
static void who_stands_still_ends_when_another_needs_the_room(void **state)
{
    enum { STILL = 3 };
    struct flood *flood = *state;
    struct peer *peers[STILL];
    uint32_t ended = 0;
    flood->bytes = 3 << 20;
    for (uint32_t i = 0; i < STILL; i++) {
        peers[i] = connect_still(flood);
        ask_still(flood, peers[i], 0);
    }
    struct reader reader = reader_open(flood, "/test.Raw/Flood");
    for (uint32_t i = 0; i < 20; i++)
        assert_int_equal(receive(reader), TRP_OK);
    reader_close(reader);
    for (uint32_t i = 0; i < STILL; i++) {
        while (peers[i]->status < 0 && peer_listen(peers[i], 10))
            continue;
        assert_true(peers[i]->status < 0 || peers[i]->status == TRP_RESOURCE_EXHAUSTED);
        ended += peers[i]->status >= 0;
        peer_close(peers[i]);
    }
    assert_int_equal(ended, 1);
}

static void who_is_ended_is_ended_once(void **state)
{
    enum { STREAMS = 20, READS = 200 };
    struct flood *flood = *state;
    struct captured captured;
    flood->bytes = 1 << 20;
    capture_begin(&captured); /* they need room themselves */
    struct peer *peer = connect_still(flood);
    for (uint32_t i = 0; i < STREAMS; i++)
        ask_still(flood, peer, i);
    struct reader reader = reader_open(flood, "/test.Raw/Flood");
    for (uint32_t i = 0; i < READS && receive(reader) == TRP_OK; i++)
        continue; /* it may be too slow itself, for rounds that are so short */
    reader_close(reader);
    peer_close(peer);
    capture_end(&captured);
    assert_in_range(captured_count(&captured, "call ended peer="), 1, STREAMS + 1);
}

/* One connection, whose other streams have all of its share. */
static void a_stream_that_reads_has_its_turn_among_those_that_do_not(void **state)
{
    enum { STILL = 8, FRAMES = 400 }; /* 6 MB */
    struct flood *flood = *state;
    uint8_t window[4];
    flood->bytes = 1 << 20;
    struct peer *peer = connect_still(flood);
    for (uint32_t i = 0; i <= STILL; i++)
        ask_still(flood, peer, i);
    write_u32(window, 1 << 30);
    peer_frame(peer, WINDOW_UPDATE, 0, 0, window, sizeof window);
    peer_frame(peer, WINDOW_UPDATE, 0, 2 * STILL + 1, window, sizeof window);
    while (peer->answers < FRAMES && peer_listen(peer, WAIT_MS))
        continue;
    assert_true(peer->answers >= FRAMES);
    peer_close(peer);
}

/* Handlers that never ask: they send back what they are sent. */
static void an_answer_that_was_not_asked_for_ends_its_call_when_all_is_taken(void **state)
{
    enum { BYTES = 1 << 20 };
    struct flood *flood = *state;
    struct peer *peer = connect_still(flood);
    uint8_t *message = xcalloc(1, 5 + BYTES);
    uint32_t calls = 0;
    write_u32(message + 1, BYTES);
    for (; calls < PEER_STREAMS && peer->status < 0; calls++) {
        peer_call(peer, calls, "/test.Raw/Echo", "identity");
        peer_send(peer, calls, (trp_bytes){message, 5 + BYTES});
    }
    free(message);
    assert_int_equal(peer->status, TRP_RESOURCE_EXHAUSTED);
    assert_true(calls > IN_FLIGHT_BYTES / BYTES);
    struct reader reader = reader_open(flood, "/test.Raw/Echo");
    assert_int_equal(receive(reader), TRP_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(trp_last_error(), "may leave unread"));
    reader_close(reader);
    peer_close(peer);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(streams_that_nobody_reads_take_a_bounded_memory_and_hold_nobody_up),
        TEST(who_stands_still_ends_when_another_needs_the_room),
        cmocka_unit_test_setup_teardown(who_is_ended_is_ended_once, setup_impatient, teardown),
        TEST(a_stream_that_reads_has_its_turn_among_those_that_do_not),
        TEST(an_answer_that_was_not_asked_for_ends_its_call_when_all_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
