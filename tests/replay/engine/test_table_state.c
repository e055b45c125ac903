/* What a table knows besides its items, and what of it survives a crash: the stream of its draws,
 * counters, keys that were removed of late, policy versions, episodes. */
#include "tests/replay/replay_fixture.h"

#include "replay.pb-c.h"

/* ---- draws ------------------------------------------------------------------------------- */

static void sample_keys(const struct replay *replay, uint64_t *keys, uint32_t count)
{
    struct sampled samples[64];
    trp_stream *stream = open_stream(replay, "SampleStream");
    send_sample_request(stream, "t", count, WAIT_MS);
    receive_samples(stream, samples, count);
    trp_stream_destroy(stream);
    for (uint32_t i = 0; i < count; ++i)
        keys[i] = samples[i].key;
}

/* 40 draws, with a stop behind the first 20 when `stops`. */
static void draw_forty(const char *line, bool stops, uint64_t keys[40])
{
    void *state;
    replay_setup(&state);
    struct replay *replay = state;
    OPEN(line);
    insert_items(replay, "t", 1, 50);
    sample_keys(replay, keys, 20);
    if (stops) {
        replay_close(replay);
        OPEN(line);
    }
    sample_keys(replay, keys + 20, 20);
    replay_teardown(&state);
}

static void a_reopened_table_goes_on_with_its_draws(void **state)
{
    static const char *const lines[] = {"name=t sampler=uniform", "name=t sampler=prioritized(1)"};
    uint64_t through[40], stopped[40];
    (void)state;
    for (size_t i = 0; i < 2; ++i) {
        draw_forty(lines[i], false, through);
        draw_forty(lines[i], true, stopped);
        assert_memory_equal(through, stopped, sizeof through);
        assert_memory_not_equal(through, through + 20, 20 * sizeof *through);
    }
}

/* ---- counters ---------------------------------------------------------------------------- */

static void alter(const struct replay *replay, const char *line)
{
    Troupe__ReplayAlterTableRequest request = TROUPE__REPLAY_ALTER_TABLE_REQUEST__INIT;
    ProtobufCService *service;
    request.options = (char *)line;
    assert_int_equal(trp_channel_service(replay->channel, &troupe__replay__descriptor, &service),
                     TRP_OK);
    assert_int_equal(trp_call(service, "AlterTable", &request.base, NULL, NULL), TRP_OK);
}

static void assert_counts(const struct replay *replay, int64_t inserts, int64_t samples,
                          int64_t size)
{
    struct table_state counts = table_state(replay, "t");
    assert_int_equal(counts.inserts, inserts);
    assert_int_equal(counts.samples, samples);
    assert_int_equal(counts.size, size);
}

static void samples_stay_counted_where_fewer_of_an_item_are_allowed_now(void **state)
{
    struct replay *replay = *state;
    const char *line = "name=t sampler=lifo max_times_sampled=2";
    uint64_t keys[18];
    OPEN(line);
    insert_items(replay, "t", 1, 13);
    sample_keys(replay, keys, 18);
    alter(replay, "name=t max_times_sampled=1");
    crash(replay, NULL);
    OPEN(line);
    assert_counts(replay, 13, 18, 4);
    replay_close(replay);
    OPEN(line);
    assert_counts(replay, 13, 18, 4);
    sample_keys(replay, keys, 4); /* each goes with its first sample */
    assert_counts(replay, 13, 22, 0);
}

static void a_killed_queue_counts_the_samples_that_took_items_for_good(void **state)
{
    struct replay *replay = *state;
    const char *line = "name=t sampler=fifo limiter=queue(20) max_times_sampled=1";
    struct sampled samples[20];
    int64_t inserted = 0, gone = 0;
    OPEN(line);
    for (uint32_t life = 1; life <= 5; ++life) {
        uint32_t missing = (uint32_t)(20 - inserted + gone);
        if (missing > 0)
            insert_items(replay, "t", (uint64_t)inserted + 1, missing);
        inserted += missing;
        trp_stream *stream = open_stream(replay, "SampleStream");
        send_sample_request(stream, "t", life, 0);
        receive_samples(stream, samples, life);
        send_sample_request(stream, "t", 2, 0); /* so they have arrived; these two have not */
        receive_samples(stream, samples, 2);
        gone += life;
        assert_int_equal(samples[0].key, gone + 1);
        insert_items(replay, "t", (uint64_t)++inserted, 1); /* a commit that might say too much */
        crash(replay, stream);
        OPEN(line);
        assert_counts(replay, inserted, gone, inserted - gone);
    }
    assert_int_equal(sample_one(replay, "t").key, gone + 1);
}

/* ---- keys that come again ---------------------------------------------------------------- */

/* Items `first` to `first + count - 1`, always the same bytes; `chunk`: added to chunk keys. */
static void send_queue(trp_stream *stream, uint64_t first, uint32_t count, uint64_t chunk)
{
    struct built *built = built_create(0);
    for (uint64_t key = first; key < first + count; ++key) {
        add_chunk(built, (struct chunk_spec){.key = key + chunk, .value = (int64_t)key * 10});
        add_simple_item(built, key, "t", 1, key + chunk);
    }
    send_built(stream, built);
    built_destroy(built);
}

static void insert_queue(const struct replay *replay, uint64_t first, uint32_t count,
                         uint64_t chunk)
{
    uint64_t keys[64];
    for (uint32_t i = 0; i < count; ++i)
        keys[i] = first + i;
    trp_stream *stream = open_stream(replay, "InsertStream");
    send_queue(stream, first, count, chunk);
    assert_confirmed(stream, keys, count);
    trp_stream_destroy(stream);
}

static void what_was_consumed_and_is_sent_again_does_not_come_twice(void **state)
{
    const char *line = "name=t sampler=fifo limiter=queue(100) max_times_sampled=1";
    struct replay *replay = *state;
    uint64_t keys[8];
    OPEN(line);
    insert_queue(replay, 1, 8, 1000);
    sample_keys(replay, keys, 5);
    insert_queue(replay, 1, 8, 1000); /* as a writer that missed all confirmations */
    assert_int_equal(table_state(replay, "t").size, 3);
    crash(replay, NULL);
    OPEN(line);
    insert_queue(replay, 1, 8, 1000);
    assert_int_equal(table_state(replay, "t").size, 3);
    assert_int_equal(table_state(replay, "t").inserts, 8);
    insert_queue(replay, 1, 2, 5000); /* the keys of two, but not as they came: new items */
    assert_int_equal(table_state(replay, "t").size, 5);
}

static void what_was_evicted_or_deleted_and_is_sent_again_stays_away(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t max_size=3");
    insert_queue(replay, 1, 4, 1000);
    assert_int_equal(mutate_key(replay, "t", 4, false, 0, true), TRP_OK);
    insert_queue(replay, 1, 4, 1000);
    assert_int_equal(table_state(replay, "t").size, 2);
}

static void a_reset_forgets_what_was_removed(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t max_times_sampled=1 sampler=fifo", "name=u");
    uint64_t keys[4];
    insert_queue(replay, 1, 4, 1000);
    sample_keys(replay, keys, 4);
    assert_int_equal(reset_table(replay, "t"), TRP_OK);
    insert_queue(replay, 1, 2, 1000);
    assert_int_equal(table_state(replay, "t").size, 2);
    crash(replay, NULL);
    OPEN("name=t max_times_sampled=1 sampler=fifo", "name=u");
    insert_queue(replay, 3, 2, 1000);
    assert_int_equal(table_state(replay, "t").size, 4);
}

/* ---- versions and episodes --------------------------------------------------------------- */

struct spec {
    uint64_t key, version, episodes[2]; /* one chunk of each episode that is not 0 */
};

static void insert_spec(const struct replay *replay, struct spec spec)
{
    static const uint8_t block[] = {1, 0, 'x'};
    const struct wire_tensor tensor = {
        .dtype = TRP_UINT8, .rank = 2, .dims = {1, 1}, .content = {block, sizeof block}};
    struct wire_steps steps[2];
    struct built *built = built_create(0);
    add_item(built, spec.key, "t", 1);
    built->request.lists.items[0].policy_version = spec.version;
    wire_push_column(&built->request.lists);
    for (uint64_t i = 0; i < 2 && spec.episodes[i]; ++i) {
        steps[i] = (struct wire_steps){
            .episode_id = spec.episodes[i], .tensors = &tensor, .tensor_count = 1};
        *wire_push_chunk(&built->request.lists) =
            (struct wire_chunk){.key = 10 * spec.key + i, .steps = &steps[i]};
        add_slice(built, 10 * spec.key + i, 0, 1, 0);
    }
    trp_stream *stream = open_stream(replay, "InsertStream");
    send_built(stream, built);
    assert_confirmed(stream, &spec.key, 1);
    trp_stream_destroy(stream);
    built_destroy(built);
}

static Troupe__ReplayTablesResponse *tables_of(const struct replay *replay)
{
    ProtobufCService *service;
    ProtobufCMessage *reply;
    Troupe__ReplayTablesRequest request = TROUPE__REPLAY_TABLES_REQUEST__INIT;
    assert_int_equal(trp_channel_service(replay->channel, &troupe__replay__descriptor, &service),
                     TRP_OK);
    assert_int_equal(trp_call(service, "Tables", &request.base, &reply, NULL), TRP_OK);
    return (Troupe__ReplayTablesResponse *)reply;
}

static void assert_episodes(const struct replay *replay, int64_t there, int64_t deleted)
{
    Troupe__ReplayTablesResponse *tables = tables_of(replay);
    assert_int_equal(tables->tables[0]->episodes, there);
    assert_int_equal(tables->tables[0]->episodes_deleted, deleted);
    troupe__replay_tables_response__free_unpacked(tables, NULL);
}

static void episodes_are_counted_while_an_item_has_chunks_of_them(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t");
    insert_spec(replay, (struct spec){.key = 1, .episodes = {5}});
    insert_spec(replay, (struct spec){.key = 2, .episodes = {5, 6}});
    insert_spec(replay, (struct spec){.key = 3, .episodes = {7, 7}});
    assert_episodes(replay, 3, 0);
    assert_int_equal(mutate_key(replay, "t", 1, false, 0, true), TRP_OK);
    assert_episodes(replay, 3, 0);
    assert_int_equal(mutate_key(replay, "t", 3, false, 0, true), TRP_OK);
    assert_episodes(replay, 2, 1);
    crash(replay, NULL);
    OPEN("name=t");
    assert_episodes(replay, 2, 1);
    assert_int_equal(mutate_key(replay, "t", 2, false, 0, true), TRP_OK);
    assert_episodes(replay, 0, 3);
    assert_int_equal(reset_table(replay, "t"), TRP_OK);
    assert_episodes(replay, 0, 0);
}

static void many_episodes_come_and_go(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t max_size=20");
    for (uint64_t key = 1; key <= 200; ++key) {
        insert_spec(replay, (struct spec){.key = key, .episodes = {key * 64, key % 3 + 1}});
        int64_t there = key < 20 ? (int64_t)key : 20;
        int64_t shared = key < 3 ? (int64_t)key : 3;
        assert_episodes(replay, there + shared, (int64_t)key - there);
    }
}

static void a_policy_version_comes_back_with_its_item(void **state)
{
    struct replay *replay = *state;
    const char *line = "name=t sampler=fifo max_times_sampled=2";
    OPEN(line);
    insert_spec(replay, (struct spec){.key = 1, .version = 30, .episodes = {1}});
    insert_spec(replay, (struct spec){.key = 2, .version = 37, .episodes = {1}});
    for (int life = 0; life < 2; ++life) {
        struct wire_sample_response response = {0};
        trp_message *message;
        trp_stream *stream = open_stream(replay, "SampleStream");
        send_sample_request(stream, "t", 1, WAIT_MS);
        assert_int_equal(trp_stream_receive(stream, &message, WAIT_MS), TRP_OK);
        assert_int_equal(wire_sample_response_decode(bytes_of(message), &response), TRP_OK);
        assert_int_equal(response.lists.items[0].policy_version, 30);
        wire_sample_response_cleanup(&response);
        trp_message_destroy(message);
        trp_stream_destroy(stream);
        Troupe__ReplayTablesResponse *tables = tables_of(replay);
        const Troupe__ReplayStaleness *staleness = tables->tables[0]->staleness;
        assert_int_equal(staleness->newest_version, 37);
        assert_true(staleness->sampled_versions_behind == 7);
        assert_true(staleness->oldest_seconds >= staleness->newest_seconds);
        assert_true(staleness->newest_seconds >= 0 && staleness->oldest_seconds < 60);
        troupe__replay_tables_response__free_unpacked(tables, NULL);
        if (life == 0) {
            crash(replay, NULL);
            OPEN(line);
        }
    }
}

/* ---- limits in bytes --------------------------------------------------------------------- */

static void insert_large(const struct replay *replay, uint64_t key, size_t bytes)
{
    struct built *built = built_create(bytes + 64);
    add_chunk(built, (struct chunk_spec){.key = key, .bytes = bytes});
    add_simple_item(built, key, "t", 1, key);
    trp_stream *stream = open_stream(replay, "InsertStream");
    send_built(stream, built);
    assert_confirmed(stream, &key, 1);
    trp_stream_destroy(stream);
    built_destroy(built);
}

static void a_table_of_bytes_removes_until_they_fit(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t max_bytes=10000 max_size=100");
    for (uint64_t key = 1; key <= 9; ++key)
        insert_large(replay, key, 1000);
    assert_int_equal(table_state(replay, "t").size, 9);
    insert_large(replay, 10, 5000); /* takes the place of several */
    Troupe__ReplayTablesResponse *tables = tables_of(replay);
    assert_in_range(tables->tables[0]->bytes, 9000, 10000);
    assert_int_equal(tables->tables[0]->max_bytes, 10000);
    assert_int_equal(tables->tables[0]->size, 5);
    troupe__replay_tables_response__free_unpacked(tables, NULL);
    trp_stream *stream = open_stream(replay, "InsertStream");
    struct built *built = built_create(20000);
    add_chunk(built, (struct chunk_spec){.key = 11, .bytes = 11000});
    add_simple_item(built, 11, "t", 1, 11);
    send_built(stream, built);
    built_destroy(built);
    assert_ends(stream, TRP_INVALID_ARGUMENT, "larger than its max_bytes=10000");
    replay_close(replay);
    assert_int_equal(replay_try_open(replay, 0, LINES("name=t max_bytes=6500")),
                     TRP_FAILED_PRECONDITION);
    assert_non_null(strstr(trp_last_error(), "max_bytes=6500 would remove"));
}

/* ---- insert_on_sample -------------------------------------------------------------------- */

static void the_first_sample_of_an_item_fills_another_table(void **state)
{
    struct replay *replay = *state;
    struct sampled sample;
    OPEN("name=t sampler=fifo insert_on_sample=u max_times_sampled=2",
         "name=u sampler=fifo limiter=queue(2) max_times_sampled=2");
    trp_stream *waiting = open_stream(replay, "SampleStream");
    send_sample_request(waiting, "u", 1, -1);
    insert_items(replay, "t", 1, 4);
    uint64_t keys[6];
    sample_keys(replay, keys, 1);
    receive_samples(waiting, &sample, 1); /* is woken */
    assert_int_equal(sample.key, 1);
    assert_int_equal(sample.value, 10);
    assert_int_equal(sample.times_sampled, 2);
    assert_true(sample.priority == 1);
    trp_stream_destroy(waiting);
    sample_keys(replay, keys, 1); /* its second: no copy */
    assert_int_equal(table_state(replay, "u").inserts, 1);
    sample_keys(replay, keys, 6); /* keys 2, 3, 4, of which the queue takes two */
    assert_int_equal(table_state(replay, "u").size, 2);
    Troupe__ReplayTablesResponse *tables = tables_of(replay);
    assert_int_equal(tables->tables[0]->insert_on_sample_dropped, 1);
    troupe__replay_tables_response__free_unpacked(tables, NULL);
    crash(replay, NULL);
    OPEN("name=t sampler=fifo insert_on_sample=u max_times_sampled=2",
         "name=u sampler=fifo limiter=queue(2) max_times_sampled=2");
    assert_int_equal(table_state(replay, "u").size, 2);
    assert_int_equal(sample_one(replay, "u").value, 20);
}

static void a_table_that_fills_none_is_refused(void **state)
{
    struct replay *replay = *state;
    assert_int_equal(replay_try_open(replay, 0, LINES("name=t insert_on_sample=u")),
                     TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "insert_on_sample=u: there is no such table"));
}

/* ---- without replacement ----------------------------------------------------------------- */

static void assert_distinct(const uint64_t *keys, uint32_t count)
{
    for (uint32_t i = 0; i < count; ++i)
        for (uint32_t j = 0; j < i; ++j)
            assert_true(keys[i] != keys[j]);
}

static void no_item_comes_twice_in_the_answer_to_one_request(void **state)
{
    static const char *const lines[] = {"name=t sampler=uniform replacement=no",
                                        "name=t sampler=prioritized(8) replacement=no"};
    struct replay *replay = *state;
    uint64_t keys[50];
    for (size_t i = 0; i < 2; ++i) {
        OPEN(lines[i]);
        if (i == 0)
            insert_items(replay, "t", 1, 20);
        for (int round = 0; round < 20; ++round) {
            sample_keys(replay, keys, 20);
            assert_distinct(keys, 20);
            sample_keys(replay, keys, 50); /* more than there are: over and over again */
            assert_distinct(keys, 20);
            assert_distinct(keys + 20, 20);
            assert_distinct(keys + 40, 10);
        }
        assert_int_equal(mutate_key(replay, "t", 7, true, 0, false), TRP_OK);
        sample_keys(replay, keys, 20); /* weightless items too, but last */
        assert_distinct(keys, 20);
        assert_true(i == 0 || keys[19] == 7);
        assert_int_equal(mutate_key(replay, "t", 7, true, 7, false), TRP_OK);
        replay_close(replay);
    }
}

static void a_request_goes_on_when_the_table_is_emptied_meanwhile(void **state)
{
    enum { ITEMS = 64, AFTER = 3 };
    struct replay *replay = *state;
    struct sampled samples[ITEMS];
    OPEN("name=t sampler=uniform replacement=no limiter=rate(1,1,0,1000)");
    insert_items(replay, "t", 1, ITEMS);
    trp_stream *stream = open_stream(replay, "SampleStream");
    send_sample_request(stream, "t", ITEMS + AFTER, -1);
    receive_samples(stream, samples, ITEMS);
    assert_int_equal(reset_table(replay, "t"), TRP_OK);
    insert_items(replay, "t", 100, AFTER);
    receive_samples(stream, samples, AFTER);
    for (uint32_t i = 0; i < AFTER; ++i)
        assert_in_range(samples[i].key, 100, 100 + AFTER - 1);
    trp_stream_destroy(stream);
}

/* ---- seeds ------------------------------------------------------------------------------- */

static void a_seed_of_its_own_decides_a_tables_draws(void **state)
{
    uint64_t one[40], same[40], other[40];
    (void)state;
    draw_forty("name=t sampler=uniform seed=5", false, one);
    draw_forty("name=t sampler=uniform seed=5", true, same);
    draw_forty("name=t sampler=uniform seed=6", false, other);
    assert_memory_equal(one, same, sizeof one);
    assert_memory_not_equal(one, other, sizeof one);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, replay_setup, replay_teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reopened_table_goes_on_with_its_draws),
        TEST(samples_stay_counted_where_fewer_of_an_item_are_allowed_now),
        TEST(a_killed_queue_counts_the_samples_that_took_items_for_good),
        TEST(what_was_consumed_and_is_sent_again_does_not_come_twice),
        TEST(what_was_evicted_or_deleted_and_is_sent_again_stays_away),
        TEST(a_reset_forgets_what_was_removed),
        TEST(episodes_are_counted_while_an_item_has_chunks_of_them),
        TEST(many_episodes_come_and_go),
        TEST(a_table_of_bytes_removes_until_they_fit),
        TEST(the_first_sample_of_an_item_fills_another_table),
        TEST(a_table_that_fills_none_is_refused),
        TEST(no_item_comes_twice_in_the_answer_to_one_request),
        TEST(a_request_goes_on_when_the_table_is_emptied_meanwhile),
        cmocka_unit_test(a_seed_of_its_own_decides_a_tables_draws),
        TEST(a_policy_version_comes_back_with_its_item),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
