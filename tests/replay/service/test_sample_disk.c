/* Samples that are on the disk: who waits for them, who does not, and that they are counted as any
 * others. */
#include "tests/replay/replay_fixture.h"

#include <replay.pb-c.h>

#include "replay/service/limits.h"
#include "slow_disk.h"

enum { FRAME = 20000, FRAME_PAGES = 5 }; /* more than a chunk that is kept in memory has */

static void insert_frames(const struct replay *replay, const char *table, uint64_t first,
                          uint32_t count)
{
    trp_stream *stream = open_stream(replay, "InsertStream");
    struct built *built = built_create(FRAME + 64);
    for (uint64_t key = first; key < first + count; ++key) {
        add_chunk(built, (struct chunk_spec){.key = key, .value = (int64_t)key, .bytes = FRAME});
        add_simple_item(built, key, table, 1, key);
        send_built(stream, built);
        assert_confirmed(stream, &key, 1);
    }
    trp_stream_destroy(stream);
    built_destroy(built);
}

static trp_stream *ask(const struct replay *replay, const char *table, int64_t count,
                       int64_t timeout_ms)
{
    trp_stream *stream = open_stream(replay, "SampleStream");
    send_sample_request(stream, table, count, timeout_ms);
    return stream;
}

static void assert_nothing_yet(trp_stream *stream)
{
    trp_message *message;
    assert_int_equal(trp_stream_receive(stream, &message, 0), TRP_DEADLINE_EXCEEDED);
    assert_null(strstr(trp_last_error(), "Rate Limiter"));
}

static void who_waits_for_the_disk_holds_nobody_up(void **state)
{
    struct replay *replay = *state;
    struct sampled samples[40];
    OPEN("name=cold", "name=warm sampler=fifo");
    insert_frames(replay, "cold", 1, 8);
    disk_set(true, true);
    trp_stream *slow = ask(replay, "cold", 40, -1);
    assert_int_equal(table_state(replay, "cold").samples, 40);
    disk_set(false, true);

    insert_items(replay, "warm", 11, 3);
    insert_frames(replay, "cold", 21, 1);
    assert_int_equal(mutate_key(replay, "cold", 1, true, 5, false), TRP_OK);
    trp_stream *others[] = {ask(replay, "warm", 5, -1), ask(replay, "cold", 5, -1)};
    for (int i = 0; i < 2; ++i) {
        receive_samples(others[i], samples, 5);
        trp_stream_destroy(others[i]);
    }
    assert_nothing_yet(slow);
    disk_set(false, false);
    receive_samples(slow, samples, 40);
    trp_stream_destroy(slow);
}

static void a_slow_disk_is_given_so_much_to_do_and_no_more(void **state)
{
    struct replay *replay = *state;
    struct sampled *samples = xcalloc(1000, sizeof *samples);
    enum { BATCH = SAMPLE_BATCH_BYTES_MAX / FRAME + SAMPLE_BLOCK_ITEMS_MAX };
    int64_t most = SAMPLE_AHEAD_BYTES_MAX / (FRAME_PAGES * 4096) + BATCH;
    OPEN("name=t");
    insert_frames(replay, "t", 1, 8);
    disk_set(true, true);
    trp_stream *stream = ask(replay, "t", INT64_C(1) << 33, -1);
    assert_in_range(table_state(replay, "t").samples, 100, most);
    assert_nothing_yet(stream);
    disk_set(true, false);
    for (int i = 0; i < 20; ++i) {
        trp_message *message;
        assert_int_equal(trp_stream_receive(stream, &message, WAIT_MS), TRP_OK);
        read_samples(message, samples, 1000);
    }
    trp_stream_destroy(stream);
    free(samples);
}

static void from_the_disk_too_an_item_is_given_as_often_as_the_table_says(void **state)
{
    struct replay *replay = *state;
    enum { ITEMS = 100, EACH = 120 };
    struct sampled samples[2 * EACH];
    bool seen[ITEMS + 1][3] = {{false}};
    OPEN("name=t sampler=fifo max_times_sampled=2");
    insert_frames(replay, "t", 1, ITEMS);
    disk_set(true, true);
    trp_stream *streams[] = {ask(replay, "t", EACH, -1), ask(replay, "t", EACH, -1)};
    assert_int_equal(table_state(replay, "t").samples, 2 * ITEMS);
    assert_int_equal(table_state(replay, "t").size, 0);
    disk_set(true, false);
    receive_samples(streams[0], samples, EACH);
    receive_samples(streams[1], samples + EACH, 2 * ITEMS - EACH);
    for (int i = 0; i < 2 * ITEMS; ++i) {
        assert_in_range(samples[i].key, 1, ITEMS);
        assert_in_range(samples[i].times_sampled, 1, 2);
        assert_false(seen[samples[i].key][samples[i].times_sampled]);
        seen[samples[i].key][samples[i].times_sampled] = true;
    }
    assert_nothing_yet(streams[1]);
    for (int i = 0; i < 2; ++i)
        trp_stream_destroy(streams[i]);
}

static void from_the_disk_too_the_limiter_is_exact(void **state)
{
    struct replay *replay = *state;
    struct sampled samples[200];
    OPEN("name=t limiter=samples_per_insert(4,10,8)");
    insert_frames(replay, "t", 1, 10);
    disk_set(true, true);
    trp_stream *stream = ask(replay, "t", 1000, -1);
    int64_t allowed = table_state(replay, "t").samples;
    assert_in_range(allowed, 1, 40);
    disk_set(true, false);
    receive_samples(stream, samples, (uint32_t)allowed);
    assert_nothing_yet(stream);
    insert_frames(replay, "t", 11, 2); /* eight more */
    receive_samples(stream, samples, 8);
    assert_nothing_yet(stream);
    assert_int_equal(table_state(replay, "t").samples, allowed + 8);
    trp_stream_destroy(stream);
}

static void a_timeout_comes_after_what_the_disk_has_yet_to_give(void **state)
{
    struct replay *replay = *state;
    struct sampled samples[3];
    OPEN("name=t sampler=fifo limiter=queue(10) max_times_sampled=1");
    insert_frames(replay, "t", 1, 3);
    disk_set(true, true);
    trp_stream *stream = ask(replay, "t", 100, 0);
    assert_int_equal(table_state(replay, "t").samples, 3);
    assert_nothing_yet(stream);
    disk_set(true, false);
    receive_samples(stream, samples, 3);
    assert_ends(stream, TRP_DEADLINE_EXCEEDED, "Rate Limiter: Timeout exceeded");
}

static void a_stream_may_end_before_the_disk_answers(void **state)
{
    struct replay *replay = *state;
    struct sampled samples[4];
    OPEN("name=t");
    insert_frames(replay, "t", 1, 4);
    disk_set(true, true);
    trp_stream_destroy(ask(replay, "t", 500, -1));
    for (uint64_t key = 1; key <= 4; ++key)
        assert_int_equal(mutate_key(replay, "t", key, false, 0, true), TRP_OK);
    insert_frames(replay, "t", 5, 4); /* perhaps in the same pages */
    disk_set(true, false);
    trp_stream *stream = ask(replay, "t", 4, -1);
    receive_samples(stream, samples, 4);
    assert_in_range(samples[0].key, 5, 8);
    trp_stream_destroy(stream);
}

static void drop_table(const struct replay *replay, const char *name)
{
    Troupe__ReplayDropTableRequest request = TROUPE__REPLAY_DROP_TABLE_REQUEST__INIT;
    ProtobufCMessage *done;
    ProtobufCService *service;
    request.table = (char *)name;
    assert_int_equal(trp_channel_service(replay->channel, &troupe__replay__descriptor, &service),
                     TRP_OK);
    assert_int_equal(trp_call(service, "DropTable", &request.base, &done, NULL), TRP_OK);
    protobuf_c_message_free_unpacked(done, NULL);
}

static void a_dropped_table_s_samples_arrive_and_then_its_end(void **state)
{
    struct replay *replay = *state;
    struct sampled *samples = xcalloc(1000, sizeof *samples);
    OPEN("name=t", "name=other");
    insert_frames(replay, "t", 1, 4);
    disk_set(true, true);
    trp_stream *stream = ask(replay, "t", INT64_C(1) << 33, -1);
    int64_t drawn = table_state(replay, "t").samples;
    drop_table(replay, "t");
    assert_nothing_yet(stream);
    disk_set(true, false);
    for (int64_t got = 0; got < drawn;) {
        trp_message *message;
        assert_int_equal(trp_stream_receive(stream, &message, WAIT_MS), TRP_OK);
        got += read_samples(message, samples, 1000);
    }
    assert_ends(stream, TRP_NOT_FOUND, "Priority table t was not found");
    free(samples);
}

static void where_samples_are_may_be_on_the_disk_too(void **state)
{
    struct replay *replay = *state;
    struct sampled samples[100];
    OPEN("name=t");
    insert_frames(replay, "t", 1, 8);
    for (uint32_t looks = 0; looks < 1000; looks = 4 * looks + 1) { /* some looks, or all of them */
        disk_set(true, true);
        disk_forget_places(looks);
        trp_stream *stream = ask(replay, "t", 100, -1);
        assert_nothing_yet(stream);
        disk_set(true, false);
        receive_samples(stream, samples, 100);
        trp_stream_destroy(stream);
    }
}

static int setup(void **state)
{
    disk_set(false, false);
    disk_forget_places(0);
    return replay_setup(state);
}

int main(void)
{
    disk_init();
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, replay_teardown)
    const struct CMUnitTest tests[] = {
        TEST(who_waits_for_the_disk_holds_nobody_up),
        TEST(a_slow_disk_is_given_so_much_to_do_and_no_more),
        TEST(from_the_disk_too_an_item_is_given_as_often_as_the_table_says),
        TEST(from_the_disk_too_the_limiter_is_exact),
        TEST(a_timeout_comes_after_what_the_disk_has_yet_to_give),
        TEST(a_stream_may_end_before_the_disk_answers),
        TEST(a_dropped_table_s_samples_arrive_and_then_its_end),
        TEST(where_samples_are_may_be_on_the_disk_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
