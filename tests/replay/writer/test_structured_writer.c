/* Items that patterns make of steps, as they come out of the tables. With an address as argument
 * the program writes what standard input says instead: tests/python/dm_reverb_structured.py
 * compares the items with those that Reverb's StructuredWriter makes of the same steps. */
#include <troupe/replay.h>
#include <troupe/sampler.h>
#include <troupe/structured_writer.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/alloc.h"
#include "tests/replay/store_fixture.h"

enum { WAIT_MS = 10000, COLUMNS_MAX = 8, PATTERNS_MAX = 8, PARTS_MAX = 8 };

/* ---- a scenario from standard input ---------------------------------------------------------- */

struct scenario {
    size_t column_count, pattern_count;
    trp_tensor_spec columns[COLUMNS_MAX];
    trp_pattern patterns[PATTERNS_MAX];
    char tables[PATTERNS_MAX][32];
    trp_pattern_column nodes[PATTERNS_MAX][PARTS_MAX];
    trp_condition conditions[PATTERNS_MAX][PARTS_MAX];
};

static bool read_pattern(struct scenario *scenario)
{
    size_t at = scenario->pattern_count++, nodes, conditions;
    trp_pattern *pattern = &scenario->patterns[at];
    if (scanf("%31s %zu %zu", scenario->tables[at], &nodes, &conditions) != 3 ||
        nodes > PARTS_MAX || conditions > PARTS_MAX)
        return false;
    *pattern = (trp_pattern){.table = scenario->tables[at],
                             .columns = scenario->nodes[at],
                             .column_count = nodes,
                             .conditions = scenario->conditions[at],
                             .condition_count = conditions};
    for (size_t i = 0; i < nodes; i++) {
        trp_pattern_column *node = &scenario->nodes[at][i];
        if (scanf("%u %d %d %d", &node->column, &node->start, &node->stop, &node->step) != 4)
            return false;
    }
    for (size_t i = 0; i < conditions; i++) {
        trp_condition *condition = &scenario->conditions[at][i];
        int kind, test, inverse;
        if (scanf("%d %u %d %d %d %d", &kind, &condition->column, &test, &condition->value,
                  &condition->modulus, &inverse) != 6)
            return false;
        condition->kind = (trp_condition_kind)kind;
        condition->test = (trp_condition_test)test;
        condition->inverse = inverse;
    }
    return true;
}

static bool read_step(trp_structured_writer *writer, size_t column_count)
{
    int partial;
    int64_t values[COLUMNS_MAX];
    const void *cells[COLUMNS_MAX] = {0};
    if (scanf("%d", &partial) != 1)
        return false;
    for (size_t i = 0; i < column_count; i++) {
        char word[32];
        if (scanf("%31s", word) != 1)
            return false;
        values[i] = strtoll(word, NULL, 10);
        cells[i] = strcmp(word, "-") == 0 ? NULL : &values[i];
    }
    return trp_structured_writer_append(writer, cells, partial, WAIT_MS) == TRP_OK;
}

/* "columns N", "pattern ..." for each, then "begin", "step ..." and "end KEEP" until the end. */
static bool write_scenario(trp_channel *channel, struct scenario *scenario)
{
    char word[32];
    int keep;
    trp_structured_writer *writer = NULL;
    bool fine = true;
    while (fine && scanf("%31s", word) == 1) {
        if (strcmp(word, "columns") == 0)
            fine =
                scanf("%zu", &scenario->column_count) == 1 && scenario->column_count <= COLUMNS_MAX;
        else if (strcmp(word, "pattern") == 0)
            fine = scenario->pattern_count < PATTERNS_MAX && read_pattern(scenario);
        else if (strcmp(word, "begin") == 0)
            fine = trp_structured_writer_create(
                       &writer, channel,
                       &(trp_writer_options){.columns = scenario->columns,
                                             .column_count = scenario->column_count,
                                             .chunk_length = 3},
                       scenario->patterns, scenario->pattern_count) == TRP_OK;
        else if (strcmp(word, "step") == 0)
            fine = read_step(writer, scenario->column_count);
        else
            fine = strcmp(word, "end") == 0 && scanf("%d", &keep) == 1 &&
                   trp_structured_writer_end_episode(writer, keep, WAIT_MS) == TRP_OK;
    }
    fine = fine && trp_structured_writer_flush(writer, 0, WAIT_MS) == TRP_OK;
    trp_structured_writer_destroy(writer);
    return fine;
}

static int run_scenario(const char *address)
{
    trp_channel *channel;
    struct scenario scenario = {0};
    for (size_t i = 0; i < COLUMNS_MAX; i++)
        scenario.columns[i] = (trp_tensor_spec){.dtype = TRP_INT64};
    if (trp_channel_create(&channel, address, NULL) != TRP_OK ||
        !write_scenario(channel, &scenario)) {
        fprintf(stderr, "%s\n", trp_last_error());
        return 1;
    }
    trp_channel_destroy(channel);
    return 0;
}

/* ---- a server -------------------------------------------------------------------------------- */

static const trp_tensor_spec steps[] = {
    {.name = "number", .dtype = TRP_INT32},
    {.name = "error", .dtype = TRP_FLOAT32},
    {.name = "done", .dtype = TRP_BOOL},
    {.name = "wide", .dtype = TRP_UINT8, .rank = 1, .shape = {100}}, /* in no pattern */
};

struct site {
    char *dir;
    trp_replay_server *server;
    trp_channel *channel;
};

static int setup(void **state)
{
    struct site *site = xcalloc(1, sizeof *site);
    trp_table_options *tables[2];
    assert_int_equal(trp_table_options_parse("name=a sampler=fifo max_times_sampled=1 "
                                             "max_size=1000 limiter=min_size(1)",
                                             &tables[0]),
                     TRP_OK);
    assert_int_equal(
        trp_table_options_parse("name=queue sampler=fifo max_times_sampled=1 limiter=queue(2)",
                                &tables[1]),
        TRP_OK);
    site->dir = fixture_dir("/tmp");
    trp_replay_server_options options = {.dir = site->dir,
                                         .max_bytes = 64 << 20,
                                         .tables = (trp_table_options[]){*tables[0], *tables[1]},
                                         .table_count = 2,
                                         .seed = 3};
    assert_int_equal(trp_replay_server_create(&site->server, &options), TRP_OK);
    site->channel = trp_channel_create_local(trp_replay_server_rpc(site->server));
    trp_table_options_destroy(tables[0]);
    trp_table_options_destroy(tables[1]);
    *state = site;
    return 0;
}

static int teardown(void **state)
{
    struct site *site = *state;
    trp_channel_destroy(site->channel);
    trp_replay_server_destroy(site->server);
    fixture_remove(site->dir);
    free(site);
    return 0;
}

static trp_structured_writer *writer_create(const struct site *site, const trp_pattern *patterns,
                                            size_t count)
{
    trp_structured_writer *writer;
    trp_status status = trp_structured_writer_create(
        &writer, site->channel,
        &(trp_writer_options){.columns = steps, .column_count = 4, .batch_items = 1}, patterns,
        count);
    if (status != TRP_OK)
        print_error("%s\n", trp_last_error());
    assert_int_equal(status, TRP_OK);
    return writer;
}

static trp_status append(trp_structured_writer *writer, int32_t number, float error, bool done,
                         int64_t timeout_ms)
{
    uint8_t wide[100] = {0};
    const void *columns[] = {&number, &error, &done, wide};
    return trp_structured_writer_append(writer, columns, false, timeout_ms);
}

/* The next items of `table` are these spans of numbers, with these priorities. */
static void take(const struct site *site, const char *table, uint32_t span, const int32_t *firsts,
                 const double *priorities, size_t count)
{
    const trp_tensor_spec column = {.dtype = TRP_INT32, .rank = 1, .shape = {span}};
    trp_sampler *sampler;
    trp_sampler_options options = {
        .table = table, .columns = &column, .column_count = 1, .batch_size = 1};
    assert_int_equal(trp_sampler_create(&sampler, site->channel, &options), TRP_OK);
    for (size_t i = 0; i < count; i++) {
        trp_batch batch;
        assert_int_equal(trp_sampler_next(sampler, &batch, WAIT_MS), TRP_OK);
        for (uint32_t j = 0; j < span; j++)
            assert_int_equal(((const int32_t *)batch.columns[0])[j], firsts[i] + (int32_t)j);
        assert_true(batch.priorities[0] - priorities[i] < 1e-6 &&
                    priorities[i] - batch.priorities[0] < 1e-6);
    }
    trp_sampler_destroy(sampler);
}

/* ... and there are no more. */
static void expect(const struct site *site, const char *table, uint32_t span, const int32_t *firsts,
                   const double *priorities, size_t count)
{
    take(site, table, span, firsts, priorities, count);
    trp_table_info tables[2];
    size_t found;
    assert_int_equal(trp_replay_info(site->channel, tables, 2, &found, WAIT_MS), TRP_OK);
    for (size_t i = 0; i < found && i < 2; i++)
        if (strcmp(tables[i].name, table) == 0)
            assert_int_equal(tables[i].size, 0);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void patterns_make_items_when_their_conditions_hold(void **state)
{
    struct site *site = *state;
    const trp_pattern_column three = {.column = 0, .start = -3};
    const trp_condition every_second = {
        .kind = TRP_STEPS_SINCE_APPLIED, .test = TRP_AT_LEAST, .value = 2};
    const trp_pattern pattern = {.table = "a",
                                 .columns = &three,
                                 .column_count = 1,
                                 .conditions = &every_second,
                                 .condition_count = 1,
                                 .priority = 2.5};
    trp_structured_writer *writer = writer_create(site, &pattern, 1);
    for (int32_t i = 0; i < 8; i++)
        assert_int_equal(append(writer, i, 0, false, WAIT_MS), TRP_OK);
    assert_int_equal(trp_structured_writer_end_episode(writer, false, WAIT_MS), TRP_OK);
    for (int32_t i = 10; i < 14; i++) /* the window begins anew */
        assert_int_equal(append(writer, i, 0, false, WAIT_MS), TRP_OK);
    assert_int_equal(trp_structured_writer_flush(writer, 0, WAIT_MS), TRP_OK);
    expect(site, "a", 3, (const int32_t[]){0, 2, 4, 10}, (const double[]){2.5, 2.5, 2.5, 2.5}, 4);
    trp_structured_writer_destroy(writer);
}

static void the_end_of_an_episode_and_data_are_conditions(void **state)
{
    struct site *site = *state;
    const trp_pattern_column two = {.column = 0, .start = -2};
    const trp_condition at_end = {.kind = TRP_END_EPISODE, .test = TRP_EQUALS, .value = 1};
    const trp_condition not_done = {
        .kind = TRP_DATA, .column = 2, .test = TRP_EQUALS, .value = 1, .inverse = true};
    const trp_condition conditions[] = {at_end, not_done};
    const trp_pattern pattern = {.table = "a",
                                 .columns = &two,
                                 .column_count = 1,
                                 .conditions = conditions,
                                 .condition_count = 2};
    trp_structured_writer *writer = writer_create(site, &pattern, 1);
    for (int32_t episode = 0; episode < 4; episode++) {
        for (int32_t i = 0; i < 3; i++)
            assert_int_equal(append(writer, 10 * episode + i, 0, episode == 1, WAIT_MS), TRP_OK);
        assert_int_equal(trp_structured_writer_end_episode(writer, false, WAIT_MS), TRP_OK);
    }
    expect(site, "a", 2, (const int32_t[]){1, 21, 31}, (const double[]){1, 1, 1}, 3);
    trp_structured_writer_destroy(writer);
}

static void errors_may_be_priorities(void **state)
{
    struct site *site = *state;
    const trp_pattern_column columns[] = {{.column = 0, .start = -2}, {.column = 1, .start = -2}};
    const trp_pattern pattern = {.table = "a",
                                 .columns = columns,
                                 .column_count = 2,
                                 .td_error = true,
                                 .td_column = 1,
                                 .td_max_weight = 0.75};
    trp_structured_writer *writer = writer_create(site, &pattern, 1);
    const float errors[] = {1, -3, 2};
    for (int32_t i = 0; i < 3; i++)
        assert_int_equal(append(writer, i, errors[i], false, WAIT_MS), TRP_OK);
    assert_int_equal(trp_structured_writer_flush(writer, 0, WAIT_MS), TRP_OK);
    const trp_tensor_spec specs[] = {{.dtype = TRP_INT32, .rank = 1, .shape = {2}},
                                     {.dtype = TRP_FLOAT32, .rank = 1, .shape = {2}}};
    trp_sampler *sampler;
    trp_sampler_options options = {
        .table = "a", .columns = specs, .column_count = 2, .batch_size = 2};
    assert_int_equal(trp_sampler_create(&sampler, site->channel, &options), TRP_OK);
    trp_batch batch;
    assert_int_equal(trp_sampler_next(sampler, &batch, WAIT_MS), TRP_OK);
    assert_true(batch.priorities[0] == 0.75 * 3 + 0.25 * 2);
    assert_true(batch.priorities[1] == 0.75 * 3 + 0.25 * 2.5);
    trp_sampler_destroy(sampler);

    /* One that is no number is said once for each item that it is in, and is in nobody's way. */
    assert_int_equal(append(writer, 3, NAN, false, WAIT_MS), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "priority is not a number"));
    assert_int_equal(append(writer, 4, 1, false, WAIT_MS), TRP_INVALID_ARGUMENT);
    assert_int_equal(append(writer, 5, 1, false, WAIT_MS), TRP_OK);
    assert_int_equal(trp_structured_writer_flush(writer, 0, WAIT_MS), TRP_OK);
    assert_int_equal(trp_structured_writer_items(writer), 3);
    trp_structured_writer_destroy(writer);
}

/* The step is in; its items are made by whichever call comes next, once. */
static void an_item_that_found_no_room_is_made_later(void **state)
{
    struct site *site = *state;
    const double ones[] = {1, 1, 1, 1};
    const trp_pattern_column newest = {.column = 0, .start = -1};
    const trp_pattern patterns[] = {{.table = "queue", .columns = &newest, .column_count = 1},
                                    {.table = "a", .columns = &newest, .column_count = 1}};
    const trp_writer_options options = {
        .columns = steps, .column_count = 4, .batch_items = 1, .max_in_flight = 1};
    trp_structured_writer *writer;
    assert_int_equal(trp_structured_writer_create(&writer, site->channel, &options, patterns, 2),
                     TRP_OK);
    assert_int_equal(append(writer, 0, 0, false, WAIT_MS), TRP_OK);
    assert_int_equal(append(writer, 1, 0, false, WAIT_MS), TRP_OK);
    assert_int_equal(append(writer, 2, 0, false, 20), TRP_DEADLINE_EXCEEDED); /* one item of two */
    assert_non_null(strstr(trp_last_error(), "'queue'"));
    assert_int_equal(append(writer, 3, 0, false, 20), TRP_DEADLINE_EXCEEDED); /* not in */
    take(site, "queue", 1, (const int32_t[]){0}, ones, 1);
    assert_int_equal(append(writer, 3, 0, false, 200), TRP_DEADLINE_EXCEEDED); /* one of two */
    take(site, "queue", 1, (const int32_t[]){1}, ones, 1);
    assert_int_equal(trp_structured_writer_flush(writer, 0, WAIT_MS), TRP_OK);
    expect(site, "queue", 1, (const int32_t[]){2, 3}, ones, 2);
    expect(site, "a", 1, (const int32_t[]){0, 1, 2, 3}, ones, 4);
    trp_structured_writer_destroy(writer);
}

static void patterns_that_are_none_are_refused(void **state)
{
    struct site *site = *state;
    const trp_pattern_column good = {.column = 0, .start = -2};
    const trp_pattern_column nodes[] = {
        {.column = 4, .start = -1},
        {.column = 0},
        {.column = 0, .start = 1},
        {.column = 0, .start = -2, .stop = -2},
        {.column = 0, .stop = 1},
        {.column = 0, .start = -2, .step = -1},
        {.column = 0, .stop = -1, .step = 2},
    };
    const trp_condition conditions[] = {
        {.kind = (trp_condition_kind)9},
        {.kind = TRP_DATA, .column = 1},  /* a float */
        {.kind = TRP_DATA, .column = 3},  /* no scalar */
        {.kind = TRP_DATA, .column = 44}, /* none */
        {.kind = TRP_STEP_INDEX, .test = TRP_MODULO},
        {.kind = TRP_END_EPISODE, .test = TRP_EQUALS, .value = 0},
    };
    trp_structured_writer *writer;
    const trp_writer_options options = {.columns = steps, .column_count = 4};
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
        trp_pattern pattern = {.table = "a", .columns = &nodes[i], .column_count = 1};
        assert_int_equal(
            trp_structured_writer_create(&writer, site->channel, &options, &pattern, 1),
            TRP_INVALID_ARGUMENT);
    }
    for (size_t i = 0; i < sizeof conditions / sizeof *conditions; i++) {
        trp_pattern pattern = {.table = "a",
                               .columns = &good,
                               .column_count = 1,
                               .conditions = &conditions[i],
                               .condition_count = 1};
        assert_int_equal(
            trp_structured_writer_create(&writer, site->channel, &options, &pattern, 1),
            TRP_INVALID_ARGUMENT);
    }
    trp_pattern pattern = {
        .table = "a", .columns = &good, .column_count = 1, .td_error = true, .td_max_weight = 2};
    assert_int_equal(trp_structured_writer_create(&writer, site->channel, &options, &pattern, 1),
                     TRP_INVALID_ARGUMENT);
    assert_int_equal(trp_structured_writer_create(&writer, site->channel, &options, &pattern, 0),
                     TRP_INVALID_ARGUMENT);
    assert_null(writer);
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        EACH(patterns_make_items_when_their_conditions_hold),
        EACH(the_end_of_an_episode_and_data_are_conditions),
        EACH(errors_may_be_priorities),
        EACH(an_item_that_found_no_room_is_made_later),
        EACH(patterns_that_are_none_are_refused),
    };
    if (argc == 2)
        return run_scenario(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
