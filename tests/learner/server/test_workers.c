/* Workers that ask a parameter server for what none should: it answers with a status, and goes on
 * with what it had. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/parameter_server.h>
#include <troupe/rpc.h>
#include "core/clock.h"
#include "core/thread.h"
#include "learner/server/keys.h"
#include "learner/server/shard.h"
#include "parameter_server.pb-c.h"
#include "tests/core/captured.h"
#include "tests/core/patience.h"

enum { COUNT = 3000 };

static float numbers[COUNT];
static const uint64_t all[2] = {0, COUNT};

static ProtobufCMessage *ask(trp_parameter_server *server, const char *method,
                             const ProtobufCMessage *request)
{
    ProtobufCMessage *reply;
    assert_int_equal(trp_call(trp_parameter_server_service(server), method, request, &reply, NULL),
                     TRP_OK);
    return reply;
}

static void join(trp_parameter_server *server, uint32_t worker, uint32_t workers)
{
    Troupe__ServerOptimizer sgd = TROUPE__SERVER_OPTIMIZER__INIT;
    Troupe__ServerJoinRequest join = TROUPE__SERVER_JOIN_REQUEST__INIT;
    char name[] = {"learner/0"};
    name[strlen(name) - 1] += (char)worker;
    sgd.kind = TRP_SGD;
    sgd.learning_rate = 1;
    join.worker = worker;
    join.workers = workers;
    join.name = name;
    join.vector = (char[]){"params"};
    join.count = COUNT;
    join.optimizer = &sgd;
    join.values = (ProtobufCBinaryData){sizeof numbers, (uint8_t *)numbers};
    protobuf_c_message_free_unpacked(ask(server, "Join", &join.base), NULL);
}

static trp_parameter_server *server_with(uint32_t workers, uint32_t rule)
{
    trp_parameter_server *server;
    const trp_parameter_server_options options = {.rule = rule};
    assert_int_equal(trp_parameter_server_create(&server, "server/0", &options, NULL), TRP_OK);
    memset(numbers, 0, sizeof numbers);
    for (uint32_t worker = 0; worker < workers; worker++)
        join(server, worker, workers);
    return server;
}

static Troupe__ServerPushRequest push_of(float scale)
{
    Troupe__ServerPushRequest push = TROUPE__SERVER_PUSH_REQUEST__INIT;
    push.vector = (char *)(uintptr_t) "params";
    push.scale = scale;
    push.keys = keys_hash(all, 2);
    push.n_ranges = 2;
    push.ranges = (uint64_t *)(uintptr_t)all;
    push.gradients = (ProtobufCBinaryData){sizeof numbers, (uint8_t *)numbers};
    return push;
}

static Troupe__ServerPullReply *pull(trp_parameter_server *server, uint64_t wait_ms)
{
    Troupe__ServerPullRequest request = TROUPE__SERVER_PULL_REQUEST__INIT;
    request.vector = (char *)(uintptr_t) "params";
    request.keys = keys_hash(all, 2);
    request.n_ranges = 2;
    request.ranges = (uint64_t *)(uintptr_t)all;
    request.wait_ms = wait_ms;
    request.patience_ms = UINT64_MAX;
    return (Troupe__ServerPullReply *)ask(server, "Pull", &request.base);
}

static void take_one(trp_parameter_server *server, const Troupe__ServerPushRequest *push)
{
    Troupe__ServerPushReply *reply = (Troupe__ServerPushReply *)ask(server, "Push", &push->base);
    assert_int_equal(reply->answer, SHARD_TAKEN);
    protobuf_c_message_free_unpacked(&reply->base, NULL);
}

/* Wherever the number is; and one that its scale makes so. */
static void a_gradient_that_is_not_finite_is_refused(void **state)
{
    (void)state;
    static const struct {
        size_t place;
        float number, scale;
    } cases[] = {
        {0, NAN, 1},       {COUNT - 1, INFINITY, 1}, {1500, -INFINITY, 1},
        {2047, NAN, 0.5F}, {2048, NAN, 1},           {COUNT - 1, 1e30F, 1e30F},
    };
    trp_parameter_server *server = server_with(1, TRP_SERVER_ASYNC);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Troupe__ServerPushRequest push = push_of(cases[i].scale);
        ProtobufCMessage *reply;
        numbers[cases[i].place] = cases[i].number;
        assert_int_equal(
            trp_call(trp_parameter_server_service(server), "Push", &push.base, &reply, NULL),
            TRP_INVALID_ARGUMENT);
        assert_non_null(
            strstr(trp_last_error(), "learner/0 pushed a gradient of 'params' that is"));
        numbers[cases[i].place] = 0;
    }
    numbers[5] = -3;
    Troupe__ServerPushRequest push = push_of(2);
    take_one(server, &push); /* with the number of those that were not */
    Troupe__ServerPullReply *pulled = pull(server, 0);
    assert_int_equal(pulled->version, 1);
    for (size_t i = 0; i < COUNT; i++) {
        float value;
        memcpy(&value, pulled->values.data + i * sizeof value, sizeof value);
        assert_true(value == (i == 5 ? 6 : 0));
    }
    protobuf_c_message_free_unpacked(&pulled->base, NULL);
    trp_parameter_server_destroy(server);
}

/* A thread of the server waits with it. */
static void a_pull_waits_no_longer_than_the_server_lets_it(void **state)
{
    (void)state;
    trp_parameter_server *server = server_with(2, TRP_SERVER_SYNC);
    Troupe__ServerPushRequest push = push_of(1);
    take_one(server, &push);
    int64_t since_ns = clock_now_ns(&clock_monotonic);
    Troupe__ServerPullReply *pulled = pull(server, UINT64_MAX); /* the other one never pushes */
    assert_true(pulled->wait);
    assert_int_equal(pulled->behind, 1);
    assert_int_equal(trp_parameter_server_read(server).most_behind, 0); /* it has read nothing */
    assert_true(clock_now_ns(&clock_monotonic) - since_ns < INT64_C(8000000000));
    protobuf_c_message_free_unpacked(&pulled->base, NULL);
    trp_parameter_server_destroy(server);
}

/* Also where the first of them never comes back. */
static void all_who_are_silent_are_named(void **state)
{
    (void)state;
    trp_parameter_server *server = server_with(3, TRP_SERVER_ASYNC);
    Troupe__ServerPushRequest push = push_of(1);
    struct deadline deadline = patience();
    size_t silent = 0;
    push.worker = 2;
    push.patience_ms = 1;
    for (; silent < 2; push.sequence++) {
        Troupe__ServerPushReply *reply = (Troupe__ServerPushReply *)ask(server, "Push", &push.base);
        silent = reply->n_silent;
        for (uint32_t i = 0; i < silent; i++)
            assert_int_equal(reply->silent[i], i);
        protobuf_c_message_free_unpacked(&reply->base, NULL);
        look_again_soon(deadline, "both to be silent");
    }
    assert_int_equal(silent, 2);
    trp_parameter_server_destroy(server);
}

/* It has pushed nothing, and its clock stands. */
static void who_says_that_it_is_idle_is_there(void **state)
{
    (void)state;
    trp_parameter_server *server = server_with(2, TRP_SERVER_ASYNC);
    Troupe__ServerPushRequest idle = TROUPE__SERVER_PUSH_REQUEST__INIT;
    struct deadline deadline = patience();
    size_t silent = 0;
    idle.vector = (char *)(uintptr_t) "params";
    idle.idle = true;
    idle.patience_ms = 100;
    while (silent == 0) { /* the other one says nothing */
        Troupe__ServerPushReply *reply = (Troupe__ServerPushReply *)ask(server, "Push", &idle.base);
        assert_false(reply->unknown_worker);
        assert_int_equal(reply->clock, 0);
        silent = reply->n_silent;
        if (silent > 0)
            assert_int_equal(reply->silent[0], 1);
        protobuf_c_message_free_unpacked(&reply->base, NULL);
        look_again_soon(deadline, "the other one to be silent");
    }
    assert_int_equal(silent, 1);
    trp_parameter_server_destroy(server);
}

struct waiting {
    trp_parameter_server *server;
    atomic_bool ended;
};

static void wait_for_the_other(void *arg)
{
    struct waiting *waiting = arg;
    Troupe__ServerPushRequest push = push_of(1);
    take_one(waiting->server, &push);
    protobuf_c_message_free_unpacked(&pull(waiting->server, UINT64_MAX)->base, NULL);
    atomic_store(&waiting->ended, true);
}

/* A pull takes SERVER_WAIT_MS_MAX here, and its learner pushes nothing meanwhile. */
static void who_waits_for_others_is_there(void **state)
{
    (void)state;
    struct waiting waiting = {.server = server_with(2, TRP_SERVER_SYNC)};
    Troupe__ServerPushRequest idle = TROUPE__SERVER_PUSH_REQUEST__INIT;
    struct thread thread;
    idle.vector = (char *)(uintptr_t) "params";
    idle.worker = 1;
    idle.idle = true;
    idle.patience_ms = 900;
    assert_int_equal(thread_start(&thread, "waits", wait_for_the_other, &waiting), TRP_OK);
    size_t silent = 0;
    while (!atomic_load(&waiting.ended) && silent == 0) {
        Troupe__ServerPushReply *reply =
            (Troupe__ServerPushReply *)ask(waiting.server, "Push", &idle.base);
        silent = reply->n_silent;
        protobuf_c_message_free_unpacked(&reply->base, NULL);
        look_again_soon(patience(), "the end of a pull");
    }
    thread_stop(&thread);
    assert_int_equal(silent, 0);
    trp_parameter_server_destroy(waiting.server);
}

static size_t silent_for(trp_parameter_server *server, uint64_t patience_ms)
{
    Troupe__ServerPushRequest idle = TROUPE__SERVER_PUSH_REQUEST__INIT;
    idle.vector = (char *)(uintptr_t) "params";
    idle.idle = true;
    idle.patience_ms = patience_ms;
    Troupe__ServerPushReply *reply = (Troupe__ServerPushReply *)ask(server, "Push", &idle.base);
    size_t silent = reply->n_silent;
    protobuf_c_message_free_unpacked(&reply->base, NULL);
    return silent;
}

/* As when a run is suspended: who asks first would miss all others. */
static void nobody_is_silent_when_nobody_was_heard_of(void **state)
{
    (void)state;
    enum { SILENCE_MS = 1200 };
    trp_parameter_server *server = server_with(2, TRP_SERVER_ASYNC);
    assert_int_equal(silent_for(server, SILENCE_MS), 0);
    let_pass(SILENCE_MS + 200);
    assert_int_equal(silent_for(server, SILENCE_MS), 0);
    struct deadline deadline = patience();
    while (silent_for(server, SILENCE_MS) == 0)
        look_again_soon(deadline, "the other one to be silent");
    trp_parameter_server_destroy(server);
}

/* One of two has pushed, and asks for what comes of both. */
static trp_parameter_server *server_that_waits(Troupe__ServerPullRequest *request,
                                               uint64_t patience_ms)
{
    trp_parameter_server *server = server_with(2, TRP_SERVER_SYNC);
    Troupe__ServerPushRequest push = push_of(1);
    take_one(server, &push);
    troupe__server_pull_request__init(request);
    request->vector = (char *)(uintptr_t) "params";
    request->keys = push.keys;
    request->patience_ms = patience_ms;
    return server;
}

/* False: the other one is given up. */
static bool wait_on(trp_parameter_server *server, const Troupe__ServerPullRequest *request)
{
    ProtobufCMessage *reply;
    if (trp_call(trp_parameter_server_service(server), "Pull", &request->base, &reply, NULL) ==
        TRP_OK) {
        assert_true(((Troupe__ServerPullReply *)reply)->wait);
        protobuf_c_message_free_unpacked(reply, NULL);
        return true;
    }
    assert_non_null(strstr(trp_last_error(), "learner/1 (number 1) has not pushed to 'params'"));
    return false;
}

/* It was in nobody's hands to push meanwhile. */
static void nobody_is_waited_for_when_nobody_was_heard_of(void **state)
{
    (void)state;
    enum { PUSH_WITHIN_MS = 1500 };
    Troupe__ServerPullRequest request;
    trp_parameter_server *server = server_that_waits(&request, PUSH_WITHIN_MS);
    for (int64_t pause_ms = 0; pause_ms <= PUSH_WITHIN_MS + 500; pause_ms += PUSH_WITHIN_MS + 500) {
        let_pass(pause_ms);
        assert_true(wait_on(server, &request));
    }
    struct deadline deadline = patience();
    while (wait_on(server, &request))
        look_again_soon(deadline, "the other one to be given up");
    trp_parameter_server_destroy(server);
}

/* It computes a gradient first. Who does nothing but come back holds nobody up. */
static void who_comes_back_has_all_the_time_to_push(void **state)
{
    (void)state;
    enum { PUSH_WITHIN_MS = 3000, BACK_AFTER_MS = 2000, MORE_MS = 1500 };
    Troupe__ServerPullRequest request;
    trp_parameter_server *server = server_that_waits(&request, PUSH_WITHIN_MS);
    for (uint32_t lives = 0; lives < 2; lives++) {
        struct deadline until =
            deadline_in_ms(&clock_monotonic, lives == 0 ? BACK_AFTER_MS : MORE_MS);
        while (!deadline_passed(until, &clock_monotonic)) {
            assert_true(wait_on(server, &request));
            look_again_soon(patience(), "it to come back");
        }
        join(server, 1, 2);
    }
    struct deadline deadline = patience();
    for (; wait_on(server, &request); join(server, 1, 2))
        look_again_soon(deadline, "it to be given up");
    trp_parameter_server_destroy(server);
}

/* Of two workers at a server that keeps step; the other one is left out. */
static void leave_other_out(trp_parameter_server *server)
{
    Troupe__ServerPullRequest request = TROUPE__SERVER_PULL_REQUEST__INIT;
    request.vector = (char *)(uintptr_t) "params";
    request.keys = keys_hash(all, 2);
    request.wait_ms = UINT64_MAX;
    request.patience_ms = 1;
    request.goes_on = true;
    Troupe__ServerPullReply *pulled = (Troupe__ServerPullReply *)ask(server, "Pull", &request.base);
    assert_false(pulled->wait);
    protobuf_c_message_free_unpacked(&pulled->base, NULL);
}

/* Its number is that of a round which has ended: as one that came again it changes nothing, and one
 * that did is no loss. */
static void a_gradient_that_was_not_waited_for_is_told_of(void **state)
{
    (void)state;
    for (uint64_t taken = 0; taken < 2; taken++) {
        trp_parameter_server *server = server_with(2, TRP_SERVER_SYNC);
        struct captured log;
        Troupe__ServerPushRequest push = push_of(1), late = push_of(1);
        late.worker = 1;
        if (taken)
            take_one(server, &late);
        take_one(server, &push);
        push.sequence = 1;
        if (taken)
            take_one(server, &push);
        leave_other_out(server);

        capture_begin(&log);
        for (size_t i = 0; i < 2; i++) {
            Troupe__ServerPushReply *reply =
                (Troupe__ServerPushReply *)ask(server, "Push", &late.base);
            assert_int_equal(reply->answer, SHARD_REPEATED);
            protobuf_c_message_free_unpacked(&reply->base, NULL);
        }
        capture_end(&log);
        assert_int_equal(captured_count(&log, "counts for nothing learner=learner/1 vector=params"),
                         !taken);
        trp_parameter_server_destroy(server);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gradient_that_is_not_finite_is_refused),
        cmocka_unit_test(a_pull_waits_no_longer_than_the_server_lets_it),
        cmocka_unit_test(all_who_are_silent_are_named),
        cmocka_unit_test(who_says_that_it_is_idle_is_there),
        cmocka_unit_test(nobody_is_silent_when_nobody_was_heard_of),
        cmocka_unit_test(nobody_is_waited_for_when_nobody_was_heard_of),
        cmocka_unit_test(who_comes_back_has_all_the_time_to_push),
        cmocka_unit_test(a_gradient_that_was_not_waited_for_is_told_of),
        cmocka_unit_test(who_waits_for_others_is_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
