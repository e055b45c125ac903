/* Which removed keys are still known: against a list of all that were pushed, and what an engine
 * makes of them. */
#include "tests/replay/store_fixture.h"

#include <troupe/replay.h>
#include <troupe/rng.h>
#include "replay/store/limits.h"
#include "core/limits.h"
#include "replay/engine/internal.h"
#include "replay/engine/removed.h"

static const int64_t NOW_NS = INT64_C(1000000000000);

enum { TABLES = 2, PUSHES = 4 * REMOVED_KEYS_MAX };

/* The last push of a key of a table. */
struct pushed {
    uint32_t number; /* from 1; 0: never */
    uint32_t fingerprint;
};

static void push(struct dedup_window *removed, struct pushed *pushed, uint32_t table, uint64_t key,
                 uint32_t number)
{
    *pushed = (struct pushed){number, number % 7};
    removed_push(removed, &(struct removed_record){.key = key,
                                                   .at_ns = NOW_NS,
                                                   .table_id = table + 1,
                                                   .fingerprint = pushed->fingerprint});
}

static bool known(const struct dedup_window *removed, const struct pushed *pushed, uint32_t table,
                  uint64_t key)
{
    assert_false(removed_find(removed, table + 1, key, pushed->fingerprint + 1, NOW_NS));
    return removed_find(removed, table + 1, key, pushed->fingerprint, NOW_NS);
}

static void they_are_the_last_keys_of_each_table_as_they_were_removed_last(void **state)
{
    (void)state;
    struct dedup_window removed = {0};
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
    struct dedup_window removed = {0};
    struct pushed pushed = {0};
    const int64_t while_ns = REMOVED_KEYS_MS * INT64_C(1000000);
    push(&removed, &pushed, 0, 5, 1);
    removed_push(&removed,
                 &(struct removed_record){.key = 7, .at_ns = NOW_NS + while_ns + 1, .table_id = 1});
    assert_true(removed_find(&removed, 1, 5, pushed.fingerprint, NOW_NS + while_ns));
    assert_false(removed_find(&removed, 1, 5, pushed.fingerprint, NOW_NS + 2 * while_ns + 1));
    assert_false(removed_find(&removed, 2, 5, pushed.fingerprint, NOW_NS));
    assert_false(removed_find(&removed, 1, 6, pushed.fingerprint, NOW_NS));
    removed_cleanup(&removed);
}

/* ---- an engine, at times of ours ---------------------------------------------------------- */

static struct engine *engine_of(const char *dir, const char *line)
{
    trp_table_options *table;
    struct engine *engine;
    assert_int_equal(trp_table_options_parse(line, &table), TRP_OK);
    struct engine_options options = {.dir = dir, .tables = table, .table_count = 1, .seed = 1};
    assert_int_equal(engine_create(&engine, &options), TRP_OK);
    trp_table_options_destroy(table);
    return engine;
}

/* The item is inserted at this second, if it is a new one; how many the table has. */
static int64_t insert_at(struct engine *engine, int64_t second, uint64_t key, bool unconfirmed)
{
    struct engine_table *table = engine_table(engine, 0);
    struct item *item = fixture_item(engine->store, key, 10);
    item->unconfirmed = unconfirmed;
    engine_set_time(engine, NOW_NS + second * INT64_C(1000000000));
    assert_int_equal(engine_insert(engine, table, item), TRP_OK);
    return table_facts(table->table)->size;
}

static void delete_at(struct engine *engine, int64_t second, uint64_t key)
{
    struct wire_mutate_request request = {0};
    wire_push_key(&request.deletes, key);
    engine_set_time(engine, NOW_NS + second * INT64_C(1000000000));
    assert_int_equal(engine_mutate(engine, engine_table(engine, 0), &request), TRP_OK);
    assert_int_equal(engine_commit(engine), TRP_OK);
    wire_mutate_request_cleanup(&request);
}

static void what_comes_again_before_a_dead_link_is_found_out_is_known(void **state)
{
    enum { FOUND_OUT_S = (RPC_KEEPALIVE_MS + RPC_KEEPALIVE_TIMEOUT_MS) / 1000 };
    char *dir = fixture_dir("/tmp");
    struct engine *engine = engine_of(dir, "name=t");
    (void)state;
    assert_int_equal(insert_at(engine, 0, 1, false), 1);
    assert_int_equal(insert_at(engine, 0, 2, false), 2);
    delete_at(engine, 0, 1);
    delete_at(engine, FOUND_OUT_S - 1, 2);
    assert_int_equal(insert_at(engine, FOUND_OUT_S, 1, false), 0);
    assert_int_equal(insert_at(engine, FOUND_OUT_S, 2, false), 0);
    engine_destroy(engine);
    fixture_remove(dir);
}

static void what_was_confirmed_to_nobody_is_known_however_long_it_stayed(void **state)
{
    enum { STAY_S = 10 * REMOVED_KEYS_MS / 1000 };
    char *dir = fixture_dir("/tmp");
    struct engine *engine = engine_of(dir, "name=t");
    (void)state;
    assert_int_equal(insert_at(engine, 0, 1, true), 1);
    assert_int_equal(insert_at(engine, 0, 2, false), 2);
    delete_at(engine, STAY_S, 1);
    delete_at(engine, STAY_S, 2);
    assert_int_equal(insert_at(engine, STAY_S + 1, 1, false), 0);
    assert_int_equal(insert_at(engine, STAY_S + 1, 2, false), 1); /* its writer has heard of it */
    engine_destroy(engine);
    fixture_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_are_the_last_keys_of_each_table_as_they_were_removed_last),
        cmocka_unit_test(a_key_that_was_removed_long_ago_is_not_known),
        cmocka_unit_test(what_comes_again_before_a_dead_link_is_found_out_is_known),
        cmocka_unit_test(what_was_confirmed_to_nobody_is_known_however_long_it_stayed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
