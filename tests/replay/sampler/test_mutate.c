/* The priority writer and the unary calls. */
#include <troupe/sampler.h>

#include "tests/replay/sampler_peer.h"

static void priorities_go_out_without_waiting(void **state)
{
    struct peer *peer = *state;
    trp_priority_writer *writer;
    uint64_t keys[256];
    double priorities[256];
    for (int i = 0; i < 256; i++) {
        keys[i] = (uint64_t)i << 50;
        priorities[i] = i;
    }
    assert_int_equal(trp_priority_writer_create(&writer, peer->channel, "t", 2), TRP_OK);
    for (int i = 0; i < 10; i++)
        assert_int_equal(trp_priority_writer_update(writer, keys, priorities, 256, 5000), TRP_OK);
    assert_int_equal(trp_priority_writer_update(writer, keys, priorities, 0, 0), TRP_OK);
    assert_int_equal(trp_priority_writer_flush(writer, 5000), TRP_OK);
    look(peer);
    assert_int_equal(peer->mutations, 10);
    assert_int_equal(peer->mutated.update_count, 256);
    assert_int_equal(peer->mutated.updates[255].key, keys[255]);
    assert_true(peer->mutated.updates[255].priority == 255);
    trp_priority_writer_destroy(writer);
}

static void a_full_window_of_priorities_has_a_deadline(void **state)
{
    struct peer *peer = *state;
    trp_priority_writer *writer;
    uint64_t key = 1;
    double priority = 2;
    peer->mute = true;
    look(peer);
    assert_int_equal(trp_priority_writer_create(&writer, peer->channel, "t", 2), TRP_OK);
    assert_int_equal(trp_priority_writer_update(writer, &key, &priority, 1, 0), TRP_OK);
    assert_int_equal(trp_priority_writer_update(writer, &key, &priority, 1, 0), TRP_OK);
    assert_int_equal(trp_priority_writer_update(writer, &key, &priority, 1, 20),
                     TRP_DEADLINE_EXCEEDED);
    assert_int_equal(trp_priority_writer_flush(writer, 20), TRP_DEADLINE_EXCEEDED);
    assert_non_null(strstr(trp_last_error(), "2 requests are unanswered"));
    look(peer);
    peer->mute = false;
    look(peer);
    trp_server_run(peer->server, answer_all, peer);
    assert_int_equal(trp_priority_writer_update(writer, &key, &priority, 1, 5000), TRP_OK);
    assert_int_equal(trp_priority_writer_flush(writer, 5000), TRP_OK);
    trp_priority_writer_destroy(writer);
}

static void a_refused_priority_is_reported_once(void **state)
{
    struct peer *peer = *state;
    trp_priority_writer *writer;
    uint64_t key = 1;
    double priority = 2;
    assert_int_equal(trp_priority_writer_create(&writer, peer->channel, "gone", 4), TRP_OK);
    assert_int_equal(trp_priority_writer_update(writer, &key, &priority, 1, 5000), TRP_OK);
    assert_int_equal(trp_priority_writer_flush(writer, 5000), TRP_NOT_FOUND);
    assert_non_null(strstr(trp_last_error(), "Priority table gone was not found"));
    assert_int_equal(trp_priority_writer_flush(writer, 5000), TRP_OK);
    trp_priority_writer_destroy(writer);
    assert_int_equal(trp_priority_writer_create(&writer, peer->channel, "", 4),
                     TRP_INVALID_ARGUMENT);
}

static void items_are_deleted_and_tables_reset(void **state)
{
    struct peer *peer = *state;
    const uint64_t keys[] = {12, 13};
    assert_int_equal(trp_replay_delete(peer->channel, "t", keys, 2, 5000), TRP_OK);
    look(peer);
    assert_int_equal(peer->mutated.deletes.count, 2);
    assert_int_equal(peer->mutated.deletes.keys[1], 13);
    look(peer);
    assert_int_equal(trp_replay_delete(peer->channel, "gone", keys, 2, 5000), TRP_NOT_FOUND);
    assert_int_equal(trp_replay_reset(peer->channel, "t", 5000), TRP_OK);
    look(peer);
    assert_string_equal(peer->reset, "t");
    assert_int_equal(trp_replay_reset(peer->channel, "gone", 5000), TRP_NOT_FOUND);
}

static void an_unanswered_call_ends_at_its_deadline(void **state)
{
    struct peer *peer = *state;
    peer->mute = true;
    look(peer);
    const uint64_t key = 1;
    assert_int_equal(trp_replay_delete(peer->channel, "t", &key, 1, 30), TRP_DEADLINE_EXCEEDED);
    assert_non_null(strstr(trp_last_error(), "MutatePriorities"));
}

static void tables_tell_their_state(void **state)
{
    struct peer *peer = *state;
    trp_table_info tables[2];
    size_t count;
    tables[1].name[0] = '\0';
    assert_int_equal(trp_replay_info(peer->channel, tables, 1, &count, 5000), TRP_OK);
    assert_int_equal(count, 2);
    assert_string_equal(tables[1].name, "");
    assert_int_equal(trp_replay_info(peer->channel, tables, 2, &count, 5000), TRP_OK);
    assert_int_equal(strlen(tables[1].name), 255);
    assert_string_equal(tables[0].name, "t");
    assert_int_equal(tables[0].size, 6);
    assert_int_equal(tables[0].max_size, 100);
    assert_int_equal(tables[0].inserts, 9);
    assert_int_equal(tables[0].max_times_sampled, 3);
    assert_int_equal(tables[0].episodes, 4);
    assert_int_equal(tables[0].episodes_deleted, 2);
    assert_int_equal(tables[0].unique_samples, 5);
    assert_int_equal(tables[0].min_size, 5);
    assert_true(tables[0].samples_per_insert == 2);
    assert_true(tables[0].min_diff == -4);
    assert_true(tables[0].max_diff == 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(priorities_go_out_without_waiting),
        BOTH(a_full_window_of_priorities_has_a_deadline),
        BOTH(a_refused_priority_is_reported_once),
        BOTH(items_are_deleted_and_tables_reset),
        BOTH(an_unanswered_call_ends_at_its_deadline),
        BOTH(tables_tell_their_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
