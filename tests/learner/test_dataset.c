/* Batches out of a store on disk, whose server has ended. */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/learner.h>
#include <troupe/replay.h>
#include <troupe/rng.h>
#include <troupe/writer.h>
#include "core/alloc.h"
#include "tests/learner/adding.h"

enum { ITEMS = 49, EPOCHS = 2, ROWS = ITEMS * EPOCHS, WAIT_MS = 10000 };

struct fixture {
    char dir[40];
    trp_replay_server *server;
};

/* A queue: whoever samples an item has it removed. */
static trp_table_options table_options(void)
{
    return (trp_table_options){.name = "t",
                               .sampler.kind = TRP_FIFO,
                               .max_size = 100,
                               .max_times_sampled = 1,
                               .limiter = trp_limiter_min_size(1)};
}

static void start_server(struct fixture *fixture)
{
    trp_table_options table = table_options();
    assert_int_equal(
        trp_replay_server_create(
            &fixture->server,
            &(trp_replay_server_options){.dir = fixture->dir, .tables = &table, .table_count = 1}),
        TRP_OK);
}

static void stop_server(struct fixture *fixture)
{
    trp_replay_server_destroy(fixture->server);
    fixture->server = NULL;
}

static void write_items(struct fixture *fixture, int count)
{
    trp_writer *writer;
    trp_channel *channel = trp_channel_create_local(trp_replay_server_rpc(fixture->server));
    assert_int_equal(
        trp_writer_create(&writer, channel,
                          &(trp_writer_options){.columns = columns, .column_count = 1}),
        TRP_OK);
    for (int i = 0; i < count; i++) {
        float value = (float)i;
        assert_int_equal(trp_writer_append(writer, (const void *[]){&value}), TRP_OK);
        assert_int_equal(trp_writer_create_item(writer, "t", 1 + i,
                                                &(trp_item_column){.length = 1, .squeeze = true}, 1,
                                                WAIT_MS, NULL),
                         TRP_OK);
    }
    assert_int_equal(trp_writer_flush(writer, 0, WAIT_MS), TRP_OK);
    trp_writer_destroy(writer);
    trp_channel_destroy(channel);
}

static int setup(void **state)
{
    struct fixture *fixture = xcalloc(1, sizeof *fixture);
    memcpy(fixture->dir, "/tmp/test_dataset.XXXXXX", sizeof "/tmp/test_dataset.XXXXXX");
    assert_non_null(mkdtemp(fixture->dir));
    start_server(fixture);
    write_items(fixture, ITEMS);
    stop_server(fixture);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    trp_replay_server_destroy(fixture->server);
    char *command = xasprintf("rm -rf %s", fixture->dir);
    assert_int_equal(system(command), 0);
    free(command);
    free(fixture);
    return 0;
}

static trp_source *source_create(const struct fixture *fixture, trp_dataset_source_options options)
{
    trp_source *source;
    options.dir = options.dir ? options.dir : fixture->dir;
    assert_int_equal(trp_dataset_source_create(&source, &options), TRP_OK);
    return source;
}

/* ---- passes ---------------------------------------------------------------------------------- */

/* All rows until the end, and what is told of each. */
static void read_all(const struct fixture *fixture, trp_dataset_source_options options,
                     float values[ROWS])
{
    const trp_batch_spec spec = {
        .table = "t", .columns = {(trp_tensor_spec *)columns, 1}, .batch_size = BATCH};
    options.epochs = EPOCHS;
    trp_source *source = source_create(fixture, options);
    assert_int_equal(source->impl->open(source, &(trp_source_use){.spec = &spec, .held = 1}),
                     TRP_OK);
    trp_batch batch;
    trp_status status;
    int rows = 0;
    while ((status = source->impl->next(source, &batch, WAIT_MS)) == TRP_OK) {
        assert_int_equal(batch.rows, ROWS - rows < BATCH ? ROWS - rows : BATCH);
        for (uint32_t row = 0; row < batch.rows; row++) {
            float value = ((const float *)batch.columns[0])[row];
            assert_true(batch.priorities[row] == (double)value + 1);
            assert_true(batch.probabilities[row] == 1.0 / ITEMS);
            assert_int_equal(batch.table_sizes[row], ITEMS);
            assert_int_equal(batch.times_sampled[row], 0);
            values[rows++] = value;
        }
    }
    assert_int_equal(status, TRP_OUT_OF_RANGE);
    assert_int_equal(source->impl->next(source, &batch, 0), TRP_OUT_OF_RANGE);
    assert_int_equal(rows, ROWS);
    trp_source_destroy(source);
}

static void a_pass_has_the_items_in_the_order_of_their_insertion(void **state)
{
    float values[ROWS];
    read_all(*state, (trp_dataset_source_options){0}, values);
    for (int i = 0; i < ROWS; i++)
        assert_true(values[i] == (float)(i % ITEMS));
}

static void a_shuffled_pass_has_every_item_once(void **state)
{
    float values[ROWS], again[ROWS], other[ROWS];
    for (uint32_t window = 8; window <= 1000; window += 992) {
        read_all(*state, (trp_dataset_source_options){.shuffle = window, .seed = 1}, values);
        read_all(*state, (trp_dataset_source_options){.shuffle = window, .seed = 1}, again);
        read_all(*state, (trp_dataset_source_options){.shuffle = window, .seed = 2}, other);
        assert_memory_equal(values, again, sizeof values);
        assert_memory_not_equal(values, other, sizeof values);
        assert_memory_not_equal(values, values + ITEMS, ITEMS * sizeof *values);
        for (int epoch = 0; epoch < EPOCHS; epoch++) {
            int seen[ITEMS] = {0};
            for (int i = 0; i < ITEMS; i++) {
                int value = (int)values[epoch * ITEMS + i];
                seen[value]++;
                assert_true(value < i + (int)window); /* it cannot look farther */
            }
            for (int i = 0; i < ITEMS; i++)
                assert_int_equal(seen[i], 1);
        }
    }
}

static void a_held_batch_of_a_dataset_stays(void **state)
{
    const trp_batch_spec spec = {
        .table = "t", .columns = {(trp_tensor_spec *)columns, 1}, .batch_size = BATCH};
    trp_source *source = source_create(*state, (trp_dataset_source_options){.prefetch = 1});
    assert_int_equal(source->impl->open(source, &(trp_source_use){.spec = &spec, .held = 3}),
                     TRP_OK);
    trp_batch batches[3];
    for (int i = 0; i < 30; i++) {
        assert_int_equal(source->impl->next(source, &batches[i % 3], WAIT_MS), TRP_OK);
        for (int k = i < 2 ? 0 : i - 2; k <= i; k++)
            for (int row = 0; row < BATCH; row++)
                assert_true(((const float *)batches[k % 3].columns[0])[row] ==
                            (float)((BATCH * k + row) % ITEMS));
    }
    trp_source_destroy(source);
}

/* ---- large items ----------------------------------------------------------------------------- */

enum { LARGE_STEPS = 5, LARGE_WIDTH = 2 << 20, LARGE_ITEMS = 3 }; /* an item is 40 MiB */

/* Numbers that do not shrink; each item has its own. */
static void large_step(int item, int step, uint32_t *values)
{
    trp_rng rng;
    trp_rng_init(&rng, (uint64_t)item, (uint64_t)step);
    for (size_t i = 0; i < LARGE_WIDTH; i += 2) {
        uint64_t bits = trp_rng_u64(&rng);
        memcpy(values + i, &bits, sizeof bits);
    }
}

static void write_large_items(struct fixture *fixture, const trp_tensor_spec *column)
{
    trp_table_options tables[] = {table_options(), table_options()};
    tables[1].name = "large";
    assert_int_equal(
        trp_replay_server_create(
            &fixture->server,
            &(trp_replay_server_options){.dir = fixture->dir, .tables = tables, .table_count = 2}),
        TRP_OK);
    trp_writer *writer;
    trp_channel *channel = trp_channel_create_local(trp_replay_server_rpc(fixture->server));
    assert_int_equal(
        trp_writer_create(
            &writer, channel,
            &(trp_writer_options){.columns = column, .column_count = 1, .history = LARGE_STEPS}),
        TRP_OK);
    uint32_t *values = xcalloc(LARGE_WIDTH, sizeof *values);
    for (int i = 0; i < LARGE_ITEMS * LARGE_STEPS; i++) {
        large_step(i / LARGE_STEPS, i % LARGE_STEPS, values);
        assert_int_equal(trp_writer_append(writer, (const void *[]){values}), TRP_OK);
        if (i % LARGE_STEPS == LARGE_STEPS - 1)
            assert_int_equal(trp_writer_create_item(
                                 writer, "large", 1,
                                 &(trp_item_column){.age = LARGE_STEPS - 1, .length = LARGE_STEPS},
                                 1, WAIT_MS, NULL),
                             TRP_OK);
    }
    assert_int_equal(trp_writer_flush(writer, 0, WAIT_MS), TRP_OK);
    free(values);
    trp_writer_destroy(writer);
    trp_channel_destroy(channel);
    stop_server(fixture);
}

static void an_item_larger_than_an_answer_comes_whole(void **state)
{
    struct fixture *fixture = *state;
    const trp_tensor_spec step = {
        .name = "x", .dtype = TRP_UINT32, .rank = 1, .shape = {LARGE_WIDTH}};
    const trp_tensor_spec steps = {
        .name = "x", .dtype = TRP_UINT32, .rank = 2, .shape = {LARGE_STEPS, LARGE_WIDTH}};
    write_large_items(fixture, &step);
    const trp_batch_spec spec = {
        .table = "large", .columns = {(trp_tensor_spec *)&steps, 1}, .batch_size = 1};
    trp_source *source =
        source_create(fixture, (trp_dataset_source_options){.epochs = 2, .prefetch = 1});
    assert_int_equal(source->impl->open(source, &(trp_source_use){.spec = &spec, .held = 1}),
                     TRP_OK);
    trp_batch batch;
    uint32_t *values = xcalloc(LARGE_WIDTH, sizeof *values);
    for (int i = 0; i < 2 * LARGE_ITEMS; i++) {
        assert_int_equal(source->impl->next(source, &batch, WAIT_MS), TRP_OK);
        const uint32_t *row = batch.columns[0];
        for (int k = 0; k < LARGE_STEPS; k++) {
            large_step(i % LARGE_ITEMS, k, values);
            assert_memory_equal(row + (size_t)k * LARGE_WIDTH, values,
                                LARGE_WIDTH * sizeof *values);
        }
    }
    assert_int_equal(source->impl->next(source, &batch, WAIT_MS), TRP_OUT_OF_RANGE);
    free(values);
    trp_source_destroy(source);
}

/* ---- the learner ------------------------------------------------------------------------------
 */

static void a_learner_learns_from_a_directory_and_leaves_it_as_it_was(void **state)
{
    struct fixture *fixture = *state;
    struct adding *updater = adding_create();
    trp_source *source = source_create(fixture, (trp_dataset_source_options){.epochs = 2});
    trp_learner_loop_options options = {
        .updater = &updater->base, .sources = &source, .source_count = 1};
    trp_learner *learner;
    assert_int_equal(trp_learner_create(&learner, &options), TRP_OK);
    assert_int_equal(trp_learner_run(learner), TRP_OK);
    assert_int_equal(trp_learner_read(learner).steps, (ROWS + BATCH - 1) / BATCH);
    assert_true(trp_learner_read(learner).finished);
    assert_true(updater->seen == EPOCHS * ITEMS * (ITEMS - 1) / 2.0);
    trp_learner_destroy(learner);

    start_server(fixture); /* which has everything that it had */
    trp_channel *channel = trp_channel_create_local(trp_replay_server_rpc(fixture->server));
    trp_table_info info;
    size_t count;
    assert_int_equal(trp_replay_info(channel, &info, 1, &count, WAIT_MS), TRP_OK);
    assert_int_equal(info.size, ITEMS);
    assert_int_equal(info.samples, 0);
    trp_channel_destroy(channel);
}

/* ---- what cannot be read -----------------------------------------------------------------------
 */

static void refused(const struct fixture *fixture, const char *dir, const char *table,
                    const trp_tensor_spec *column, trp_status expected, const char *words)
{
    const trp_batch_spec spec = {
        .table = table, .columns = {(trp_tensor_spec *)column, 1}, .batch_size = BATCH};
    trp_source *source = source_create(fixture, (trp_dataset_source_options){.dir = dir});
    assert_int_equal(source->impl->open(source, &(trp_source_use){.spec = &spec, .held = 1}),
                     expected);
    if (!strstr(trp_last_error(), words))
        fail_msg("'%s' does not say '%s'", trp_last_error(), words);
    trp_source_destroy(source);
}

static void a_store_that_is_not_there_or_another_one_is_named(void **state)
{
    struct fixture *fixture = *state;
    trp_source *source;
    const trp_tensor_spec longer = {.name = "x", .dtype = TRP_FLOAT32, .rank = 1, .shape = {3}};
    refused(fixture, "/tmp/test_dataset.none", "t", columns, TRP_NOT_FOUND,
            "/tmp/test_dataset.none");
    refused(fixture, NULL, "other", columns, TRP_NOT_FOUND, "has no table 'other' (it has: 't')");
    refused(fixture, NULL, "t", &longer, TRP_INVALID_ARGUMENT,
            "column 0 is x float32[], expected x float32[3]");
    assert_int_equal(trp_dataset_source_create(&source, &(trp_dataset_source_options){.seed = 1}),
                     TRP_INVALID_ARGUMENT);
    assert_int_equal(trp_dataset_source_create(
                         &source, &(trp_dataset_source_options){.dir = "x", .prefetch = 65}),
                     TRP_INVALID_ARGUMENT);
}

static void batches_beyond_memory_are_refused(void **state)
{
    const struct fixture *fixture = *state;
    trp_tensor_spec both[] = {columns[0],
                              {.name = "huge", .dtype = TRP_UINT8, .rank = 1, .shape = {1 << 30}}};
    const trp_batch_spec spec = {.table = "t", .columns = {both, 2}, .batch_size = UINT32_MAX};
    trp_source *source = source_create(fixture, (trp_dataset_source_options){0});
    assert_int_equal(source->impl->open(source, &(trp_source_use){.spec = &spec, .held = 1}),
                     TRP_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(trp_last_error(), "batch_size 4294967295 makes batches of 46116"));
    trp_source_destroy(source);
}

static void a_store_that_a_server_has_open_is_refused(void **state)
{
    struct fixture *fixture = *state;
    start_server(fixture);
    refused(fixture, NULL, "t", columns, TRP_FAILED_PRECONDITION, fixture->dir);
}

static void an_empty_table_is_refused(void **state)
{
    struct fixture *fixture = *state;
    start_server(fixture);
    trp_channel *channel = trp_channel_create_local(trp_replay_server_rpc(fixture->server));
    assert_int_equal(trp_replay_reset(channel, "t", WAIT_MS), TRP_OK);
    trp_channel_destroy(channel);
    stop_server(fixture);
    refused(fixture, NULL, "t", columns, TRP_FAILED_PRECONDITION, "has no items");
}

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(a_pass_has_the_items_in_the_order_of_their_insertion),
        WITH_FIXTURE(a_shuffled_pass_has_every_item_once),
        WITH_FIXTURE(a_held_batch_of_a_dataset_stays),
        WITH_FIXTURE(an_item_larger_than_an_answer_comes_whole),
        WITH_FIXTURE(a_learner_learns_from_a_directory_and_leaves_it_as_it_was),
        WITH_FIXTURE(a_store_that_is_not_there_or_another_one_is_named),
        WITH_FIXTURE(batches_beyond_memory_are_refused),
        WITH_FIXTURE(a_store_that_a_server_has_open_is_refused),
        WITH_FIXTURE(an_empty_table_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
