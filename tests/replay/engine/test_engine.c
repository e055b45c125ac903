/* A replay server's life: unary calls, reopening, a crash at any moment, a full store, looking in.
 * A crash is a copy of the live directory: the files as a kill -9 leaves them. */
#include "tests/core/captured.h"
#include "tests/replay/replay_fixture.h"

#include <troupe/item.h>
#include "core/clock.h"
#include "replay.pb-c.h"
#include "replay/disk/disk.h"
#include "replay/engine/engine.h"
#include "replay/engine/limits.h"

static ProtobufCService *replay_service(const struct replay *replay)
{
    ProtobufCService *service;
    assert_int_equal(trp_channel_service(replay->channel, &troupe__replay__descriptor, &service),
                     TRP_OK);
    return service;
}

static ProtobufCMessage *ask(ProtobufCService *service, const char *method,
                             const ProtobufCMessage *request, trp_status expected)
{
    ProtobufCMessage *reply = NULL;
    assert_int_equal(trp_call(service, method, request, &reply, NULL), expected);
    return reply;
}

/* ---- unary calls ------------------------------------------------------------------------- */

static void mutations_delete_before_they_update(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t sampler=max_heap");
    insert_items(replay, "t", 1, 4);
    assert_int_equal(mutate_key(replay, "t", 2, true, 100, false), TRP_OK);
    assert_int_equal(sample_one(replay, "t").key, 2);
    assert_int_equal(mutate_key(replay, "t", 2, true, 200, true), TRP_OK);
    assert_int_equal(table_state(replay, "t").size, 3);
    assert_int_equal(mutate_key(replay, "t", 99, true, 1, false), TRP_OK); /* unknown: ignored */
    assert_int_equal(mutate_key(replay, "nope", 1, true, 1, false), TRP_NOT_FOUND);
    assert_non_null(strstr(trp_last_error(), "Priority table nope was not found"));
    assert_int_equal(sample_one(replay, "t").key, 4);
}

static void a_bad_priority_in_a_mutation_is_an_error(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t sampler=prioritized(1)");
    insert_items(replay, "t", 1, 2);
    assert_int_equal(mutate_key(replay, "t", 2, true, -1, false), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "Priority must not be negative."));
    assert_true(sample_one(replay, "t").priority > 0);
}

static void a_reset_empties_the_table_and_its_counters(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t limiter=samples_per_insert(1,1,2)", "name=u");
    insert_items(replay, "t", 1, 3);
    insert_items(replay, "u", 1, 3);
    sample_one(replay, "t");
    assert_int_equal(reset_table(replay, "t"), TRP_OK);
    struct table_state empty = table_state(replay, "t");
    assert_int_equal(empty.size, 0);
    assert_int_equal(empty.inserts, 0);
    assert_int_equal(empty.samples, 0);
    assert_int_equal(empty.unique, 0);
    assert_int_equal(table_state(replay, "u").size, 3);
    insert_items(replay, "t", 1, 1);
    assert_int_equal(reset_table(replay, "nope"), TRP_NOT_FOUND);
    replay_close(replay);
    OPEN("name=t limiter=samples_per_insert(1,1,2)", "name=u");
    assert_int_equal(table_state(replay, "t").size, 1);
    assert_int_equal(table_state(replay, "u").size, 3);
}

static void calls_that_other_servers_need_are_answered(void **state)
{
    struct replay *replay = *state;
    trp_message *reply;
    OPEN("name=t");
    trp_message *request = trp_message_create(6);
    memcpy(trp_message_data(request), "\x08\xd2\x09\x12\x01t", 6);
    assert_int_equal(unary(replay, "InitializeConnection", request, &reply), TRP_OK);
    assert_int_equal(trp_message_size(reply), 0); /* address 0 */
    trp_message_destroy(reply);
    trp_stream *stream = open_stream(replay, "InitializeConnection");
    assert_int_equal(trp_stream_half_close(stream), TRP_OK);
    assert_ends(stream, TRP_OK, NULL);
    stream = open_stream(replay, "Reset");
    assert_int_equal(trp_stream_half_close(stream), TRP_OK);
    assert_ends(stream, TRP_INVALID_ARGUMENT, "without a request");
}

/* ---- reopening --------------------------------------------------------------------------- */

static void everything_confirmed_survives_a_stop_and_a_crash(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t sampler=fifo max_size=50", "name=u sampler=max_heap");
    insert_items(replay, "t", 1, 60);
    insert_items(replay, "u", 1, 5);
    assert_int_equal(mutate_key(replay, "u", 3, true, 1000, false), TRP_OK);
    assert_int_equal(mutate_key(replay, "u", 4, false, 0, true), TRP_OK);
    for (int life = 0; life < 2; ++life) {
        if (life == 0)
            crash(replay, NULL);
        else
            replay_close(replay);
        OPEN("name=t sampler=fifo max_size=50", "name=u sampler=max_heap");
        assert_int_equal(table_state(replay, "t").size, 50);
        assert_int_equal(table_state(replay, "t").inserts, 60);
        assert_int_equal(table_state(replay, "u").size, 4);
        struct sampled sample = sample_one(replay, "t");
        assert_int_equal(sample.key, 11);
        assert_int_equal(sample.value, 110);
        sample = sample_one(replay, "u");
        assert_int_equal(sample.key, 3);
        assert_true(sample.priority == 1000);
    }
    insert_items(replay, "u", 3, 1); /* the index knows it: an update */
    assert_int_equal(table_state(replay, "u").size, 4);
}

static void the_options_given_win_over_those_stored(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t sampler=fifo max_size=10", "name=u");
    insert_items(replay, "t", 1, 10);
    replay_close(replay);
    assert_int_equal(replay_try_open(replay, 0, LINES("name=t")), TRP_FAILED_PRECONDITION);
    assert_non_null(strstr(trp_last_error(), "table u"));
    assert_non_null(strstr(trp_last_error(), replay->dir));
    OPEN("name=new", "name=u", "name=t sampler=lifo max_size=20");
    assert_int_equal(table_state(replay, "t").size, 10);
    assert_int_equal(sample_one(replay, "t").key, 10);
}

static void items_go_only_when_a_table_may_shrink(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t sampler=fifo max_size=10");
    insert_items(replay, "t", 1, 10);
    replay_close(replay);
    assert_int_equal(replay_try_open(replay, 0, LINES("name=t max_size=4")),
                     TRP_FAILED_PRECONDITION);
    assert_non_null(strstr(trp_last_error(), "remove 6"));
    assert_non_null(strstr(trp_last_error(), "--shrink"));
    OPEN("name=t sampler=fifo max_size=10"); /* nothing has changed */
    assert_int_equal(table_state(replay, "t").size, 10);
    replay_close(replay);
    trp_table_options table = {.name = "t", .sampler.kind = TRP_FIFO, .max_size = 4};
    trp_replay_server_options options = {
        .dir = replay->dir, .tables = &table, .table_count = 1, .shrink = true};
    assert_int_equal(trp_replay_server_create(&replay->server, &options), TRP_OK);
    replay->channel = trp_channel_create_local(trp_replay_server_rpc(replay->server));
    assert_int_equal(table_state(replay, "t").size, 4);
    assert_int_equal(sample_one(replay, "t").key, 7);
}

static void used_up_items_go_when_a_restart_allows_fewer_samples(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t sampler=fifo max_times_sampled=5");
    insert_items(replay, "t", 1, 4);
    for (int i = 0; i < 3; ++i)
        sample_one(replay, "t");
    replay_close(replay);
    assert_int_equal(replay_try_open(replay, 0, LINES("name=t sampler=fifo max_times_sampled=2")),
                     TRP_FAILED_PRECONDITION);
    assert_non_null(strstr(trp_last_error(), "1 item that came to max_times_sampled=2"));
    trp_table_options table = {.name = "t", .sampler.kind = TRP_FIFO, .max_times_sampled = 2};
    trp_replay_server_options options = {
        .dir = replay->dir, .tables = &table, .table_count = 1, .shrink = true};
    assert_int_equal(trp_replay_server_create(&replay->server, &options), TRP_OK);
    replay->channel = trp_channel_create_local(trp_replay_server_rpc(replay->server));
    assert_int_equal(table_state(replay, "t").size, 3);
    assert_int_equal(sample_one(replay, "t").key, 2);
}

static void a_store_that_was_deleted_refuses_inserts(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t");
    insert_items(replay, "t", 1, 2);
    fixture_erase(replay->dir);
    trp_stream *stream = open_stream(replay, "InsertStream");
    struct deadline deadline = deadline_in_ms(&clock_monotonic, WAIT_MS);
    trp_status status = TRP_OK;
    trp_message *message;
    for (uint64_t key = 3; status == TRP_OK; ++key) {
        assert_false(deadline_passed(deadline, &clock_monotonic));
        send_simple(stream, key, "t", 1, key);
        status = trp_stream_receive(stream, &message, WAIT_MS);
        if (status == TRP_OK)
            trp_message_destroy(message);
    }
    assert_int_equal(status, TRP_DATA_LOSS);
    assert_non_null(strstr(trp_last_error(), "data.mdb was deleted"));
    trp_stream_destroy(stream);
    assert_in_range(sample_one(replay, "t").key, 1, UINT64_MAX); /* what is there can be had */
}

/* What is logged while a server opens with this table. */
static void open_logging(struct replay *replay, const char *line, struct captured *log)
{
    capture_begin(log);
    OPEN(line);
    assert_int_equal(trp_replay_server_start(replay->server), TRP_OK);
    capture_end(log);
}

static void a_limiter_that_can_never_go_on_is_told(void **state)
{
    struct replay *replay = *state;
    struct captured log;
    open_logging(replay, "name=t", &log);
    insert_items(replay, "t", 1, 3);
    replay_close(replay);
    open_logging(replay, "name=t limiter=rate(1,1,3,3)", &log);
    assert_int_equal(captured_count(&log, "neither an insert nor a sample"), 1);
    replay_close(replay);
    open_logging(replay, "name=t limiter=min_size(100)", &log); /* more may come */
    assert_int_equal(captured_count(&log, "neither"), 0);
}

static void options_that_no_server_can_have_are_refused(void **state)
{
    struct replay *replay = *state;
    assert_int_equal(replay_try_open(replay, 0, LINES("name=t", "name=t")), TRP_ALREADY_EXISTS);
    OPEN("name=t");
    struct replay second = {.dir = replay->dir};
    assert_int_equal(replay_try_open(&second, 0, LINES("name=t")), TRP_FAILED_PRECONDITION);
    assert_non_null(strstr(trp_last_error(), "in use"));
}

static void an_item_on_its_way_in_a_crash_is_given_again(void **state)
{
    struct replay *replay = *state;
    struct sampled samples[3];
    const char *line = "name=t sampler=fifo limiter=queue(10) max_times_sampled=1";
    OPEN(line);
    insert_items(replay, "t", 1, 3);
    trp_stream *stream = open_stream(replay, "SampleStream");
    send_sample_request(stream, "t", 1, -1);
    receive_samples(stream, samples, 1);
    send_sample_request(stream, "t", 1, -1); /* so 1 has arrived */
    receive_samples(stream, samples, 1);
    assert_int_equal(samples[0].key, 2);
    insert_items(replay, "t", 4, 1); /* a commit that might say too much */
    assert_int_equal(table_state(replay, "t").size, 2);

    crash(replay, stream);
    OPEN(line);
    assert_int_equal(table_state(replay, "t").size, 3);
    assert_int_equal(table_state(replay, "t").inserts, 4);
    assert_int_equal(table_state(replay, "t").samples, 1);
    stream = open_stream(replay, "SampleStream");
    send_sample_request(stream, "t", 3, 0);
    receive_samples(stream, samples, 3);
    for (int i = 0; i < 3; ++i)
        assert_int_equal(samples[i].key, i + 2);
    trp_stream_destroy(stream);
}

static void an_item_whose_stream_ended_is_not_given_again(void **state)
{
    struct replay *replay = *state;
    struct sampled samples[2];
    const char *line = "name=t sampler=fifo limiter=queue(10) max_times_sampled=1";
    OPEN(line);
    insert_items(replay, "t", 1, 3);
    trp_stream *stream = open_stream(replay, "SampleStream");
    send_sample_request(stream, "t", 2, -1);
    receive_samples(stream, samples, 2);
    trp_stream_destroy(stream);
    crash(replay, NULL);
    OPEN(line);
    assert_int_equal(table_state(replay, "t").size, 1);
    assert_int_equal(table_state(replay, "t").samples, 2);
    assert_int_equal(sample_one(replay, "t").key, 3);
}

static void samples_are_counted_across_a_crash_once_the_server_was_idle(void **state)
{
    struct replay *replay = *state;
    struct sampled samples[9];
    OPEN("name=t limiter=samples_per_insert(3,1,6)");
    insert_items(replay, "t", 1, 3);
    trp_stream *stream = open_stream(replay, "SampleStream");
    send_sample_request(stream, "t", 9, -1);
    receive_samples(stream, samples, 9);
    table_state(replay, "t"); /* another turn, in which nothing else is to be done */
    trp_stream_destroy(stream);
    crash(replay, NULL);
    OPEN("name=t limiter=samples_per_insert(3,1,6)");
    assert_int_equal(table_state(replay, "t").samples, 9);
}

static void a_reset_forgets_items_that_are_on_their_way(void **state)
{
    struct replay *replay = *state;
    struct sampled samples[2];
    const char *line = "name=t sampler=fifo limiter=queue(10) max_times_sampled=1";
    OPEN(line);
    insert_items(replay, "t", 1, 3);
    trp_stream *stream = open_stream(replay, "SampleStream");
    send_sample_request(stream, "t", 2, -1);
    receive_samples(stream, samples, 2);
    assert_int_equal(reset_table(replay, "t"), TRP_OK);
    insert_items(replay, "t", 9, 1);
    crash(replay, stream);
    OPEN(line);
    assert_int_equal(table_state(replay, "t").size, 1);
    assert_int_equal(table_state(replay, "t").inserts, 1);
    assert_int_equal(sample_one(replay, "t").key, 9);
}

/* Items 1 to `count` into t, of which many have a chunk. */
static void insert_many(const struct replay *replay, uint64_t count)
{
    enum { PER_MESSAGE = 500 };
    trp_stream *stream = open_stream(replay, "InsertStream");
    struct built *built = built_create(0);
    struct wire_keys keys = {0};
    for (uint64_t key = 1; key <= count; ++key) {
        if (key % PER_MESSAGE == 1)
            add_chunk(built, (struct chunk_spec){.key = key});
        add_simple_item(built, key, "t", 1, (key - 1) / PER_MESSAGE * PER_MESSAGE + 1);
        wire_push_key(&keys, key);
        if (key % PER_MESSAGE == 0 || key == count)
            send_built(stream, built);
    }
    assert_confirmed(stream, keys.keys, (uint32_t)count);
    trp_stream_destroy(stream);
    built_destroy(built);
    wire_keys_cleanup(&keys);
}

static void keys_are_known_again_after_a_reopen_with_many_items(void **state)
{
    struct replay *replay = *state;
    /* more than are there before the server is */
    enum { COUNT = OPEN_INDEX_STEPS * INDEX_STEP_ITEMS + 30000, DRAWS = 20 };
    OPEN("name=t", "name=q max_times_sampled=1 sampler=fifo");
    insert_many(replay, COUNT);
    insert_items(replay, "q", COUNT + 1, 3);

    for (int life = 0; life < 3; ++life) { /* they are killed before they know all keys */
        crash(replay, NULL);
        OPEN("name=t", "name=q max_times_sampled=1 sampler=fifo");
        for (int draw = 0; draw < DRAWS; ++draw)
            assert_in_range(sample_one(replay, "t").key, 1, COUNT);
        assert_int_equal(table_state(replay, "t").size, COUNT);
    }
    trp_stream *stream = open_stream(replay, "InsertStream");
    send_simple(stream, COUNT, "t", 5, 1); /* waits for the index, then is an update */
    sample_one(replay, "t");               /* does not wait */
    assert_confirmed(stream, (uint64_t[]){COUNT}, 1);
    assert_int_equal(table_state(replay, "t").size, COUNT);
    assert_int_equal(sample_one(replay, "q").key, COUNT + 1); /* is taken out: waited, too */
    assert_int_equal(mutate_key(replay, "t", 1, false, 0, true), TRP_OK);
    assert_int_equal(table_state(replay, "t").size, COUNT - 1);
    trp_stream_destroy(stream);
    replay_close(replay);
    OPEN("name=t", "name=q max_times_sampled=1 sampler=fifo");
    assert_int_equal(table_state(replay, "t").size, COUNT - 1);
}

static void a_checkpoint_may_come_before_all_items_are_in_memory(void **state)
{
    struct replay *replay = *state;
    enum { COUNT = OPEN_INDEX_STEPS * INDEX_STEP_ITEMS + 30000 };
    trp_message *reply;
    OPEN("name=t");
    insert_many(replay, COUNT);
    replay_close(replay);
    OPEN("name=t");
    assert_int_equal(unary(replay, "Checkpoint", trp_message_create(0), &reply), TRP_OK);
    Deepmind__Reverb__CheckpointResponse *response = deepmind__reverb__checkpoint_response__unpack(
        NULL, trp_message_size(reply), trp_message_data(reply));
    trp_message_destroy(reply);
    struct checkpoint_info info;
    assert_int_equal(checkpoint_info_read(&info, response->checkpoint_path), TRP_OK);
    assert_int_equal(info.items, COUNT);
    checkpoint_info_cleanup(&info);
    deepmind__reverb__checkpoint_response__free_unpacked(response, NULL);
}

static trp_status enter_at_once(void *owner, trp_status (*work)(void *arg, struct engine *engine),
                                void *arg)
{
    return owner ? work(arg, owner) : trp_fail(TRP_UNAVAILABLE, "the server has stopped");
}

/* Is it not the last time that it is asked? */
static bool a_few_times(void *arg)
{
    int *left = arg;
    return (*left)-- > 0;
}

static void who_needs_all_items_in_memory_may_give_up(void **state)
{
    struct replay *replay = *state;
    enum { COUNT = OPEN_INDEX_STEPS * INDEX_STEP_ITEMS + 30000 };
    struct engine *engine;
    int few = 1, many = COUNT;
    OPEN("name=t");
    insert_many(replay, COUNT);
    replay_close(replay);
    assert_int_equal(engine_create(&engine, &(struct engine_options){.dir = replay->dir}), TRP_OK);
    struct engine_door door = {enter_at_once, engine};
    assert_int_equal(engine_load(&door, a_few_times, &few), TRP_CANCELLED);
    assert_false(engine_ready(engine));
    assert_int_equal(engine_load(&door, a_few_times, &many), TRP_OK);
    assert_true(engine_ready(engine));
    engine_destroy(engine);
    door.owner = NULL;
    assert_int_equal(engine_load(&door, a_few_times, &many), TRP_UNAVAILABLE);
}

static void a_chunk_found_damaged_early_costs_its_item_once_all_are_in_memory(void **state)
{
    struct replay *replay = *state;
    enum { COUNT = OPEN_INDEX_STEPS * INDEX_STEP_ITEMS + 30000, BYTES = 3000 };
    const uint64_t key = COUNT + 1;
    struct built *built = built_create(BYTES);
    OPEN("name=t sampler=lifo");
    insert_many(replay, COUNT);
    trp_stream *stream = open_stream(replay, "InsertStream");
    add_chunk(built, (struct chunk_spec){.key = key, .value = 1 << 20, .bytes = BYTES});
    add_simple_item(built, key, "t", 1, key);
    send_built(stream, built);
    assert_confirmed(stream, &key, 1);
    trp_stream_destroy(stream);
    built_destroy(built);
    replay_close(replay);
    fixture_damage(replay->dir, 1 << 20, BYTES);
    OPEN("name=t sampler=lifo");
    stream = open_stream(replay, "SampleStream");
    send_sample_request(stream, "t", 1, WAIT_MS);
    assert_ends(stream, TRP_DATA_LOSS, "table t, key ");
    assert_int_equal(mutate_key(replay, "t", 1, false, 0, true), TRP_OK); /* waits for the index */
    assert_int_equal(table_state(replay, "t").size, COUNT - 1);
    assert_int_equal(sample_one(replay, "t").key, COUNT);
}

/* A Fetch of one item. */
struct keyed {
    Troupe__ReplayFetchRequest request;
    Troupe__ReplayFilter filter;
    uint64_t key;
};

static struct keyed keyed_fetch(const char *table, uint64_t key)
{
    struct keyed keyed = {.request = TROUPE__REPLAY_FETCH_REQUEST__INIT,
                          .filter = TROUPE__REPLAY_FILTER__INIT,
                          .key = key};
    keyed.request.table = (char *)table;
    return keyed;
}

static const ProtobufCMessage *keyed_base(struct keyed *keyed)
{
    keyed->request.filter = &keyed->filter;
    keyed->filter.keys = &keyed->key;
    keyed->filter.n_keys = 1;
    return &keyed->request.base;
}

static void items_whose_records_are_damaged_go_and_nobody_waits_for_them(void **state)
{
    struct replay *replay = *state;
    enum { COUNT = OPEN_INDEX_STEPS * INDEX_STEP_ITEMS + 30000 };
    const uint64_t key = UINT64_C(0x0122334455667788);
    OPEN("name=t", "name=q sampler=lifo");
    insert_many(replay, COUNT);
    insert_items(replay, "q", 1, 1);
    insert_items(replay, "q", key, 1);
    for (int life = 0; life < 2; ++life) {
        replay_close(replay);
        if (life == 0)
            damage_record(replay->dir, key);
        OPEN("name=t", "name=q sampler=lifo");
        assert_int_equal(sample_one(replay, "q").key, 1);
        insert_items(replay, "q", 1, 1); /* is known: waits for the index */
        assert_int_equal(table_state(replay, "q").size, 1);
        assert_int_equal(table_state(replay, "t").size, COUNT);
    }
}

/* ---- a full store ------------------------------------------------------------------------ */

static void a_full_store_refuses_inserts_and_recovers(void **state)
{
    struct replay *replay = *state;
    enum { BYTES = 100000 };
    assert_int_equal(replay_try_open(replay, 24 << 20, LINES("name=t sampler=fifo")), TRP_OK);
    struct built *built = built_create(2 * BYTES);
    for (int round = 0; round < 2; ++round) {
        trp_stream *stream = open_stream(replay, "InsertStream");
        uint64_t key = 0;
        trp_status status = TRP_OK;
        while (status == TRP_OK && key < 1000) {
            ++key;
            add_chunk(built, (struct chunk_spec){.key = key, .value = 1, .bytes = BYTES});
            add_simple_item(built, key, "t", 1, key);
            send_built(stream, built);
            trp_message *message = NULL;
            status = trp_stream_receive(stream, &message, WAIT_MS);
            trp_message_destroy(message);
        }
        assert_int_equal(status, TRP_RESOURCE_EXHAUSTED);
        assert_non_null(strstr(trp_last_error(), replay->dir));
        assert_in_range(key, 100, 260);
        trp_stream_destroy(stream);
        assert_int_equal(table_state(replay, "t").size, key - 1);
        sample_one(replay, "t");
        assert_int_equal(reset_table(replay, "t"), TRP_OK);
    }
    insert_items(replay, "t", 1, 3);
    built_destroy(built);
}

/* ---- troupe.Replay ----------------------------------------------------------------------- */

static void check_items(ProtobufCService *service)
{
    Troupe__ReplayItemsRequest request = TROUPE__REPLAY_ITEMS_REQUEST__INIT;
    request.table = "t";
    request.count = 2;
    Troupe__ReplayItemsResponse *items =
        (Troupe__ReplayItemsResponse *)ask(service, "Items", &request.base, TRP_OK);
    assert_int_equal(items->n_items, 2);
    assert_int_equal(items->table_size, 5);
    assert_int_equal(items->items[0]->key, 5);
    assert_int_equal(items->items[1]->key, 4);
    assert_int_equal(items->items[0]->chunk_count, 1);
    assert_true(items->items[0]->bytes > 8);
    assert_string_equal(items->order, "by priority, highest first");
    troupe__replay_items_response__free_unpacked(items, NULL);
    request.table = "nope";
    assert_null(ask(service, "Items", &request.base, TRP_NOT_FOUND));
}

static void check_fetch(ProtobufCService *service)
{
    struct keyed fetch = keyed_fetch("t", 3);
    Troupe__ReplayFetchResponse *reply =
        (Troupe__ReplayFetchResponse *)ask(service, "Fetch", keyed_base(&fetch), TRP_OK);
    trp_item_reader *reader = trp_item_reader_create();
    trp_item_data item;
    bool more;
    int64_t value;
    assert_int_equal(
        trp_item_reader_feed(reader, (trp_bytes){reply->samples.data, reply->samples.len}), TRP_OK);
    assert_int_equal(trp_item_reader_next(reader, &item, &more), TRP_OK);
    assert_true(more);
    assert_int_equal(item.key, 3);
    assert_int_equal(item.column_count, 1);
    assert_int_equal(item.columns[0].dtype, TRP_INT64);
    assert_int_equal(item.columns[0].data.size, sizeof value);
    memcpy(&value, item.columns[0].data.data, sizeof value);
    assert_int_equal(value, 30);
    trp_item_reader_destroy(reader);
    troupe__replay_fetch_response__free_unpacked(reply, NULL);
    fetch = keyed_fetch("nope", 3);
    assert_null(ask(service, "Fetch", keyed_base(&fetch), TRP_NOT_FOUND));
}

static void a_live_server_and_its_files_answer_alike(void **state)
{
    struct replay *replay = *state;
    ProtobufCService *service;
    trp_replay_files *files;
    OPEN("name=t sampler=max_heap", "name=u");
    insert_items(replay, "t", 1, 5);
    service = replay_service(replay);
    check_items(service);
    check_fetch(service);
    assert_int_equal(trp_replay_files_open(&files, replay->dir), TRP_FAILED_PRECONDITION);
    char pid[32];
    snprintf(pid, sizeof pid, "pid %ld", (long)getpid());
    assert_non_null(strstr(trp_last_error(), pid));
    replay_close(replay);

    assert_int_equal(trp_replay_files_open(&files, replay->dir), TRP_OK);
    service = trp_replay_files_service(files);
    check_items(service);
    check_fetch(service);
    Troupe__ReplayTablesRequest request = TROUPE__REPLAY_TABLES_REQUEST__INIT;
    Troupe__ReplayTablesResponse *tables =
        (Troupe__ReplayTablesResponse *)ask(service, "Tables", &request.base, TRP_OK);
    assert_int_equal(tables->n_tables, 2);
    assert_int_equal(tables->pid, 0);
    assert_int_equal(tables->store->items, 5);
    troupe__replay_tables_response__free_unpacked(tables, NULL);
    trp_replay_files_close(files);
}

static ProtobufCService *reopened(struct replay *replay)
{
    replay_close(replay);
    OPEN("name=t sampler=max_heap");
    return replay_service(replay);
}

static bool is_indexing(ProtobufCService *service)
{
    Troupe__ReplayTablesRequest request = TROUPE__REPLAY_TABLES_REQUEST__INIT;
    Troupe__ReplayTablesResponse *tables =
        (Troupe__ReplayTablesResponse *)ask(service, "Tables", &request.base, TRP_OK);
    bool indexing = tables->tables[0]->indexing;
    troupe__replay_tables_response__free_unpacked(tables, NULL);
    return indexing;
}

static void calls_about_keys_wait_until_all_items_are_in_memory(void **state)
{
    struct replay *replay = *state;
    enum { COUNT = OPEN_INDEX_STEPS * INDEX_STEP_ITEMS + 100000 };
    uint64_t key = COUNT;
    Troupe__ReplayFilter filter = TROUPE__REPLAY_FILTER__INIT;
    Troupe__ReplayItemsRequest items = TROUPE__REPLAY_ITEMS_REQUEST__INIT;
    struct keyed fetch = keyed_fetch("t", key);
    items.table = "t";
    items.filter = &filter;
    items.count = filter.n_keys = 1;
    filter.keys = &key;
    OPEN("name=t sampler=max_heap");
    insert_many(replay, COUNT);

    ProtobufCService *service = reopened(replay);
    assert_true(is_indexing(service));
    Troupe__ReplayItemsResponse *found =
        (Troupe__ReplayItemsResponse *)ask(service, "Items", &items.base, TRP_OK);
    assert_int_equal(found->n_items, 1);
    troupe__replay_items_response__free_unpacked(found, NULL);

    service = reopened(replay);
    trp_call_options soon = {.timeout_ms = 1};
    ProtobufCMessage *reply = NULL;
    assert_int_equal(trp_call(service, "Fetch", keyed_base(&fetch), &reply, &soon),
                     TRP_DEADLINE_EXCEEDED);
    assert_true(is_indexing(service)); /* it waited no longer than that */
    reply = ask(service, "Fetch", keyed_base(&fetch), TRP_OK);
    protobuf_c_message_free_unpacked(reply, NULL);

    service = reopened(replay);
    assert_true(is_indexing(service));
    assert_int_equal(mutate_key(replay, "t", key, true, 1000, false), TRP_OK);
    assert_int_equal(sample_one(replay, "t").key, key);
}

static void tables_say_who_is_blocked(void **state)
{
    struct replay *replay = *state;
    OPEN("name=q sampler=fifo limiter=queue(2) max_times_sampled=1", "name=e");
    trp_stream *writer = open_stream(replay, "InsertStream");
    for (uint64_t key = 1; key <= 3; ++key)
        send_simple(writer, key, "q", 1, 1);
    trp_stream *sampler = open_stream(replay, "SampleStream");
    send_sample_request(sampler, "e", 7, -1);

    Troupe__ReplayTablesRequest request = TROUPE__REPLAY_TABLES_REQUEST__INIT;
    Troupe__ReplayTablesResponse *tables = (Troupe__ReplayTablesResponse *)ask(
        replay_service(replay), "Tables", &request.base, TRP_OK);
    const Troupe__ReplayTable *queue = tables->tables[0], *empty = tables->tables[1];
    assert_int_equal(tables->pid, getpid());
    assert_int_equal(queue->inserts_waiting, 1);
    assert_int_equal(queue->n_waiters, 1);
    assert_false(queue->waiters[0]->sampling);
    assert_int_equal(queue->waiters[0]->count, 1);
    assert_string_equal(queue->waiters[0]->peer, "in-process");
    assert_false(queue->limiter->can_insert);
    assert_true(queue->limiter->diff == 2);
    assert_int_equal(empty->samples_waiting, 1);
    assert_int_equal(empty->waiters[0]->count, 7);
    assert_true(empty->waiters[0]->sampling);
    assert_false(empty->limiter->can_sample);
    troupe__replay_tables_response__free_unpacked(tables, NULL);
    trp_stream_destroy(sampler);
    trp_stream_destroy(writer);
}

static double waits_since_seconds(const struct replay *replay)
{
    Troupe__ReplayTablesRequest request = TROUPE__REPLAY_TABLES_REQUEST__INIT;
    Troupe__ReplayTablesResponse *tables = (Troupe__ReplayTablesResponse *)ask(
        replay_service(replay), "Tables", &request.base, TRP_OK);
    assert_int_equal(tables->tables[0]->n_waiters, 1);
    assert_int_equal(tables->tables[0]->waiters[0]->count, 1);
    double seconds = tables->tables[0]->waiters[0]->since_seconds;
    troupe__replay_tables_response__free_unpacked(tables, NULL);
    return seconds;
}

static void who_is_blocked_waits_since_the_item_came_that_waits(void **state)
{
    enum { ROUNDS = 100 };
    struct replay *replay = *state;
    int64_t before_last = 0;
    OPEN("name=q sampler=fifo limiter=queue(1) max_times_sampled=1");
    trp_stream *writer = open_stream(replay, "InsertStream");
    send_simple(writer, 1, "q", 1, 1);
    send_simple(writer, 2, "q", 1, 1);
    for (uint64_t key = 1; key <= ROUNDS; ++key) {
        before_last = clock_now_ns(&clock_monotonic);
        send_simple(writer, key + 2, "q", 1, 1); /* two wait; with this sample one goes in */
        assert_int_equal(sample_one(replay, "q").key, key);
    }
    double seconds = waits_since_seconds(replay);
    assert_true(seconds > 0);
    assert_true(seconds <= (double)(clock_now_ns(&clock_monotonic) - before_last) * 1e-9);
    trp_stream_destroy(writer);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, replay_setup, replay_teardown)
    const struct CMUnitTest tests[] = {
        TEST(mutations_delete_before_they_update),
        TEST(a_bad_priority_in_a_mutation_is_an_error),
        TEST(a_reset_empties_the_table_and_its_counters),
        TEST(calls_that_other_servers_need_are_answered),
        TEST(everything_confirmed_survives_a_stop_and_a_crash),
        TEST(the_options_given_win_over_those_stored),
        TEST(items_go_only_when_a_table_may_shrink),
        TEST(used_up_items_go_when_a_restart_allows_fewer_samples),
        TEST(a_store_that_was_deleted_refuses_inserts),
        TEST(a_limiter_that_can_never_go_on_is_told),
        TEST(options_that_no_server_can_have_are_refused),
        TEST(an_item_on_its_way_in_a_crash_is_given_again),
        TEST(an_item_whose_stream_ended_is_not_given_again),
        TEST(samples_are_counted_across_a_crash_once_the_server_was_idle),
        TEST(a_reset_forgets_items_that_are_on_their_way),
        TEST(keys_are_known_again_after_a_reopen_with_many_items),
        TEST(a_checkpoint_may_come_before_all_items_are_in_memory),
        TEST(who_needs_all_items_in_memory_may_give_up),
        TEST(a_chunk_found_damaged_early_costs_its_item_once_all_are_in_memory),
        TEST(items_whose_records_are_damaged_go_and_nobody_waits_for_them),
        TEST(a_full_store_refuses_inserts_and_recovers),
        TEST(a_live_server_and_its_files_answer_alike),
        TEST(calls_about_keys_wait_until_all_items_are_in_memory),
        TEST(tables_say_who_is_blocked),
        TEST(who_is_blocked_waits_since_the_item_came_that_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
