/* Values of a parameter server that are sent from where they lie: what a worker gets is one
 * version, however many come meanwhile, in one call or in parts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include <troupe/parameter_server.h>
#include <troupe/rpc.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "core/thread.h"
#include "learner/server/keys.h"
#include "learner/server/limits.h"
#include "learner/server/shared_values.h"
#include "learner/server/values.h"
#include "parameter_server.pb-c.h"

enum { COUNT = 2000000, READERS = 3, PULLS = 12, PUSHER = READERS };

static const uint64_t all[2] = {0, COUNT};

struct served {
    trp_parameter_server *server;
    trp_server *rpc;
    trp_channel *channel;
    ProtobufCService *service; /* over a socket */
    float *numbers;            /* the gradient */
    _Atomic bool over;
    _Atomic uint32_t broken, pulled;
    _Atomic uint64_t pushed;
};

static ProtobufCMessage *ask(struct served *served, const char *method,
                             const ProtobufCMessage *request, trp_reply_room *room)
{
    ProtobufCMessage *reply = NULL;
    if (trp_call(served->service, method, request, &reply, &(trp_call_options){.room = room}) !=
        TRP_OK)
        atomic_fetch_add(&served->broken, 1);
    return reply;
}

static void join_all(struct served *served)
{
    Troupe__ServerOptimizer sgd = TROUPE__SERVER_OPTIMIZER__INIT;
    Troupe__ServerJoinRequest join = TROUPE__SERVER_JOIN_REQUEST__INIT;
    sgd.kind = TRP_SGD;
    sgd.learning_rate = 1;
    join.workers = READERS + 1;
    join.vector = (char[]){"params"};
    join.name = (char[]){"learner"};
    join.count = COUNT;
    join.optimizer = &sgd;
    join.values = (ProtobufCBinaryData){COUNT * sizeof(float), (uint8_t *)served->numbers};
    for (; join.worker < join.workers; join.worker++)
        protobuf_c_message_free_unpacked(ask(served, "Join", &join.base, NULL), NULL);
}

static int setup_threads(void **state, uint32_t threads)
{
    struct served *served = xcalloc(1, sizeof *served);
    const trp_parameter_server_options options = {.rule = TRP_SERVER_ASYNC};
    served->numbers = xcalloc(COUNT, sizeof *served->numbers);
    *state = served;
    if (trp_parameter_server_create(&served->server, "server/0", &options, NULL) != TRP_OK ||
        trp_server_create(&served->rpc, &(trp_server_options){.threads = threads}) != TRP_OK ||
        trp_server_add(served->rpc, trp_parameter_server_service(served->server), NULL) != TRP_OK ||
        trp_server_start(served->rpc) != TRP_OK ||
        trp_channel_create(&served->channel, trp_server_address(served->rpc), NULL) != TRP_OK ||
        trp_channel_service(served->channel, trp_parameter_server_descriptor(), &served->service) !=
            TRP_OK)
        return 1;
    join_all(served);
    return 0;
}

static int setup_served(void **state)
{
    return setup_threads(state, 0);
}

static int setup_one_at_a_time(void **state)
{
    return setup_threads(state, 1);
}

static int teardown_served(void **state)
{
    struct served *served = *state;
    trp_channel_destroy(served->channel);
    trp_server_destroy(served->rpc);
    trp_parameter_server_destroy(served->server);
    free(served->numbers);
    free(served);
    return 0;
}

/* Each number of version n is n. */
static void push_next(struct served *served, uint64_t sequence)
{
    Troupe__ServerPushRequest push = TROUPE__SERVER_PUSH_REQUEST__INIT;
    push.worker = PUSHER;
    push.vector = (char[]){"params"};
    push.scale = 1;
    push.sequence = sequence;
    push.keys = keys_hash(all, 2);
    push.n_ranges = 2;
    push.ranges = (uint64_t *)(uintptr_t)all;
    push.gradients = (ProtobufCBinaryData){COUNT * sizeof(float), (uint8_t *)served->numbers};
    ProtobufCMessage *reply = ask(served, "Push", &push.base, NULL);
    if (reply)
        protobuf_c_message_free_unpacked(reply, NULL);
}

static void fill_gradient(struct served *served)
{
    for (size_t i = 0; i < COUNT; i++)
        served->numbers[i] = -1;
}

static void push_until_over(void *arg)
{
    struct served *served = arg;
    fill_gradient(served);
    while (!atomic_load(&served->over) && atomic_load(&served->broken) == 0)
        push_next(served, atomic_fetch_add(&served->pushed, 1));
}

static bool is_version(const float *values, uint64_t version)
{
    for (size_t i = 0; i < COUNT; i++)
        if (values[i] != (float)version)
            return false;
    return true;
}

static Troupe__ServerPullRequest pull_of(uint32_t worker)
{
    Troupe__ServerPullRequest pull = TROUPE__SERVER_PULL_REQUEST__INIT;
    pull.worker = worker;
    pull.vector = (char *)(uintptr_t) "params";
    pull.keys = keys_hash(all, 2);
    pull.n_ranges = 2;
    pull.ranges = (uint64_t *)(uintptr_t)all;
    return pull;
}

static void pull_often(void *arg)
{
    struct served *served = arg;
    float *values = xmalloc(COUNT * sizeof *values);
    Troupe__ServerPullRequest pull = pull_of(atomic_fetch_add(&served->pulled, 1) % READERS);
    for (int i = 0; i < PULLS; i++) {
        trp_reply_room room = {.field = "values", .bytes = values, .size = COUNT * sizeof *values};
        Troupe__ServerPullReply *reply =
            (Troupe__ServerPullReply *)ask(served, "Pull", &pull.base, &room);
        if (!reply || room.given != room.size || !is_version(values, reply->version))
            atomic_fetch_add(&served->broken, 1);
        if (reply)
            protobuf_c_message_free_unpacked(&reply->base, NULL);
    }
    free(values);
}

static void what_is_pulled_is_one_version_whatever_is_pushed(void **state)
{
    struct served *served = *state;
    struct thread pusher = {0}, readers[READERS] = {0};
    assert_int_equal(thread_start(&pusher, "pusher", push_until_over, served), TRP_OK);
    for (size_t i = 0; i < READERS; i++)
        assert_int_equal(thread_start(&readers[i], "reader", pull_often, served), TRP_OK);
    for (size_t i = 0; i < READERS; i++)
        thread_stop(&readers[i]);
    atomic_store(&served->over, true);
    thread_stop(&pusher);
    assert_int_equal(atomic_load(&served->broken), 0);
    assert_true(atomic_load(&served->pushed) > 1);
}

/* A pull of which nothing is read for now. */
static trp_stream *pull_later(struct served *served)
{
    trp_stream *stream;
    Troupe__ServerPullRequest pull = pull_of(0);
    trp_message *message = trp_message_create(troupe__server_pull_request__get_packed_size(&pull));
    troupe__server_pull_request__pack(&pull, trp_message_data(message));
    assert_int_equal(
        trp_stream_open(&stream, served->channel, "/troupe.ParameterServer/Pull", NULL), TRP_OK);
    assert_int_equal(trp_stream_send(stream, message, 20000), TRP_OK);
    assert_int_equal(trp_stream_half_close(stream), TRP_OK);
    return stream;
}

static void read_version(trp_stream *stream, uint64_t version)
{
    trp_message *message;
    assert_int_equal(trp_stream_receive(stream, &message, 20000), TRP_OK);
    Troupe__ServerPullReply *reply = troupe__server_pull_reply__unpack(
        NULL, trp_message_size(message), trp_message_data(message));
    assert_non_null(reply);
    assert_int_equal(reply->version, version);
    assert_int_equal(reply->values.len, COUNT * sizeof(float));
    assert_true(is_version((const float *)(const void *)reply->values.data, version));
    troupe__server_pull_reply__free_unpacked(reply, NULL);
    trp_message_destroy(message);
    trp_stream_destroy(stream);
}

/* Calls are answered one after the other, so each of these has the version that it came at. */
static void whoever_does_not_read_gets_what_there_was(void **state)
{
    enum { LATE = 3 };
    struct served *served = *state;
    trp_stream *streams[LATE];
    fill_gradient(served);
    for (uint64_t i = 0; i < LATE; i++) {
        streams[i] = pull_later(served);
        push_next(served, i);
    }
    read_version(pull_later(served), LATE);
    for (uint64_t i = 0; i < LATE; i++)
        read_version(streams[i], i);
    assert_int_equal(atomic_load(&served->broken), 0);
}

/* ---- in parts -------------------------------------------------------------------------------- */

enum { PART = COUNT / 4 };

/* The part from number `first` on of pull `number`. */
static Troupe__ServerPullReply *ask_part(struct served *served, uint32_t worker, uint64_t number,
                                         size_t first)
{
    Troupe__ServerPullRequest pull = pull_of(worker);
    pull.parts = number;
    pull.part_from = first * sizeof(float);
    pull.part_bytes = PART * sizeof(float);
    return (Troupe__ServerPullReply *)ask(served, "Pull", &pull.base, NULL);
}

static bool part_is(Troupe__ServerPullReply *reply, uint64_t version)
{
    const float *values = (const float *)(const void *)reply->values.data;
    bool is = reply->version == version && reply->values.len == PART * sizeof(float);
    for (size_t i = 0; is && i < PART; i++)
        is = values[i] == (float)version;
    troupe__server_pull_reply__free_unpacked(reply, NULL);
    return is;
}

static bool there_is_none(Troupe__ServerPullReply *reply)
{
    bool none = reply->values.len == 0;
    troupe__server_pull_reply__free_unpacked(reply, NULL);
    return none;
}

/* What was sent last may be on its way for a moment. */
static void wait_for_part(struct served *served, uint32_t worker, uint64_t number, uint64_t version)
{
    struct deadline give_up = deadline_in_ms(&clock_monotonic, 20000);
    Troupe__ServerPullReply *reply;
    while ((reply = ask_part(served, worker, number, 0))->values.len == 0) {
        assert_false(deadline_passed(give_up, &clock_monotonic));
        troupe__server_pull_reply__free_unpacked(reply, NULL);
    }
    assert_true(part_is(reply, version));
}

static void the_parts_of_a_pull_are_one_version_whatever_is_pushed(void **state)
{
    struct served *served = *state;
    fill_gradient(served);
    push_next(served, 0);
    for (uint64_t i = 0; i < 4; i++) {
        assert_true(part_is(ask_part(served, 0, 7, (3 - i) * PART), 1));
        push_next(served, i + 1);
    }
    wait_for_part(served, 0, 8, 5);
    assert_int_equal(atomic_load(&served->broken), 0);
}

/* Until it has asked for no more of them for some time; then it gets no more of the old ones. */
static void while_another_holds_values_there_are_no_parts(void **state)
{
    struct served *served = *state;
    struct deadline silence = deadline_in_ms(&clock_monotonic, STAGED_SILENCE_MS);
    fill_gradient(served);
    assert_true(part_is(ask_part(served, 0, 7, 0), 0));
    push_next(served, 0);
    assert_true(there_is_none(ask_part(served, 1, 8, 0)) ||
                deadline_passed(silence, &clock_monotonic));
    wait_for_part(served, 1, 9, 1);
    assert_false(part_is(ask_part(served, 0, 7, PART), 0));
    assert_int_equal(atomic_load(&served->broken), 0);
}

static void a_part_that_fits_nowhere_has_no_values(void **state)
{
    static const struct {
        uint64_t from, bytes;
    } rows[] = {
        {1, 4},
        {COUNT * sizeof(float), 4},
        {COUNT * sizeof(float) - 4, 8},
        {0, COUNT * sizeof(float) + 4},
        {UINT64_MAX - 3, 4},
        {4, UINT64_MAX},
    };
    static const uint64_t halves[] = {0, COUNT / 2, COUNT / 2 + 1, COUNT};
    struct served *served = *state;
    for (size_t i = 0; i <= sizeof rows / sizeof *rows; i++) {
        Troupe__ServerPullRequest pull = pull_of(0);
        pull.parts = 7;
        pull.part_from = i > 0 ? rows[i - 1].from : 0;
        pull.part_bytes = i > 0 ? rows[i - 1].bytes : 4;
        if (i == 0) {
            pull.ranges = (uint64_t *)(uintptr_t)halves;
            pull.n_ranges = 4;
            pull.keys = keys_hash(halves, 4);
        }
        assert_true(
            there_is_none((Troupe__ServerPullReply *)ask(served, "Pull", &pull.base, NULL)));
    }
    assert_int_equal(atomic_load(&served->broken), 0);
}

static void values_that_become_shared_are_the_same_and_whole(void **state)
{
    (void)state;
    struct table_values values;
    const uint8_t *memory;
    uint64_t writes;
    struct shared_state state_then;
    table_values_init(&values, 1000);
    for (size_t i = 0; i < 1000; i++)
        values.numbers[i] = (float)i;
    for (int turn = 0; turn < 2; turn++) { /* once is enough */
        table_values_share(&values, (struct shared_state){7, 2});
        assert_non_null(values.shared.memory);
        assert_ptr_equal(values.numbers,
                         ((struct shared_values *)(void *)values.shared.memory)->numbers);
    }
    assert_int_equal(sealed_map(&memory, &values.shared.place), TRP_OK);
    const struct shared_values *there = (const struct shared_values *)(const void *)memory;
    assert_true(shared_values_look(there, &writes, &state_then));
    assert_int_equal(state_then.version, 7);
    assert_int_equal(state_then.slowest, 2);
    for (size_t i = 0; i < 1000; i++)
        assert_true(there->numbers[i] == (float)i);
    table_values_begin(&values);
    assert_false(shared_values_are_whole(there, writes));
    assert_false(shared_values_look(there, &writes, &state_then));
    values.numbers[3] = -1;
    table_values_end(&values, (struct shared_state){8, 3});
    assert_true(shared_values_look(there, &writes, &state_then));
    assert_int_equal(state_then.version, 8);
    assert_int_equal(state_then.slowest, 3);
    assert_true(there->numbers[3] == -1);
    munmap((void *)(uintptr_t)memory, shared_values_bytes(1000));
    table_values_cleanup(&values);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_pulled_is_one_version_whatever_is_pushed,
                                        setup_served, teardown_served),
        cmocka_unit_test_setup_teardown(whoever_does_not_read_gets_what_there_was,
                                        setup_one_at_a_time, teardown_served),
        cmocka_unit_test_setup_teardown(the_parts_of_a_pull_are_one_version_whatever_is_pushed,
                                        setup_served, teardown_served),
        cmocka_unit_test_setup_teardown(while_another_holds_values_there_are_no_parts, setup_served,
                                        teardown_served),
        cmocka_unit_test_setup_teardown(a_part_that_fits_nowhere_has_no_values, setup_served,
                                        teardown_served),
        cmocka_unit_test(values_that_become_shared_are_the_same_and_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
