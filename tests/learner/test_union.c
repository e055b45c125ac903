/* Several replay servers as one table: probabilities and sizes are the union's, priorities go back
 * to the server of a row, and who has nothing is passed over. */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <troupe/learner.h>
#include <troupe/replay.h>
#include <troupe/writer.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/thread.h"
#include "tests/learner/adding.h"

enum { SHARDS = 3, EACH = 8, ITEMS = SHARDS * EACH, WAIT_MS = 30000 };

struct fixture {
    char dir[32];
    trp_replay_server *servers[SHARDS + 1]; /* the last one has all items */
    trp_channel *channels[SHARDS + 1];
};

static int setup(void **state)
{
    struct fixture *fixture = xcalloc(1, sizeof *fixture);
    memcpy(fixture->dir, "/tmp/test_union.XXXXXX", sizeof "/tmp/test_union.XXXXXX");
    assert_non_null(mkdtemp(fixture->dir));
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    for (int i = 0; i <= SHARDS; i++) {
        trp_channel_destroy(fixture->channels[i]);
        trp_replay_server_destroy(fixture->servers[i]);
    }
    char *command = xasprintf("rm -rf %s", fixture->dir);
    assert_int_equal(system(command), 0);
    free(command);
    free(fixture);
    return 0;
}

/* `address`: NULL: none, only for callers of this process. */
static void start_at(struct fixture *fixture, int index, trp_selector_kind kind,
                     const char *address)
{
    char *dir = xasprintf("%s/%d", fixture->dir, index);
    trp_table_options table = {.name = "t",
                               .sampler = {.kind = kind, .exponent = kind == TRP_PRIORITIZED},
                               .max_size = 100,
                               .limiter = trp_limiter_min_size(1)};
    trp_replay_server_options options = {
        .dir = dir, .tables = &table, .table_count = 1, .seed = 1, .server = {.address = address}};
    assert_int_equal(trp_replay_server_create(&fixture->servers[index], &options), TRP_OK);
    free(dir);
}

static void start(struct fixture *fixture, int index, trp_selector_kind kind)
{
    start_at(fixture, index, kind, NULL);
    fixture->channels[index] =
        trp_channel_create_local(trp_replay_server_rpc(fixture->servers[index]));
}

static double first_priority(int value)
{
    return 1 + value % 5;
}

static void write_values(struct fixture *fixture, int index, int from, int to)
{
    trp_writer *writer;
    assert_int_equal(
        trp_writer_create(&writer, fixture->channels[index],
                          &(trp_writer_options){.columns = columns, .column_count = 1}),
        TRP_OK);
    for (int i = from; i < to; i++) {
        float value = (float)i;
        assert_int_equal(trp_writer_append(writer, (const void *[]){&value}), TRP_OK);
        assert_int_equal(trp_writer_create_item(writer, "t", first_priority(i),
                                                &(trp_item_column){.length = 1, .squeeze = true}, 1,
                                                WAIT_MS, NULL),
                         TRP_OK);
    }
    assert_int_equal(trp_writer_flush(writer, 0, WAIT_MS), TRP_OK);
    trp_writer_destroy(writer);
}

/* Values 0 to ITEMS - 1, EACH to every shard. */
static void start_shards(struct fixture *fixture, trp_selector_kind kind)
{
    for (int i = 0; i < SHARDS; i++) {
        start(fixture, i, kind);
        write_values(fixture, i, EACH * i, EACH * (i + 1));
    }
}

static trp_source *open_source(struct fixture *fixture, int from, size_t count, uint32_t held)
{
    static const trp_batch_spec spec = {
        .table = "t", .columns = {(trp_tensor_spec *)columns, 1}, .batch_size = BATCH};
    trp_source *source;
    assert_int_equal(trp_sampler_source_create(
                         &source, &(trp_sampler_source_options){.shards = fixture->channels + from,
                                                                .shard_count = count}),
                     TRP_OK);
    assert_int_equal(source->impl->open(source, &(trp_source_use){.spec = &spec, .held = held}),
                     TRP_OK);
    return source;
}

/* How often each value came in `batches`, and with what probability. */
struct draws {
    int counts[ITEMS];
    double probabilities[ITEMS];
};

static void draw(trp_source *source, int batches, struct draws *draws)
{
    trp_batch batch;
    memset(draws, 0, sizeof *draws);
    for (int i = 0; i < batches; i++) {
        assert_int_equal(source->impl->next(source, &batch, WAIT_MS), TRP_OK);
        for (uint32_t row = 0; row < batch.rows; row++) {
            int value = (int)((const float *)batch.columns[0])[row];
            assert_in_range(value, 0, ITEMS - 1);
            assert_int_equal(batch.table_sizes[row], ITEMS);
            double before = draws->probabilities[value];
            assert_true(before == 0 || fabs(before - batch.probabilities[row]) < 1e-12);
            draws->probabilities[value] = batch.probabilities[row];
            draws->counts[value]++;
        }
    }
}

/* A round's time has no millisecond for each of them. */
static void one_of_hundreds_that_has_nothing_is_passed_over(void **state)
{
    struct fixture *fixture = *state;
    enum { MANY = 201, SLICE_MS = 200 };
    static const trp_batch_spec spec = {
        .table = "t", .columns = {(trp_tensor_spec *)columns, 1}, .batch_size = BATCH};
    trp_channel *shards[MANY];
    trp_source *source;
    trp_batch batch;
    start(fixture, 0, TRP_UNIFORM);
    start(fixture, 1, TRP_UNIFORM);
    write_values(fixture, 1, 0, EACH);
    for (int i = 0; i < MANY; i++)
        shards[i] = fixture->channels[i > 0];
    assert_int_equal(
        trp_sampler_source_create(
            &source,
            &(trp_sampler_source_options){.shards = shards, .shard_count = MANY, .prefetch = 1}),
        TRP_OK);
    assert_int_equal(source->impl->open(source, &(trp_source_use){.spec = &spec, .held = 1}),
                     TRP_OK);
    trp_status status = TRP_DEADLINE_EXCEEDED;
    for (int slices = 0; status == TRP_DEADLINE_EXCEEDED && slices < 50; slices++)
        status = source->impl->next(source, &batch, SLICE_MS);
    assert_int_equal(status, TRP_OK);
    assert_int_equal(batch.rows, BATCH);
    trp_source_destroy(source);
}

/* ---- probabilities --------------------------------------------------------------------------- */

static void uniform_shards_say_what_one_server_with_all_items_says(void **state)
{
    struct fixture *fixture = *state;
    struct draws shards, one;
    start_shards(fixture, TRP_UNIFORM);
    start(fixture, SHARDS, TRP_UNIFORM);
    write_values(fixture, SHARDS, 0, ITEMS);
    trp_source *source = open_source(fixture, 0, SHARDS, 1);
    draw(source, 300, &shards);
    trp_source_destroy(source);
    source = open_source(fixture, SHARDS, 1, 1);
    draw(source, 300, &one);
    trp_source_destroy(source);
    for (int i = 0; i < ITEMS; i++) {
        assert_true(shards.counts[i] > 0 && one.counts[i] > 0);
        assert_true(fabs(shards.probabilities[i] - 1.0 / ITEMS) < 1e-12);
        assert_true(fabs(one.probabilities[i] - 1.0 / ITEMS) < 1e-12);
    }
}

/* Rows come as often as their probability says, whatever the priorities of their shard are. */
static void probabilities_are_what_rows_are_drawn_with(void **state)
{
    enum { BATCHES = 3000, ROWS = BATCHES * BATCH };
    struct fixture *fixture = *state;
    struct draws draws;
    double sum = 0;
    start_shards(fixture, TRP_PRIORITIZED);
    trp_source *source = open_source(fixture, 0, SHARDS, 1);
    draw(source, BATCHES, &draws);
    trp_source_destroy(source);
    for (int i = 0; i < ITEMS; i++) {
        double p = draws.probabilities[i], mass = 0;
        for (int k = i / EACH * EACH; k < (i / EACH + 1) * EACH; k++)
            mass += first_priority(k);
        assert_true(fabs(p - first_priority(i) / mass / SHARDS) < 1e-9);
        assert_true(fabs(draws.counts[i] / (double)ROWS - p) < 5 * sqrt(p / ROWS));
        sum += p;
    }
    assert_true(fabs(sum - 1) < 1e-9);
}

static void held_batches_of_shards_keep_their_probabilities(void **state)
{
    enum { HELD = 2 };
    struct fixture *fixture = *state;
    trp_batch batches[HELD];
    double said[HELD][BATCH];
    start_shards(fixture, TRP_PRIORITIZED);
    trp_source *source = open_source(fixture, 0, SHARDS, HELD);
    for (int i = 0; i < 30; i++) {
        assert_int_equal(source->impl->next(source, &batches[i % HELD], WAIT_MS), TRP_OK);
        assert_int_equal(batches[i % HELD].server, i % SHARDS);
        memcpy(said[i % HELD], batches[i % HELD].probabilities, sizeof said[0]);
        for (int k = 0; k < HELD && k <= i; k++)
            assert_memory_equal(said[k], batches[k].probabilities, sizeof said[k]);
    }
    trp_source_destroy(source);
}

/* ---- priorities ------------------------------------------------------------------------------ */

/* The learner gives an item of value x the priority x + 2. */
static void priorities_go_back_to_the_server_of_the_row(void **state)
{
    struct fixture *fixture = *state;
    trp_learner *learner;
    trp_source *source;
    start_shards(fixture, TRP_PRIORITIZED);
    assert_int_equal(trp_sampler_source_create(
                         &source, &(trp_sampler_source_options){.shards = fixture->channels,
                                                                .shard_count = SHARDS}),
                     TRP_OK);
    trp_learner_loop_options options = {
        .updater = &adding_create()->base, .sources = &source, .source_count = 1, .max_steps = 60};
    assert_int_equal(trp_learner_create(&learner, &options), TRP_OK);
    assert_int_equal(trp_learner_run(learner), TRP_OK);
    assert_int_equal(trp_learner_read(learner).skipped_priorities, 0);
    trp_learner_destroy(learner);
    for (int i = 0; i < SHARDS; i++) {
        trp_batch batch;
        int updated = 0;
        source = open_source(fixture, i, 1, 1);
        for (int k = 0; k < 20; k++) {
            assert_int_equal(source->impl->next(source, &batch, WAIT_MS), TRP_OK);
            for (uint32_t row = 0; row < batch.rows; row++) {
                double value = (double)((const float *)batch.columns[0])[row];
                assert_in_range((int)value, EACH * i, EACH * (i + 1) - 1);
                bool is_new = batch.priorities[row] == value + 2;
                assert_true(is_new || batch.priorities[row] == first_priority((int)value));
                updated += is_new;
            }
        }
        assert_true(updated > 20 * BATCH / 2);
        trp_source_destroy(source);
    }
}

/* ---- a server without anything --------------------------------------------------------------- */

static void a_server_that_has_nothing_is_passed_over_until_it_has(void **state)
{
    struct fixture *fixture = *state;
    trp_batch batch;
    start(fixture, 0, TRP_UNIFORM);
    start(fixture, 1, TRP_UNIFORM);
    trp_source *source = open_source(fixture, 0, 2, 1);
    assert_int_equal(source->impl->next(source, &batch, 20), TRP_DEADLINE_EXCEEDED);
    write_values(fixture, 1, 0, EACH);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(source->impl->next(source, &batch, WAIT_MS), TRP_OK);
        assert_int_equal(batch.server, 1);
        assert_true(batch.probabilities[0] == 1.0 / EACH);
        assert_int_equal(batch.table_sizes[0], EACH);
    }
    write_values(fixture, 0, EACH, 2 * EACH);
    struct deadline deadline = deadline_in_ms(&clock_monotonic, WAIT_MS);
    do {
        assert_int_equal(source->impl->next(source, &batch, WAIT_MS), TRP_OK);
        assert_false(deadline_passed(deadline, &clock_monotonic));
    } while (batch.server != 0);
    assert_true(batch.probabilities[0] == 0.5 / EACH);
    assert_int_equal(batch.table_sizes[0], 2 * EACH);
    trp_source_destroy(source);
}

/* ---- a server that is not there yet ---------------------------------------------------------- */

static char *address_of(const struct fixture *fixture, int index)
{
    return xasprintf("unix:%s/socket%d", fixture->dir, index);
}

/* The channel is there before the server is. */
static void dial(struct fixture *fixture, int index)
{
    char *address = address_of(fixture, index);
    assert_int_equal(trp_channel_create(&fixture->channels[index], address, NULL), TRP_OK);
    free(address);
}

static void start_late(struct fixture *fixture, int index)
{
    char *address = address_of(fixture, index);
    start_at(fixture, index, TRP_UNIFORM, address);
    assert_int_equal(trp_replay_server_start(fixture->servers[index]), TRP_OK);
    free(address);
    write_values(fixture, index, EACH * index, EACH * (index + 1));
}

static void a_server_that_is_away_at_the_start_joins_when_it_comes(void **state)
{
    struct fixture *fixture = *state;
    trp_batch batch;
    start(fixture, 0, TRP_UNIFORM);
    write_values(fixture, 0, 0, EACH);
    dial(fixture, 1);
    trp_source *source = open_source(fixture, 0, 2, 1);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(source->impl->next(source, &batch, WAIT_MS), TRP_OK);
        assert_int_equal(batch.server, 0);
        assert_true(batch.probabilities[0] == 1.0 / EACH);
        assert_int_equal(batch.table_sizes[0], EACH);
    }
    start_late(fixture, 1);
    struct deadline deadline = deadline_in_ms(&clock_monotonic, WAIT_MS);
    do {
        assert_int_equal(source->impl->next(source, &batch, WAIT_MS), TRP_OK);
        assert_false(deadline_passed(deadline, &clock_monotonic));
    } while (batch.server != 1);
    assert_true(batch.probabilities[0] == 0.5 / EACH);
    assert_int_equal(batch.table_sizes[0], 2 * EACH);
    trp_source_destroy(source);
}

struct latecomer {
    struct fixture *fixture;
    int log; /* what the learner says */
};

/* Starts the server once the learner has said that it waits for it. */
static void come_when_missed(void *arg)
{
    struct latecomer *latecomer = arg;
    char said[16384] = "";
    size_t size = 0;
    while (!strstr(said, "replay server is away, waiting at_most_s=60")) {
        ssize_t more = read(latecomer->log, said + size, sizeof said - 1 - size);
        if (more <= 0)
            return;
        size += (size_t)more;
        said[size] = '\0';
    }
    assert_non_null(strstr(said, "/socket0"));
    start_late(latecomer->fixture, 0);
}

static void a_learner_waits_for_its_only_server_and_says_so(void **state)
{
    struct fixture *fixture = *state;
    struct latecomer latecomer = {.fixture = fixture};
    struct thread thread = {0};
    trp_learner *learner;
    trp_source *source;
    int log[2];
    assert_int_equal(pipe(log), 0);
    latecomer.log = log[0];
    dial(fixture, 0);
    assert_int_equal(
        trp_sampler_source_create(
            &source, &(trp_sampler_source_options){.shards = fixture->channels, .shard_count = 1}),
        TRP_OK);
    trp_learner_loop_options options = {
        .updater = &adding_create()->base, .sources = &source, .source_count = 1, .max_steps = 5};
    assert_int_equal(trp_learner_create(&learner, &options), TRP_OK);
    assert_int_equal(thread_start(&thread, "latecomer", come_when_missed, &latecomer), TRP_OK);
    log_set_sink(log[1]);
    trp_status status = trp_learner_run(learner);
    log_set_sink(-1);
    uint64_t steps = trp_learner_read(learner).steps;
    trp_learner_destroy(learner);
    close(log[1]);
    thread_stop(&thread);
    close(log[0]);
    assert_int_equal(status, TRP_OK);
    assert_int_equal(steps, 5);
}

static void options_of_a_sampler_source_are_checked(void **state)
{
    (void)state;
    trp_source *source;
    assert_int_equal(trp_sampler_source_create(&source, &(trp_sampler_source_options){0}),
                     TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "0 replay servers, not 1 to 256"));
    assert_int_equal(
        trp_sampler_source_create(
            &source, &(trp_sampler_source_options){.shard_count = 1, .prefetch = 1000}),
        TRP_INVALID_ARGUMENT);
}

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(uniform_shards_say_what_one_server_with_all_items_says),
        WITH_FIXTURE(probabilities_are_what_rows_are_drawn_with),
        WITH_FIXTURE(held_batches_of_shards_keep_their_probabilities),
        WITH_FIXTURE(priorities_go_back_to_the_server_of_the_row),
        WITH_FIXTURE(a_server_that_has_nothing_is_passed_over_until_it_has),
        WITH_FIXTURE(a_server_that_is_away_at_the_start_joins_when_it_comes),
        WITH_FIXTURE(a_learner_waits_for_its_only_server_and_says_so),
        WITH_FIXTURE(one_of_hundreds_that_has_nothing_is_passed_over),
        WITH_FIXTURE(options_of_a_sampler_source_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
