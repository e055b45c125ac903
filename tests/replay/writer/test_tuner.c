/* The length of chunks that a tuner finds for data whose costs are known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "replay/writer/tuner.h"

enum { HEADER = 100 };

/* Items of `span` rows, one after the other, out of chunks of the tuner's length, whose bytes are a
 * header and `row_bytes` a row. */
static void feed(struct tuner *tuner, uint32_t items, uint32_t span, uint32_t row_bytes)
{
    uint64_t key = 1;
    for (uint32_t i = 0; i < items; i++) {
        uint32_t length = tuner->length, chunks = (span + length - 1) / length;
        struct tuner_item item = {.first_key = key,
                                  .last_key = key + chunks - 1,
                                  .chunks = chunks,
                                  .chunk_rows = chunks * length,
                                  .chunk_bytes = chunks * (HEADER + length * row_bytes),
                                  .rows = span};
        tuner_note(tuner, &item);
        key += chunks;
    }
}

static void it_begins_with_single_steps_and_tries_three(void **state)
{
    (void)state;
    struct tuner tuner;
    tuner_init(&tuner, 1, 100);
    assert_int_equal(tuner.length, 1);
    feed(&tuner, 9, 10, 10);
    assert_int_equal(tuner.length, 1);
    feed(&tuner, 1, 10, 10);
    assert_int_equal(tuner.length, 3);
}

static void headers_make_chunks_longer(void **state)
{
    (void)state;
    struct tuner tuner;
    tuner_init(&tuner, 1, 40);
    feed(&tuner, 3000, 40, 1);
    assert_in_range(tuner.length, 18, 40);
}

static void single_rows_keep_chunks_short(void **state)
{
    (void)state;
    struct tuner tuner;
    tuner_init(&tuner, 1, 100);
    feed(&tuner, 3000, 1, 1000); /* every other row of a chunk is sent for nothing */
    assert_in_range(tuner.length, 1, 4);
}

static void lengths_stay_between_one_and_the_most(void **state)
{
    (void)state;
    struct tuner tuner;
    tuner_init(&tuner, 1, 6);
    for (int i = 0; i < 1000; i++) {
        feed(&tuner, 1, 60, 1);
        assert_in_range(tuner.length, 1, 6);
    }
    assert_in_range(tuner.length, 4, 6);
}

/* A flush closes chunks early; their cost is not the cost of the length that was meant. */
static void chunks_of_another_length_are_not_scored(void **state)
{
    (void)state;
    struct tuner tuner;
    tuner_init(&tuner, 1, 100);
    feed(&tuner, 10, 10, 10);
    assert_int_equal(tuner.length, 3);
    for (uint64_t i = 0; i < 100; i++)
        tuner_note(&tuner, &(struct tuner_item){.first_key = 1000 + i,
                                                .last_key = 1000 + i,
                                                .chunks = 1,
                                                .chunk_rows = 2,
                                                .chunk_bytes = 7,
                                                .rows = 2});
    assert_int_equal(tuner.length, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_begins_with_single_steps_and_tries_three),
        cmocka_unit_test(headers_make_chunks_longer),
        cmocka_unit_test(single_rows_keep_chunks_short),
        cmocka_unit_test(lengths_stay_between_one_and_the_most),
        cmocka_unit_test(chunks_of_another_length_are_not_scored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
