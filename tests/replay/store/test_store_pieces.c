/* A store that is loaded in pieces: what is there is known at once, items come one by one. */
#include "open_store_fixture.h"

/* Two items share a chunk, one was deleted, one was changed: all of it is known item by item. */
static void items_come_one_by_one_in_any_order(void **state)
{
    struct fixture *fixture = *state;
    enum { COUNT = 300, SHARED = 8, DELETED = 7, CHANGED = 4 };
    struct item *items[COUNT + 1];
    fixture_open(fixture, (struct store_options){0});
    for (uint64_t key = 1; key <= COUNT; key++) {
        items[key - 1] = fixture_item(fixture->store, key, key * 37 % 9000);
        insert(fixture, items[key - 1]);
    }
    items[COUNT] = fixture_item(fixture->store, COUNT + 1, 0);
    store_chunk_unref(fixture->store, items[COUNT]->chunks[0]);
    items[COUNT]->chunks[0] = items[SHARED]->chunks[0];
    chunk_ref(items[SHARED]->chunks[0]);
    insert(fixture, items[COUNT]);
    items[CHANGED]->priority = 55;
    store_item_priority(fixture->store, items[CHANGED]);
    store_item_delete(fixture->store, items[DELETED]);
    assert_int_equal(store_commit(fixture->store), TRP_OK);
    for (size_t index = 0; index <= COUNT; index++) /* the chunk of the deleted one stays */
        store_item_destroy(fixture->store, items[index]);
    for (uint64_t draw = 0; draw < 3; draw++) {
        struct store_stats stats;
        fixture_close(fixture);
        assert_int_equal(
            store_create(&fixture->store, &(struct store_options){.dir = fixture->dir}), TRP_OK);
        assert_int_equal(load_in_pieces(fixture->store, &fixture->loaded, draw * COUNT), TRP_OK);
        assert_int_equal(fixture->loaded.count, COUNT);
        const struct loaded *loaded = &fixture->loaded;
        for (size_t index = 0; index < COUNT - 1; index++) {
            uint64_t key = index + 1 + (index >= DELETED);
            assert_int_equal(loaded->items[index]->key, key);
            fixture_check_chunk(fixture->store, loaded->items[index]->chunks[0], key,
                                key * 37 % 9000);
        }
        assert_true(loaded->items[CHANGED]->priority == 55);
        assert_ptr_equal(loaded->items[COUNT - 1]->chunks[0], loaded->items[SHARED - 1]->chunks[0]);
        store_stats(fixture->store, &stats);
        assert_int_equal(stats.items, COUNT);
        assert_int_equal(stats.chunks, COUNT - 1);
        assert_int_equal(stats.unswept, draw == 0); /* the deleted one's */
        while (store_idle(fixture->store))
            ;
    }
}

static void a_damaged_item_is_brought_to_nobody_until_a_check_drops_it(void **state)
{
    struct fixture *fixture = *state;
    const uint64_t keys[] = {1, UINT64_C(0x1122334455667788), 3};
    fixture_open(fixture, (struct store_options){0});
    for (size_t index = 0; index < 3; index++) {
        struct item *item = fixture_item(fixture->store, keys[index], 100);
        insert(fixture, item);
        loaded_add(&fixture->loaded, fixture->table, item);
    }
    assert_int_equal(store_commit(fixture->store), TRP_OK);
    fixture_close(fixture);
    damage_record(fixture->dir, keys[1]);
    assert_int_equal(store_create(&fixture->store, &(struct store_options){.dir = fixture->dir}),
                     TRP_OK);
    assert_int_equal(load_in_pieces(fixture->store, &fixture->loaded, 0), TRP_OK);
    assert_int_equal(fixture->loaded.count, 2);
    struct store_stats stats;
    store_stats(fixture->store, &stats);
    assert_int_equal(stats.items, 2);
    assert_int_equal(stats.damaged, 1);
    fixture_close(fixture);
    assert_int_equal(
        store_create(&fixture->store, &(struct store_options){.dir = fixture->dir, .check = true}),
        TRP_OK);
    assert_int_equal(load_all(fixture->store, &fixture->loaded), TRP_OK);
    store_stats(fixture->store, &stats);
    assert_int_equal(stats.items, 2);
    assert_int_equal(stats.damaged, 0);
    assert_int_equal(stats.unswept, 0);
}

/* A new life of the store that removes what it finds, in slices; how many. */
static unsigned idle_slices(struct fixture *fixture)
{
    unsigned slices = 0;
    fixture_close(fixture);
    assert_int_equal(store_create(&fixture->store, &(struct store_options){.dir = fixture->dir}),
                     TRP_OK);
    assert_int_equal(load_in_pieces(fixture->store, &fixture->loaded, slices), TRP_OK);
    while (store_idle(fixture->store))
        slices++;
    return slices;
}

/* Of three tables, whose items alternate, one is emptied and one dropped, with what they have in
 * the file, but for a few whose owner came to delete them. */
static void what_is_left_of_tables_that_are_gone_is_not_loaded_and_leaves_the_file(void **state)
{
    struct fixture *fixture = *state;
    enum { COUNT = 6000, DELETED = 300, LIVE = COUNT / 3 };
    struct item **items = xcalloc(COUNT, sizeof(struct item *));
    fixture_open(fixture, (struct store_options){0});
    const uint32_t tables[] = {fixture->table,
                               store_table_put(fixture->store, "u", "name=u", (trp_bytes){0}),
                               store_table_put(fixture->store, "v", "name=v", (trp_bytes){0})};
    for (uint64_t at = 0; at < COUNT; at++) {
        fixture->table = tables[at % 3];
        items[at] = fixture_item(fixture->store, at, 60);
        if (at % 3 == 2) { /* those that live have chunks of those that go */
            store_chunk_unref(fixture->store, items[at]->chunks[0]);
            chunk_ref(items[at]->chunks[0] = items[at - 1]->chunks[0]);
        }
        insert(fixture, items[at]);
    }
    uint32_t renewed = store_table_renew(fixture->store, tables[0]);
    store_table_drop(fixture->store, tables[1]);
    assert_int_equal(store_commit(fixture->store), TRP_OK);
    for (uint64_t at = 0; at < DELETED; at++)
        if (at % 3 != 2)
            store_item_delete(fixture->store, items[at]);
    assert_int_equal(store_commit(fixture->store), TRP_OK);
    for (uint64_t at = 0; at < COUNT; at++) /* their chunks stay: no commit follows */
        store_item_destroy(fixture->store, items[at]);
    free(items);
    assert_true(idle_slices(fixture) > (COUNT - LIVE) / 1000);
    assert_true(idle_slices(fixture) < 5);
    size_t count;
    store_tables(fixture->store, &count);
    assert_int_equal(count, 2);
    assert_int_not_equal(renewed, tables[0]);
    assert_int_equal(fixture->loaded.count, LIVE);
    for (uint64_t at = 0; at < LIVE; at++) {
        assert_int_equal(fixture->loaded.tables[at], tables[2]);
        assert_int_equal(fixture->loaded.items[at]->key, 3 * at + 2);
        fixture_check_chunk(fixture->store, fixture->loaded.items[at]->chunks[0], 3 * at + 1, 60);
    }
    assert_true(store_table_put(fixture->store, "w", "name=w", (trp_bytes){0}) > renewed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(items_come_one_by_one_in_any_order, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_damaged_item_is_brought_to_nobody_until_a_check_drops_it,
                                        fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(
            what_is_left_of_tables_that_are_gone_is_not_loaded_and_leaves_the_file, fixture_setup,
            fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
