/* Long ranges in parts, on several threads: each number is in one part, and the steps of a shard
 * have the bits that they have on one thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/alloc.h"
#include "learner/server/limits.h"
#include "learner/server/shard.h"

enum { LONG = PASS_SHARED_NUMBERS, WORKERS = 2, PUSHES = 4 };

/* ---- parts ----------------------------------------------------------------------------------- */

static void count_part(void *arg, size_t first, size_t size)
{
    uint8_t *passed = arg;
    for (size_t i = 0; i < size; i++)
        passed[first + i]++;
}

static void each_number_is_in_one_part(void **state)
{
    static const size_t counts[] = {
        0, 1, LONG - 1, LONG, LONG + 1, LONG + 3 * PASS_PART_NUMBERS + 17, 5 * LONG};
    (void)state;
    uint8_t *passed = xcalloc(5 * LONG + 1, 1);
    for (uint32_t threads = 0; threads <= 5; threads++) {
        struct passes passes = {.threads = threads};
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            memset(passed, 0, 5 * LONG + 1);
            passes_run(&passes, counts[i], count_part, passed);
            for (size_t k = 0; k <= 5 * LONG; k++)
                if (passed[k] != (k < counts[i]))
                    fail_msg("%u threads, %zu numbers: number %zu is in %u parts", threads,
                             counts[i], k, passed[k]);
        }
        passes_cleanup(&passes);
    }
    free(passed);
}

static void short_ranges_start_no_thread(void **state)
{
    struct passes passes = {.threads = 3};
    uint8_t *passed = xcalloc(LONG, 1);
    (void)state;
    passes_run(&passes, LONG - 1, count_part, passed);
    assert_null(passes.team);
    passes_run(&passes, LONG, count_part, passed);
    assert_non_null(passes.team);
    passes_cleanup(&passes);
    free(passed);
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* What is left of a shard after some pushes. */
struct outcome {
    float *values, *state;
    uint64_t version;
};

static struct outcome outcome_of(trp_server_rule rule, size_t count, struct passes *passes)
{
    struct outcome outcome = {.values = xcalloc(count, sizeof(float)),
                              .state = xcalloc(count, sizeof(float))};
    float *grads = xcalloc(count, sizeof *grads);
    struct param_shard shard;
    const struct shard_options options = {.optimizer = {.kind = TRP_ADAM, .learning_rate = 0.1},
                                          .rule = rule,
                                          .workers = WORKERS,
                                          .softness = 1,
                                          .passes = passes};
    assert_int_equal(shard_create(&shard, &options, outcome.values, count), TRP_OK);
    for (uint64_t push = 0; push < PUSHES; push++) {
        const struct shard_range ranges[] = {{0, count / 3}, {count / 3 + 5, count}};
        for (size_t i = 0; i < count; i++)
            grads[i] = (float)((i * 7 + push) % 101) - 50;
        assert_int_equal(shard_push(&shard, &(struct shard_push){.worker = push % WORKERS,
                                                                 .sequence = push / WORKERS,
                                                                 .version = shard.version,
                                                                 .scale = 0.3F,
                                                                 .ranges = ranges,
                                                                 .range_count = 2,
                                                                 .grads = grads}),
                         SHARD_TAKEN);
    }
    memcpy(outcome.state, shard.state[1], count * sizeof(float));
    outcome.version = shard.version;
    shard_destroy(&shard);
    free(grads);
    return outcome;
}

static void a_shard_has_the_bits_of_one_thread(void **state)
{
    static const trp_server_rule rules[] = {TRP_SERVER_SYNC, TRP_SERVER_ASYNC, TRP_SERVER_SSP,
                                            TRP_SERVER_SOFTSYNC};
    const size_t count = 4 * LONG + 13;
    (void)state;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        struct passes passes = {.threads = 3};
        struct outcome one = outcome_of(rules[i], count, NULL);
        struct outcome three = outcome_of(rules[i], count, &passes);
        assert_non_null(passes.team);
        assert_true(one.version > 0 && one.version == three.version);
        assert_true(one.values[count - 1] != 0);
        assert_memory_equal(one.values, three.values, count * sizeof(float));
        assert_memory_equal(one.state, three.state, count * sizeof(float));
        passes_cleanup(&passes);
        free(one.values);
        free(one.state);
        free(three.values);
        free(three.state);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_number_is_in_one_part),
        cmocka_unit_test(short_ranges_start_no_thread),
        cmocka_unit_test(a_shard_has_the_bits_of_one_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
