/* The store: what goes in comes out, again after reopening, and each failure says what it is. */
#include "store_fixture.h"

#include "core/limits.h"

struct fixture {
    char *dir;
    struct store *store;
    uint32_t table;
    struct loaded loaded;
};

static int setup(void **state)
{
    struct fixture *fixture = xcalloc(1, sizeof *fixture);
    fixture->dir = fixture_dir("/tmp");
    *state = fixture;
    return 0;
}

static void fixture_close(struct fixture *fixture)
{
    if (fixture->store)
        loaded_cleanup(fixture->store, &fixture->loaded);
    store_destroy(fixture->store);
    fixture->store = NULL;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    fixture_close(fixture);
    fixture_remove(fixture->dir);
    free(fixture);
    return 0;
}

static void fixture_open(struct fixture *fixture, struct store_options options)
{
    options.dir = fixture->dir;
    trp_status status = store_create(&fixture->store, &options);
    if (status != TRP_OK)
        print_error("%s\n", trp_last_error());
    assert_int_equal(status, TRP_OK);
    assert_int_equal(store_load(fixture->store, loaded_add, &fixture->loaded), TRP_OK);
    if (!options.read_only)
        fixture->table = store_table_put(fixture->store, "t", "name=t", (trp_bytes){0});
}

static void insert(struct fixture *fixture, struct item *item)
{
    assert_int_equal(store_admit(fixture->store, item), TRP_OK);
    store_item_insert(fixture->store, fixture->table, item);
}

static void items_come_back_after_reopening(void **state)
{
    struct fixture *fixture = *state;
    fixture_open(fixture, (struct store_options){0});
    const size_t sizes[] = {0, 1, 52, 2000, 2038, 2100, 4079, 4080, 4081, 28224, 300000};
    for (size_t index = 0; index < 11; index++) {
        struct item *item = fixture_item(fixture->store, index + 1, sizes[index]);
        insert(fixture, item);
        loaded_add(&fixture->loaded, fixture->table, item);
    }
    assert_int_equal(store_commit(fixture->store), TRP_OK);
    for (size_t index = 0; index < 11; index++)
        fixture_check_chunk(fixture->store, fixture->loaded.items[index]->chunks[0], index + 1,
                            sizes[index]);
    for (unsigned times = 0; times < 2; times++) {
        fixture_close(fixture);
        fixture_open(fixture, (struct store_options){0});
        assert_int_equal(fixture->loaded.count, 11);
        for (size_t index = 0; index < 11; index++) {
            const struct item *item = fixture->loaded.items[index];
            assert_int_equal(fixture->loaded.tables[index], fixture->table);
            assert_int_equal(item->key, index + 1);
            assert_true(item->priority == (double)(index + 1) / 2);
            assert_int_equal(item->inserted_at_ns, (int64_t)(index + 1) * 1000);
            fixture_check_chunk(fixture->store, item->chunks[0], index + 1, sizes[index]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(items_come_back_after_reopening, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
