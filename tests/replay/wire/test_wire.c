/* The codec of Reverb's hot messages against bytes that Reverb's own code wrote. */
#include "replay/wire/wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <reverb.pb-c.h>

#include "tests/replay/golden.h"
#include "tests/replay/hex.h"
#include "replay/wire/cut.h"
#include "replay/wire/tensor.h"
#include "replay/wire/parts.h"
#include "wire_dump.h"

static trp_status insert_request_decode(trp_bytes bytes, struct wire_insert_request *request)
{
    return wire_insert_request_decode(&bytes, 1, request);
}

static void assert_message(trp_message *message, trp_bytes expected)
{
    assert_int_equal(trp_message_size(message), expected.size);
    assert_memory_equal(trp_message_data(message), expected.data, expected.size);
    trp_message_destroy(message);
}

static trp_bytes text(const char *string)
{
    return (trp_bytes){(const uint8_t *)string, strlen(string)};
}

static bool bytes_are(trp_bytes bytes, const char *string)
{
    return bytes.size == strlen(string) && memcmp(bytes.data, string, bytes.size) == 0;
}

/* ---- cutting ----------------------------------------------------------------------------- */

enum { CUT_ROWS = 4 };

/* A chunk of CUT_ROWS rows of two int32: as they are, and packed as differences. */
static trp_message *cut_message(uint64_t key, bool delta, struct wire_insert_request *request)
{
    int32_t rows[CUT_ROWS][2];
    uint8_t block[128], *raw = block + BLOCK_HEADER_BYTES_MAX;
    for (int i = 0; i < CUT_ROWS; i++)
        for (int j = 0; j < 2; j++)
            rows[i][j] = delta && i > 0 ? 1 : i + 10 * j;
    memcpy(raw, rows, sizeof rows);
    uint8_t *start = block_literal_header(raw, sizeof rows);
    struct wire_tensor tensor = {.dtype = TRP_INT32,
                                 .rank = 2,
                                 .dims = {CUT_ROWS, 2},
                                 .content = {start, (size_t)(raw - start) + sizeof rows}};
    struct wire_steps steps = {.delta_encoded = delta, .tensors = &tensor, .tensor_count = 1};
    struct wire_insert_request made = {0};
    *wire_push_chunk(&made.lists) = (struct wire_chunk){.key = key, .steps = &steps};
    trp_message *message;
    assert_int_equal(wire_insert_request_encode(&made, &message), TRP_OK);
    assert_int_equal(insert_request_decode(message_bytes(message), request), TRP_OK);
    wire_insert_request_cleanup(&made);
    return message;
}

/* Rows of a literal are where they came, those that have to be made are where they are wanted. */
static void rows_are_cut_out_of_chunks(void **state)
{
    (void)state;
    for (int delta = 0; delta < 2; delta++) {
        struct wire_insert_request request = {0};
        struct cutter cutter = {0};
        trp_message *message = cut_message(5, delta, &request);
        const struct wire_tensor *tensor;
        int32_t out[2][2] = {{0}}, cut[2][2];
        trp_bytes rows;
        bool differences;
        struct wire_slice slice = {.chunk_key = 5, .offset = 1, .length = 2};
        cutter_begin(&cutter, request.lists.chunks, request.lists.chunk_count);
        assert_int_equal(cutter_find(&cutter, &slice, &tensor, &differences), TRP_OK);
        assert_int_equal(differences, delta);
        assert_int_equal(cutter_cut(&cutter, &slice, tensor, differences, 8, (void *)out, &rows),
                         TRP_OK);
        assert_int_equal(rows.data == (uint8_t *)out, delta);
        assert_int_equal(rows.size, sizeof cut);
        memcpy(cut, rows.data, sizeof cut);
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < 2; j++)
                assert_int_equal(cut[i][j], i + 1 + 10 * j);
        slice.length = CUT_ROWS;
        assert_int_equal(cutter_cut(&cutter, &slice, tensor, differences, 8, (void *)out, &rows),
                         TRP_INVALID_ARGUMENT);
        slice.index = 1;
        assert_int_equal(cutter_find(&cutter, &slice, &tensor, &differences), TRP_INVALID_ARGUMENT);
        slice.chunk_key = 6;
        assert_int_equal(cutter_find(&cutter, &slice, &tensor, &differences), TRP_INVALID_ARGUMENT);
        cutter_cleanup(&cutter);
        wire_insert_request_cleanup(&request);
        trp_message_destroy(message);
    }
}

/* ---- inserts ----------------------------------------------------------------------------- */

/* Of the first item, which has them instead of its trajectory then. */
static void decode_columns(struct wire_lists *lists)
{
    assert_int_equal(wire_item_columns(lists, &lists->items[0]), TRP_OK);
    lists->items[0].trajectory.size = 0;
}

static void insert_requests_of_every_writer_encode_to_the_bytes_they_were(void **state)
{
    (void)state;
    const char *golden[] = {INSERT_REQUEST, CLIENT_INSERT, LEGACY_WRITER, TRAJECTORY_WRITER};
    uint8_t buffer[2048];
    struct wire_insert_request request = {0};
    for (size_t i = 0; i < sizeof golden / sizeof *golden; ++i) {
        trp_bytes bytes = hex_bytes(golden[i], buffer);
        trp_message *message;
        assert_int_equal(insert_request_decode(bytes, &request), TRP_OK);
        assert_int_equal(request.lists.item_count, 1);
        decode_columns(&request.lists);
        assert_int_equal(wire_insert_request_encode(&request, &message), TRP_OK);
        assert_message(message, bytes);
    }
    wire_insert_request_cleanup(&request);
}

static void an_insert_request_decodes_to_its_parts(void **state)
{
    (void)state;
    uint8_t buffer[256];
    struct wire_insert_request request = {0};
    assert_int_equal(insert_request_decode(hex_bytes(INSERT_REQUEST, buffer), &request), TRP_OK);
    struct wire_lists *lists = &request.lists;
    decode_columns(lists);
    assert_int_equal(lists->chunk_count, 1);
    assert_int_equal(lists->chunks[0].key, 7);
    assert_int_equal(lists->chunks[0].head.size, 0);
    assert_int_equal(lists->chunks[0].tail.size, 0x22 - 2);
    assert_int_equal(lists->item_count, 1);
    assert_int_equal(lists->items[0].key, 11);
    assert_true(bytes_are(lists->items[0].table, "t"));
    assert_true(lists->items[0].priority == 1.0);
    assert_int_equal(lists->items[0].column_count, 1);
    assert_int_equal(lists->columns[0].slice_count, 1);
    assert_false(lists->columns[0].squeeze);
    assert_int_equal(lists->slices[0].chunk_key, 7);
    assert_int_equal(lists->slices[0].offset, 0);
    assert_int_equal(lists->slices[0].length, 1);
    assert_int_equal(lists->slices[0].index, 0);
    assert_int_equal(request.keep.count, 1);
    assert_int_equal(request.keep.keys[0], 7);
    wire_insert_request_cleanup(&request);
}

static void steps_encode_like_the_chunk_of_a_writer(void **state)
{
    (void)state;
    static const uint8_t content[] = {0x08, 0x1c, 5, 0, 0, 0, 0, 0, 0, 0};
    struct wire_tensor tensor = {
        .dtype = TRP_INT64, .rank = 1, .dims = {1}, .content = {content, sizeof content}};
    struct wire_steps steps = {
        .episode_id = 9, .uncompressed_bytes = 8, .tensors = &tensor, .tensor_count = 1};
    struct wire_insert_request request = {0};
    struct wire_chunk *chunk = wire_push_chunk(&request.lists);
    *chunk = (struct wire_chunk){.key = 7, .steps = &steps};
    struct wire_item *item = wire_push_item(&request.lists);
    item->key = 11;
    item->table = text("t");
    item->priority = 1;
    wire_push_column(&request.lists);
    *wire_push_slice(&request.lists) = (struct wire_slice){.chunk_key = 7, .length = 1};
    wire_push_key(&request.keep, 7);

    uint8_t buffer[256];
    trp_message *message;
    assert_int_equal(wire_chunk_size(chunk), 0x22 + 2);
    assert_int_equal(wire_insert_request_encode(&request, &message), TRP_OK);
    assert_message(message, hex_bytes(INSERT_REQUEST, buffer));
    wire_insert_request_cleanup(&request);
}

static void a_chunk_key_is_cut_out_wherever_it_is(void **state)
{
    (void)state;
    /* sequence_range {episode 1}, key 9, delta_encoded; and the same with no key at all */
    uint8_t buffer[64];
    struct wire_insert_request request = {0};
    assert_int_equal(insert_request_decode(hex_bytes("0a08120208010809"
                                                     "2001",
                                                     buffer),
                                           &request),
                     TRP_OK);
    struct wire_chunk *chunk = &request.lists.chunks[0];
    assert_int_equal(chunk->key, 9);
    assert_int_equal(chunk->head.size, 4);
    assert_int_equal(chunk->tail.size, 2);
    assert_int_equal(insert_request_decode(hex_bytes("0a0412020801", buffer), &request), TRP_OK);
    chunk = &request.lists.chunks[0];
    assert_int_equal(chunk->key, 0);
    assert_int_equal(chunk->head.size + chunk->tail.size, 4);
    assert_int_equal(insert_request_decode(hex_bytes("0a0408090809", buffer), &request),
                     TRP_INVALID_ARGUMENT);
    wire_insert_request_cleanup(&request);
}

static void keys_are_read_packed_and_unpacked(void **state)
{
    (void)state;
    uint8_t buffer[64];
    struct wire_keys keys = {0};
    assert_int_equal(
        wire_insert_response_decode(hex_bytes("0a0cac02feffffffffffffffff01", buffer), &keys),
        TRP_OK);
    assert_int_equal(
        wire_insert_response_decode(hex_bytes("08ac0208feffffffffffffffff01", buffer), &keys),
        TRP_OK);
    assert_int_equal(keys.count, 4);
    for (size_t i = 0; i < 4; ++i)
        assert_true(keys.keys[i] == (i % 2 ? UINT64_MAX - 1 : 300));
    trp_message *message;
    keys.count = 2;
    assert_int_equal(wire_insert_response_encode(&keys, &message), TRP_OK);
    assert_message(message, hex_bytes("0a0cac02feffffffffffffffff01", buffer));
    keys.count = 0;
    assert_int_equal(wire_insert_response_encode(&keys, &message), TRP_OK);
    assert_message(message, (trp_bytes){buffer, 0});
    wire_keys_cleanup(&keys);
}

static void unknown_fields_and_groups_are_skipped(void **state)
{
    (void)state;
    uint8_t buffer[64];
    struct wire_insert_request request = {0};
    /* 100: varint 1; 101: group {1: 2, 2: group {}}; 102: fixed32; then keep 5 */
    trp_bytes bytes = hex_bytes("a00601"
                                "ab0608021314ac06"
                                "b50601020304"
                                "1805",
                                buffer);
    assert_int_equal(insert_request_decode(bytes, &request), TRP_OK);
    assert_int_equal(request.keep.count, 1);
    assert_int_equal(request.keep.keys[0], 5);
    /* a group that does not end, an end without a group, a field 0, a group 70 deep */
    const char *broken[] = {"ab060802", "ac06", "0001", NULL};
    for (size_t i = 0; broken[i]; ++i)
        assert_int_equal(insert_request_decode(hex_bytes(broken[i], buffer), &request),
                         TRP_INVALID_ARGUMENT);
    uint8_t deep[140];
    memset(deep, 0x7b, 70);      /* 15: group */
    memset(deep + 70, 0x7c, 70); /* 15: end */
    assert_int_equal(insert_request_decode((trp_bytes){deep, 140}, &request), TRP_INVALID_ARGUMENT);
    assert_int_equal(insert_request_decode((trp_bytes){deep + 40, 60}, &request), TRP_OK);
    wire_insert_request_cleanup(&request);
}

static void every_cut_of_a_message_is_refused_or_shorter(void **state)
{
    (void)state;
    const char *golden[] = {INSERT_REQUEST, CLIENT_INSERT, LEGACY_WRITER, TRAJECTORY_WRITER};
    uint8_t buffer[2048];
    struct wire_insert_request request = {0};
    for (size_t i = 0; i < sizeof golden / sizeof *golden; ++i) {
        trp_bytes bytes = hex_bytes(golden[i], buffer);
        for (size_t size = 0; size < bytes.size; ++size) {
            /* A heap copy of exactly this size: the sanitizer sees a byte too many. */
            uint8_t *copy = malloc(size + 1);
            memcpy(copy + 1, bytes.data, size);
            trp_status status = insert_request_decode((trp_bytes){copy + 1, size}, &request);
            if (status == TRP_OK)
                assert_true(
                    request.lists.item_count + request.lists.chunk_count + request.keep.count < 4);
            else
                assert_int_equal(status, TRP_INVALID_ARGUMENT);
            free(copy);
        }
    }
    wire_insert_request_cleanup(&request);
}

/* Three parts, each in memory of its own: the sanitizer sees a byte too many. */
static trp_status decode_in_parts(trp_bytes bytes, size_t first, size_t second,
                                  struct wire_insert_request *request, struct buffer *out)
{
    size_t ends[] = {0, first, first + second, bytes.size};
    trp_bytes parts[3];
    uint8_t *copies[3];
    for (int i = 0; i < 3; i++) {
        parts[i].size = ends[i + 1] - ends[i];
        parts[i].data = copies[i] = malloc(parts[i].size + 1);
        memcpy(copies[i], bytes.data + ends[i], parts[i].size);
    }
    trp_status status = wire_insert_request_decode(parts, 3, request);
    dump_request(out, request);
    for (int i = 0; i < 3; i++)
        free(copies[i]);
    return status;
}

static void check_in_parts(trp_bytes bytes, struct wire_insert_request *request)
{
    struct buffer whole = {0}, cut = {0};
    trp_status status = insert_request_decode(bytes, request);
    dump_request(&whole, request);
    for (size_t first = 0; first <= bytes.size; first++) {
        for (size_t second = 0; first + second <= bytes.size; second = 5 * second + 1) {
            assert_int_equal(decode_in_parts(bytes, first, second, request, &cut), status);
            if (status != TRP_OK)
                continue;
            assert_int_equal(cut.size, whole.size);
            assert_memory_equal(cut.data, whole.data, whole.size);
        }
    }
    buffer_cleanup(&whole);
    buffer_cleanup(&cut);
}

/* Two tensors of one literal each, as our writer sends them. */
static trp_message *literal_request(void)
{
    enum { SIZE = 700 };
    static uint8_t memory[2][BLOCK_HEADER_BYTES_MAX + SIZE];
    struct wire_tensor tensors[2];
    for (int i = 0; i < 2; i++) {
        uint8_t *rows = memory[i] + BLOCK_HEADER_BYTES_MAX;
        uint8_t *block = block_literal_header(rows, SIZE);
        memset(rows, 'a' + i, SIZE);
        tensors[i] = (struct wire_tensor){.dtype = TRP_UINT8,
                                          .rank = 2,
                                          .dims = {1, SIZE},
                                          .content = {block, (size_t)(rows - block) + SIZE}};
    }
    struct wire_insert_request request = {0};
    struct wire_steps steps = {.episode_id = 3, .tensors = tensors, .tensor_count = 2};
    for (uint64_t key = 1; key <= 2; key++)
        *wire_push_chunk(&request.lists) = (struct wire_chunk){.key = key, .steps = &steps};
    struct wire_item *item = wire_push_item(&request.lists);
    item->key = 9;
    item->table = text("table");
    wire_push_column(&request.lists)->squeeze = true;
    wire_push_slice(&request.lists)->chunk_key = 2;
    wire_push_key(&request.keep, 2);
    trp_message *message;
    assert_int_equal(wire_insert_request_encode(&request, &message), TRP_OK);
    wire_insert_request_cleanup(&request);
    return message;
}

static void a_request_is_the_same_however_it_is_cut_into_parts(void **state)
{
    (void)state;
    const char *golden[] = {INSERT_REQUEST, CLIENT_INSERT, LEGACY_WRITER, TRAJECTORY_WRITER};
    uint8_t buffer[2048];
    struct wire_insert_request request = {0};
    for (size_t i = 0; i < sizeof golden / sizeof *golden; ++i)
        check_in_parts(hex_bytes(golden[i], buffer), &request);
    const char *other[] = {"a00601ab0608021314ac06b506010203041805", /* unknown fields, a group */
                           "0a0408090809", "0a0412020801", "0a08120208010809", "0001"};
    for (size_t i = 0; i < sizeof other / sizeof *other; ++i)
        check_in_parts(hex_bytes(other[i], buffer), &request);
    trp_message *message = literal_request();
    trp_bytes bytes = {trp_message_data(message), trp_message_size(message)};
    check_in_parts(bytes, &request);
    bytes.size -= 3;
    check_in_parts(bytes, &request); /* ends in its keys */
    trp_message_destroy(message);
    wire_insert_request_cleanup(&request);
}

static void large_contents_are_left_where_they_are(void **state)
{
    (void)state;
    trp_message *message = literal_request();
    const trp_bytes bytes = {trp_message_data(message), trp_message_size(message)};
    const trp_bytes parts[] = {{bytes.data, 500},
                               {bytes.data + 500, 0},
                               {bytes.data + 500, 500},
                               {bytes.data + 1000, bytes.size - 1000}};
    struct wire_insert_request request = {0};
    assert_int_equal(wire_insert_request_decode(parts, 4, &request), TRP_OK);
    assert_int_equal(request.joined_count, 0);
    assert_ptr_equal(request.lists.chunks[0].tail.data + request.lists.chunks[0].tail.size,
                     bytes.data + 500);
    assert_ptr_equal(request.lists.chunks[0].more.parts, &parts[1]);
    assert_int_equal(request.lists.chunks[0].more.count, 3);
    assert_int_equal(request.lists.chunks[1].more.count, 0);
    wire_insert_request_cleanup(&request);
    trp_message_destroy(message);
}

/* The chunk with its bytes from `from` to `to` placed; true: it was left there. */
static bool find_cut(trp_bytes chunk, size_t from, size_t to, struct wire_insert_request *request,
                     struct buffer *out)
{
    uint8_t told[4096], *memory = malloc(to - from + 1);
    struct writer writer = writer_of(told, sizeof told);
    put_bytes_field(&writer, 1, (trp_bytes){chunk.data + to, chunk.size - to});
    put_fixed64(&writer, to - from);
    put_varint(&writer, TAG(2, FIXED64));
    put_bytes_field(&writer, 1, (trp_bytes){chunk.data, from});
    put_len_header(&writer, SHM_REFERENCE_FIELD, 0);
    memcpy(memory, chunk.data + from, to - from);
    assert_int_equal(insert_request_decode(writer_bytes(&writer), request), TRP_OK);
    struct wire_chunk *found = &request->lists.chunks[0];
    assert_true(found->by_reference);
    assert_int_equal(wire_chunk_resolve(request, (trp_bytes){memory, to - from}, found), TRP_OK);
    bool left = found->resolved != NULL;
    memset(memory, 0xff, to - from); /* a moment later its writer thinks otherwise */
    if (left)
        found->more.parts = found->resolved;
    dump_request(out, request);
    free(memory);
    return left;
}

static void what_is_in_shared_memory_decides_nothing(void **state)
{
    (void)state;
    trp_message *message = literal_request();
    struct wire_insert_request request = {0};
    struct buffer whole = {0}, cut = {0};
    struct reader reader =
        reader_of((trp_bytes){trp_message_data(message), trp_message_size(message)});
    struct field chunk = {0};
    assert_true(read_field(&reader, &chunk));
    assert_int_equal(insert_request_decode(
                         (trp_bytes){chunk.before, (size_t)(reader.at - chunk.before)}, &request),
                     TRP_OK);
    dump_request(&whole, &request);
    uint32_t left = 0, copied = 0;
    for (size_t from = 0; from < chunk.bytes.size; from++)
        for (size_t size = 1; from + size <= chunk.bytes.size; size = 3 * size + 1) {
            if (!find_cut(chunk.bytes, from, from + size, &request, &cut)) {
                assert_int_equal(cut.size, whole.size);
                assert_memory_equal(cut.data, whole.data, whole.size);
                copied++;
                continue;
            }
            left++;
            assert_int_equal(cut.size, whole.size);
            for (size_t i = 0; i < cut.size; i++) /* but in the contents, all is as it was */
                if (cut.data[i] != whole.data[i])
                    assert_true(whole.data[i] == 'a' || whole.data[i] == 'b');
        }
    assert_true(left > 0);
    assert_true(copied > 0);
    buffer_cleanup(&whole);
    buffer_cleanup(&cut);
    wire_insert_request_cleanup(&request);
    trp_message_destroy(message);
}

static void a_message_of_too_many_parts_is_refused(void **state)
{
    (void)state;
    size_t size = 2 * ((size_t)(1 << 20) + 1);
    uint8_t *bytes = calloc(1, size);
    for (size_t i = 0; i < size; i += 2)
        bytes[i] = 0x12; /* an empty item */
    struct wire_insert_request request = {0};
    assert_int_equal(insert_request_decode((trp_bytes){bytes, size}, &request),
                     TRP_RESOURCE_EXHAUSTED);
    assert_int_equal(insert_request_decode((trp_bytes){bytes, size - 2}, &request), TRP_OK);
    wire_insert_request_cleanup(&request);
    free(bytes);
}

/* ---- tensors ----------------------------------------------------------------------------- */

static void tensors_of_a_chunk_are_walked_by_their_headers(void **state)
{
    (void)state;
    uint8_t buffer[2048];
    struct wire_insert_request request = {0};
    assert_int_equal(insert_request_decode(hex_bytes(LEGACY_WRITER, buffer), &request), TRP_OK);
    static const struct {
        int32_t dtype;
        uint32_t rank;
        int64_t dims[3];
        size_t content;
    } rows[] = {{9, 1, {4}, 26},    {4, 3, {4, 2, 2}, 18}, {5, 2, {4, 3}, 23},
                {1, 2, {4, 2}, 26}, {10, 2, {4, 2}, 10},   {7, 2, {4, 2}, 20}};
    struct wire_tensor_reader reader;
    struct wire_tensor tensor;
    bool more;
    wire_tensors_open(&reader, &request.lists.chunks[0]);
    for (size_t i = 0; i < 6; ++i) {
        assert_int_equal(wire_tensor_next(&reader, &tensor, &more), TRP_OK);
        assert_true(more);
        assert_int_equal(tensor.dtype, rows[i].dtype);
        assert_int_equal(tensor.rank, rows[i].rank);
        for (uint32_t d = 0; d < rows[i].rank; ++d)
            assert_int_equal(tensor.dims[d], rows[i].dims[d]);
        assert_int_equal(tensor.content.size, rows[i].content);
    }
    assert_int_equal(wire_tensor_next(&reader, &tensor, &more), TRP_OK);
    assert_false(more);
    assert_true(reader.delta_encoded);
    assert_int_equal(reader.count, 6);
    wire_insert_request_cleanup(&request);
}

static void an_empty_dimension_counts_and_old_fields_are_read(void **state)
{
    (void)state;
    uint8_t buffer[64];
    struct wire_chunk chunk = {0};
    struct wire_tensor_reader reader;
    struct wire_tensor tensor;
    bool more;
    /* data {tensor {float, dims 0, 3}}, then deprecated tensor {int8, dim 2} */
    chunk.head = hex_bytes("2a0c0a0a08011206120012020803"
                           "1a0808061204"
                           "12020802",
                           buffer);
    wire_tensors_open(&reader, &chunk);
    assert_int_equal(wire_tensor_next(&reader, &tensor, &more), TRP_OK);
    assert_true(more && tensor.rank == 2 && tensor.dims[0] == 0 && tensor.dims[1] == 3);
    assert_int_equal(wire_tensor_next(&reader, &tensor, &more), TRP_OK);
    assert_true(more && tensor.dtype == TRP_INT8 && tensor.rank == 1 && tensor.dims[0] == 2);
    assert_int_equal(wire_tensor_next(&reader, &tensor, &more), TRP_OK);
    assert_false(more);

    chunk.head = hex_bytes("2a030a0508", buffer); /* a tensor longer than its Data */
    wire_tensors_open(&reader, &chunk);
    assert_int_equal(wire_tensor_next(&reader, &tensor, &more), TRP_INVALID_ARGUMENT);
}

/* ---- samples ----------------------------------------------------------------------------- */

static void sample_requests_tell_a_timeout_of_zero_from_none(void **state)
{
    (void)state;
    static const struct {
        const char *hex;
        bool has_timeout;
        int64_t timeout_ms;
    } rows[] = {{"0a017410031a0b08ffffffffffffffffff01", true, -1},
                {"0a017410031a00", true, 0},
                {"0a017410031a0308e807", true, 1000},
                {"0a01741003", false, 0}};
    uint8_t buffer[64];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
        struct wire_sample_request request;
        trp_message *message;
        trp_bytes bytes = hex_bytes(rows[i].hex, buffer);
        assert_int_equal(wire_sample_request_decode(bytes, &request), TRP_OK);
        assert_true(bytes_are(request.table, "t"));
        assert_int_equal(request.num_samples, 3);
        assert_int_equal(request.has_timeout, rows[i].has_timeout);
        assert_int_equal(request.timeout_ms, rows[i].timeout_ms);
        assert_int_equal(wire_sample_request_encode(&request, &message), TRP_OK);
        assert_message(message, bytes);
    }
    struct wire_sample_request request;
    assert_int_equal(wire_sample_request_decode(hex_bytes("0a0574", buffer), &request),
                     TRP_INVALID_ARGUMENT);
}

static void a_sample_response_decodes_and_encodes(void **state)
{
    (void)state;
    uint8_t buffer[256], trajectory[16];
    trp_bytes bytes = hex_bytes(SAMPLE_RESPONSE, buffer);
    struct wire_sample_response response = {0};
    assert_int_equal(wire_sample_response_decode(bytes, &response), TRP_OK);
    assert_int_equal(response.entry_count, 1);
    const struct wire_entry *entry = &response.entries[0];
    assert_true(entry->has_info && entry->end_of_sequence);
    assert_true(entry->draw.probability == 1 && entry->draw.table_size == 1);
    assert_false(entry->draw.rate_limited);
    const struct wire_item *item = &response.lists.items[entry->item];
    assert_int_equal(item->key, 11);
    assert_int_equal(item->times_sampled, 1);
    assert_true(item->inserted_at_ns == INT64_C(1700000000000000005));
    assert_int_equal(entry->chunk_count, 1);
    const struct wire_chunk *chunk = &response.lists.chunks[entry->chunk_first];
    assert_int_equal(chunk->key, 7);

    struct wire_slot slot = {.key = chunk->key, .size = chunk->tail.size};
    assert_int_equal(item->trajectory.size, 8);
    assert_memory_equal(item->trajectory.data, hex_bytes("0a060a0408071801", trajectory).data, 8);
    struct wire_entry_parts parts = {.item = item,
                                     .draw = entry->draw,
                                     .slots = &slot,
                                     .slot_count = 1,
                                     .end_of_sequence = true};
    trp_message *message;
    assert_int_equal(wire_sample_response_encode(&parts, 1, &message), TRP_OK);
    memcpy(slot.bytes, chunk->tail.data, chunk->tail.size);
    assert_message(message, bytes);
    wire_sample_response_cleanup(&response);
}

static void a_sample_may_be_spread_over_entries(void **state)
{
    (void)state;
    uint8_t trajectory[16];
    struct wire_item item = {
        .key = 1, .table = text("t"), .trajectory = hex_bytes("0a060a0408071801", trajectory)};
    struct wire_slot slots[2] = {{.key = 300, .size = 2}, {.key = 301, .size = 0}};
    struct wire_entry_parts parts[] = {
        {.item = &item, .draw = {.probability = 0.5, .table_size = 7, .rate_limited = true}},
        {.slots = slots, .slot_count = 2},
        {.end_of_sequence = true}};
    trp_message *message;
    assert_int_equal(wire_sample_response_encode(parts, 3, &message), TRP_OK);
    memcpy(slots[0].bytes, "\x20\x01", 2);
    struct wire_sample_response response = {0};
    assert_int_equal(
        wire_sample_response_decode(
            (trp_bytes){trp_message_data(message), trp_message_size(message)}, &response),
        TRP_OK);
    assert_int_equal(response.entry_count, 3);
    assert_true(response.entries[0].has_info && response.entries[0].draw.rate_limited);
    assert_false(response.entries[1].has_info || response.entries[1].end_of_sequence);
    assert_int_equal(response.entries[1].chunk_count, 2);
    assert_int_equal(response.lists.chunks[1].key, 301);
    assert_true(response.entries[2].end_of_sequence);
    assert_int_equal(response.entries[2].chunk_count, 0);
    wire_sample_response_cleanup(&response);
    trp_message_destroy(message);
}

static void a_response_with_info_but_no_item_is_refused(void **state)
{
    (void)state;
    uint8_t buffer[16];
    struct wire_sample_response response = {0};
    assert_int_equal(wire_sample_response_decode(hex_bytes("0a040a021801", buffer), &response),
                     TRP_INVALID_ARGUMENT);
    wire_sample_response_cleanup(&response);
}

/* ---- the rest ---------------------------------------------------------------------------- */

static void priorities_are_mutated_by_a_message_that_reads_back(void **state)
{
    (void)state;
    uint8_t buffer[64];
    trp_bytes bytes = hex_bytes("0a0174120b080b1100000000000000401a020c0d", buffer);
    struct wire_mutate_request request = {0};
    trp_message *message;
    assert_int_equal(wire_mutate_request_decode(bytes, &request), TRP_OK);
    assert_true(bytes_are(request.table, "t"));
    assert_int_equal(request.update_count, 1);
    assert_int_equal(request.updates[0].key, 11);
    assert_true(request.updates[0].priority == 2.0);
    assert_int_equal(request.deletes.count, 2);
    assert_int_equal(request.deletes.keys[1], 13);
    assert_int_equal(wire_mutate_request_encode(&request, &message), TRP_OK);
    assert_message(message, bytes);
    assert_int_equal(wire_mutate_request_decode(hex_bytes("0a0174120b08", buffer), &request),
                     TRP_INVALID_ARGUMENT);
    wire_mutate_request_cleanup(&request);
}

static void cold_messages_repack_to_the_bytes_of_reverb(void **state)
{
    (void)state;
    uint8_t buffer[256], packed[256];
    trp_bytes bytes = hex_bytes(SERVER_INFO, buffer);
    Deepmind__Reverb__ServerInfoResponse *info =
        deepmind__reverb__server_info_response__unpack(NULL, bytes.size, bytes.data);
    assert_non_null(info);
    assert_int_equal(deepmind__reverb__server_info_response__pack(info, packed), bytes.size);
    assert_memory_equal(packed, bytes.data, bytes.size);
    deepmind__reverb__server_info_response__free_unpacked(info, NULL);

    const char *tables[] = {TABLE_INFO_QUEUE, TABLE_INFO_HEAP};
    for (size_t i = 0; i < 2; ++i) {
        bytes = hex_bytes(tables[i], buffer);
        Deepmind__Reverb__TableInfo *table =
            deepmind__reverb__table_info__unpack(NULL, bytes.size, bytes.data);
        assert_non_null(table);
        assert_int_equal(deepmind__reverb__table_info__pack(table, packed), bytes.size);
        assert_memory_equal(packed, bytes.data, bytes.size);
        deepmind__reverb__table_info__free_unpacked(table, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(insert_requests_of_every_writer_encode_to_the_bytes_they_were),
        cmocka_unit_test(an_insert_request_decodes_to_its_parts),
        cmocka_unit_test(steps_encode_like_the_chunk_of_a_writer),
        cmocka_unit_test(a_chunk_key_is_cut_out_wherever_it_is),
        cmocka_unit_test(keys_are_read_packed_and_unpacked),
        cmocka_unit_test(unknown_fields_and_groups_are_skipped),
        cmocka_unit_test(every_cut_of_a_message_is_refused_or_shorter),
        cmocka_unit_test(a_request_is_the_same_however_it_is_cut_into_parts),
        cmocka_unit_test(large_contents_are_left_where_they_are),
        cmocka_unit_test(what_is_in_shared_memory_decides_nothing),
        cmocka_unit_test(a_message_of_too_many_parts_is_refused),
        cmocka_unit_test(tensors_of_a_chunk_are_walked_by_their_headers),
        cmocka_unit_test(an_empty_dimension_counts_and_old_fields_are_read),
        cmocka_unit_test(sample_requests_tell_a_timeout_of_zero_from_none),
        cmocka_unit_test(a_sample_response_decodes_and_encodes),
        cmocka_unit_test(a_sample_may_be_spread_over_entries),
        cmocka_unit_test(a_response_with_info_but_no_item_is_refused),
        cmocka_unit_test(priorities_are_mutated_by_a_message_that_reads_back),
        cmocka_unit_test(rows_are_cut_out_of_chunks),
        cmocka_unit_test(cold_messages_repack_to_the_bytes_of_reverb),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
