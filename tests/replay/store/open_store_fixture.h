/* A store that tests open and close, and the items that it gave back. */
#ifndef TRP_TESTS_OPEN_STORE_FIXTURE_H
#define TRP_TESTS_OPEN_STORE_FIXTURE_H

#include "core/clock.h"
#include "tests/replay/store_fixture.h"

struct fixture {
    char *dir;
    struct store *store;
    uint32_t table;
    struct loaded loaded;
};

static inline int fixture_setup(void **state)
{
    struct fixture *fixture = xcalloc(1, sizeof *fixture);
    fixture->dir = fixture_dir("/tmp");
    *state = fixture;
    return 0;
}

static inline void fixture_close(struct fixture *fixture)
{
    if (fixture->store)
        loaded_cleanup(fixture->store, &fixture->loaded);
    store_destroy(fixture->store);
    fixture->store = NULL;
}

static inline int fixture_teardown(void **state)
{
    struct fixture *fixture = *state;
    fixture_close(fixture);
    fixture_remove(fixture->dir);
    free(fixture);
    return 0;
}

static inline void fixture_open(struct fixture *fixture, struct store_options options)
{
    options.dir = fixture->dir;
    trp_status status = store_create(&fixture->store, &options);
    if (status != TRP_OK)
        print_error("%s\n", trp_last_error());
    assert_int_equal(status, TRP_OK);
    assert_int_equal(load_all(fixture->store, &fixture->loaded), TRP_OK);
    if (!options.read_only)
        fixture->table = store_table_put(fixture->store, "t", "name=t", (trp_bytes){0});
}

static inline void insert(struct fixture *fixture, struct item *item)
{
    struct deadline deadline = deadline_in_ms(&clock_monotonic, 5000);
    trp_status status = store_admit(fixture->store, item);
    /* On a slow disk the helper may not be ahead yet. */
    while (status == TRP_ABORTED && !deadline_passed(deadline, &clock_monotonic))
        status = store_admit(fixture->store, item);
    assert_int_equal(status, TRP_OK);
    store_item_insert(fixture->store, fixture->table, item);
}

#endif
