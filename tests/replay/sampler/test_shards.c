/* Several servers behind one client: each batch comes from one of them, and what is sent back for
 * it goes there. */
#include <troupe/replay.h>
#include <troupe/shards.h>
#include <troupe/writer.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/alloc.h"
#include "tests/replay/store_fixture.h"

enum { SHARDS = 3, EACH = 20, WAIT_MS = 10000 };

static const trp_tensor_spec column = {.name = "number", .dtype = TRP_INT64};

static const char *const table_lines[] = {
    "name=fifo sampler=fifo max_times_sampled=1 max_size=1000 limiter=min_size(1)",
    "name=best sampler=max_heap max_size=1000 limiter=min_size(1)",
};

struct site {
    char *dirs[SHARDS];
    trp_replay_server *servers[SHARDS];
    trp_shards *shards;
};

static trp_replay_server *start_server(const char *dir)
{
    trp_table_options tables[2], *parsed[2];
    trp_replay_server *server;
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(trp_table_options_parse(table_lines[i], &parsed[i]), TRP_OK);
        tables[i] = *parsed[i];
    }
    trp_replay_server_options options = {
        .dir = dir, .max_bytes = 64 << 20, .tables = tables, .table_count = 2, .seed = 3};
    assert_int_equal(trp_replay_server_create(&server, &options), TRP_OK);
    assert_int_equal(trp_replay_server_start(server), TRP_OK);
    for (size_t i = 0; i < 2; i++)
        trp_table_options_destroy(parsed[i]);
    return server;
}

static int setup(void **state)
{
    struct site *site = xcalloc(1, sizeof *site);
    const char *addresses[SHARDS];
    for (size_t i = 0; i < SHARDS; i++) {
        site->dirs[i] = fixture_dir("/tmp");
        site->servers[i] = start_server(site->dirs[i]);
        addresses[i] = trp_server_address(trp_replay_server_rpc(site->servers[i]));
    }
    assert_int_equal(trp_shards_create(&site->shards, addresses, SHARDS, NULL), TRP_OK);
    assert_int_equal(trp_shards_count(site->shards), SHARDS);
    *state = site;
    return 0;
}

static int teardown(void **state)
{
    struct site *site = *state;
    trp_shards_destroy(site->shards);
    for (size_t i = 0; i < SHARDS; i++) {
        trp_replay_server_destroy(site->servers[i]);
        fixture_remove(site->dirs[i]);
    }
    free(site);
    return 0;
}

/* EACH items to every shard, in turn: shard s gets the numbers 100 s + i. */
static void write_all(struct site *site, const char *table)
{
    bool wrote[SHARDS] = {false};
    for (int i = 0; i < SHARDS; i++) {
        trp_writer *writer;
        uint32_t shard = trp_shards_next(site->shards);
        assert_true(shard < SHARDS && !wrote[shard]); /* each once in a round */
        wrote[shard] = true;
        assert_int_equal(
            trp_writer_create(&writer, trp_shards_channel(site->shards, shard),
                              &(trp_writer_options){.columns = &column, .column_count = 1}),
            TRP_OK);
        for (int64_t j = 0; j < EACH; j++) {
            int64_t number = 100 * shard + j;
            assert_int_equal(trp_writer_append(writer, (const void *[]){&number}), TRP_OK);
            assert_int_equal(trp_writer_create_item(
                                 writer, table, 1, &(trp_item_column){.length = 1, .squeeze = true},
                                 1, WAIT_MS, NULL),
                             TRP_OK);
        }
        assert_int_equal(trp_writer_flush(writer, 0, WAIT_MS), TRP_OK);
        trp_writer_destroy(writer);
    }
}

static trp_sampler *sampler_create(struct site *site, trp_sampler_options options)
{
    trp_sampler *sampler;
    options.columns = &column;
    options.column_count = 1;
    options.prefetch = 2;
    assert_int_equal(trp_shards_sampler(&sampler, site->shards, &options), TRP_OK);
    return sampler;
}

static void a_sampler_draws_from_all_shards(void **state)
{
    struct site *site = *state;
    write_all(site, "fifo");
    uint8_t seen[100 * SHARDS] = {0};
    trp_sampler *sampler = sampler_create(site, (trp_sampler_options){.table = "fifo",
                                                                      .batch_size = 3,
                                                                      .limiter_timeout_ms = 200,
                                                                      .end_on_timeout = true});
    trp_batch batch;
    trp_status status;
    while ((status = trp_sampler_next(sampler, &batch, WAIT_MS)) == TRP_OK)
        for (uint32_t i = 0; i < batch.rows; i++) {
            int64_t number = ((const int64_t *)batch.columns[0])[i];
            assert_int_equal(number / 100, batch.server);
            seen[number]++;
        }
    assert_int_equal(status, TRP_OUT_OF_RANGE);
    for (int i = 0; i < 100 * SHARDS; i++)
        assert_int_equal(seen[i], i % 100 < EACH);
    trp_sampler_destroy(sampler);
}

/* The batch's first row gets the highest priority of its shard: a heap gives it from then on. */
static void new_priorities_go_where_the_batch_came_from(void **state)
{
    struct site *site = *state;
    write_all(site, "best");
    trp_priority_writer *writer;
    assert_int_equal(trp_shards_priority_writer(&writer, site->shards, "best", 4), TRP_OK);
    trp_sampler *sampler = sampler_create(
        site, (trp_sampler_options){.table = "best", .batch_size = 4, .limiter_timeout_ms = -1});
    int64_t best[SHARDS] = {-1, -1, -1};
    for (int found = 0; found < SHARDS;) {
        trp_batch batch;
        assert_int_equal(trp_sampler_next(sampler, &batch, WAIT_MS), TRP_OK);
        if (best[batch.server] >= 0)
            continue;
        best[batch.server] = ((const int64_t *)batch.columns[0])[0];
        const double priorities[] = {0.5, 0.5, 0.5, 0.5};
        assert_int_equal(trp_priority_writer_update_batch(writer, &batch, priorities, WAIT_MS),
                         TRP_OK);
        found++;
    }
    assert_int_equal(trp_priority_writer_flush(writer, WAIT_MS), TRP_OK);
    trp_sampler_destroy(sampler);
    for (uint32_t i = 0; i < SHARDS; i++) {
        trp_sampler_options options = {
            .table = "best", .columns = &column, .column_count = 1, .batch_size = 1};
        assert_int_equal(
            trp_sampler_create(&sampler, trp_shards_channel(site->shards, i), &options), TRP_OK);
        trp_batch batch;
        assert_int_equal(trp_sampler_next(sampler, &batch, WAIT_MS), TRP_OK);
        int64_t number = ((const int64_t *)batch.columns[0])[0];
        assert_int_equal(number / 100, i);
        assert_true(number != best[i]); /* the one that was best is now the worst */
        trp_sampler_destroy(sampler);
    }
    const trp_batch nowhere = {.rows = 1, .server = SHARDS};
    assert_int_equal(trp_priority_writer_update_batch(writer, &nowhere, NULL, WAIT_MS),
                     TRP_INVALID_ARGUMENT);
    trp_priority_writer_destroy(writer);
}

static void a_shard_that_goes_away_stops_nobody(void **state)
{
    struct site *site = *state;
    write_all(site, "best");
    trp_sampler *sampler = sampler_create(
        site, (trp_sampler_options){.table = "best", .batch_size = 2, .limiter_timeout_ms = -1});
    trp_batch batch;
    assert_int_equal(trp_sampler_next(sampler, &batch, WAIT_MS), TRP_OK);
    trp_replay_server_destroy(site->servers[1]);
    site->servers[1] = NULL;
    uint32_t from[SHARDS] = {0};
    for (int i = 0; i < 200; i++) {
        trp_status status = trp_sampler_next(sampler, &batch, WAIT_MS);
        if (status != TRP_OK)
            print_error("%s\n", trp_last_error());
        assert_int_equal(status, TRP_OK);
        from[batch.server]++;
    }
    assert_true(from[0] > 0 && from[2] > 0);
    trp_sampler_destroy(sampler);
}

static void keys_are_spread_and_stay(void **state)
{
    struct site *site = *state;
    uint32_t counts[SHARDS] = {0};
    for (uint64_t key = 0; key < 3000; key++) {
        uint32_t shard = trp_shards_of_key(site->shards, 8 * key);
        assert_int_equal(shard, trp_shards_of_key(site->shards, 8 * key));
        counts[shard]++;
    }
    for (int i = 0; i < SHARDS; i++)
        assert_in_range(counts[i], 900, 1100);
}

static void no_addresses_are_no_shards(void **state)
{
    (void)state;
    trp_shards *shards;
    assert_int_equal(trp_shards_create(&shards, NULL, 0, NULL), TRP_INVALID_ARGUMENT);
    const char *wrong[] = {"127.0.0.1:1", ""};
    assert_int_equal(trp_shards_create(&shards, wrong, 2, NULL), TRP_INVALID_ARGUMENT);
    assert_null(shards);
    trp_shards_destroy(NULL);
}

#define SITE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SITE(a_sampler_draws_from_all_shards),
        SITE(new_priorities_go_where_the_batch_came_from),
        SITE(a_shard_that_goes_away_stops_nobody),
        SITE(keys_are_spread_and_stay),
        cmocka_unit_test(no_addresses_are_no_shards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
