/* SampleStream, message by message. */
#include "tests/replay/replay_fixture.h"

#include "tests/heap.h"
#include "tests/rpc/http2_peer.h"

static const char timeout_text[] =
    "Rate Limiter: Timeout exceeded before the right to insert was acquired.";

static void requests_that_make_no_sense_are_refused(void **state)
{
    struct replay *replay = *state;
    static const struct {
        const char *table;
        int64_t count;
        trp_status status;
        const char *text;
    } rows[] = {
        {"t", 0, TRP_INVALID_ARGUMENT, "`num_samples` must be > 0 (got0)."},
        {"t", -5, TRP_INVALID_ARGUMENT, "`num_samples` must be > 0 (got-5)."},
        {"nope", 1, TRP_NOT_FOUND, "Priority table nope was not found"},
        {"nope", 0, TRP_INVALID_ARGUMENT, "`num_samples`"},
    };
    OPEN("name=t");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
        trp_stream *stream = open_stream(replay, "SampleStream");
        send_sample_request(stream, rows[i].table, rows[i].count, -1);
        assert_ends(stream, rows[i].status, rows[i].text);
    }
    trp_stream *stream = open_stream(replay, "SampleStream");
    trp_message *message = trp_message_create(2);
    memcpy(trp_message_data(message), "\x0a\x05", 2);
    assert_int_equal(trp_stream_send(stream, message, WAIT_MS), TRP_OK);
    assert_ends(stream, TRP_INVALID_ARGUMENT, "SampleStreamRequest");
}

static void a_timeout_of_zero_gives_what_is_there_and_ends(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t sampler=fifo limiter=queue(10) max_times_sampled=1");
    insert_items(replay, "t", 1, 2);
    struct sampled samples[2];
    trp_stream *stream = open_stream(replay, "SampleStream");
    send_sample_request(stream, "t", 100, 0);
    receive_samples(stream, samples, 2);
    assert_int_equal(samples[1].key, 2);
    assert_ends(stream, TRP_DEADLINE_EXCEEDED, timeout_text);
}

static void a_timeout_ends_a_stream_that_got_nothing_since(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t");
    trp_stream *stream = open_stream(replay, "SampleStream");
    send_sample_request(stream, "t", 1, 30);
    assert_ends(stream, TRP_DEADLINE_EXCEEDED, timeout_text);
}

static void a_request_without_a_timeout_waits(void **state)
{
    struct replay *replay = *state;
    struct wire_sample_request request = {.table = text_bytes("t"), .num_samples = 1};
    trp_message *message;
    struct sampled sample;
    OPEN("name=t limiter=min_size(3)");
    trp_stream *stream = open_stream(replay, "SampleStream");
    assert_int_equal(wire_sample_request_encode(&request, &message), TRP_OK);
    assert_int_equal(trp_stream_send(stream, message, WAIT_MS), TRP_OK);
    insert_items(replay, "t", 1, 2);
    assert_int_equal(trp_stream_receive(stream, &message, 0), TRP_DEADLINE_EXCEEDED);
    insert_items(replay, "t", 3, 1);
    receive_samples(stream, &sample, 1);
    assert_int_equal(sample.table_size, 3);
    assert_true(sample.rate_limited);
    assert_true(sample.probability == 1.0 / 3);
    send_sample_request(stream, "t", 1, -1);
    receive_samples(stream, &sample, 1);
    assert_false(sample.rate_limited);
    trp_stream_destroy(stream);
}

static void requests_follow_each_other_on_one_stream(void **state)
{
    struct replay *replay = *state;
    struct sampled samples[3];
    OPEN("name=a sampler=fifo", "name=b sampler=lifo");
    insert_items(replay, "a", 1, 3);
    insert_items(replay, "b", 11, 3);
    trp_stream *stream = open_stream(replay, "SampleStream");
    send_sample_request(stream, "a", 3, -1);
    receive_samples(stream, samples, 3);
    for (int i = 0; i < 3; ++i) {
        assert_int_equal(samples[i].key, 1);
        assert_int_equal(samples[i].times_sampled, i + 1);
        assert_true(samples[i].probability == 1);
    }
    send_sample_request(stream, "b", 1, 0);
    receive_samples(stream, samples, 1);
    assert_int_equal(samples[0].key, 13);
    assert_int_equal(trp_stream_half_close(stream), TRP_OK);
    assert_ends(stream, TRP_OK, NULL);
    assert_int_equal(table_state(replay, "a").samples, 3);
    assert_int_equal(table_state(replay, "a").unique, 1);
}

static void a_half_close_before_the_samples_is_answered_after_them(void **state)
{
    struct replay *replay = *state;
    struct sampled samples[4];
    OPEN("name=t limiter=min_size(2)");
    trp_stream *stream = open_stream(replay, "SampleStream");
    send_sample_request(stream, "t", 4, -1);
    assert_int_equal(trp_stream_half_close(stream), TRP_OK);
    insert_items(replay, "t", 1, 2);
    receive_samples(stream, samples, 4);
    assert_ends(stream, TRP_OK, NULL);
}

static void an_item_is_given_as_often_as_the_table_says(void **state)
{
    struct replay *replay = *state;
    struct sampled samples[6];
    OPEN("name=t sampler=fifo max_times_sampled=2 limiter=min_size(1)");
    insert_items(replay, "t", 1, 3);
    trp_stream *stream = open_stream(replay, "SampleStream");
    send_sample_request(stream, "t", 6, 0);
    receive_samples(stream, samples, 6);
    for (int i = 0; i < 6; ++i) {
        assert_int_equal(samples[i].key, i / 2 + 1);
        assert_int_equal(samples[i].times_sampled, i % 2 + 1);
        assert_int_equal(samples[i].table_size, 3 - i / 2); /* before it goes */
    }
    assert_int_equal(table_state(replay, "t").size, 0);
    trp_stream_destroy(stream);
}

static void a_dead_stream_takes_nothing(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t sampler=fifo limiter=queue(10) max_times_sampled=1");
    for (int i = 0; i < 5; ++i) {
        trp_stream *stream = open_stream(replay, "SampleStream");
        send_sample_request(stream, "t", 1, -1);
        trp_stream_destroy(stream);
    }
    insert_items(replay, "t", 1, 3);
    assert_int_equal(table_state(replay, "t").size, 3);
    assert_int_equal(table_state(replay, "t").samples, 0);
}

static void waiting_streams_are_served_in_turn(void **state)
{
    struct replay *replay = *state;
    struct sampled sample;
    trp_stream *streams[3];
    OPEN("name=t sampler=fifo limiter=queue(10) max_times_sampled=1");
    for (int i = 0; i < 3; ++i) {
        streams[i] = open_stream(replay, "SampleStream");
        send_sample_request(streams[i], "t", 2, -1);
    }
    for (uint64_t key = 1; key <= 6; ++key) {
        insert_items(replay, "t", key, 1);
        receive_samples(streams[(key - 1) % 3], &sample, 1);
        assert_int_equal(sample.key, key);
    }
    for (int i = 0; i < 3; ++i)
        trp_stream_destroy(streams[i]);
}

static void many_small_samples_share_a_message(void **state)
{
    struct replay *replay = *state;
    struct sampled samples[256];
    trp_message *message;
    OPEN("name=t");
    insert_items(replay, "t", 1, 10);
    trp_stream *stream = open_stream(replay, "SampleStream");
    send_sample_request(stream, "t", 256, -1);
    assert_int_equal(trp_stream_receive(stream, &message, WAIT_MS), TRP_OK);
    assert_int_equal(read_samples(message, samples, 256), 256);
    for (int i = 0; i < 256; ++i)
        assert_int_equal(samples[i].value, samples[i].key * 10);
    trp_stream_destroy(stream);
}

/* ---- large items ------------------------------------------------------------------------- */

enum { BIG = 813000 };

static void insert_big(const struct replay *replay, uint64_t key, uint32_t chunks)
{
    trp_stream *stream = open_stream(replay, "InsertStream");
    struct built *built = built_create((size_t)chunks * (BIG + 64));
    add_item(built, key, "t", 1);
    wire_push_column(&built->request.lists);
    for (uint64_t i = 1; i <= chunks; ++i) {
        add_chunk(built, (struct chunk_spec){.key = i, .value = (int64_t)i, .bytes = BIG});
        add_slice(built, i, 0, 1, 0);
    }
    send_built(stream, built);
    assert_confirmed(stream, &key, 1);
    trp_stream_destroy(stream);
    built_destroy(built);
}

static void check_big_chunk(const struct wire_chunk *chunk, uint64_t value)
{
    struct wire_tensor_reader reader;
    struct wire_tensor tensor;
    bool more;
    uint8_t *expected = xmalloc(BIG);
    fixture_fill(expected, BIG, value);
    wire_tensors_open(&reader, chunk);
    assert_int_equal(wire_tensor_next(&reader, &tensor, &more), TRP_OK);
    assert_int_equal(tensor.content.size, BIG + 8);
    assert_memory_equal(tensor.content.data + 8, expected, BIG);
    free(expected);
}

static void a_large_item_is_split_between_chunks(void **state)
{
    struct replay *replay = *state;
    struct wire_sample_response response = {0};
    trp_message *message;
    OPEN("name=t");
    insert_big(replay, 1, 6);
    trp_stream *stream = open_stream(replay, "SampleStream");
    send_sample_request(stream, "t", 1, -1);
    for (uint32_t part = 0; part < 2; ++part) {
        assert_int_equal(trp_stream_receive(stream, &message, WAIT_MS), TRP_OK);
        assert_int_equal(wire_sample_response_decode(bytes_of(message), &response), TRP_OK);
        assert_int_equal(response.entry_count, 1);
        assert_int_equal(response.entries[0].has_info, part == 0);
        assert_int_equal(response.entries[0].end_of_sequence, part == 1);
        assert_int_equal(response.entries[0].chunk_count, 3);
        for (uint32_t i = 0; i < 3; ++i)
            check_big_chunk(&response.lists.chunks[i], 3 * part + i + 1);
        trp_message_destroy(message);
    }
    wire_sample_response_cleanup(&response);
    trp_stream_destroy(stream);
}

static void what_a_sampler_does_not_take_is_not_drawn(void **state)
{
    struct replay *replay = *state;
    trp_message *message;
    OPEN("name=t");
    insert_big(replay, 1, 1);
    trp_stream *stream = open_stream(replay, "SampleStream");
    send_sample_request(stream, "t", INT64_C(1) << 33, -1); /* Reverb never answers this */
    assert_int_equal(trp_stream_receive(stream, &message, WAIT_MS), TRP_OK);
    trp_message_destroy(message);
    assert_in_range(table_state(replay, "t").samples, 1, 20);
    for (int i = 0; i < 50; ++i) {
        assert_int_equal(trp_stream_receive(stream, &message, WAIT_MS), TRP_OK);
        trp_message_destroy(message);
    }
    assert_in_range(table_state(replay, "t").samples, 51, 140);
    trp_stream_destroy(stream);
}

static void an_item_removed_while_it_is_being_sent_arrives_whole(void **state)
{
    struct replay *replay = *state;
    struct wire_sample_response response = {0};
    trp_message *message;
    uint32_t chunks = 0;
    OPEN("name=t");
    insert_big(replay, 1, 24); /* more than three responses hold */
    trp_stream *stream = open_stream(replay, "SampleStream");
    send_sample_request(stream, "t", 1, -1);
    assert_int_equal(mutate_key(replay, "t", 1, false, 0, true), TRP_OK);
    for (bool end = false; !end;) {
        assert_int_equal(trp_stream_receive(stream, &message, WAIT_MS), TRP_OK);
        assert_int_equal(wire_sample_response_decode(bytes_of(message), &response), TRP_OK);
        for (uint32_t i = 0; i < response.entries[0].chunk_count; ++i)
            check_big_chunk(&response.lists.chunks[i], ++chunks);
        end = response.entries[0].end_of_sequence;
        trp_message_destroy(message);
    }
    assert_int_equal(chunks, 24);
    wire_sample_response_cleanup(&response);
    trp_stream_destroy(stream);
}

static void a_reset_lets_those_in_who_wait(void **state)
{
    struct replay *replay = *state;
    static const uint64_t keys[] = {1, 2, 3};
    struct sampled samples[3];
    OPEN("name=t sampler=fifo limiter=queue(2) max_times_sampled=1", "name=s limiter=min_size(3)");
    trp_stream *writer = open_stream(replay, "InsertStream");
    trp_stream *sampler = open_stream(replay, "SampleStream");
    insert_items(replay, "s", 1, 2);
    send_sample_request(sampler, "s", 3, -1);
    for (uint64_t key = 1; key <= 3; ++key)
        send_simple(writer, key, "t", 1, (int64_t)key);
    assert_confirmed(writer, keys, 2);
    assert_int_equal(reset_table(replay, "t"), TRP_OK);
    assert_confirmed(writer, keys + 2, 1); /* the queue is empty again */
    assert_int_equal(table_state(replay, "t").size, 1);
    assert_int_equal(reset_table(replay, "s"), TRP_OK);
    insert_items(replay, "s", 11, 2);
    assert_int_equal(table_state(replay, "s").samples, 0); /* four came, two count */
    insert_items(replay, "s", 13, 1);
    receive_samples(sampler, samples, 3);
    for (int i = 0; i < 3; ++i)
        assert_in_range(samples[i].key, 11, 13);
    trp_stream_destroy(sampler);
    trp_stream_destroy(writer);
}

static size_t resident_bytes(void)
{
    size_t all, resident;
    FILE *file = fopen("/proc/self/statm", "re");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%zu %zu", &all, &resident), 2);
    fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* Each asks for 200 MB and takes nothing; then one that reads gets all of its own. */
static void readers_that_stand_still_cost_little_and_hold_nobody_up(void **state)
{
    enum { READERS = 20, SAMPLES = 200, BYTES = 1 << 20, COST_MAX = 1 << 30 };
    struct replay *replay = *state;
    struct sampled samples[SAMPLES];
    trp_stream *readers[READERS];
    OPEN("name=t");
    trp_stream *stream = open_stream(replay, "InsertStream");
    for (uint64_t key = 1; key <= 4; ++key) {
        struct built *built = built_create(BYTES);
        add_chunk(built, (struct chunk_spec){.key = key, .bytes = BYTES});
        add_simple_item(built, key, "t", 1, key);
        send_built(stream, built);
        assert_confirmed(stream, &key, 1);
        built_destroy(built);
    }
    trp_stream_destroy(stream);
    size_t before = resident_bytes();
    for (int i = 0; i < READERS; ++i) {
        readers[i] = open_stream(replay, "SampleStream");
        send_sample_request(readers[i], "t", SAMPLES, -1);
    }
    stream = open_stream(replay, "SampleStream");
    send_sample_request(stream, "t", SAMPLES, -1);
    receive_samples(stream, samples, SAMPLES);
    trp_stream_destroy(stream);
    assert_true(resident_bytes() < before + COST_MAX);
    receive_samples(readers[0], samples, SAMPLES); /* slow is not broken */
    for (int i = 0; i < READERS; ++i)
        trp_stream_destroy(readers[i]);
}

/* Items whose chunks are copied into messages: a batch of them is a megabyte. */
static void insert_small_chunks(const struct replay *replay)
{
    enum { ITEMS = 300, BYTES = 4000 };
    trp_stream *stream = open_stream(replay, "InsertStream");
    struct built *built = built_create(BYTES);
    for (uint64_t key = 1; key <= ITEMS; ++key) {
        add_chunk(built, (struct chunk_spec){.key = key, .bytes = BYTES, .value = (int64_t)key});
        add_simple_item(built, key, "t", 1, key);
        send_built(stream, built);
        assert_confirmed(stream, &key, 1);
    }
    built_destroy(built);
    trp_stream_destroy(stream);
}

static void peer_ask_samples(struct peer *peer, uint32_t index)
{
    struct wire_sample_request request = {.table = text_bytes("t"), .num_samples = 1 << 20};
    trp_message *message;
    uint8_t frame[256] = {0};
    assert_int_equal(wire_sample_request_encode(&request, &message), TRP_OK);
    trp_bytes bytes = bytes_of(message);
    write_u32(frame + 1, (uint32_t)bytes.size);
    memcpy(frame + 5, bytes.data, bytes.size);
    peer_call(peer, index, "/deepmind.reverb.ReverbService/SampleStream", "identity");
    peer_frame(peer, DATA, 0, 2 * index + 1, frame, 5 + bytes.size);
    trp_message_destroy(message);
}

/* Over a socket, all of them of one client. */
static void what_nobody_reads_is_bounded_over_all_streams(void **state)
{
    enum { LIMIT = 16 << 20, SAMPLES = 1000 };
    struct replay *replay = *state;
    static struct sampled samples[SAMPLES];
    char *address = xasprintf("unix:%s.s", replay->dir);
    replay->rpc = (trp_server_options){
        .address = address, .in_flight_bytes = LIMIT, .max_message_bytes = LIMIT / 4};
    OPEN("name=t");
    assert_int_equal(trp_replay_server_start(replay->server), TRP_OK);
    insert_small_chunks(replay);
    size_t before = heap_bytes();
    struct peer *peer = peer_connect(address + strlen("unix:"));
    for (uint32_t i = 0; i < PEER_STREAMS; ++i)
        peer_ask_samples(peer, i);
    int64_t slowest_ns = 0;
    size_t most = 0;
    for (int i = 0; i < 2; ++i) { /* the first is served behind what came before it */
        trp_channel *channel;
        trp_stream *stream;
        int64_t begin = clock_now_ns(&clock_monotonic);
        assert_int_equal(trp_channel_create(&channel, address, NULL), TRP_OK);
        assert_int_equal(
            trp_stream_open(&stream, channel, "/deepmind.reverb.ReverbService/SampleStream", NULL),
            TRP_OK);
        send_sample_request(stream, "t", SAMPLES, WAIT_MS);
        receive_samples(stream, samples, SAMPLES);
        trp_stream_destroy(stream);
        trp_channel_destroy(channel);
        int64_t took_ns = clock_now_ns(&clock_monotonic) - begin;
        slowest_ns = took_ns > slowest_ns ? took_ns : slowest_ns;
        most = heap_bytes() > most ? heap_bytes() : most;
    }
    peer_close(peer);
    assert_true(most < before + LIMIT);
    assert_true(slowest_ns < INT64_C(2000000000));
    replay->rpc.address = NULL;
    free(address);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, replay_setup, replay_teardown)
    const struct CMUnitTest tests[] = {
        TEST(requests_that_make_no_sense_are_refused),
        TEST(a_timeout_of_zero_gives_what_is_there_and_ends),
        TEST(a_timeout_ends_a_stream_that_got_nothing_since),
        TEST(a_request_without_a_timeout_waits),
        TEST(requests_follow_each_other_on_one_stream),
        TEST(a_half_close_before_the_samples_is_answered_after_them),
        TEST(an_item_is_given_as_often_as_the_table_says),
        TEST(a_dead_stream_takes_nothing),
        TEST(waiting_streams_are_served_in_turn),
        TEST(many_small_samples_share_a_message),
        TEST(a_large_item_is_split_between_chunks),
        TEST(what_a_sampler_does_not_take_is_not_drawn),
        TEST(a_reset_lets_those_in_who_wait),
        TEST(readers_that_stand_still_cost_little_and_hold_nobody_up),
        TEST(what_nobody_reads_is_bounded_over_all_streams),
        TEST(an_item_removed_while_it_is_being_sent_arrives_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
