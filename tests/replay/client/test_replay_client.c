/* Writer and sampler against the replay server itself, over TCP, a unix socket and in process. */
#include <troupe/replay.h>
#include <troupe/sampler.h>
#include <troupe/writer.h>

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/alloc.h"
#include "core/thread.h"

extern char **environ;

enum { N = 3, PIXELS = 600 };

static const trp_tensor_spec step_columns[] = {
    {.name = "number", .dtype = TRP_INT64},
    {.name = "obs", .dtype = TRP_FLOAT32, .rank = 1, .shape = {4}},
    {.name = "pixels", .dtype = TRP_UINT8, .rank = 1, .shape = {PIXELS}},
};

/* An item: the number N steps ago, N observations from there on, the pixels of now. */
static const trp_tensor_spec item_columns[] = {
    {.name = "number", .dtype = TRP_INT64},
    {.name = "obs", .dtype = TRP_FLOAT32, .rank = 2, .shape = {N, 4}},
    {.name = "pixels", .dtype = TRP_UINT8, .rank = 1, .shape = {PIXELS}},
};

static const trp_item_column item[] = {
    {.column = 0, .age = N, .length = 1, .squeeze = true},
    {.column = 1, .age = N, .length = N},
    {.column = 2, .age = 0, .length = 1, .squeeze = true},
};

static void fill_obs(int64_t number, float *obs)
{
    for (int i = 0; i < 4; i++)
        obs[i] = (float)(10 * number + i);
}

/* Even steps compress, odd ones do not. */
static void fill_pixels(int64_t number, uint8_t *pixels)
{
    uint32_t noise = (uint32_t)number;
    for (int i = 0; i < PIXELS; i++)
        pixels[i] =
            number % 2 ? (uint8_t)((noise = noise * 1664525 + 1013904223) >> 24) : (uint8_t)number;
}

static void append(trp_writer *writer, int64_t number)
{
    float obs[4];
    uint8_t pixels[PIXELS];
    fill_obs(number, obs);
    fill_pixels(number, pixels);
    assert_int_equal(trp_writer_append(writer, (const void *[]){&number, obs, pixels}), TRP_OK);
}

static trp_status insert(trp_writer *writer, const char *table, double priority, int64_t timeout_ms,
                         uint64_t *key)
{
    return trp_writer_create_item(writer, table, priority, item, 3, timeout_ms, key);
}

static int64_t check_row(const trp_batch *batch, uint32_t row)
{
    float obs[4];
    uint8_t pixels[PIXELS];
    int64_t number = ((const int64_t *)batch->columns[0])[row];
    for (int i = 0; i < N; i++) {
        fill_obs(number + i, obs);
        assert_memory_equal((const float *)batch->columns[1] + (row * N + (uint32_t)i) * 4, obs,
                            sizeof obs);
    }
    fill_pixels(number + N, pixels);
    assert_memory_equal((const uint8_t *)batch->columns[2] + (size_t)row * PIXELS, pixels, PIXELS);
    return number;
}

/* ---- a server and a channel to it ------------------------------------------------------------ */

enum way { TCP, UNIX, LOCAL };

struct site {
    char dir[64], address[96];
    enum way way;
    trp_replay_server *server;
    trp_channel *channel;
};

static const char *const table_lines[] = {
    "name=stream sampler=fifo max_times_sampled=1 max_size=100000 limiter=min_size(1)",
    "name=uniform sampler=uniform max_size=1000 limiter=min_size(1)",
    "name=small sampler=uniform max_size=5 limiter=min_size(5)",
    "name=queue sampler=fifo max_times_sampled=1 max_size=4 limiter=queue(4)",
    "name=prio sampler=prioritized(1) max_size=1000 limiter=min_size(1)",
    "name=signed sampler=uniform max_size=1000 limiter=min_size(1)",
};

enum { TABLES = sizeof table_lines / sizeof *table_lines };

static void site_start(struct site *site)
{
    trp_table_options tables[TABLES], *parsed[TABLES];
    trp_bytes signature;
    assert_int_equal(trp_signature_encode(item_columns, 3, &signature), TRP_OK);
    for (size_t i = 0; i < TABLES; i++) {
        assert_int_equal(trp_table_options_parse(table_lines[i], &parsed[i]), TRP_OK);
        tables[i] = *parsed[i];
        if (strcmp(tables[i].name, "signed") == 0)
            tables[i].signature = signature;
    }
    trp_replay_server_options options = {.dir = site->dir,
                                         .max_bytes = 256 << 20,
                                         .tables = tables,
                                         .table_count = TABLES,
                                         .seed = 3,
                                         .server = {.address = site->address}};
    assert_int_equal(trp_replay_server_create(&site->server, &options), TRP_OK);
    if (site->way != LOCAL)
        assert_int_equal(trp_replay_server_start(site->server), TRP_OK);
    for (size_t i = 0; i < TABLES; i++)
        trp_table_options_destroy(parsed[i]);
    free((void *)signature.data);
}

static void site_connect(struct site *site)
{
    trp_server *rpc = trp_replay_server_rpc(site->server);
    if (site->way == LOCAL)
        site->channel = trp_channel_create_local(rpc);
    else
        assert_int_equal(trp_channel_create(&site->channel, trp_server_address(rpc), NULL), TRP_OK);
}

static struct site *site_create(enum way way)
{
    struct site *site = xcalloc(1, sizeof *site);
    site->way = way;
    snprintf(site->dir, sizeof site->dir, "/tmp/troupe-test-XXXXXX");
    assert_non_null(mkdtemp(site->dir));
    if (way == UNIX)
        snprintf(site->address, sizeof site->address, "unix:%s/socket", site->dir);
    else
        snprintf(site->address, sizeof site->address, "127.0.0.1:0");
    return site;
}

static int site_setup(void **state, enum way way)
{
    struct site *site = site_create(way);
    site_start(site);
    site_connect(site);
    *state = site;
    return 0;
}

static int setup_tcp(void **state)
{
    return site_setup(state, TCP);
}

static int setup_unix(void **state)
{
    return site_setup(state, UNIX);
}

static int setup_local(void **state)
{
    return site_setup(state, LOCAL);
}

static void site_destroy(struct site *site)
{
    char command[128];
    trp_channel_destroy(site->channel);
    trp_replay_server_destroy(site->server);
    snprintf(command, sizeof command, "rm -rf %s", site->dir);
    assert_int_equal(system(command), 0);
    free(site);
}

static int teardown(void **state)
{
    site_destroy(*state);
    return 0;
}

static trp_writer *writer_create(trp_channel *channel, trp_writer_options options)
{
    trp_writer *writer;
    options.columns = step_columns;
    options.column_count = 3;
    options.history = N + 1;
    assert_int_equal(trp_writer_create(&writer, channel, &options), TRP_OK);
    return writer;
}

static trp_sampler_options sampling(const char *table, uint32_t batch_size, uint32_t prefetch)
{
    return (trp_sampler_options){.table = table,
                                 .columns = item_columns,
                                 .column_count = 3,
                                 .batch_size = batch_size,
                                 .prefetch = prefetch,
                                 .limiter_timeout_ms = -1};
}

static trp_sampler *sampler_create(trp_channel *channel, trp_sampler_options options)
{
    trp_sampler *sampler;
    assert_int_equal(trp_sampler_create(&sampler, channel, &options), TRP_OK);
    return sampler;
}

/* Steps from 0 on and an item for each once there are enough. */
static void write_items(trp_writer *writer, const char *table, int64_t items)
{
    for (int64_t i = 0; i < items + N; i++) {
        append(writer, i);
        if (i >= N)
            assert_int_equal(insert(writer, table, 1, 10000, NULL), TRP_OK);
    }
    assert_int_equal(trp_writer_flush(writer, 0, 10000), TRP_OK);
}

/* ---- what goes in comes out ------------------------------------------------------------------ */

static void round_trip(struct site *site, uint32_t chunk_length, uint32_t prefetch)
{
    trp_writer *writer =
        writer_create(site->channel, (trp_writer_options){.chunk_length = chunk_length});
    write_items(writer, "stream", 320);
    assert_int_equal(trp_writer_confirmed(writer), 320);
    trp_sampler *sampler = sampler_create(site->channel, sampling("stream", 32, prefetch));
    trp_batch batch;
    for (int64_t i = 0; i < 10; i++) {
        assert_int_equal(trp_sampler_next(sampler, &batch, 10000), TRP_OK);
        for (uint32_t row = 0; row < 32; row++) {
            assert_int_equal(check_row(&batch, row), 32 * i + row);
            assert_int_equal(batch.times_sampled[row], 1);
            assert_true(batch.probabilities[row] == 1);
            assert_int_equal(batch.table_sizes[row], 320 - (32 * i + row));
        }
    }
    assert_int_equal(trp_sampler_next(sampler, &batch, 0), TRP_DEADLINE_EXCEEDED);
    trp_sampler_destroy(sampler);
    trp_writer_destroy(writer);
}

static void single_step_chunks_come_back(void **state)
{
    round_trip(*state, 1, 0);
}

static void longer_chunks_come_back(void **state)
{
    round_trip(*state, 5, 0);
}

static void prefetched_batches_come_back_in_order(void **state)
{
    round_trip(*state, 2, 3);
}

static void the_oldest_items_are_evicted(void **state)
{
    struct site *site = *state;
    trp_writer *writer = writer_create(site->channel, (trp_writer_options){0});
    write_items(writer, "small", 40);
    trp_sampler *sampler = sampler_create(site->channel, sampling("small", 50, 1));
    trp_batch batch;
    assert_int_equal(trp_sampler_next(sampler, &batch, 10000), TRP_OK);
    for (uint32_t row = 0; row < 50; row++) {
        assert_in_range(check_row(&batch, row), 35, 39);
        assert_int_equal(batch.table_sizes[row], 5);
    }
    trp_sampler_destroy(sampler);
    trp_writer_destroy(writer);
}

/* ---- limiters -------------------------------------------------------------------------------- */

static void a_full_queue_holds_the_writer_until_somebody_samples(void **state)
{
    struct site *site = *state;
    trp_writer *writer =
        writer_create(site->channel, (trp_writer_options){.batch_items = 1, .max_in_flight = 6});
    int64_t created = 0;
    trp_status status = TRP_OK;
    for (int64_t i = 0; status == TRP_OK && i < 100; i++) {
        append(writer, i);
        if (i >= N)
            status = insert(writer, "queue", 1, 50, NULL);
        created += i >= N && status == TRP_OK;
        if (created == 4) /* as many as the table takes: only a full one makes the writer wait */
            assert_int_equal(trp_writer_flush(writer, 0, 10000), TRP_OK);
    }
    assert_int_equal(status, TRP_DEADLINE_EXCEEDED);
    assert_non_null(strstr(trp_last_error(), "'queue'"));
    assert_int_equal(created, 10); /* 4 in the table and 6 in flight */
    assert_int_equal(trp_writer_confirmed(writer), 4);
    trp_sampler *sampler = sampler_create(site->channel, sampling("queue", 2, 0));
    trp_batch batch;
    for (uint32_t i = 0; i < 10; i += 2) {
        assert_int_equal(trp_sampler_next(sampler, &batch, 10000), TRP_OK);
        assert_int_equal(check_row(&batch, 0), i);
        assert_int_equal(check_row(&batch, 1), i + 1);
        assert_int_equal(trp_writer_flush(writer, i < 4 ? 4 - i : 0, 10000), TRP_OK);
    }
    assert_int_equal(trp_writer_confirmed(writer), 10);
    assert_int_equal(trp_sampler_next(sampler, &batch, 20), TRP_DEADLINE_EXCEEDED);
    trp_sampler_destroy(sampler);
    trp_writer_destroy(writer);
}

static void a_limiter_timeout_of_zero_takes_what_there_is(void **state)
{
    struct site *site = *state;
    trp_writer *writer = writer_create(site->channel, (trp_writer_options){0});
    write_items(writer, "stream", 12);
    trp_sampler_options options = sampling("stream", 8, 0);
    options.limiter_timeout_ms = 0;
    trp_sampler *sampler = sampler_create(site->channel, options);
    trp_batch batch;
    assert_int_equal(trp_sampler_next(sampler, &batch, 10000), TRP_OK);
    assert_int_equal(trp_sampler_next(sampler, &batch, 10000), TRP_DEADLINE_EXCEEDED);
    assert_non_null(strstr(trp_last_error(), "limiter"));
    write_items(writer, "stream", 4);
    assert_int_equal(trp_sampler_next(sampler, &batch, 10000), TRP_OK);
    for (uint32_t row = 0; row < 4; row++)
        assert_int_equal(check_row(&batch, row), 8 + row); /* kept from before */
    trp_sampler_destroy(sampler);
    trp_writer_destroy(writer);
}

/* A call that does not wait sees how the server ended the stream, and opens another. */
static void a_poll_outlives_a_limiter_timeout(void **state)
{
    struct site *site = *state;
    trp_sampler_options options = sampling("stream", 2, 0);
    options.limiter_timeout_ms = 0;
    trp_sampler *sampler = sampler_create(site->channel, options);
    trp_batch batch;
    for (int i = 0; i < 20; i++)
        assert_int_equal(trp_sampler_next(sampler, &batch, 0), TRP_DEADLINE_EXCEEDED);
    trp_writer *writer = writer_create(site->channel, (trp_writer_options){0});
    write_items(writer, "stream", 2);
    struct deadline deadline = deadline_in_ms(&clock_monotonic, 10000);
    trp_status status = TRP_DEADLINE_EXCEEDED;
    while (status == TRP_DEADLINE_EXCEEDED && !deadline_passed(deadline, &clock_monotonic))
        status = trp_sampler_next(sampler, &batch, 0);
    assert_int_equal(status, TRP_OK);
    trp_sampler_destroy(sampler);
    trp_writer_destroy(writer);
}

struct waiter {
    trp_sampler *sampler;
    trp_status status;
};

static void wait_for_a_batch(void *arg)
{
    struct waiter *waiter = arg;
    trp_batch batch;
    waiter->status = trp_sampler_next(waiter->sampler, &batch, -1);
}

static void a_stop_ends_a_wait_for_the_limiter(void **state)
{
    struct site *site = *state;
    for (uint32_t prefetch = 0; prefetch < 2; prefetch++) {
        struct thread thread = {0};
        struct waiter waiter = {.sampler =
                                    sampler_create(site->channel, sampling("small", 2, prefetch))};
        assert_int_equal(thread_start(&thread, "waiter", wait_for_a_batch, &waiter), TRP_OK);
        trp_sampler_stop(waiter.sampler);
        thread_stop(&thread);
        trp_sampler_destroy(waiter.sampler);
        assert_int_equal(waiter.status, TRP_CANCELLED);
    }
}

/* ---- mistakes -------------------------------------------------------------------------------- */

static void an_unknown_table_is_named(void **state)
{
    struct site *site = *state;
    trp_writer *writer = writer_create(site->channel, (trp_writer_options){0});
    for (int64_t i = 0; i <= N; i++)
        append(writer, i);
    assert_int_equal(insert(writer, "nope", 1, 1000, NULL), TRP_NOT_FOUND);
    assert_non_null(strstr(trp_last_error(), "nope"));
    assert_int_equal(insert(writer, "stream", 1, 1000, NULL), TRP_OK); /* it is fine */
    trp_writer_destroy(writer);
    writer = writer_create(site->channel, (trp_writer_options){.unchecked = true});
    for (int64_t i = 0; i <= N; i++)
        append(writer, i);
    assert_int_equal(insert(writer, "nope", 1, 1000, NULL), TRP_OK);
    assert_int_equal(trp_writer_flush(writer, 0, 10000), TRP_NOT_FOUND);
    assert_non_null(strstr(trp_last_error(), "nope"));
    trp_writer_destroy(writer);
    trp_sampler *sampler;
    trp_sampler_options options = sampling("nope", 1, 0);
    assert_int_equal(trp_sampler_create(&sampler, site->channel, &options), TRP_NOT_FOUND);
    assert_non_null(strstr(trp_last_error(), "nope"));
}

static void wrong_columns_are_named(void **state)
{
    struct site *site = *state;
    trp_sampler *sampler;
    trp_tensor_spec columns[3];
    memcpy(columns, item_columns, sizeof columns);
    columns[1].shape[1] = 5;
    trp_sampler_options options = sampling("signed", 1, 0);
    options.columns = columns;
    assert_int_equal(trp_sampler_create(&sampler, site->channel, &options), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(),
                           "column 1 (obs) is float32[3,5], but table 'signed' has "
                           "float32[3,4]"));
    trp_writer *writer = writer_create(site->channel, (trp_writer_options){0});
    write_items(writer, "uniform", 1);
    options.table = "uniform";
    sampler = sampler_create(site->channel, options);
    trp_batch batch;
    assert_int_equal(trp_sampler_next(sampler, &batch, 10000), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "column 1 (obs)"));
    trp_sampler_destroy(sampler);
    trp_writer_destroy(writer);
}

/* ---- priorities ------------------------------------------------------------------------------ */

static void new_priorities_decide_what_is_sampled(void **state)
{
    struct site *site = *state;
    trp_writer *writer = writer_create(site->channel, (trp_writer_options){0});
    trp_priority_writer *priorities;
    uint64_t keys[20];
    double zero[20] = {0};
    for (int64_t i = 0; i < 20 + N; i++) {
        append(writer, i);
        if (i >= N)
            assert_int_equal(insert(writer, "prio", 1, 10000, &keys[i - N]), TRP_OK);
    }
    assert_int_equal(trp_writer_flush(writer, 0, 10000), TRP_OK);
    zero[7] = 2;
    assert_int_equal(trp_priority_writer_create(&priorities, site->channel, "prio", 4), TRP_OK);
    assert_int_equal(trp_priority_writer_update(priorities, keys, zero, 20, 10000), TRP_OK);
    assert_int_equal(trp_priority_writer_flush(priorities, 10000), TRP_OK);
    trp_sampler *sampler = sampler_create(site->channel, sampling("prio", 32, 0));
    trp_batch batch;
    assert_int_equal(trp_sampler_next(sampler, &batch, 10000), TRP_OK);
    for (uint32_t row = 0; row < 32; row++) {
        assert_int_equal(check_row(&batch, row), 7);
        assert_true(batch.keys[row] == keys[7]);
        assert_true(batch.priorities[row] == 2);
        assert_true(batch.probabilities[row] == 1);
    }
    zero[0] = -1;
    assert_int_equal(trp_priority_writer_update(priorities, keys, zero, 1, 10000), TRP_OK);
    assert_int_equal(trp_priority_writer_flush(priorities, 10000), TRP_INVALID_ARGUMENT);
    trp_priority_writer_destroy(priorities);
    trp_sampler_destroy(sampler);
    trp_writer_destroy(writer);
}

static trp_table_info info_of(struct site *site, const char *name)
{
    trp_table_info tables[16];
    size_t count;
    assert_int_equal(trp_replay_info(site->channel, tables, 16, &count, 10000), TRP_OK);
    assert_int_equal(count, TABLES);
    for (size_t i = 0; i < count; i++)
        if (strcmp(tables[i].name, name) == 0)
            return tables[i];
    fail();
    return tables[0];
}

static void deletes_and_resets_show_in_the_info(void **state)
{
    struct site *site = *state;
    trp_writer *writer = writer_create(site->channel, (trp_writer_options){0});
    uint64_t key;
    write_items(writer, "uniform", 9);
    assert_int_equal(insert(writer, "uniform", 1, 10000, &key), TRP_OK);
    assert_int_equal(trp_writer_flush(writer, 0, 10000), TRP_OK);
    trp_table_info info = info_of(site, "uniform");
    assert_int_equal(info.size, 10);
    assert_int_equal(info.inserts, 10);
    assert_int_equal(info.max_size, 1000);
    assert_int_equal(trp_replay_delete(site->channel, "uniform", &key, 1, 10000), TRP_OK);
    assert_int_equal(info_of(site, "uniform").size, 9);
    assert_int_equal(trp_replay_reset(site->channel, "uniform", 10000), TRP_OK);
    assert_int_equal(info_of(site, "uniform").size, 0);
    assert_int_equal(trp_replay_reset(site->channel, "nope", 10000), TRP_NOT_FOUND);
    trp_writer_destroy(writer);
}

/* ---- the server dies ------------------------------------------------------------------------- */

static pid_t serve_in_a_process(const struct site *site)
{
    char *arguments[] = {"test", "--serve", (char *)site->dir, (char *)site->address, NULL};
    pid_t pid;
    assert_int_equal(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, arguments, environ), 0);
    return pid;
}

/* The other process: serves until it is killed. */
static int serve(const char *dir, const char *address)
{
    struct site site = {.way = UNIX};
    snprintf(site.dir, sizeof site.dir, "%s", dir);
    snprintf(site.address, sizeof site.address, "%s", address);
    site_start(&site);
    while (pause() != 0)
        continue;
    return 0;
}

static void kill_process(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* Every number below `items` exactly once, or again when it was in flight at the kill. */
static void assert_all_are_there(trp_sampler *sampler, int64_t items)
{
    uint8_t *seen = xcalloc((size_t)items, 1);
    int64_t distinct = 0;
    while (distinct < items) {
        trp_batch batch;
        assert_int_equal(trp_sampler_next(sampler, &batch, 10000), TRP_OK);
        for (uint32_t row = 0; row < batch.rows; row++) {
            int64_t number = check_row(&batch, row);
            assert_in_range(number, 0, items - 1);
            distinct += !seen[number];
            seen[number] = 1;
        }
    }
    free(seen);
}

static void a_killed_server_loses_no_item_and_clients_go_on(void **state)
{
    (void)state;
    enum { ITEMS = 600 };
    struct site *site = site_create(UNIX);
    pid_t pid = serve_in_a_process(site);
    assert_int_equal(trp_channel_create(&site->channel, site->address, NULL), TRP_OK);
    trp_writer *writer = writer_create(site->channel, (trp_writer_options){.chunk_length = 2});
    for (int64_t i = 0; i < ITEMS + N; i++) {
        append(writer, i);
        if (i < N)
            continue;
        assert_int_equal(insert(writer, "stream", 1, 10000, NULL), TRP_OK);
        if (i == 200)
            assert_int_equal(trp_writer_flush(writer, 0, 10000), TRP_OK);
        if (i == 200 || i == 400) {
            kill_process(pid);
            pid = serve_in_a_process(site);
        }
    }
    assert_int_equal(trp_writer_flush(writer, 0, 20000), TRP_OK);
    assert_int_equal(trp_writer_confirmed(writer), ITEMS);
    trp_sampler *sampler = sampler_create(site->channel, sampling("stream", 1, 0));
    trp_batch batch;
    assert_int_equal(trp_sampler_next(sampler, &batch, 10000), TRP_OK);
    assert_int_equal(check_row(&batch, 0), 0);
    kill_process(pid);
    assert_int_equal(trp_sampler_next(sampler, &batch, 10000), TRP_UNAVAILABLE);
    assert_int_equal(trp_sampler_next(sampler, &batch, 50), TRP_UNAVAILABLE);
    pid = serve_in_a_process(site);
    /* Item 0 may have gone with its confirmed sample; put it back, so that all are there. */
    trp_writer *again = writer_create(site->channel, (trp_writer_options){0});
    write_items(again, "stream", 1);
    assert_all_are_there(sampler, ITEMS);
    kill_process(pid);
    trp_writer_destroy(again);
    trp_writer_destroy(writer);
    trp_sampler_destroy(sampler);
    site_destroy(site);
}

/* A writer that never saw its confirmations sends the same keys again, after the items were
 * sampled, gone and the server killed. They are confirmed; nothing is inserted twice. */
static void keys_that_come_again_after_a_kill_are_confirmed_only(void **state)
{
    (void)state;
    enum { ITEMS = 50 };
    struct site *site = site_create(UNIX);
    pid_t pid = serve_in_a_process(site);
    assert_int_equal(trp_channel_create(&site->channel, site->address, NULL), TRP_OK);
    trp_writer *writer = writer_create(site->channel, (trp_writer_options){.seed = 5});
    write_items(writer, "stream", ITEMS);
    trp_sampler *sampler = sampler_create(site->channel, sampling("stream", 1, 0));
    trp_batch batch;
    for (int i = 0; i < ITEMS; i++)
        assert_int_equal(trp_sampler_next(sampler, &batch, 10000), TRP_OK);
    assert_int_equal(trp_sampler_next(sampler, &batch, 0), TRP_DEADLINE_EXCEEDED);
    trp_writer_destroy(writer);
    kill_process(pid);
    pid = serve_in_a_process(site);
    writer = writer_create(site->channel, (trp_writer_options){.seed = 5});
    write_items(writer, "stream", ITEMS);
    assert_int_equal(trp_writer_confirmed(writer), ITEMS);
    trp_table_info tables[TABLES];
    size_t count;
    assert_int_equal(trp_replay_info(site->channel, tables, TABLES, &count, 10000), TRP_OK);
    for (size_t i = 0; i < count && i < TABLES; i++)
        if (strcmp(tables[i].name, "stream") == 0)
            assert_in_range(tables[i].size, 0, 1); /* the last sample may not have been settled */
    kill_process(pid);
    trp_writer_destroy(writer);
    trp_sampler_destroy(sampler);
    site_destroy(site);
}

struct consumer {
    trp_channel *channel;
    int64_t items, deliveries;
    uint64_t *keys; /* of each number, 0: not seen */
};

static void consume(void *arg)
{
    struct consumer *consumer = arg;
    trp_sampler *sampler = sampler_create(consumer->channel, sampling("queue", 1, 0));
    for (int64_t seen = 0; seen < consumer->items;) {
        trp_batch batch;
        trp_status status = trp_sampler_next(sampler, &batch, 20000);
        if (status == TRP_UNAVAILABLE)
            continue;
        assert_int_equal(status, TRP_OK);
        int64_t number = check_row(&batch, 0);
        assert_in_range(number, 0, consumer->items - 1);
        uint64_t *key = &consumer->keys[number];
        assert_true(*key == 0 || *key == batch.keys[0]); /* never under another key */
        seen += *key == 0;
        *key = batch.keys[0];
        consumer->deliveries++;
    }
    trp_sampler_destroy(sampler);
}

/* Written and sampled while the server is killed again and again: every item is consumed. What is
 * consumed twice was sampled twice, by a life that was killed before it settled the sample and by
 * the next one: with one sample on its way, at most two items a kill. */
static void a_queue_is_consumed_once_while_its_server_is_killed(void **state)
{
    (void)state;
    enum { ITEMS = 400, KILLS = 3 };
    struct site *site = site_create(UNIX);
    pid_t pid = serve_in_a_process(site);
    assert_int_equal(trp_channel_create(&site->channel, site->address, NULL), TRP_OK);
    struct consumer consumer = {
        .channel = site->channel, .items = ITEMS, .keys = xcalloc(ITEMS, sizeof(uint64_t))};
    struct thread thread = {0};
    assert_int_equal(thread_start(&thread, "consumer", consume, &consumer), TRP_OK);
    trp_writer *writer =
        writer_create(site->channel, (trp_writer_options){.max_in_flight = 16, .batch_items = 2});
    for (int64_t i = 0; i < ITEMS + N; i++) {
        append(writer, i);
        if (i >= N)
            assert_int_equal(insert(writer, "queue", 1, 20000, NULL), TRP_OK);
        if (i % 100 == 50 && i / 100 < KILLS) {
            kill_process(pid);
            pid = serve_in_a_process(site);
        }
    }
    assert_int_equal(trp_writer_flush(writer, 0, 20000), TRP_OK);
    thread_stop(&thread);
    assert_int_equal(trp_writer_confirmed(writer), ITEMS);
    assert_in_range(consumer.deliveries, ITEMS, ITEMS + 2 * KILLS);
    kill_process(pid);
    trp_writer_destroy(writer);
    free(consumer.keys);
    site_destroy(site);
}

/* ---- turns ----------------------------------------------------------------------------------- */

struct party {
    struct site *site;
    struct turns *turns;
    int64_t drawn[64];
};

static void turn_writer(void *arg)
{
    struct party *party = arg;
    turns_join(party->turns, 0);
    trp_writer *writer =
        writer_create(party->site->channel,
                      (trp_writer_options){.batch_items = 1, .max_in_flight = 2, .seed = 5});
    for (int64_t i = 0; i < 64 + N; i++) {
        append(writer, i);
        if (i >= N)
            assert_int_equal(insert(writer, "queue", 1, -1, NULL), TRP_OK);
    }
    assert_int_equal(trp_writer_flush(writer, 0, -1), TRP_OK);
    trp_writer_destroy(writer);
    turns_leave();
}

static void turn_sampler(void *arg)
{
    struct party *party = arg;
    turns_join(party->turns, 1);
    trp_sampler *sampler = sampler_create(party->site->channel, sampling("queue", 8, 0));
    for (int i = 0; i < 8; i++) {
        trp_batch batch;
        assert_int_equal(trp_sampler_next(sampler, &batch, -1), TRP_OK);
        for (uint32_t row = 0; row < 8; row++)
            party->drawn[8 * i + (int)row] = check_row(&batch, row);
    }
    trp_sampler_destroy(sampler);
    turns_leave();
}

static void threads_that_take_turns_get_through_a_limiter(void **state)
{
    struct party party = {.site = *state, .turns = turns_create(2)};
    struct thread threads[2] = {0};
    assert_int_equal(thread_start(&threads[0], "writer", turn_writer, &party), TRP_OK);
    assert_int_equal(thread_start(&threads[1], "sampler", turn_sampler, &party), TRP_OK);
    thread_stop(&threads[0]);
    thread_stop(&threads[1]);
    for (int i = 0; i < 64; i++)
        assert_int_equal(party.drawn[i], i);
    turns_destroy(party.turns);
}

#define EVERY_WAY(test)                                                                            \
    cmocka_unit_test_setup_teardown(test, setup_tcp, teardown),                                    \
        cmocka_unit_test_setup_teardown(test, setup_unix, teardown),                               \
        cmocka_unit_test_setup_teardown(test, setup_local, teardown)

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "--serve") == 0)
        return serve(argv[2], argv[3]);
    const struct CMUnitTest tests[] = {
        EVERY_WAY(single_step_chunks_come_back),
        EVERY_WAY(longer_chunks_come_back),
        EVERY_WAY(prefetched_batches_come_back_in_order),
        EVERY_WAY(the_oldest_items_are_evicted),
        EVERY_WAY(a_full_queue_holds_the_writer_until_somebody_samples),
        EVERY_WAY(a_limiter_timeout_of_zero_takes_what_there_is),
        EVERY_WAY(a_poll_outlives_a_limiter_timeout),
        EVERY_WAY(a_stop_ends_a_wait_for_the_limiter),
        EVERY_WAY(an_unknown_table_is_named),
        EVERY_WAY(wrong_columns_are_named),
        EVERY_WAY(new_priorities_decide_what_is_sampled),
        EVERY_WAY(deletes_and_resets_show_in_the_info),
        cmocka_unit_test(a_killed_server_loses_no_item_and_clients_go_on),
        cmocka_unit_test(keys_that_come_again_after_a_kill_are_confirmed_only),
        cmocka_unit_test(a_queue_is_consumed_once_while_its_server_is_killed),
        cmocka_unit_test_setup_teardown(threads_that_take_turns_get_through_a_limiter, setup_local,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
