/* What a writer sends: items, the chunks they refer to, and messages of them. */
#include "tests/replay/writer/writer_peer.h"

static void single_steps_arrive_confirmed_and_in_order(void **state)
{
    struct peer *peer = *state;
    trp_writer *writer = writer_create(peer, (trp_writer_options){.batch_items = 8});
    for (int i = 0; i < 100; i++) {
        append(writer, i);
        assert_int_equal(newest_step(writer, 1000), TRP_OK);
    }
    assert_int_equal(trp_writer_flush(writer, 0, 5000), TRP_OK);
    look(peer);
    assert_int_equal(trp_writer_confirmed(writer), 100);
    assert_int_equal(peer->item_count, 100);
    assert_true(peer->message_count <= 100 / 8 + 2); /* items share messages */
    assert_int_equal(peer->chunk_count, 100);
    for (int i = 0; i < 100; i++) {
        const struct got_item *item = &peer->items[i];
        assert_string_equal(item->table, "t");
        assert_true(item->priority == 1.5);
        assert_int_equal(item->column_count, COLUMNS);
        for (uint32_t c = 0; c < COLUMNS; c++) {
            assert_int_equal(item->columns[c].index, c);
            assert_int_equal(item->columns[c].length, 1);
            assert_int_equal(item->columns[c].numbers[0], i);
            assert_int_equal(item->columns[c].squeeze, c < 2);
        }
    }
    assert_true(peer->compressed > 0);
    trp_writer_destroy(writer);
}

/* obs n steps back, rewards in between, the newest obs: what an n-step adder asks for. */

static void n_step_items_refer_to_chunks_sent_before(void **state)
{
    struct peer *peer = *state;
    trp_writer *writer = writer_create(peer, (trp_writer_options){.history = 6, .batch_items = 5});
    uint64_t keys[95];
    for (int i = 0; i < 100; i++) {
        append(writer, i);
        if (i < 5)
            continue;
        const trp_item_column columns[] = {
            {.column = 1, .age = 5, .length = 1, .squeeze = true},
            {.column = 0, .age = 5, .length = 5},
            {.column = 1, .age = 0, .length = 1, .squeeze = true},
        };
        assert_int_equal(trp_writer_create_item(writer, "n", 1, columns, 3, 1000, &keys[i - 5]),
                         TRP_OK);
    }
    assert_int_equal(trp_writer_flush(writer, 0, 5000), TRP_OK);
    look(peer);
    assert_int_equal(peer->item_count, 95);
    assert_int_equal(peer->chunk_count, 100); /* each sent once */
    assert_in_range(peer->keep_max, 5, 6);
    for (int i = 0; i < 95; i++) {
        const struct got_item *item = &peer->items[i];
        assert_true(item->key == keys[i]);
        assert_int_equal(item->columns[0].numbers[0], i);
        assert_int_equal(item->columns[1].length, 5);
        for (int j = 0; j < 5; j++)
            assert_int_equal(item->columns[1].numbers[j], i + j);
        assert_int_equal(item->columns[2].numbers[0], i + 5);
    }
    trp_writer_destroy(writer);
}

static void chunks_of_several_steps_are_sliced(void **state)
{
    struct peer *peer = *state;
    trp_writer *writer = writer_create(
        peer, (trp_writer_options){.history = 8, .chunk_length = 4, .batch_items = 2});
    for (int i = 0; i < 42; i++) {
        append(writer, i);
        if (i < 7)
            continue;
        const trp_item_column columns[] = {{.column = 0, .age = 7, .length = 8},
                                           {.column = 3, .age = 2, .length = 2}};
        assert_int_equal(trp_writer_create_item(writer, "s", 1, columns, 2, 1000, NULL), TRP_OK);
    }
    assert_true(trp_writer_confirmed(writer) < 35); /* the last wait for their chunk */
    assert_int_equal(trp_writer_flush(writer, 0, 5000), TRP_OK);
    look(peer);
    assert_int_equal(peer->item_count, 35);
    assert_int_equal(peer->chunk_count, 11); /* ten of 4 steps and one of 2 */
    for (int i = 0; i < 35; i++) {
        for (int j = 0; j < 8; j++)
            assert_int_equal(peer->items[i].columns[0].numbers[j], i + j);
        assert_int_equal(peer->items[i].columns[1].numbers[0], i + 5);
        assert_int_equal(peer->items[i].columns[1].numbers[1], i + 6);
    }
    trp_writer_destroy(writer);
}

static void an_episode_ends_confirmed_and_forgotten(void **state)
{
    struct peer *peer = *state;
    trp_writer *writer = writer_create(peer, (trp_writer_options){.history = 4, .chunk_length = 3});
    const trp_item_column two = {.column = 0, .age = 1, .length = 2};
    for (int episode = 0; episode < 3; episode++) {
        for (int i = 0; i < 5; i++)
            append(writer, 10 * episode + i);
        assert_int_equal(trp_writer_create_item(writer, "e", 1, &two, 1, 1000, NULL), TRP_OK);
        assert_int_equal(trp_writer_end_episode(writer, false, 5000), TRP_OK);
        look(peer);
        assert_int_equal(trp_writer_confirmed(writer), episode + 1);
        assert_int_equal(peer->items[episode].columns[0].numbers[1], 10 * episode + 4);
        append(writer, 99);
        assert_int_equal(trp_writer_create_item(writer, "e", 1, &two, 1, 1000, NULL),
                         TRP_INVALID_ARGUMENT);
        assert_int_equal(trp_writer_end_episode(writer, false, 5000), TRP_OK);
    }
    trp_writer_destroy(writer);
}

static void items_that_no_steps_can_make_are_refused(void **state)
{
    struct peer *peer = *state;
    trp_writer *writer = writer_create(peer, (trp_writer_options){.history = 2});
    for (int i = 0; i < 3; i++)
        append(writer, i);
    static const trp_item_column wrong[] = {
        {.column = COLUMNS, .length = 1},                      /* no such column */
        {.column = 0, .age = 2, .length = 1},                  /* left the history */
        {.column = 0, .age = 0, .length = 2},                  /* the future */
        {.column = 0, .age = 0, .length = 0},                  /* nothing */
        {.column = 0, .age = 1, .length = 2, .squeeze = true}, /* two steps squeezed */
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(trp_writer_create_item(writer, "t", 1, &wrong[i], 1, 0, NULL),
                         TRP_INVALID_ARGUMENT);
    const trp_item_column fine = {.column = 0, .length = 1};
    assert_int_equal(trp_writer_create_item(writer, "t", 1, &fine, 0, 0, NULL),
                     TRP_INVALID_ARGUMENT);
    double nan = __builtin_nan("");
    assert_int_equal(trp_writer_create_item(writer, "t", nan, &fine, 1, 0, NULL),
                     TRP_INVALID_ARGUMENT);
    assert_int_equal(trp_writer_flush(writer, 0, 1000), TRP_OK);
    look(peer);
    assert_int_equal(peer->item_count, 0);
    trp_writer_destroy(writer);
}

static void columns_that_are_no_tensors_are_refused(void **state)
{
    struct peer *peer = *state;
    trp_writer *writer;
    trp_tensor_spec column = {.name = "x", .dtype = (trp_dtype)7};
    trp_writer_options options = {.columns = &column, .column_count = 1};
    assert_int_equal(trp_writer_create(&writer, peer->channel, &options), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "(x)"));
    column = (trp_tensor_spec){.dtype = TRP_FLOAT32, .rank = 1, .shape = {1 << 30}};
    options.chunk_length = 4;
    assert_int_equal(trp_writer_create(&writer, peer->channel, &options), TRP_INVALID_ARGUMENT);
    options.column_count = 0;
    assert_int_equal(trp_writer_create(&writer, peer->channel, &options), TRP_INVALID_ARGUMENT);
    assert_null(writer);
}

/* An environment that never ends an episode must not take the machine's memory with it. */
static void a_history_takes_no_more_than_its_bytes(void **state)
{
    struct peer *peer = *state;
    const size_t step_bytes = sizeof(int64_t) + 3 * sizeof(float) + 2 * BIG;
    trp_writer *writer =
        writer_create(peer, (trp_writer_options){.history = 100, .history_bytes = 20 * step_bytes});
    struct step step = make_step(0);
    const void *columns[COLUMNS];
    size_t size, steps;
    for (size_t i = 0; i < COLUMNS; i++)
        columns[i] = step_column(&step, i, &size);
    for (int episode = 0; episode < 2; episode++) {
        for (steps = 0; trp_writer_append(writer, columns) == TRP_OK && steps < 100; steps++)
            ;
        assert_in_range(steps, 15, 20); /* a chunk is a little more than its steps */
        assert_int_equal(trp_writer_append_part(writer, columns, true), TRP_RESOURCE_EXHAUSTED);
        assert_non_null(strstr(trp_last_error(), "history_bytes="));
        assert_int_equal(trp_writer_episode_steps(writer), steps);
        const trp_item_column all = {.column = 0, .age = 14, .length = 15};
        assert_int_equal(trp_writer_create_item(writer, "e", 1, &all, 1, 1000, NULL), TRP_OK);
        assert_int_equal(trp_writer_end_episode(writer, false, 5000), TRP_OK);
    }
    trp_writer_destroy(writer);

    /* One that is full takes no more; what it takes at once is refused before. */
    writer = writer_create(peer, (trp_writer_options){.history = 10, .history_bytes = 11 * 2048});
    for (int i = 0; i < 100; i++)
        append(writer, i);
    trp_writer_destroy(writer);
    trp_tensor_spec column = {.name = "x", .dtype = TRP_UINT8};
    trp_writer_options options = {
        .columns = &column, .column_count = 1, .history = UINT32_MAX}; /* "all of them" */
    assert_int_equal(trp_writer_create(&writer, peer->channel, &options), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "column 0 (x): a history of 4294967295 steps"));
    options.history = 1;
    options.chunk_length = UINT32_MAX;
    options.history_bytes = 1 << 20;
    assert_int_equal(trp_writer_create(&writer, peer->channel, &options), TRP_INVALID_ARGUMENT);
}

static void equal_seeds_give_equal_keys(void **state)
{
    struct peer *peer = *state;
    uint64_t keys[2];
    const trp_item_column column = {.column = 0, .length = 1};
    for (int i = 0; i < 2; i++) {
        trp_writer *writer = writer_create(peer, (trp_writer_options){0});
        append(writer, 1);
        assert_int_equal(trp_writer_create_item(writer, "t", 1, &column, 1, 0, &keys[i]), TRP_OK);
        trp_writer_destroy(writer);
    }
    assert_true(keys[0] == keys[1]);
}

static void big_messages_are_cut_by_size(void **state)
{
    struct peer *peer = *state;
    trp_writer *writer = writer_create(
        peer, (trp_writer_options){
                  .chunk_length = 16, .history = 16, .batch_items = 1000, .max_in_flight = 4000});
    const trp_item_column whole = {.column = 3, .age = 15, .length = 16};
    for (int i = 0; i < 1600; i++) {
        append(writer, i);
        if (i % 16 == 15)
            assert_int_equal(trp_writer_create_item(writer, "b", 1, &whole, 1, 0, NULL), TRP_OK);
    }
    assert_int_equal(trp_writer_flush(writer, 0, 10000), TRP_OK);
    look(peer);
    assert_int_equal(peer->item_count, 100);
    assert_true(peer->message_count >= 2); /* 1.2 MB of noise */
    trp_writer_destroy(writer);
}

static void forget_items(void *peer)
{
    ((struct peer *)peer)->item_count = 0;
}

/* Items as small as they get: a moment of a busy machine may look like a slow writer, but not
 * hundreds. What gathers while the peer takes nothing goes in one message, so only the items in
 * flight bound it. */
static void messages_grow_while_items_come_fast(void **state)
{
    enum { USUAL = 64, MOST = 1024, BURST = 1024, ROUNDS = 400 };
    static const trp_item_column number = {.column = 0, .length = 1, .squeeze = true};
    struct peer *peer = look(*state);
    trp_writer *writer;
    assert_int_equal(trp_writer_create(&writer, peer->channel,
                                       &(trp_writer_options){.columns = step_columns,
                                                             .column_count = 1,
                                                             .max_in_flight = MOST}),
                     TRP_OK);
    for (int round = 0; look(peer)->message_items <= USUAL && round < ROUNDS; round++) {
        for (int64_t i = 0; i < BURST; i++) {
            assert_int_equal(trp_writer_append(writer, (const void *[]){&i}), TRP_OK);
            assert_int_equal(trp_writer_create_item(writer, "t", 1, &number, 1, 5000, NULL),
                             TRP_OK);
        }
        assert_int_equal(trp_writer_flush(writer, 0, 5000), TRP_OK);
        trp_server_run(peer->server, forget_items, peer);
    }
    trp_writer_destroy(writer);
    assert_in_range(look(peer)->message_items, USUAL + 1, MOST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(single_steps_arrive_confirmed_and_in_order),
        BOTH(n_step_items_refer_to_chunks_sent_before),
        BOTH(chunks_of_several_steps_are_sliced),
        BOTH(an_episode_ends_confirmed_and_forgotten),
        BOTH(items_that_no_steps_can_make_are_refused),
        BOTH(columns_that_are_no_tensors_are_refused),
        BOTH(a_history_takes_no_more_than_its_bytes),
        BOTH(equal_seeds_give_equal_keys),
        BOTH(big_messages_are_cut_by_size),
        BOTH(messages_grow_while_items_come_fast),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
