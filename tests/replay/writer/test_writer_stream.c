/* What a writer waits for: its window, confirmations, and servers that went away. */
#include "tests/replay/writer/writer_peer.h"

static void a_full_window_blocks_until_its_deadline_and_loses_nothing(void **state)
{
    struct peer *peer = *state;
    trp_writer *writer =
        writer_create(peer, (trp_writer_options){.max_in_flight = 10, .batch_items = 4});
    trp_server_run(peer->server, set_flag, &peer->hold);
    for (int i = 0; i < 10; i++) {
        append(writer, i);
        assert_int_equal(newest_step(writer, 1000), TRP_OK);
    }
    append(writer, 10);
    assert_int_equal(newest_step(writer, 30), TRP_DEADLINE_EXCEEDED);
    assert_non_null(strstr(trp_last_error(), "table 't'"));
    assert_int_equal(newest_step(writer, 0), TRP_DEADLINE_EXCEEDED);
    assert_int_equal(trp_writer_flush(writer, 3, 30), TRP_DEADLINE_EXCEEDED);
    assert_non_null(strstr(trp_last_error(), "table 't'"));
    assert_int_equal(trp_writer_end_episode(writer, false, 0), TRP_DEADLINE_EXCEEDED);
    trp_server_run(peer->server, clear_flag, &peer->hold);
    trp_server_run(peer->server, confirm_work, peer);
    assert_int_equal(newest_step(writer, 5000), TRP_OK);
    assert_int_equal(trp_writer_flush(writer, 0, 5000), TRP_OK);
    look(peer);
    assert_int_equal(peer->item_count, 11);
    assert_int_equal(peer->items[10].columns[0].numbers[0], 10);
    trp_writer_destroy(writer);
}

static uint32_t room_while_held(struct peer *peer, trp_writer *writer)
{
    uint32_t room = 0;
    trp_server_run(peer->server, set_flag, &peer->hold);
    for (append(writer, 0); newest_step(writer, 0) == TRP_OK; append(writer, 0))
        room++;
    trp_server_run(peer->server, clear_flag, &peer->hold);
    trp_server_run(peer->server, confirm_work, peer);
    return room;
}

static void a_window_grows_while_the_server_confirms_fast(void **state)
{
    enum { USUAL = 10, FAST = 40, BURST = 200, ROUNDS = 100 };
    struct peer *peer = *state;
    trp_writer *writer =
        writer_create(peer, (trp_writer_options){.max_in_flight = USUAL, .fast_in_flight = FAST});
    uint32_t room = room_while_held(peer, writer);
    assert_int_equal(room, USUAL);
    /* A moment of a busy machine may look like a slow server. */
    for (int round = 0; room == USUAL && round < ROUNDS; round++) {
        for (int i = 0; i < BURST; append(writer, i++))
            assert_int_equal(newest_step(writer, 5000), TRP_OK);
        assert_int_equal(trp_writer_flush(writer, 0, 5000), TRP_OK);
        look(peer)->item_count = 0;
        room = room_while_held(peer, writer);
    }
    assert_in_range(room, USUAL + 1, FAST);
    trp_writer_destroy(writer);
}

static void a_flush_may_leave_items_in_flight(void **state)
{
    struct peer *peer = *state;
    trp_writer *writer = writer_create(peer, (trp_writer_options){.batch_items = 4});
    trp_server_run(peer->server, set_flag, &peer->hold);
    for (int i = 0; i < 6; i++) {
        append(writer, i);
        assert_int_equal(newest_step(writer, 1000), TRP_OK);
    }
    assert_int_equal(trp_writer_flush(writer, 6, 1000), TRP_OK);
    assert_int_equal(trp_writer_flush(writer, 5, 20), TRP_DEADLINE_EXCEEDED);
    trp_server_run(peer->server, confirm_work, peer);
    assert_int_equal(trp_writer_flush(writer, 0, 5000), TRP_OK);
    look(peer);
    assert_int_equal(trp_writer_confirmed(writer), 6);
    trp_writer_destroy(writer);
}

static void confirmations_in_any_order_count_once(void **state)
{
    struct peer *peer = *state;
    peer->shuffle = true;
    trp_writer *writer =
        writer_create(peer, (trp_writer_options){.max_in_flight = 16, .batch_items = 8});
    for (int i = 0; i < 300; i++) {
        append(writer, i);
        assert_int_equal(newest_step(writer, 5000), TRP_OK);
    }
    assert_int_equal(trp_writer_flush(writer, 0, 5000), TRP_OK);
    look(peer);
    assert_int_equal(trp_writer_confirmed(writer), 300);
    assert_int_equal(peer->item_count, 300);
    trp_writer_destroy(writer);
}

static void every_item_arrived(const struct peer *peer, const uint64_t *keys, int count)
{
    for (int i = 0; i < count; i++) {
        bool found = false;
        for (uint32_t j = 0; j < peer->item_count && !found; j++)
            found = peer->items[j].key == keys[i] && peer->items[j].columns[0].numbers[0] == i;
        assert_true(found);
    }
}

static void a_lost_stream_is_reopened_and_nothing_is_lost(void **state)
{
    struct peer *peer = *state;
    const trp_status transient[] = {TRP_UNAVAILABLE, TRP_CANCELLED, TRP_OK};
    for (size_t t = 0; t < 3; t++) {
        uint64_t keys[200];
        peer->item_count = peer->message_count = 0;
        peer->break_at = 7;
        peer->break_status = transient[t];
        trp_writer *writer = writer_create(
            peer, (trp_writer_options){.history = 3, .chunk_length = 2, .batch_items = 4});
        for (int i = 0; i < 200; i++) {
            append(writer, i);
            const trp_item_column column = {
                .column = 0, .age = i < 2 ? 0 : 2, .length = i < 2 ? 1 : 3};
            const trp_item_column numbers[] = {{.column = 0, .length = 1, .squeeze = true}, column};
            assert_int_equal(trp_writer_create_item(writer, "r", 1, numbers, 2, 5000, &keys[i]),
                             TRP_OK);
        }
        assert_int_equal(trp_writer_flush(writer, 0, 5000), TRP_OK);
        look(peer);
        assert_int_equal(trp_writer_confirmed(writer), 200);
        every_item_arrived(peer, keys, 200);
        trp_writer_destroy(writer);
        look(peer);
    }
}

static void other_ends_of_the_stream_are_final_and_keep_their_words(void **state)
{
    struct peer *peer = *state;
    peer->break_at = 1;
    peer->break_status = TRP_NOT_FOUND;
    trp_writer *writer = writer_create(peer, (trp_writer_options){.batch_items = 1});
    append(writer, 1);
    trp_status status = newest_step(writer, 1000);
    assert_true(status == TRP_OK || status == TRP_NOT_FOUND);
    assert_int_equal(trp_writer_flush(writer, 0, 1000), TRP_NOT_FOUND);
    assert_non_null(strstr(trp_last_error(), "the peer said so"));
    assert_int_equal(newest_step(writer, 1000), TRP_NOT_FOUND);
    assert_non_null(strstr(trp_last_error(), "the peer said so"));
    assert_int_equal(trp_writer_end_episode(writer, false, 1000), TRP_NOT_FOUND);
    struct step step = make_step(0);
    const void *columns[COLUMNS] = {&step.number, step.obs, step.zeros, step.noise};
    assert_int_equal(trp_writer_append(writer, columns), TRP_NOT_FOUND);
    trp_writer_destroy(writer);
}

static void a_server_that_is_not_there_costs_the_deadline_only(void **state)
{
    (void)state;
    struct peer none = {0};
    assert_int_equal(trp_channel_create(&none.channel, "unix:/tmp/troupe-no-such-socket", NULL),
                     TRP_OK);
    trp_writer *writer = writer_create(&none, (trp_writer_options){.max_in_flight = 2});
    for (int i = 0; i < 2; i++) {
        append(writer, i);
        assert_int_equal(newest_step(writer, 0), TRP_OK);
    }
    assert_int_equal(newest_step(writer, 50), TRP_UNAVAILABLE);
    assert_non_null(strstr(trp_last_error(), "unix:/tmp/troupe-no-such-socket"));
    assert_int_equal(trp_writer_flush(writer, 0, 50), TRP_UNAVAILABLE);
    trp_writer_destroy(writer);
    trp_channel_destroy(none.channel);
}

static void a_server_that_takes_no_more_does_not_block_creation(void **state)
{
    struct peer *peer = *state;
    peer->no_read = true;
    trp_writer *writer =
        writer_create(peer, (trp_writer_options){.max_in_flight = 64, .batch_items = 4});
    for (int i = 0; i < 64; i++) {
        append(writer, i);
        assert_int_equal(newest_step(writer, 0), TRP_OK);
    }
    assert_int_equal(trp_writer_flush(writer, 0, 50), TRP_DEADLINE_EXCEEDED);
    trp_writer_destroy(writer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(a_full_window_blocks_until_its_deadline_and_loses_nothing),
        BOTH(a_window_grows_while_the_server_confirms_fast),
        BOTH(a_flush_may_leave_items_in_flight),
        BOTH(confirmations_in_any_order_count_once),
        BOTH(a_lost_stream_is_reopened_and_nothing_is_lost),
        BOTH(other_ends_of_the_stream_are_final_and_keep_their_words),
        BOTH(a_server_that_takes_no_more_does_not_block_creation),
        cmocka_unit_test(a_server_that_is_not_there_costs_the_deadline_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
