/* What resets, drops and smaller limits leave to be done, step by step: one engine, no server. */
#include "tests/core/captured.h"
#include "tests/replay/store_fixture.h"

#include <troupe/replay.h>
#include "replay/engine/limits.h"
#include "replay/service/limits.h"
#include "replay/engine/internal.h"

enum { TABLES = 2, STORE_BYTES = 24 << 20, LARGE = 100000, SMALL = 10 };

struct site {
    char *dir;
    struct engine *engine;
    uint64_t key; /* of the last insert */
};

static int setup(void **state)
{
    struct site *site = xcalloc(1, sizeof *site);
    site->dir = fixture_dir("/tmp");
    *state = site;
    return 0;
}

static int teardown(void **state)
{
    struct site *site = *state;
    engine_destroy(site->engine);
    fixture_remove(site->dir);
    free(site);
    return 0;
}

static trp_table_options *options_of(const char *line)
{
    trp_table_options *options;
    assert_int_equal(trp_table_options_parse(line, &options), TRP_OK);
    return options;
}

static void open_engine(struct site *site, const char *const lines[TABLES])
{
    trp_table_options tables[TABLES], *parsed[TABLES];
    for (size_t i = 0; i < TABLES; i++) {
        parsed[i] = options_of(lines[i]);
        tables[i] = *parsed[i];
    }
    struct engine_options options = {.dir = site->dir,
                                     .max_bytes = STORE_BYTES,
                                     .tables = tables,
                                     .table_count = TABLES,
                                     .seed = 1};
    assert_int_equal(engine_create(&site->engine, &options), TRP_OK);
    engine_set_time(site->engine, 1);
    for (size_t i = 0; i < TABLES; i++)
        trp_table_options_destroy(parsed[i]);
}

static trp_status insert(struct site *site, struct engine_table *table, size_t bytes)
{
    struct item *item = fixture_item(site->engine->store, ++site->key, bytes);
    trp_status status = engine_insert(site->engine, table, item);
    if (status != TRP_OK)
        store_item_destroy(site->engine->store, item);
    return status;
}

static void insert_many(struct site *site, struct engine_table *table, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(insert(site, table, SMALL), TRP_OK);
}

static uint64_t stored_items(const struct site *site)
{
    struct store_stats stats;
    store_stats(site->engine->store, &stats);
    return stats.items;
}

/* As a server does with every group when it has other work, too. */
static void end_busy_group(const struct site *site)
{
    engine_clear_step(site->engine, CLEAR_BUSY_ITEMS);
    assert_int_equal(engine_commit(site->engine), TRP_OK);
}

/* A full store makes room for an insert by what a smaller limit lets go, but not for the copy of a
 * sample that has not been sent yet. */
static void what_was_sampled_stays_while_its_copy_finds_no_room(void **state)
{
    struct site *site = *state;
    struct table_sample sample;
    struct delivery delivery = {0};
    open_engine(site, (const char *const[]){"name=a sampler=uniform insert_on_sample=b", "name=b"});
    struct engine_table *a = engine_table(site->engine, 0), *b = engine_table(site->engine, 1);
    while (insert(site, a, LARGE) == TRP_OK)
        continue;
    while (insert(site, a, SMALL) == TRP_OK)
        continue;
    assert_int_equal(engine_commit(site->engine), TRP_OK);
    trp_table_options *less = options_of("name=a sampler=uniform insert_on_sample=b max_size=1");
    engine_table_alter(site->engine, a, less);
    trp_table_options_destroy(less);
    int64_t size = table_facts(a->table)->size, draws = 0;
    assert_non_null(a->clearing);
    for (; a->feed_dropped == 0 && draws < 100 * size; draws++) {
        assert_int_equal(engine_sample_many(site->engine, a, 1, &sample, &delivery), 1);
        assert_int_equal(table_facts(a->table)->size, size);
        assert_ptr_equal(table_find(a->table, sample.item->key), sample.item);
    }
    assert_int_equal(a->feed_dropped, 1);
    while (table_facts(a->table)->size == size) /* until there is room to be made for it */
        assert_int_equal(insert(site, b, SMALL), TRP_OK);
    delivery_cleanup(&delivery);
}

static void tables_filled_and_emptied_again_and_again_do_not_pile_up(void **state)
{
    struct site *site = *state;
    enum { ROUNDS = 40, COUNT = 1000, SLACK = 10 };
    open_engine(site, (const char *const[]){"name=a", "name=b"});
    struct engine_table *a = engine_table(site->engine, 0);
    for (int round = 0; round < ROUNDS; round++) {
        insert_many(site, a, COUNT);
        end_busy_group(site);
        engine_reset(site->engine, a);
        end_busy_group(site);
        assert_in_range(stored_items(site), 0, 2 * COUNT);
    }
    for (int group = 0; group < SLACK && engine_clear_waits(site->engine); group++)
        end_busy_group(site);
    assert_false(engine_clear_waits(site->engine));
    assert_int_equal(stored_items(site), 0);
}

static void many_resets_in_one_group_are_done_within_the_next(void **state)
{
    struct site *site = *state;
    enum { RESETS = 100 };
    open_engine(site, (const char *const[]){"name=a", "name=b"});
    struct engine_table *a = engine_table(site->engine, 0);
    insert_many(site, a, 1);
    for (int i = 0; i < RESETS; i++)
        engine_reset(site->engine, a);
    assert_int_equal(engine_commit(site->engine), TRP_OK);
    end_busy_group(site);
    assert_false(engine_clear_waits(site->engine));
    assert_int_equal(stored_items(site), 0);
}

static void room_at_the_edge_is_told_of_once(void **state)
{
    enum { TURNS = 40, TURN_MS = 500 };
    struct site *site = *state;
    struct captured log;
    unsigned taken = 0, refused = 0;
    int64_t now_ns = 1;
    open_engine(site, (const char *const[]){"name=a", "name=b"});
    struct engine_table *a = engine_table(site->engine, 0);
    capture_begin(&log);
    while (insert(site, a, LARGE) == TRP_OK)
        continue;
    for (uint64_t key = 1; key <= TURNS; key++) {
        struct wire_mutate_request request = {0};
        now_ns += TURN_MS * INT64_C(1000000);
        engine_set_time(site->engine, now_ns);
        wire_push_key(&request.deletes, key);
        assert_int_equal(engine_mutate(site->engine, a, &request), TRP_OK);
        wire_mutate_request_cleanup(&request);
        for (unsigned tries = 0; tries < 3; tries++) {
            bool fits = insert(site, a, LARGE) == TRP_OK;
            taken += fits;
            refused += !fits;
            assert_int_equal(engine_commit(site->engine), TRP_OK);
        }
    }
    assert_true(taken >= TURNS / 2 && refused >= TURNS / 2);
    engine_set_time(site->engine, now_ns + (ROOM_LINE_MS + 1) * INT64_C(1000000));
    assert_int_equal(insert(site, a, SMALL), TRP_OK);
    capture_end(&log);
    assert_int_equal(captured_count(&log, "inserts are refused"), 1);
    assert_int_equal(captured_count(&log, "there is room for inserts again"), 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(what_was_sampled_stays_while_its_copy_finds_no_room),
        TEST(tables_filled_and_emptied_again_and_again_do_not_pile_up),
        TEST(many_resets_in_one_group_are_done_within_the_next),
        TEST(room_at_the_edge_is_told_of_once),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
