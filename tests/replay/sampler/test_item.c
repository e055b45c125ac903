/* Whole items of any columns: written, sampled back the same, and refused where they are none. */
#include "tests/replay/replay_fixture.h"

#include <troupe/item.h>

static const float halves[6] = {0.5F, 1.5F, 2.5F, 3.5F, 4.5F, 5.5F};
static const uint8_t names[] = {3, 0, 2, 'a', 'b', 'c', 'd', 'e'}; /* "abc", "", "de" */
static const int64_t answer = 42;

static const trp_item_array columns[] = {
    {.dtype = TRP_FLOAT32, .rank = 2, .shape = {3, 2}, .data = {(const uint8_t *)halves, 24}},
    {.dtype = TRP_STRING, .rank = 1, .shape = {3}, .data = {names, sizeof names}},
    {.dtype = TRP_INT64, .squeezed = true, .data = {(const uint8_t *)&answer, 8}},
    {.dtype = TRP_FLOAT64, .rank = 2, .shape = {0, 3}}, /* no steps */
    {.dtype = TRP_STRING, .rank = 2, .shape = {2, 0}},  /* steps without elements */
};

enum { COLUMNS = 5 };

static trp_item_data item_of(const char *table, uint64_t key)
{
    return (trp_item_data){.table = table,
                           .key = key,
                           .priority = 2.5,
                           .policy_version = 7,
                           .columns = columns,
                           .column_count = COLUMNS};
}

static void assert_same(const trp_item_array *a, const trp_item_array *b)
{
    assert_int_equal(a->dtype, b->dtype);
    assert_int_equal(a->rank, b->rank);
    assert_memory_equal(a->shape, b->shape, a->rank * sizeof *a->shape);
    assert_int_equal(a->squeezed, b->squeezed);
    assert_int_equal(a->data.size, b->data.size);
    if (a->data.size)
        assert_memory_equal(a->data.data, b->data.data, a->data.size);
}

static void items_are_sampled_as_they_were_written(void **state)
{
    struct replay *replay = *state;
    trp_item_writer *writer;
    replay_open(replay, (const char *const[]){"name=t sampler=fifo max_times_sampled=1", NULL});
    assert_int_equal(trp_item_writer_create(&writer, replay->channel), TRP_OK);
    for (uint64_t key = 1; key <= 200; ++key) {
        trp_item_data item = item_of("t", key);
        assert_int_equal(trp_item_writer_put(writer, &item, WAIT_MS), TRP_OK);
    }
    assert_int_equal(trp_item_writer_flush(writer, WAIT_MS), TRP_OK);
    assert_int_equal(trp_item_writer_confirmed(writer), 200);
    trp_item_writer_destroy(writer);

    trp_stream *stream;
    trp_item_reader *reader = trp_item_reader_create();
    assert_int_equal(trp_item_sample(&stream, replay->channel, "t", 200, 1000), TRP_OK);
    for (uint64_t key = 1; key <= 200;) {
        trp_message *message;
        trp_item_data item;
        bool more = true;
        assert_int_equal(trp_stream_receive(stream, &message, WAIT_MS), TRP_OK);
        assert_int_equal(trp_item_reader_feed(reader, bytes_of(message)), TRP_OK);
        trp_message_destroy(message);
        while (trp_item_reader_next(reader, &item, &more) == TRP_OK && more) {
            assert_int_equal(item.key, key++);
            assert_true(item.priority == 2.5);
            assert_int_equal(item.policy_version, 7);
            assert_string_equal(item.table, "t");
            assert_int_equal(item.column_count, COLUMNS);
            for (size_t i = 0; i < COLUMNS; ++i)
                assert_same(&item.columns[i], &columns[i]);
        }
        assert_false(more);
    }
    trp_item_reader_destroy(reader);
    trp_stream_destroy(stream);
}

static void an_item_with_a_known_key_is_not_inserted_twice(void **state)
{
    struct replay *replay = *state;
    trp_item_writer *writer;
    replay_open(replay, (const char *const[]){"name=t", "name=u", NULL});
    assert_int_equal(trp_item_writer_create(&writer, replay->channel), TRP_OK);
    for (int i = 0; i < 3; ++i) {
        trp_item_data t = item_of("t", 5), u = item_of("u", 5);
        assert_int_equal(trp_item_writer_put(writer, &t, WAIT_MS), TRP_OK);
        assert_int_equal(trp_item_writer_put(writer, &u, WAIT_MS), TRP_OK);
    }
    assert_int_equal(trp_item_writer_flush(writer, WAIT_MS), TRP_OK);
    trp_item_writer_destroy(writer);
    assert_int_equal(table_state(replay, "t").size, 1);
    assert_int_equal(table_state(replay, "u").size, 1);
}

static void what_is_no_column_is_refused(void **state)
{
    struct replay *replay = *state;
    trp_item_writer *writer;
    const trp_item_array rows[] = {
        {.dtype = TRP_FLOAT32, .rank = 2, .shape = {3, 3}, .data = columns[0].data},
        {.dtype = TRP_FLOAT32, .rank = 1, .shape = {-1}, .data = columns[0].data},
        {.dtype = TRP_FLOAT32, .rank = 0, .data = {columns[0].data.data, 4}},
        {.dtype = TRP_FLOAT32, .rank = 9, .data = columns[0].data},
        {.dtype = 99, .rank = 1, .shape = {6}, .data = columns[0].data},
        {.dtype = TRP_FLOAT32, .rank = 2, .shape = {INT64_MAX, 8}, .data = columns[0].data},
        {.dtype = TRP_FLOAT32, .rank = 1, .shape = {0}, .data = columns[0].data},
    };
    replay_open(replay, (const char *const[]){"name=t", NULL});
    assert_int_equal(trp_item_writer_create(&writer, replay->channel), TRP_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
        trp_item_data item = {.table = "t", .key = 1, .columns = &rows[i], .column_count = 1};
        assert_int_equal(trp_item_writer_put(writer, &item, WAIT_MS), TRP_INVALID_ARGUMENT);
    }
    trp_item_writer_destroy(writer);
}

static void a_limiter_that_holds_back_is_a_deadline(void **state)
{
    struct replay *replay = *state;
    trp_item_writer *writer;
    trp_stream *stream;
    trp_message *message;
    replay_open(replay, (const char *const[]){"name=q sampler=fifo limiter=queue(1)", NULL});
    assert_int_equal(trp_item_sample(&stream, replay->channel, "q", 1, 10), TRP_OK);
    assert_int_equal(trp_stream_receive(stream, &message, WAIT_MS), TRP_DEADLINE_EXCEEDED);
    trp_stream_destroy(stream);
    assert_int_equal(trp_item_writer_create(&writer, replay->channel), TRP_OK);
    trp_item_data first = item_of("q", 1), second = item_of("q", 2);
    assert_int_equal(trp_item_writer_put(writer, &first, WAIT_MS), TRP_OK);
    assert_int_equal(trp_item_writer_put(writer, &second, WAIT_MS), TRP_OK);
    assert_int_equal(trp_item_writer_flush(writer, 20), TRP_DEADLINE_EXCEEDED);
    assert_non_null(strstr(trp_last_error(), "q"));
    assert_int_equal(trp_item_writer_confirmed(writer), 1);
    trp_item_writer_destroy(writer);
}

static void broken_messages_are_refused(void **state)
{
    (void)state;
    trp_item_reader *reader = trp_item_reader_create();
    assert_int_equal(trp_item_reader_feed(reader, text_bytes("nonsense")), TRP_INVALID_ARGUMENT);
    trp_item_reader_destroy(reader);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, replay_setup, replay_teardown)
    const struct CMUnitTest tests[] = {
        TEST(items_are_sampled_as_they_were_written),
        TEST(an_item_with_a_known_key_is_not_inserted_twice),
        TEST(what_is_no_column_is_refused),
        TEST(a_limiter_that_holds_back_is_a_deadline),
        cmocka_unit_test(broken_messages_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
