/* The pattern adder against its definition: patterns over the rows of each copy's episodes, through
 * a real server. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/adder.h>
#include <troupe/item.h>
#include "tests/actor/table_server.h"
#include "tests/core/patience.h"

enum { COPIES = 3, WINDOW = 3, ITEMS_MAX = 1024, ROWS_MAX = 16 };

static const trp_env_spec env = {
    .name = "test",
    .observations = {{.name = "o", .dtype = TRP_FLOAT32, .rank = 1, .shape = {2}}},
    .action_kind = TRP_ACTION_DISCRETE,
    .action_count = 4};

/* The last WINDOW rows after every row, and the final observation of an episode. */
enum { OBSERVATION, ACTION, REWARD, DISCOUNT, FIRST, VALID };
static const trp_pattern_column window[] = {{OBSERVATION, -WINDOW, 0, 1},
                                            {REWARD, -WINDOW, 0, 1},
                                            {VALID, -WINDOW, 0, 1},
                                            {FIRST, 0, -1, 0}};
static const trp_pattern_column final[] = {{OBSERVATION, 0, -1, 0}};
static const trp_condition at_end = {.kind = TRP_END_EPISODE, .test = TRP_EQUALS, .value = 1};
static const trp_pattern patterns[] = {
    {.table = "t", .columns = window, .column_count = 4},
    {.table = "t",
     .columns = final,
     .column_count = 1,
     .conditions = &at_end,
     .condition_count = 1},
};

/* ---- the definition -------------------------------------------------------------------------- */

struct row {
    float observation, reward;
    bool first, valid;
};

struct expected {
    size_t count; /* of rows; 0: the final observation, in the first of them */
    struct row rows[WINDOW];
    uint64_t version;
};

struct play {
    trp_adder *adder;
    struct table_server *at;
    bool held; /* the table takes an item when the one before was taken */
    size_t taken;
    float clock;
    struct {
        struct row rows[ROWS_MAX];
        size_t count;
        float latest;
        uint64_t version;
    } copies[COPIES];
    struct expected items[ITEMS_MAX];
    size_t count;
};

static void expect_row(struct play *play, uint32_t copy, struct row row)
{
    size_t count = ++play->copies[copy].count;
    play->copies[copy].rows[count - 1] = row;
    if (count < WINDOW)
        return;
    struct expected *item = &play->items[play->count++];
    item->count = WINDOW;
    memcpy(item->rows, &play->copies[copy].rows[count - WINDOW], sizeof item->rows);
    item->version = play->copies[copy].version;
}

static void begin_episode(struct play *play, uint32_t copy)
{
    float observation[2] = {++play->clock, -play->clock};
    observation[1] = -observation[0];
    play->copies[copy].latest = observation[0];
    play->copies[copy].count = 0;
    play->adder->impl->first(play->adder, copy, (const void *[]){observation});
}

static void assert_item_is(const trp_item_data *item, const struct expected *expected)
{
    const float *observations = (const void *)item->columns[0].data.data;
    assert_int_equal(item->policy_version, expected->version);
    if (expected->count == 0) {
        assert_int_equal(item->column_count, 1);
        assert_float_equal(observations[0], expected->rows[0].observation, 0);
        return;
    }
    assert_int_equal(item->column_count, 4);
    const float *rewards = (const void *)item->columns[1].data.data;
    const bool *valids = (const void *)item->columns[2].data.data;
    for (size_t i = 0; i < expected->count; i++) {
        assert_float_equal(observations[2 * i], expected->rows[i].observation, 0);
        assert_float_equal(observations[2 * i + 1], -expected->rows[i].observation, 0);
        assert_float_equal(rewards[i], expected->rows[i].reward, 0);
        assert_int_equal(valids[i], expected->rows[i].valid);
    }
    const bool *first = (const void *)item->columns[3].data.data;
    assert_int_equal(*first, expected->rows[WINDOW - 1].first);
}

/* The next items out of the queue, up to `most`; each is waited for. */
static void take_items(struct play *play, size_t most, int64_t timeout_ms)
{
    trp_stream *stream;
    trp_message *message;
    trp_item_reader *reader = trp_item_reader_create();
    assert_int_equal(trp_item_sample(&stream, play->at->channel, "t", (int64_t)most, timeout_ms),
                     TRP_OK);
    size_t end = play->taken + most;
    while (play->taken < end && trp_stream_receive(stream, &message, 10000) == TRP_OK) {
        trp_bytes bytes = {trp_message_data(message), trp_message_size(message)};
        assert_int_equal(trp_item_reader_feed(reader, bytes), TRP_OK);
        trp_message_destroy(message);
        trp_item_data item;
        bool more = true;
        while (trp_item_reader_next(reader, &item, &more) == TRP_OK && more)
            assert_item_is(&item, &play->items[play->taken++]);
    }
    trp_item_reader_destroy(reader);
    trp_stream_destroy(stream);
}

/* Everything is confirmed before the next copy's step, so that the table has all in this order. */
static void play_step(struct play *play, uint32_t copy, bool last)
{
    float next[2] = {++play->clock, 0};
    int32_t action = (int32_t)next[0] % 4;
    next[1] = -next[0];
    trp_transition transition = {.action = &action,
                                 .reward = next[0] / 2,
                                 .discount = 1,
                                 .next_observations = (const void *[]){next},
                                 .last = last,
                                 .version = (uint64_t)next[0]};
    play->copies[copy].version = transition.version;
    expect_row(play, copy,
               (struct row){play->copies[copy].latest, transition.reward,
                            play->copies[copy].count == 0, true});
    play->adder->impl->add(play->adder, copy, &transition);
    play->copies[copy].latest = next[0];
    if (last) {
        expect_row(play, copy, (struct row){.observation = next[0]});
        play->items[play->count++] =
            (struct expected){.rows = {{.observation = next[0]}}, .version = transition.version};
        begin_episode(play, copy);
    }
    trp_status status = play->adder->impl->push(play->adder, play->held ? 0 : 10000);
    for (int tries = 0; play->held && status == TRP_DEADLINE_EXCEEDED && tries < 1000; tries++) {
        take_items(play, 1, 20);
        status = play->adder->impl->push(play->adder, 0);
    }
    assert_int_equal(status, TRP_OK);
    if (!play->held)
        assert_int_equal(play->adder->impl->flush(play->adder, 10000), TRP_OK);
}

static void patterns_make_items_of_each_copys_episodes(void **state)
{
    (void)state;
    struct table_server at;
    struct play *play = xcalloc(1, sizeof *play);
    table_server_start(&at, true, NULL);
    play->at = &at;
    trp_adder_options options = {.replay = at.channel, .env = &env, .copies = COPIES, .seed = 5};
    assert_int_equal(trp_pattern_adder_create(&play->adder, &options, patterns, 2), TRP_OK);
    for (uint32_t copy = 0; copy < COPIES; copy++)
        begin_episode(play, copy);
    play_step(play, 1, false);
    play_step(play, 1, false);
    begin_episode(play, 1); /* nothing is made across what was dropped */
    for (uint32_t step = 1; step <= 36; step++)
        for (uint32_t copy = 0; copy < COPIES; copy++)
            play_step(play, copy, step % (2 * copy + 1) == 0);
    assert_int_equal(play->adder->impl->items(play->adder), play->count);
    take_items(play, play->count, 10000);
    assert_int_equal(play->taken, play->count);
    trp_adder_destroy(play->adder);
    table_server_end(&at);
    free(play);
}

/* A queue for one item: pushing goes on where it was when the one before was taken. */
static void a_table_that_holds_back_loses_no_item_and_gets_none_twice(void **state)
{
    (void)state;
    struct table_server at;
    struct play *play = xcalloc(1, sizeof *play);
    table_server_start_with_room(&at, true, 1, NULL);
    play->held = true;
    play->at = &at;
    trp_adder_options options = {.replay = at.channel, .env = &env, .max_in_flight = 1, .seed = 5};
    assert_int_equal(trp_pattern_adder_create(&play->adder, &options, patterns, 2), TRP_OK);
    begin_episode(play, 0);
    for (uint32_t step = 1; step <= 12; step++)
        play_step(play, 0, step % 4 == 0);
    assert_int_equal(play->adder->impl->items(play->adder), play->count);
    if (play->taken < play->count)
        take_items(play, play->count - play->taken, 10000);
    assert_int_equal(play->taken, play->count);
    trp_adder_destroy(play->adder);
    table_server_end(&at);
    free(play);
}

static void a_patterns_columns_are_those_of_its_items(void **state)
{
    (void)state;
    trp_columns columns = {0};
    trp_pattern_columns(&env, NULL, &patterns[0], &columns);
    assert_int_equal(columns.count, 4);
    assert_string_equal(columns.specs[1].name, "reward");
    assert_int_equal(columns.specs[1].rank, 1);
    assert_int_equal(columns.specs[1].shape[0], WINDOW);
    assert_string_equal(columns.specs[3].name, "first");
    assert_int_equal(columns.specs[3].rank, 0);
    trp_columns_cleanup(&columns);
}

static void patterns_that_are_none_are_refused(void **state)
{
    (void)state;
    static const trp_pattern_column none[] = {{40, -1, 0, 1}};
    trp_adder *adder;
    trp_adder_options options = {.env = &env};
    assert_int_equal(trp_pattern_adder_create(&adder, &options, NULL, 0), TRP_INVALID_ARGUMENT);
    assert_string_equal(trp_last_error(), "pattern adder: no patterns");
    const trp_pattern pattern = {.table = "t", .columns = none, .column_count = 1};
    assert_int_equal(trp_pattern_adder_create(&adder, &options, &pattern, 1), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "column 40 of 7"));
    assert_null(adder);
}

/* Nothing but pushes: of 64 items that share a message there is one, and no episode ends. */
static void an_item_of_a_slow_environment_does_not_wait_for_a_whole_message(void **state)
{
    (void)state;
    struct table_server at;
    table_server_start(&at, true, NULL);
    trp_adder *adder;
    trp_adder_options options = {.replay = at.channel, .env = &env};
    assert_int_equal(trp_pattern_adder_create(&adder, &options, patterns, 2), TRP_OK);
    float observation[2] = {1, -1};
    int32_t action = 1;
    const void *observations[] = {observation};
    trp_transition transition = {
        .action = &action, .discount = 1, .next_observations = observations};
    adder->impl->first(adder, 0, observations);
    for (int step = 0; step < WINDOW; step++)
        adder->impl->add(adder, 0, &transition);
    trp_table_info info = {.size = 0};
    struct deadline deadline = patience();
    while (info.size == 0) {
        size_t count;
        assert_int_equal(adder->impl->push(adder, 0), TRP_OK);
        assert_int_equal(trp_replay_info(at.channel, &info, 1, &count, 10000), TRP_OK);
        look_again_soon(deadline, "the item");
    }
    assert_int_equal(info.size, 1);
    trp_adder_destroy(adder);
    table_server_end(&at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_make_items_of_each_copys_episodes),
        cmocka_unit_test(a_table_that_holds_back_loses_no_item_and_gets_none_twice),
        cmocka_unit_test(an_item_of_a_slow_environment_does_not_wait_for_a_whole_message),
        cmocka_unit_test(a_patterns_columns_are_those_of_its_items),
        cmocka_unit_test(patterns_that_are_none_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
