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
    store_chunk_ref(items[SHARED]->chunks[0]);
    insert(fixture, items[COUNT]);
    items[CHANGED]->priority = 55;
    store_item_priority(fixture->store, fixture->table, items[CHANGED]);
    store_item_delete(fixture->store, fixture->table, items[DELETED]);
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

static void an_item_that_cannot_be_brought_fails_the_store(void **state)
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
    assert_int_equal(load_in_pieces(fixture->store, &fixture->loaded, 0), TRP_DATA_LOSS);
    assert_non_null(strstr(trp_last_error(), fixture->dir));
    assert_null(store_bring(fixture->store, 1, true));
    assert_int_equal(store_commit(fixture->store), TRP_DATA_LOSS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(items_come_one_by_one_in_any_order, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(an_item_that_cannot_be_brought_fails_the_store,
                                        fixture_setup, fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
