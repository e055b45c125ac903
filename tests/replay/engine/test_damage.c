/* Bits that flip in a stopped store: whoever reads the item is told so at once, by table and key,
 * in whatever way it reads; the item goes, and everything else goes on. */
#include "tests/replay/host_fixture.h"

#include "replay/engine/internal.h"
#include "replay/sampler/unpack.h"

static const trp_tensor_spec columns[] = {
    {.name = "frame", .dtype = TRP_UINT8, .rank = 1, .shape = {FRAME_BYTES}},
    {.name = "seed", .dtype = TRP_INT64},
};
enum { COLUMNS = 2, DRAWS = 600 };

/* ---- streams --------------------------------------------------------------------------------- */

static void insert_bytes(const struct replay *replay, uint64_t key, size_t size)
{
    trp_stream *stream = open_stream(replay, "InsertStream");
    struct built *built = built_create(size);
    add_chunk(built, (struct chunk_spec){.key = key, .value = (int64_t)key << 20, .bytes = size});
    add_simple_item(built, key, "t", 1, key);
    send_built(stream, built);
    assert_confirmed(stream, &key, 1);
    built_destroy(built);
    trp_stream_destroy(stream);
}

static void open_table(struct host *host, const char *options)
{
    host->columns = columns;
    host->column_count = COLUMNS;
    host->steps = 1;
    host_open(host, options, (trp_replay_server_options){.no_share = false});
}

/* Items 1 to 3, the first of which is damaged while the server is down. */
static void open_damaged(struct host *host, const char *options, size_t size)
{
    open_table(host, options);
    for (uint64_t key = 1; key <= 3; ++key)
        insert_bytes(&host->replay, key, size);
    host_close(host);
    fixture_damage(host->replay.dir, UINT64_C(1) << 20, size);
    open_table(host, options);
}

static void expect_loss(const struct replay *replay)
{
    trp_stream *stream = open_stream(replay, "SampleStream");
    send_sample_request(stream, "t", 1, WAIT_MS);
    assert_ends(stream, TRP_DATA_LOSS, "table t, key 1: ");
}

static void who_draws_a_damaged_item_is_told_and_the_item_goes(void **state)
{
    struct host *host = *state;
    static const size_t sizes[] = {100, 3000, 4074, 9000, 40000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
        open_damaged(host, "sampler=fifo", sizes[i]);
        struct replay remote = host->replay;
        remote.channel = host->remote;
        expect_loss(&remote);
        assert_int_equal(table_state(&remote, "t").size, 2);
        assert_int_equal(sample_one(&remote, "t").key, 2);
        host_close(host);
        open_table(host, "sampler=fifo");
        assert_int_equal(table_state(&host->replay, "t").size, 2);
        assert_int_equal(sample_one(&host->replay, "t").key, 2);
        insert_bytes(&host->replay, 1, sizes[i]); /* by its writer, which has it still */
        assert_int_equal(table_state(&host->replay, "t").size, 3);
        assert_int_equal(reset_table(&host->replay, "t"), TRP_OK);
        host_close(host);
    }
    open_table(host, "");
}

static void a_damaged_item_of_a_queue_goes_and_its_neighbours_stay(void **state)
{
    struct host *host = *state;
    open_damaged(host, "sampler=fifo max_times_sampled=1 limiter=queue(10)", 9000);
    expect_loss(&host->replay);
    assert_int_equal(table_state(&host->replay, "t").size, 2);
    assert_int_equal(sample_one(&host->replay, "t").key, 2);
}

static void every_item_of_a_damaged_chunk_is_told_when_it_is_read(void **state)
{
    struct host *host = *state;
    struct built *built = built_create(9000);
    const uint64_t keys[] = {1, 2};
    open_table(host, "sampler=fifo");
    trp_stream *stream = open_stream(&host->replay, "InsertStream");
    add_chunk(built, (struct chunk_spec){.key = 5, .value = 1 << 20, .bytes = 9000});
    add_simple_item(built, 1, "t", 1, 5);
    add_simple_item(built, 2, "t", 1, 5);
    send_built(stream, built);
    assert_confirmed(stream, keys, 2);
    built_destroy(built);
    trp_stream_destroy(stream);
    insert_bytes(&host->replay, 3, 9000);
    host_close(host);
    fixture_damage(host->replay.dir, 1 << 20, 9000);
    open_table(host, "sampler=fifo");
    for (uint64_t key = 1; key <= 2; ++key) {
        char *text = xasprintf("table t, key %d: ", (int)key);
        stream = open_stream(&host->replay, "SampleStream");
        send_sample_request(stream, "t", 1, WAIT_MS);
        assert_ends(stream, TRP_DATA_LOSS, text);
        free(text);
    }
    assert_int_equal(sample_one(&host->replay, "t").key, 3);
}

/* All that were read before all items had come into memory. */
static void who_looks_at_a_file_is_told_again_of_what_was_damaged(void **state)
{
    enum { ITEMS = 40 };
    struct host *host = *state;
    struct engine *engine;
    open_table(host, "");
    for (uint64_t key = 1; key <= ITEMS; key++)
        insert_bytes(&host->replay, key, 100);
    host_close(host);
    assert_int_equal(engine_create(&engine, &(struct engine_options){.dir = host->replay.dir,
                                                                     .read_only = true}),
                     TRP_OK);
    struct engine_table *table = engine_table(engine, 0);
    engine->ready = false; /* as of a larger one */
    for (uint32_t slot = 0; slot < ITEMS; slot++) {
        const struct item *item = engine_item_in_slot(table, slot);
        assert_int_equal(engine_unreadable(table, item->key, item->chunks[0]->seq,
                                           trp_fail(TRP_DATA_LOSS, "a bit")),
                         TRP_DATA_LOSS);
    }
    engine->ready = true;
    engine_give_up_damaged(engine);
    for (uint64_t key = 1; key <= ITEMS; key++) {
        assert_null(engine_item_with_key(table, key));
        assert_true(engine_key_damaged(table, key));
    }
    assert_false(engine_key_damaged(table, ITEMS + 1));
    engine_destroy(engine);
    open_table(host, "");
}

/* ---- samplers on the host -------------------------------------------------------------------- */

/* Draws until it is told of a loss, which is the end of a sampler, or as often as it may. */
static trp_status draw_all(trp_channel *channel, const trp_tensor_spec *of)
{
    trp_sampler *sampler;
    trp_batch batch;
    trp_status status = TRP_OK;
    assert_int_equal(trp_sampler_create(&sampler, channel,
                                        &(trp_sampler_options){.table = "t",
                                                               .columns = of,
                                                               .column_count = COLUMNS,
                                                               .batch_size = BATCH,
                                                               .limiter_timeout_ms = -1}),
                     TRP_OK);
    for (int i = 0; status == TRP_OK && i < DRAWS / BATCH; ++i)
        status = trp_sampler_next(sampler, &batch, DEADLINE_MS);
    trp_sampler_destroy(sampler);
    return status;
}

static void a_sampler_is_told_once(struct host *host, bool remote)
{
    open_table(host, "");
    insert(host, TABLE_ITEMS);
    host_close(host);
    fixture_damage(host->replay.dir, UINT64_C(7) << 20, FRAME_BYTES);
    open_table(host, "");
    trp_channel *channel = remote ? host->remote : host->replay.channel;
    assert_int_equal(draw_all(channel, columns), TRP_DATA_LOSS);
    assert_non_null(strstr(trp_last_error(), "table t, key "));
    assert_int_equal(table_state(&host->replay, "t").size, TABLE_ITEMS - 1);
    assert_int_equal(draw_all(channel, columns), TRP_OK);
}

static void a_sampler_that_copies_pages_is_told(void **state)
{
    a_sampler_is_told_once(*state, true);
}

/* Of a stopped store; the first step's is a little shorter. */
static int64_t chunk_bytes(const struct host *host)
{
    trp_replay_report report;
    assert_int_equal(trp_replay_verify(host->replay.dir, &report), TRP_OK);
    uint64_t bytes = (report.bytes + report.chunks - 1) / report.chunks;
    trp_replay_report_cleanup(&report);
    return (int64_t)bytes;
}

/* Where the sum lies, behind a chunk of two or three pages: on the last one, with the bytes that
 * are on none, in two pieces, in one of its own. */
static void a_sampler_compares_chunks_of_every_length(void **state)
{
    static const int64_t lengths[] = {2 * 4080 + 3000, 2 * 4080 + 1000, 2 * 4080 - 2, 2 * 4080};
    enum { ITEMS = 6, LENGTHS = sizeof lengths / sizeof *lengths };
    struct host *host = *state;
    int64_t around = 0; /* the bytes of a frame */
    for (size_t i = 0; i < 1 + LENGTHS; ++i) {
        trp_tensor_spec of[COLUMNS] = {columns[0], columns[1]};
        int64_t length = lengths[i ? i - 1 : 0];
        of[0].shape[0] = length - around;
        host->columns = of;
        host->column_count = COLUMNS;
        host->steps = 1;
        host_open(host, "", (trp_replay_server_options){.no_share = false});
        assert_int_equal(reset_table(&host->replay, "t"), TRP_OK);
        host->seed = 0;
        insert(host, ITEMS);
        host_close(host);
        if (i == 0)
            around = chunk_bytes(host) - length;
        assert_int_equal(chunk_bytes(host), length + (i ? 0 : around));
        host_open(host, "", (trp_replay_server_options){.no_share = false});
        assert_int_equal(draw_all(host->remote, of), TRP_OK);
        host_close(host);
        fixture_damage(host->replay.dir, UINT64_C(4) << 20, (size_t)of[0].shape[0]);
        host_open(host, "", (trp_replay_server_options){.no_share = false});
        assert_int_equal(draw_all(host->remote, of), TRP_DATA_LOSS);
        assert_int_equal(table_state(&host->replay, "t").size, ITEMS - 1);
        assert_int_equal(draw_all(host->remote, of), TRP_OK);
        if (i < LENGTHS)
            host_close(host);
    }
}

/* Whoever says so without reason ends its own stream. */
static void a_client_that_reports_what_is_whole_is_not_believed(void **state)
{
    struct host *host = *state;
    struct shared_hello hello = {.window = 1 << 20, .table = text_bytes("t")};
    struct shared_ask asks[] = {{.samples = 1, .timeout_ms = -1}, {.key = 1, .damaged = 1}};
    trp_stream *stream;
    trp_message *message;
    open_table(host, "");
    insert(host, TABLE_ITEMS);
    host_close(host);
    open_table(host, "");
    boot_id_read(hello.boot_id);
    assert_int_equal(trp_stream_open(&stream, host->remote, "/troupe.Replay/SampleShared", NULL),
                     TRP_OK);
    assert_int_equal(shared_hello_encode(&hello, &message), TRP_OK);
    assert_int_equal(trp_stream_send(stream, message, WAIT_MS), TRP_OK);
    for (int i = 0; i < 2; ++i) { /* the welcome, a sample */
        assert_int_equal(trp_stream_receive(stream, &message, DEADLINE_MS), TRP_OK);
        trp_message_destroy(message);
        assert_int_equal(shared_ask_encode(&asks[i], &message), TRP_OK);
        assert_int_equal(trp_stream_send(stream, message, WAIT_MS), TRP_OK);
    }
    assert_ends(stream, TRP_ABORTED, "no chunk of the first message");
    assert_int_equal(table_state(&host->replay, "t").size, TABLE_ITEMS);
    assert_int_equal(draw_all(host->remote, columns), TRP_OK);
}

static void a_sampler_in_the_process_is_told(void **state)
{
    a_sampler_is_told_once(*state, false);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, host_setup, host_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(who_draws_a_damaged_item_is_told_and_the_item_goes),
        TEST(a_damaged_item_of_a_queue_goes_and_its_neighbours_stay),
        TEST(every_item_of_a_damaged_chunk_is_told_when_it_is_read),
        TEST(who_looks_at_a_file_is_told_again_of_what_was_damaged),
        TEST(a_sampler_that_copies_pages_is_told),
        TEST(a_sampler_compares_chunks_of_every_length),
        TEST(a_client_that_reports_what_is_whole_is_not_believed),
        TEST(a_sampler_in_the_process_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
