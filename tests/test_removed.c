/* Which removed keys are still known: against a list of all that were pushed. */
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

enum { TABLES = 2, PUSHES = 4 * REMOVED_KEYS_MAX };

/* The last push of a key of a table. */
struct pushed {
    uint32_t number; /* from 1; 0: never */
    uint32_t print;
};

static void push(struct removed_keys *removed, struct pushed *pushed, uint32_t table, uint64_t key,
                 uint32_t number)
{
    *pushed = (struct pushed){number, number % 7};
    removed_push(removed,
                 &(struct store_removed){
                     .key = key, .at_ns = NOW_NS, .table_id = table + 1, .print = pushed->print});
}

static bool known(const struct removed_keys *removed, const struct pushed *pushed, uint32_t table,
                  uint64_t key)
{
    assert_false(removed_find(removed, table + 1, key, pushed->print + 1, NOW_NS));
    return removed_find(removed, table + 1, key, pushed->print, NOW_NS);
}

static void they_are_the_last_keys_of_each_table_as_they_were_removed_last(void **state)
{
    (void)state;
    struct removed_keys removed = {0};
    struct pushed(*pushed)[PUSHES] = xcalloc(TABLES, sizeof *pushed);
    trp_rng rng;
    trp_rng_init(&rng, 1, 1);
    for (uint32_t number = 1; number < PUSHES; number++) {
        uint32_t table = (uint32_t)trp_rng_below(&rng, TABLES);
        uint64_t key = trp_rng_below(&rng, 8) == 0 ? trp_rng_below(&rng, number) : number;
        push(&removed, &pushed[table][key], table, key, number);
        key = trp_rng_below(&rng, number);
        uint32_t last = pushed[table][key].number;
        if (last == 0 || number - last > 3 * REMOVED_KEYS_MAX) /* an eighth came again */
            assert_false(known(&removed, &pushed[table][key], table, key));
        else if (number - last < REMOVED_KEYS_MAX)
            assert_true(known(&removed, &pushed[table][key], table, key));
    }
    removed_cleanup(&removed);
    free(pushed);
}

static void a_key_that_was_removed_long_ago_is_not_known(void **state)
{
    (void)state;
    struct removed_keys removed = {0};
    struct pushed pushed = {0};
    const int64_t while_ns = REMOVED_KEYS_MS * INT64_C(1000000);
    push(&removed, &pushed, 0, 5, 1);
    removed_push(&removed,
                 &(struct store_removed){.key = 7, .at_ns = NOW_NS + while_ns + 1, .table_id = 1});
    assert_true(removed_find(&removed, 1, 5, pushed.print, NOW_NS + while_ns));
    assert_false(removed_find(&removed, 1, 5, pushed.print, NOW_NS + 2 * while_ns + 1));
    assert_false(removed_find(&removed, 2, 5, pushed.print, NOW_NS));
    assert_false(removed_find(&removed, 1, 6, pushed.print, NOW_NS));
    removed_cleanup(&removed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_are_the_last_keys_of_each_table_as_they_were_removed_last),
        cmocka_unit_test(a_key_that_was_removed_long_ago_is_not_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
