/* A service that is called while its server changes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/rpc.h>
#include "core/thread.h"
#include "rpc_test.pb-c.h"

enum { PATIENCE_MS = 10000, DAWDLE_MS = 20 };

/* ---- a server that adds a number ------------------------------------------------------------- */

struct summand {
    Troupe__Test__Test_Service service;
    int64_t number;
    trp_server *server;
    trp_channel *channel;
    struct mutex mutex; /* guards what follows */
    struct cond changed;
    bool entered, may_leave, left; /* slow() */
};

static void increment(Troupe__Test__Test_Service *service, const Troupe__Test__Number *request,
                      Troupe__Test__Number_Closure closure, void *data)
{
    Troupe__Test__Number reply = TROUPE__TEST__NUMBER__INIT;
    reply.value = request->value + ((struct summand *)service)->number;
    closure(&reply, data);
}

/* Inside until it may leave, and a little longer. */
static void slow(Troupe__Test__Test_Service *service, const Troupe__Test__Number *request,
                 Troupe__Test__Number_Closure closure, void *data)
{
    struct summand *summand = (struct summand *)service;
    struct deadline deadline = deadline_in_ms(&clock_monotonic, PATIENCE_MS);
    mutex_lock(&summand->mutex);
    summand->entered = true;
    cond_broadcast(&summand->changed);
    while (!summand->may_leave && cond_wait(&summand->changed, &summand->mutex, deadline))
        ;
    deadline = deadline_in_ms(&clock_monotonic, DAWDLE_MS);
    while (cond_wait(&summand->changed, &summand->mutex, deadline))
        ;
    summand->left = true;
    mutex_unlock(&summand->mutex);
    closure(request, data);
}

static void summand_start(struct summand *summand, int64_t number, bool local)
{
    *summand = (struct summand){
        .service = {.base = TROUPE__TEST__TEST__BASE_INIT, .increment = increment, .slow = slow},
        .number = number};
    mutex_init(&summand->mutex);
    cond_init(&summand->changed);
    assert_int_equal(trp_server_create(&summand->server, NULL), TRP_OK);
    assert_int_equal(trp_server_add(summand->server, &summand->service.base, NULL), TRP_OK);
    if (local) {
        summand->channel = trp_channel_create_local(summand->server);
        return;
    }
    assert_int_equal(trp_server_start(summand->server), TRP_OK);
    assert_int_equal(trp_channel_create(&summand->channel, trp_server_address(summand->server),
                                        &(trp_channel_options){.fail_fast = true}),
                     TRP_OK);
}

static void summand_end(struct summand *summand)
{
    trp_channel_destroy(summand->channel);
    trp_server_destroy(summand->server);
    cond_cleanup(&summand->changed);
    mutex_cleanup(&summand->mutex);
}

static ProtobufCService *service_of(struct summand *summand)
{
    ProtobufCService *service;
    assert_int_equal(
        trp_channel_service(summand->channel, &troupe__test__test__descriptor, &service), TRP_OK);
    return service;
}

/* ---- callers --------------------------------------------------------------------------------- */

static void keep_value(const ProtobufCMessage *reply, void *value)
{
    *(int64_t *)value = reply ? ((const Troupe__Test__Number *)reply)->value : -1;
}

static int64_t value_of(ProtobufCMessage *reply)
{
    int64_t value = ((const Troupe__Test__Number *)reply)->value;
    protobuf_c_message_free_unpacked(reply, NULL);
    return value;
}

/* 100 and `number`, in all three ways to call. */
static void check_adds(trp_relay *relay, int64_t number)
{
    ProtobufCService *service = trp_relay_service(relay);
    Troupe__Test__Number request = TROUPE__TEST__NUMBER__INIT;
    request.value = 100;
    ProtobufCMessage *reply;
    assert_int_equal(trp_call(service, "Increment", &request.base, &reply, NULL), TRP_OK);
    assert_int_equal(value_of(reply), 100 + number);
    trp_future *future = trp_call_async(service, "Increment", &request.base, NULL);
    assert_int_equal(trp_future_wait(future, -1, &reply), TRP_OK);
    assert_int_equal(value_of(reply), 100 + number);
    trp_future_destroy(future);
    int64_t value = 0;
    troupe__test__test__increment(service, &request, (Troupe__Test__Number_Closure)keep_value,
                                  &value);
    assert_int_equal(value, 100 + number);
}

static void check_nobody(trp_relay *relay)
{
    ProtobufCService *service = trp_relay_service(relay);
    Troupe__Test__Number request = TROUPE__TEST__NUMBER__INIT;
    ProtobufCMessage *reply;
    assert_int_equal(trp_call(service, "Increment", &request.base, &reply, NULL), TRP_UNAVAILABLE);
    assert_string_equal(trp_last_error(), "nobody serves troupe.test.Test for now");
    trp_future *future = trp_call_async(service, "Increment", &request.base, NULL);
    assert_int_equal(trp_future_wait(future, -1, &reply), TRP_UNAVAILABLE);
    trp_future_destroy(future);
}

static void calls_go_where_the_relay_was_last_set(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        struct summand one, two;
        summand_start(&one, 1, kind == 0);
        summand_start(&two, 2, kind == 0);
        trp_relay *relay = trp_relay_create(&troupe__test__test__descriptor);
        check_nobody(relay);
        trp_relay_set(relay, service_of(&one));
        check_adds(relay, 1);
        trp_relay_set(relay, service_of(&two));
        check_adds(relay, 2);
        trp_relay_set(relay, NULL);
        check_nobody(relay);
        trp_relay_destroy(relay);
        summand_end(&one);
        summand_end(&two);
    }
}

static void a_server_that_is_gone_is_left_behind(void **state)
{
    (void)state;
    struct summand one, two;
    summand_start(&one, 1, false);
    summand_start(&two, 2, false);
    trp_relay *relay = trp_relay_create(&troupe__test__test__descriptor);
    trp_relay_set(relay, service_of(&one));
    check_adds(relay, 1);
    trp_server_stop(one.server, 0);
    Troupe__Test__Number request = TROUPE__TEST__NUMBER__INIT;
    assert_int_equal(trp_call(trp_relay_service(relay), "Increment", &request.base, NULL, NULL),
                     TRP_UNAVAILABLE);
    trp_relay_set(relay, service_of(&two));
    check_adds(relay, 2);
    trp_relay_destroy(relay);
    summand_end(&one);
    summand_end(&two);
}

static void call_slow(void *relay)
{
    Troupe__Test__Number request = TROUPE__TEST__NUMBER__INIT;
    assert_int_equal(trp_call(trp_relay_service(relay), "Slow", &request.base, NULL, NULL), TRP_OK);
}

static bool has_left(struct summand *summand)
{
    mutex_lock(&summand->mutex);
    bool left = summand->left;
    mutex_unlock(&summand->mutex);
    return left;
}

static void an_object_is_not_left_while_it_is_called(void **state)
{
    (void)state;
    struct summand one, two;
    summand_start(&one, 1, true);
    summand_start(&two, 2, true);
    trp_relay *relay = trp_relay_create(&troupe__test__test__descriptor);
    trp_relay_set(relay, service_of(&one));
    struct thread caller = {0};
    assert_int_equal(thread_start(&caller, "caller", call_slow, relay), TRP_OK);
    struct deadline deadline = deadline_in_ms(&clock_monotonic, PATIENCE_MS);
    mutex_lock(&one.mutex);
    while (!one.entered)
        assert_true(cond_wait(&one.changed, &one.mutex, deadline));
    one.may_leave = true;
    cond_broadcast(&one.changed);
    mutex_unlock(&one.mutex);
    trp_relay_set(relay, service_of(&two));
    assert_true(has_left(&one));
    check_adds(relay, 2);
    thread_stop(&caller);
    trp_relay_destroy(relay);
    summand_end(&one);
    summand_end(&two);
}

static void a_call_that_is_cancelled_is_not_waited_for(void **state)
{
    (void)state;
    struct summand one;
    summand_start(&one, 1, false);
    trp_relay *relay = trp_relay_create(&troupe__test__test__descriptor);
    trp_relay_set(relay, service_of(&one));
    Troupe__Test__Number request = TROUPE__TEST__NUMBER__INIT;
    trp_future *future = trp_call_async(trp_relay_service(relay), "Slow", &request.base, NULL);
    struct deadline deadline = deadline_in_ms(&clock_monotonic, PATIENCE_MS);
    mutex_lock(&one.mutex);
    while (!one.entered)
        assert_true(cond_wait(&one.changed, &one.mutex, deadline));
    mutex_unlock(&one.mutex);
    trp_future_destroy(future);
    assert_false(has_left(&one));
    mutex_lock(&one.mutex);
    one.may_leave = true;
    cond_broadcast(&one.changed);
    mutex_unlock(&one.mutex);
    trp_relay_destroy(relay);
    summand_end(&one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_go_where_the_relay_was_last_set),
        cmocka_unit_test(a_server_that_is_gone_is_left_behind),
        cmocka_unit_test(an_object_is_not_left_while_it_is_called),
        cmocka_unit_test(a_call_that_is_cancelled_is_not_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
