/* InsertStream, message by message: what Reverb's server does, where it is right. */
#include <math.h>

#include "core/protobuf.h"
#include "tests/heap.h"
#include "tests/replay/replay_fixture.h"

static void items_are_confirmed_in_order_and_visible(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t");
    trp_stream *stream = open_stream(replay, "InsertStream");
    struct built *built = built_create(0);
    uint64_t keys[100];
    for (uint64_t i = 0; i < 100; ++i) {
        keys[i] = i * 7919 % 100 + 1;
        add_chunk(built, (struct chunk_spec){.key = keys[i], .value = (int64_t)i});
        add_simple_item(built, keys[i], "t", 1, keys[i]);
    }
    send_built(stream, built);
    assert_confirmed(stream, keys, 100);
    assert_int_equal(table_state(replay, "t").size, 100);
    assert_int_equal(table_state(replay, "t").inserts, 100);
    assert_int_equal(trp_stream_half_close(stream), TRP_OK);
    assert_ends(stream, TRP_OK, NULL);
    built_destroy(built);
}

static void a_stream_without_messages_ends_with_ok(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t");
    trp_stream *stream = open_stream(replay, "InsertStream");
    assert_int_equal(trp_stream_half_close(stream), TRP_OK);
    assert_ends(stream, TRP_OK, NULL);
}

static void a_message_with_neither_chunks_nor_items_is_refused(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t");
    trp_stream *stream = open_stream(replay, "InsertStream");
    struct built *built = built_create(0);
    wire_push_key(&built->request.keep, 1);
    send_built(stream, built);
    assert_ends(stream, TRP_INVALID_ARGUMENT, "Request lacks both chunks and item.");
    built_destroy(built);
}

static void a_corrupt_message_ends_its_stream_only(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t");
    trp_stream *good = open_stream(replay, "InsertStream");
    trp_stream *stream = open_stream(replay, "InsertStream");
    trp_message *message = trp_message_create(3);
    memcpy(trp_message_data(message), "\x0a\x7f\x01", 3);
    assert_int_equal(trp_stream_send(stream, message, WAIT_MS), TRP_OK);
    assert_ends(stream, TRP_INVALID_ARGUMENT, "not a valid protobuf message");
    uint64_t key = 5;
    send_simple(good, key, "t", 1, 1);
    assert_confirmed(good, &key, 1);
    trp_stream_destroy(good);
}

static void what_came_before_a_failing_item_is_inserted_and_confirmed(void **state)
{
    struct replay *replay = *state;
    static const struct {
        const char *table;
        uint64_t chunk;
        bool empty;
        trp_status status;
        const char *text;
    } rows[] = {
        {"t", 99, false, TRP_INTERNAL, "Could not find sequence chunk 99."},
        {"nope", 1, false, TRP_NOT_FOUND, "Priority table nope was not found"},
        {"nope", 99, false, TRP_INTERNAL, "Could not find sequence chunk 99."},
        {"t", 1, true, TRP_INVALID_ARGUMENT, "Item trajectory must not be empty."},
        {"nope", 1, true, TRP_NOT_FOUND, "Priority table nope was not found"},
    };
    OPEN("name=t");
    struct built *built = built_create(0);
    for (uint64_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
        trp_stream *stream = open_stream(replay, "InsertStream");
        uint64_t key = 100 + i;
        add_chunk(built, (struct chunk_spec){.key = 1});
        add_simple_item(built, key, "t", 1, 1);
        if (rows[i].empty)
            add_item(built, 7, rows[i].table, 1);
        else
            add_simple_item(built, 7, rows[i].table, 1, rows[i].chunk);
        send_built(stream, built);
        assert_confirmed(stream, &key, 1);
        assert_ends(stream, rows[i].status, rows[i].text);
        assert_int_equal(table_state(replay, "t").size, i + 1);
    }
    built_destroy(built);
}

static void later_columns_may_be_empty_the_first_may_not(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t");
    trp_stream *stream = open_stream(replay, "InsertStream");
    struct built *built = built_create(0);
    uint64_t key = 3;
    add_chunk(built, (struct chunk_spec){.key = 1});
    add_simple_item(built, key, "t", 1, 1);
    wire_push_column(&built->request.lists);
    wire_push_key(&built->request.keep, 1);
    send_built(stream, built);
    assert_confirmed(stream, &key, 1);
    add_item(built, 4, "t", 1);
    wire_push_column(&built->request.lists);
    wire_push_column(&built->request.lists);
    add_slice(built, 1, 0, 1, 0);
    send_built(stream, built);
    assert_ends(stream, TRP_INVALID_ARGUMENT, "Item trajectory must not be empty.");
    built_destroy(built);
}

/* ---- kept chunks ------------------------------------------------------------------------- */

static void chunk_only_messages_release_nothing(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t");
    trp_stream *stream = open_stream(replay, "InsertStream");
    struct built *built = built_create(0);
    add_chunk(built, (struct chunk_spec){.key = 1, .value = 11});
    send_built(stream, built);
    add_chunk(built, (struct chunk_spec){.key = 2, .value = 22});
    wire_push_key(&built->request.keep, 2); /* would drop 1 */
    send_built(stream, built);
    uint64_t keys[] = {8, 9};
    add_simple_item(built, keys[0], "t", 1, 1);
    add_simple_item(built, keys[1], "t", 1, 2);
    send_built(stream, built);
    assert_confirmed(stream, keys, 2);
    /* now both are gone */
    add_simple_item(built, 10, "t", 1, 2);
    send_built(stream, built);
    assert_ends(stream, TRP_INTERNAL, "Could not find sequence chunk 2.");
    built_destroy(built);
}

static void keep_keys_have_to_match_what_is_left(void **state)
{
    struct replay *replay = *state;
    static const struct {
        uint64_t keys[3];
        uint32_t count;
        const char *text; /* NULL: they do match */
    } rows[] = {{{1, 2}, 2, NULL},
                {{2}, 1, NULL},
                {{0}, 0, NULL},
                {{1, 1}, 2, "chunks_.size() == 1 != keep_keys.size() == 2"},
                {{1, 3}, 2, "chunks_.size() == 1 != keep_keys.size() == 2"},
                {{2, 1, 7}, 3, "chunks_.size() == 2 != keep_keys.size() == 3"}};
    OPEN("name=t");
    struct built *built = built_create(0);
    for (uint64_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
        trp_stream *stream = open_stream(replay, "InsertStream");
        uint64_t key = i + 1;
        add_chunk(built, (struct chunk_spec){.key = 1});
        add_chunk(built, (struct chunk_spec){.key = 2});
        add_simple_item(built, key, "t", 1, 1);
        for (uint32_t k = 0; k < rows[i].count; ++k)
            wire_push_key(&built->request.keep, rows[i].keys[k]);
        send_built(stream, built);
        assert_confirmed(stream, &key, 1);
        if (rows[i].text) {
            assert_ends(stream, TRP_FAILED_PRECONDITION, rows[i].text);
        } else {
            assert_int_equal(trp_stream_half_close(stream), TRP_OK);
            assert_ends(stream, TRP_OK, NULL);
        }
        assert_int_equal(table_state(replay, "t").size, i + 1);
    }
    built_destroy(built);
}

static void the_first_of_equal_chunk_keys_wins_until_it_is_dropped(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t sampler=fifo limiter=queue(10) max_times_sampled=1");
    trp_stream *stream = open_stream(replay, "InsertStream");
    struct built *built = built_create(0);
    uint64_t keys[] = {1, 2, 3};
    add_chunk(built, (struct chunk_spec){.key = 5, .value = 100});
    add_chunk(built, (struct chunk_spec){.key = 5, .value = 200});
    add_simple_item(built, keys[0], "t", 1, 5);
    wire_push_key(&built->request.keep, 5);
    send_built(stream, built);
    add_chunk(built, (struct chunk_spec){.key = 5, .value = 300});
    add_simple_item(built, keys[1], "t", 1, 5);
    send_built(stream, built); /* drops it */
    add_chunk(built, (struct chunk_spec){.key = 5, .value = 400});
    add_simple_item(built, keys[2], "t", 1, 5);
    send_built(stream, built);
    assert_confirmed(stream, keys, 3);
    trp_stream_destroy(stream);

    struct sampled samples[3];
    stream = open_stream(replay, "SampleStream");
    send_sample_request(stream, "t", 3, -1);
    receive_samples(stream, samples, 3);
    assert_int_equal(samples[0].value, 100);
    assert_int_equal(samples[1].value, 100);
    assert_int_equal(samples[2].value, 400);
    trp_stream_destroy(stream);
    built_destroy(built);
}

static void one_key_on_two_streams_is_two_chunks(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t sampler=fifo limiter=queue(10) max_times_sampled=1");
    trp_stream *streams[2];
    for (uint64_t i = 0; i < 2; ++i) {
        uint64_t key = i + 1;
        struct built *built = built_create(0);
        streams[i] = open_stream(replay, "InsertStream");
        add_chunk(built, (struct chunk_spec){.key = 5, .value = 10 + (int64_t)i});
        add_simple_item(built, key, "t", 1, 5);
        wire_push_key(&built->request.keep, 5);
        send_built(streams[i], built);
        assert_confirmed(streams[i], &key, 1);
        built_destroy(built);
    }
    struct sampled samples[2];
    trp_stream *stream = open_stream(replay, "SampleStream");
    send_sample_request(stream, "t", 2, -1);
    receive_samples(stream, samples, 2);
    assert_int_equal(samples[0].value, 10);
    assert_int_equal(samples[1].value, 11);
    trp_stream_destroy(stream);
    trp_stream_destroy(streams[0]);
    trp_stream_destroy(streams[1]);
}

/* ---- items that no client could unpack --------------------------------------------------- */

static void poison_items_are_refused(void **state)
{
    struct replay *replay = *state;
    static const struct {
        int32_t offset, length, index;
        bool squeeze;
        const char *text; /* NULL: a good one */
    } rows[] = {
        {0, 6, 0, false, NULL},
        {5, 1, 1, true, NULL},
        {6, 0, 1, false, NULL},
        {0, 7, 0, false, "Cannot slice (0, 7)"},
        {5, 2, 0, false, "Cannot slice (5, 2)"},
        {-1, 1, 0, false, "Cannot slice (-1, 1)"},
        {0, -1, 0, false, "Cannot slice (0, -1)"},
        {INT32_MAX, INT32_MAX, 0, false, "Cannot slice"},
        {0, 1, 2, false, "Cannot unpack column 2 in chunk 4 which has 2 columns."},
        {0, 1, -1, false, "Cannot unpack column -1"},
        {0, 2, 0, true, "squeezed"},
    };
    OPEN("name=t");
    struct built *built = built_create(0);
    int64_t size = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
        trp_stream *stream = open_stream(replay, "InsertStream");
        uint64_t key = i + 1;
        add_chunk(built, (struct chunk_spec){.key = 4, .rows = 6, .tensors = 2});
        add_item(built, key, "t", 1);
        wire_push_column(&built->request.lists)->squeeze = rows[i].squeeze;
        add_slice(built, 4, rows[i].offset, rows[i].length, rows[i].index);
        send_built(stream, built);
        if (rows[i].text) {
            assert_ends(stream, TRP_INVALID_ARGUMENT, rows[i].text);
        } else {
            assert_confirmed(stream, &key, 1);
            trp_stream_destroy(stream);
            size++;
        }
        assert_int_equal(table_state(replay, "t").size, size);
    }
    built_destroy(built);
}

/* Sends one chunk of these tensors, and an item that takes none of its rows. */
static void send_tensors(trp_stream *stream, const struct wire_tensor *tensors, uint32_t count,
                         struct wire_steps steps)
{
    struct built *built = built_create(0);
    steps.tensors = tensors;
    steps.tensor_count = count;
    *wire_push_chunk(&built->request.lists) = (struct wire_chunk){.key = 7, .steps = &steps};
    add_item(built, 1, "t", 1);
    wire_push_column(&built->request.lists);
    add_slice(built, 7, 0, 0, 0);
    send_built(stream, built);
    built_destroy(built);
}

static struct wire_tensor tensor_of(int32_t dtype, int64_t rows, int64_t columns, const char *bytes,
                                    size_t size)
{
    return (struct wire_tensor){.dtype = dtype,
                                .rank = 2,
                                .dims = {rows, columns},
                                .content = {(const uint8_t *)bytes, size}};
}

static void chunks_that_no_client_could_unpack_are_refused(void **state)
{
    /* Blocks: 8 bytes as a literal; 8 equal bytes, as 'a' and a copy; the same, cut short; and with
     * a copy from before the start. */
    static const char literal[] = "\x08\x1c"
                                  "abcdefgh";
    static const char copied[] = "\x08\x00"
                                 "a\x0d\x01";
    static const char early[] = "\x08\x00"
                                "a\x0d\x09";
    const struct {
        struct wire_tensor tensor;
        const char *text; /* NULL: fine */
    } rows[] = {
        {tensor_of(TRP_UINT8, 2, 4, literal, 10), NULL},
        {tensor_of(TRP_UINT8, 8, 1, copied, 5), NULL},
        {tensor_of(12, 8, 1, copied, 5), NULL}, /* quint8 */
        {tensor_of(TRP_FLOAT32, 0, 4, "", 1), NULL},
        {tensor_of(TRP_FLOAT32, 0, 4, "", 0), NULL},
        {tensor_of(7, 2, 1,
                   "\x02\x01"
                   "abc",
                   5),
         NULL},
        {tensor_of(TRP_UINT8, 8, 1, copied, 4), "broken snappy block (4 bytes)"},
        {tensor_of(TRP_UINT8, 8, 1, early, 5), "broken snappy block"},
        {tensor_of(TRP_UINT8, 2, 5, literal, 10),
         "chunk 7, tensor 0 (uint8[2,5]): its content decompresses to 8 bytes, its shape "
         "says 10"},
        {tensor_of(TRP_FLOAT32, 2, 4, literal, 10), "shape says 32"},
        {tensor_of(TRP_UINT8, 2, 4, "\xff\xff\xff\xff\xff", 5), "no snappy block"},
        {tensor_of(TRP_UINT8, 2, 4, "", 0), "no snappy block (0 bytes)"},
        {tensor_of(0, 2, 4, literal, 10), "dtype 0 is none"},
        {tensor_of(20, 2, 4, literal, 10), "dtype 20 is none"}, /* a resource handle */
        {tensor_of(21, 2, 4, literal, 10), "dtype 21 is none"},
        {tensor_of(101, 2, 4, literal, 10), "dtype 101 is none"},
        {tensor_of(-1, 2, 4, literal, 10), "dtype -1 is none"},
        {tensor_of(TRP_UINT8, -2, -4, literal, 10), "shape is no tensor's"},
        {tensor_of(TRP_UINT8, -1, 0, "", 1), "shape is no tensor's"},
        {tensor_of(TRP_UINT8, INT64_MAX, 4, literal, 10), "shape is no tensor's"},
        {tensor_of(TRP_FLOAT64, INT64_MAX, 1, literal, 10), "beyond 4 GiB"},
        {tensor_of(TRP_UINT8, INT64_C(1) << 31, 0, "", 1), NULL},
        {tensor_of(TRP_UINT8, INT64_C(1) << 32, 0, "", 1), "beyond 4 GiB"},
        {tensor_of(7, 0, INT64_C(1) << 32, "", 0), "beyond 4 GiB"},
        {tensor_of(TRP_FLOAT64, 0, INT64_MAX, "", 1), "beyond 4 GiB"},
        {tensor_of(TRP_UINT8, INT64_C(1) << 32, 1, literal, 10), "beyond 4 GiB"},
        {tensor_of(7, 2, 1,
                   "\x02\x01"
                   "ab",
                   4),
         "its 2 strings have 3 bytes in all, its content 2"},
        {tensor_of(7, 3, 1, "\x01", 1), "no length for string 1 of 3"},
        {tensor_of(7, INT64_MAX, 1, "\x01", 1), "no length for string"},
    };
    struct replay *replay = *state;
    OPEN("name=t");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
        trp_stream *stream = open_stream(replay, "InsertStream");
        send_tensors(stream, &rows[i].tensor, 1, (struct wire_steps){0});
        if (rows[i].text)
            assert_ends(stream, TRP_INVALID_ARGUMENT, rows[i].text);
        else
            assert_confirmed(stream, (const uint64_t[]){1}, 1);
        if (!rows[i].text)
            trp_stream_destroy(stream);
    }
}

static void a_chunks_tensors_agree_with_each_other_and_with_its_steps(void **state)
{
    static const char block[] = "\x02\x04"
                                "ab";
    const struct wire_tensor two = tensor_of(TRP_UINT8, 2, 1, block, 4),
                             one = tensor_of(TRP_UINT8, 1, 2, block, 4);
    struct replay *replay = *state;
    OPEN("name=t");
    trp_stream *stream = open_stream(replay, "InsertStream");
    send_tensors(stream, (const struct wire_tensor[]){two, two, one}, 3, (struct wire_steps){0});
    assert_ends(stream, TRP_INVALID_ARGUMENT, "chunk 7: tensor 2 has 1 rows, tensor 0 has 2");
    stream = open_stream(replay, "InsertStream");
    send_tensors(stream, &two, 1, (struct wire_steps){.start = 5, .end = 4});
    assert_ends(stream, TRP_INVALID_ARGUMENT, "from step 5 to step 4");
    stream = open_stream(replay, "InsertStream");
    /* A chunk of key 7 that says 2 tensors (data_tensors_len, field 6) and has none. */
    static const char lies[] = "\x0a\x04\x08\x07\x30\x02";
    trp_message *message = trp_message_create(sizeof lies - 1);
    memcpy(trp_message_data(message), lies, sizeof lies - 1);
    assert_int_equal(trp_stream_send(stream, message, WAIT_MS), TRP_OK);
    assert_ends(stream, TRP_INVALID_ARGUMENT, "chunk 7 says 2 tensors and has 0");
}

/* All of a ChunkData but its key: one byte in a shape of ones, the last but one of which is `odd`
 * (0 or 1; the tensor is empty with 0). */
static trp_bytes many_dimensions(struct buffer *out, uint32_t rank, uint8_t odd)
{
    enum { TENSOR_MAX = 2048 };
    uint8_t shape[TENSOR_MAX], tensor[TENSOR_MAX], data[TENSOR_MAX];
    struct writer dims = writer_of(shape, sizeof shape);
    for (uint32_t i = rank; i-- > 0;) {
        size_t mark = writer_mark(&dims);
        put_varint_field(&dims, 1, i + 2 == rank ? odd : 1);
        put_len_header(&dims, 2, mark);
    }
    struct writer tensors = writer_of(tensor, sizeof tensor);
    put_bytes_field(&tensors, 4, (trp_bytes){(const uint8_t *)(odd ? "\1\0a" : "\0"), odd ? 3 : 1});
    put_bytes_field(&tensors, 2, writer_bytes(&dims));
    put_varint_field(&tensors, 1, TRP_UINT8);
    put_len_header(&tensors, 1, 0);
    struct writer chunk = writer_of(data, sizeof data);
    put_bytes_field(&chunk, 5, writer_bytes(&tensors));
    size_t start = out->size;
    buffer_append(out, writer_bytes(&chunk));
    return (trp_bytes){out->data + start, out->size - start};
}

static void tensors_may_have_as_many_dimensions_as_tensorflow_takes(void **state)
{
    const struct {
        uint32_t rank;
        uint8_t odd; /* of the second chunk; the first has 1 */
        const char *text;
    } rows[] = {
        {9, 1, NULL},
        {254, 1, NULL},
        {255, 1, "its 255 dimensions are more than 254"},
        {12, 0, "joins tensors of different types or shapes"},
    };
    struct replay *replay = *state;
    OPEN("name=t");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
        trp_stream *stream = open_stream(replay, "InsertStream");
        struct built *built = built_create(0);
        struct buffer bytes = {0};
        buffer_reserve(&bytes, 8192);
        for (uint64_t key = 1; key <= 2; ++key)
            *wire_push_chunk(&built->request.lists) = (struct wire_chunk){
                .key = key,
                .tail = many_dimensions(&bytes, rows[i].rank, key == 2 ? rows[i].odd : 1)};
        add_item(built, 1 + i, "t", 1);
        wire_push_column(&built->request.lists);
        add_slice(built, 1, 0, 1, 0);
        add_slice(built, 2, 0, 1, 0);
        send_built(stream, built);
        if (rows[i].text) {
            assert_ends(stream, TRP_INVALID_ARGUMENT, rows[i].text);
        } else {
            assert_confirmed(stream, (const uint64_t[]){1 + i}, 1);
            trp_stream_destroy(stream);
        }
        buffer_cleanup(&bytes);
        built_destroy(built);
    }
}

static void slices_that_cannot_be_joined_are_refused(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t");
    struct built *built = built_create(0);
    for (int bad = 0; bad < 2; ++bad) {
        trp_stream *stream = open_stream(replay, "InsertStream");
        uint64_t key = 1 + (uint64_t)bad;
        add_chunk(built, (struct chunk_spec){.key = 1, .rows = 2});
        add_chunk(built, (struct chunk_spec){.key = 2, .rows = 2, .bytes = bad ? 8 : 0});
        add_item(built, key, "t", 1);
        wire_push_column(&built->request.lists);
        add_slice(built, 1, 0, 2, 0);
        add_slice(built, 2, 0, 2, 0);
        send_built(stream, built);
        if (bad) {
            assert_ends(stream, TRP_INVALID_ARGUMENT, "joins tensors of different types or shapes");
        } else {
            assert_confirmed(stream, &key, 1);
            trp_stream_destroy(stream);
        }
    }
    built_destroy(built);
}

/* ---- priorities and keys ----------------------------------------------------------------- */

static void a_bad_priority_ends_its_stream_and_leaves_the_table_alone(void **state)
{
    struct replay *replay = *state;
    static const double priorities[] = {-1, (double)NAN, (double)INFINITY};
    OPEN("name=t sampler=prioritized(0.8)");
    insert_items(replay, "t", 1, 3);
    for (size_t i = 0; i < 3; ++i) {
        trp_stream *stream = open_stream(replay, "InsertStream");
        send_simple(stream, 50, "t", priorities[i], 1);
        assert_ends(stream, TRP_INVALID_ARGUMENT, "riority");
    }
    assert_int_equal(table_state(replay, "t").size, 3);
    insert_items(replay, "t", 10, 1);
    struct sampled samples[4];
    trp_stream *stream = open_stream(replay, "SampleStream");
    send_sample_request(stream, "t", 4, 1000);
    receive_samples(stream, samples, 4);
    trp_stream_destroy(stream);
}

static void not_a_number_is_refused_by_every_kind_of_table(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t sampler=fifo");
    insert_items(replay, "t", 1, 1);
    trp_stream *stream = open_stream(replay, "InsertStream");
    send_simple(stream, 50, "t", (double)NAN, 1);
    assert_ends(stream, TRP_INVALID_ARGUMENT, "Priority must not be NaN.");
    assert_int_equal(table_state(replay, "t").size, 1);
}

static void a_negative_count_of_samples_is_refused(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t max_times_sampled=2");
    struct built *built = built_create(0);
    add_chunk(built, (struct chunk_spec){.key = 1, .rows = 1});
    add_item(built, 5, "t", 1);
    wire_push_column(&built->request.lists);
    add_slice(built, 1, 0, 1, 0);
    built->request.lists.items[0].times_sampled = -5;
    trp_stream *stream = open_stream(replay, "InsertStream");
    send_built(stream, built);
    assert_ends(stream, TRP_INVALID_ARGUMENT, "times_sampled must not be negative");
    built_destroy(built);
    assert_int_equal(table_state(replay, "t").size, 0);
}

static void a_known_key_is_a_priority_update_that_is_confirmed_and_not_counted(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t sampler=max_heap");
    insert_items(replay, "t", 1, 2);
    trp_stream *stream = open_stream(replay, "InsertStream");
    uint64_t key = 1;
    send_simple(stream, key, "t", 77, 12345);
    assert_confirmed(stream, &key, 1);
    send_simple(stream, key, "t", 78, 12345);
    assert_confirmed(stream, &key, 1);
    trp_stream_destroy(stream);
    assert_int_equal(table_state(replay, "t").size, 2);
    assert_int_equal(table_state(replay, "t").inserts, 2);

    struct sampled sample;
    stream = open_stream(replay, "SampleStream");
    send_sample_request(stream, "t", 1, -1);
    receive_samples(stream, &sample, 1);
    assert_int_equal(sample.key, 1);
    assert_int_equal(sample.value, 10); /* the trajectory is the first one's */
    assert_true(sample.priority == 78);
    trp_stream_destroy(stream);
}

/* Its writer missed the confirmation, and a learner was faster. */
static void an_item_that_is_sent_again_keeps_the_priority_that_it_got_meanwhile(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t sampler=max_heap");
    for (int time = 0; time < 2; time++) {
        trp_stream *stream = open_stream(replay, "InsertStream");
        uint64_t key = 1;
        send_simple(stream, key, "t", 3, 12345);
        assert_confirmed(stream, &key, 1);
        trp_stream_destroy(stream);
        assert_true(sample_one(replay, "t").priority == (time ? 8 : 3));
        assert_int_equal(mutate_key(replay, "t", key, true, 8, false), TRP_OK);
    }
    assert_int_equal(table_state(replay, "t").inserts, 1);
}

static void the_new_item_may_be_its_own_victim(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t remover=lifo max_size=2");
    insert_items(replay, "t", 1, 5); /* confirmed all the same */
    assert_int_equal(table_state(replay, "t").size, 2);
    assert_int_equal(table_state(replay, "t").inserts, 5);
    assert_int_equal(mutate_key(replay, "t", 2, false, 0, true), TRP_OK);
    assert_int_equal(table_state(replay, "t").size, 1);
}

/* Of keys and a table that do not exist. */
static void what_large_requests_took_is_given_back(void **state)
{
    enum { COUNT = 300000, KEPT_MAX = 4 << 20 };
    struct replay *replay = *state;
    struct wire_mutate_request mutate = {.table = text_bytes("t")};
    trp_message *message;
    OPEN("name=t");
    table_state(replay, "t");
    size_t before = heap_bytes();
    trp_stream *stream = open_stream(replay, "InsertStream");
    struct built *built = built_create(0);
    add_chunk(built, (struct chunk_spec){.key = 1});
    for (uint64_t key = 1; key <= COUNT; ++key) {
        add_simple_item(built, key, "none", 1, 1);
        *wire_push_update(&mutate) = (struct wire_update){key, 1};
    }
    send_built(stream, built);
    built_destroy(built);
    assert_ends(stream, TRP_NOT_FOUND, NULL);
    assert_int_equal(wire_mutate_request_encode(&mutate, &message), TRP_OK);
    wire_mutate_request_cleanup(&mutate);
    assert_int_equal(unary(replay, "MutatePriorities", message, NULL), TRP_OK);
    table_state(replay, "t"); /* when it waits, the server has nothing else to do */
    assert_true(heap_bytes() < before + KEPT_MAX);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, replay_setup, replay_teardown)
    const struct CMUnitTest tests[] = {
        TEST(items_are_confirmed_in_order_and_visible),
        TEST(what_large_requests_took_is_given_back),
        TEST(a_stream_without_messages_ends_with_ok),
        TEST(a_message_with_neither_chunks_nor_items_is_refused),
        TEST(a_corrupt_message_ends_its_stream_only),
        TEST(what_came_before_a_failing_item_is_inserted_and_confirmed),
        TEST(later_columns_may_be_empty_the_first_may_not),
        TEST(chunk_only_messages_release_nothing),
        TEST(keep_keys_have_to_match_what_is_left),
        TEST(the_first_of_equal_chunk_keys_wins_until_it_is_dropped),
        TEST(one_key_on_two_streams_is_two_chunks),
        TEST(poison_items_are_refused),
        TEST(chunks_that_no_client_could_unpack_are_refused),
        TEST(a_chunks_tensors_agree_with_each_other_and_with_its_steps),
        TEST(tensors_may_have_as_many_dimensions_as_tensorflow_takes),
        TEST(slices_that_cannot_be_joined_are_refused),
        TEST(a_bad_priority_ends_its_stream_and_leaves_the_table_alone),
        TEST(not_a_number_is_refused_by_every_kind_of_table),
        TEST(a_negative_count_of_samples_is_refused),
        TEST(a_known_key_is_a_priority_update_that_is_confirmed_and_not_counted),
        TEST(an_item_that_is_sent_again_keeps_the_priority_that_it_got_meanwhile),
        TEST(the_new_item_may_be_its_own_victim),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
