/* Calls of protobuf-c services. One table of cases runs against the object itself, in-process, and
 * against a proxy over a unix socket and over TCP: results and statuses are the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <troupe/log.h>
#include <troupe/rpc.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "core/thread.h"
#include "rpc_test.pb-c.h"

typedef Troupe__Test__Everything everything;
typedef Troupe__Test__Number number;
typedef Troupe__Test__Test_Service test_service;

/* The service under test: generated part first, as protobuf-c casts. */
struct object {
    test_service base;
    _Atomic uint32_t waiting;   /* Wait handlers inside */
    _Atomic uint32_t cancelled; /* Wait handlers that saw a cancellation */
    struct mutex mutex;
    struct cond changed; /* never signalled: Wait's clock */
};

struct net {
    const char *kind;
    char dir[64];
    struct object object;
    trp_server *server;
    trp_channel *channel;
    ProtobufCService *service;
};

/* ---- the handlers ---- */

static void on_echo(test_service *service, const everything *in,
                    Troupe__Test__Everything_Closure done, void *data)
{
    (void)service;
    done(in, data);
}

static void answer(Troupe__Test__Number_Closure done, void *data, int64_t value)
{
    number out = TROUPE__TEST__NUMBER__INIT;
    out.value = value;
    done(&out, data);
}

static void on_increment(test_service *service, const number *in, Troupe__Test__Number_Closure done,
                         void *data)
{
    (void)service;
    answer(done, data, in->value + 1);
}

static void on_fail(test_service *service, const number *in, Troupe__Test__Number_Closure done,
                    void *data)
{
    (void)service;
    trp_fail((trp_status)in->value, "the handler says %d", (int)in->value);
    done(NULL, data);
}

static void busy_until(struct object *object, struct deadline deadline)
{
    mutex_lock(&object->mutex);
    while (!deadline_passed(deadline, &clock_monotonic))
        cond_wait(&object->changed, &object->mutex, deadline);
    mutex_unlock(&object->mutex);
}

static void on_wait(test_service *service, const number *in, Troupe__Test__Number_Closure done,
                    void *data)
{
    struct object *object = (struct object *)service;
    struct deadline deadline = deadline_in_ms(&clock_monotonic, in->value);
    atomic_fetch_add(&object->waiting, 1);
    while (!trp_call_cancelled() && !deadline_passed(deadline, &clock_monotonic))
        busy_until(object, deadline_in_ms(&clock_monotonic, 1));
    if (trp_call_cancelled())
        atomic_fetch_add(&object->cancelled, 1);
    atomic_fetch_sub(&object->waiting, 1);
    answer(done, data, in->value);
}

static void on_slow(test_service *service, const number *in, Troupe__Test__Number_Closure done,
                    void *data)
{
    busy_until((struct object *)service, deadline_in_ms(&clock_monotonic, in->value));
    answer(done, data, in->value);
}

static void on_forgetful(test_service *service, const number *in, Troupe__Test__Number_Closure done,
                         void *data)
{
    (void)service;
    (void)in;
    (void)done;
    (void)data;
}

static void on_twice(test_service *service, const number *in, Troupe__Test__Number_Closure done,
                     void *data)
{
    (void)service;
    answer(done, data, in->value);
    answer(done, data, in->value + 1);
}

static void on_silent(test_service *service, const number *in, Troupe__Test__Number_Closure done,
                      void *data)
{
    (void)service;
    (void)in;
    done(NULL, data);
}

static void on_wrong_type(test_service *service, const number *in,
                          Troupe__Test__Number_Closure done, void *data)
{
    Troupe__Test__Chain chain = TROUPE__TEST__CHAIN__INIT;
    (void)service;
    (void)in;
    done((const number *)(const void *)&chain, data);
}

static void on_time_left(test_service *service, const number *in, Troupe__Test__Number_Closure done,
                         void *data)
{
    (void)service;
    (void)in;
    answer(done, data, trp_call_time_left_ns() / 1000000);
}

static void on_nested(test_service *service, const Troupe__Test__Chain *in,
                      Troupe__Test__Number_Closure done, void *data)
{
    (void)service;
    int64_t depth = 0;
    for (; in; in = in->next)
        depth++;
    answer(done, data, depth);
}

static void (*const on_no_handler)(test_service *, const number *, Troupe__Test__Number_Closure,
                                   void *) = NULL;

/* ---- the nets ---- */

static const char *const blocking[] = {"Wait", NULL};

static ProtobufCService *service_of(trp_channel *channel)
{
    ProtobufCService *service;
    assert_int_equal(trp_channel_service(channel, &troupe__test__test__descriptor, &service),
                     TRP_OK);
    return service;
}

static struct net *net_create(const char *kind, const trp_server_options *given)
{
    struct net *net = xcalloc(1, sizeof *net);
    trp_server_options options = *given;
    char address[100];
    net->kind = kind;
    strcpy(net->dir, "/tmp/troupe-call-XXXXXX");
    assert_non_null(mkdtemp(net->dir));
    snprintf(address, sizeof address, "unix:%s/s", net->dir);
    options.address = strcmp(kind, "unix") == 0 ? address : NULL;
    net->object.base = (test_service)TROUPE__TEST__TEST__INIT(on_);
    mutex_init(&net->object.mutex);
    cond_init(&net->object.changed);
    assert_int_equal(trp_server_create(&net->server, &options), TRP_OK);
    assert_int_equal(trp_server_add(net->server, &net->object.base.base, blocking), TRP_OK);
    if (strcmp(kind, "local") == 0) {
        net->channel = trp_channel_create_local(net->server);
    } else {
        assert_int_equal(trp_server_start(net->server), TRP_OK);
        assert_int_equal(trp_channel_create(&net->channel, trp_server_address(net->server),
                                            &(trp_channel_options){.connect_timeout_ms = 500}),
                         TRP_OK);
    }
    net->service = service_of(net->channel);
    return net;
}

static void net_destroy(struct net *net)
{
    char path[80];
    trp_channel_destroy(net->channel);
    trp_server_destroy(net->server);
    cond_cleanup(&net->object.changed);
    mutex_cleanup(&net->object.mutex);
    snprintf(path, sizeof path, "%s/s", net->dir);
    unlink(path);
    assert_int_equal(rmdir(net->dir), 0);
    free(net);
}

/* ---- calling ---- */

static trp_status call_number(ProtobufCService *service, const char *method, int64_t in,
                              int64_t *out, const trp_call_options *options)
{
    number request = TROUPE__TEST__NUMBER__INIT;
    request.value = in;
    ProtobufCMessage *reply;
    trp_status status = trp_call(service, method, &request.base, &reply, options);
    assert_int_equal(reply != NULL, status == TRP_OK);
    if (reply) {
        if (out)
            *out = ((number *)reply)->value;
        protobuf_c_message_free_unpacked(reply, NULL);
    }
    return status;
}

static void expect_call(struct net *net, const char *method, int64_t in, trp_status expected,
                        const char *text)
{
    trp_status status = call_number(net->service, method, in, NULL, NULL);
    if (status != expected || !strstr(trp_last_error(), text))
        fail_msg("%s %s: %s \"%s\"", net->kind, method, trp_status_name(status), trp_last_error());
}

static int64_t now_ms(void)
{
    return clock_now_ns(&clock_monotonic) / 1000000;
}

/* ---- the cases ---- */

static void fill(everything *in)
{
    static char *words[] = {"one", "", "three"};
    static double values[] = {1.5, -2, 1e300};
    static int32_t numbers[] = {7, -8};
    static Troupe__Test__Child child, branch, *children[2] = {&child, &branch};
    static ProtobufCBinaryData blobs[2] = {{3, (uint8_t *)"a\0b"}, {0, NULL}};
    static Troupe__Test__Everything__CountsEntry entry, *counts[1] = {&entry};
    child = (Troupe__Test__Child)TROUPE__TEST__CHILD__INIT;
    child.name = "child";
    child.n_numbers = 2;
    child.numbers = numbers;
    branch = (Troupe__Test__Child)TROUPE__TEST__CHILD__INIT;
    entry = (Troupe__Test__Everything__CountsEntry)TROUPE__TEST__EVERYTHING__COUNTS_ENTRY__INIT;
    entry.key = "key";
    entry.value = -5;
    in->number = INT64_MIN;
    in->text = "text";
    in->data = (ProtobufCBinaryData){4, (uint8_t *)"\1\0\2\3"};
    in->n_words = 3;
    in->words = words;
    in->n_values = 3;
    in->values = values;
    in->child = &child;
    in->n_children = 2;
    in->children = children;
    in->flag = 1;
    in->n_blobs = 2;
    in->blobs = blobs;
    in->n_counts = 1;
    in->counts = counts;
    in->choice_case = TROUPE__TEST__EVERYTHING__CHOICE_BRANCH;
    in->branch = &child;
}

/* Equal when they pack to the same bytes. */
static void assert_same(const ProtobufCMessage *a, const ProtobufCMessage *b)
{
    size_t size = protobuf_c_message_get_packed_size(a);
    assert_int_equal(size, protobuf_c_message_get_packed_size(b));
    uint8_t *bytes = xmalloc(2 * size + 1);
    protobuf_c_message_pack(a, bytes);
    protobuf_c_message_pack(b, bytes + size);
    assert_memory_equal(bytes, bytes + size, size);
    free(bytes);
}

static void a_message_of_every_kind_comes_back(struct net *net)
{
    everything in = TROUPE__TEST__EVERYTHING__INIT;
    for (uint32_t round = 0; round < 4; round++) {
        if (round == 1) {
            fill(&in);
        } else if (round == 2) {
            in.choice_case = TROUPE__TEST__EVERYTHING__CHOICE_LABEL;
            in.label = "label";
        } else if (round == 3) {
            in.choice_case = TROUPE__TEST__EVERYTHING__CHOICE_CODE;
            in.code = 4000000000U;
        }
        ProtobufCMessage *reply;
        trp_status status = trp_call(net->service, "Echo", &in.base, &reply, NULL);
        if (status != TRP_OK)
            fail_msg("%s: %s", net->kind, trp_last_error());
        assert_same(&in.base, reply);
        protobuf_c_message_free_unpacked(reply, NULL);
    }
}

static void the_reply_is_the_callers_own(struct net *net)
{
    char text[] = "mine";
    everything in = TROUPE__TEST__EVERYTHING__INIT;
    in.text = text;
    ProtobufCMessage *reply;
    assert_int_equal(trp_call(net->service, "Echo", &in.base, &reply, NULL), TRP_OK);
    text[0] = 'X';
    assert_string_equal(((everything *)reply)->text, "mine");
    protobuf_c_message_free_unpacked(reply, NULL);
    assert_int_equal(trp_call(net->service, "Echo", &in.base, NULL, NULL), TRP_OK);
}

static void every_status_arrives_with_its_message(struct net *net)
{
    for (int code = 1; code <= 16; code++) {
        char text[40];
        snprintf(text, sizeof text, "the handler says %d", code);
        assert_int_equal(call_number(net->service, "Fail", code, NULL, NULL), code);
        assert_string_equal(trp_last_error(), text);
    }
}

static void a_missing_handler_is_unimplemented(struct net *net)
{
    expect_call(net, "NoHandler", 0, TRP_UNIMPLEMENTED,
                "/troupe.test.Test/NoHandler has no handler");
}

static void an_unknown_method_is_unimplemented(struct net *net)
{
    expect_call(net, "Fly", 0, TRP_UNIMPLEMENTED, "/troupe.test.Test/Fly");
}

static void a_request_of_another_type_is_refused(struct net *net)
{
    Troupe__Test__Chain chain = TROUPE__TEST__CHAIN__INIT;
    assert_int_equal(trp_call(net->service, "Increment", &chain.base, NULL, NULL),
                     TRP_INVALID_ARGUMENT);
}

static void a_handler_that_does_not_answer_is_internal(struct net *net)
{
    expect_call(net, "Forgetful", 0, TRP_INTERNAL,
                "/troupe.test.Test/Forgetful returned without calling its closure");
}

static void a_second_answer_is_ignored(struct net *net)
{
    int64_t out;
    trp_log_set_level(TRP_ERROR + 1);
    assert_int_equal(call_number(net->service, "Twice", 5, &out, NULL), TRP_OK);
    trp_log_set_level(TRP_INFO);
    assert_int_equal(out, 5);
}

static void a_failure_without_status_is_internal(struct net *net)
{
    expect_call(net, "Silent", 0, TRP_INTERNAL, "the handler failed without a status");
    /* nor does an older failure of this thread count */
    expect_call(net, "Fail", TRP_NOT_FOUND, TRP_NOT_FOUND, "");
    expect_call(net, "Silent", 0, TRP_INTERNAL, "the handler failed without a status");
}

static void an_answer_of_another_type_is_internal(struct net *net)
{
    expect_call(net, "WrongType", 0, TRP_INTERNAL, "troupe.test.Chain");
}

static void the_handler_sees_the_deadline(struct net *net)
{
    int64_t left;
    assert_int_equal(call_number(net->service, "TimeLeft", 0, &left, NULL), TRP_OK);
    assert_in_range(left, 20000, 31000); /* gRPC rounds deadlines up */
    assert_int_equal(
        call_number(net->service, "TimeLeft", 0, &left, &(trp_call_options){.timeout_ms = 500}),
        TRP_OK);
    assert_in_range(left, 1, 600);
    assert_int_equal(
        call_number(net->service, "TimeLeft", 0, &left, &(trp_call_options){.timeout_ms = -1}),
        TRP_OK);
    assert_in_range(left, INT64_C(1) << 40, INT64_MAX);
    assert_int_equal(trp_call_time_left_ns(), INT64_MAX);
    assert_false(trp_call_cancelled());
}

static void a_late_handler_exceeds_the_deadline(struct net *net)
{
    assert_int_equal(
        call_number(net->service, "Slow", 60, NULL, &(trp_call_options){.timeout_ms = 20}),
        TRP_DEADLINE_EXCEEDED);
    assert_non_null(strstr(trp_last_error(), "/troupe.test.Test/Slow"));
}

static void a_blocking_method_returns_on_time(struct net *net)
{
    int64_t started = now_ms();
    assert_int_equal(
        call_number(net->service, "Wait", 5000, NULL, &(trp_call_options){.timeout_ms = 30}),
        TRP_DEADLINE_EXCEEDED);
    assert_in_range(now_ms() - started, 15, 2000); /* gRPC's clock may be some milliseconds old */
    assert_non_null(strstr(trp_last_error(), "/troupe.test.Test/Wait"));
}

/* As in deterministic runs: its handler sees that nobody waits any more. */
static void a_blocking_method_returns_on_time_with_turns(struct net *net)
{
    struct turns *turns = turns_create(1);
    turns_join(turns, 0);
    a_blocking_method_returns_on_time(net);
    turns_leave();
    turns_destroy(turns);
}

static void a_cancelled_call_ends_and_its_handler_knows(struct net *net)
{
    trp_future *future;
    number request = TROUPE__TEST__NUMBER__INIT;
    request.value = 20000;
    int64_t started = now_ms();
    future = trp_call_async(net->service, "Wait", &request.base, NULL);
    while (atomic_load(&net->object.waiting) == 0 && now_ms() - started < 10000)
        assert_int_equal(trp_future_wait(future, 1, NULL), TRP_DEADLINE_EXCEEDED);
    assert_int_equal(atomic_load(&net->object.waiting), 1);
    trp_future_cancel(future);
    assert_int_equal(trp_future_wait(future, -1, NULL), TRP_CANCELLED);
    assert_non_null(strstr(trp_last_error(), "/troupe.test.Test/Wait"));
    trp_future_destroy(future);
    while (atomic_load(&net->object.cancelled) == 0 && now_ms() - started < 15000)
        busy_until(&net->object, deadline_in_ms(&clock_monotonic, 1));
    assert_int_equal(atomic_load(&net->object.cancelled), 1);
}

static void stop_when_waiting(void *arg)
{
    void **args = arg;
    struct object *object = args[0];
    struct deadline deadline = deadline_in_ms(&clock_monotonic, 10000);
    while (atomic_load(&object->waiting) == 0 && !deadline_passed(deadline, &clock_monotonic))
        busy_until(object, deadline_in_ms(&clock_monotonic, 1));
    trp_stop_request(args[1]);
}

static void a_stop_request_cancels_a_call(struct net *net)
{
    trp_stop *stop = trp_stop_create();
    void *args[] = {&net->object, stop};
    struct thread thread = {.running = false};
    assert_int_equal(thread_start(&thread, "stop", stop_when_waiting, args), TRP_OK);
    const trp_call_options options = {.cancel = stop};
    int64_t started = now_ms();
    assert_int_equal(call_number(net->service, "Wait", 20000, NULL, &options), TRP_CANCELLED);
    assert_in_range(now_ms() - started, 0, 10000);
    thread_stop(&thread);
    assert_int_equal(call_number(net->service, "Increment", 1, NULL, &options), TRP_CANCELLED);
    assert_int_equal(call_number(net->service, "Wait", 1, NULL, &options), TRP_CANCELLED);
    trp_stop_destroy(stop);
}

static void futures_run_side_by_side(struct net *net)
{
    enum { CALLS = 50 };
    trp_future *futures[CALLS];
    number request = TROUPE__TEST__NUMBER__INIT;
    for (int64_t i = 0; i < CALLS; i++) {
        request.value = i;
        futures[i] = trp_call_async(net->service, "Increment", &request.base, NULL);
    }
    for (int64_t i = CALLS; i-- > 0;) {
        ProtobufCMessage *reply;
        assert_int_equal(trp_future_wait(futures[i], -1, &reply), TRP_OK);
        assert_int_equal(((number *)reply)->value, i + 1);
        protobuf_c_message_free_unpacked(reply, NULL);
        assert_int_equal(trp_future_wait(futures[i], -1, &reply), TRP_OK); /* given once */
        assert_null(reply);
        trp_future_destroy(futures[i]);
    }
}

static void a_future_that_cannot_start_fails(struct net *net)
{
    number request = TROUPE__TEST__NUMBER__INIT;
    trp_future *future = trp_call_async(net->service, "Fly", &request.base, NULL);
    ProtobufCMessage *reply;
    assert_int_equal(trp_future_wait(future, -1, &reply), TRP_UNIMPLEMENTED);
    assert_non_null(strstr(trp_last_error(), "Fly"));
    assert_null(reply);
    trp_future_destroy(future);
    trp_future_destroy(NULL);
}

static void a_future_fails_with_the_handlers_status(struct net *net)
{
    number request = TROUPE__TEST__NUMBER__INIT;
    request.value = TRP_NOT_FOUND;
    trp_future *future = trp_call_async(net->service, "Fail", &request.base, NULL);
    assert_int_equal(trp_future_wait(future, -1, NULL), TRP_NOT_FOUND);
    assert_string_equal(trp_last_error(), "the handler says 5");
    trp_fail(TRP_INTERNAL, "something else");
    assert_int_equal(trp_future_wait(future, -1, NULL), TRP_NOT_FOUND);
    assert_string_equal(trp_last_error(), "the handler says 5");
    trp_future_destroy(future);
}

static void an_unfinished_future_can_be_destroyed(struct net *net)
{
    number request = TROUPE__TEST__NUMBER__INIT;
    request.value = 20000;
    int64_t started = now_ms();
    trp_future_destroy(trp_call_async(net->service, "Wait", &request.base, NULL));
    assert_in_range(now_ms() - started, 0, 5000);
}

static void a_stopped_server_is_unavailable(struct net *net)
{
    int64_t out;
    assert_int_equal(call_number(net->service, "Increment", 1, &out, NULL), TRP_OK);
    trp_server_stop(net->server, 0);
    trp_status status = call_number(net->service, "Wait", 1, NULL, NULL);
    if (status != TRP_UNAVAILABLE)
        fail_msg("%s: %s %s", net->kind, trp_status_name(status), trp_last_error());
    if (strcmp(net->kind, "local") != 0) {
        assert_non_null(strstr(trp_last_error(), "/troupe.test.Test/Wait"));
        assert_non_null(strstr(trp_last_error(), trp_channel_address(net->channel)));
    }
}

static void nested_messages_pass_up_to_the_limit(struct net *net)
{
    Troupe__Test__Chain chain[65];
    for (uint32_t depth = 1; depth <= 65; depth++) {
        for (uint32_t i = 0; i < depth; i++) {
            chain[i] = (Troupe__Test__Chain)TROUPE__TEST__CHAIN__INIT;
            chain[i].next = i + 1 < depth ? &chain[i + 1] : NULL;
        }
        ProtobufCMessage *reply;
        trp_status status = trp_call(net->service, "Nested", &chain[0].base, &reply, NULL);
        if (depth <= 64 || strcmp(net->kind, "local") == 0) {
            assert_int_equal(status, TRP_OK);
            assert_int_equal(((number *)reply)->value, depth);
            protobuf_c_message_free_unpacked(reply, NULL);
        } else {
            assert_int_equal(status, TRP_INVALID_ARGUMENT);
            assert_non_null(strstr(trp_last_error(), "nested too deep"));
        }
    }
}

static void call_in_loop(void *arg)
{
    struct net *net = arg;
    for (int64_t i = 0; i < 200; i++) {
        int64_t out = 0;
        if (call_number(net->service, "Increment", i, &out, NULL) != TRP_OK || out != i + 1)
            atomic_fetch_add(&net->object.cancelled, 1);
    }
}

static void threads_share_a_service(struct net *net)
{
    struct thread threads[4] = {{.running = false}};
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(thread_start(&threads[i], "caller", call_in_loop, net), TRP_OK);
    for (size_t i = 0; i < 4; i++)
        thread_stop(&threads[i]);
    assert_int_equal(atomic_load(&net->object.cancelled), 0);
}

/* ---- running them ---- */

typedef void test_case(struct net *net);

static void run_case(void **state)
{
    static const char *const kinds[] = {"local", "unix", "tcp"};
    for (size_t i = 0; i < 3; i++) {
        struct net *net = net_create(kinds[i], &(trp_server_options){.threads = 2});
        ((test_case *)*state)(net);
        net_destroy(net);
    }
}

/* ---- cases that are about one kind only ---- */

static void too_many_waiting_calls_are_refused(void **state)
{
    (void)state;
    enum { CALLS = 8 };
    struct net *net = net_create("unix", &(trp_server_options){.threads = 1, .max_pending = 2});
    trp_future *futures[CALLS];
    number request = TROUPE__TEST__NUMBER__INIT;
    request.value = 300;
    for (size_t i = 0; i < CALLS; i++)
        futures[i] = trp_call_async(net->service, "Slow", &request.base, NULL);
    size_t refused = 0;
    for (size_t i = 0; i < CALLS; i++) {
        trp_status status = trp_future_wait(futures[i], -1, NULL);
        refused += status == TRP_UNAVAILABLE;
        assert_true(status == TRP_OK || status == TRP_UNAVAILABLE);
        trp_future_destroy(futures[i]);
    }
    assert_in_range(refused, CALLS - 3, CALLS - 2); /* one runs, two wait */
    net_destroy(net);
}

struct caller {
    struct net *net;
    struct thread thread;
    trp_status end;
};

static void call_until_the_end(void *arg)
{
    struct caller *caller = arg;
    for (int64_t i = 0; caller->end == TRP_OK; i++)
        caller->end =
            call_number(caller->net->service, i % 8 ? "Increment" : "Wait", i % 3, NULL, NULL);
}

static void a_server_stops_while_calls_run(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 10; round++) {
        struct net *net = net_create("unix", &(trp_server_options){.threads = 2});
        struct caller callers[4] = {{.net = NULL}};
        for (size_t i = 0; i < 4; i++) {
            callers[i].net = net;
            assert_int_equal(
                thread_start(&callers[i].thread, "caller", call_until_the_end, &callers[i]),
                TRP_OK);
        }
        busy_until(&net->object, deadline_in_ms(&clock_monotonic, 5));
        trp_server_stop(net->server, round % 2 ? 5 : 0);
        for (size_t i = 0; i < 4; i++) {
            thread_stop(&callers[i].thread);
            assert_int_equal(callers[i].end, TRP_UNAVAILABLE);
        }
        assert_int_equal(atomic_load(&net->object.waiting), 0);
        net_destroy(net);
    }
}

static void a_request_over_the_limit_is_refused(void **state)
{
    (void)state;
    struct net *net = net_create("unix", &(trp_server_options){.max_message_bytes = 1000});
    everything in = TROUPE__TEST__EVERYTHING__INIT;
    uint8_t data[2000] = {0};
    in.data = (ProtobufCBinaryData){sizeof data, data};
    assert_int_equal(trp_call(net->service, "Echo", &in.base, NULL, NULL), TRP_RESOURCE_EXHAUSTED);
    in.data.len = 900;
    assert_int_equal(trp_call(net->service, "Echo", &in.base, NULL, NULL), TRP_OK);
    net_destroy(net);
}

static void a_peer_that_never_comes_up_is_unavailable(void **state)
{
    (void)state;
    for (uint32_t fail_fast = 0; fail_fast < 2; fail_fast++) {
        trp_channel *channel;
        trp_channel_options options = {.connect_timeout_ms = 100, .fail_fast = fail_fast};
        assert_int_equal(trp_channel_create(&channel, "unix:/tmp/troupe-nobody/s", &options),
                         TRP_OK);
        assert_int_equal(call_number(service_of(channel), "Increment", 1, NULL, NULL),
                         TRP_UNAVAILABLE);
        assert_non_null(strstr(trp_last_error(), "/troupe.test.Test/Increment"));
        assert_non_null(strstr(trp_last_error(), "unix:/tmp/troupe-nobody/s"));
        if (!fail_fast)
            assert_non_null(strstr(trp_last_error(), "No such file or directory"));
        trp_channel_destroy(channel);
    }
}

/* Its own deadline comes before that of the connection. */
static void a_late_call_says_that_nobody_listens(void **state)
{
    (void)state;
    const trp_call_options soon = {.timeout_ms = 100};
    static const char *const rows[][2] = {
        {"unix:/tmp/troupe-nobody/s", "/s: took longer than its deadline: No such file or"},
        {"127.0.0.1:1", ":1: took longer than its deadline: connection refused"}};
    for (size_t i = 0; i < 2; i++) {
        trp_channel *channel;
        assert_int_equal(trp_channel_create(&channel, rows[i][0], NULL), TRP_OK);
        assert_int_equal(call_number(service_of(channel), "Increment", 1, NULL, &soon),
                         TRP_DEADLINE_EXCEEDED);
        assert_non_null(strstr(trp_last_error(), rows[i][1]));
        trp_channel_destroy(channel);
    }
}

static void keep_value(const number *reply, void *data)
{
    *(int64_t *)data = reply ? reply->value : -1;
}

static void a_generated_stub_works_on_a_proxy(void **state)
{
    (void)state;
    struct net *net = net_create("unix", &(trp_server_options){.threads = 1});
    number request = TROUPE__TEST__NUMBER__INIT;
    request.value = 6;
    int64_t value = 0;
    troupe__test__test__increment(net->service, &request, keep_value, &value);
    assert_int_equal(value, 7);
    troupe__test__test__no_handler(net->service, &request, keep_value, &value);
    assert_int_equal(value, -1);
    net_destroy(net);
}

static void a_channel_has_one_proxy_per_service(void **state)
{
    (void)state;
    struct net *net = net_create("unix", &(trp_server_options){.threads = 1});
    assert_ptr_equal(service_of(net->channel), net->service);
    net_destroy(net);
}

static void an_object_in_no_server_can_be_called(void **state)
{
    (void)state;
    struct object object = {.base = TROUPE__TEST__TEST__INIT(on_)};
    int64_t out;
    assert_int_equal(call_number(&object.base.base, "Increment", 41, &out, NULL), TRP_OK);
    assert_int_equal(out, 42);
    number request = TROUPE__TEST__NUMBER__INIT;
    trp_future *future = trp_call_async(&object.base.base, "Increment", &request.base, NULL);
    assert_int_equal(trp_future_wait(future, -1, NULL), TRP_OK);
    trp_future_destroy(future);
}

static void a_service_is_found_by_its_name(void **state)
{
    (void)state;
    trp_server *server;
    assert_int_equal(trp_server_create(&server, NULL), TRP_OK);
    trp_channel *channel = trp_channel_create_local(server);
    ProtobufCService *service;
    assert_int_equal(trp_channel_service(channel, &troupe__test__test__descriptor, &service),
                     TRP_NOT_FOUND);
    assert_null(service);
    trp_channel_destroy(channel);
    trp_server_destroy(server);
}

#define EVERYWHERE(body)                                                                           \
    {                                                                                              \
#body, run_case, NULL, NULL, (void *)(body)                                                \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        EVERYWHERE(a_message_of_every_kind_comes_back),
        EVERYWHERE(the_reply_is_the_callers_own),
        EVERYWHERE(every_status_arrives_with_its_message),
        EVERYWHERE(a_missing_handler_is_unimplemented),
        EVERYWHERE(an_unknown_method_is_unimplemented),
        EVERYWHERE(a_request_of_another_type_is_refused),
        EVERYWHERE(a_handler_that_does_not_answer_is_internal),
        EVERYWHERE(a_second_answer_is_ignored),
        EVERYWHERE(a_failure_without_status_is_internal),
        EVERYWHERE(an_answer_of_another_type_is_internal),
        EVERYWHERE(the_handler_sees_the_deadline),
        EVERYWHERE(a_late_handler_exceeds_the_deadline),
        EVERYWHERE(a_blocking_method_returns_on_time),
        EVERYWHERE(a_blocking_method_returns_on_time_with_turns),
        EVERYWHERE(a_cancelled_call_ends_and_its_handler_knows),
        EVERYWHERE(a_stop_request_cancels_a_call),
        EVERYWHERE(futures_run_side_by_side),
        EVERYWHERE(a_future_that_cannot_start_fails),
        EVERYWHERE(a_future_fails_with_the_handlers_status),
        EVERYWHERE(an_unfinished_future_can_be_destroyed),
        EVERYWHERE(a_stopped_server_is_unavailable),
        EVERYWHERE(nested_messages_pass_up_to_the_limit),
        EVERYWHERE(threads_share_a_service),
        cmocka_unit_test(too_many_waiting_calls_are_refused),
        cmocka_unit_test(a_server_stops_while_calls_run),
        cmocka_unit_test(a_request_over_the_limit_is_refused),
        cmocka_unit_test(a_peer_that_never_comes_up_is_unavailable),
        cmocka_unit_test(a_late_call_says_that_nobody_listens),
        cmocka_unit_test(a_generated_stub_works_on_a_proxy),
        cmocka_unit_test(a_channel_has_one_proxy_per_service),
        cmocka_unit_test(an_object_in_no_server_can_be_called),
        cmocka_unit_test(a_service_is_found_by_its_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
