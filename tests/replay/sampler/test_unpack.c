/* Samples from bytes to rows: broken ones, and those that only look like others. */
#include "replay/sampler/unpack.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/replay/sample_message.h"

static trp_status unpack(struct buffer *response)
{
    struct unpacker *unpacker = unpacker_create(sample_columns, SAMPLE_COLUMNS);
    struct batch batch;
    assert_int_equal(batch_init(&batch, sample_columns, SAMPLE_COLUMNS, 4, NULL, "test"), TRP_OK);
    trp_message *message = trp_message_create(response->size);
    memcpy(trp_message_data(message), response->data, response->size);
    buffer_cleanup(response);
    trp_status status = unpacker_feed(unpacker, message);
    if (status == TRP_OK)
        status = unpacker_fill(unpacker, &batch);
    unpacker_destroy(unpacker);
    batch_cleanup(&batch, SAMPLE_COLUMNS);
    return status;
}

static void samples_out_of_order_are_refused(void **state)
{
    (void)state;
    struct buffer response = {0};
    add_sample_part(&response, 1, 1); /* chunks without info */
    assert_int_equal(unpack(&response), TRP_INVALID_ARGUMENT);
    add_sample_part(&response, 1, 0); /* info twice */
    add_sample_part(&response, 2, 0);
    assert_int_equal(unpack(&response), TRP_INVALID_ARGUMENT);
    add_sample_part(&response, 1, 0); /* a chunk is missing */
    add_sample_part(&response, 1, 1);
    add_sample_part(&response, 1, 4);
    assert_int_equal(unpack(&response), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "chunk 12, which did not come"));
}

/* Sample 1 with its first chunk's tensor 0 or its slices replaced. */
static trp_status unpack_strange(int64_t rows, const void *content, size_t size, int offset,
                                 int length, int index)
{
    static const trp_tensor_spec column = {
        .name = "v", .dtype = TRP_INT64, .rank = 1, .shape = {2}};
    struct buffer response = {0}, entry = {0}, info = {0}, item = {0}, trajectory = {0};
    struct buffer part = {0}, tensor = {0}, shape = {0}, data = {0}, chunk = {0};
    add_slice(&part, 7, offset, length, index);
    pb_part(&trajectory, 1, &part);
    pb_number(&item, 1, 5);
    pb_part(&item, 8, &trajectory);
    pb_part(&info, 1, &item);
    pb_part(&entry, 1, &info);
    pb_number(&tensor, 1, TRP_INT64);
    pb_number(&part, 1, (uint64_t)rows);
    pb_part(&shape, 2, &part);
    pb_part(&tensor, 2, &shape);
    pb_bytes(&tensor, 4, content, size);
    pb_part(&data, 1, &tensor);
    pb_number(&chunk, 1, 7);
    pb_part(&chunk, 5, &data);
    pb_part(&entry, 2, &chunk);
    pb_number(&entry, 3, 1);
    pb_part(&response, 1, &entry);

    struct unpacker *unpacker = unpacker_create(&column, 1);
    struct batch batch;
    assert_int_equal(batch_init(&batch, &column, 1, 1, NULL, "test"), TRP_OK);
    trp_message *message = trp_message_create(response.size);
    memcpy(trp_message_data(message), response.data, response.size);
    buffer_cleanup(&response);
    assert_int_equal(unpacker_feed(unpacker, message), TRP_OK);
    trp_status status = unpacker_fill(unpacker, &batch);
    unpacker_destroy(unpacker);
    batch_cleanup(&batch, 1);
    return status;
}

static void slices_outside_their_chunk_are_refused(void **state)
{
    (void)state;
    uint8_t block[64], *end = block;
    *end++ = 24;
    *end++ = 23 << 2;
    memset(end, 1, 24);
    size_t size = 26;
    assert_int_equal(unpack_strange(3, block, size, 1, 2, 0), TRP_OK);
    assert_int_equal(unpack_strange(3, block, size, 2, 2, 0), TRP_INVALID_ARGUMENT);
    assert_int_equal(unpack_strange(3, block, size, -1, 2, 0), TRP_INVALID_ARGUMENT);
    assert_int_equal(unpack_strange(3, block, size, 1, 1, 0), TRP_INVALID_ARGUMENT);
    assert_int_equal(unpack_strange(3, block, size, 0, 3, 0), TRP_INVALID_ARGUMENT);
    assert_int_equal(unpack_strange(3, block, size, 0, -2, 0), TRP_INVALID_ARGUMENT);
    assert_int_equal(unpack_strange(3, block, size, INT32_MAX, 2, 0), TRP_INVALID_ARGUMENT);
    assert_int_equal(unpack_strange(3, block, size, 1, 2, 1), TRP_INVALID_ARGUMENT);
    assert_int_equal(unpack_strange(3, block, size, 1, 2, -1), TRP_INVALID_ARGUMENT);
    assert_int_equal(unpack_strange(-3, block, size, 0, 2, 0), TRP_INVALID_ARGUMENT);
}

static void blocks_of_another_size_than_their_shape_are_data_loss(void **state)
{
    (void)state;
    uint8_t block[64];
    block[0] = 24;
    block[1] = 23 << 2;
    memset(block + 2, 1, 24);
    assert_int_equal(unpack_strange(4, block, 26, 1, 2, 0), TRP_DATA_LOSS);
    assert_int_equal(unpack_strange(3, block, 25, 1, 2, 0), TRP_DATA_LOSS);
    assert_int_equal(unpack_strange(2, block, 26, 0, 2, 0), TRP_DATA_LOSS);
    assert_int_equal(unpack_strange(INT64_MAX / 8, block, 26, 0, 2, 0), TRP_DATA_LOSS);
    assert_int_equal(unpack_strange(INT64_MAX, block, 26, 0, 2, 0), TRP_DATA_LOSS);
    assert_int_equal(unpack_strange(2, block, 0, 0, 2, 0), TRP_DATA_LOSS);
}

/* ---- samples that look alike ----------------------------------------------------------------- */

static void check_row(const struct batch *batch, uint32_t row, int64_t n)
{
    struct sample_row expected = sample_row(n);
    assert_memory_equal((int64_t *)batch->columns[0] + row, &expected.x, sizeof expected.x);
    assert_memory_equal((uint8_t *)batch->columns[1] + row * sizeof expected.frames,
                        expected.frames, sizeof expected.frames);
    assert_memory_equal((uint8_t *)batch->columns[2] + row * sizeof expected.y, expected.y,
                        sizeof expected.y);
    assert_memory_equal((uint8_t *)batch->columns[3] + row * sizeof expected.d, expected.d,
                        sizeof expected.d);
    assert_int_equal(batch->keys[row], 1000 + n);
    assert_true(batch->probabilities[row] == 1.0 / (double)(n + 1));
}

static trp_status feed(struct unpacker *unpacker, struct batch *batch,
                       const struct buffer *response)
{
    trp_message *message = trp_message_create(response->size);
    memcpy(trp_message_data(message), response->data, response->size);
    trp_status status = unpacker_feed(unpacker, message);
    return status == TRP_OK ? unpacker_fill(unpacker, batch) : status;
}

static void samples_that_look_alike_are_copied_right(void **state)
{
    (void)state;
    enum { SAMPLES = 200 };
    struct buffer response = {0};
    struct unpacker *unpacker = unpacker_create(sample_columns, SAMPLE_COLUMNS);
    struct batch batch;
    assert_int_equal(batch_init(&batch, sample_columns, SAMPLE_COLUMNS, SAMPLES, NULL, "test"),
                     TRP_OK);
    for (int64_t n = 0; n < SAMPLES; n++) { /* three kinds, in turn and in runs */
        if (n % 7 == 3)
            add_sample(&response, n);
        else
            add_plain_sample(&response, n, n % 100 < 50 ? 1 : 2);
    }
    assert_int_equal(feed(unpacker, &batch, &response), TRP_OK);
    assert_int_equal(batch.rows, SAMPLES);
    for (uint32_t row = 0; row < SAMPLES; row++)
        check_row(&batch, row, row);
    buffer_cleanup(&response);
    unpacker_destroy(unpacker);
    batch_cleanup(&batch, SAMPLE_COLUMNS);
}

static void clear(struct batch *batch)
{
    batch->rows = 0;
    for (size_t i = 0; i < SAMPLE_COLUMNS; i++)
        memset(batch->columns[i], 0, batch->capacity * trp_tensor_bytes(&sample_columns[i]));
}

static void assert_same(const struct batch *a, const struct batch *b)
{
    assert_int_equal(a->rows, b->rows);
    for (size_t i = 0; i < SAMPLE_COLUMNS; i++)
        assert_memory_equal(a->columns[i], b->columns[i],
                            a->rows * trp_tensor_bytes(&sample_columns[i]));
    assert_memory_equal(a->keys, b->keys, a->rows * sizeof *a->keys);
    assert_memory_equal(a->priorities, b->priorities, a->rows * sizeof *a->priorities);
    assert_memory_equal(a->probabilities, b->probabilities, a->rows * sizeof *a->probabilities);
    assert_memory_equal(a->table_sizes, b->table_sizes, a->rows * sizeof *a->table_sizes);
    assert_memory_equal(a->times_sampled, b->times_sampled, a->rows * sizeof *a->times_sampled);
}

/* Whatever changes in a sample, an unpacker that knows its kind says what a new one says. */
static void a_sample_that_differs_anywhere_is_decoded(void **state)
{
    (void)state;
    static const uint8_t masks[] = {0x01, 0x02, 0x08, 0x80, 0xff};
    struct buffer first = {0}, second = {0};
    struct batch known, fresh;
    add_plain_sample(&first, 4, 2);
    add_plain_sample(&second, 5, 2);
    assert_int_equal(batch_init(&known, sample_columns, SAMPLE_COLUMNS, 1, NULL, "test"), TRP_OK);
    assert_int_equal(batch_init(&fresh, sample_columns, SAMPLE_COLUMNS, 1, NULL, "test"), TRP_OK);
    for (size_t i = 0; i < second.size * sizeof masks; i++) {
        struct unpacker *learnt = unpacker_create(sample_columns, SAMPLE_COLUMNS);
        struct unpacker *naive = unpacker_create(sample_columns, SAMPLE_COLUMNS);
        assert_int_equal(feed(learnt, &known, &first), TRP_OK);
        clear(&known);
        clear(&fresh);
        second.data[i / sizeof masks] ^= masks[i % sizeof masks];
        trp_status status = feed(learnt, &known, &second);
        assert_int_equal(status, feed(naive, &fresh, &second));
        if (status == TRP_OK)
            assert_same(&known, &fresh);
        second.data[i / sizeof masks] ^= masks[i % sizeof masks];
        unpacker_destroy(learnt);
        unpacker_destroy(naive);
    }
    buffer_cleanup(&first);
    buffer_cleanup(&second);
    batch_cleanup(&known, SAMPLE_COLUMNS);
    batch_cleanup(&fresh, SAMPLE_COLUMNS);
}

/* ---- messages in parts ----------------------------------------------------------------------- */

/* A message of `size` bytes whose first part has `first`, the others `step`. */
static trp_message *message_in_parts(const uint8_t *data, size_t size, size_t first, size_t step)
{
    size_t count = 1 + (size - first + step - 1) / step, at = 0;
    trp_message *message = trp_message_create(0);
    trp_bytes *parts = xmalloc(sizeof *parts * count + size);
    uint8_t *copy = (uint8_t *)(parts + count);
    memcpy(copy, data, size);
    for (size_t i = 0; i < count; i++) {
        size_t part = i == 0 ? first : step;
        part = part < size - at ? part : size - at;
        parts[i] = (trp_bytes){copy + at, part};
        at += part;
    }
    assert_int_equal(at, size);
    trp_message_set_parts(message, parts, count, free, parts);
    return message;
}

static trp_status feed_parts(struct unpacker *unpacker, struct batch *batch,
                             const struct buffer *response, size_t first, size_t step)
{
    trp_status status =
        unpacker_feed(unpacker, message_in_parts(response->data, response->size, first, step));
    return status == TRP_OK ? unpacker_fill(unpacker, batch) : status;
}

static void a_message_may_be_cut_anywhere(void **state)
{
    (void)state;
    enum { SAMPLES = 7 };
    struct buffer response = {0};
    struct batch whole, parts;
    assert_int_equal(batch_init(&whole, sample_columns, SAMPLE_COLUMNS, SAMPLES, NULL, "test"),
                     TRP_OK);
    assert_int_equal(batch_init(&parts, sample_columns, SAMPLE_COLUMNS, SAMPLES, NULL, "test"),
                     TRP_OK);
    for (int64_t n = 0; n < SAMPLES - 1; n++) {
        if (n % 3 == 2)
            add_sample(&response, n);
        else
            add_plain_sample(&response, n, 1 + (int)(n % 2));
    }
    for (int part = 0; part < 5; part++)
        add_sample_part(&response, SAMPLES - 1, part);
    struct unpacker *unpacker = unpacker_create(sample_columns, SAMPLE_COLUMNS);
    assert_int_equal(feed(unpacker, &whole, &response), TRP_OK);
    assert_int_equal(whole.rows, SAMPLES);
    for (size_t first = 0; first <= response.size; first++) {
        clear(&parts);
        assert_int_equal(feed_parts(unpacker, &parts, &response, first, response.size), TRP_OK);
        assert_same(&whole, &parts);
    }
    for (size_t step = 1; step <= 400; step++) {
        clear(&parts);
        assert_int_equal(feed_parts(unpacker, &parts, &response, step / 2, step), TRP_OK);
        assert_same(&whole, &parts);
    }
    buffer_cleanup(&response);
    unpacker_destroy(unpacker);
    batch_cleanup(&whole, SAMPLE_COLUMNS);
    batch_cleanup(&parts, SAMPLE_COLUMNS);
}

static void a_sample_over_several_messages_in_parts_is_whole(void **state)
{
    (void)state;
    struct batch batch;
    struct unpacker *unpacker = unpacker_create(sample_columns, SAMPLE_COLUMNS);
    assert_int_equal(batch_init(&batch, sample_columns, SAMPLE_COLUMNS, 2, NULL, "test"), TRP_OK);
    for (size_t step = 1; step <= 300; step++) {
        clear(&batch);
        for (int part = 0; part < 5; part++) {
            struct buffer response = {0};
            if (part == 0)
                add_sample(&response, (int64_t)step);
            add_sample_part(&response, (int64_t)step + 1, part);
            assert_int_equal(feed_parts(unpacker, &batch, &response, step, step), TRP_OK);
            buffer_cleanup(&response);
        }
        assert_int_equal(batch.rows, 2);
        check_row(&batch, 0, (int64_t)step);
        check_row(&batch, 1, (int64_t)step + 1);
    }
    unpacker_destroy(unpacker);
    batch_cleanup(&batch, SAMPLE_COLUMNS);
}

static void a_message_in_parts_that_is_cut_short_is_refused(void **state)
{
    (void)state;
    struct buffer response = {0};
    struct batch batch;
    assert_int_equal(batch_init(&batch, sample_columns, SAMPLE_COLUMNS, 4, NULL, "test"), TRP_OK);
    add_plain_sample(&response, 1, 1);
    size_t first = response.size;
    add_plain_sample(&response, 2, 1);
    for (size_t size = response.size; --size > first;) {
        struct unpacker *unpacker = unpacker_create(sample_columns, SAMPLE_COLUMNS);
        response.size = size;
        clear(&batch);
        assert_int_equal(feed_parts(unpacker, &batch, &response, 10, 40), TRP_INVALID_ARGUMENT);
        assert_int_equal(batch.rows, 1);
        unpacker_destroy(unpacker);
    }
    buffer_cleanup(&response);
    batch_cleanup(&batch, SAMPLE_COLUMNS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_out_of_order_are_refused),
        cmocka_unit_test(slices_outside_their_chunk_are_refused),
        cmocka_unit_test(blocks_of_another_size_than_their_shape_are_data_loss),
        cmocka_unit_test(samples_that_look_alike_are_copied_right),
        cmocka_unit_test(a_sample_that_differs_anywhere_is_decoded),
        cmocka_unit_test(a_message_may_be_cut_anywhere),
        cmocka_unit_test(a_sample_over_several_messages_in_parts_is_whole),
        cmocka_unit_test(a_message_in_parts_that_is_cut_short_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
