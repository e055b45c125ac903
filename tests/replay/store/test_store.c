/* The store: what goes in comes out, again after reopening, and each failure says what it is. */
#include "core/status.h"
#include "replay/disk/disk.h"
#include "open_store_fixture.h"

#include "replay/store/limits.h"

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

/* Another chunk for the item, whose bytes stay in `bytes`, cut where pieces are not. */
static void borrow(struct store *store, struct item *item, uint8_t *bytes, size_t size)
{
    store_chunk_unref(store, item->chunks[0]);
    fixture_fill(bytes, size, item->key);
    const trp_bytes spans[] = {
        {bytes, 0}, {bytes, 10}, {bytes + 10, 9000}, {NULL, 0}, {bytes + 9010, size - 9010}};
    item->chunks[0] = store_chunk_create(store, spans, 5);
}

static void bytes_that_are_borrowed_are_read_stored_and_given_back(void **state)
{
    struct fixture *fixture = *state;
    enum { SIZE = 28500 };
    fixture_open(fixture, (struct store_options){0});
    uint8_t *bytes[3];
    struct item *items[3];
    for (size_t i = 0; i < 3; i++)
        items[i] = fixture_item(fixture->store, i + 1, 1);
    for (size_t i = 0; i < 3; i++) {
        bytes[i] = xmalloc(SIZE);
        borrow(fixture->store, items[i], bytes[i], SIZE);
        fixture_check_chunk(fixture->store, items[i]->chunks[0], i + 1, SIZE);
    }
    struct buffer pages = {0}, rest = {0};
    assert_int_equal(store_chunk_locate(fixture->store, items[0]->chunks[0], &pages, &rest),
                     TRP_OK);
    assert_int_equal(pages.size, 0);
    assert_int_equal(rest.size, SIZE);
    assert_memory_equal(rest.data, bytes[0], SIZE);
    buffer_cleanup(&pages);
    buffer_cleanup(&rest);
    insert(fixture, items[0]);
    assert_int_equal(store_commit(fixture->store), TRP_OK); /* the first is stored, ... */
    insert(fixture, items[1]);                              /* the second about to be, */
    store_item_destroy(fixture->store, items[2]);           /* the third is gone */
    assert_true(store_has_borrowed(fixture->store));
    store_borrowed_end(fixture->store);
    assert_false(store_has_borrowed(fixture->store));
    for (size_t i = 0; i < 3; i++)
        free(bytes[i]);
    assert_int_equal(store_commit(fixture->store), TRP_OK);
    for (size_t i = 0; i < 2; i++)
        store_item_destroy(fixture->store, items[i]);
    fixture_close(fixture);
    fixture_open(fixture, (struct store_options){.check = true});
    assert_int_equal(fixture->loaded.count, 2);
    for (size_t i = 0; i < 2; i++)
        fixture_check_chunk(fixture->store, fixture->loaded.items[i]->chunks[0], i + 1, SIZE);
}

static void an_uncommitted_group_is_lost_as_a_whole(void **state)
{
    struct fixture *fixture = *state;
    fixture_open(fixture, (struct store_options){0});
    struct item *first = fixture_item(fixture->store, 1, 100);
    insert(fixture, first);
    assert_int_equal(store_commit(fixture->store), TRP_OK);
    struct item *second = fixture_item(fixture->store, 2, 100);
    insert(fixture, second);
    store_item_delete(fixture->store, first);
    store_item_destroy(fixture->store, first);
    store_item_destroy(fixture->store, second);
    fixture_close(fixture);
    fixture_open(fixture, (struct store_options){0});
    assert_int_equal(fixture->loaded.count, 1);
    assert_int_equal(fixture->loaded.items[0]->key, 1);
    fixture_check_chunk(fixture->store, fixture->loaded.items[0]->chunks[0], 1, 100);
}

static void an_item_can_come_and_go_in_one_group(void **state)
{
    struct fixture *fixture = *state;
    fixture_open(fixture, (struct store_options){0});
    for (uint64_t key = 1; key <= 20; key++) {
        struct item *item = fixture_item(fixture->store, key, 5000);
        insert(fixture, item);
        store_item_delete(fixture->store, item);
        store_item_destroy(fixture->store, item);
    }
    assert_int_equal(store_commit(fixture->store), TRP_OK);
    struct store_stats stats;
    store_stats(fixture->store, &stats);
    assert_int_equal(stats.items, 0);
    assert_int_equal(stats.chunks, 0);
    assert_int_equal(stats.live_bytes, 0);
    assert_int_equal(stats.unswept, 0);
    fixture_close(fixture);
    fixture_open(fixture, (struct store_options){0});
    assert_int_equal(fixture->loaded.count, 0);
}

static void a_shared_chunk_is_stored_once_and_goes_with_its_last_item(void **state)
{
    struct fixture *fixture = *state;
    fixture_open(fixture, (struct store_options){0});
    struct item *items[3];
    items[0] = fixture_item(fixture->store, 1, 30000);
    for (unsigned index = 1; index < 3; index++) {
        items[0]->trajectory->refs++;
        items[index] = store_item_create(fixture->store, items[0]->trajectory, NULL);
        items[index]->key = index + 1;
        items[index]->chunks[0] = items[0]->chunks[0];
        chunk_ref(items[0]->chunks[0]);
    }
    for (unsigned index = 0; index < 3; index++)
        insert(fixture, items[index]);
    assert_int_equal(store_commit(fixture->store), TRP_OK);
    struct store_stats stats;
    for (unsigned index = 0; index < 3; index++) {
        store_stats(fixture->store, &stats);
        assert_int_equal(stats.chunks, 1);
        fixture_check_chunk(fixture->store, items[index]->chunks[0], 1, 30000);
        store_item_delete(fixture->store, items[index]);
        store_item_destroy(fixture->store, items[index]);
        assert_int_equal(store_commit(fixture->store), TRP_OK);
    }
    store_stats(fixture->store, &stats);
    assert_int_equal(stats.chunks, 0);
    assert_int_equal(stats.live_bytes, 0);
}

static struct item *wide_item(struct store *store, uint32_t chunks)
{
    static uint8_t shape[20000];
    fixture_fill(shape, sizeof shape, 3);
    struct item *item = store_item_create(
        store, store_trajectory(store, (trp_bytes){shape, sizeof shape}, chunks), NULL);
    item->key = 77;
    for (uint32_t index = 0; index < chunks; index++)
        item->chunks[index] = fixture_chunk(store, 1000 * index, index);
    return item;
}

static void an_item_of_a_thousand_chunks_has_a_record_in_parts(void **state)
{
    enum { CHUNKS = 1000 };
    struct fixture *fixture = *state;
    fixture_open(fixture, (struct store_options){0});
    struct item *before = fixture_item(fixture->store, 1, 10);
    struct item *wide = wide_item(fixture->store, CHUNKS);
    struct item *after = fixture_item(fixture->store, 2, 10);
    insert(fixture, before);
    insert(fixture, wide);
    insert(fixture, after);
    assert_int_equal(store_commit(fixture->store), TRP_OK);
    wide->priority = 4.5;
    wide->times_sampled = 3;
    store_item_priority(fixture->store, wide);
    store_item_sampled(fixture->store, wide);
    assert_int_equal(store_commit(fixture->store), TRP_OK);
    loaded_add(&fixture->loaded, fixture->table, before);
    loaded_add(&fixture->loaded, fixture->table, wide);
    loaded_add(&fixture->loaded, fixture->table, after);
    fixture_close(fixture);
    fixture_open(fixture, (struct store_options){0});
    assert_int_equal(fixture->loaded.count, 3);
    wide = fixture->loaded.items[1];
    assert_int_equal(wide->key, 77);
    assert_true(wide->priority == 4.5);
    assert_int_equal(wide->times_sampled, 3);
    assert_int_equal(wide->trajectory->size, 20000);
    for (uint32_t index = 0; index < CHUNKS; index++)
        fixture_check_chunk(fixture->store, wide->chunks[index], 1000 * index, index);
    store_item_delete(fixture->store, wide);
    store_item_destroy(fixture->store, wide);
    fixture->loaded.items[1] = fixture->loaded.items[2];
    fixture->loaded.count = 2;
    assert_int_equal(store_commit(fixture->store), TRP_OK);
    fixture_close(fixture);
    fixture_open(fixture, (struct store_options){0});
    assert_int_equal(fixture->loaded.count, 2);
    assert_int_equal(fixture->loaded.items[1]->key, 2);
}

static void an_empty_group_costs_nothing(void **state)
{
    struct fixture *fixture = *state;
    fixture_open(fixture, (struct store_options){0});
    assert_int_equal(store_commit(fixture->store), TRP_OK);
    struct store_stats before, after;
    store_stats(fixture->store, &before);
    assert_int_equal(store_commit(fixture->store), TRP_OK);
    store_stats(fixture->store, &after);
    assert_int_equal(after.groups, before.groups);
}

static void seqs_are_never_given_out_twice(void **state)
{
    struct fixture *fixture = *state;
    fixture_open(fixture, (struct store_options){0});
    struct item *item = fixture_item(fixture->store, 1, 100);
    insert(fixture, item);
    assert_int_equal(store_commit(fixture->store), TRP_OK);
    uint64_t item_seq = item->seq, chunk_seq = item->chunks[0]->seq;
    store_item_delete(fixture->store, item);
    store_item_destroy(fixture->store, item);
    assert_int_equal(store_commit(fixture->store), TRP_OK);
    fixture_close(fixture);
    fixture_open(fixture, (struct store_options){0});
    item = fixture_item(fixture->store, 2, 100);
    insert(fixture, item);
    assert_true(item->seq > item_seq);
    assert_true(item->chunks[0]->seq > chunk_seq);
    store_item_destroy(fixture->store, item);
}

static void tables_are_kept_with_options_signature_and_counters(void **state)
{
    struct fixture *fixture = *state;
    static uint8_t signature[1 << 20];
    fixture_fill(signature, sizeof signature, 5);
    fixture_open(fixture, (struct store_options){0});
    uint32_t second = store_table_put(fixture->store, "second", "name=second max_size=5",
                                      (trp_bytes){signature, sizeof signature});
    assert_int_not_equal(second, fixture->table);
    assert_int_equal(store_table_put(fixture->store, "t", "name=t max_size=7", (trp_bytes){0}),
                     fixture->table);
    struct store_table counters = {.id = second,
                                   .inserts = 1,
                                   .samples = 2,
                                   .deletes = 3,
                                   .episodes_deleted = 4,
                                   .unique_samples = 5};
    store_table_counters(fixture->store, &counters);
    assert_int_equal(store_commit(fixture->store), TRP_OK);
    for (unsigned times = 0; times < 2; times++) {
        fixture_close(fixture);
        struct store_options options = {.dir = fixture->dir};
        assert_int_equal(store_create(&fixture->store, &options), TRP_OK);
        size_t count;
        const struct store_table *tables = store_tables(fixture->store, &count);
        assert_int_equal(count, 2);
        assert_string_equal(tables[0].options, "name=t max_size=7");
        assert_int_equal(tables[1].id, second);
        assert_string_equal(tables[1].options, "name=second max_size=5");
        assert_int_equal(tables[1].inserts, 1);
        assert_int_equal(tables[1].samples, 2);
        assert_int_equal(tables[1].deletes, 3);
        assert_int_equal(tables[1].episodes_deleted, 4);
        assert_int_equal(tables[1].unique_samples, 5);
        if (times == 0) {
            assert_int_equal(tables[1].signature.size, sizeof signature);
            assert_memory_equal(tables[1].signature.data, signature, sizeof signature);
            assert_int_equal(load_all(fixture->store, &fixture->loaded), TRP_OK);
            store_table_put(fixture->store, "second", "name=second max_size=5", (trp_bytes){0});
            assert_int_equal(store_commit(fixture->store), TRP_OK);
        } else {
            assert_int_equal(tables[1].signature.size, 0);
        }
    }
}

static void trajectories_of_one_shape_are_one(void **state)
{
    struct fixture *fixture = *state;
    fixture_open(fixture, (struct store_options){0});
    struct trajectory *kept[300];
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned index = 0; index < 300; index++) {
            trp_bytes bytes = {(const uint8_t *)&index, sizeof index};
            struct trajectory *trajectory = store_trajectory(fixture->store, bytes, index % 2);
            assert_memory_equal(trajectory->bytes, &index, sizeof index);
            assert_int_equal(trajectory->refs, round + 1);
            if (round == 0)
                kept[index] = trajectory;
            assert_ptr_equal(trajectory, kept[index]);
        }
    }
    for (unsigned index = 0; index < 600; index++)
        store_item_destroy(fixture->store,
                           store_item_create(fixture->store, kept[index % 300], NULL));
    unsigned zero = 0;
    struct trajectory *again =
        store_trajectory(fixture->store, (trp_bytes){(const uint8_t *)&zero, sizeof zero}, 0);
    assert_int_equal(again->refs, 1);
    store_item_destroy(fixture->store, store_item_create(fixture->store, again, NULL));
}

static void the_cache_is_bounded_and_changes_nothing(void **state)
{
    struct fixture *fixture = *state;
    fixture_open(fixture, (struct store_options){.cache_bytes = 5000});
    for (uint64_t key = 1; key <= 200; key++) {
        struct item *item = fixture_item(fixture->store, key, key * 10);
        insert(fixture, item);
        loaded_add(&fixture->loaded, fixture->table, item);
    }
    assert_int_equal(store_commit(fixture->store), TRP_OK);
    struct store_stats stats;
    struct fetch fetch = {0};
    for (unsigned round = 0; round < 600; round++) {
        uint64_t key = fixture_hash(round) % 200 + 1;
        store_chunk_prefetch(fixture->store, fixture->loaded.items[key - 1]->chunks[0], &fetch);
        fixture_check_chunk(fixture->store, fixture->loaded.items[key - 1]->chunks[0], key,
                            key * 10);
        store_stats(fixture->store, &stats);
        assert_in_range(stats.cache_bytes, 1, 5000);
    }
    fetch_cleanup(&fetch);
}

static void a_group_has_a_limit_and_an_item_too(void **state)
{
    struct fixture *fixture = *state;
    fixture_open(fixture, (struct store_options){0});
    assert_int_equal(store_commit(fixture->store), TRP_OK);
    struct item *huge = fixture_item(fixture->store, 1, STORE_ITEM_BYTES_MAX);
    assert_int_equal(store_admit(fixture->store, huge), TRP_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(trp_last_error(), "402653"));
    store_item_destroy(fixture->store, huge);
    struct item *large = fixture_item(fixture->store, 2, STORE_GROUP_BYTES_MAX - 1000);
    insert(fixture, large);
    loaded_add(&fixture->loaded, fixture->table, large);
    struct item *next = fixture_item(fixture->store, 3, 2000);
    assert_int_equal(store_admit(fixture->store, next), TRP_ABORTED);
    assert_int_equal(store_commit(fixture->store), TRP_OK);
    insert(fixture, next);
    loaded_add(&fixture->loaded, fixture->table, next);
    assert_int_equal(store_commit(fixture->store), TRP_OK);
    fixture_check_chunk(fixture->store, large->chunks[0], 2, STORE_GROUP_BYTES_MAX - 1000);
    store_item_delete(fixture->store, large);
    fixture->loaded.items[0] = next;
    fixture->loaded.count = 1;
    store_item_destroy(fixture->store, large);
    assert_int_equal(store_commit(fixture->store), TRP_OK);
    fixture_close(fixture);
    fixture_open(fixture, (struct store_options){0});
    assert_int_equal(fixture->loaded.count, 1);
    struct store_stats stats;
    store_stats(fixture->store, &stats);
    assert_int_equal(stats.unswept, 0);
}

/* Its pieces have numbers of their own, whatever comes behind it. */
static void a_chunk_larger_than_a_group_keeps_clear_of_the_next(void **state)
{
    enum { LARGE = 130 << 20 };
    struct fixture *fixture = *state;
    fixture_open(fixture, (struct store_options){0});
    for (uint64_t key = 1; key <= 3; key++) {
        struct item *item = fixture_item(fixture->store, key, key == 2 ? LARGE : 100);
        assert_int_equal(store_commit(fixture->store), TRP_OK);
        insert(fixture, item);
        loaded_add(&fixture->loaded, fixture->table, item);
    }
    assert_int_equal(store_commit(fixture->store), TRP_OK);
    fixture_close(fixture);
    fixture_open(fixture, (struct store_options){0});
    assert_int_equal(fixture->loaded.count, 3);
    for (uint64_t key = 1; key <= 3; key++)
        fixture_check_chunk(fixture->store, fixture->loaded.items[key - 1]->chunks[0],
                            (uint32_t)key, key == 2 ? LARGE : 100);
}

/* ---- opening -------------------------------------------------------------------------------- */

static void expect_refused(const char *dir, struct store_options options, trp_status status,
                           const char *words)
{
    struct store *store;
    options.dir = dir;
    trp_status got = store_create(&store, &options);
    if (got != status || !strstr(trp_last_error(), words))
        print_error("%s\n", trp_last_error());
    assert_int_equal(got, status);
    assert_int_equal(status_last_code(), status); /* whose words these are */
    assert_null(store);
    assert_non_null(strstr(trp_last_error(), words));
}

static void write_file(const char *dir, const char *name, const char *text)
{
    char *path = fixture_path(dir, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    free(path);
}

static void a_second_open_names_the_owner(void **state)
{
    struct fixture *fixture = *state;
    fixture_open(fixture, (struct store_options){0});
    char *owner = xasprintf("in use by pid %d", (int)getpid());
    expect_refused(fixture->dir, (struct store_options){0}, TRP_FAILED_PRECONDITION, owner);
    expect_refused(fixture->dir, (struct store_options){.read_only = true}, TRP_FAILED_PRECONDITION,
                   owner);
    free(owner);
}

static void a_foreign_directory_is_refused(void **state)
{
    struct fixture *fixture = *state;
    write_file(fixture->dir, "thesis.tex", "precious");
    expect_refused(fixture->dir, (struct store_options){0}, TRP_FAILED_PRECONDITION, "thesis.tex");
    expect_refused(fixture->dir, (struct store_options){.read_only = true}, TRP_FAILED_PRECONDITION,
                   "no replay store");
    write_file(fixture->dir, "FORMAT", "PostgreSQL 15\n");
    expect_refused(fixture->dir, (struct store_options){0}, TRP_FAILED_PRECONDITION, "foreign");
}

static void another_format_is_refused_with_both_numbers(void **state)
{
    struct fixture *fixture = *state;
    write_file(fixture->dir, "FORMAT", "troupe replay store\nformat 77\n");
    expect_refused(fixture->dir, (struct store_options){0}, TRP_FAILED_PRECONDITION,
                   "format 77, this program reads formats 2 and 3");
}

static void paths_that_cannot_be_are_named(void **state)
{
    struct fixture *fixture = *state;
    write_file(fixture->dir, "file", "");
    char *file = fixture_path(fixture->dir, "file");
    char *deep = fixture_path(fixture->dir, "no/such/place");
    expect_refused(file, (struct store_options){0}, TRP_INVALID_ARGUMENT, file);
    expect_refused(deep, (struct store_options){0}, TRP_FAILED_PRECONDITION, deep);
    expect_refused(deep, (struct store_options){.read_only = true}, TRP_NOT_FOUND, deep);
    free(file);
    free(deep);
}

static void an_unreadable_directory_is_refused(void **state)
{
    struct fixture *fixture = *state;
    uid_t user = geteuid();
    assert_int_equal(chmod(fixture->dir, 0), 0);
    if (user == 0)
        assert_int_equal(seteuid(65534), 0); /* to root nothing is unreadable */
    expect_refused(fixture->dir, (struct store_options){0}, TRP_PERMISSION_DENIED, fixture->dir);
    if (user == 0)
        assert_int_equal(seteuid(0), 0);
    assert_int_equal(chmod(fixture->dir, 0700), 0);
}

static void durability_memory_needs_a_tmpfs(void **state)
{
    struct fixture *fixture = *state;
    expect_refused("/proc/self", (struct store_options){.durability = TRP_DURABLE_MEMORY},
                   TRP_FAILED_PRECONDITION, "tmpfs");
    /* Told before the directory is made, so that none is left. */
    expect_refused("/proc/new", (struct store_options){.durability = TRP_DURABLE_MEMORY},
                   TRP_FAILED_PRECONDITION, "tmpfs");
    fixture_remove(fixture->dir);
    fixture->dir = fixture_dir("/dev/shm");
    fixture_open(fixture, (struct store_options){.durability = TRP_DURABLE_MEMORY});
    struct item *item = fixture_item(fixture->store, 1, 5000);
    insert(fixture, item);
    loaded_add(&fixture->loaded, fixture->table, item);
    assert_int_equal(store_commit(fixture->store), TRP_OK);
    fixture_close(fixture);
    fixture_open(fixture, (struct store_options){.durability = TRP_DURABLE_MEMORY});
    assert_int_equal(fixture->loaded.count, 1);
}

static void remove_file(const char *dir, const char *name)
{
    char *path = fixture_path(dir, name);
    assert_int_equal(unlink(path), 0);
    free(path);
}

/* What an interrupted creation leaves at each step: the next one takes over. */
static void half_a_creation_is_finished(void **state)
{
    struct fixture *fixture = *state;
    static const char *const steps[][2] = {
        {"LOCK", "pid 1\n"}, {"STATE", ""},        {"STATE", "make \n"},
        {"data.mdb", ""},    {"data.mdb", "torn"}, {"FORMAT", ""},
    };
    for (size_t last = 0; last < sizeof steps / sizeof *steps; last++) {
        for (size_t step = 0; step <= last; step++)
            write_file(fixture->dir, steps[step][0], steps[step][1]);
        expect_refused(fixture->dir, (struct store_options){.read_only = true},
                       TRP_FAILED_PRECONDITION, "is no replay store");
        fixture_open(fixture, (struct store_options){0});
        struct item *item = fixture_item(fixture->store, 1, 10);
        insert(fixture, item);
        loaded_add(&fixture->loaded, fixture->table, item);
        assert_int_equal(store_commit(fixture->store), TRP_OK);
        fixture_close(fixture);
        fixture_open(fixture, (struct store_options){.read_only = true});
        assert_int_equal(fixture->loaded.count, 1);
        fixture_close(fixture);
        remove_file(fixture->dir, "FORMAT");
        /* A store with data that lost its FORMAT is not taken for half a creation. */
        expect_refused(fixture->dir, (struct store_options){0}, TRP_FAILED_PRECONDITION,
                       "is no replay store");
        remove_file(fixture->dir, "STATE");
        remove_file(fixture->dir, "data.mdb");
    }
}

/* FORMAT comes last but for STATE: what it vouches for is there. */
static void a_creation_that_ended_before_its_mark_is_whole(void **state)
{
    struct fixture *fixture = *state;
    fixture_open(fixture, (struct store_options){0});
    fixture_close(fixture);
    write_file(fixture->dir, "STATE", "make \n");
    fixture_open(fixture, (struct store_options){.read_only = true});
    fixture_close(fixture);
    remove_file(fixture->dir, "data.mdb");
    expect_refused(fixture->dir, (struct store_options){0}, TRP_DATA_LOSS, "data.mdb: is missing");
}

/* ---- looking at a stopped store ------------------------------------------------------------- */

static uint64_t file_hash(const char *dir, const char *name)
{
    char *path = fixture_path(dir, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    uint64_t hash = 0;
    for (int byte = fgetc(file); byte != EOF; byte = fgetc(file))
        hash = fixture_hash(hash + (uint64_t)byte + 1);
    fclose(file);
    free(path);
    return hash;
}

static void a_look_changes_nothing_and_many_may_look(void **state)
{
    struct fixture *fixture = *state;
    fixture_open(fixture, (struct store_options){0});
    for (uint64_t key = 1; key <= 50; key++) {
        struct item *item = fixture_item(fixture->store, key, 1000);
        insert(fixture, item);
        loaded_add(&fixture->loaded, fixture->table, item);
    }
    assert_int_equal(store_commit(fixture->store), TRP_OK);
    fixture_close(fixture);
    uint64_t data = file_hash(fixture->dir, "data.mdb"), mark = file_hash(fixture->dir, "STATE");
    struct store *second;
    struct store_options options = {.dir = fixture->dir, .read_only = true};
    fixture_open(fixture, options);
    assert_int_equal(store_create(&second, &options), TRP_OK);
    struct loaded loaded = {0};
    assert_int_equal(load_all(second, &loaded), TRP_OK);
    assert_int_equal(loaded.count, 50);
    fixture_check_chunk(second, loaded.items[49]->chunks[0], 50, 1000);
    assert_int_equal(fixture->loaded.count, 50);
    fixture_check_chunk(fixture->store, fixture->loaded.items[0]->chunks[0], 1, 1000);
    expect_refused(fixture->dir, (struct store_options){0}, TRP_FAILED_PRECONDITION, "being read");
    loaded_cleanup(second, &loaded);
    store_destroy(second);
    fixture_close(fixture);
    assert_true(file_hash(fixture->dir, "data.mdb") == data);
    assert_true(file_hash(fixture->dir, "STATE") == mark);
}

static void an_empty_directory_is_nothing_to_look_at(void **state)
{
    struct fixture *fixture = *state;
    expect_refused(fixture->dir, (struct store_options){.read_only = true}, TRP_FAILED_PRECONDITION,
                   "is no replay store");
}

/* ---- damage --------------------------------------------------------------------------------- */

static void note_damage(void *arg, uint32_t table_id, uint64_t key, const char *what)
{
    assert_int_equal(table_id, 1);
    assert_string_equal(what, "its record is damaged");
    *(uint64_t *)arg = key;
}

static void an_item_with_a_damaged_priority_is_told_and_no_other_is_lost(void **state)
{
    uint64_t told = 0;
    struct fixture *fixture = *state;
    fixture_open(fixture, (struct store_options){0});
    struct item *item = fixture_item(fixture->store, UINT64_C(0x1122334455667788), 100);
    insert(fixture, item);
    loaded_add(&fixture->loaded, fixture->table, item);
    item = fixture_item(fixture->store, 5, 100);
    insert(fixture, item);
    loaded_add(&fixture->loaded, fixture->table, item);
    assert_int_equal(store_commit(fixture->store), TRP_OK);
    fixture_close(fixture);
    damage_record_at(fixture->dir, UINT64_C(0x1122334455667788), 8); /* its priority */
    struct store_options options = {.dir = fixture->dir, .damage = note_damage, .arg = &told};
    assert_int_equal(store_create(&fixture->store, &options), TRP_OK);
    assert_int_equal(load_all(fixture->store, &fixture->loaded), TRP_OK);
    assert_true(told == UINT64_C(0x1122334455667788));
    assert_int_equal(fixture->loaded.count, 1);
    assert_int_equal(fixture->loaded.items[0]->key, 5);
}

static void a_file_that_is_no_database_is_refused(void **state)
{
    struct fixture *fixture = *state;
    fixture_open(fixture, (struct store_options){0});
    fixture_close(fixture);
    char *garbage = xcalloc(20001, 1);
    memset(garbage, 'x', 20000);
    write_file(fixture->dir, "data.mdb", garbage);
    free(garbage);
    expect_refused(fixture->dir, (struct store_options){0}, TRP_DATA_LOSS, "data.mdb");
}

static void expect_lost(const char *dir, const char *words)
{
    for (int look = 0; look < 2; look++) {
        /* Twice each: a refusal changes nothing that the next open would be fooled by. */
        for (int again = 0; again < 2; again++) {
            struct store_options options = {.read_only = look};
            expect_refused(dir, options, TRP_DATA_LOSS, words);
            expect_refused(dir, options, TRP_DATA_LOSS, "restore data.mdb from a copy");
            options.durability = look ? options.durability : TRP_DURABLE_SYSTEM;
            expect_refused(dir, options, TRP_DATA_LOSS, words);
        }
    }
}

static void missing_or_short_data_is_a_loss_not_an_empty_store(void **state)
{
    struct fixture *fixture = *state;
    fixture_open(fixture, (struct store_options){0});
    for (uint64_t key = 1; key <= 50; key++) {
        struct item *item = fixture_item(fixture->store, key, 1000);
        insert(fixture, item);
        loaded_add(&fixture->loaded, fixture->table, item);
    }
    assert_int_equal(store_commit(fixture->store), TRP_OK);
    fixture_close(fixture);
    char *data = fixture_path(fixture->dir, "data.mdb");
    assert_int_equal(truncate(data, 20000), 0);
    expect_lost(fixture->dir, "data.mdb: is cut short, 20000 bytes of ");
    struct stat info;
    assert_int_equal(stat(data, &info), 0);
    assert_int_equal(info.st_size, 20000);
    assert_int_equal(truncate(data, 0), 0);
    expect_lost(fixture->dir, "data.mdb: is empty");
    assert_int_equal(unlink(data), 0);
    expect_lost(fixture->dir, "data.mdb: is missing");
    assert_int_equal(access(data, F_OK), -1);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(items_come_back_after_reopening, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(bytes_that_are_borrowed_are_read_stored_and_given_back,
                                        fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(an_uncommitted_group_is_lost_as_a_whole, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(an_item_can_come_and_go_in_one_group, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_shared_chunk_is_stored_once_and_goes_with_its_last_item,
                                        fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(an_item_of_a_thousand_chunks_has_a_record_in_parts,
                                        fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(an_empty_group_costs_nothing, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(seqs_are_never_given_out_twice, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(tables_are_kept_with_options_signature_and_counters,
                                        fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(trajectories_of_one_shape_are_one, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(the_cache_is_bounded_and_changes_nothing, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_group_has_a_limit_and_an_item_too, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_chunk_larger_than_a_group_keeps_clear_of_the_next,
                                        fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(a_second_open_names_the_owner, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_foreign_directory_is_refused, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(another_format_is_refused_with_both_numbers, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(paths_that_cannot_be_are_named, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(an_unreadable_directory_is_refused, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(durability_memory_needs_a_tmpfs, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(half_a_creation_is_finished, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_creation_that_ended_before_its_mark_is_whole,
                                        fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(a_look_changes_nothing_and_many_may_look, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(an_empty_directory_is_nothing_to_look_at, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(
            an_item_with_a_damaged_priority_is_told_and_no_other_is_lost, fixture_setup,
            fixture_teardown),
        cmocka_unit_test_setup_teardown(a_file_that_is_no_database_is_refused, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(missing_or_short_data_is_a_loss_not_an_empty_store,
                                        fixture_setup, fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
