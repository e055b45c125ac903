/* Long bytes of a reply: they are sent from where the handler has them, and come where the caller
 * wants them, over a socket as in a process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/rpc.h>
#include "core/alloc.h"
#include "rpc/call_ring.h"
#include "rpc/limits.h"
#include "rpc_test.pb-c.h"
#include "tests/core/patience.h"

enum { LONG = RPC_LONG_BYTES_MIN, NUMBERS = 40 * LONG, MESSAGE_MAX = 30 * LONG };

typedef Troupe__Test__Everything everything;

/* Answers with as many bytes as it is asked for, which it lends. */
struct lender {
    Troupe__Test__Test_Service service;
    trp_server *server;
    trp_channel *near, *far;
    uint8_t *bytes; /* [NUMBERS] */
    _Atomic int lent, twice, ended;
    _Atomic int ended_early; /* before the closure returned */
};

static void lender_end(void *arg)
{
    struct lender *lender = arg;
    atomic_fetch_add(&lender->ended, 1);
}

static void lender_echo(Troupe__Test__Test_Service *service, const everything *request,
                        Troupe__Test__Everything_Closure closure, void *data)
{
    struct lender *lender = (struct lender *)service;
    everything reply = TROUPE__TEST__EVERYTHING__INIT;
    reply.number = request->number;
    reply.data = (ProtobufCBinaryData){(size_t)request->number, lender->bytes};
    int ended = atomic_load(&lender->ended);
    bool lends = trp_call_lend((trp_bytes){lender->bytes, NUMBERS}, lender_end, lender);
    atomic_fetch_add(&lender->lent, lends);
    atomic_fetch_add(&lender->twice,
                     trp_call_lend((trp_bytes){lender->bytes, 1}, lender_end, lender));
    closure(&reply, data);
    if (request->flag) /* nobody took it over */
        atomic_fetch_add(&lender->ended_early, atomic_load(&lender->ended) != ended);
}

static void lender_wait(Troupe__Test__Test_Service *service, const Troupe__Test__Number *request,
                        Troupe__Test__Number_Closure closure, void *data)
{
    (void)service;
    Troupe__Test__Number reply = TROUPE__TEST__NUMBER__INIT;
    reply.value = request->value;
    struct deadline deadline = patience();
    while (request->value == 0 && !trp_call_cancelled() &&
           !deadline_passed(deadline, &clock_monotonic))
        poll(NULL, 0, 1);
    closure(&reply, data);
}

static int setup_lender(void **state)
{
    struct lender *lender = xcalloc(1, sizeof *lender);
    lender->service = (Troupe__Test__Test_Service){
        .base = TROUPE__TEST__TEST__BASE_INIT, .echo = lender_echo, .wait = lender_wait};
    lender->bytes = xmalloc(NUMBERS);
    for (size_t i = 0; i < NUMBERS; i++)
        lender->bytes[i] = (uint8_t)(i * 7 + i / 255);
    const trp_server_options options = {.max_message_bytes = MESSAGE_MAX};
    if (trp_server_create(&lender->server, &options) != TRP_OK ||
        trp_server_add(lender->server, &lender->service.base, NULL) != TRP_OK ||
        trp_server_start(lender->server) != TRP_OK ||
        trp_channel_create(&lender->far, trp_server_address(lender->server), NULL) != TRP_OK)
        return 1;
    lender->near = trp_channel_create_local(lender->server);
    *state = lender;
    return 0;
}

static int teardown_lender(void **state)
{
    struct lender *lender = *state;
    trp_channel_destroy(lender->near);
    trp_channel_destroy(lender->far);
    trp_server_destroy(lender->server);
    free(lender->bytes);
    free(lender);
    return 0;
}

static trp_status ask(trp_channel *channel, size_t size, bool flag, trp_reply_room *room,
                      everything **reply)
{
    ProtobufCService *service;
    ProtobufCMessage *message = NULL;
    everything request = TROUPE__TEST__EVERYTHING__INIT;
    request.number = (int64_t)size;
    request.flag = flag;
    assert_int_equal(trp_channel_service(channel, &troupe__test__test__descriptor, &service),
                     TRP_OK);
    trp_status status =
        trp_call(service, "Echo", &request.base, &message, &(trp_call_options){.room = room});
    *reply = (everything *)message;
    return status;
}

/* gRPC lets go of what it has sent when it likes. */
static void wait_for_ends(struct lender *lender)
{
    struct deadline deadline = patience();
    while (atomic_load(&lender->ended) < atomic_load(&lender->lent))
        look_again_soon(deadline, "what was lent");
    assert_int_equal(atomic_load(&lender->ended), atomic_load(&lender->lent));
    assert_int_equal(atomic_load(&lender->twice), 0);
}

static void what_was_lent_arrives_and_comes_back_once(void **state)
{
    struct lender *lender = *state;
    static const size_t sizes[] = {0, 1, LONG - 1, LONG, 5 * LONG + 3, 20 * LONG};
    trp_channel *channels[] = {lender->near, lender->far};
    for (size_t i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) {
        everything *reply;
        size_t size = sizes[i / 2];
        assert_int_equal(ask(channels[i % 2], size, false, NULL, &reply), TRP_OK);
        assert_int_equal(reply->data.len, size);
        if (size > 0)
            assert_memory_equal(reply->data.data, lender->bytes, size);
        troupe__test__everything__free_unpacked(reply, NULL);
        wait_for_ends(lender);
    }
}

static void what_is_copied_comes_back_behind_the_closure(void **state)
{
    struct lender *lender = *state;
    everything *reply;
    assert_int_equal(ask(lender->near, 2 * LONG, true, NULL, &reply), TRP_OK);
    troupe__test__everything__free_unpacked(reply, NULL);
    assert_int_equal(ask(lender->far, LONG - 1, true, NULL, &reply), TRP_OK);
    troupe__test__everything__free_unpacked(reply, NULL);
    assert_int_equal(atomic_load(&lender->ended_early), 0);
    wait_for_ends(lender);
}

static void a_lent_reply_that_is_refused_comes_back(void **state)
{
    struct lender *lender = *state;
    everything *reply;
    assert_int_equal(ask(lender->far, NUMBERS, false, NULL, &reply), TRP_RESOURCE_EXHAUSTED);
    wait_for_ends(lender);
}

static void nobody_lends_outside_of_a_call(void **state)
{
    (void)state;
    assert_false(trp_call_lend((trp_bytes){NULL, 0}, lender_end, NULL));
}

static void long_bytes_come_into_the_callers_room(void **state)
{
    struct lender *lender = *state;
    static const size_t sizes[] = {1, LONG, 9 * LONG + 1, 10 * LONG, 10 * LONG + 1};
    trp_channel *channels[] = {lender->near, lender->far};
    uint8_t *memory = xmalloc(10 * LONG);
    for (size_t i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) {
        size_t size = sizes[i / 2];
        bool fits = i % 2 == 1 && size >= LONG && size <= 10 * LONG;
        trp_reply_room room = {
            .field = "data", .bytes = memory, .size = 10 * LONG, .given = SIZE_MAX};
        everything *reply;
        memset(memory, 0, 10 * LONG);
        assert_int_equal(ask(channels[i % 2], size, false, &room, &reply), TRP_OK);
        assert_int_equal(room.given, fits ? size : 0);
        assert_int_equal(reply->data.len, fits ? 0 : size);
        assert_memory_equal(fits ? memory : reply->data.data, lender->bytes, size);
        troupe__test__everything__free_unpacked(reply, NULL);
    }
    trp_reply_room room = {.field = "data", .bytes = memory, .size = 10 * LONG, .given = 5};
    everything *reply;
    assert_int_equal(ask(lender->far, NUMBERS, false, &room, &reply), TRP_RESOURCE_EXHAUSTED);
    assert_int_equal(room.given, 0);
    free(memory);
}

static trp_future *start_wait(trp_channel *channel, int64_t value)
{
    ProtobufCService *service;
    Troupe__Test__Number request = TROUPE__TEST__NUMBER__INIT;
    request.value = value;
    assert_int_equal(trp_channel_service(channel, &troupe__test__test__descriptor, &service),
                     TRP_OK);
    assert_int_equal(trp_service_is_remote(service),
                     strcmp(trp_channel_address(channel), "in-process") != 0);
    return trp_call_async(service, "Wait", &request.base, NULL);
}

static void a_future_that_is_waited_for_ends_with_a_stop(void **state)
{
    struct lender *lender = *state;
    trp_channel *channels[] = {lender->near, lender->far};
    for (size_t i = 0; i < 2; i++) {
        trp_stop *stop = trp_stop_create();
        ProtobufCMessage *reply = NULL;
        assert_int_equal(trp_future_finish(start_wait(channels[i], 7), stop, &reply), TRP_OK);
        assert_int_equal(((Troupe__Test__Number *)reply)->value, 7);
        protobuf_c_message_free_unpacked(reply, NULL);
        trp_stop_request(stop);
        assert_int_equal(trp_future_finish(start_wait(channels[i], 0), stop, NULL), TRP_CANCELLED);
        trp_stop_destroy(stop);
    }
}

/* ---- a ring of calls ------------------------------------------------------------------------- */

static void ask_in_ring(struct call_ring *ring, ProtobufCService *service, size_t size, void *to)
{
    everything request = TROUPE__TEST__EVERYTHING__INIT;
    trp_reply_room room = {.field = "data", .bytes = to, .size = size};
    request.number = (int64_t)size;
    call_ring_ask(ring, service, "Echo", &request.base,
                  &(trp_call_options){.room = to ? &room : NULL});
}

/* Each in its place, with the next ones under way. */
static void parts_of_a_ring_come_in_their_order(void **state)
{
    struct lender *lender = *state;
    enum { PARTS = 3 * RPC_RING_CALLS + 1 };
    uint8_t *bytes = xcalloc(PARTS, 3 * LONG);
    ProtobufCService *service;
    struct call_ring ring = {.count = 0};
    assert_int_equal(trp_channel_service(lender->far, &troupe__test__test__descriptor, &service),
                     TRP_OK);
    for (size_t asked = 0, taken = 0; taken < PARTS; taken++) {
        struct ring_call call;
        ProtobufCMessage *reply = NULL;
        for (; asked < PARTS && call_ring_has_room(&ring); asked++)
            ask_in_ring(&ring, service, LONG + asked, bytes + asked * 3 * LONG);
        assert_int_equal(ring.count,
                         PARTS - taken < RPC_RING_CALLS ? PARTS - taken : RPC_RING_CALLS);
        assert_int_equal(call_ring_take(&ring, NULL, &call, &reply), TRP_OK);
        assert_int_equal(((everything *)reply)->number, LONG + taken);
        assert_ptr_equal(call.room.bytes, bytes + taken * 3 * LONG);
        assert_int_equal(call.room.given, LONG + taken);
        assert_memory_equal(call.room.bytes, lender->bytes, LONG + taken);
        assert_true(call.asked_ns > 0);
        protobuf_c_message_free_unpacked(reply, NULL);
    }
    assert_int_equal(ring.count, 0);
    free(bytes);
}

/* Nobody writes to the room of calls that were dropped. */
static void a_ring_that_is_dropped_is_empty(void **state)
{
    struct lender *lender = *state;
    uint8_t *bytes = xcalloc(RPC_RING_CALLS, LONG), *zeros = xcalloc(1, LONG);
    ProtobufCService *service;
    ProtobufCMessage *reply = NULL;
    struct call_ring ring = {.count = 0};
    assert_int_equal(trp_channel_service(lender->far, &troupe__test__test__descriptor, &service),
                     TRP_OK);
    for (size_t i = 0; i < RPC_RING_CALLS; i++)
        ask_in_ring(&ring, service, LONG, bytes + i * LONG);
    assert_int_equal(call_ring_take(&ring, NULL, NULL, &reply), TRP_OK);
    protobuf_c_message_free_unpacked(reply, NULL);
    call_ring_drop(&ring);
    assert_int_equal(ring.count, 0);
    assert_memory_equal(bytes, lender->bytes, LONG);
    for (size_t i = 1; i < RPC_RING_CALLS; i++)
        assert_memory_equal(bytes + i * LONG, zeros, LONG);
    free(bytes);
    free(zeros);
    ask_in_ring(&ring, service, LONG + 9, NULL);
    assert_int_equal(call_ring_take(&ring, NULL, NULL, &reply), TRP_OK);
    assert_int_equal(((everything *)reply)->number, LONG + 9);
    protobuf_c_message_free_unpacked(reply, NULL);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup_lender, teardown_lender)
    const struct CMUnitTest tests[] = {
        TEST(what_was_lent_arrives_and_comes_back_once),
        TEST(what_is_copied_comes_back_behind_the_closure),
        TEST(a_lent_reply_that_is_refused_comes_back),
        cmocka_unit_test(nobody_lends_outside_of_a_call),
        TEST(long_bytes_come_into_the_callers_room),
        TEST(a_future_that_is_waited_for_ends_with_a_stop),
        TEST(parts_of_a_ring_come_in_their_order),
        TEST(a_ring_that_is_dropped_is_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
