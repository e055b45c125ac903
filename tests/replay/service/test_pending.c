/* Inserts that wait: for the limiter, for a client that reads, sent twice; and what they may hold.
 */
#include <malloc.h>

#include "replay/service/limits.h"
#include "tests/core/captured.h"
#include "tests/replay/replay_fixture.h"

static void send_items(trp_stream *stream, const char *table, uint64_t first, uint64_t count)
{
    struct built *built = built_create(0);
    for (uint64_t key = first; key < first + count; ++key) {
        add_chunk(built, (struct chunk_spec){.key = key, .value = (int64_t)key});
        add_simple_item(built, key, table, 1, key);
    }
    send_built(stream, built);
    built_destroy(built);
}

static void a_half_closed_stream_ends_when_the_limiter_let_everything_in(void **state)
{
    struct replay *replay = *state;
    static const uint64_t keys[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    OPEN("name=t sampler=fifo limiter=queue(4) max_times_sampled=1 max_size=100");
    trp_stream *stream = open_stream(replay, "InsertStream");
    send_items(stream, "t", 1, 9);
    assert_int_equal(trp_stream_half_close(stream), TRP_OK);
    assert_confirmed(stream, keys, 4);
    trp_message *none;
    assert_int_equal(trp_stream_receive(stream, &none, 0), TRP_DEADLINE_EXCEEDED);
    assert_int_equal(table_state(replay, "t").size, 4);

    struct sampled samples[9];
    trp_stream *sampler = open_stream(replay, "SampleStream");
    send_sample_request(sampler, "t", 9, -1);
    receive_samples(sampler, samples, 9);
    for (uint32_t i = 0; i < 9; ++i)
        assert_int_equal(samples[i].key, i + 1);
    assert_confirmed(stream, keys + 4, 5);
    assert_ends(stream, TRP_OK, NULL);
    trp_stream_destroy(sampler);
}

static void a_blocked_stream_is_not_read(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t sampler=fifo limiter=queue(2) max_times_sampled=1 max_size=100");
    trp_stream *stream = open_stream(replay, "InsertStream");
    struct built *built = built_create(0);
    uint64_t sent = 0;
    trp_status status = TRP_OK;
    while (status == TRP_OK && sent < 100) {
        ++sent;
        add_chunk(built, (struct chunk_spec){.key = sent, .value = (int64_t)sent});
        add_simple_item(built, sent, "t", 1, sent);
        status = try_send_built(stream, built, 0);
    }
    built_destroy(built);
    assert_int_equal(status, TRP_DEADLINE_EXCEEDED);
    assert_in_range(sent, 3, 20); /* a tenth of max_size is queued, then no more is read */

    struct sampled samples[3];
    trp_stream *sampler = open_stream(replay, "SampleStream");
    send_sample_request(sampler, "t", 3, -1);
    receive_samples(sampler, samples, 3);
    uint64_t key = 1000;
    send_simple(stream, key, "t", 1, 1); /* it is read again */
    trp_stream_destroy(sampler);
    trp_stream_destroy(stream);
}

static void queued_inserts_of_a_dead_stream_are_inserted(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t sampler=fifo limiter=queue(2) max_times_sampled=1 max_size=100");
    trp_stream *stream = open_stream(replay, "InsertStream");
    send_items(stream, "t", 1, 5);
    assert_int_equal(table_state(replay, "t").size, 2);
    trp_stream_destroy(stream);
    struct sampled samples[5];
    trp_stream *sampler = open_stream(replay, "SampleStream");
    send_sample_request(sampler, "t", 5, -1);
    receive_samples(sampler, samples, 5);
    for (uint32_t i = 0; i < 5; ++i)
        assert_int_equal(samples[i].key, i + 1);
    assert_int_equal(table_state(replay, "t").inserts, 5);
    trp_stream_destroy(sampler);
}

/* Takes as many out of table t. */
static void take(const struct replay *replay, uint64_t first, uint32_t count)
{
    struct sampled samples[16];
    trp_stream *sampler = open_stream(replay, "SampleStream");
    send_sample_request(sampler, "t", count, -1);
    receive_samples(sampler, samples, count);
    for (uint32_t i = 0; i < count; ++i)
        assert_int_equal(samples[i].key, first + i);
    trp_stream_destroy(sampler);
}

/* `lost`: the server knows that the first stream is gone. */
static void send_again(const struct replay *replay, bool lost)
{
    static const uint64_t keys[] = {1, 2, 3, 4, 5, 6};
    trp_stream *first = open_stream(replay, "InsertStream");
    trp_stream *again = open_stream(replay, "InsertStream");
    send_items(first, "t", 1, 6);
    assert_confirmed(first, keys, 2);
    if (lost)
        trp_stream_destroy(first);
    send_items(again, "t", 3, 4);
    take(replay, 1, 2); /* what comes in for them is confirmed, not what waits behind it */
    assert_confirmed(again, keys + 2, 2);
    take(replay, 3, 4);
    assert_confirmed(again, keys + 4, 2);
    assert_int_equal(table_state(replay, "t").inserts, 6);
    assert_int_equal(table_state(replay, "t").size, 0);
    if (!lost) {
        assert_confirmed(first, keys + 2, 4);
        trp_stream_destroy(first);
    }
    trp_stream_destroy(again);
}

static void what_is_sent_again_is_what_still_waits_for_the_limiter(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t sampler=fifo limiter=queue(2) max_times_sampled=1 max_size=100");
    send_again(replay, true);
}

static void what_is_sent_again_is_what_waits_though_its_stream_seems_alive(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t sampler=fifo limiter=queue(2) max_times_sampled=1 max_size=100");
    send_again(replay, false);
}

static void what_is_sent_again_and_known_does_not_wait_for_the_limiter(void **state)
{
    static const uint64_t keys[] = {1, 2, 3, 4, 5};
    struct replay *replay = *state;
    OPEN("name=t sampler=fifo limiter=queue(2) max_times_sampled=1 max_size=100");
    trp_stream *first = open_stream(replay, "InsertStream");
    trp_stream *again = open_stream(replay, "InsertStream");
    send_items(first, "t", 1, 5);
    take(replay, 1, 2);
    assert_confirmed(first, keys, 4);
    send_items(again, "t", 1, 4); /* two have left the table, two are in it, one waits */
    assert_confirmed(again, keys, 4);
    assert_int_equal(table_state(replay, "t").inserts, 4);
    trp_stream_destroy(first);
    trp_stream_destroy(again);
}

static void confirmations_keep_the_order_of_a_stream_across_tables(void **state)
{
    struct replay *replay = *state;
    static const uint64_t keys[] = {1, 2, 3, 4};
    OPEN("name=blocked sampler=fifo limiter=queue(1) max_times_sampled=1", "name=open");
    trp_stream *stream = open_stream(replay, "InsertStream");
    struct built *built = built_create(0);
    for (uint64_t key = 1; key <= 4; ++key) {
        add_chunk(built, (struct chunk_spec){.key = key});
        add_simple_item(built, key, key <= 2 ? "blocked" : "open", 1, key);
    }
    send_built(stream, built);
    assert_confirmed(stream, keys, 1);
    assert_int_equal(table_state(replay, "open").size, 2); /* they do not wait */
    struct sampled sample;
    trp_stream *sampler = open_stream(replay, "SampleStream");
    send_sample_request(sampler, "blocked", 1, -1);
    receive_samples(sampler, &sample, 1);
    assert_confirmed(stream, keys + 1, 3);
    trp_stream_destroy(sampler);
    trp_stream_destroy(stream);
    built_destroy(built);
}

static void the_stream_that_keeps_most_ends_when_the_server_keeps_too_much(void **state)
{
    enum { BYTES = 250 << 10 };
    struct replay *replay = *state;
    uint64_t key = 1;
    replay->rpc.in_flight_bytes = 1 << 20;
    OPEN("name=t");
    trp_stream *large = open_stream(replay, "InsertStream");
    trp_stream *small = open_stream(replay, "InsertStream");
    for (uint64_t chunk = 1; chunk <= 4; ++chunk) {
        struct built *built = built_create(BYTES);
        add_chunk(built, (struct chunk_spec){.key = chunk, .bytes = BYTES});
        if (chunk == 4) { /* three that no item refers to are left */
            add_simple_item(built, key, "t", 1, 1);
            for (uint64_t each = 1; each <= 4; ++each)
                wire_push_key(&built->request.keep, each);
        }
        send_built(large, built);
        built_destroy(built);
    }
    assert_confirmed(large, &key, 1);
    key = 2;
    struct built *built = built_create(2 * BYTES);
    add_chunk(built, (struct chunk_spec){.key = 7, .bytes = BYTES});
    send_built(small, built);
    add_chunk(built, (struct chunk_spec){.key = 8, .bytes = BYTES});
    send_built(small, built);
    assert_ends(large, TRP_RESOURCE_EXHAUSTED, "this one has most");
    add_simple_item(built, key, "t", 1, 7);
    send_built(small, built);
    assert_confirmed(small, &key, 1);
    trp_stream_destroy(small);
    built_destroy(built);
}

/* A message of one item of so many bytes. */
static trp_status try_send_large(trp_stream *stream, uint64_t key, size_t bytes, int64_t timeout_ms)
{
    struct built *built = built_create(bytes);
    add_chunk(built, (struct chunk_spec){.key = key, .bytes = bytes});
    add_simple_item(built, key, "t", 1, key);
    trp_status status = try_send_built(stream, built, timeout_ms);
    built_destroy(built);
    return status;
}

static trp_stream *open_with_large(const struct replay *replay, uint64_t key, size_t bytes)
{
    trp_stream *stream = open_stream(replay, "InsertStream");
    assert_int_equal(try_send_large(stream, key, bytes, WAIT_MS), TRP_OK);
    return stream;
}

enum { HELD_MAX = 1 << 20, LARGE = 300 << 10 };

static void open_full_queue(struct replay *replay)
{
    replay->rpc.in_flight_bytes = HELD_MAX;
    OPEN("name=t sampler=fifo limiter=queue(1) max_times_sampled=1");
    insert_items(replay, "t", 1, 1);
}

static void streams_that_wait_are_not_read_when_half_of_the_memory_is_taken(void **state)
{
    enum { BYTES = 64 << 10, SENT_MAX = HELD_MAX / 2 / BYTES + 4, NOT_READ_MS = 200 };
    struct replay *replay = *state;
    uint64_t key = 2;
    open_full_queue(replay);
    trp_stream *stream = open_stream(replay, "InsertStream");
    while (key <= 2 + SENT_MAX && try_send_large(stream, key, BYTES, NOT_READ_MS) == TRP_OK)
        key++;
    assert_true(key <= 2 + SENT_MAX);
    take(replay, 1, 1);
    assert_int_equal(try_send_large(stream, key + 1, BYTES, WAIT_MS), TRP_OK);
    trp_stream_destroy(stream);
}

static void orphans_go_when_their_memory_is_needed(void **state)
{
    struct replay *replay = *state;
    uint64_t key = 4;
    open_full_queue(replay);
    trp_stream_destroy(open_with_large(replay, 2, LARGE));
    trp_stream_destroy(open_with_large(replay, 3, LARGE));
    trp_stream *stream = open_with_large(replay, key, 2 * LARGE);
    take(replay, 1, 1);
    struct sampled next = sample_one(replay, "t");
    assert_true(next.key > 2); /* the oldest is gone */
    if (next.key == 3)
        assert_int_equal(sample_one(replay, "t").key, key);
    assert_confirmed(stream, &key, 1);
    trp_stream_destroy(stream);
}

static void who_waits_beyond_the_memory_is_told_to_come_again(void **state)
{
    struct replay *replay = *state;
    open_full_queue(replay);
    trp_stream *streams[3];
    for (uint64_t i = 0; i < 3; ++i)
        streams[i] = open_with_large(replay, 2 + i, LARGE);
    trp_stream *late = open_with_large(replay, 5, LARGE);
    assert_ends(late, TRP_UNAVAILABLE, "come again");
    take(replay, 1, 2);
    late = open_with_large(replay, 5, LARGE);
    for (uint64_t i = 0; i < 3; ++i) {
        uint64_t key = 2 + i;
        if (i > 0)
            take(replay, key, 1);
        assert_confirmed(streams[i], &key, 1);
        trp_stream_destroy(streams[i]);
    }
    trp_stream_destroy(late);
}

/* Items `first` to `first + count - 1` of the table `other`; before them one of `t`, unless it is
 * 0. Returns when they are there. */
static void send_others(const struct replay *replay, trp_stream *stream, uint64_t waits,
                        uint64_t first, uint64_t count)
{
    struct deadline deadline = deadline_in_ms(&clock_monotonic, WAIT_MS);
    struct built *built = built_create(0);
    int64_t before = table_state(replay, "other").size;
    add_chunk(built, (struct chunk_spec){.key = 1});
    if (waits)
        add_simple_item(built, waits, "t", 1, 1);
    for (uint64_t i = 0; i < count; ++i)
        add_simple_item(built, first + i, "other", 1, 1);
    send_built(stream, built);
    built_destroy(built);
    while (table_state(replay, "other").size < before + (int64_t)count)
        assert_false(deadline_passed(deadline, &clock_monotonic));
}

enum { OTHERS = 20000 }; /* a ring of half of HELD_MAX */

/* With an item of `t` that waits, and one of `other`. */
static trp_stream *open_with_others(const struct replay *replay, uint64_t key)
{
    trp_stream *stream = open_stream(replay, "InsertStream");
    send_others(replay, stream, key, key << 20, 1);
    return stream;
}

static void more_others(const struct replay *replay, trp_stream *stream, uint64_t key)
{
    send_others(replay, stream, 0, (key << 20) + 1, OTHERS);
}

static void assert_all_confirmed(trp_stream *stream, uint64_t key)
{
    static uint64_t keys[2 + OTHERS];
    keys[0] = key;
    for (uint64_t i = 0; i <= OTHERS; ++i)
        keys[1 + i] = (key << 20) + i;
    assert_confirmed(stream, keys, 2 + OTHERS);
    trp_stream_destroy(stream);
}

static void confirmations_behind_an_item_that_waits_count_in_the_memory(void **state)
{
    struct replay *replay = *state;
    replay->rpc.in_flight_bytes = HELD_MAX;
    OPEN("name=t sampler=fifo limiter=queue(1) max_times_sampled=1", "name=other");
    insert_items(replay, "t", 1, 1);
    trp_stream *first = open_with_others(replay, 2), *second = open_with_others(replay, 3);
    more_others(replay, first, 2);
    more_others(replay, second, 3);
    assert_ends(second, TRP_UNAVAILABLE, "come again");
    take(replay, 1, 1);
    assert_all_confirmed(first, 2);
    second = open_with_others(replay, 4); /* all is given back, with the one and the other */
    more_others(replay, second, 4);
    take(replay, 2, 1);
    assert_all_confirmed(second, 4);
}

/* What malloc has given out. */
static size_t allocated_bytes(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

/* Items that are there already: of a stream that brings them again nothing else stays. */
static trp_stream *open_and_repeat(const struct replay *replay)
{
    enum { ITEMS = 4000 };
    static uint64_t keys[ITEMS];
    trp_stream *stream = open_stream(replay, "InsertStream");
    struct built *built = built_create(0);
    add_chunk(built, (struct chunk_spec){.key = 1});
    for (uint64_t i = 0; i < ITEMS; i++) {
        keys[i] = i + 1;
        add_simple_item(built, keys[i], "t", 1, 1);
    }
    send_built(stream, built);
    built_destroy(built);
    assert_confirmed(stream, keys, ITEMS);
    return stream;
}

static void idle_streams_keep_little_for_confirmations(void **state)
{
    enum { STREAMS = 192, STREAM_BYTES = 24 << 10 };
    struct replay *replay = *state;
    trp_stream *streams[STREAMS];
    OPEN("name=t");
    trp_stream *first = open_and_repeat(replay);
    size_t before = allocated_bytes();
    for (int i = 0; i < STREAMS; i++)
        streams[i] = open_and_repeat(replay);
    size_t after = allocated_bytes();
    assert_in_range(after > before ? after - before : 0, 0,
                    INSERT_RINGS_KEPT_BYTES + STREAMS * STREAM_BYTES);
    for (int i = 0; i < STREAMS; i++)
        trp_stream_destroy(streams[i]);
    trp_stream_destroy(first);
}

static void orphans_that_find_no_room_are_one_line(void **state)
{
    /* What is refused at the edge may find room a moment later; much larger ones do not. */
    enum { BYTES = 50000, ORPHAN_BYTES = 5 * BYTES, ORPHANS = 6, FIRST = 100 };
    struct replay *replay = *state;
    struct captured log;
    const char *const lines[] = {"name=q limiter=samples_per_insert(1,1,3)", "name=t", NULL};
    assert_int_equal(replay_try_open(replay, 8 << 20, lines), TRP_OK);
    struct built *built = built_create(ORPHAN_BYTES);
    trp_stream *stream = open_stream(replay, "InsertStream");
    trp_status status = TRP_OK;
    insert_items(replay, "q", 1, 4);
    for (uint64_t key = FIRST; status == TRP_OK; ++key) {
        bool waits = key < FIRST + ORPHANS;
        trp_message *message = NULL;
        add_chunk(built, (struct chunk_spec){
                             .key = key, .value = 1, .bytes = waits ? ORPHAN_BYTES : BYTES});
        add_simple_item(built, key, waits ? "q" : "t", 1, key);
        send_built(stream, built);
        if (key == FIRST + ORPHANS - 1) {
            trp_stream_destroy(stream);
            stream = open_stream(replay, "InsertStream");
        }
        if (!waits)
            status = trp_stream_receive(stream, &message, WAIT_MS);
        trp_message_destroy(message);
    }
    assert_int_equal(status, TRP_RESOURCE_EXHAUSTED);
    capture_begin(&log);
    for (uint64_t i = 0; i < ORPHANS; ++i)
        sample_one(replay, "q");
    capture_end(&log);
    assert_int_equal(captured_count(&log, "dropped"), 1);
    assert_int_equal(captured_count(&log, "count=6"), 1);
    trp_stream_destroy(stream);
    built_destroy(built);
}

static void small_chunks_count_what_they_take(void **state)
{
    enum { CHUNKS = 500, MESSAGES = 12 };
    struct replay *replay = *state;
    replay->rpc.in_flight_bytes = HELD_MAX;
    OPEN("name=t");
    trp_stream *stream = open_stream(replay, "InsertStream");
    struct built *built = built_create(CHUNKS * 64);
    for (uint64_t key = 1; key <= CHUNKS * MESSAGES; ++key) {
        add_chunk(built, (struct chunk_spec){.key = key});
        if (key % CHUNKS == 0)
            (void)try_send_built(stream, built, WAIT_MS);
    }
    assert_ends(stream, TRP_RESOURCE_EXHAUSTED, "this one has most");
    built_destroy(built);
}

static void who_never_reads_confirmations_is_not_read_for_ever(void **state)
{
    enum { FIRST_WAIT_MS = 200 };
    struct replay *replay = *state;
    OPEN("name=t max_size=10");
    trp_stream *stream = open_stream(replay, "InsertStream");
    uint64_t sent = 0, confirmed = 0;
    trp_status status = TRP_OK;
    struct built *built = built_create(0);
    while (status == TRP_OK && sent < 4 * INSERT_RESPONSES_MAX) {
        add_chunk(built, (struct chunk_spec){.key = ++sent});
        add_simple_item(built, sent, "t", 1, sent);
        status = try_send_built(stream, built, FIRST_WAIT_MS);
    }
    built_destroy(built);
    assert_int_equal(status, TRP_DEADLINE_EXCEEDED);
    for (sent--; confirmed < sent;) { /* nothing that went out is lost */
        trp_message *message;
        struct wire_keys keys = {0};
        assert_int_equal(trp_stream_receive(stream, &message, WAIT_MS), TRP_OK);
        assert_int_equal(wire_insert_response_decode(bytes_of(message), &keys), TRP_OK);
        confirmed += keys.count;
        assert_int_equal(keys.keys[keys.count - 1], confirmed);
        wire_keys_cleanup(&keys);
        trp_message_destroy(message);
    }
    uint64_t key = sent + 1;
    send_simple(stream, key, "t", 1, key);
    assert_confirmed(stream, &key, 1);
    trp_stream_destroy(stream);
}

static void large_confirmations_that_nobody_reads_are_bounded_in_bytes(void **state)
{
    enum { ITEMS = 400, KEY_BYTES = 10, NOT_READ_MS = 200 };
    const uint64_t most = 2 * INSERT_RESPONSES_BYTES_MAX / KEY_BYTES;
    struct replay *replay = *state;
    OPEN("name=t max_size=10");
    trp_stream *stream = open_stream(replay, "InsertStream");
    uint64_t sent = 0, confirmed = 0;
    trp_status status = TRP_OK;
    struct built *built = built_create(0);
    while (status == TRP_OK && sent < most) {
        add_chunk(built, (struct chunk_spec){.key = 1});
        for (uint32_t i = 0; i < ITEMS; ++i, ++sent)
            add_simple_item(built, UINT64_MAX - sent, "t", 1, 1);
        status = try_send_built(stream, built, NOT_READ_MS);
    }
    built_destroy(built);
    assert_int_equal(status, TRP_DEADLINE_EXCEEDED);
    for (sent -= ITEMS; confirmed < sent;) {
        trp_message *message;
        struct wire_keys keys = {0};
        assert_int_equal(trp_stream_receive(stream, &message, WAIT_MS), TRP_OK);
        assert_int_equal(wire_insert_response_decode(bytes_of(message), &keys), TRP_OK);
        confirmed += keys.count;
        wire_keys_cleanup(&keys);
        trp_message_destroy(message);
    }
    trp_stream_destroy(stream);
}

static void confirmations_behind_an_item_that_waits_are_bounded(void **state)
{
    enum { ITEMS = 400, NOT_READ_MS = 200 };
    struct replay *replay = *state;
    OPEN("name=q sampler=fifo max_times_sampled=1 limiter=queue(1)", "name=t");
    insert_items(replay, "q", 1, 1);
    trp_stream *stream = open_stream(replay, "InsertStream");
    uint64_t sent = 0, confirmed = 0;
    trp_status status = TRP_OK;
    struct built *built = built_create(0);
    send_simple(stream, 2, "q", 1, 2);
    while (status == TRP_OK && sent < 2 * INSERT_CONFIRMS_MAX) {
        add_chunk(built, (struct chunk_spec){.key = 3});
        for (uint32_t i = 0; i < ITEMS; ++i, ++sent)
            add_simple_item(built, 3, "t", 1, 3);
        status = try_send_built(stream, built, NOT_READ_MS);
    }
    built_destroy(built);
    assert_int_equal(status, TRP_DEADLINE_EXCEEDED);
    sample_one(replay, "q");
    for (sent -= ITEMS - 1; confirmed < sent;) { /* nothing that went out is lost */
        trp_message *message;
        struct wire_keys keys = {0};
        assert_int_equal(trp_stream_receive(stream, &message, WAIT_MS), TRP_OK);
        assert_int_equal(wire_insert_response_decode(bytes_of(message), &keys), TRP_OK);
        confirmed += keys.count;
        wire_keys_cleanup(&keys);
        trp_message_destroy(message);
    }
    trp_stream_destroy(stream);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, replay_setup, replay_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_half_closed_stream_ends_when_the_limiter_let_everything_in),
        TEST(a_blocked_stream_is_not_read),
        TEST(queued_inserts_of_a_dead_stream_are_inserted),
        TEST(what_is_sent_again_is_what_still_waits_for_the_limiter),
        TEST(what_is_sent_again_is_what_waits_though_its_stream_seems_alive),
        TEST(what_is_sent_again_and_known_does_not_wait_for_the_limiter),
        TEST(confirmations_keep_the_order_of_a_stream_across_tables),
        TEST(the_stream_that_keeps_most_ends_when_the_server_keeps_too_much),
        TEST(streams_that_wait_are_not_read_when_half_of_the_memory_is_taken),
        TEST(orphans_go_when_their_memory_is_needed),
        TEST(who_waits_beyond_the_memory_is_told_to_come_again),
        TEST(confirmations_behind_an_item_that_waits_count_in_the_memory),
        TEST(idle_streams_keep_little_for_confirmations),
        TEST(orphans_that_find_no_room_are_one_line),
        TEST(small_chunks_count_what_they_take),
        TEST(confirmations_behind_an_item_that_waits_are_bounded),
        TEST(large_confirmations_that_nobody_reads_are_bounded_in_bytes),
        TEST(who_never_reads_confirmations_is_not_read_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
