/* A server whose store is full. What clients ask of it is refused once it has waited for room in
 * vain; what makes room is done. The first commit that finds none and the time that passes then are
 * the test's: the linker puts it between the service and its engine. */
#include "tests/replay/replay_fixture.h"

#include "replay.pb-c.h"
#include "replay/service/limits.h"
#include "replay/service/service.h"

enum { STORE_BYTES = 4 << 20, MESSAGE_ITEMS = 200, UPDATES = 20000, LOOK_MS = 200 };

static struct service *served;
static _Atomic bool no_room, time_passes;

void __real_service_init(struct service *service, struct engine *engine, uint64_t held_bytes_max);
void __wrap_service_init(struct service *service, struct engine *engine, uint64_t held_bytes_max);
trp_status __real_engine_commit(struct engine *engine);
trp_status __wrap_engine_commit(struct engine *engine);

void __wrap_service_init(struct service *service, struct engine *engine, uint64_t held_bytes_max)
{
    served = service;
    __real_service_init(service, engine, held_bytes_max);
}

trp_status __wrap_engine_commit(struct engine *engine)
{
    if (!no_room)
        return __real_engine_commit(engine);
    if (time_passes)
        served->full_ns -= SERVICE_FULL_REFUSE_MS * INT64_C(1000000);
    return trp_fail(TRP_RESOURCE_EXHAUSTED, "the test has no room");
}

static int full_teardown(void **state)
{
    no_room = time_passes = false;
    return replay_teardown(state);
}

/* ---- waits in vain ----------------------------------------------------------------------- */

/* Nothing comes until there was no room for long. */
static void assert_refused_in_the_end(trp_stream *stream)
{
    trp_message *message = NULL;
    assert_int_equal(trp_stream_receive(stream, &message, LOOK_MS), TRP_DEADLINE_EXCEEDED);
    time_passes = true;
    assert_int_equal(trp_stream_receive(stream, &message, WAIT_MS), TRP_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(trp_last_error(), "the test has no room"));
    trp_stream_destroy(stream);
    no_room = time_passes = false;
}

static void an_update_is_refused_when_room_never_comes(void **state)
{
    struct replay *replay = *state;
    struct wire_mutate_request request = {.table = text_bytes("t")};
    trp_message *message;
    OPEN("name=t sampler=max_heap");
    insert_items(replay, "t", 1, 3);
    *wire_push_update(&request) = (struct wire_update){1, 100};
    assert_int_equal(wire_mutate_request_encode(&request, &message), TRP_OK);
    wire_mutate_request_cleanup(&request);
    no_room = true;
    trp_stream *stream = open_stream(replay, "MutatePriorities");
    assert_int_equal(trp_stream_send(stream, message, WAIT_MS), TRP_OK);
    assert_int_equal(trp_stream_half_close(stream), TRP_OK);
    assert_refused_in_the_end(stream);
    assert_int_equal(mutate_key(replay, "t", 2, true, 200, false), TRP_OK);
    assert_int_equal(sample_one(replay, "t").key, 2);
}

static void an_insert_is_refused_when_room_never_comes(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t sampler=fifo");
    insert_items(replay, "t", 1, 3);
    no_room = true;
    trp_stream *stream = open_stream(replay, "InsertStream");
    send_simple(stream, 4, "t", 4, 40);
    assert_refused_in_the_end(stream);
    insert_items(replay, "t", 4, 2); /* as its writer does when it may come again */
    assert_int_equal(table_state(replay, "t").size, 5);
}

/* ---- makes room -------------------------------------------------------------------------- */

/* Until an insert is refused; the next key. */
static uint64_t fill(const struct replay *replay, const char *table, uint64_t key)
{
    struct built *built = built_create(0);
    trp_stream *stream = open_stream(replay, "InsertStream");
    for (trp_status status = TRP_OK; status == TRP_OK;) {
        trp_message *message = NULL;
        for (uint32_t i = 0; i < MESSAGE_ITEMS; ++i, ++key) {
            add_chunk(built, (struct chunk_spec){.key = key, .value = 1});
            add_simple_item(built, key, table, 1, key);
        }
        status = try_send_built(stream, built, WAIT_MS);
        if (status == TRP_OK)
            status = trp_stream_receive(stream, &message, WAIT_MS);
        trp_message_destroy(message);
        if (status != TRP_OK)
            assert_int_equal(status, TRP_RESOURCE_EXHAUSTED);
    }
    trp_stream_destroy(stream);
    built_destroy(built);
    return key;
}

/* The change log is full, too. */
static void update_all(const struct replay *replay, const char *table, uint64_t keys)
{
    struct wire_mutate_request request = {.table = text_bytes(table)};
    trp_message *message;
    for (uint64_t i = 1; i <= UPDATES; ++i)
        *wire_push_update(&request) = (struct wire_update){fixture_hash(i) % keys, (double)i};
    assert_int_equal(wire_mutate_request_encode(&request, &message), TRP_OK);
    wire_mutate_request_cleanup(&request);
    assert_int_equal(unary(replay, "MutatePriorities", message, NULL), TRP_OK);
}

static trp_status ask(const struct replay *replay, const char *method, const void *request)
{
    ProtobufCService *service;
    ProtobufCMessage *reply = NULL;
    assert_int_equal(trp_channel_service(replay->channel, &troupe__replay__descriptor, &service),
                     TRP_OK);
    trp_status status = trp_call(service, method, request, &reply, NULL);
    if (reply)
        protobuf_c_message_free_unpacked(reply, NULL);
    return status;
}

static trp_status alter(const struct replay *replay, const char *options)
{
    Troupe__ReplayAlterTableRequest request = TROUPE__REPLAY_ALTER_TABLE_REQUEST__INIT;
    request.options = (char *)options;
    request.shrink = true;
    return ask(replay, "AlterTable", &request);
}

static void what_makes_room_is_done_on_a_full_store(void **state)
{
    struct replay *replay = *state;
    Troupe__ReplayDropTableRequest drop = TROUPE__REPLAY_DROP_TABLE_REQUEST__INIT;
    assert_int_equal(replay_try_open(replay, STORE_BYTES,
                                     LINES("name=t sampler=uniform remover=uniform max_size=1M",
                                           "name=u sampler=fifo")),
                     TRP_OK);
    uint64_t key = fill(replay, "t", 1);
    update_all(replay, "t", key);
    assert_int_equal(alter(replay, "name=t max_size=100"), TRP_OK);
    assert_int_equal(table_state(replay, "t").size, 100);

    assert_int_equal(alter(replay, "name=t max_size=1M"), TRP_OK);
    uint64_t first = key;
    key = fill(replay, "t", key);
    assert_true(key > first + 1000);
    update_all(replay, "t", key);
    assert_int_equal(reset_table(replay, "t"), TRP_OK);
    assert_int_equal(table_state(replay, "t").size, 0);

    first = key;
    key = fill(replay, "t", key);
    assert_true(key > first + 1000);
    update_all(replay, "t", key);
    drop.table = "t";
    assert_int_equal(ask(replay, "DropTable", &drop), TRP_OK);
    first = key;
    key = fill(replay, "u", key);
    assert_true(key > first + 1000);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, replay_setup, full_teardown)
    const struct CMUnitTest tests[] = {
        TEST(an_update_is_refused_when_room_never_comes),
        TEST(an_insert_is_refused_when_room_never_comes),
        TEST(what_makes_room_is_done_on_a_full_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
