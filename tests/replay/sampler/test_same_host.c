/* Samplers that read the server's file: what they get is what was inserted, whatever the server
 * recycles and whenever they are stopped or killed, and they are served otherwise where the file is
 * not theirs to read. */
#include "tests/replay/sample_process.h"

#include <errno.h>

#include "tests/core/patience.h"
#include "tests/heap.h"
#include "replay.pb-c.h"
#include "replay/engine/limits.h"
#include "replay/sampler/unpack.h"
#include "tests/replay/service/slow_disk.h"
#include "replay/wire/limits.h"

static const trp_tensor_spec columns[] = {
    {.name = "frame", .dtype = TRP_UINT8, .rank = 1, .shape = {FRAME_BYTES}},
    {.name = "seed", .dtype = TRP_INT64},
    {.name = "text", .dtype = TRP_UINT8, .rank = 1, .shape = {TEXT_BYTES}},
};
enum { COLUMNS = 3 };

static void open_rows(struct host *host, const char *table)
{
    host->columns = columns;
    host->column_count = COLUMNS;
    host->steps = 1;
    host_open(host, table, (trp_replay_server_options){.no_share = false});
}

static trp_sampler *sampler_of(trp_channel *channel, uint32_t prefetch)
{
    trp_sampler *sampler;
    assert_int_equal(trp_sampler_create(&sampler, channel,
                                        &(trp_sampler_options){.table = "t",
                                                               .columns = columns,
                                                               .column_count = COLUMNS,
                                                               .batch_size = BATCH,
                                                               .prefetch = prefetch,
                                                               .limiter_timeout_ms = -1}),
                     TRP_OK);
    return sampler;
}

static void expect_batches(trp_sampler *sampler, uint32_t count)
{
    trp_batch batch;
    for (uint32_t i = 0; i < count; i++) {
        trp_status status = trp_sampler_next(sampler, &batch, DEADLINE_MS);
        if (status != TRP_OK)
            print_error("%s\n", trp_last_error());
        assert_int_equal(status, TRP_OK);
        assert_true(batch_is_whole(columns, COLUMNS, &batch));
    }
}

/* ---- what is sampled ------------------------------------------------------------------------- */

static void samples_in_one_process_are_read_from_the_file(void **state)
{
    struct host *host = *state;
    open_rows(host, "limiter=min_size(1)");
    insert(host, TABLE_ITEMS);
    trp_sampler *sampler = sampler_of(host->replay.channel, 0);
    expect_batches(sampler, 20);
    assert_int_equal(leases(host), 1);
    trp_sampler_destroy(sampler);
    assert_int_equal(leases(host), 0);
}

static void samples_over_a_socket_are_read_from_the_file(void **state)
{
    struct host *host = *state;
    open_rows(host, "limiter=min_size(1)");
    insert(host, TABLE_ITEMS);
    trp_sampler *sampler = sampler_of(host->remote, 2);
    expect_batches(sampler, 20);
    assert_int_equal(leases(host), 1);
    trp_sampler_destroy(sampler);
    recycle_until_leases(host, 0);
}

static void samples_that_come_from_the_disk_are_read_from_the_file(void **state)
{
    struct host *host = *state;
    open_rows(host, "limiter=min_size(1)");
    insert(host, TABLE_ITEMS);
    disk_set(true, false);
    trp_sampler *samplers[] = {sampler_of(host->replay.channel, 0), sampler_of(host->remote, 2)};
    for (int i = 0; i < 2; i++) {
        expect_batches(samplers[i], 20);
        trp_sampler_destroy(samplers[i]);
    }
}

/* Without it no client can read the server's file. */
static void remove_lease_file(const struct host *host)
{
    char *path = fixture_path(host->replay.dir, "LEASES");
    assert_int_equal(unlink(path), 0);
    free(path);
}

static void items_larger_than_a_message_are_whole(void **state)
{
    enum { STEPS = 12, STEP_BYTES = 300000 };
    static const trp_tensor_spec step = {
        .name = "big", .dtype = TRP_UINT8, .rank = 1, .shape = {STEP_BYTES}};
    static const trp_tensor_spec item = {
        .name = "big", .dtype = TRP_UINT8, .rank = 2, .shape = {STEPS, STEP_BYTES}};
    struct host *host = *state;
    host->columns = &step;
    host->column_count = 1;
    host->steps = STEPS;
    host_open(host, "limiter=min_size(1)", (trp_replay_server_options){.no_share = false});
    insert(host, 1);
    uint8_t *expected = xmalloc(STEP_BYTES);
    for (int round = 0; round < 2; round++) {
        trp_sampler *sampler;
        trp_batch batch;
        assert_int_equal(trp_sampler_create(&sampler, host->remote,
                                            &(trp_sampler_options){.table = "t",
                                                                   .columns = &item,
                                                                   .column_count = 1,
                                                                   .batch_size = 1}),
                         TRP_OK);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(trp_sampler_next(sampler, &batch, DEADLINE_MS), TRP_OK);
            for (int64_t at = 0; at < STEPS; at++) {
                column_fill(&step, expected, at + 1);
                assert_memory_equal((const uint8_t *)batch.columns[0] + at * STEP_BYTES, expected,
                                    STEP_BYTES);
            }
        }
        trp_sampler_destroy(sampler);
        if (round == 0)
            remove_lease_file(host);
    }
    free(expected);
}

static void a_queue_gives_each_item_once(void **state)
{
    struct host *host = *state;
    bool seen[4 * BATCH + 1] = {false};
    trp_batch batch;
    open_rows(host, "max_times_sampled=1 limiter=min_size(1)");
    trp_sampler *sampler = sampler_of(host->remote, 0);
    for (int round = 0; round < 4; round++) {
        insert(host, BATCH);
        assert_int_equal(trp_sampler_next(sampler, &batch, DEADLINE_MS), TRP_OK);
        assert_true(batch_is_whole(columns, COLUMNS, &batch));
        for (uint32_t i = 0; i < BATCH; i++) {
            int64_t seed;
            memcpy(&seed, (const uint8_t *)batch.columns[1] + i * sizeof seed, sizeof seed);
            assert_in_range(seed, 1, 4 * BATCH);
            assert_false(seen[seed]);
            seen[seed] = true;
        }
    }
    trp_sampler_destroy(sampler);
}

/* While nobody takes its batches, answers of one item wait until the server reads no further; then
 * each of them is to be released. */
static void a_sampler_that_fell_behind_on_a_queue_takes_what_is_there(void **state)
{
    struct host *host = *state;
    open_rows(host, "max_times_sampled=1 limiter=min_size(1)");
    trp_sampler *sampler = sampler_of(host->replay.channel, 1);
    for (int round = 0; round < 10; round++) { /* each time it may be too fast */
        for (int i = 0; i < TABLE_ITEMS; i++)
            insert(host, 1);
        expect_batches(sampler, TABLE_ITEMS / BATCH);
    }
    trp_sampler_destroy(sampler);
}

static void the_limiter_s_timeout_keeps_the_rows_that_came(void **state)
{
    struct host *host = *state;
    trp_sampler *sampler;
    trp_batch batch;
    open_rows(host, "max_times_sampled=1 limiter=min_size(1)");
    insert(host, BATCH / 2);
    assert_int_equal(trp_sampler_create(&sampler, host->remote,
                                        &(trp_sampler_options){.table = "t",
                                                               .columns = columns,
                                                               .column_count = COLUMNS,
                                                               .batch_size = BATCH,
                                                               .limiter_timeout_ms = 20}),
                     TRP_OK);
    assert_int_equal(trp_sampler_next(sampler, &batch, DEADLINE_MS), TRP_DEADLINE_EXCEEDED);
    assert_non_null(strstr(trp_last_error(), "its limiter holds back"));
    insert(host, BATCH / 2);
    assert_int_equal(trp_sampler_next(sampler, &batch, DEADLINE_MS), TRP_OK);
    assert_true(batch_is_whole(columns, COLUMNS, &batch));
    trp_sampler_destroy(sampler);
}

/* ---- recycling ------------------------------------------------------------------------------- */

struct torture {
    trp_channel *channel;
    uint32_t prefetch;
    _Atomic bool stop;
    _Atomic uint32_t batches;
    _Atomic bool torn;
};

static void torture_run(void *arg)
{
    struct torture *torture = arg;
    trp_sampler *sampler = sampler_of(torture->channel, torture->prefetch);
    trp_batch batch;
    while (!torture->torn && !atomic_load(&torture->stop)) {
        torture->torn = trp_sampler_next(sampler, &batch, DEADLINE_MS) != TRP_OK ||
                        !batch_is_whole(columns, COLUMNS, &batch);
        atomic_fetch_add(&torture->batches, 1);
    }
    trp_sampler_destroy(sampler);
}

enum { TORTURES = 3 };

static void tortures_end(struct torture *tortures, struct thread *threads)
{
    for (int i = 0; i < TORTURES; i++)
        atomic_store(&tortures[i].stop, true);
    for (int i = 0; i < TORTURES; i++) {
        thread_stop(&threads[i]);
        assert_false(tortures[i].torn);
        assert_true(tortures[i].batches > 0);
    }
}

static void expect_whole_rows(struct host *host)
{
    struct torture tortures[TORTURES] = {{.prefetch = 0}, {.prefetch = 2}, {.prefetch = 1}};
    struct thread threads[TORTURES] = {0};
    open_rows(host, "limiter=min_size(1)");
    insert(host, TABLE_ITEMS);
    for (int i = 0; i < 3; i++) {
        tortures[i].channel = i == 2 ? host->replay.channel : host->remote;
        assert_int_equal(thread_start(&threads[i], "torture", torture_run, &tortures[i]), TRP_OK);
    }
    struct deadline deadline = patience();
    for (int i = 0; i < 3; i++)
        while (atomic_load(&tortures[i].batches) < 60 && !tortures[i].torn) {
            still_patient(deadline, "60 batches of each");
            insert(host, 16);
        }
    tortures_end(tortures, threads);
}

static void samplers_in_the_process_starve_no_other(void **state)
{
    struct host *host = *state;
    struct torture tortures[TORTURES] = {{.prefetch = 0}, {.prefetch = 2}, {.prefetch = 2}};
    struct thread threads[TORTURES] = {0};
    open_rows(host, "limiter=min_size(1)");
    insert(host, TABLE_ITEMS);
    for (int i = 0; i < 3; i++) {
        tortures[i].channel = host->replay.channel;
        assert_int_equal(thread_start(&threads[i], "torture", torture_run, &tortures[i]), TRP_OK);
    }
    for (uint32_t prefetch = 0; prefetch < 3; prefetch += 2) {
        trp_sampler *sampler = sampler_of(host->remote, prefetch);
        expect_batches(sampler, 60);
        trp_sampler_destroy(sampler);
    }
    insert(host, 16);
    tortures_end(tortures, threads);
}

static void rows_are_whole_while_the_server_recycles(void **state)
{
    expect_whole_rows(*state);
}

static void rows_from_the_disk_are_whole_while_the_server_recycles(void **state)
{
    disk_set(true, false);
    expect_whole_rows(*state);
}

static void a_stopped_client_loses_its_lease_and_takes_nothing_recycled(void **state)
{
    struct host *host = *state;
    open_rows(host, "limiter=min_size(1)");
    insert(host, TABLE_ITEMS);
    struct client client = client_start(host);
    for (int round = 0; round < 3; round++) {
        client_expect(&client, 20); /* more than it had before it was stopped: it has a new lease */
        kill(client.pid, SIGSTOP);
        recycle_until_leases(host, 0);
        insert(host, 4 * TABLE_ITEMS); /* whatever it was told of is written over */
        kill(client.pid, SIGCONT);
    }
    client_expect(&client, 20);
    client_kill(&client);
    recycle_until_leases(host, 0);
}

static void a_killed_client_costs_nothing_that_lasts(void **state)
{
    struct host *host = *state;
    open_rows(host, "limiter=min_size(1)");
    insert(host, 4 * TABLE_ITEMS);
    uint64_t before = host_file_bytes(host);
    for (int round = 0; round < 3; round++) {
        struct client client = client_start(host);
        client_expect(&client, 3);
        client_kill(&client);
        recycle_until_leases(host, 0);
        insert(host, TABLE_ITEMS);
    }
    /* Three batches and what was requested ahead, of 13 KB items. */
    assert_true(host_file_bytes(host) < before + (8 << 20));
}

/* ---- a raw client ---------------------------------------------------------------------------- */

static trp_stream *raw_open_window(trp_channel *channel, uint64_t window, trp_message **welcome)
{
    trp_stream *stream;
    trp_message *message;
    struct shared_hello hello = {.window = window, .table = text_bytes("t")};
    boot_id_read(hello.boot_id);
    assert_int_equal(trp_stream_open(&stream, channel, "/troupe.Replay/SampleShared", NULL),
                     TRP_OK);
    assert_int_equal(shared_hello_encode(&hello, &message), TRP_OK);
    assert_int_equal(trp_stream_send(stream, message, WAIT_MS), TRP_OK);
    assert_int_equal(trp_stream_receive(stream, welcome, WAIT_MS), TRP_OK);
    return stream;
}

static trp_stream *raw_open(trp_channel *channel, trp_message **welcome)
{
    return raw_open_window(channel, 1 << 20, welcome);
}

static void raw_ask(trp_stream *stream, struct shared_ask ask)
{
    trp_message *message;
    assert_int_equal(shared_ask_encode(&ask, &message), TRP_OK);
    assert_int_equal(trp_stream_send(stream, message, WAIT_MS), TRP_OK);
}

static void a_client_that_releases_nothing_gets_its_window_and_no_more(void **state)
{
    struct host *host = *state;
    trp_message *message;
    struct shared_samples samples;
    uint64_t pages = 0;
    open_rows(host, "limiter=min_size(1)");
    insert(host, TABLE_ITEMS);
    trp_stream *stream = raw_open(host->remote, &message);
    trp_message_destroy(message);
    raw_ask(stream, (struct shared_ask){.samples = 10000, .timeout_ms = -1});
    while (trp_stream_receive(stream, &message, 200) == TRP_OK) {
        assert_int_equal(shared_samples_decode(bytes_of(message), &samples), TRP_OK);
        pages += samples.header.counts[SHARED_PAGES];
        trp_message_destroy(message);
    }
    assert_in_range(pages * 4096, 512 << 10, 1 << 20);
    recycle_until_leases(host, 0);
    assert_ends(stream, TRP_ABORTED, "lease was revoked");
}

static uint64_t items_stored(const struct replay *replay)
{
    Troupe__ReplayTablesRequest request = TROUPE__REPLAY_TABLES_REQUEST__INIT;
    ProtobufCService *service;
    ProtobufCMessage *reply = NULL;
    assert_int_equal(trp_channel_service(replay->channel, &troupe__replay__descriptor, &service),
                     TRP_OK);
    assert_int_equal(trp_call(service, "Tables", &request.base, &reply, NULL), TRP_OK);
    uint64_t items = ((Troupe__ReplayTablesResponse *)reply)->store->items;
    protobuf_c_message_free_unpacked(reply, NULL);
    return items;
}

/* So many messages of `items` small ones each. */
static void insert_small(struct replay *replay, uint64_t messages, uint64_t items)
{
    trp_message *message;
    struct built *built = built_create(0);
    trp_stream *stream = open_stream(replay, "InsertStream");
    for (uint64_t key = 1, i = 0; i < messages; i++) {
        add_chunk(built, (struct chunk_spec){.key = key});
        for (uint64_t chunk = key; key < chunk + items; key++)
            add_simple_item(built, key, "t", 1, chunk);
        send_built(stream, built);
    }
    assert_int_equal(trp_stream_half_close(stream), TRP_OK);
    while (trp_stream_receive(stream, &message, WAIT_MS) == TRP_OK)
        trp_message_destroy(message);
    trp_stream_destroy(stream);
    built_destroy(built);
}

static void a_client_that_releases_nothing_does_not_keep_what_it_took_from_a_queue(void **state)
{
    enum { ITEMS = 256, MESSAGES = 3 * SAMPLE_UNACKED_MAX / ITEMS };
    struct replay *replay = &((struct host *)*state)->replay;
    trp_message *message;
    struct shared_samples samples;
    OPEN("name=t sampler=fifo max_times_sampled=1");
    insert_small(replay, MESSAGES, ITEMS);
    trp_stream *stream = raw_open(replay->channel, &message);
    trp_message_destroy(message);
    raw_ask(stream, (struct shared_ask){.samples = INT64_MAX, .timeout_ms = -1});
    for (uint32_t came = 0; came < MESSAGES * ITEMS;
         came += samples.header.counts[SHARED_ENTRIES]) {
        assert_int_equal(trp_stream_receive(stream, &message, WAIT_MS), TRP_OK);
        assert_int_equal(shared_samples_decode(bytes_of(message), &samples), TRP_OK);
        trp_message_destroy(message);
    }
    assert_in_range(items_stored(replay), 0, 2 * SAMPLE_UNACKED_MAX);
    trp_stream_destroy(stream);
}

static void
messages_that_take_small_items_from_a_queue_fill_the_window_until_they_are_released(void **state)
{
    enum { ITEMS = 200, WINDOW_BYTES = 8192 };
    struct replay *replay = &((struct host *)*state)->replay;
    trp_message *message;
    uint64_t came = 0;
    OPEN("name=t sampler=fifo max_times_sampled=1");
    insert_small(replay, 1, ITEMS);
    trp_stream *stream = raw_open_window(replay->channel, WINDOW_BYTES, &message);
    trp_message_destroy(message);
    for (trp_status status = TRP_OK; status == TRP_OK; came += status == TRP_OK) {
        raw_ask(stream, (struct shared_ask){.samples = 1, .timeout_ms = -1});
        status = trp_stream_receive(stream, &message, 0); /* its group ended before this */
        if (status == TRP_OK)
            trp_message_destroy(message);
    }
    assert_in_range(came, WINDOW_BYTES / 1024, ITEMS - 1);
    raw_ask(stream, (struct shared_ask){.released = came, .timeout_ms = -1});
    assert_int_equal(trp_stream_receive(stream, &message, WAIT_MS), TRP_OK);
    trp_message_destroy(message);
    trp_stream_destroy(stream);
}

static void messages_with_nothing_to_release_take_no_memory(void **state)
{
    enum { ROUNDS = 20000 };
    struct host *host = *state;
    trp_message *message;
    size_t before = 0;
    open_rows(host, "limiter=min_size(1)"); /* empty: every round expires */
    trp_stream *stream = raw_open(host->replay.channel, &message);
    trp_message_destroy(message);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        raw_ask(stream, (struct shared_ask){.samples = 1, .timeout_ms = 0, .round = round});
        assert_int_equal(trp_stream_receive(stream, &message, WAIT_MS), TRP_OK);
        trp_message_destroy(message);
        if (round == ROUNDS / 10)
            before = heap_bytes();
    }
    assert_in_range(heap_bytes(), 0, before + ROUNDS * 8);
    raw_ask(stream, (struct shared_ask){.released = ROUNDS + 1});
    assert_ends(stream, TRP_INVALID_ARGUMENT, "releases what it was not given");
}

static void a_copy_made_after_the_lease_is_seen_to_be_worthless(void **state)
{
    struct host *host = *state;
    trp_message *message;
    struct shared_welcome welcome;
    struct shared_view *view;
    open_rows(host, "limiter=min_size(1)");
    insert(host, TABLE_ITEMS);
    trp_stream *stream = raw_open(host->remote, &message);
    assert_int_equal(shared_welcome_decode(bytes_of(message), &welcome), TRP_OK);
    assert_int_equal(shared_view_open(&view, &welcome), TRP_OK);
    trp_message_destroy(message);
    raw_ask(stream, (struct shared_ask){.samples = 4, .timeout_ms = -1});
    assert_int_equal(trp_stream_receive(stream, &message, WAIT_MS), TRP_OK);
    assert_true(shared_view_valid(view));
    recycle_until_leases(host, 0);
    assert_false(shared_view_valid(view));
    struct unpacker *unpacker = unpacker_create(columns, COLUMNS);
    struct batch batch;
    struct shared_header header;
    assert_int_equal(batch_init(&batch, columns, COLUMNS, 4, NULL, "test"), TRP_OK);
    assert_int_equal(unpacker_feed_shared(unpacker, message, view, &header), TRP_OK);
    assert_int_equal(unpacker_fill(unpacker, &batch), TRP_ABORTED);
    assert_int_equal(batch.rows, 0);
    batch_cleanup(&batch, COLUMNS);
    unpacker_destroy(unpacker);
    shared_view_close(view);
    trp_stream_destroy(stream);
}

static void leases_that_a_killed_server_left_end_with_the_next(void **state)
{
    struct host *host = *state;
    open_rows(host, "limiter=min_size(1)");
    char *path = fixture_path(host->replay.dir, "LEASES");
    host_close(host);
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, &(uint64_t){77}, 8, 8), 8);
    close(fd);
    assert_int_equal(leases(host), 1);
    _Atomic uint64_t *before = host->leases;
    open_rows(host, "limiter=min_size(1)");
    assert_int_equal(atomic_load(&before[1]), 0);
    munmap((void *)before, SHARED_LEASES_MAX * 8);
    free(path);
}

/* ---- where it cannot be ---------------------------------------------------------------------- */

static void expect_ordinary(struct host *host)
{
    trp_sampler *sampler = sampler_of(host->remote, 0);
    expect_batches(sampler, 5);
    assert_int_equal(leases(host), 0);
    trp_sampler_destroy(sampler);
}

static void a_client_without_the_lease_file_is_sent_its_samples(void **state)
{
    struct host *host = *state;
    open_rows(host, "limiter=min_size(1)");
    insert(host, TABLE_ITEMS);
    remove_lease_file(host);
    expect_ordinary(host);
}

static void a_client_that_finds_another_file_is_sent_its_samples(void **state)
{
    struct host *host = *state;
    open_rows(host, "limiter=min_size(1)");
    insert(host, TABLE_ITEMS);
    char *path = fixture_path(host->replay.dir, "data.mdb");
    char *aside = fixture_path(host->replay.dir, "aside");
    char *command = xasprintf("mv '%s' '%s' && cp '%s' '%s'", path, aside, aside, path);
    assert_int_equal(system(command), 0);
    expect_ordinary(host);
    assert_int_equal(rename(aside, path), 0);
    free(command);
    free(aside);
    free(path);
}

static void a_client_that_finds_another_nonce_is_sent_its_samples(void **state)
{
    struct host *host = *state;
    struct shared_welcome welcome;
    struct shared_view *view;
    trp_message *message;
    open_rows(host, "limiter=min_size(1)");
    insert(host, TABLE_ITEMS);
    trp_stream *stream = raw_open(host->remote, &message);
    assert_int_equal(shared_welcome_decode(bytes_of(message), &welcome), TRP_OK);
    char *path = fixture_path(host->replay.dir, "data.mdb");
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "another", 7, (off_t)welcome.layout.nonce_at), 7);
    close(fd);
    free(path);
    assert_int_equal(shared_view_open(&view, &welcome), TRP_FAILED_PRECONDITION);
    assert_non_null(strstr(trp_last_error(), "has not the server's nonce"));
    trp_message_destroy(message);
    trp_stream_destroy(stream);
    recycle_until_leases(host, 0);
    expect_ordinary(host);
}

/* Paths of a server that means no good. */
static void what_a_server_names_is_looked_at_before_it_is_used(void **state)
{
    struct host *host = *state;
    struct shared_welcome welcome, told;
    struct shared_view *view;
    trp_message *message;
    open_rows(host, "limiter=min_size(1)");
    trp_stream *stream = raw_open(host->remote, &message);
    assert_int_equal(shared_welcome_decode(bytes_of(message), &welcome), TRP_OK);
    char *fifo = fixture_path(host->replay.dir, "fifo"),
         *link = fixture_path(host->replay.dir, "l");
    char *data = fixture_path(host->replay.dir, "data.mdb");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(symlink(data, link), 0);
    const struct {
        const char *path, *text;
    } rows[] = {{fifo, "is no plain file"},
                {link, "symbolic links"},
                {host->replay.dir, "is no plain file"},
                {"/dev/zero", "is no plain file"},
                {"/none/such", "No such file"}};
    for (size_t i = 0; i < 2 * (sizeof rows / sizeof *rows); i++) {
        told = welcome;
        *(i % 2 ? &told.data_path : &told.lease_path) = text_bytes(rows[i / 2].path);
        assert_int_equal(shared_view_open(&view, &told), TRP_FAILED_PRECONDITION);
        assert_non_null(strstr(trp_last_error(), rows[i / 2].text));
    }
    trp_message *wide;
    told = welcome;
    told.layout.page_bytes = UINT64_C(1) << 40; /* products with it wrap around */
    assert_int_equal(shared_welcome_encode(&told, &wide), TRP_OK);
    assert_int_equal(shared_welcome_decode(bytes_of(wide), &told), TRP_INVALID_ARGUMENT);
    trp_message_destroy(wide);
    if (geteuid() == 0) { /* nobody else can give files away */
        assert_int_equal(chown(data, 12345, (gid_t)-1), 0);
        assert_int_equal(shared_view_open(&view, &welcome), TRP_FAILED_PRECONDITION);
        assert_non_null(strstr(trp_last_error(), "is another user's"));
        assert_int_equal(chown(data, 0, (gid_t)-1), 0);
    }
    assert_int_equal(shared_view_open(&view, &welcome), TRP_OK);
    shared_view_close(view);
    assert_int_equal(unlink(fifo), 0);
    assert_int_equal(unlink(link), 0);
    trp_message_destroy(message);
    trp_stream_destroy(stream);
    free(data);
    free(link);
    free(fifo);
}

/* The status of a hello that is changed by `change` before it is sent. */
static void expect_refused(struct host *host, size_t at, uint8_t value, trp_status status,
                           const char *text)
{
    trp_stream *stream;
    trp_message *message;
    struct shared_hello hello = {.window = 1 << 20, .table = text_bytes("t")};
    boot_id_read(hello.boot_id);
    assert_int_equal(trp_stream_open(&stream, host->remote, "/troupe.Replay/SampleShared", NULL),
                     TRP_OK);
    assert_int_equal(shared_hello_encode(&hello, &message), TRP_OK);
    trp_message_data(message)[at] ^= value;
    assert_int_equal(trp_stream_send(stream, message, WAIT_MS), TRP_OK);
    assert_ends(stream, status, text);
}

static void a_server_that_does_not_share_sends_its_samples(void **state)
{
    struct host *host = *state;
    open_rows(host, "limiter=min_size(1)");
    insert(host, TABLE_ITEMS);
    host_close(host);
    munmap((void *)host->leases, SHARED_LEASES_MAX * 8);
    host_open(host, "limiter=min_size(1)", (trp_replay_server_options){.no_share = true});
    expect_ordinary(host);
    trp_sampler *sampler = sampler_of(host->replay.channel, 0);
    expect_batches(sampler, 5);
    assert_int_equal(leases(host), 0);
    trp_sampler_destroy(sampler);
}

static void a_hello_from_elsewhere_is_refused(void **state)
{
    struct host *host = *state;
    open_rows(host, "limiter=min_size(1)");
    expect_refused(host, 20, 1, TRP_FAILED_PRECONDITION, "another host");
    expect_refused(host, 4, 1, TRP_FAILED_PRECONDITION, "speaks version 3");
    expect_refused(host, 0, 1, TRP_INVALID_ARGUMENT, "no hello");
    expect_refused(host, 64, 1, TRP_NOT_FOUND, "was not found");
}

static void releasing_what_was_not_given_ends_the_stream(void **state)
{
    struct host *host = *state;
    trp_message *message;
    open_rows(host, "limiter=min_size(1)");
    trp_stream *stream = raw_open(host->remote, &message);
    trp_message_destroy(message);
    raw_ask(stream, (struct shared_ask){.released = 1});
    assert_ends(stream, TRP_INVALID_ARGUMENT, "releases what it was not given");
}

static void who_never_reads_answers_is_not_read_for_ever(void **state)
{
    enum { ASKS_MAX = 20000, NO_ROOM_MS = 200 };
    struct host *host = *state;
    trp_message *message;
    open_rows(host, "limiter=min_size(1)"); /* empty: every round expires, which is an answer */
    trp_stream *stream = raw_open(host->replay.channel, &message);
    trp_message_destroy(message);
    trp_status status = TRP_OK;
    uint64_t asks = 0;
    for (; status == TRP_OK && asks < ASKS_MAX; asks++) {
        struct shared_ask ask = {.samples = 1, .timeout_ms = 0, .round = asks};
        assert_int_equal(shared_ask_encode(&ask, &message), TRP_OK);
        status = trp_stream_send(stream, message, NO_ROOM_MS);
    }
    assert_int_equal(status, TRP_DEADLINE_EXCEEDED);
    /* Heard again once it listens. */
    while (trp_stream_receive(stream, &message, NO_ROOM_MS) == TRP_OK)
        trp_message_destroy(message);
    raw_ask(stream, (struct shared_ask){.samples = 1, .timeout_ms = 0, .round = asks - 1});
    trp_stream_destroy(stream);
}

static int setup(void **state)
{
    disk_set(false, false);
    return host_setup(state);
}

int main(int argc, char **argv)
{
    disk_init();
    if (argc == 3 && strcmp(argv[1], "--sample") == 0)
        return sample_for_ever(argv[2], columns, COLUMNS, 1);
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, host_teardown)
    const struct CMUnitTest tests[] = {
        TEST(samples_in_one_process_are_read_from_the_file),
        TEST(samples_over_a_socket_are_read_from_the_file),
        TEST(samples_that_come_from_the_disk_are_read_from_the_file),
        TEST(items_larger_than_a_message_are_whole),
        TEST(a_queue_gives_each_item_once),
        TEST(a_sampler_that_fell_behind_on_a_queue_takes_what_is_there),
        TEST(the_limiter_s_timeout_keeps_the_rows_that_came),
        TEST(samplers_in_the_process_starve_no_other),
        TEST(rows_are_whole_while_the_server_recycles),
        TEST(rows_from_the_disk_are_whole_while_the_server_recycles),
        TEST(a_stopped_client_loses_its_lease_and_takes_nothing_recycled),
        TEST(a_killed_client_costs_nothing_that_lasts),
        TEST(a_client_that_releases_nothing_gets_its_window_and_no_more),
        TEST(a_client_that_releases_nothing_does_not_keep_what_it_took_from_a_queue),
        TEST(messages_that_take_small_items_from_a_queue_fill_the_window_until_they_are_released),
        TEST(messages_with_nothing_to_release_take_no_memory),
        TEST(a_copy_made_after_the_lease_is_seen_to_be_worthless),
        TEST(leases_that_a_killed_server_left_end_with_the_next),
        TEST(a_client_without_the_lease_file_is_sent_its_samples),
        TEST(a_client_that_finds_another_file_is_sent_its_samples),
        TEST(a_client_that_finds_another_nonce_is_sent_its_samples),
        TEST(what_a_server_names_is_looked_at_before_it_is_used),
        TEST(a_server_that_does_not_share_sends_its_samples),
        TEST(a_hello_from_elsewhere_is_refused),
        TEST(releasing_what_was_not_given_ends_the_stream),
        TEST(who_never_reads_answers_is_not_read_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
