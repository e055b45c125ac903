/* A copy of a store that is used meanwhile: what it takes along, what it leaves out, and what it
 * costs the file. */
#include "copy_steps.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <time.h>

#include "core/clock.h"
#include "core/thread.h"
#include "replay/disk/disk.h"
#include "replay/store/internal.h"
#include "replay/store/checkpoint_writer.h"

enum { MIB = 1 << 20 };

/* A disk that is busy with something else: libc's is behind this. */
static _Atomic int64_t allocation_ns;

#pragma GCC visibility push(default)
int posix_fallocate(int fd, off_t offset, off_t bytes)
{
    int64_t ns = atomic_load(&allocation_ns);
    struct timespec time = {ns / 1000000000, ns % 1000000000};
    nanosleep(&time, NULL);
    return fallocate(fd, 0, offset, bytes) == 0 ? 0 : errno;
}
#pragma GCC visibility pop

struct fixture {
    char *dir, *to;
    struct store *store;
    struct store_copy *copy; /* that copy_files() is at */
    struct item **items;     /* a ring of the newest ones */
    size_t first, count, slots;
    uint64_t replaced; /* while it was copied */
    uint64_t next_key;
    uint32_t table;
};

static struct store *store_open(const char *dir, struct loaded *loaded)
{
    struct store *store;
    *loaded = (struct loaded){0};
    if (store_create(&store, &(struct store_options){.dir = dir}) != TRP_OK ||
        load_all(store, loaded) != TRP_OK)
        fail_msg("%s", trp_last_error());
    return store;
}

static int setup(void **state)
{
    struct fixture *fixture = xcalloc(1, sizeof *fixture);
    struct loaded loaded;
    fixture->dir = fixture_dir("/dev/shm");
    fixture->to = fixture_dir("/dev/shm");
    fixture->store = store_open(fixture->dir, &loaded);
    fixture->table = store_table_put(fixture->store, "t", "name=t", (trp_bytes){0});
    assert_int_equal(store_commit(fixture->store), TRP_OK);
    fixture->slots = 1 << 14;
    fixture->items = xcalloc(fixture->slots, sizeof(struct item *));
    fixture->next_key = 100000;
    *state = fixture;
    return 0;
}

static void close_store(struct fixture *fixture)
{
    for (; fixture->count > 0; fixture->count--)
        store_item_destroy(fixture->store, fixture->items[fixture->first++ % fixture->slots]);
    store_destroy(fixture->store);
    fixture->store = NULL;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    close_store(fixture);
    fixture_remove(fixture->dir);
    fixture_remove(fixture->to);
    free(fixture->items);
    free(fixture);
    return 0;
}

static void insert_item(struct fixture *fixture, struct item *item)
{
    trp_status status = store_admit(fixture->store, item);
    if (status == TRP_ABORTED) {
        assert_int_equal(store_commit(fixture->store), TRP_OK);
        status = store_admit(fixture->store, item);
    }
    assert_int_equal(status, TRP_OK);
    store_item_insert(fixture->store, fixture->table, item);
    fixture->items[(fixture->first + fixture->count++) % fixture->slots] = item;
}

static void insert(struct fixture *fixture, size_t size)
{
    struct item *item = fixture_item(fixture->store, fixture->next_key, size);
    fixture->next_key += 100000; /* also seeds of bytes */
    insert_item(fixture, item);
}

/* The second and all others have the first one's chunk. */
static void insert_sharing(struct fixture *fixture, size_t size)
{
    struct item *item = fixture_item(fixture->store, fixture->next_key, size);
    if (fixture->count > 0) {
        struct chunk *chunk = fixture->items[fixture->first % fixture->slots]->chunks[0];
        store_chunk_unref(fixture->store, item->chunks[0]);
        item->chunks[0] = chunk;
        chunk_ref(chunk);
    }
    fixture->next_key += 100000;
    insert_item(fixture, item);
}

static void remove_oldest(struct fixture *fixture)
{
    struct item *item = fixture->items[fixture->first++ % fixture->slots];
    fixture->count--;
    store_item_delete(fixture->store, item);
    store_item_destroy(fixture->store, item);
}

/* A copy of everything that is not finished yet. */
static struct store_copy *copy_files(struct fixture *fixture, void (*meanwhile)(struct fixture *),
                                     struct checkpoint_writer **target)
{
    struct store_copy *copy;
    struct copy_sink sink = {.item = checkpoint_writer_item,
                             .piece = checkpoint_writer_piece,
                             .damage = checkpoint_writer_damage,
                             .removed = checkpoint_writer_removed};
    assert_int_equal(store_copy_begin(fixture->store, &copy, &sink), TRP_OK);
    assert_int_equal(checkpoint_writer_create(target, fixture->to, 512 * MIB), TRP_OK);
    store_copy_set_argument(copy, *target);
    fixture->copy = copy;
    while (!store_copy_done(copy)) {
        assert_int_equal(store_copy_find(fixture->store, copy), TRP_OK);
        if (meanwhile)
            meanwhile(fixture);
        assert_int_equal(store_copy_give(copy), TRP_OK);
        if (meanwhile)
            meanwhile(fixture);
    }
    return copy;
}

static struct checkpoint_writer_stats copy_all(struct fixture *fixture,
                                               void (*meanwhile)(struct fixture *))
{
    struct checkpoint_writer *target;
    struct checkpoint_writer_stats stats;
    struct store_copy *copy = copy_files(fixture, meanwhile, &target);
    if (checkpoint_writer_finish(target, copy, &stats) != TRP_OK)
        fail_msg("%s", trp_last_error());
    store_copy_end(fixture->store, copy);
    checkpoint_writer_destroy(target);
    assert_int_equal(store_dir_finish(fixture->to, false), TRP_OK);
    return stats;
}

/* ---- cases ---------------------------------------------------------------------------------- */

static void removed_count(void *arg, const struct removed_record *removed)
{
    uint64_t *next = arg;
    assert_int_equal(removed->key, *next);
    assert_int_equal(removed->table_id, 1);
    assert_int_equal(removed->fingerprint, *next * 3);
    ++*next;
}

static void keys_that_were_removed_are_copied(void **state)
{
    enum { KEYS = 1000 };
    struct fixture *fixture = *state;
    insert(fixture, 10);
    for (uint64_t key = 0; key < KEYS; key++) {
        store_removed_note(
            fixture->store,
            &(struct removed_record){
                .key = key, .at_ns = 1000, .table_id = 1, .fingerprint = (uint32_t)key * 3});
        if (key % 300 == 0)
            assert_int_equal(store_commit(fixture->store), TRP_OK);
    }
    assert_int_equal(store_commit(fixture->store), TRP_OK);
    copy_all(fixture, NULL);
    struct loaded loaded;
    struct store *copy = store_open(fixture->to, &loaded);
    uint64_t next = 0;
    assert_int_equal(store_removed_load(copy, removed_count, &next), TRP_OK);
    assert_int_equal(next, KEYS);
    loaded_cleanup(copy, &loaded);
    store_destroy(copy);
}

/* A bit of this item's chunk. */
static void damage(const struct fixture *fixture, uint64_t key)
{
    uint8_t wanted[32], byte;
    fixture_fill(wanted, sizeof wanted, key);
    char *path = fixture_path(fixture->dir, "data.mdb");
    int fd = open(path, O_RDWR);
    size_t size = (size_t)lseek(fd, 0, SEEK_END);
    uint8_t *bytes = xmalloc(size);
    assert_int_equal(pread(fd, bytes, size, 0), size);
    uint8_t *found = memmem(bytes, size, wanted, sizeof wanted);
    assert_non_null(found);
    byte = found[5] ^ 4;
    assert_int_equal(pwrite(fd, &byte, 1, found - bytes + 5), 1);
    close(fd);
    free(bytes);
    free(path);
}

static void a_copy_goes_on_without_what_is_damaged(void **state)
{
    enum { ITEMS = 300 };
    struct fixture *fixture = *state;
    for (size_t number = 0; number < ITEMS; number++)
        insert(fixture, 100 + 61 * number);
    assert_int_equal(store_commit(fixture->store), TRP_OK);
    damage(fixture, 3 * 100000);   /* in a leaf with others */
    damage(fixture, 250 * 100000); /* in pages of its own */
    struct checkpoint_writer_stats stats = copy_all(fixture, NULL);
    assert_int_equal(stats.items, ITEMS - 2);
    assert_int_equal(stats.damaged, 2);
    struct loaded loaded = {0};
    struct store *copy;
    struct store_options options = {.dir = fixture->to, .read_only = true, .check = true};
    assert_int_equal(store_create(&copy, &options), TRP_OK);
    assert_int_equal(load_all(copy, &loaded), TRP_OK);
    struct store_stats whole;
    store_stats(copy, &whole);
    assert_int_equal(whole.damaged, 0);
    assert_int_equal(loaded.count, ITEMS - 2);
    for (size_t index = 0; index < loaded.count; index++) {
        uint64_t key = loaded.items[index]->key;
        assert_true(key != 3 * 100000 && key != 250 * 100000);
        fixture_check_chunk(copy, loaded.items[index]->chunks[0], key,
                            100 + 61 * (key / 100000 - 1));
    }
    loaded_cleanup(copy, &loaded);
    store_destroy(copy);
}

static trp_status count_damage(void *arg, uint32_t table_id, uint64_t key, const char *what)
{
    (void)table_id, (void)key, (void)what;
    ++*(uint32_t *)arg;
    return TRP_OK;
}

static void deleted_items_are_not_damaged_ones(void **state)
{
    enum { SHARERS = 3 };
    struct fixture *fixture = *state;
    uint32_t damaged = 0;
    struct copy_sink sink = {
        .item = any_item, .piece = any_piece, .damage = count_damage, .arg = &damaged};
    struct store_copy *copy;
    for (unsigned i = 0; i < SHARERS; i++)
        insert_sharing(fixture, 1000);
    assert_int_equal(store_commit(fixture->store), TRP_OK);
    remove_oldest(fixture); /* its record is there until it is compacted */
    assert_int_equal(store_commit(fixture->store), TRP_OK);
    damage(fixture, 100000);
    assert_int_equal(store_copy_begin(fixture->store, &copy, &sink), TRP_OK);
    copy_rest(fixture->store, copy);
    store_copy_end(fixture->store, copy);
    assert_int_equal(damaged, SHARERS - 1);
}

/* A table that is full: each item takes the place of another. */
static void replace(struct fixture *fixture, unsigned items)
{
    for (unsigned count = 0; count < items; count++) {
        insert(fixture, 12000);
        remove_oldest(fixture);
    }
    assert_int_equal(store_commit(fixture->store), TRP_OK);
}

/* As many as the copy has read by now: each that goes is one of them. */
static void replace_what_was_read(struct fixture *fixture)
{
    uint64_t read = store_copy_stats(fixture->copy).chunks;
    while (fixture->replaced < read) {
        unsigned items = read - fixture->replaced < 64 ? (unsigned)(read - fixture->replaced) : 64;
        replace(fixture, items);
        fixture->replaced += items;
        while (store_idle(fixture->store))
            continue;
    }
}

static void replace_many(struct fixture *fixture)
{
    for (unsigned groups = 0; groups < 8; groups++)
        replace(fixture, 64);
}

static void fill(struct fixture *fixture, size_t items, size_t size)
{
    while (fixture->count < items) {
        for (unsigned count = 0; count < 64; count++)
            insert(fixture, size);
        assert_int_equal(store_commit(fixture->store), TRP_OK);
    }
}

/* Copies a table that is full; bytes that were inserted meanwhile. */
static uint64_t copy_full_table(struct fixture *fixture, void (*meanwhile)(struct fixture *),
                                struct store_stats *before, struct store_stats *after)
{
    fill(fixture, 4000, 12000); /* 48 MB */
    for (unsigned count = 0; count < 100; count++)
        replace(fixture, 64);
    store_stats(fixture->store, before);
    uint64_t key = fixture->next_key;
    assert_int_equal(copy_all(fixture, meanwhile).damaged, 0);
    store_stats(fixture->store, after);
    return (fixture->next_key - key) / 100000 * 12288;
}

static void what_a_copy_has_read_is_recycled_while_it_goes_on(void **state)
{
    struct store_stats before, after;
    uint64_t inserted = copy_full_table(*state, replace_what_was_read, &before, &after);
    assert_true(inserted > 40 * MIB); /* else this says nothing */
    /* What went before the copy has read it keeps its room, however slow the copy is; so none of
     * that goes here. Of what was read, the copy holds on to the last batch until it asks for the
     * next, and pages that a group gave back are for the one after it. */
    assert_in_range(after.file_bytes, before.file_bytes,
                    before.file_bytes + COPY_BATCH_BYTES + 4 * MIB);
}

static void a_copy_costs_what_is_inserted_meanwhile_and_that_is_used_again(void **state)
{
    struct fixture *fixture = *state;
    struct store_stats before, after;
    uint64_t inserted = copy_full_table(fixture, replace_many, &before, &after);
    assert_true(inserted > 50 * MIB); /* else this says nothing */
    assert_in_range(after.file_bytes, before.file_bytes,
                    before.file_bytes + inserted + inserted / 16 + 4 * MIB);
    uint64_t file_bytes = after.file_bytes;
    for (uint64_t again = 0; again < inserted; again += 64 * UINT64_C(12288)) {
        replace(fixture, 64);
        store_idle(fixture->store);
    }
    store_stats(fixture->store, &after);
    assert_in_range(after.file_bytes, file_bytes, file_bytes + 4 * MIB);
}

/* Until the store has waited for room. */
static void insert_on_a_slow_disk(struct fixture *fixture)
{
    enum { WAIT_MS = 1000 };
    int64_t longest_ns = 0;
    if (atomic_load(&allocation_ns) == 0)
        return;
    while (longest_ns < WAIT_MS * INT64_C(1000000)) {
        assert_true(fixture->count < fixture->slots); /* the disk is not that fast */
        int64_t begin_ns = clock_now_ns(&clock_monotonic);
        insert(fixture, 12000);
        assert_int_equal(store_commit(fixture->store), TRP_OK);
        int64_t took_ns = clock_now_ns(&clock_monotonic) - begin_ns;
        longest_ns = took_ns > longest_ns ? took_ns : longest_ns;
    }
    atomic_store(&allocation_ns, 0);
}

static void a_slow_disk_is_no_full_one_and_ends_no_copy(void **state)
{
    struct fixture *fixture = *state;
    while (fixture->count < 1000)
        insert(fixture, 1000);
    assert_int_equal(store_commit(fixture->store), TRP_OK);
    atomic_store(&allocation_ns, INT64_C(1500000000));
    assert_int_equal(copy_all(fixture, insert_on_a_slow_disk).items, 1000);
    assert_int_equal(atomic_load(&allocation_ns), 0);
}

struct rival {
    struct thread thread;
    struct turns *turns;
    struct mutex *mutex;
    bool over; /* turns let one thread run at a time */
};

static void take_the_same(void *arg)
{
    struct rival *rival = arg;
    turns_join(rival->turns, 1);
    while (!rival->over) {
        mutex_lock(rival->mutex);
        mutex_unlock(rival->mutex);
        turns_pass();
    }
    turns_leave();
}

/* As a server's lock: who has it and waits for the disk keeps the turn, or nobody goes on. */
static void a_slow_disk_holds_up_no_run_in_turns(void **state)
{
    struct fixture *fixture = *state;
    struct mutex mutex;
    struct rival rival = {.turns = turns_create(2), .mutex = &mutex};
    mutex_init(&mutex);
    assert_int_equal(thread_start(&rival.thread, "rival", take_the_same, &rival), TRP_OK);
    turns_join(rival.turns, 0);
    mutex_lock(&mutex);
    for (int waits = 0; waits < 4; waits++) { /* for the helper, or with the disk by itself */
        atomic_store(&allocation_ns, INT64_C(1500000000));
        insert_on_a_slow_disk(fixture);
    }
    mutex_unlock(&mutex);
    rival.over = true;
    turns_leave();
    thread_stop(&rival.thread);
    mutex_cleanup(&mutex);
    turns_destroy(rival.turns);
}

/* Its pages may have been recycled while they were read for the last time. */
static void a_copy_that_lost_its_pages_at_the_end_is_not_believed(void **state)
{
    struct fixture *fixture = *state;
    struct checkpoint_writer *target;
    insert(fixture, 12000);
    assert_int_equal(store_commit(fixture->store), TRP_OK);
    struct store_copy *copy = copy_files(fixture, NULL, &target);
    assert_int_equal(store_copy_find(fixture->store, copy), TRP_OK);
    assert_true(copy_abandon(fixture->store));
    assert_int_equal(store_copy_find(fixture->store, copy), TRP_RESOURCE_EXHAUSTED);
    store_copy_end(fixture->store, copy);
    checkpoint_writer_destroy(target);
}

static void remove_all(struct fixture *fixture)
{
    while (fixture->count > 0)
        remove_oldest(fixture);
    assert_int_equal(store_commit(fixture->store), TRP_OK);
}

/* Processor time of a commit of one item. */
static int64_t commit_ns(struct fixture *fixture)
{
    struct timespec begin, end;
    insert(fixture, 10);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    assert_int_equal(store_commit(fixture->store), TRP_OK);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    return (end.tv_sec - begin.tv_sec) * INT64_C(1000000000) + end.tv_nsec - begin.tv_nsec;
}

/* Where its pages are on the disk, each piece takes a read: the first commit took half a minute. */
static void what_a_copy_held_goes_little_by_little(void **state)
{
    struct fixture *fixture = *state;
    struct store_stats held, after;
    int64_t longest_ns = 0;
    fill(fixture, 3000, 40000); /* 30 000 pieces */
    copy_all(fixture, remove_all);
    store_stats(fixture->store, &held);
    for (unsigned commits = 0; commits < 2000; commits++) {
        int64_t took_ns = commit_ns(fixture);
        longest_ns = took_ns > longest_ns ? took_ns : longest_ns;
    }
    assert_in_range(longest_ns, 0, 5000000);
    for (unsigned steps = 0; steps < 10000 && store_idle(fixture->store); steps++)
        ;
    store_stats(fixture->store, &after); /* it has gone in the end */
    assert_true(held.unswept > 0);
    assert_int_equal(after.unswept, 0);
}

static void remove_all_but_one(struct fixture *fixture)
{
    while (fixture->count > 1)
        remove_oldest(fixture);
    assert_int_equal(store_commit(fixture->store), TRP_OK);
}

/* Its item is there until then, and is read again after a crash. */
static void a_chunk_waits_for_the_commit_of_what_let_it_go(void **state)
{
    struct fixture *fixture = *state;
    struct store_stats stats;
    struct cursor pieces;
    fill(fixture, 64, 12000);
    copy_all(fixture, remove_all_but_one); /* it holds them */
    remove_oldest(fixture);
    while (store_idle(fixture->store))
        continue;
    store_stats(fixture->store, &stats);
    assert_int_equal(stats.unswept, 1);
    assert_int_equal(store_commit(fixture->store), TRP_OK);
    while (store_idle(fixture->store))
        continue;
    assert_int_equal(cursor_open(fixture->store, TREE_PIECES, &pieces), TRP_OK);
    assert_int_equal(cursor_move(&pieces, MDB_FIRST), TRP_OK);
    assert_false(pieces.there);
}

static size_t resident_bytes(const struct fixture *fixture)
{
    char *path = fixture_path(fixture->to, "data.mdb");
    int fd = open(path, O_RDONLY);
    size_t size = (size_t)lseek(fd, 0, SEEK_END), pages = (size + 4095) / 4096, count = 0;
    void *map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(map != MAP_FAILED);
    uint8_t *resident = xmalloc(pages);
    assert_int_equal(mincore(map, size, resident), 0);
    for (size_t i = 0; i < pages; i++)
        count += resident[i] & 1;
    munmap(map, size);
    close(fd);
    free(resident);
    free(path);
    return count * 4096;
}

static size_t most_resident;

static void watch_memory(struct fixture *fixture)
{
    size_t resident = resident_bytes(fixture);
    most_resident = resident > most_resident ? resident : most_resident;
}

/* Else a store of half the memory pushes itself out of it, and every caller waits for the disk. */
static void a_copy_does_not_stay_in_memory(void **state)
{
    struct fixture *fixture = *state;
    struct statfs system;
    fixture_remove(fixture->to);
    fixture->to = fixture_dir("/tmp");
    assert_int_equal(statfs(fixture->to, &system), 0);
    if (system.f_type == TMPFS_MAGIC)
        skip();                 /* which is memory */
    fill(fixture, 8000, 12000); /* 96 MB */
    most_resident = 0;
    assert_true(copy_all(fixture, watch_memory).bytes > 90 * MIB);
    assert_in_range(most_resident, 1 * MIB, 64 * MIB);
    assert_in_range(resident_bytes(fixture), 0, 8 * MIB);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(keys_that_were_removed_are_copied),
        CASE(a_copy_goes_on_without_what_is_damaged),
        CASE(deleted_items_are_not_damaged_ones),
        CASE(a_slow_disk_is_no_full_one_and_ends_no_copy),
        CASE(a_slow_disk_holds_up_no_run_in_turns),
        CASE(a_copy_that_lost_its_pages_at_the_end_is_not_believed),
        CASE(what_a_copy_held_goes_little_by_little),
        CASE(a_chunk_waits_for_the_commit_of_what_let_it_go),
        CASE(a_copy_does_not_stay_in_memory),
        CASE(what_a_copy_has_read_is_recycled_while_it_goes_on),
        CASE(a_copy_costs_what_is_inserted_meanwhile_and_that_is_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
