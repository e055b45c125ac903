/* Which keys a ring of removed keys still has: against a list of all that was pushed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include <troupe/rng.h>
#include "core/alloc.h"
#include "core/limits.h"
#include "replay/removed.h"

static const int64_t NOW_NS = INT64_C(1000000000000);

enum { KEYS = 5000, TABLES = 2, PUSHES = REMOVED_KEYS_MAX + 3 * KEYS };

/* The last push of a key of a table. */
struct pushed {
    uint32_t number; /* from 1; 0: never, or forgotten */
    uint32_t print;
};

static void push(struct removed_ring *ring, struct pushed *pushed, uint32_t table, uint64_t key,
                 uint32_t number)
{
    *pushed = (struct pushed){number, number % 7};
    removed_push(ring,
                 &(struct store_removed){
                     .key = key, .at_ns = NOW_NS, .table_id = table + 1, .print = pushed->print});
}

static void check(const struct removed_ring *ring, const struct pushed *pushed, uint32_t table,
                  uint64_t key, uint32_t last)
{
    bool there = pushed->number != 0 && last - pushed->number < REMOVED_KEYS_MAX;
    assert_int_equal(removed_find(ring, table + 1, key, pushed->print, NOW_NS), there);
    assert_false(removed_find(ring, table + 1, key, pushed->print + 1, NOW_NS));
}

static void it_has_the_last_keys_of_each_table_as_they_were_removed_last(void **state)
{
    (void)state;
    struct removed_ring ring = {0};
    struct pushed(*pushed)[KEYS] = xcalloc(TABLES, sizeof *pushed);
    trp_rng rng;
    trp_rng_init(&rng, 1, 1);
    for (uint32_t number = 1; number <= PUSHES; number++) {
        /* Few of the keys come for a long time, so that the others grow old. */
        uint64_t below = number > KEYS && number < PUSHES - KEYS ? KEYS / 10 : KEYS;
        uint32_t table = (uint32_t)trp_rng_below(&rng, TABLES);
        uint64_t key = trp_rng_below(&rng, below);
        push(&ring, &pushed[table][key], table, key, number);
        key = trp_rng_below(&rng, KEYS);
        check(&ring, &pushed[table][key], table, key, number);
    }
    for (uint32_t table = 0; table < TABLES; table++)
        for (uint64_t key = 0; key < KEYS; key++)
            check(&ring, &pushed[table][key], table, key, PUSHES);
    removed_cleanup(&ring);
    free(pushed);
}

static void a_forgotten_table_has_none_and_the_others_theirs(void **state)
{
    (void)state;
    struct removed_ring ring = {0};
    struct pushed first = {0}, second = {0};
    for (uint32_t number = 1; number <= 1000; number++) {
        push(&ring, &first, 0, number, number);
        push(&ring, &second, 1, number, number);
    }
    removed_push(&ring, &(struct store_removed){.table_id = 1});
    assert_false(removed_find(&ring, 1, 1000, first.print, NOW_NS));
    assert_true(removed_find(&ring, 2, 1000, second.print, NOW_NS));
    push(&ring, &first, 0, 1000, 1001);
    assert_true(removed_find(&ring, 1, 1000, first.print, NOW_NS));
    removed_cleanup(&ring);
}

static void a_key_that_was_removed_long_ago_is_not_known(void **state)
{
    (void)state;
    struct removed_ring ring = {0};
    struct pushed pushed = {0};
    const int64_t while_ns = REMOVED_KEYS_MS * INT64_C(1000000);
    push(&ring, &pushed, 0, 5, 1);
    assert_true(removed_find(&ring, 1, 5, pushed.print, NOW_NS + while_ns));
    assert_false(removed_find(&ring, 1, 5, pushed.print, NOW_NS + while_ns + 1));
    assert_false(removed_find(&ring, 2, 5, pushed.print, NOW_NS));
    assert_false(removed_find(&ring, 1, 6, pushed.print, NOW_NS));
    removed_cleanup(&ring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_has_the_last_keys_of_each_table_as_they_were_removed_last),
        cmocka_unit_test(a_forgotten_table_has_none_and_the_others_theirs),
        cmocka_unit_test(a_key_that_was_removed_long_ago_is_not_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
