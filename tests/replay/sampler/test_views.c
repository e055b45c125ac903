/* Batches that are not copied: what views show is what was inserted, wherever it lies, and when the
 * server takes it back that is said. */
#include "tests/replay/host_fixture.h"

#include "replay/sampler/views.h"

enum {
    PIECE_BYTES = 4080,
    BIG_BYTES = 300000,
    BIG_STEPS = 12, /* more than a message takes */
};

static const trp_tensor_spec frame_columns[] = {
    {.name = "frame", .dtype = TRP_UINT8, .rank = 1, .shape = {FRAME_BYTES}},
    {.name = "seed", .dtype = TRP_INT64}};
static const trp_tensor_spec text_columns[] = {
    {.name = "text", .dtype = TRP_UINT8, .rank = 1, .shape = {TEXT_BYTES}},
    {.name = "seed", .dtype = TRP_INT64}};
static const trp_tensor_spec big_columns[] = {
    {.name = "big", .dtype = TRP_UINT8, .rank = 1, .shape = {BIG_BYTES}},
    {.name = "seed", .dtype = TRP_INT64}};
enum { COLUMNS = 2 };

static void spans_copy(const trp_views *views, uint32_t row, size_t column, uint8_t *out,
                       size_t size)
{
    size_t count;
    const trp_bytes *spans = trp_views_column(views, row, column, &count);
    for (size_t i = 0; i < count; i++) {
        assert_true(spans[i].size <= size);
        memcpy(out, spans[i].data, spans[i].size);
        out += spans[i].size;
        size -= spans[i].size;
    }
    assert_int_equal(size, 0);
}

/* True when every row is what its seed says. */
static bool views_are_whole(const struct host *host, const trp_views *views)
{
    size_t step = (size_t)host->columns[0].shape[0], size = step * host->steps;
    uint8_t *seen = xmalloc(size), *expected = xmalloc(step);
    bool whole = true;
    assert_null(views->rows.columns);
    for (uint32_t row = 0; row < views->rows.rows; row++) {
        int64_t seeds[BIG_STEPS];
        spans_copy(views, row, 1, (uint8_t *)seeds, host->steps * sizeof *seeds);
        spans_copy(views, row, 0, seen, size);
        for (uint32_t i = 0; i < host->steps; i++) {
            column_fill(host->columns, expected, seeds[i]);
            whole = whole && seeds[i] > 0 && memcmp(expected, seen + i * step, step) == 0;
            whole = whole && seeds[i] == seeds[0] + i;
        }
        whole = whole && views->rows.policy_versions[row] == 7;
        whole = whole && views->rows.keys[row] != 0 && views->rows.probabilities[row] > 0;
    }
    free(seen);
    free(expected);
    return whole;
}

static void open_rows(struct host *host, const trp_tensor_spec *columns, uint32_t steps,
                      const char *table)
{
    host->columns = columns;
    host->column_count = COLUMNS;
    host->steps = steps;
    host_open(host, table, (trp_replay_server_options){.no_share = false});
}

static trp_sampler_options options_of(const struct host *host, trp_tensor_spec *specs,
                                      uint32_t prefetch)
{
    for (size_t c = 0; c < COLUMNS; c++) {
        specs[c] = host->columns[c];
        if (host->steps == 1)
            continue;
        specs[c].shape[1] = specs[c].shape[0];
        specs[c].shape[0] = host->steps;
        specs[c].rank++;
    }
    return (trp_sampler_options){.table = "t",
                                 .columns = specs,
                                 .column_count = COLUMNS,
                                 .batch_size = host->steps == 1 ? BATCH : 2,
                                 .prefetch = prefetch,
                                 .limiter_timeout_ms = -1,
                                 .views = true};
}

static trp_sampler *sampler_of(const struct host *host, trp_channel *channel, uint32_t prefetch)
{
    trp_sampler *sampler;
    trp_tensor_spec specs[COLUMNS];
    trp_sampler_options options = options_of(host, specs, prefetch);
    assert_int_equal(trp_sampler_create(&sampler, channel, &options), TRP_OK);
    return sampler;
}

static void next_views(trp_sampler *sampler, trp_views *views)
{
    trp_status status = trp_sampler_next_views(sampler, views, DEADLINE_MS);
    if (status != TRP_OK)
        print_error("%s\n", trp_last_error());
    assert_int_equal(status, TRP_OK);
}

/* ---- where views lie --------------------------------------------------------------------- */

/* True when `at` is in a read-only mapping of a data.mdb. */
static bool in_the_file(const uint8_t *at)
{
    char line[512], path[256], rights[8];
    unsigned long begin, end;
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %7s %*s %*s %*s %255s", &begin, &end, rights, path) == 4)
            found |= begin <= (uintptr_t)at && (uintptr_t)at < end && rights[1] == '-' &&
                     strstr(path, "/data.mdb");
    fclose(maps);
    return found;
}

static void expect_in_file(const trp_views *views)
{
    for (uint32_t row = 0; row < views->rows.rows; row++) {
        size_t count;
        const trp_bytes *spans = trp_views_column(views, row, 0, &count);
        assert_in_range(count, 3, 4);
        for (size_t i = 0; i + 1 < count; i++) {
            assert_in_range(spans[i].size, 1, PIECE_BYTES);
            assert_true(in_the_file(spans[i].data));
        }
    }
}

static void expect_views(struct host *host, trp_channel *channel, uint32_t prefetch)
{
    trp_sampler *sampler = sampler_of(host, channel, prefetch);
    trp_views views;
    next_views(sampler, &views); /* in it is the sample that is learnt from */
    assert_true(views_are_whole(host, &views));
    for (int i = 0; i < 10; i++) {
        next_views(sampler, &views);
        assert_int_equal(views.rows.rows, BATCH);
        assert_true(views_are_whole(host, &views));
        expect_in_file(&views);
        assert_true(trp_sampler_views_valid(sampler));
    }
    trp_sampler_destroy(sampler);
}

static void views_of_one_process_are_pages_of_the_file(void **state)
{
    struct host *host = *state;
    open_rows(host, frame_columns, 1, "limiter=min_size(1)");
    insert(host, TABLE_ITEMS);
    expect_views(host, host->replay.channel, 0);
    expect_views(host, host->replay.channel, 2);
}

static void views_over_a_socket_of_one_host_are_pages_of_the_file(void **state)
{
    struct host *host = *state;
    open_rows(host, frame_columns, 1, "limiter=min_size(1)");
    insert(host, TABLE_ITEMS);
    expect_views(host, host->remote, 0);
    expect_views(host, host->remote, 2);
}

static void expect_whole(struct host *host, uint32_t batches)
{
    trp_sampler *sampler = sampler_of(host, host->remote, 1);
    trp_views views;
    for (uint32_t i = 0; i < batches; i++) {
        next_views(sampler, &views);
        assert_true(views_are_whole(host, &views));
        assert_true(trp_sampler_views_valid(sampler));
    }
    trp_sampler_destroy(sampler);
}

/* Without it no client can read the server's file. */
static void remove_lease_file(const struct host *host)
{
    char *path = fixture_path(host->replay.dir, "LEASES");
    assert_int_equal(unlink(path), 0);
    free(path);
}

static void views_over_a_network_are_of_the_messages(void **state)
{
    struct host *host = *state;
    trp_views views;
    size_t count;
    open_rows(host, frame_columns, 1, "limiter=min_size(1)");
    insert(host, TABLE_ITEMS);
    remove_lease_file(host);
    expect_whole(host, 10);
    trp_sampler *sampler = sampler_of(host, host->remote, 0);
    next_views(sampler, &views);
    const trp_bytes *spans = trp_views_column(&views, BATCH - 1, 0, &count);
    assert_int_equal(count, 1);
    assert_false(in_the_file(spans->data));
    assert_int_equal(leases(host), 0);
    insert(host, 4 * TABLE_ITEMS);
    assert_true(trp_sampler_views_valid(sampler));
    assert_true(views_are_whole(host, &views));
    trp_sampler_destroy(sampler);
}

static void views_of_samples_in_several_messages_are_whole(void **state)
{
    struct host *host = *state;
    open_rows(host, big_columns, BIG_STEPS, "limiter=min_size(1)");
    insert(host, 4);
    expect_whole(host, 5);
    remove_lease_file(host);
    expect_whole(host, 5);
}

static void compressed_columns_are_one_span(void **state)
{
    struct host *host = *state;
    trp_views views;
    size_t count;
    open_rows(host, text_columns, 1, "limiter=min_size(1)");
    insert(host, TABLE_ITEMS);
    trp_sampler *sampler = sampler_of(host, host->remote, 0);
    for (int i = 0; i < 5; i++) {
        next_views(sampler, &views);
        assert_true(views_are_whole(host, &views));
        for (uint32_t row = 0; row < BATCH; row++) {
            trp_views_column(&views, row, 0, &count);
            assert_int_equal(count, 1);
        }
    }
    trp_sampler_destroy(sampler);
    remove_lease_file(host);
    expect_whole(host, 5);
}

/* ---- leases ------------------------------------------------------------------------------ */

static void views_that_were_taken_back_are_said_to_be(void **state)
{
    struct host *host = *state;
    trp_views views;
    open_rows(host, frame_columns, 1, "limiter=min_size(1)");
    insert(host, TABLE_ITEMS);
    trp_sampler *sampler = sampler_of(host, host->remote, 0);
    for (int round = 0; round < 2; round++) {
        next_views(sampler, &views);
        assert_true(views_are_whole(host, &views));
        assert_true(trp_sampler_views_valid(sampler));
        recycle_until_leases(host, 0);
        insert(host, 4 * TABLE_ITEMS);
        assert_false(trp_sampler_views_valid(sampler));
        views_are_whole(host, &views); /* safe to read */
    }
    trp_sampler_destroy(sampler);
}

static void views_that_were_released_end_no_lease(void **state)
{
    struct host *host = *state;
    trp_views views;
    host->lease_ms = 10 * LEASE_MS; /* on a busy machine the server hears of it after a while */
    open_rows(host, frame_columns, 1, "limiter=min_size(1)");
    insert(host, TABLE_ITEMS);
    trp_sampler *sampler = sampler_of(host, host->remote, 0);
    next_views(sampler, &views);
    trp_sampler_release_views(sampler);
    assert_false(trp_sampler_views_valid(sampler));
    struct deadline deadline = deadline_in_ms(&clock_monotonic, 2 * host->lease_ms);
    while (!deadline_passed(deadline, &clock_monotonic))
        insert(host, TABLE_ITEMS);
    assert_int_equal(leases(host), 1);
    next_views(sampler, &views);
    assert_true(views_are_whole(host, &views));
    trp_sampler_destroy(sampler);
}

static void rows_that_wait_for_others_are_settled(void **state)
{
    struct host *host = *state;
    trp_views views;
    size_t count;
    open_rows(host, frame_columns, 1, "max_times_sampled=1 limiter=min_size(1)");
    trp_sampler *sampler = sampler_of(host, host->remote, 0);
    for (int round = 0; round < 3; round++) {
        insert(host, BATCH / 2);
        assert_int_equal(trp_sampler_next_views(sampler, &views, 4 * LEASE_MS),
                         TRP_DEADLINE_EXCEEDED);
        insert(host, BATCH / 2);
        next_views(sampler, &views);
        assert_true(views_are_whole(host, &views));
        for (uint32_t row = 0; row < BATCH / 2; row++) { /* in the file, it were three */
            trp_views_column(&views, row, 0, &count);
            assert_int_equal(count, 1);
        }
        assert_true(trp_sampler_views_valid(sampler));
    }
    trp_sampler_destroy(sampler);
}

struct torture {
    const struct host *host;
    trp_channel *channel;
    uint32_t prefetch;
    _Atomic bool stop;
    _Atomic uint32_t valid;
    bool failed;
};

static void torture_run(void *arg)
{
    struct torture *torture = arg;
    trp_sampler *sampler = sampler_of(torture->host, torture->channel, torture->prefetch);
    trp_views views;
    while (!torture->failed && !atomic_load(&torture->stop)) {
        torture->failed = trp_sampler_next_views(sampler, &views, DEADLINE_MS) != TRP_OK;
        if (torture->failed)
            break;
        bool whole = views_are_whole(torture->host, &views);
        if (!trp_sampler_views_valid(sampler))
            continue;
        torture->failed = !whole;
        atomic_fetch_add(&torture->valid, 1);
    }
    trp_sampler_destroy(sampler);
}

static void valid_views_are_whole_while_the_server_recycles(void **state)
{
    struct host *host = *state;
    struct torture tortures[3] = {{.prefetch = 0}, {.prefetch = 2}, {.prefetch = 1}};
    struct thread threads[3] = {0};
    struct deadline deadline = deadline_in_ms(&clock_monotonic, DEADLINE_MS);
    open_rows(host, frame_columns, 1, "limiter=min_size(1)");
    insert(host, TABLE_ITEMS);
    for (int i = 0; i < 3; i++) {
        tortures[i].host = host;
        tortures[i].channel = i == 2 ? host->replay.channel : host->remote;
        assert_int_equal(thread_start(&threads[i], "torture", torture_run, &tortures[i]), TRP_OK);
    }
    for (int i = 0; i < 3; i++)
        while (atomic_load(&tortures[i].valid) < 40) {
            assert_false(deadline_passed(deadline, &clock_monotonic));
            insert(host, 16);
        }
    for (int i = 0; i < 3; i++)
        atomic_store(&tortures[i].stop, true);
    for (int i = 0; i < 3; i++) {
        thread_stop(&threads[i]);
        assert_false(tortures[i].failed);
    }
}

/* ---- what cannot be ---------------------------------------------------------------------- */

static void samplers_are_for_views_or_for_batches(void **state)
{
    struct host *host = *state;
    trp_sampler *sampler;
    trp_views views;
    trp_batch batch;
    trp_tensor_spec specs[COLUMNS];
    open_rows(host, frame_columns, 1, "limiter=min_size(1)");
    trp_sampler_options options = options_of(host, specs, 0);
    assert_int_equal(trp_sampler_create(&sampler, host->remote, &options), TRP_OK);
    assert_int_equal(trp_sampler_next(sampler, &batch, 0), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "made for views"));
    assert_false(trp_sampler_views_valid(sampler)); /* there are none yet */
    trp_sampler_destroy(sampler);
    options.views = false;
    assert_int_equal(trp_sampler_create(&sampler, host->remote, &options), TRP_OK);
    assert_int_equal(trp_sampler_next_views(sampler, &views, 0), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "not made for views"));
    trp_sampler_destroy(sampler);
    options.views = true;
    options.prefetch = 1;
    options.workers = 2;
    assert_int_equal(trp_sampler_create(&sampler, host->remote, &options), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "views are of one server"));
}

static void neighbours_in_memory_are_one_span(void **state)
{
    uint8_t bytes[32], settled[2][16];
    void *columns[] = {settled[0], settled[1]};
    const trp_tensor_spec specs[] = {{.dtype = TRP_UINT8, .rank = 1, .shape = {8}},
                                     {.dtype = TRP_UINT8, .rank = 1, .shape = {8}}};
    struct views *views = views_create(specs, 2, 2);
    (void)state;
    fixture_fill(bytes, sizeof bytes, 1);
    for (uint32_t row = 0; row < 2; row++) {
        views_begin(views, row);
        views_push(views, row, 0, bytes + 4, 4);
        views_push(views, row, 0, bytes + 8, 4);  /* follows */
        views_push(views, row, 1, bytes + 12, 4); /* follows, but is of another column */
        views_push(views, row, 1, bytes, 4);
    }
    assert_int_equal(views->first[4], 6);
    assert_int_equal(views->spans[0].size, 8);
    assert_ptr_equal(views->spans[2].data, bytes);
    views_settle(views, 1, columns);
    views_begin(views, 1); /* what there was of it is forgotten */
    views_push(views, 1, 0, bytes + 16, 8);
    views_push(views, 1, 1, bytes + 16, 8);
    views_settle(views, 2, columns);
    assert_int_equal(views->first[4], 4);
    assert_memory_equal(settled[0], bytes + 4, 8);
    assert_memory_equal(settled[1], bytes + 12, 4);
    assert_memory_equal(settled[1] + 4, bytes, 4);
    assert_memory_equal(settled[0] + 8, bytes + 16, 8);
    assert_memory_equal(settled[1] + 8, bytes + 16, 8);
    views_destroy(views);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, host_setup, host_teardown)
    const struct CMUnitTest tests[] = {
        TEST(views_of_one_process_are_pages_of_the_file),
        TEST(views_over_a_socket_of_one_host_are_pages_of_the_file),
        TEST(views_over_a_network_are_of_the_messages),
        TEST(views_of_samples_in_several_messages_are_whole),
        TEST(compressed_columns_are_one_span),
        TEST(views_that_were_taken_back_are_said_to_be),
        TEST(views_that_were_released_end_no_lease),
        TEST(rows_that_wait_for_others_are_settled),
        TEST(valid_views_are_whole_while_the_server_recycles),
        TEST(samplers_are_for_views_or_for_batches),
        cmocka_unit_test(neighbours_in_memory_are_one_span),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
