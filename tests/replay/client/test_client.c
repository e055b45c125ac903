/* What a writer's items are when they come out of a table again, and what is said when they cannot
 * get in. The server is ours in this process, or, with an address as argument, any that has the
 * tables of `test_client --tables DIR`: tests/python/dm_reverb_c_client.py runs it against
 * Reverb's.
 */
#include <troupe/replay.h>
#include <troupe/sampler.h>
#include <troupe/writer.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/alloc.h"
#include "tests/replay/store_fixture.h"

enum { COLUMNS = 3, WIDTH = 300, WAIT_MS = 10000 };

static const trp_tensor_spec steps[COLUMNS] = {
    {.name = "number", .dtype = TRP_INT64},
    {.name = "pair", .dtype = TRP_FLOAT32, .rank = 1, .shape = {2}},
    {.name = "wide", .dtype = TRP_UINT8, .rank = 1, .shape = {WIDTH}},
};

static const trp_tensor_spec signed_columns[] = {
    {.name = "a_number", .dtype = TRP_INT64},
    {.name = "b_pairs", .dtype = TRP_FLOAT32, .rank = 2, .shape = {3, 2}},
};

static const char *const table_lines[] = {
    "name=fifo sampler=fifo max_times_sampled=1 max_size=100000 limiter=min_size(1)",
    "name=other sampler=fifo max_times_sampled=1 max_size=100000 limiter=min_size(1)",
    "name=queue sampler=fifo max_times_sampled=1 max_size=100 limiter=queue(4)",
    "name=late sampler=uniform max_size=100 limiter=min_size(3)",
    "name=signed sampler=fifo max_times_sampled=1 max_size=100 limiter=min_size(1)",
};

enum { TABLES = sizeof table_lines / sizeof *table_lines };

static const char *given_address; /* NULL: a server of our own */

struct site {
    char *dir;
    trp_replay_server *server;
    trp_channel *channel;
};

/* ---- servers --------------------------------------------------------------------------------- */

static void start_server(struct site *site)
{
    trp_table_options tables[TABLES], *parsed[TABLES];
    trp_bytes signature;
    assert_int_equal(trp_signature_encode(signed_columns, 2, &signature), TRP_OK);
    for (size_t i = 0; i < TABLES; i++) {
        assert_int_equal(trp_table_options_parse(table_lines[i], &parsed[i]), TRP_OK);
        tables[i] = *parsed[i];
        if (strcmp(tables[i].name, "signed") == 0)
            tables[i].signature = signature;
    }
    site->dir = fixture_dir("/tmp");
    trp_replay_server_options options = {.dir = site->dir,
                                         .max_bytes = 256 << 20,
                                         .tables = tables,
                                         .table_count = TABLES,
                                         .seed = 3};
    assert_int_equal(trp_replay_server_create(&site->server, &options), TRP_OK);
    assert_int_equal(trp_replay_server_start(site->server), TRP_OK);
    for (size_t i = 0; i < TABLES; i++)
        trp_table_options_destroy(parsed[i]);
    free((void *)signature.data);
}

static int setup(void **state)
{
    struct site *site = xcalloc(1, sizeof *site);
    const char *address = given_address;
    if (!address) {
        start_server(site);
        address = trp_server_address(trp_replay_server_rpc(site->server));
    }
    assert_int_equal(trp_channel_create(&site->channel, address, NULL), TRP_OK);
    static const char *const names[] = {"fifo", "other", "queue", "late", "signed"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_equal(trp_replay_reset(site->channel, names[i], WAIT_MS), TRP_OK);
    *state = site;
    return 0;
}

static int teardown(void **state)
{
    struct site *site = *state;
    trp_channel_destroy(site->channel);
    trp_replay_server_destroy(site->server);
    if (site->dir)
        fixture_remove(site->dir);
    free(site);
    return 0;
}

/* ---- steps ----------------------------------------------------------------------------------- */

struct step {
    int64_t number;
    float pair[2];
    uint8_t wide[WIDTH];
};

/* Odd steps are noise, even ones compress. */
static struct step make_step(int64_t number)
{
    struct step step = {.number = number, .pair = {(float)number, -0.5f * (float)number}};
    uint32_t noise = (uint32_t)number;
    for (int i = 0; i < WIDTH; i++)
        step.wide[i] =
            number % 2 ? (uint8_t)((noise = noise * 1664525 + 1013904223) >> 24) : (uint8_t)number;
    return step;
}

static void append(trp_writer *writer, int64_t number)
{
    struct step step = make_step(number);
    const void *columns[] = {&step.number, step.pair, step.wide};
    assert_int_equal(trp_writer_append(writer, columns), TRP_OK);
}

static trp_writer *writer_create(const struct site *site, trp_writer_options options)
{
    trp_writer *writer;
    options.columns = steps;
    options.column_count = COLUMNS;
    assert_int_equal(trp_writer_create(&writer, site->channel, &options), TRP_OK);
    return writer;
}

static void create(trp_writer *writer, const char *table, const trp_item_column *columns,
                   size_t count)
{
    trp_status status = trp_writer_create_item(writer, table, 1, columns, count, WAIT_MS, NULL);
    if (status != TRP_OK)
        print_error("%s\n", trp_last_error());
    assert_int_equal(status, TRP_OK);
}

static void refuse(trp_writer *writer, const char *table, const trp_item_column *columns,
                   size_t count, trp_status expected, const char *words)
{
    assert_int_equal(trp_writer_create_item(writer, table, 1, columns, count, WAIT_MS, NULL),
                     expected);
    if (!strstr(trp_last_error(), words))
        print_error("'%s' is not in '%s'\n", words, trp_last_error());
    assert_non_null(strstr(trp_last_error(), words));
}

static void flush(trp_writer *writer)
{
    trp_status status = trp_writer_flush(writer, 0, WAIT_MS);
    if (status != TRP_OK)
        print_error("%s\n", trp_last_error());
    assert_int_equal(status, TRP_OK);
}

/* ---- what comes out -------------------------------------------------------------------------- */

static trp_sampler *sampler_create(const struct site *site, const char *table,
                                   const trp_tensor_spec *columns, size_t count)
{
    trp_sampler *sampler;
    trp_sampler_options options = {
        .table = table, .columns = columns, .column_count = count, .batch_size = 1};
    assert_int_equal(trp_sampler_create(&sampler, site->channel, &options), TRP_OK);
    return sampler;
}

/* The column of one item, drawn, is these rows of step column `column`. */
static void check_column(const trp_batch *batch, size_t at, uint32_t column, const int64_t *numbers,
                         uint32_t count)
{
    size_t bytes = trp_tensor_bytes(&steps[column]);
    for (uint32_t i = 0; i < count; i++) {
        struct step step = make_step(numbers[i]);
        const void *expected[] = {&step.number, step.pair, step.wide};
        assert_memory_equal((const uint8_t *)batch->columns[at] + i * bytes, expected[column],
                            bytes);
    }
}

struct expected {
    uint32_t column, count;
    bool squeeze;
    int64_t numbers[16];
};

/* The next item of `table` has these columns. */
static void expect(const struct site *site, const char *table, const struct expected *expected,
                   size_t count)
{
    trp_tensor_spec specs[8] = {0};
    for (size_t i = 0; i < count; i++) {
        specs[i] = steps[expected[i].column];
        if (expected[i].squeeze)
            continue;
        memmove(&specs[i].shape[1], specs[i].shape, specs[i].rank * sizeof(int64_t));
        specs[i].shape[0] = expected[i].count;
        specs[i].rank++;
    }
    trp_sampler *sampler = sampler_create(site, table, specs, count);
    trp_batch batch;
    trp_status status = trp_sampler_next(sampler, &batch, WAIT_MS);
    if (status != TRP_OK)
        print_error("%s\n", trp_last_error());
    assert_int_equal(status, TRP_OK);
    for (size_t i = 0; i < count; i++)
        check_column(&batch, i, expected[i].column, expected[i].numbers, expected[i].count);
    trp_sampler_destroy(sampler);
}

enum { NUMBERS = 4, NUMBER_STEPS = 3 };

static const trp_tensor_spec number_columns[NUMBERS] = {
    {.name = "half", .dtype = TRP_FLOAT16, .rank = 1, .shape = {5}},
    {.name = "brain", .dtype = TRP_BFLOAT16},
    {.name = "wave", .dtype = TRP_COMPLEX64, .rank = 1, .shape = {2}},
    {.name = "waves", .dtype = TRP_COMPLEX128, .rank = 2, .shape = {2, 3}},
};

static void columns_may_have_numbers_that_c_has_not(void **state)
{
    struct site *site = *state;
    trp_writer_options options = {.columns = number_columns,
                                  .column_count = NUMBERS,
                                  .history = NUMBER_STEPS,
                                  .chunk_length = 2};
    trp_item_column item[NUMBERS];
    trp_tensor_spec specs[NUMBERS] = {0};
    uint8_t rows[NUMBERS][NUMBER_STEPS][96];
    trp_writer *writer;
    assert_int_equal(trp_writer_create(&writer, site->channel, &options), TRP_OK);
    for (uint32_t step = 0; step < NUMBER_STEPS; step++) {
        const void *columns[NUMBERS];
        for (uint32_t i = 0; i < NUMBERS; i++) {
            for (size_t at = 0; at < sizeof rows[i][step]; at++)
                rows[i][step][at] = (uint8_t)(31 * at + 7 * step + i);
            columns[i] = rows[i][step];
        }
        assert_int_equal(trp_writer_append(writer, columns), TRP_OK);
    }
    for (uint32_t i = 0; i < NUMBERS; i++) {
        item[i] = (trp_item_column){.column = i, .age = NUMBER_STEPS - 1, .length = NUMBER_STEPS};
        specs[i] = number_columns[i];
        specs[i].rank = number_columns[i].rank + 1;
        specs[i].shape[0] = NUMBER_STEPS;
        memcpy(&specs[i].shape[1], number_columns[i].shape,
               number_columns[i].rank * sizeof(int64_t));
    }
    create(writer, "fifo", item, NUMBERS);
    flush(writer);
    trp_sampler *sampler = sampler_create(site, "fifo", specs, NUMBERS);
    trp_batch batch;
    assert_int_equal(trp_sampler_next(sampler, &batch, WAIT_MS), TRP_OK);
    for (uint32_t i = 0; i < NUMBERS; i++)
        for (size_t step = 0, size = trp_tensor_bytes(&number_columns[i]); step < NUMBER_STEPS;
             step++)
            assert_memory_equal((const uint8_t *)batch.columns[i] + step * size, rows[i][step],
                                size);
    trp_sampler_destroy(sampler);
    trp_writer_destroy(writer);
}

/* ---- items of any steps ---------------------------------------------------------------------- */

static void any_steps_in_any_order(struct site *site, trp_writer_options options)
{
    options.history = 8;
    trp_writer *writer = writer_create(site, options);
    for (int64_t i = 0; i < 10; i++)
        append(writer, i);
    const trp_item_column columns[] = {
        {.column = 0, .length = 4, .ages = (const uint32_t[]){0, 7, 7, 3}},
        {.column = 1, .length = 3, .ages = (const uint32_t[]){5, 3, 1}}, /* strided */
        {.column = 2, .length = 5, .age = 6},
        {.column = 2, .length = 1, .ages = (const uint32_t[]){2}, .squeeze = true},
        {.column = 1, .length = 4, .ages = (const uint32_t[]){3, 2, 1, 0}},
        {.column = 0, .length = 3, .ages = (const uint32_t[]){0, 1, 2}}, /* backwards */
    };
    create(writer, "fifo", columns, 6);
    flush(writer);
    const struct expected expected[] = {
        {0, 4, false, {9, 2, 2, 6}}, {1, 3, false, {4, 6, 8}},    {2, 5, false, {3, 4, 5, 6, 7}},
        {2, 1, true, {7}},           {1, 4, false, {6, 7, 8, 9}}, {0, 3, false, {9, 8, 7}},
    };
    expect(site, "fifo", expected, 6);
    trp_writer_destroy(writer);
}

static void items_take_any_steps_in_any_order(void **state)
{
    static const uint32_t lengths[] = {1, 2, 3, 8, 64};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        any_steps_in_any_order(*state, (trp_writer_options){.chunk_length = lengths[i]});
}

static void columns_may_have_chunks_of_their_own(void **state)
{
    const trp_column_options own[COLUMNS] = {
        {.separate = true}, {.chunk_length = 4}, {.history = 8, .tuned = true}};
    any_steps_in_any_order(*state, (trp_writer_options){.chunk_length = 3, .column_options = own});
    const trp_column_options one[COLUMNS] = {[1] = {.chunk_length = 5}};
    any_steps_in_any_order(*state, (trp_writer_options){.column_options = one});
}

static void each_column_has_a_window_of_its_own(void **state)
{
    struct site *site = *state;
    const trp_column_options own[COLUMNS] = {[0] = {.history = 6}, [2] = {.history = 1}};
    trp_writer *writer =
        writer_create(site, (trp_writer_options){.history = 3, .column_options = own});
    for (int64_t i = 0; i < 20; i++)
        append(writer, i);
    const trp_item_column old[] = {{.column = 0, .age = 5, .length = 6},
                                   {.column = 1, .age = 2, .length = 3},
                                   {.column = 2, .age = 0, .length = 1}};
    create(writer, "fifo", old, 3);
    for (uint32_t i = 0; i < COLUMNS; i++) {
        trp_item_column too_old = old[i];
        too_old.age++;
        refuse(writer, "fifo", &too_old, 1, TRP_INVALID_ARGUMENT, steps[i].name);
        const uint32_t ages[] = {0, old[i].age + 1};
        const trp_item_column listed = {.column = i, .length = 2, .ages = ages};
        refuse(writer, "fifo", &listed, 1, TRP_INVALID_ARGUMENT, steps[i].name);
    }
    flush(writer);
    const struct expected expected[] = {
        {0, 6, false, {14, 15, 16, 17, 18, 19}}, {1, 3, false, {17, 18, 19}}, {2, 1, false, {19}}};
    expect(site, "fifo", expected, 3);
    trp_writer_destroy(writer);
}

/* The tuner changes the length while items refer to chunks of several lengths. */
static void tuned_chunks_hold_the_same_steps(void **state)
{
    enum { SPAN = 16, ITEMS = 400 };
    struct site *site = *state;
    trp_writer *writer =
        writer_create(site, (trp_writer_options){.history = SPAN, .tuned = true, .batch_items = 1});
    const trp_item_column all[] = {{.column = 0, .age = SPAN - 1, .length = SPAN},
                                   {.column = 2, .age = SPAN - 1, .length = SPAN}};
    for (int64_t i = 0; i < ITEMS + SPAN - 1; i++) {
        append(writer, i);
        if (i >= SPAN - 1)
            create(writer, "fifo", all, 2);
    }
    flush(writer);
    const trp_tensor_spec specs[] = {
        {.dtype = TRP_INT64, .rank = 1, .shape = {SPAN}},
        {.dtype = TRP_UINT8, .rank = 2, .shape = {SPAN, WIDTH}},
    };
    trp_sampler *sampler = sampler_create(site, "fifo", specs, 2);
    for (int64_t i = 0; i < ITEMS; i++) {
        trp_batch batch;
        int64_t numbers[SPAN];
        for (int64_t j = 0; j < SPAN; j++)
            numbers[j] = i + j;
        assert_int_equal(trp_sampler_next(sampler, &batch, WAIT_MS), TRP_OK);
        check_column(&batch, 0, 0, numbers, SPAN);
        check_column(&batch, 1, 2, numbers, SPAN);
    }
    trp_sampler_destroy(sampler);
    trp_writer_destroy(writer);
}

/* ---- steps in parts -------------------------------------------------------------------------- */

static void append_part(trp_writer *writer, int64_t number, const char *which, bool partial)
{
    struct step step = make_step(number);
    const void *columns[] = {strchr(which, 'n') ? &step.number : NULL,
                             strchr(which, 'p') ? step.pair : NULL,
                             strchr(which, 'w') ? step.wide : NULL};
    trp_status status = trp_writer_append_part(writer, columns, partial);
    if (status != TRP_OK)
        print_error("%s\n", trp_last_error());
    assert_int_equal(status, TRP_OK);
}

static void steps_in_parts(struct site *site, trp_writer_options options)
{
    options.history = 8;
    trp_writer *writer = writer_create(site, options);
    append(writer, 0);
    append_part(writer, 1, "n", true);
    assert_int_equal(trp_writer_episode_steps(writer), 1);
    const trp_item_column half[] = {{.column = 0, .age = 1, .length = 2},
                                    {.column = 1, .age = 1, .length = 1}};
    create(writer, "fifo", half, 2); /* of the step that is open */
    const trp_item_column missing = {.column = 1, .age = 0, .length = 1};
    refuse(writer, "fifo", &missing, 1, TRP_INVALID_ARGUMENT, "pair");
    append_part(writer, 1, "w", true);
    struct step step = make_step(1);
    const void *twice[] = {&step.number, step.pair, NULL};
    assert_int_equal(trp_writer_append_part(writer, twice, false), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "number"));
    append_part(writer, 1, "p", false);
    assert_int_equal(trp_writer_episode_steps(writer), 2);
    append_part(writer, 2, "nw", false); /* no pair */
    append(writer, 3);
    refuse(writer, "fifo", &(trp_item_column){.column = 1, .age = 2, .length = 3}, 1,
           TRP_INVALID_ARGUMENT, "age 1");
    const trp_item_column whole[] = {
        {.column = 0, .age = 3, .length = 4},
        {.column = 1, .length = 3, .ages = (const uint32_t[]){3, 2, 0}},
        {.column = 2, .age = 2, .length = 3}};
    create(writer, "fifo", whole, 3);
    flush(writer);
    const struct expected first[] = {{0, 2, false, {0, 1}}, {1, 1, false, {0}}};
    expect(site, "fifo", first, 2);
    const struct expected second[] = {
        {0, 4, false, {0, 1, 2, 3}}, {1, 3, false, {0, 1, 3}}, {2, 3, false, {1, 2, 3}}};
    expect(site, "fifo", second, 3);
    trp_writer_destroy(writer);
}

static void a_step_may_come_in_parts(void **state)
{
    const trp_column_options own[COLUMNS] = {[1] = {.separate = true}};
    steps_in_parts(*state, (trp_writer_options){0});
    steps_in_parts(*state, (trp_writer_options){.chunk_length = 3});
    steps_in_parts(*state, (trp_writer_options){.chunk_length = 2, .column_options = own});
}

/* What was given goes out; what comes later is in the next chunk, and still the same step. */
static void a_flush_inside_a_step_tears_nothing(void **state)
{
    struct site *site = *state;
    trp_writer *writer = writer_create(site, (trp_writer_options){.history = 4, .chunk_length = 4});
    append(writer, 5);
    append_part(writer, 6, "n", true);
    create(writer, "fifo", &(trp_item_column){.column = 0, .age = 1, .length = 2}, 1);
    flush(writer);
    append_part(writer, 6, "w", true);
    append_part(writer, 6, "p", false);
    append(writer, 7);
    const trp_item_column all[] = {{.column = 0, .age = 2, .length = 3},
                                   {.column = 1, .age = 2, .length = 3},
                                   {.column = 2, .age = 1, .length = 2}};
    create(writer, "fifo", all, 3);
    flush(writer);
    const struct expected first[] = {{0, 2, false, {5, 6}}};
    expect(site, "fifo", first, 1);
    const struct expected second[] = {
        {0, 3, false, {5, 6, 7}}, {1, 3, false, {5, 6, 7}}, {2, 2, false, {6, 7}}};
    expect(site, "fifo", second, 3);
    trp_writer_destroy(writer);
}

/* ---- many steps in one call, episodes -------------------------------------------------------- */

static void steps_appended_together_are_the_same_steps(void **state)
{
    enum { MANY = 23 };
    struct site *site = *state;
    int64_t numbers[MANY];
    float pairs[MANY][2];
    uint8_t wide[MANY][WIDTH];
    for (int64_t i = 0; i < MANY; i++) {
        struct step step = make_step(i);
        numbers[i] = i;
        memcpy(pairs[i], step.pair, sizeof step.pair);
        memcpy(wide[i], step.wide, sizeof step.wide);
    }
    const trp_column_options own[COLUMNS] = {[2] = {.chunk_length = 4}};
    trp_writer *writer = writer_create(
        site, (trp_writer_options){.history = 10, .chunk_length = 5, .column_options = own});
    append(writer, 100);
    assert_int_equal(trp_writer_append_steps(writer, (const void *[]){numbers, pairs, wide}, MANY),
                     TRP_OK);
    assert_int_equal(trp_writer_episode_steps(writer), MANY + 1);
    const trp_item_column all[] = {{.column = 0, .age = 9, .length = 10},
                                   {.column = 1, .age = 9, .length = 10},
                                   {.column = 2, .age = 9, .length = 10}};
    create(writer, "fifo", all, 3);
    append_part(writer, 23, "n", true);
    assert_int_equal(trp_writer_append_steps(writer, (const void *[]){numbers, pairs, wide}, 2),
                     TRP_INVALID_ARGUMENT);
    flush(writer);
    struct expected expected[COLUMNS];
    for (uint32_t c = 0; c < COLUMNS; c++) {
        expected[c] = (struct expected){.column = c, .count = 10};
        for (int64_t i = 0; i < 10; i++)
            expected[c].numbers[i] = 13 + i;
    }
    expect(site, "fifo", expected, COLUMNS);
    trp_writer_destroy(writer);
}

static void an_item_may_span_episodes_that_keep_their_steps(void **state)
{
    struct site *site = *state;
    trp_writer *writer = writer_create(site, (trp_writer_options){.history = 4, .chunk_length = 4});
    append(writer, 1);
    append(writer, 2);
    assert_int_equal(trp_writer_end_episode(writer, true, WAIT_MS), TRP_OK);
    assert_int_equal(trp_writer_episode_steps(writer), 0);
    append(writer, 3);
    const trp_item_column three = {.column = 0, .age = 2, .length = 3};
    create(writer, "fifo", &three, 1);
    assert_int_equal(trp_writer_end_episode(writer, false, WAIT_MS), TRP_OK);
    append(writer, 4);
    refuse(writer, "fifo", &three, 1, TRP_INVALID_ARGUMENT, "number");
    const struct expected expected = {0, 3, false, {1, 2, 3}};
    expect(site, "fifo", &expected, 1);
    trp_writer_destroy(writer);
}

/* ---- what is said ---------------------------------------------------------------------------- */

static void items_are_compared_with_the_signature_first(void **state)
{
    struct site *site = *state;
    trp_writer *writer = writer_create(site, (trp_writer_options){.history = 4});
    for (int64_t i = 0; i < 4; i++)
        append(writer, i);
    const trp_item_column fine[] = {{.column = 0, .length = 1, .squeeze = true},
                                    {.column = 1, .age = 3, .length = 3}};
    const trp_item_column unsqueezed[] = {{.column = 0, .length = 1}, fine[1]};
    const trp_item_column longer[] = {fine[0], {.column = 1, .age = 3, .length = 4}};
    const trp_item_column other[] = {fine[0], {.column = 2, .age = 3, .length = 3}};
    create(writer, "signed", fine, 2);
    refuse(writer, "signed", unsqueezed, 2, TRP_INVALID_ARGUMENT, "int64[1]");
    refuse(writer, "signed", longer, 2, TRP_INVALID_ARGUMENT, "float32[4,2]");
    refuse(writer, "signed", longer, 2, TRP_INVALID_ARGUMENT, "float32[3,2]");
    refuse(writer, "signed", other, 2, TRP_INVALID_ARGUMENT, "wide");
    refuse(writer, "signed", fine, 1, TRP_INVALID_ARGUMENT, "1 columns");
    refuse(writer, "unheard", fine, 2, TRP_NOT_FOUND, "unheard");
    create(writer, "signed", fine, 2);
    flush(writer);
    const struct expected expected[] = {{0, 1, true, {3}}, {1, 3, false, {0, 1, 2}}};
    expect(site, "signed", expected, 2);
    expect(site, "signed", expected, 2);
    trp_writer_destroy(writer);
}

static void a_writer_that_waits_in_vain_hears_why(void **state)
{
    struct site *site = *state;
    trp_writer *writer = writer_create(site, (trp_writer_options){.batch_items = 1});
    const trp_item_column newest = {.column = 0, .length = 1};
    for (int64_t i = 0; i < 6; i++) {
        append(writer, i);
        create(writer, "queue", &newest, 1);
    }
    assert_int_equal(trp_writer_flush(writer, 0, 100), TRP_DEADLINE_EXCEEDED);
    const char *words[] = {"'queue'", "2 items are unconfirmed", "after 1 more sample (",
                           "4 inserts x 1 - 0 samples"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (!strstr(trp_last_error(), words[i]))
            print_error("'%s' is not in '%s'\n", words[i], trp_last_error());
        assert_non_null(strstr(trp_last_error(), words[i]));
    }
    assert_int_equal(trp_writer_end_episode(writer, false, 100), TRP_DEADLINE_EXCEEDED);
    for (int64_t i = 0; i < 2; i++)
        expect(site, "queue", &(struct expected){0, 1, false, {i}}, 1);
    assert_int_equal(trp_writer_end_episode(writer, false, WAIT_MS), TRP_OK);
    for (int64_t i = 2; i < 6; i++)
        expect(site, "queue", &(struct expected){0, 1, false, {i}}, 1);
    trp_writer_destroy(writer);
}

/* ---- samplers -------------------------------------------------------------------------------- */

static void write_numbers(const struct site *site, const char *table, int64_t first, int64_t count)
{
    trp_writer *writer = writer_create(site, (trp_writer_options){0});
    const trp_item_column newest = {.column = 0, .length = 1, .squeeze = true};
    for (int64_t i = first; i < first + count; i++) {
        append(writer, i);
        create(writer, table, &newest, 1);
    }
    flush(writer);
    trp_writer_destroy(writer);
}

static trp_sampler *number_sampler(const struct site *site, trp_sampler_options options)
{
    trp_sampler *sampler;
    options.columns = steps;
    options.column_count = 1;
    assert_int_equal(trp_sampler_create(&sampler, site->channel, &options), TRP_OK);
    return sampler;
}

/* Takes batches to the end of the sequence and counts each number; the rows in all. */
static int64_t drain(trp_sampler *sampler, uint8_t *seen, int64_t numbers)
{
    trp_batch batch;
    trp_status status;
    int64_t rows = 0;
    while ((status = trp_sampler_next(sampler, &batch, WAIT_MS)) == TRP_OK) {
        assert_true(batch.rows > 0);
        for (uint32_t i = 0; i < batch.rows; i++) {
            int64_t number = ((const int64_t *)batch.columns[0])[i];
            assert_in_range(number, 0, numbers - 1);
            assert_int_equal(batch.times_sampled[i], 1);
            seen[number]++;
        }
        rows += batch.rows;
    }
    assert_int_equal(status, TRP_OUT_OF_RANGE);
    assert_int_equal(trp_sampler_next(sampler, &batch, WAIT_MS), TRP_OUT_OF_RANGE); /* for good */
    return rows;
}

/* Every item of a table whose items are gone once sampled, by any of these samplers, once. */
static void all_items_come_once_with(struct site *site, trp_sampler_options options)
{
    enum { ITEMS = 100 };
    uint8_t seen[ITEMS] = {0};
    write_numbers(site, "fifo", 0, ITEMS);
    options.table = "fifo";
    options.batch_size = 7;
    options.limiter_timeout_ms = 200;
    options.end_on_timeout = true;
    trp_sampler *sampler = number_sampler(site, options);
    assert_int_equal(drain(sampler, seen, ITEMS), ITEMS);
    for (int i = 0; i < ITEMS; i++)
        assert_int_equal(seen[i], 1);
    trp_sampler_destroy(sampler);
}

static void a_limiters_timeout_may_end_the_sequence(void **state)
{
    all_items_come_once_with(*state, (trp_sampler_options){0});
    all_items_come_once_with(*state, (trp_sampler_options){.prefetch = 2});
}

static void several_workers_share_the_items(void **state)
{
    all_items_come_once_with(*state, (trp_sampler_options){.prefetch = 2, .workers = 3});
    all_items_come_once_with(
        *state, (trp_sampler_options){.prefetch = 4, .workers = 2, .max_in_flight = 3});
}

static void streams_are_renewed_and_lose_nothing(void **state)
{
    all_items_come_once_with(*state, (trp_sampler_options){.max_samples_per_stream = 5});
    all_items_come_once_with(
        *state, (trp_sampler_options){.prefetch = 1, .workers = 2, .max_samples_per_stream = 9});
}

static void a_sequence_has_the_samples_that_were_wanted(void **state)
{
    struct site *site = *state;
    write_numbers(site, "fifo", 0, 64);
    int64_t left = 64;
    for (uint32_t workers = 0; workers < 3; workers++) {
        uint8_t seen[64] = {0};
        trp_sampler *sampler =
            number_sampler(site, (trp_sampler_options){.table = "fifo",
                                                       .batch_size = 8,
                                                       .prefetch = workers,
                                                       .workers = workers,
                                                       .max_samples = 19,
                                                       .limiter_timeout_ms = -1});
        assert_int_equal(drain(sampler, seen, 64), 19);
        trp_sampler_destroy(sampler);
        left -= 19;
        trp_table_info tables[TABLES];
        size_t count;
        assert_int_equal(trp_replay_info(site->channel, tables, TABLES, &count, WAIT_MS), TRP_OK);
        for (size_t i = 0; i < count && i < TABLES; i++)
            if (strcmp(tables[i].name, "fifo") == 0)
                assert_int_equal(tables[i].size, left); /* not one was drawn for nothing */
    }
}

static void a_sampler_that_waits_in_vain_hears_why(void **state)
{
    struct site *site = *state;
    write_numbers(site, "late", 0, 1);
    for (uint32_t prefetch = 0; prefetch < 2; prefetch++) {
        trp_batch batch;
        trp_sampler *sampler = number_sampler(
            site,
            (trp_sampler_options){
                .table = "late", .batch_size = 2, .prefetch = prefetch, .limiter_timeout_ms = -1});
        assert_int_equal(trp_sampler_next(sampler, &batch, 50), TRP_DEADLINE_EXCEEDED);
        if (!strstr(trp_last_error(), "1 of the 3 items"))
            print_error("%s\n", trp_last_error());
        assert_non_null(strstr(trp_last_error(), "1 of the 3 items"));
        trp_sampler_destroy(sampler);
    }
    trp_batch batch;
    write_numbers(site, "queue", 0, 2);
    trp_sampler *sampler = number_sampler(
        site, (trp_sampler_options){.table = "queue", .batch_size = 3, .limiter_timeout_ms = -1});
    assert_int_equal(trp_sampler_next(sampler, &batch, 50), TRP_DEADLINE_EXCEEDED);
    assert_non_null(strstr(trp_last_error(), "'queue'"));
    trp_sampler_destroy(sampler);
}

/* An extension: Reverb's own server drops it, and the sample says 0. */
static void an_item_says_which_policy_made_it(void **state)
{
    struct site *site = *state;
    trp_writer *writer = writer_create(site, (trp_writer_options){0});
    const trp_item_column newest = {.column = 0, .length = 1, .squeeze = true};
    const uint64_t versions[] = {0, 7, UINT64_MAX};
    for (int64_t i = 0; i < 3; i++) {
        append(writer, i);
        trp_writer_set_policy_version(writer, versions[i]);
        create(writer, "fifo", &newest, 1);
    }
    flush(writer);
    trp_batch batch;
    trp_sampler *sampler =
        number_sampler(site, (trp_sampler_options){.table = "fifo", .batch_size = 3});
    assert_int_equal(trp_sampler_next(sampler, &batch, WAIT_MS), TRP_OK);
    for (int i = 0; i < 3; i++)
        assert_true(batch.policy_versions[i] == (given_address ? 0 : versions[i]));
    trp_sampler_destroy(sampler);
    trp_writer_destroy(writer);
}

static void options_of_no_sampler_are_refused(void **state)
{
    struct site *site = *state;
    const trp_sampler_options wrong[] = {
        {.batch_size = 1, .workers = 2},                   /* without threads */
        {.batch_size = 1, .workers = 1000, .prefetch = 1}, /* too many */
        {.batch_size = 0},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        trp_sampler *sampler;
        trp_sampler_options options = wrong[i];
        options.table = "fifo";
        options.columns = steps;
        options.column_count = 1;
        assert_int_equal(trp_sampler_create(&sampler, site->channel, &options),
                         TRP_INVALID_ARGUMENT);
        assert_null(sampler);
    }
}

/* ---- main ------------------------------------------------------------------------------------ */

/* The lines for `troupe replay serve --table`, with the file that has the signature. */
static int print_tables(const char *dir)
{
    trp_bytes signature;
    char *path = xasprintf("%s/signature", dir);
    FILE *file = fopen(path, "wb");
    if (!file || trp_signature_encode(signed_columns, 2, &signature) != TRP_OK)
        return 1;
    size_t written = fwrite(signature.data, 1, signature.size, file);
    if (fclose(file) != 0 || written != signature.size)
        return 1;
    for (size_t i = 0; i < TABLES; i++) {
        bool is_signed = strstr(table_lines[i], "name=signed") != NULL;
        printf("%s%s%s\n", table_lines[i], is_signed ? " signature=" : "", is_signed ? path : "");
    }
    free((void *)signature.data);
    free(path);
    return 0;
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        EACH(columns_may_have_numbers_that_c_has_not),
        EACH(items_take_any_steps_in_any_order),
        EACH(columns_may_have_chunks_of_their_own),
        EACH(each_column_has_a_window_of_its_own),
        EACH(tuned_chunks_hold_the_same_steps),
        EACH(a_step_may_come_in_parts),
        EACH(a_flush_inside_a_step_tears_nothing),
        EACH(steps_appended_together_are_the_same_steps),
        EACH(an_item_may_span_episodes_that_keep_their_steps),
        EACH(items_are_compared_with_the_signature_first),
        EACH(a_writer_that_waits_in_vain_hears_why),
        EACH(a_limiters_timeout_may_end_the_sequence),
        EACH(several_workers_share_the_items),
        EACH(streams_are_renewed_and_lose_nothing),
        EACH(a_sequence_has_the_samples_that_were_wanted),
        EACH(a_sampler_that_waits_in_vain_hears_why),
        EACH(an_item_says_which_policy_made_it),
        EACH(options_of_no_sampler_are_refused),
    };
    if (argc == 3 && strcmp(argv[1], "--tables") == 0)
        return print_tables(argv[2]);
    given_address = argc > 1 ? argv[1] : NULL;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
