/* Samples over a socket are sent from the pages that they lie in: whatever the server recycles
 * meanwhile, a client gets the bytes that were drawn, and one that stands still or dies costs the
 * pages of the messages that were on their way and no more.
 */
#include "tests/replay/sample_process.h"

#include "replay/sampler/unpack.h"
#include "replay/wire/limits.h"

enum { COLUMNS = 2, BYTES = 27000, ROW_ITEMS = 200, GROWTH_MAX = 24 << 20 };

static const trp_tensor_spec columns[COLUMNS] = {
    {.name = "noise", .dtype = TRP_UINT8, .rank = 1, .shape = {BYTES}},
    {.name = "seed", .dtype = TRP_INT64},
};

static void open_rows(struct host *host)
{
    host->columns = columns;
    host->column_count = COLUMNS;
    host->steps = 1;
    host_open(host, "limiter=min_size(1)", (trp_replay_server_options){.no_share = true});
}

/* ---- a client that reads when it likes ------------------------------------------------------- */

static trp_stream *ask(trp_channel *channel, int64_t samples)
{
    struct wire_sample_request request = {.table = text_bytes("t"), .num_samples = samples};
    trp_message *message;
    trp_stream *stream;
    assert_int_equal(
        trp_stream_open(&stream, channel, "/deepmind.reverb.ReverbService/SampleStream", NULL),
        TRP_OK);
    assert_int_equal(wire_sample_request_encode(&request, &message), TRP_OK);
    assert_int_equal(trp_stream_send(stream, message, WAIT_MS), TRP_OK);
    return stream;
}

/* Reads the samples that were asked for and looks at every byte. */
static void expect_samples(trp_stream *stream, uint32_t samples)
{
    struct unpacker *unpacker = unpacker_create(columns, COLUMNS);
    struct batch batch;
    trp_message *message;
    assert_int_equal(batch_init(&batch, columns, COLUMNS, samples, NULL, "test"), TRP_OK);
    while (batch.rows < samples) {
        assert_int_equal(trp_stream_receive(stream, &message, WAIT_MS), TRP_OK);
        assert_int_equal(unpacker_feed(unpacker, message), TRP_OK);
        assert_int_equal(unpacker_fill(unpacker, &batch), TRP_OK);
    }
    for (uint32_t row = 0; row < samples; row++)
        assert_true(row_is_whole(columns, COLUMNS, batch.columns, row));
    batch_cleanup(&batch, COLUMNS);
    unpacker_destroy(unpacker);
}

static void what_was_drawn_is_what_comes_however_late(void **state)
{
    enum { STREAMS = 4 };
    struct host *host = *state;
    trp_stream *streams[STREAMS];
    open_rows(host);
    insert(host, TABLE_ITEMS);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < STREAMS; i++)
            streams[i] = ask(host->remote, ROW_ITEMS);
        insert(host, 3 * TABLE_ITEMS);
        for (int i = 0; i < STREAMS; i++)
            expect_samples(streams[i], ROW_ITEMS / 2);
        insert(host, 3 * TABLE_ITEMS);
        for (int i = 0; i < STREAMS; i++) {
            expect_samples(streams[i], ROW_ITEMS / 4);
            trp_stream_destroy(streams[i]); /* the rest is on its way */
        }
    }
}

static void a_client_in_the_process_gets_what_was_drawn(void **state)
{
    struct host *host = *state;
    open_rows(host);
    insert(host, TABLE_ITEMS);
    trp_stream *stream = ask(host->replay.channel, ROW_ITEMS);
    insert(host, 3 * TABLE_ITEMS);
    expect_samples(stream, ROW_ITEMS);
    trp_stream_destroy(stream);
}

static void a_server_stops_with_messages_on_their_way(void **state)
{
    enum { STREAMS = 8, STOP_MS = 5000 };
    struct host *host = *state;
    trp_stream *streams[STREAMS];
    trp_channel *channel;
    open_rows(host);
    insert(host, TABLE_ITEMS);
    assert_int_equal(
        trp_channel_create(&channel, trp_server_address(trp_replay_server_rpc(host->replay.server)),
                           NULL),
        TRP_OK);
    for (int i = 0; i < STREAMS; i++)
        streams[i] = ask(channel, 1000000);
    insert(host, TABLE_ITEMS); /* they were served meanwhile */
    struct deadline deadline = deadline_in_ms(&clock_monotonic, STOP_MS);
    host_close(host);
    assert_false(deadline_passed(deadline, &clock_monotonic));
    for (int i = 0; i < STREAMS; i++)
        trp_stream_destroy(streams[i]);
    trp_channel_destroy(channel);
    munmap((void *)host->leases, SHARED_LEASES_MAX * 8);
    open_rows(host);
    streams[0] = ask(host->remote, ROW_ITEMS);
    expect_samples(streams[0], ROW_ITEMS);
    trp_stream_destroy(streams[0]);
}

/* ---- the other process ----------------------------------------------------------------------- */

static void rows_are_whole_while_the_server_recycles(void **state)
{
    enum { CLIENTS = 3 };
    struct host *host = *state;
    struct client clients[CLIENTS];
    open_rows(host);
    insert(host, TABLE_ITEMS);
    for (int i = 0; i < CLIENTS; i++)
        clients[i] = client_start(host);
    for (int round = 0; round < 20; round++) {
        insert(host, TABLE_ITEMS);
        for (int i = 0; i < CLIENTS; i++)
            client_expect(&clients[i], 2);
    }
    for (int i = 0; i < CLIENTS; i++)
        client_kill(&clients[i]);
}

static void a_stopped_client_costs_its_window_and_no_more(void **state)
{
    struct host *host = *state;
    open_rows(host);
    insert(host, 4 * TABLE_ITEMS);
    uint64_t before = host_file_bytes(host);
    struct client client = client_start(host);
    for (int round = 0; round < 3; round++) {
        client_expect(&client, 5);
        kill(client.pid, SIGSTOP);
        insert(host, 16 * TABLE_ITEMS); /* 28 MB */
        assert_true(host_file_bytes(host) < before + GROWTH_MAX);
        kill(client.pid, SIGCONT);
    }
    client_expect(&client, 20);
    client_kill(&client);
}

static void a_killed_client_costs_nothing_that_lasts(void **state)
{
    struct host *host = *state;
    open_rows(host);
    insert(host, 4 * TABLE_ITEMS);
    uint64_t before = host_file_bytes(host);
    for (int round = 0; round < 6; round++) { /* 6 MB and more of each */
        struct client client = client_start(host);
        client_expect(&client, 3);
        kill(client.pid, SIGSTOP);
        insert(host, 4 * TABLE_ITEMS);
        client_kill(&client);
        insert(host, 4 * TABLE_ITEMS);
    }
    assert_true(host_file_bytes(host) < before + GROWTH_MAX);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--sample") == 0)
        return sample_for_ever(argv[2], columns, COLUMNS, 2);
#define TEST(name) cmocka_unit_test_setup_teardown(name, host_setup, host_teardown)
    const struct CMUnitTest tests[] = {
        TEST(what_was_drawn_is_what_comes_however_late),
        TEST(a_client_in_the_process_gets_what_was_drawn),
        TEST(a_server_stops_with_messages_on_their_way),
        TEST(rows_are_whole_while_the_server_recycles),
        TEST(a_stopped_client_costs_its_window_and_no_more),
        TEST(a_killed_client_costs_nothing_that_lasts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
