/* Raw snappy blocks, with and without snappy, and deltas; bytes from Reverb where there are any. */
#include "replay/wire/tensor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <snappy-c.h>

#include "core/alloc.h"
#include "tests/replay/hex.h"

static trp_bytes literal_block(const uint8_t *raw, size_t size, uint8_t *memory)
{
    memcpy(memory + BLOCK_HEADER_BYTES_MAX, raw, size);
    uint8_t *start = block_literal_header(memory + BLOCK_HEADER_BYTES_MAX, (uint32_t)size);
    return (trp_bytes){start, (size_t)(memory + BLOCK_HEADER_BYTES_MAX - start) + size};
}

static void a_literal_block_is_what_snappy_reads(void **state)
{
    (void)state;
    static const size_t sizes[] = {
        0,     1,     59,    60,     61,      255,           256,     257,
        65535, 65536, 65537, 100000, 1 << 20, (1 << 24) - 1, 1 << 24, (1 << 24) + 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t size = sizes[i], out_size = size;
        uint8_t *raw = xmalloc(size + 1), *memory = xmalloc(size + BLOCK_HEADER_BYTES_MAX);
        uint8_t *out = xmalloc(size + 1);
        for (size_t j = 0; j < size; j++)
            raw[j] = (uint8_t)(j * 2654435761u >> 13);
        trp_bytes block = literal_block(raw, size, memory), again;
        assert_int_equal(
            snappy_uncompress((const char *)block.data, block.size, (char *)out, &out_size),
            SNAPPY_OK);
        assert_int_equal(out_size, size);
        assert_memory_equal(out, raw, size);
        assert_true(block_literal(block, 0, &again));
        assert_int_equal(again.size, size);
        assert_int_equal(block_decompress(block, out, size), TRP_OK);
        assert_memory_equal(out, raw, size);
        free(raw);
        free(memory);
        free(out);
    }
}

static void literals_have_the_bytes_that_reverb_writes(void **state)
{
    (void)state;
    static const struct {
        const char *raw, *block;
    } rows[] = {
        {"", "00"},                                   /* float32 [1, 0] */
        {"0100", "02040100"},                         /* bool {1, 0} */
        {"0000c03f", "040c0000c03f"},                 /* float32 1.5 */
        {"0500000000000000", "081c0500000000000000"}, /* int64 5 */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint8_t raw[64], block[64], memory[64];
        trp_bytes from = hex_bytes(rows[i].raw, raw), expected = hex_bytes(rows[i].block, block);
        trp_bytes written = literal_block(from.data, from.size, memory);
        assert_int_equal(written.size, expected.size);
        assert_memory_equal(written.data, expected.data, expected.size);
    }
}

static void a_block_with_copies_decompresses(void **state)
{
    (void)state;
    uint8_t buffer[64];
    float out[6];
    const float expected[6] = {0, 0, 1, 1, 2, 2};
    trp_bytes raw, block = hex_bytes("180000150134803f0000803f0000004000000040", buffer);
    assert_false(block_literal(block, 0, &raw));
    assert_int_equal(block_decompress(block, (uint8_t *)out, sizeof out), TRP_OK);
    assert_memory_equal(out, expected, sizeof out);
}

static void compression_pays_or_is_refused(void **state)
{
    (void)state;
    uint8_t raw[4096] = {0}, out[4096];
    uint8_t *packed = xmalloc(block_compressed_max(sizeof raw));
    size_t size = block_compress((trp_bytes){raw, sizeof raw}, packed);
    assert_in_range(size, 1, 400);
    assert_int_equal(block_decompress((trp_bytes){packed, size}, out, sizeof out), TRP_OK);
    assert_memory_equal(raw, out, sizeof raw);
    uint32_t noise = 1;
    for (size_t i = 0; i < sizeof raw; i++)
        raw[i] = (uint8_t)((noise = noise * 1664525 + 1013904223) >> 24);
    assert_int_equal(block_compress((trp_bytes){raw, sizeof raw}, packed), 0);
    free(packed);
}

static void a_block_of_another_size_is_data_loss(void **state)
{
    (void)state;
    uint8_t buffer[64], out[64];
    static const char *blocks[] = {
        "",                       /* no length */
        "081c05000000",           /* the literal is cut */
        "081c050000000000000000", /* a byte too many */
        "0918050000000000000000", /* length 9, literal of 7 */
        "ffffffffff01",           /* a length beyond 32 bits */
        "0801ff",                 /* a copy from before the start */
    };
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        assert_int_equal(block_decompress(hex_bytes(blocks[i], buffer), out, 8), TRP_DATA_LOSS);
    assert_int_equal(block_decompress(hex_bytes("040c0000c03f", buffer), out, 8), TRP_DATA_LOSS);
    assert_non_null(strstr(trp_last_error(), "4 bytes where its shape says 8"));
}

static void a_bomb_is_implausible(void **state)
{
    (void)state;
    uint8_t raw[8] = {0};
    assert_false(block_size_plausible((trp_bytes){raw, 8}, (size_t)1 << 30));
    assert_false(block_size_plausible((trp_bytes){raw, 8}, (size_t)1 << 32));
    uint8_t *zeros = xcalloc(1, 1 << 20), *packed = xmalloc(block_compressed_max(1 << 20));
    size_t size = block_compress((trp_bytes){zeros, 1 << 20}, packed);
    assert_true(block_size_plausible((trp_bytes){packed, size}, 1 << 20));
    free(zeros);
    free(packed);
}

static void deltas_apply_to_integer_rows_only(void **state)
{
    (void)state;
    assert_true(delta_applies(TRP_UINT8, 3));
    assert_true(delta_applies(TRP_INT64, 2));
    assert_false(delta_applies(TRP_INT64, 1));
    assert_false(delta_applies(TRP_FLOAT32, 2));
    assert_false(delta_applies(TRP_BOOL, 2));
    assert_false(delta_applies(7, 2));
}

static void deltas_of_reverbs_legacy_writer_decode(void **state)
{
    (void)state;
    uint8_t buffer[64], pixels[4][4];
    int16_t numbers[4][3];
    trp_bytes block = hex_bytes("103cc8c8c8c81e1e1e1e1e1e1e1e1e1e1e1e", buffer);
    assert_int_equal(block_decompress(block, (uint8_t *)pixels, sizeof pixels), TRP_OK);
    delta_decode(TRP_UINT8, 4, 4, (uint8_t *)pixels);
    const uint8_t expected[4] = {200, 230, 4, 34};
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pixels[i][3], expected[i]);
    block = hex_bytes("180000050104f9ff01022cebffebffebffddffddffddff", buffer);
    assert_int_equal(block_decompress(block, (uint8_t *)numbers, sizeof numbers), TRP_OK);
    delta_decode(TRP_INT16, 4, 3, (uint8_t *)numbers);
    const int16_t shorts[4] = {0, -7, -28, -63};
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(numbers[i][2], shorts[i]);
}

static void deltas_wrap_at_every_width(void **state)
{
    (void)state;
    uint32_t words[3] = {UINT32_MAX, 2, UINT32_MAX};
    delta_decode(TRP_INT32, 3, 1, (uint8_t *)words);
    assert_int_equal(words[1], 1);
    assert_int_equal(words[2], 0);
    uint64_t longs[2] = {UINT64_MAX, 3};
    delta_decode(TRP_UINT64, 2, 1, (uint8_t *)longs);
    assert_int_equal(longs[1], 2);
    delta_decode(TRP_UINT64, 0, 1, (uint8_t *)longs);
    assert_int_equal(longs[1], 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_literal_block_is_what_snappy_reads),
        cmocka_unit_test(literals_have_the_bytes_that_reverb_writes),
        cmocka_unit_test(a_block_with_copies_decompresses),
        cmocka_unit_test(compression_pays_or_is_refused),
        cmocka_unit_test(a_block_of_another_size_is_data_loss),
        cmocka_unit_test(a_bomb_is_implausible),
        cmocka_unit_test(deltas_apply_to_integer_rows_only),
        cmocka_unit_test(deltas_of_reverbs_legacy_writer_decode),
        cmocka_unit_test(deltas_wrap_at_every_width),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
