/* The sequence adder and the episode adder against their definition: what items there are, and
 * every row of them, for episodes of many lengths on several copies, through a real server. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/adder.h>
#include <troupe/item.h>
#include <troupe/rng.h>
#include <troupe/sampler.h>
#include "actor/limits.h"
#include "actor/sequence.h"
#include "core/clock.h"
#include "tests/actor/table_server.h"

enum { ROWS_MAX = 4096, ITEMS_MAX = 4096, COPIES_MAX = 5 };

static const trp_env_spec env = {
    .name = "test",
    .observations = {{.name = "o", .dtype = TRP_FLOAT32, .rank = 1, .shape = {2}}},
    .action_kind = TRP_ACTION_DISCRETE,
    .action_count = 4};

/* ---- the definition -------------------------------------------------------------------------- */

struct row {
    float observation, reward, discount, value;
    int32_t action;
    bool first, valid;
};

struct expected {
    size_t length;
    struct row *rows;
    uint64_t version;
};

struct model {
    trp_sequence_options options;
    struct {
        struct row rows[ROWS_MAX]; /* of the episode, or of all of them with TRP_END_CONTINUE */
        uint64_t versions[ROWS_MAX];
        size_t count, written; /* written: the rows that the last item ended with */
    } copies[COPIES_MAX];
    struct expected items[ITEMS_MAX];
    size_t count;
};

/* An item of the rows from `begin` on, `length` of them, zeros behind the last that there is. */
static void expect(struct model *model, int copy, size_t begin, size_t length)
{
    assert_true(model->count < ITEMS_MAX);
    struct expected *item = &model->items[model->count++];
    size_t count = model->copies[copy].count;
    item->length = length;
    item->rows = xcalloc(length, sizeof *item->rows);
    for (size_t i = 0; i < length && begin + i < count; i++)
        item->rows[i] = model->copies[copy].rows[begin + i];
    item->version = model->copies[copy].versions[begin];
    model->copies[copy].written = count;
}

static void model_row(struct model *model, int copy, const struct row *row, uint64_t version)
{
    uint32_t length = model->options.length, period = model->options.period;
    size_t count = ++model->copies[copy].count;
    assert_true(count <= ROWS_MAX);
    model->copies[copy].rows[count - 1] = *row;
    model->copies[copy].versions[count - 1] = version;
    for (size_t begin = 0; begin + length <= count; begin += period)
        if (begin + length == count)
            expect(model, copy, begin, length);
}

static void model_end(struct model *model, int copy)
{
    uint32_t length = model->options.length, period = model->options.period;
    size_t count = model->copies[copy].count, begin = 0;
    if (model->options.end == TRP_END_CONTINUE)
        return;
    while (begin + length <= count)
        begin += period; /* of the first item that is not whole */
    bool over = count >= length && model->copies[copy].written == count;
    if (model->options.end == TRP_END_WRITE && count >= length && !over)
        expect(model, copy, count - length, length);
    if (model->options.end == TRP_END_PAD && begin < count && !over)
        expect(model, copy, begin, length);
    if (model->options.end == TRP_END_TRUNCATE && begin < count && !over)
        expect(model, copy, begin, count - begin);
    model->copies[copy].count = 0;
}

static void model_free(struct model *model)
{
    for (size_t i = 0; i < model->count; i++)
        free(model->items[i].rows);
    free(model);
}

/* ---- a play of several copies ---------------------------------------------------------------- */

struct play {
    struct model *model;
    trp_adder *adder;
    int copies;
    float clock; /* what the next observation shows: every one is another */
    float latest[COPIES_MAX];
    bool first[COPIES_MAX];
    uint32_t left[COPIES_MAX]; /* steps of the running episode */
};

static void begin_episode(struct play *play, int copy, uint32_t length)
{
    play->latest[copy] = ++play->clock;
    play->first[copy] = true;
    play->left[copy] = length;
    float observation[2] = {play->latest[copy], -play->latest[copy]};
    play->adder->impl->first(play->adder, (uint32_t)copy, (const void *[]){observation});
}

static void play_step(struct play *play, int copy, bool terminates)
{
    bool last = --play->left[copy] == 0;
    struct row row = {.observation = play->latest[copy],
                      .reward = play->clock / 2,
                      .discount = last && terminates ? 0 : 1,
                      .value = play->clock * 3,
                      .action = (int32_t)play->clock % 4,
                      .first = play->first[copy],
                      .valid = true};
    uint64_t version = (uint64_t)play->clock;
    float next[2] = {++play->clock, -play->clock};
    next[1] = -next[0];
    play->adder->impl->add(play->adder, (uint32_t)copy,
                           &(trp_transition){.action = &row.action,
                                             .reward = row.reward,
                                             .discount = row.discount,
                                             .next_observations = (const void *[]){next},
                                             .extras = (const void *[]){&row.value},
                                             .last = last,
                                             .version = version});
    model_row(play->model, copy, &row, version);
    play->latest[copy] = next[0];
    play->first[copy] = false;
    if (!last)
        return;
    model_row(play->model, copy, &(struct row){.observation = next[0]}, 0);
    model_end(play->model, copy);
}

static void assert_array(const trp_item_data *item, const char *what, size_t column, size_t size,
                         size_t rows)
{
    if (item->columns[column].data.size != size * rows)
        fail_msg("%s has %zu bytes, expected %zu rows", what, item->columns[column].data.size,
                 rows);
}

/* An element of a column, which lies anywhere in the message. */
#define AT(item, column, type, index)                                                              \
    (*(type *)memcpy(&(type){0}, (item)->columns[column].data.data + (index) * sizeof(type),       \
                     sizeof(type)))

static void assert_item_is(const trp_item_data *item, const struct expected *expected)
{
    assert_array(item, "observation", 0, 2 * sizeof(float), expected->length);
    assert_array(item, "valid", 5, sizeof(bool), expected->length);
    for (size_t i = 0; i < expected->length; i++) {
        const struct row *row = &expected->rows[i];
        assert_float_equal(AT(item, 0, float, 2 * i), row->observation, 0);
        assert_float_equal(AT(item, 0, float, 2 * i + 1), -row->observation, 0);
        assert_int_equal(AT(item, 1, int32_t, i), row->action);
        assert_float_equal(AT(item, 2, float, i), row->reward, 0);
        assert_float_equal(AT(item, 3, float, i), row->discount, 0);
        assert_int_equal(AT(item, 4, bool, i), row->first);
        assert_int_equal(AT(item, 5, bool, i), row->valid);
        assert_float_equal(AT(item, 7, float, i), row->value, 0);
    }
    assert_int_equal(item->policy_version, expected->version);
}

/* Takes every item out of the queue, in order. */
static void assert_items(struct table_server *at, const struct model *model)
{
    trp_stream *stream;
    trp_item_reader *reader = trp_item_reader_create();
    assert_int_equal(trp_item_sample(&stream, at->channel, "t", (int64_t)model->count, 0), TRP_OK);
    size_t count = 0;
    trp_message *message;
    while (count < model->count && trp_stream_receive(stream, &message, 10000) == TRP_OK) {
        trp_bytes bytes = {trp_message_data(message), trp_message_size(message)};
        assert_int_equal(trp_item_reader_feed(reader, bytes), TRP_OK);
        trp_message_destroy(message);
        trp_item_data item;
        bool more = true;
        while (trp_item_reader_next(reader, &item, &more) == TRP_OK && more)
            assert_item_is(&item, &model->items[count++]);
    }
    assert_int_equal(count, model->count);
    trp_item_reader_destroy(reader);
    trp_stream_destroy(stream);
}

/* `episode`, if there is one, makes the adder, and `options` say what its items are. */
static void check_play(const trp_sequence_options *options, const trp_episode_options *episode,
                       int copies, uint32_t longest, uint64_t seed)
{
    struct table_server at;
    trp_columns extras = {0}, columns = {0};
    struct play play = {.model = xcalloc(1, sizeof *play.model), .copies = copies};
    play.model->options = *options;
    if (play.model->options.period == 0)
        play.model->options.period = options->length;
    trp_columns_add(&extras, "value", &(trp_tensor_spec){.dtype = TRP_FLOAT32});
    trp_sequence_columns(&env, &extras, options, &columns);
    table_server_start(&at, true, &columns);
    trp_adder_options common = {.replay = at.channel,
                                .table = "t",
                                .env = &env,
                                .extras = &extras,
                                .copies = (uint32_t)copies};
    assert_int_equal(episode ? trp_episode_adder_create(&play.adder, &common, episode)
                             : trp_sequence_adder_create(&play.adder, &common, options),
                     TRP_OK);
    trp_rng rng;
    trp_rng_init(&rng, seed, 0);
    for (int copy = 0; copy < copies; copy++)
        begin_episode(&play, copy, 1 + (uint32_t)trp_rng_below(&rng, longest));
    for (int step = 0; step < 150; step++) {
        for (int copy = 0; copy < copies; copy++) {
            play_step(&play, copy, trp_rng_below(&rng, 2) == 0);
            if (play.left[copy] == 0)
                begin_episode(&play, copy, 1 + (uint32_t)trp_rng_below(&rng, longest));
        }
        assert_int_equal(play.adder->impl->push(play.adder, 10000), TRP_OK);
    }
    assert_int_equal(play.adder->impl->flush(play.adder, 10000), TRP_OK);
    assert_int_equal(play.adder->impl->items(play.adder), play.model->count);
    assert_items(&at, play.model);
    trp_adder_destroy(play.adder);
    table_server_end(&at);
    trp_columns_cleanup(&columns);
    trp_columns_cleanup(&extras);
    model_free(play.model);
}

static void items_are_those_of_the_definition(void **state)
{
    (void)state;
    static const struct {
        uint32_t length, period, longest;
        int copies;
    } rows[] = {
        {3, 2, 9, 1}, {3, 2, 9, 3}, {1, 1, 4, 2}, {4, 0, 1, 3}, {2, 5, 30, 2}, {8, 3, 40, 5},
    };
    for (trp_sequence_end end = TRP_END_PAD; end <= TRP_END_CONTINUE; end++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            print_message("end %d, length %u, period %u, %d copies\n", (int)end, rows[i].length,
                          rows[i].period, rows[i].copies);
            check_play(&(trp_sequence_options){rows[i].length, rows[i].period, end, NULL}, NULL,
                       rows[i].copies, rows[i].longest, i + 1);
        }
}

/* Longer ones than share a chunk, too. */
static void an_episode_is_one_item(void **state)
{
    (void)state;
    for (uint32_t longest = 1; longest < 200; longest *= 5)
        for (int pad = 0; pad < 2; pad++)
            check_play(&(trp_sequence_options){.length = longest + 1,
                                               .end = pad ? TRP_END_PAD : TRP_END_TRUNCATE},
                       &(trp_episode_options){.longest = longest, .pad = pad}, 3, longest, longest);
}

static void an_episode_that_is_too_long_ends_the_run_by_name(void **state)
{
    (void)state;
    struct table_server at;
    table_server_start(&at, true, NULL);
    trp_adder *adder;
    trp_adder_options common = {.replay = at.channel, .table = "t", .env = &env, .copies = 2};
    assert_int_equal(trp_episode_adder_create(&adder, &common, &(trp_episode_options){4, true}),
                     TRP_OK);
    float observation[2] = {0};
    int32_t action = 0;
    trp_transition step = {.action = &action, .next_observations = (const void *[]){observation}};
    for (uint32_t copy = 0; copy < 2; copy++)
        adder->impl->first(adder, copy, (const void *[]){observation});
    for (uint32_t steps = 1; steps <= 4; steps++) {
        adder->impl->add(adder, 1, &step);
        assert_int_equal(adder->impl->push(adder, 10000), TRP_OK);
    }
    adder->impl->add(adder, 1, &step);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(adder->impl->push(adder, 10000), TRP_OUT_OF_RANGE);
        assert_string_equal(trp_last_error(), "episode adder: an episode of copy 1 has more than 4 "
                                              "steps, which is longest");
        adder->impl->add(adder, 0, &step);
    }
    assert_int_equal(adder->impl->items(adder), 0);
    trp_adder_destroy(adder);
    trp_episode_options wrong = {.longest = 0};
    assert_int_equal(trp_episode_adder_create(&adder, &common, &wrong), TRP_INVALID_ARGUMENT);
    assert_string_equal(trp_last_error(), "episode adder: longest 0, must be in [1, 65535]");
    table_server_end(&at);
}

/* ---- known ends ------------------------------------------------------------------------------ */

static void known_ends_are_as_in_acme(void **state)
{
    (void)state;
    static const struct {
        uint32_t length, period;
        trp_sequence_end end;
        uint64_t rows;
        bool item;
        uint32_t count, padding;
    } rows[] = {
        {3, 2, TRP_END_WRITE, 6, true, 3, 0},    {3, 2, TRP_END_PAD, 6, true, 2, 1},
        {3, 2, TRP_END_TRUNCATE, 6, true, 2, 0}, {3, 2, TRP_END_CONTINUE, 6, false, 0, 0},
        {3, 2, TRP_END_PAD, 5, false, 0, 0},     {3, 2, TRP_END_WRITE, 2, false, 0, 0},
        {3, 2, TRP_END_PAD, 2, true, 2, 1},      {3, 5, TRP_END_PAD, 4, false, 0, 0},
        {3, 5, TRP_END_TRUNCATE, 6, true, 1, 0}, {80, 40, TRP_END_PAD, 121, true, 41, 39},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sequence_rule rule = {rows[i].length, rows[i].period, rows[i].end};
        uint32_t length, padding;
        assert_int_equal(sequence_end(&rule, rows[i].rows, &length, &padding), rows[i].item);
        if (!rows[i].item)
            continue;
        assert_int_equal(length, rows[i].count);
        assert_int_equal(padding, rows[i].padding);
    }
}

/* ---- extras of the first row ----------------------------------------------------------------- */

static void extras_of_the_first_row_have_no_time_axis(void **state)
{
    (void)state;
    static const char *const names[] = {"core", NULL};
    trp_sequence_options options = {.length = 3, .first_extras = names};
    trp_columns extras = {0}, columns = {0};
    trp_columns_add(&extras, "core",
                    &(trp_tensor_spec){.dtype = TRP_FLOAT32, .rank = 1, .shape = {2}});
    trp_sequence_columns(&env, &extras, &options, &columns);
    const trp_tensor_spec *core = &columns.specs[trp_columns_find(&columns, "core")];
    assert_int_equal(core->rank, 1);
    const trp_tensor_spec *reward = &columns.specs[trp_columns_find(&columns, "reward")];
    assert_int_equal(reward->rank, 1);
    assert_int_equal(reward->shape[0], 3);

    struct table_server at;
    table_server_start(&at, true, &columns);
    trp_adder *adder;
    trp_adder_options common = {.replay = at.channel, .table = "t", .env = &env, .extras = &extras};
    assert_int_equal(trp_sequence_adder_create(&adder, &common, &options), TRP_OK);
    float observation[2] = {0};
    adder->impl->first(adder, 0, (const void *[]){observation});
    for (int t = 0; t < 6; t++) {
        int32_t action = t;
        float core_state[2] = {(float)t, (float)-t};
        adder->impl->add(adder, 0,
                         &(trp_transition){.action = &action,
                                           .discount = 1,
                                           .next_observations = (const void *[]){observation},
                                           .extras = (const void *[]){core_state}});
        assert_int_equal(adder->impl->push(adder, 10000), TRP_OK);
    }
    assert_int_equal(adder->impl->flush(adder, 10000), TRP_OK);
    trp_sampler *sampler;
    trp_batch batch;
    trp_sampler_options sampling = {
        .table = "t", .columns = columns.specs, .column_count = columns.count, .batch_size = 2};
    assert_int_equal(trp_sampler_create(&sampler, at.channel, &sampling), TRP_OK);
    assert_int_equal(trp_sampler_next(sampler, &batch, 10000), TRP_OK);
    const float(*cores)[2] = batch.columns[trp_columns_find(&columns, "core")];
    assert_float_equal(cores[0][0], 0, 0);
    assert_float_equal(cores[1][1], -3, 0); /* rows 0-2, then 3-5 */
    trp_sampler_destroy(sampler);
    trp_adder_destroy(adder);
    table_server_end(&at);
    trp_columns_cleanup(&columns);
    trp_columns_cleanup(&extras);
}

/* ---- items that a table holds back ----------------------------------------------------------- */

/* Each push sends its item, until as many wait in the server (1000) as it reads. */
static void the_last_items_of_many_wait_for_the_table_alone(void **state)
{
    (void)state;
    enum { STEPS = 1100 };
    struct table_server at;
    trp_adder *adder;
    trp_sampler *sampler;
    trp_columns columns = {0};
    const trp_sequence_options options = {.length = 1, .end = TRP_END_WRITE};
    trp_sequence_columns(&env, NULL, &options, &columns);
    table_server_start_with_room(&at, true, 1, &columns);
    trp_adder_options common = {
        .replay = at.channel, .table = "t", .env = &env, .max_in_flight = 2 * STEPS};
    assert_int_equal(trp_sequence_adder_create(&adder, &common, &options), TRP_OK);
    const float observation[2] = {0};
    const int32_t action = 0;
    adder->impl->first(adder, 0, (const void *[]){observation});
    for (int t = 0; t < STEPS; t++) {
        adder->impl->add(adder, 0,
                         &(trp_transition){.action = &action,
                                           .next_observations = (const void *[]){observation}});
        assert_int_equal(adder->impl->push(adder, 0), TRP_OK);
    }
    assert_int_equal(adder->impl->items(adder), STEPS);
    trp_sampler_options sampling = {
        .table = "t", .columns = columns.specs, .column_count = columns.count, .batch_size = 1};
    assert_int_equal(trp_sampler_create(&sampler, at.channel, &sampling), TRP_OK);
    struct deadline deadline = deadline_in_ms(&clock_monotonic, 20000);
    for (int count = 0; count < STEPS;) {
        trp_batch batch;
        trp_status status = trp_sampler_next(sampler, &batch, 100);
        count += status == TRP_OK;
        assert_true(status == TRP_OK || status == TRP_DEADLINE_EXCEEDED);
        assert_false(deadline_passed(deadline, &clock_monotonic));
        assert_int_equal(adder->impl->push(adder, 0), TRP_OK);
    }
    trp_sampler_destroy(sampler);
    trp_adder_destroy(adder);
    table_server_end(&at);
    trp_columns_cleanup(&columns);
}

static void wrong_options_are_refused_by_name(void **state)
{
    (void)state;
    static const char *const nobody[] = {"nobody", NULL};
    const struct {
        trp_sequence_options options;
        const char *words;
    } rows[] = {
        {{.length = 0}, "length 0, must be in [1, 65536]"},
        {{.length = SEQUENCE_MAX + 1}, "length 65537"},
        {{.length = 1, .period = SEQUENCE_MAX + 1}, "period 65537"},
        {{.length = 1, .end = (trp_sequence_end)9}, "end 9"},
        {{.length = 1, .first_extras = nobody}, "no extra is called 'nobody'"},
    };
    trp_adder_options common = {.table = "t", .env = &env};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        trp_adder *adder;
        assert_int_equal(trp_sequence_adder_create(&adder, &common, &rows[i].options),
                         TRP_INVALID_ARGUMENT);
        assert_null(adder);
        assert_non_null(strstr(trp_last_error(), rows[i].words));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_ends_are_as_in_acme),
        cmocka_unit_test(items_are_those_of_the_definition),
        cmocka_unit_test(an_episode_is_one_item),
        cmocka_unit_test(an_episode_that_is_too_long_ends_the_run_by_name),
        cmocka_unit_test(extras_of_the_first_row_have_no_time_axis),
        cmocka_unit_test(the_last_items_of_many_wait_for_the_table_alone),
        cmocka_unit_test(wrong_options_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
