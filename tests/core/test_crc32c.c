/* Sums: those of the standard, and the same ones by whichever instruction. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/crc32c.h"
#include "core/hash.h"

static void sums_are_those_of_the_standard(void **state)
{
    (void)state;
    uint8_t bytes[200] = {0};
    assert_int_equal(crc32c(0, "123456789", 9), 0xE3069283);
    assert_int_equal(crc32c(crc32c(0, "1234", 4), "56789", 5), 0xE3069283);
    assert_int_equal(crc32c(0, bytes, 32), 0x8A9136AA); /* RFC 3720, B.4 */
    for (size_t size = 0; size < sizeof bytes; size++) {
        uint32_t before = crc32c_thirds(bytes, size);
        assert_int_not_equal(before, crc32c_thirds(bytes, size + 1));
        for (size_t at = 0; at < size; at++) {
            bytes[at] ^= 1;
            assert_int_not_equal(before, crc32c_thirds(bytes, size));
            bytes[at] ^= 1;
        }
    }
}

/* What is written with one instruction is read with another. */
static void a_sum_of_thirds_is_that_of_its_thirds(void **state)
{
    (void)state;
    uint8_t bytes[5000];
    for (size_t at = 0; at < sizeof bytes; at++)
        bytes[at] = (uint8_t)hash_place(at + 1, 256);
    for (size_t size = 0; size < sizeof bytes; size++) {
        size_t lane = size / 3 / 8 * 8;
        uint32_t sums[] = {~crc32c(0, bytes, lane), ~crc32c(0, bytes + lane, lane),
                           ~crc32c(0, bytes + 2 * lane, lane),
                           crc32c((uint32_t)size, bytes + 3 * lane, size - 3 * lane)};
        assert_int_equal(crc32c_thirds(bytes, size), crc32c(0, sums, sizeof sums));
    }
}

static void a_sum_in_one_go_is_that_of_small_steps(void **state)
{
    (void)state;
    uint8_t bytes[4100];
    for (size_t at = 0; at < sizeof bytes; at++)
        bytes[at] = (uint8_t)hash_place(at + 1, 256);
    for (size_t size = 900; size < sizeof bytes; size += 37) {
        uint32_t steps = 0;
        for (size_t at = 0; at < size; at += 50)
            steps = crc32c(steps, bytes + at, size - at < 50 ? size - at : 50);
        assert_int_equal(crc32c(0, bytes, size), steps);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_those_of_the_standard),
        cmocka_unit_test(a_sum_of_thirds_is_that_of_its_thirds),
        cmocka_unit_test(a_sum_in_one_go_is_that_of_small_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
