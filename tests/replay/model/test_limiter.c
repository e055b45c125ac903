/* The limiter's arithmetic: rows of counters with what Reverb answers, and runs to a standstill. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "replay/model/limiter.h"

struct row {
    int64_t inserts, samples, deletes;
    bool can_sample, can_insert; /* one */
};

static void check_rows(trp_rate_limiter options, const struct row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct limiter limiter = {.options = options,
                                  .inserts = rows[i].inserts,
                                  .samples = rows[i].samples,
                                  .deletes = rows[i].deletes};
        assert_int_equal(limiter_can_sample(&limiter, 1), rows[i].can_sample);
        assert_int_equal(limiter_can_insert(&limiter, 1), rows[i].can_insert);
    }
}

#define CHECK_ROWS(options, ...)                                                                   \
    do {                                                                                           \
        const struct row rows[] = {__VA_ARGS__};                                                   \
        check_rows(options, rows, sizeof rows / sizeof rows[0]);                                   \
    } while (0)

static void min_size_blocks_samples_only_and_only_below(void **state)
{
    (void)state;
    CHECK_ROWS(trp_limiter_min_size(3), {0, 0, 0, false, true}, {2, 0, 0, false, true},
               {3, 0, 0, true, true}, {3, 1000000, 0, true, true}, {1000000, 0, 0, true, true},
               {10, 0, 8, false, true}, {10, 0, 7, true, true});
}

static void a_queue_gives_each_item_once(void **state)
{
    (void)state;
    CHECK_ROWS(trp_limiter_queue(2), {0, 0, 0, false, true}, {1, 0, 0, true, true},
               {2, 0, 0, true, false}, {2, 1, 1, true, true}, {2, 2, 2, false, true},
               {3, 1, 1, true, false});
}

static void deleting_unsampled_items_shrinks_a_queue_but_never_below_one(void **state)
{
    (void)state;
    CHECK_ROWS(trp_limiter_queue(2), {2, 0, 1, true, false}, {2, 0, 2, false, true},
               {3, 0, 2, true, false}, {3, 0, 3, false, true});
}

static void below_min_size_inserts_pass_whatever_the_difference(void **state)
{
    (void)state;
    trp_rate_limiter options = {
        .samples_per_insert = 1, .min_size = 5, .min_diff = -1, .max_diff = 2};
    CHECK_ROWS(options, {0, 0, 0, false, true}, {4, 0, 0, false, true}, {5, 0, 0, true, false},
               {5, 5, 0, true, true}, {5, 6, 0, false, true}, {9, 0, 5, false, true},
               {9, 0, 4, true, false});
}

static void comparisons_include_the_limits(void **state)
{
    (void)state;
    trp_rate_limiter options = {
        .samples_per_insert = 0.5, .min_size = 1, .min_diff = -0.5, .max_diff = 1.5};
    CHECK_ROWS(options, {1, 0, 0, true, true}, {2, 0, 0, true, true}, {3, 0, 0, true, false},
               {2, 1, 0, false, true}, {3, 1, 0, true, true}, {4, 1, 0, true, true},
               {5, 1, 0, true, false});
}

static void several_at_once_count_together(void **state)
{
    (void)state;
    struct limiter limiter = {.options = trp_limiter_samples_per_insert(2, 2, 4)};
    assert_true(limiter_can_insert(&limiter, 4));
    assert_false(limiter_can_insert(&limiter, 5));
    limiter.inserts = 4;
    assert_true(limiter_can_sample(&limiter, 8));
    assert_false(limiter_can_sample(&limiter, 9));
}

static int64_t insert_all(struct limiter *limiter, int64_t limit)
{
    int64_t count = 0;
    for (; count < limit && limiter_can_insert(limiter, 1); count++)
        limiter->inserts++;
    return count;
}

static int64_t sample_all(struct limiter *limiter, int64_t limit)
{
    int64_t count = 0;
    for (; count < limit && limiter_can_sample(limiter, 1); count++)
        limiter->samples++;
    return count;
}

/* As executed against dm-reverb 0.14: SampleToInsertRatio(2, 2, 4.0). */
static void samples_per_insert_stops_where_reverb_stops(void **state)
{
    (void)state;
    struct limiter limiter = {.options = trp_limiter_samples_per_insert(2, 2, 4.0)};
    assert_true(limiter.options.min_diff == 0);
    assert_true(limiter.options.max_diff == 8);
    assert_int_equal(insert_all(&limiter, 100), 4);
    int64_t samples = 0;
    while (limiter.inserts < 9 || limiter_can_sample(&limiter, 1)) {
        samples += sample_all(&limiter, 1);
        insert_all(&limiter, 9 - limiter.inserts);
    }
    assert_int_equal(limiter.inserts, 9);
    assert_int_equal(samples, 18);
}

static void a_min_size_limiter_never_stops_either_side_again(void **state)
{
    (void)state;
    struct limiter limiter = {.options = trp_limiter_min_size(1)};
    assert_int_equal(sample_all(&limiter, 10), 0);
    assert_int_equal(insert_all(&limiter, 100000), 100000);
    assert_int_equal(sample_all(&limiter, 100000), 100000);
}

static void constructors_give_reverbs_numbers(void **state)
{
    (void)state;
    trp_rate_limiter limiter = trp_limiter_min_size(7);
    assert_true(limiter.samples_per_insert == 1 && limiter.min_size == 7);
    assert_true(limiter.min_diff == -DBL_MAX && limiter.max_diff == DBL_MAX);
    limiter = trp_limiter_queue(9);
    assert_true(limiter.samples_per_insert == 1 && limiter.min_size == 1);
    assert_true(limiter.min_diff == 0 && limiter.max_diff == 9);
    limiter = trp_limiter_samples_per_insert(0.25, 1000, 100);
    assert_true(limiter.samples_per_insert == 0.25 && limiter.min_size == 1000);
    assert_true(limiter.min_diff == 150 && limiter.max_diff == 350);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(min_size_blocks_samples_only_and_only_below),
        cmocka_unit_test(a_queue_gives_each_item_once),
        cmocka_unit_test(deleting_unsampled_items_shrinks_a_queue_but_never_below_one),
        cmocka_unit_test(below_min_size_inserts_pass_whatever_the_difference),
        cmocka_unit_test(comparisons_include_the_limits),
        cmocka_unit_test(several_at_once_count_together),
        cmocka_unit_test(samples_per_insert_stops_where_reverb_stops),
        cmocka_unit_test(a_min_size_limiter_never_stops_either_side_again),
        cmocka_unit_test(constructors_give_reverbs_numbers),
    };
    return cmocka_run_group_tests_name("limiter", tests, NULL, NULL);
}
