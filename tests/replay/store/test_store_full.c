/* A file system of 40 MB that fills up: an error, the server alive, and all well when space
 * returns. A write to a page that the file system cannot give would end this process by SIGBUS. */
#include "copy_steps.h"

#include <errno.h>

#include "core/clock.h"
#include "replay/store/checkpoint_writer.h"
#include "tests/core/private_mounts.h"

enum { ITEM_BYTES = 28224, ITEMS_MAX = 1 << 20, FS_BYTES = 40 << 20 };

struct full {
    char *mount_point, *dir;
    struct store *store;
    uint32_t table;
    struct item **items; /* ascending key, [first, count) live */
    size_t *sizes;
    size_t first, count;
};

/* ---- a file system of our own --------------------------------------------------------------- */

static int setup(void **state)
{
    struct full *full = xcalloc(1, sizeof *full);
    full->mount_point = fixture_dir("/tmp");
    mount_memory(full->mount_point, 0, "size=40m");
    full->dir = fixture_path(full->mount_point, "store");
    full->items = xcalloc(ITEMS_MAX, sizeof *full->items);
    full->sizes = xcalloc(ITEMS_MAX, sizeof *full->sizes);
    *state = full;
    return 0;
}

static void full_close(struct full *full)
{
    for (size_t index = full->first; full->store && index < full->count; index++)
        store_item_destroy(full->store, full->items[index]);
    store_destroy(full->store);
    full->store = NULL;
}

static int teardown(void **state)
{
    struct full *full = *state;
    full_close(full);
    umount2(full->mount_point, MNT_DETACH);
    fixture_remove(full->mount_point);
    free(full->dir);
    free(full->items);
    free(full->sizes);
    free(full);
    return 0;
}

/* ---- steps ---------------------------------------------------------------------------------- */

static void full_open(struct full *full, trp_durability durability, uint64_t max_bytes)
{
    struct store_options options = {
        .dir = full->dir, .durability = durability, .max_bytes = max_bytes};
    struct loaded loaded = {0};
    if (store_create(&full->store, &options) != TRP_OK || load_all(full->store, &loaded) != TRP_OK)
        fail_msg("%s", trp_last_error());
    full->table = store_table_put(full->store, "t", "name=t", (trp_bytes){0});
    assert_int_equal(store_commit(full->store), TRP_OK);
    assert_int_equal(loaded.count, full->count - full->first);
    for (size_t index = 0; index < loaded.count; index++) {
        assert_int_equal(loaded.items[index]->key, full->first + index);
        full->items[full->first + index] = loaded.items[index];
    }
    free(loaded.items);
    free(loaded.tables);
}

static trp_status insert(struct full *full, size_t size)
{
    assert_true(full->count < ITEMS_MAX);
    struct item *item = fixture_item(full->store, full->count, size);
    trp_status status = store_admit(full->store, item);
    if (status == TRP_ABORTED) {
        assert_int_equal(store_commit(full->store), TRP_OK);
        status = store_admit(full->store, item);
    }
    if (status != TRP_OK) {
        store_item_destroy(full->store, item);
        return status;
    }
    store_item_insert(full->store, full->table, item);
    full->sizes[full->count] = size;
    full->items[full->count++] = item;
    return TRP_OK;
}

static void erase_oldest(struct full *full)
{
    struct item *item = full->items[full->first++];
    store_item_delete(full->store, item);
    store_item_destroy(full->store, item);
}

static void commit(struct full *full)
{
    if (store_commit(full->store) != TRP_OK)
        fail_msg("%s", trp_last_error());
}

/* Until it is refused twice in a row (the commit between may free a page); the bytes that went in.
 */
static uint64_t fill(struct full *full, size_t size)
{
    uint64_t bytes = 0;
    for (unsigned refused = 0; refused < 2;) {
        trp_status status = insert(full, size);
        if (status == TRP_OK) {
            refused = 0;
            bytes += size;
        } else {
            assert_int_equal(status, TRP_RESOURCE_EXHAUSTED);
            assert_non_null(strstr(trp_last_error(), "no room"));
            refused++;
        }
        if (status != TRP_OK || full->count % 16 == 0)
            commit(full);
    }
    return bytes;
}

static void check_all(struct full *full)
{
    for (size_t index = full->first; index < full->count; index++)
        fixture_check_chunk(full->store, full->items[index]->chunks[0], index, full->sizes[index]);
}

static void check_reopened(struct full *full, trp_durability durability, uint64_t max_bytes)
{
    full_close(full);
    full_open(full, durability, max_bytes);
    check_all(full);
}

/* ---- cases ---------------------------------------------------------------------------------- */

static void fill_and_recover(struct full *full, trp_durability durability, size_t size,
                             unsigned rounds)
{
    full_open(full, durability, 0);
    assert_true(fill(full, size) > FS_BYTES / 2 || size < 4096);
    assert_int_equal(insert(full, size), TRP_RESOURCE_EXHAUSTED);
    check_all(full);
    check_reopened(full, durability, 0);
    size_t live = full->count - full->first;
    for (unsigned round = 0; round < rounds; round++) {
        for (size_t index = 0; index < live / 2; index++)
            erase_oldest(full);
        commit(full);
        size_t before = full->count;
        fill(full, size);
        assert_in_range(full->count - before, live / 4, live);
    }
    check_reopened(full, durability, 0);
}

static void a_full_file_system_refuses_and_recovers(void **state)
{
    fill_and_recover(*state, TRP_DURABLE_PROCESS, ITEM_BYTES, 4);
}

static void small_items_refuse_and_recover(void **state)
{
    fill_and_recover(*state, TRP_DURABLE_MEMORY, 100, 1);
}

static void a_synced_store_refuses_and_recovers(void **state)
{
    fill_and_recover(*state, TRP_DURABLE_SYSTEM, ITEM_BYTES, 4);
}

static void sliding_along_the_edge_goes_on_for_ever(void **state)
{
    struct full *full = *state;
    full_open(full, TRP_DURABLE_PROCESS, 0);
    fill(full, ITEM_BYTES);
    size_t live = full->count;
    for (size_t index = 0; index < 64; index++)
        erase_oldest(full);
    commit(full);
    for (size_t group = 0; group < 5 * live / 8; group++) {
        for (unsigned index = 0; index < 8; index++) {
            erase_oldest(full);
            assert_int_equal(insert(full, ITEM_BYTES), TRP_OK);
        }
        commit(full);
    }
    check_all(full);
}

/* Any item goes, of any size, so that the free list is in shreds. */
static void holes_all_over_a_full_store_are_filled(void **state)
{
    enum { HOLES_GROUPS = 400 };
    struct full *full = *state;
    full_open(full, TRP_DURABLE_PROCESS, 0);
    uint64_t key = 0, turned_away = 0;
    for (unsigned group = 0; group < HOLES_GROUPS; group++) {
        for (unsigned index = 0; index < 32; index++) {
            size_t size = fixture_hash(++key) % 50000;
            struct item *item = fixture_item(full->store, key, size);
            trp_status status = store_admit(full->store, item);
            if (status == TRP_OK) {
                store_item_insert(full->store, full->table, item);
                full->sizes[full->count] = size;
                full->items[full->count++] = item;
                continue;
            }
            turned_away++;
            store_item_destroy(full->store, item);
            commit(full);
            size_t victim = fixture_hash(key * 7) % full->count;
            store_item_delete(full->store, full->items[victim]);
            store_item_destroy(full->store, full->items[victim]);
            full->items[victim] = full->items[--full->count];
            full->sizes[victim] = full->sizes[full->count];
        }
        commit(full);
    }
    assert_true(turned_away > HOLES_GROUPS);
    for (size_t index = 0; index < full->count; index++)
        fixture_check_chunk(full->store, full->items[index]->chunks[0], full->items[index]->key,
                            full->sizes[index]);
}

static void changes_are_always_possible(void **state)
{
    struct full *full = *state;
    full_open(full, TRP_DURABLE_PROCESS, 0);
    fill(full, 300);
    for (unsigned group = 0; group < 2000; group++) {
        for (unsigned index = 0; index < 256; index++) {
            struct item *item = full->items[(group * 256 + index * 37) % full->count];
            item->priority = group + 0.5;
            store_item_priority(full->store, item);
        }
        commit(full);
    }
    for (size_t index = full->first; index < full->count; index++)
        if (fixture_hash(index) % 2 == 0)
            store_item_delete(full->store, full->items[index]);
    commit(full);
}

/* Tables are refused before anything is noted; one that takes a record's place is not. */
static void a_table_without_room_is_refused(void **state)
{
    struct full *full = *state;
    uint8_t *bytes = xcalloc(1, 8 << 20);
    full_open(full, TRP_DURABLE_PROCESS, 0);
    fill(full, 300);
    commit(full);
    assert_int_equal(store_admit_table(full->store, (trp_bytes){bytes, 8 << 20}, false),
                     TRP_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(trp_last_error(), "no room for a table"));
    assert_int_equal(store_admit_table(full->store, (trp_bytes){bytes, 8 << 20}, true),
                     TRP_RESOURCE_EXHAUSTED);
    for (int i = 0; i < 50; ++i) {
        assert_int_equal(store_admit_table(full->store, (trp_bytes){bytes, 100}, true), TRP_OK);
        store_table_put(full->store, "t", i % 2 ? "name=t" : "name=t max_size=9",
                        (trp_bytes){bytes, 100});
        commit(full);
    }
    free(bytes);
}

static void space_that_returns_is_used(void **state)
{
    struct full *full = *state;
    char *ballast = fixture_path(full->mount_point, "ballast");
    full_open(full, TRP_DURABLE_PROCESS, 0);
    int fd = open(ballast, O_WRONLY | O_CREAT, 0666);
    assert_int_equal(posix_fallocate(fd, 0, 24 << 20), 0);
    close(fd);
    uint64_t before = fill(full, ITEM_BYTES);
    unlink(ballast);
    free(ballast);
    /* The kernel is not asked again at once. */
    struct deadline deadline = deadline_in_ms(&clock_monotonic, 5000);
    uint64_t after = 0;
    while (after < 16 << 20 && !deadline_passed(deadline, &clock_monotonic))
        after += fill(full, ITEM_BYTES);
    assert_in_range(after, 16 << 20, 24 << 20);
    assert_true(before < after);
    check_reopened(full, TRP_DURABLE_PROCESS, 0);
}

static uint64_t allocated(const struct full *full)
{
    struct store_stats stats;
    store_stats(full->store, &stats);
    return stats.allocated_bytes;
}

static void freed_pages_are_used_again(void **state)
{
    struct full *full = *state;
    full_open(full, TRP_DURABLE_PROCESS, 0);
    uint64_t once = fill(full, ITEM_BYTES);
    assert_true(allocated(full) > FS_BYTES / 10 * 9);
    for (unsigned round = 0; round < 2; round++) {
        while (full->count - full->first > 20)
            erase_oldest(full);
        commit(full);
        while (store_idle(full->store))
            ;
        assert_in_range(fill(full, ITEM_BYTES), once / 10 * 8, once);
        check_reopened(full, TRP_DURABLE_PROCESS, 0);
    }
}

/* At whatever file of the new store it fails. */
static void a_full_file_system_cannot_hold_a_new_store(void **state)
{
    struct full *full = *state;
    char *ballast = fixture_path(full->mount_point, "ballast");
    unsigned refused = 0;
    for (off_t left = 0; left < 200000; left += 8192) {
        int fd = open(ballast, O_WRONLY | O_CREAT, 0666);
        assert_int_equal(posix_fallocate(fd, 0, FS_BYTES - 4096 - left), 0);
        struct store_options options = {.dir = full->dir};
        trp_status status = store_create(&full->store, &options);
        refused += status != TRP_OK;
        if (status != TRP_OK) {
            assert_int_equal(status, TRP_RESOURCE_EXHAUSTED);
            assert_non_null(strstr(trp_last_error(), full->dir));
        }
        full_close(full);
        close(fd);
        unlink(ballast);
        full_open(full, TRP_DURABLE_PROCESS, 0);
        full_close(full);
        fixture_erase(full->dir);
    }
    assert_in_range(refused, 10, 25);
    free(ballast);
    full_open(full, TRP_DURABLE_PROCESS, 0);
    assert_int_equal(insert(full, ITEM_BYTES), TRP_OK);
}

static void a_file_system_that_grows_is_used_at_once(void **state)
{
    struct full *full = *state;
    full_open(full, TRP_DURABLE_PROCESS, 0);
    fill(full, ITEM_BYTES);
    struct store_stats before, after;
    store_stats(full->store, &before);
    assert_int_equal(before.limit_bytes, FS_BYTES);
    assert_int_equal(mount(NULL, full->mount_point, NULL, MS_REMOUNT, "size=160m"), 0);
    store_stats(full->store, &after);
    assert_int_equal(after.limit_bytes, 4 * FS_BYTES);
    /* It was refused a moment ago, and does not ask the kernel again at once. */
    struct deadline deadline = deadline_in_ms(&clock_monotonic, 5000);
    uint64_t filled = 0;
    while (filled < 3 * (FS_BYTES / 10 * 9) && !deadline_passed(deadline, &clock_monotonic))
        filled += fill(full, ITEM_BYTES);
    assert_true(filled >= 3 * (FS_BYTES / 10 * 9));
    check_all(full);
    check_reopened(full, TRP_DURABLE_PROCESS, 0);
}

static trp_status no_damage(void *arg, uint32_t table_id, uint64_t key, const char *what)
{
    (void)arg;
    (void)table_id;
    (void)key;
    return trp_fail(TRP_DATA_LOSS, "%s", what);
}

static trp_status copy_to(struct full *full, const char *dir)
{
    struct copy_sink sink = {checkpoint_writer_item, checkpoint_writer_piece, no_damage, NULL,
                             NULL};
    struct store_copy *copy;
    struct checkpoint_writer *target;
    struct checkpoint_writer_stats stats;
    TRP_TRY(store_copy_begin(full->store, &copy, &sink));
    trp_status status = checkpoint_writer_create(&target, dir, 1 << 30);
    store_copy_set_argument(copy, target);
    while (status == TRP_OK && !store_copy_done(copy)) {
        status = store_copy_find(full->store, copy);
        if (status == TRP_OK)
            status = store_copy_give(copy);
    }
    if (status == TRP_OK)
        status = checkpoint_writer_finish(target, copy, &stats);
    checkpoint_writer_destroy(target);
    store_copy_end(full->store, copy);
    return status;
}

static void a_copy_without_room_fails_and_the_store_goes_on(void **state)
{
    struct full *full = *state;
    char *dir = fixture_path(full->mount_point, "copy");
    full_open(full, TRP_DURABLE_PROCESS, 0);
    fill(full, ITEM_BYTES);
    for (unsigned index = 0; index < 200; index++)
        erase_oldest(full);
    commit(full);
    assert_int_equal(mkdir(dir, 0700), 0);
    assert_int_equal(copy_to(full, dir), TRP_RESOURCE_EXHAUSTED);
    fixture_erase(dir);
    assert_int_equal(insert(full, ITEM_BYTES), TRP_OK);
    commit(full);
    check_reopened(full, TRP_DURABLE_PROCESS, 0);
    free(dir);
}

/* Fills a store and begins to copy it; then one of `part` items goes. */
static struct store_copy *copy_full(struct full *full, const struct copy_sink *sink, size_t part,
                                    size_t *live)
{
    struct store_copy *copy;
    full_open(full, TRP_DURABLE_PROCESS, 0);
    fill(full, ITEM_BYTES);
    *live = full->count;
    assert_int_equal(store_copy_begin(full->store, &copy, sink), TRP_OK);
    for (size_t index = 0; index < *live / part; index++)
        erase_oldest(full);
    commit(full);
    return copy;
}

static void a_full_store_takes_back_what_a_copy_holds(void **state)
{
    struct full *full = *state;
    struct copy_sink sink = {checkpoint_writer_item, checkpoint_writer_piece, no_damage, NULL,
                             NULL};
    size_t live;
    struct store_copy *copy = copy_full(full, &sink, 2, &live);
    fill(full, ITEM_BYTES);
    assert_in_range(full->count - live, live / 4, live);
    assert_int_equal(store_copy_find(full->store, copy), TRP_RESOURCE_EXHAUSTED);
    store_copy_end(full->store, copy);
    check_reopened(full, TRP_DURABLE_PROCESS, 0);
}

static void a_full_store_needs_only_what_a_copy_has_read(void **state)
{
    struct full *full = *state;
    struct copy_sink sink = {any_item, any_piece, no_damage, NULL, NULL};
    size_t live;
    struct store_copy *copy = copy_full(full, &sink, 3, &live);
    while (store_copy_stats(copy).chunks < live / 2)
        copy_step(full->store, copy);
    assert_false(store_copy_done(copy));
    assert_int_equal(store_copy_find(full->store, copy), TRP_OK);
    for (size_t index = 0; index < live / 4; index++)
        assert_int_equal(insert(full, ITEM_BYTES), TRP_OK);
    commit(full);
    assert_int_equal(store_copy_give(copy), TRP_OK);
    copy_rest(full->store, copy);
    assert_int_equal(store_copy_find(full->store, copy), TRP_OK);
    store_copy_end(full->store, copy);
    check_reopened(full, TRP_DURABLE_PROCESS, 0);
}

/* Others take what there is, to the last page. */
static void fill_the_rest(const struct full *full)
{
    char *path = fixture_path(full->mount_point, "others");
    int fd = open(path, O_WRONLY | O_CREAT, 0666);
    off_t at = 0;
    for (off_t step = 1 << 20; step >= 4096; step /= 2)
        while (posix_fallocate(fd, at, step) == 0)
            at += step;
    close(fd);
    free(path);
}

static off_t data_bytes(const struct full *full)
{
    char *path = fixture_path(full->dir, "data.mdb");
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    free(path);
    return info.st_size;
}

/* Of a store that is as full as it gets: each commit is to go through. */
static void change_all_over(struct full *full)
{
    const size_t count = full->count;
    for (unsigned group = 0; group < 50; group++) {
        for (unsigned index = 0; index < 2000; index++) {
            struct item *item = full->items[fixture_hash(group * 2000 + index) % count];
            item->priority = group + 0.5;
            store_item_priority(full->store, item);
            item->times_sampled++;
            store_item_sampled(full->store, item);
        }
        commit(full);
        assert_int_equal(store_admit_table(full->store, (trp_bytes){0}, true), TRP_OK);
        store_table_put(full->store, "t", group % 2 ? "name=t" : "name=t max_size=9",
                        (trp_bytes){0});
        commit(full);
    }
}

/* Half of the items one by one, then all of them at once; then there is room. */
static void empty_all_over(struct full *full)
{
    const size_t count = full->count;
    for (size_t index = 0; index < count; index++) {
        if (index % 1000 == 0)
            commit(full);
        if (fixture_hash(index) % 2 == 0)
            store_item_delete(full->store, full->items[index]);
    }
    commit(full);
    assert_int_equal(store_admit_table(full->store, (trp_bytes){0}, true), TRP_OK);
    full->table = store_table_renew(full->store, full->table);
    commit(full);
    for (size_t index = 0; index < count; index++)
        store_item_destroy(full->store, full->items[index]);
    full->first = full->count;
    commit(full);
    full_close(full);
}

static void a_store_whose_disk_filled_up_after_its_stop_goes_on(void **state)
{
    enum { SMALL_BYTES = 100 };
    struct full *full = *state;
    full_open(full, TRP_DURABLE_PROCESS, 0);
    fill(full, SMALL_BYTES);
    for (unsigned life = 0; life < 3; life++) {
        full_close(full);
        fill_the_rest(full);
        full_open(full, life == 1 ? TRP_DURABLE_SYSTEM : TRP_DURABLE_PROCESS, 0);
        assert_int_equal(insert(full, ITEM_BYTES), TRP_RESOURCE_EXHAUSTED);
        change_all_over(full);
    }
    empty_all_over(full);
    full_open(full, TRP_DURABLE_PROCESS, 0);
    while (store_idle(full->store))
        ;
    assert_true(fill(full, SMALL_BYTES) > 0);
}

/* Of a stopped store: of the pages behind the last one so many stay; `hole`: the rest is one. */
static void cut_tail(const struct full *full, off_t left, bool hole)
{
    struct store_options options = {.dir = full->dir, .read_only = true};
    struct store_stats stats;
    struct store *store;
    char *path = fixture_path(full->dir, "data.mdb");
    const off_t before = data_bytes(full);
    assert_int_equal(store_create(&store, &options), TRP_OK);
    store_stats(store, &stats);
    store_destroy(store);
    assert_true(before >= (off_t)stats.file_bytes + left * 4096);
    assert_int_equal(truncate(path, (off_t)stats.file_bytes + left * 4096), 0);
    if (hole)
        assert_int_equal(truncate(path, before), 0);
    free(path);
}

/* On a file system of 160 MB, with 192 pages behind the last one. */
static void a_store_that_an_older_version_stopped_goes_on_too(void **state)
{
    enum { SMALL_BYTES = 400, TAIL_PAGES = 192 };
    struct full *full = *state;
    assert_int_equal(mount(NULL, full->mount_point, NULL, MS_REMOUNT, "size=160m"), 0);
    full_open(full, TRP_DURABLE_PROCESS, 0);
    fill(full, SMALL_BYTES);
    full_close(full);
    cut_tail(full, TAIL_PAGES, false);
    fill_the_rest(full);
    full_open(full, TRP_DURABLE_PROCESS, 0);
    assert_int_equal(insert(full, ITEM_BYTES), TRP_RESOURCE_EXHAUSTED);
    change_all_over(full);
    empty_all_over(full);
    full_open(full, TRP_DURABLE_PROCESS, 0);
    while (store_idle(full->store))
        ;
    assert_true(fill(full, SMALL_BYTES) > 0);
}

/* A start's warnings. */
static char *open_and_read_log(struct full *full, uint64_t max_bytes)
{
    enum { LOG_BYTES = 4096 };
    char *text = xcalloc(1, LOG_BYTES);
    int log = memfd_create("log", MFD_CLOEXEC), before = dup(STDERR_FILENO);
    assert_true(log >= 0 && before >= 0 && dup2(log, STDERR_FILENO) >= 0);
    full_open(full, TRP_DURABLE_PROCESS, max_bytes);
    dup2(before, STDERR_FILENO);
    assert_true(pread(log, text, LOG_BYTES - 1, 0) >= 0);
    close(log);
    close(before);
    return text;
}

/* 17 MiB of small items come under a bound of 8. `cut`: all behind the data goes; `hole`: but for
 * the file's length. */
static void lower_max_bytes(struct full *full, bool cut, bool hole)
{
    enum { SMALL_BYTES = 100 };
    const uint64_t max_bytes = 8 << 20;
    full_open(full, TRP_DURABLE_PROCESS, 17 << 20);
    fill(full, SMALL_BYTES);
    full_close(full);
    char *log = open_and_read_log(full, 17 << 20);
    assert_string_equal(log, "");
    free(log);
    full_close(full);
    const off_t before = data_bytes(full);
    if (cut)
        cut_tail(full, 0, hole);
    log = open_and_read_log(full, max_bytes);
    assert_non_null(strstr(log, "larger than max bytes"));
    assert_non_null(strstr(log, "max_bytes=8388608"));
    free(log);
    assert_int_equal(insert(full, ITEM_BYTES), TRP_RESOURCE_EXHAUSTED);
    change_all_over(full);
    assert_true(data_bytes(full) <= before);
    empty_all_over(full);
    full_open(full, TRP_DURABLE_PROCESS, max_bytes);
    assert_true(fill(full, SMALL_BYTES) > 0);
    assert_true(data_bytes(full) <= before);
}

static void a_store_larger_than_max_bytes_says_so_and_lets_items_go(void **state)
{
    lower_max_bytes(*state, false, false);
}

static void also_where_what_is_behind_its_data_is_a_hole(void **state)
{
    lower_max_bytes(*state, true, true);
}

static void also_where_nothing_is_behind_its_data(void **state)
{
    lower_max_bytes(*state, true, false);
}

static void max_bytes_bound_the_file(void **state)
{
    struct full *full = *state;
    const uint64_t max_bytes = 8 << 20;
    full_open(full, TRP_DURABLE_PROCESS, max_bytes);
    assert_in_range(fill(full, ITEM_BYTES), 5 << 20, max_bytes);
    struct store_stats stats;
    store_stats(full->store, &stats);
    assert_in_range(stats.allocated_bytes, 6 << 20, max_bytes);
    for (unsigned index = 0; index < 100; index++)
        erase_oldest(full);
    commit(full);
    assert_in_range(fill(full, ITEM_BYTES), 80 * ITEM_BYTES, 110 * ITEM_BYTES);
    check_reopened(full, TRP_DURABLE_PROCESS, max_bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_full_file_system_refuses_and_recovers, setup, teardown),
        cmocka_unit_test_setup_teardown(small_items_refuse_and_recover, setup, teardown),
        cmocka_unit_test_setup_teardown(a_synced_store_refuses_and_recovers, setup, teardown),
        cmocka_unit_test_setup_teardown(sliding_along_the_edge_goes_on_for_ever, setup, teardown),
        cmocka_unit_test_setup_teardown(holes_all_over_a_full_store_are_filled, setup, teardown),
        cmocka_unit_test_setup_teardown(changes_are_always_possible, setup, teardown),
        cmocka_unit_test_setup_teardown(a_table_without_room_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(space_that_returns_is_used, setup, teardown),
        cmocka_unit_test_setup_teardown(freed_pages_are_used_again, setup, teardown),
        cmocka_unit_test_setup_teardown(a_full_file_system_cannot_hold_a_new_store, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_file_system_that_grows_is_used_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(a_copy_without_room_fails_and_the_store_goes_on, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_full_store_takes_back_what_a_copy_holds, setup, teardown),
        cmocka_unit_test_setup_teardown(a_full_store_needs_only_what_a_copy_has_read, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_store_whose_disk_filled_up_after_its_stop_goes_on, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_store_that_an_older_version_stopped_goes_on_too, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_store_larger_than_max_bytes_says_so_and_lets_items_go,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(also_where_what_is_behind_its_data_is_a_hole, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(also_where_nothing_is_behind_its_data, setup, teardown),
        cmocka_unit_test_setup_teardown(max_bytes_bound_the_file, setup, teardown),
    };
    return cmocka_run_group_tests(tests, private_mounts, NULL);
}
