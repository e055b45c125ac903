/* Fetch of troupe.Replay: items whole, page by page and in parts, without sampling them. */
#include "tests/replay/replay_fixture.h"

#include <troupe/item.h>
#include "tests/heap.h"
#include "replay/server/limits.h"
#include "replay.pb-c.h"

static Troupe__ReplayFetchResponse *fetch_call(const struct replay *replay,
                                               const Troupe__ReplayFetchRequest *request)
{
    ProtobufCService *service;
    ProtobufCMessage *reply = NULL;
    assert_int_equal(trp_channel_service(replay->channel, &troupe__replay__descriptor, &service),
                     TRP_OK);
    trp_status status = trp_call(service, "Fetch", &request->base, &reply, NULL);
    if (status != TRP_OK)
        print_error("Fetch: %s\n", trp_last_error());
    assert_int_equal(status, TRP_OK);
    return (Troupe__ReplayFetchResponse *)reply;
}

static uint32_t fetch(const struct replay *replay, uint64_t *after, bool *more, uint32_t max_items,
                      uint64_t max_bytes, struct sampled *out)
{
    Troupe__ReplayFetchRequest request = TROUPE__REPLAY_FETCH_REQUEST__INIT;
    request.table = "t";
    request.after = *after;
    request.max_items = max_items;
    request.max_bytes = max_bytes;
    Troupe__ReplayFetchResponse *reply = fetch_call(replay, &request);
    uint32_t count = 0;
    if (reply->samples.len) {
        trp_message *message = trp_message_create(reply->samples.len);
        memcpy(trp_message_data(message), reply->samples.data, reply->samples.len);
        count = read_samples(message, out, 100);
    }
    *after = reply->last;
    *more = reply->more;
    troupe__replay_fetch_response__free_unpacked(reply, NULL);
    return count;
}

static void fetch_gives_every_item_whole_without_sampling(void **state)
{
    struct replay *replay = *state;
    struct sampled got[100];
    bool more = true;
    uint64_t after = 0, key = 0;
    OPEN("name=t sampler=lifo max_times_sampled=1");
    insert_items(replay, "t", 1, 6);
    while (more) {
        uint32_t count = fetch(replay, &after, &more, 4, 0, got);
        assert_in_range(count, 1, 4);
        for (uint32_t i = 0; i < count; ++i) {
            assert_int_equal(got[i].key, ++key);
            assert_int_equal(got[i].value, key * 10);
            assert_int_equal(got[i].times_sampled, 0);
        }
    }
    assert_int_equal(key, 6);
    assert_int_equal(fetch(replay, &after, &more, 4, 0, got), 0); /* nothing behind it */
    assert_false(more);
    uint64_t first = 0;
    assert_int_equal(fetch(replay, &first, &more, 0, 1, got), 1); /* at least one */
    assert_true(more);
    assert_int_equal(table_state(replay, "t").samples, 0);
    assert_int_equal(table_state(replay, "t").size, 6);
}

/* More at a time than the server remembers; what goes meanwhile is left out. */
static void fetches_go_on_beside_each_other(void **state)
{
    enum { FETCHES = REPLAY_FETCH_PLANS + 2, ITEMS = 20 };
    struct replay *replay = *state;
    uint64_t after[FETCHES] = {0}, keys[FETCHES] = {0};
    bool more = true;
    OPEN("name=t");
    insert_items(replay, "t", 1, ITEMS);
    for (int page = 0; more; ++page) {
        for (int i = 0; i < FETCHES; ++i) {
            struct sampled got[100];
            uint32_t count = fetch(replay, &after[i], &more, 3, 0, got);
            assert_in_range(count, 1, 3);
            for (uint32_t j = 0; j < count; ++j) {
                keys[i] += keys[i] == 9 ? 2 : 1;
                assert_int_equal(got[j].key, keys[i]);
            }
        }
        if (page == 1)
            assert_int_equal(mutate_key(replay, "t", 10, false, 0, true), TRP_OK);
    }
    for (int i = 0; i < FETCHES; ++i)
        assert_int_equal(keys[i], ITEMS);
}

/* ---- an item in parts -------------------------------------------------------------------- */

enum { PART_KEY = 2, PART_CHUNK_BYTES = 2 * REPLAY_FETCH_BYTES_MAX + 1000, PART_CHUNKS = 2 };

/* Small items and, as the second one, a column of two chunks that no answer has room for. */
static void insert_large(struct replay *replay)
{
    struct built *built = built_create((size_t)PART_CHUNKS * PART_CHUNK_BYTES);
    trp_stream *stream = open_stream(replay, "InsertStream");
    const uint64_t key = PART_KEY;
    insert_items(replay, "t", 1, 1);
    for (uint64_t i = 1; i <= PART_CHUNKS; ++i)
        add_chunk(built, (struct chunk_spec){
                             .key = 100 + i, .value = (int64_t)i, .bytes = PART_CHUNK_BYTES});
    add_item(built, key, "t", 1);
    wire_push_column(&built->request.lists);
    for (uint64_t i = 1; i <= PART_CHUNKS; ++i)
        add_slice(built, 100 + i, 0, 1, 0);
    send_built(stream, built);
    assert_confirmed(stream, &key, 1);
    built_destroy(built);
    trp_stream_destroy(stream);
    insert_items(replay, "t", 3, 3);
}

static Troupe__ReplayFetchResponse *fetch_part(const struct replay *replay, uint64_t after,
                                               const Troupe__ReplayFetchRest *rest)
{
    Troupe__ReplayFetchRequest request = TROUPE__REPLAY_FETCH_REQUEST__INIT;
    request.table = "t";
    request.after = after;
    request.rest = (Troupe__ReplayFetchRest *)rest;
    Troupe__ReplayFetchResponse *reply = fetch_call(replay, &request);
    assert_true(reply->samples.len <= REPLAY_FETCH_BYTES_MAX + 1000);
    return reply;
}

static void assert_large(trp_bytes samples)
{
    trp_item_reader *reader = trp_item_reader_create();
    trp_item_data item;
    bool more;
    uint8_t *want = xmalloc(PART_CHUNK_BYTES);
    assert_int_equal(trp_item_reader_feed(reader, samples), TRP_OK);
    assert_int_equal(trp_item_reader_next(reader, &item, &more), TRP_OK);
    assert_true(more);
    assert_int_equal(item.key, PART_KEY);
    assert_int_equal(item.columns[0].data.size, (size_t)PART_CHUNKS * PART_CHUNK_BYTES);
    for (uint64_t i = 0; i < PART_CHUNKS; ++i) {
        fixture_fill(want, PART_CHUNK_BYTES, i + 1);
        assert_memory_equal(item.columns[0].data.data + i * PART_CHUNK_BYTES, want,
                            PART_CHUNK_BYTES);
    }
    free(want);
    trp_item_reader_destroy(reader);
}

/* Sampled, updated and asked for by others between its parts, which are what they were. */
static void a_large_item_comes_in_parts(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t sampler=fifo");
    insert_large(replay);
    uint64_t after = 0, parts = 0, more = 0;
    struct sampled others[100];
    struct buffer samples = {0};
    Troupe__ReplayFetchRest rest = TROUPE__REPLAY_FETCH_REST__INIT;
    fetch(replay, &after, &(bool){0}, 0, 0, others); /* the small one before it */
    do {
        Troupe__ReplayFetchResponse *reply = fetch_part(replay, after, parts ? &rest : NULL);
        buffer_append(&samples, (trp_bytes){reply->samples.data, reply->samples.len});
        assert_false(reply->gone);
        assert_true(reply->more);
        more = reply->rest != NULL;
        after = reply->last;
        if (more)
            rest = (Troupe__ReplayFetchRest){rest.base, reply->rest->sequence, reply->rest->chunks,
                                             reply->rest->bytes};
        troupe__replay_fetch_response__free_unpacked(reply, NULL);
        for (uint64_t i = 0; parts == 1 && i < REPLAY_FETCH_PLANS; ++i)
            fetch(replay, &(uint64_t){0}, &(bool){0}, 1, 0, others); /* ours is forgotten */
        assert_int_equal(mutate_key(replay, "t", PART_KEY, true, 5 + (double)parts, false), TRP_OK);
        sample_one(replay, "t");
        ++parts;
    } while (more);
    assert_in_range(parts, 5, 6);
    assert_large(buffer_bytes(&samples));
    assert_int_equal(fetch(replay, &after, &(bool){0}, 0, 0, others), 3);
    assert_int_equal(others[0].key, 3);
    buffer_cleanup(&samples);
}

/* How often a chunk is read from the store. */
static _Atomic uint32_t chunks_read;
struct engine;
struct chunk;
trp_status __real_engine_chunk_read(struct engine *engine, const struct chunk *chunk, uint8_t *out);
trp_status __wrap_engine_chunk_read(struct engine *engine, const struct chunk *chunk, uint8_t *out);

trp_status __wrap_engine_chunk_read(struct engine *engine, const struct chunk *chunk, uint8_t *out)
{
    chunks_read++;
    return __real_engine_chunk_read(engine, chunk, out);
}

static void a_chunk_in_parts_is_read_once(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t sampler=fifo");
    insert_large(replay);
    uint64_t after = 0;
    struct sampled others[100];
    Troupe__ReplayFetchRest rest = TROUPE__REPLAY_FETCH_REST__INIT;
    fetch(replay, &after, &(bool){0}, 0, 0, others);
    chunks_read = 0;
    for (bool begun = false, more = true; more; begun = true) {
        Troupe__ReplayFetchResponse *reply = fetch_part(replay, after, begun ? &rest : NULL);
        after = reply->last;
        more = reply->rest != NULL;
        if (more)
            rest = (Troupe__ReplayFetchRest){rest.base, reply->rest->sequence, reply->rest->chunks,
                                             reply->rest->bytes};
        troupe__replay_fetch_response__free_unpacked(reply, NULL);
    }
    assert_int_equal(chunks_read, PART_CHUNKS);
}

/* A few pages of one item each, of more; the bytes that the server keeps for the next. */
static size_t kept_after_pages(const struct replay *replay, Troupe__ReplayFilter *filter)
{
    enum { PAGES = 3 };
    Troupe__ReplayFetchRequest request = TROUPE__REPLAY_FETCH_REQUEST__INIT;
    request.table = "t";
    request.filter = filter;
    request.max_items = 1;
    size_t before = heap_bytes();
    for (uint64_t page = 1; page <= PAGES; ++page) {
        Troupe__ReplayFetchResponse *reply = fetch_call(replay, &request);
        struct sampled got[1];
        trp_message *message = trp_message_create(reply->samples.len);
        memcpy(trp_message_data(message), reply->samples.data, reply->samples.len);
        assert_int_equal(read_samples(message, got, 1), 1);
        assert_int_equal(got[0].key, page);
        assert_true(reply->more);
        request.after = reply->last;
        troupe__replay_fetch_response__free_unpacked(reply, NULL);
    }
    size_t after = heap_bytes();
    return after > before ? after - before : 0;
}

static void a_fetch_of_many_keys_goes_on_and_little_of_it_is_kept(void **state)
{
    enum { KEYS = 900000, ITEMS = 6, KEPT_MAX = 3 << 20 };
    struct replay *replay = *state;
    Troupe__ReplayFilter filter = TROUPE__REPLAY_FILTER__INIT;
    OPEN("name=t");
    insert_items(replay, "t", 1, ITEMS);
    filter.n_keys = KEYS;
    filter.keys = xmalloc(KEYS * sizeof *filter.keys);
    for (uint64_t i = 0; i < KEYS; ++i)
        filter.keys[i] = i % ITEMS + 1; /* a byte of the request, eight of the list */
    assert_true(kept_after_pages(replay, &filter) < KEPT_MAX);
    for (uint64_t i = ITEMS; i < KEYS; ++i)
        filter.keys[i] = UINT64_MAX - i; /* ten bytes of the request */
    assert_true(kept_after_pages(replay, &filter) < KEPT_MAX);
    free(filter.keys);
}

static void the_rest_of_an_item_that_has_gone_is_told(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t sampler=fifo");
    insert_large(replay);
    struct sampled others[100];
    uint64_t after = 0;
    bool more;
    fetch(replay, &after, &more, 0, 0, others);
    Troupe__ReplayFetchResponse *begun = fetch_part(replay, after, NULL);
    assert_non_null(begun->rest);
    assert_int_equal(mutate_key(replay, "t", PART_KEY, false, 0, true), TRP_OK);
    Troupe__ReplayFetchResponse *reply = fetch_part(replay, after, begun->rest);
    assert_true(reply->gone);
    assert_null(reply->rest);
    assert_true(reply->more);
    assert_int_equal(reply->samples.len, 0);
    after = reply->last;
    assert_int_equal(fetch(replay, &after, &more, 0, 0, others), 3);
    assert_int_equal(others[0].key, 3);
    assert_false(more);
    troupe__replay_fetch_response__free_unpacked(begun, NULL);
    troupe__replay_fetch_response__free_unpacked(reply, NULL);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, replay_setup, replay_teardown)
    const struct CMUnitTest tests[] = {
        TEST(fetch_gives_every_item_whole_without_sampling),
        TEST(fetches_go_on_beside_each_other),
        TEST(a_large_item_comes_in_parts),
        TEST(a_chunk_in_parts_is_read_once),
        TEST(a_fetch_of_many_keys_goes_on_and_little_of_it_is_kept),
        TEST(the_rest_of_an_item_that_has_gone_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
