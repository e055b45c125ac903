/* What a store asks of the file system, in which order, and what of that is left when it is killed
 * anywhere in between.
 *
 * This file defines the calls that change files, so that the store's and LMDB's come here first:
 * they are counted, told apart, and answered as no file system at hand would. */
#include "tests/replay/store_fixture.h"

#include <errno.h>
#include <linux/falloc.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include <troupe/replay.h>
#include "replay/disk/disk.h"

enum { ITEMS = 20, OTHER_ITEMS = 5, ITEM_BYTES = 5000, SHARED_FROM = 8192, SHARED_BYTES = 12288 };

static struct disk {
    _Atomic int
        steps_left; /* then the process is killed; 0: never. The store's helper steps, too */
    bool shares;    /* two extents, of which the second is shared */
    bool full;      /* as XFS is then: also blocks that a file has are refused */
    int unshare_error;
    int clones, unshares; /* calls */
    uint64_t unshared_at, unshared_bytes;
    char synced[256]; /* names of files, each with a blank */
} disk;

static void step(void)
{
    if (disk.steps_left > 0 && atomic_fetch_sub(&disk.steps_left, 1) == 1)
        kill(getpid(), SIGKILL);
}

static void synced(int fd)
{
    char link[64], path[256];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t got = readlink(link, path, sizeof path - 1);
    path[got > 0 ? got : 0] = '\0';
    const char *name = strrchr(path, '/');
    size_t used = strlen(disk.synced);
    snprintf(disk.synced + used, sizeof disk.synced - used, "%s ", name ? name + 1 : "?");
}

/* A full disk's: the file has its blocks in one piece, and a hole behind them. */
static int fiemap_full(int fd, struct fiemap *map)
{
    struct stat info;
    map->fm_mapped_extents = 1;
    if (fstat(fd, &info) != 0)
        return -1;
    map->fm_extents[0] =
        (struct fiemap_extent){.fe_length = (uint64_t)info.st_blocks * 512,
                               .fe_flags = FIEMAP_EXTENT_UNWRITTEN | FIEMAP_EXTENT_LAST};
    return 0;
}

static int fiemap_fake(struct fiemap *map)
{
    map->fm_mapped_extents = 2;
    map->fm_extents[0] = (struct fiemap_extent){.fe_length = SHARED_FROM};
    map->fm_extents[1] =
        (struct fiemap_extent){.fe_logical = SHARED_FROM,
                               .fe_length = SHARED_BYTES,
                               .fe_flags = FIEMAP_EXTENT_SHARED | FIEMAP_EXTENT_LAST};
    return 0;
}

#pragma GCC visibility push(default) /* LMDB is to find them */

int ioctl(int fd, unsigned long request, ...)
{
    va_list args;
    va_start(args, request);
    void *arg = va_arg(args, void *);
    va_end(args);
    disk.clones += request == FICLONE || request == FICLONERANGE;
    if (request == FS_IOC_FIEMAP && disk.shares)
        return fiemap_fake(arg);
    if (request == FS_IOC_FIEMAP && disk.full)
        return fiemap_full(fd, arg);
    return (int)syscall(SYS_ioctl, fd, request, arg);
}

ssize_t copy_file_range(int from, off_t *from_at, int to, off_t *to_at, size_t size, unsigned flags)
{
    disk.clones++;
    return syscall(SYS_copy_file_range, from, from_at, to, to_at, size, flags);
}

int fallocate(int fd, int mode, off_t offset, off_t size)
{
    if (!(mode & FALLOC_FL_UNSHARE_RANGE))
        return (int)syscall(SYS_fallocate, fd, mode, offset, size);
    disk.unshares++;
    disk.unshared_at = (uint64_t)offset;
    disk.unshared_bytes = (uint64_t)size;
    errno = disk.unshare_error;
    return disk.unshare_error ? -1 : 0;
}

int posix_fallocate(int fd, off_t offset, off_t size)
{
    step();
    if (disk.full)
        return ENOSPC;
    return syscall(SYS_fallocate, fd, 0, offset, size) == 0 ? 0 : errno;
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t offset)
{
    step();
    return syscall(SYS_pwrite64, fd, bytes, size, offset);
}

int fdatasync(int fd)
{
    step();
    synced(fd);
    return (int)syscall(SYS_fdatasync, fd);
}

int fsync(int fd)
{
    step();
    synced(fd);
    return (int)syscall(SYS_fsync, fd);
}

int ftruncate(int fd, off_t size)
{
    step();
    return (int)syscall(SYS_ftruncate, fd, size);
}

int truncate(const char *path, off_t size)
{
    step();
    return (int)syscall(SYS_truncate, path, size);
}

int mkdir(const char *path, mode_t mode)
{
    step();
    return (int)syscall(SYS_mkdir, path, mode);
}

int rename(const char *from, const char *to)
{
    step();
    return (int)syscall(SYS_rename, from, to);
}

int unlink(const char *path)
{
    step();
    return (int)syscall(SYS_unlink, path);
}

#pragma GCC visibility pop

/* ---- stores --------------------------------------------------------------------------------- */

struct fixture {
    char *dir;        /* has all of a case's */
    char *checkpoint; /* of ITEMS items */
    char *store;      /* not there yet */
};

/* Inserts and commits; the store stays open. */
static struct store *fill(const char *dir, uint64_t count, trp_durability durability)
{
    struct store *store;
    struct loaded loaded = {0};
    struct store_options options = {.dir = dir, .durability = durability};
    if (store_create(&store, &options) != TRP_OK || load_all(store, &loaded) != TRP_OK)
        return NULL;
    loaded_cleanup(store, &loaded);
    uint32_t table = store_table_put(store, "t", "name=t", (trp_bytes){0});
    struct item *items[ITEMS];
    for (uint64_t index = 0; index < count; index++) {
        items[index] = fixture_item(store, (index + 1) * 10000, ITEM_BYTES);
        if (store_admit(store, items[index]) != TRP_OK)
            return NULL;
        store_item_insert(store, table, items[index]);
        if (store_commit(store) != TRP_OK)
            return NULL;
    }
    for (uint64_t index = 0; index < count; index++)
        store_item_destroy(store, items[index]);
    return store;
}

/* What a killed server leaves. */
static void fill_and_die(const char *dir, uint64_t count)
{
    pid_t child = fork(); /* no store is open here */
    assert_true(child >= 0);
    if (child == 0)
        _exit(fill(dir, count, TRP_DURABLE_PROCESS) ? 0 : 1);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* Opens as a server would: how many items there are. */
static size_t items_of(const char *dir)
{
    struct store *store;
    struct loaded loaded = {0};
    if (store_create(&store, &(struct store_options){.dir = dir}) != TRP_OK ||
        load_all(store, &loaded) != TRP_OK)
        fail_msg("%s", trp_last_error());
    size_t count = loaded.count;
    for (size_t index = 0; index < count; index++)
        fixture_check_chunk(store, loaded.items[index]->chunks[0], loaded.items[index]->key,
                            ITEM_BYTES);
    loaded_cleanup(store, &loaded);
    store_destroy(store);
    return count;
}

/* What a stopped store keeps behind its last page no checkpoint has. */
static void tail_cut(const char *data)
{
    enum { PAGE_BYTES = 4096, LAST_PAGE_AT = 136 }; /* in both of LMDB's meta pages */
    uint64_t last[2];
    int fd = open(data, O_RDWR);
    for (unsigned meta = 0; meta < 2; meta++)
        assert_int_equal(pread(fd, &last[meta], 8, meta * PAGE_BYTES + LAST_PAGE_AT), 8);
    uint64_t pages = (last[0] > last[1] ? last[0] : last[1]) + 1;
    assert_int_equal(ftruncate(fd, (off_t)(pages * PAGE_BYTES)), 0);
    close(fd);
}

static int setup(void **state)
{
    struct fixture *fixture = xcalloc(1, sizeof *fixture);
    fixture->dir = fixture_dir("/dev/shm"); /* syncs hundreds of times */
    fixture->checkpoint = fixture_path(fixture->dir, "checkpoint");
    fixture->store = fixture_path(fixture->dir, "store");
    disk = (struct disk){0};
    store_destroy(fill(fixture->checkpoint, ITEMS, TRP_DURABLE_PROCESS));
    char *data = fixture_path(fixture->checkpoint, "data.mdb");
    tail_cut(data);
    struct stat info;
    assert_int_equal(stat(data, &info), 0);
    struct checkpoint_info what = {
        .created_at_ns = 1, .store = "0123", .bytes = (uint64_t)info.st_size, .items = ITEMS};
    assert_int_equal(checkpoint_info_write(&what, fixture->checkpoint), TRP_OK);
    free(data);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    disk = (struct disk){0};
    free(fixture->checkpoint);
    free(fixture->store);
    fixture_remove(fixture->dir);
    free(fixture);
    return 0;
}

static bool has(const char *dir, const char *name)
{
    char *path = fixture_path(dir, name);
    bool there = access(path, F_OK) == 0;
    free(path);
    return there;
}

/* ---- shared blocks -------------------------------------------------------------------------- */

static void a_restore_copies_every_byte(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(trp_replay_restore(fixture->checkpoint, fixture->store, false), TRP_OK);
    assert_int_equal(disk.clones, 0);
    assert_int_equal(items_of(fixture->store), ITEMS);
}

static void a_store_takes_blocks_of_its_own_before_it_writes(void **state)
{
    struct fixture *fixture = *state;
    store_destroy(fill(fixture->store, OTHER_ITEMS, TRP_DURABLE_PROCESS));
    assert_int_equal(items_of(fixture->store), OTHER_ITEMS);
    assert_int_equal(disk.unshares, 0);
    disk.shares = true;
    assert_int_equal(items_of(fixture->store), OTHER_ITEMS);
    assert_int_equal(disk.unshares, 1);
    assert_int_equal(disk.unshared_at, SHARED_FROM);
    assert_int_equal(disk.unshared_bytes, SHARED_BYTES);
    struct store *store;
    disk.unshare_error = ENOSPC;
    assert_int_equal(store_create(&store, &(struct store_options){.dir = fixture->store}),
                     TRP_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(trp_last_error(), "blocks of its own"));
    disk.unshare_error = EOPNOTSUPP; /* a warning is all that can be done */
    assert_int_equal(items_of(fixture->store), OTHER_ITEMS);
    disk.unshares = 0;
    struct store_options options = {.dir = fixture->store, .read_only = true};
    assert_int_equal(store_create(&store, &options), TRP_OK);
    store_destroy(store);
    assert_int_equal(disk.unshares, 0);
}

static void a_store_opens_on_a_full_disk(void **state)
{
    struct fixture *fixture = *state;
    struct store *store = fill(fixture->store, 0, TRP_DURABLE_PROCESS);
    assert_int_equal(store_share(store), TRP_OK);
    store_destroy(store);
    store_destroy(fill(fixture->store, OTHER_ITEMS, TRP_DURABLE_PROCESS));
    disk.full = true;
    assert_int_equal(items_of(fixture->store), OTHER_ITEMS);
}

/* Whatever gives room back, one commit each. */
static void check_changes(const char *dir, size_t count)
{
    struct store *store;
    struct loaded loaded = {0};
    if (store_create(&store, &(struct store_options){.dir = dir}) != TRP_OK ||
        load_all(store, &loaded) != TRP_OK)
        fail_msg("%s", trp_last_error());
    assert_int_equal(loaded.count, count);
    loaded.items[0]->priority = 7;
    store_item_priority(store, loaded.items[0]);
    assert_int_equal(store_commit(store), TRP_OK);
    loaded.items[0]->times_sampled++;
    store_item_sampled(store, loaded.items[0]);
    assert_int_equal(store_commit(store), TRP_OK);
    store_item_delete(store, loaded.items[count - 1]);
    assert_int_equal(store_commit(store), TRP_OK);
    assert_int_equal(store_admit_table(store, (trp_bytes){0}, true), TRP_OK);
    uint32_t table = store_table_put(store, "t", "name=t max_size=1", (trp_bytes){0});
    assert_int_equal(store_commit(store), TRP_OK);
    assert_int_equal(store_admit_table(store, (trp_bytes){0}, true), TRP_OK);
    uint32_t renewed = store_table_renew(store, table);
    assert_int_equal(store_commit(store), TRP_OK);
    assert_int_equal(store_admit_table(store, (trp_bytes){0}, true), TRP_OK);
    store_table_drop(store, renewed);
    assert_int_equal(store_commit(store), TRP_OK);
    loaded_cleanup(store, &loaded);
    store_destroy(store);
}

static void a_stopped_store_can_be_changed_on_a_disk_that_filled_up(void **state)
{
    struct fixture *fixture = *state;
    store_destroy(fill(fixture->store, OTHER_ITEMS, TRP_DURABLE_PROCESS));
    disk.full = true;
    check_changes(fixture->store, OTHER_ITEMS);
    assert_int_equal(items_of(fixture->store), 0);
}

static void a_killed_store_can_be_changed_on_a_disk_that_filled_up(void **state)
{
    struct fixture *fixture = *state;
    fill_and_die(fixture->store, OTHER_ITEMS);
    disk.full = true;
    check_changes(fixture->store, OTHER_ITEMS);
}

static void a_restored_store_can_be_changed_on_a_disk_that_filled_up(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(trp_replay_restore(fixture->checkpoint, fixture->store, false), TRP_OK);
    disk.full = true;
    check_changes(fixture->store, ITEMS);
}

static void a_hole_at_the_end_is_no_room_on_a_full_disk(void **state)
{
    enum { HOLE_BYTES = 64 << 20, LARGE_BYTES = 4 << 20 };
    struct fixture *fixture = *state;
    store_destroy(fill(fixture->store, OTHER_ITEMS, TRP_DURABLE_PROCESS));
    char *data = fixture_path(fixture->store, "data.mdb");
    assert_int_equal(truncate(data, HOLE_BYTES), 0);
    free(data);
    disk.full = true;
    struct store *store = fill(fixture->store, 0, TRP_DURABLE_PROCESS);
    assert_non_null(store);
    assert_int_equal(store_commit(store), TRP_OK);
    struct item *item = fixture_item(store, 1, LARGE_BYTES);
    assert_int_equal(store_admit(store, item), TRP_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(trp_last_error(), "no room for an item"));
    store_item_destroy(store, item);
    store_destroy(store);
}

/* ---- how long it is ------------------------------------------------------------------------- */

static struct stat data_stat(const char *dir)
{
    struct stat info;
    char *data = fixture_path(dir, "data.mdb");
    assert_int_equal(stat(data, &info), 0);
    free(data);
    return info;
}

static void data_is_as_long_as_the_blocks_that_it_has(void **state)
{
    struct fixture *fixture = *state;
    struct store *store = fill(fixture->store, OTHER_ITEMS, TRP_DURABLE_PROCESS);
    assert_true(data_stat(fixture->store).st_size <= data_stat(fixture->store).st_blocks * 512);
    store_destroy(store);
    fixture_erase(fixture->store);
    fill_and_die(fixture->store, OTHER_ITEMS);
    off_t before = data_stat(fixture->store).st_size;
    assert_true(before <= data_stat(fixture->store).st_blocks * 512);
    store_destroy(fill(fixture->store, 0, TRP_DURABLE_PROCESS));
    fill_and_die(fixture->store, 0);
    char *data = fixture_path(fixture->store, "data.mdb");
    assert_int_equal(truncate(data, 1LL << 40), 0); /* as long as its map */
    free(data);
    store = fill(fixture->store, 0, TRP_DURABLE_PROCESS);
    assert_true(data_stat(fixture->store).st_size < before + (1 << 29));
    store_destroy(store);
    assert_true(data_stat(fixture->store).st_size <= before);
    assert_int_equal(items_of(fixture->store), OTHER_ITEMS);
}

/* Inserts until that is refused, under a limit that the map cannot be larger than. */
static void fill_a_small_map(const char *dir)
{
    enum { BYTES = 8 << 20, ITEMS_MAX = BYTES / ITEM_BYTES };
    struct store *store;
    struct item *items[ITEMS_MAX];
    size_t count = 0;
    trp_status status = TRP_OK;
    if (setrlimit(RLIMIT_FSIZE, &(struct rlimit){BYTES, BYTES}) != 0 ||
        store_create(&store, &(struct store_options){.dir = dir}) != TRP_OK ||
        load_all(store, &(struct loaded){0}) != TRP_OK)
        _exit(1);
    uint32_t table = store_table_put(store, "t", "name=t", (trp_bytes){0});
    while (status == TRP_OK && count < ITEMS_MAX) {
        items[count] = fixture_item(store, count + 1, ITEM_BYTES);
        status = store_admit(store, items[count]);
        if (status == TRP_OK)
            store_item_insert(store, table, items[count++]);
        if (store_commit(store) != TRP_OK)
            _exit(2);
    }
    if (status != TRP_RESOURCE_EXHAUSTED || count < ITEMS_MAX / 4)
        _exit(3);
    while (count > 0)
        store_item_delete(store, items[--count]);
    if (store_commit(store) != TRP_OK)
        _exit(4);
    _exit(0);
}

/* Opens a store with next to no addresses left. */
static void open_without_addresses(const char *dir)
{
    enum { LEFT_BYTES = 4 << 20, PAGES_MAX = 1 << 24 };
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file || fscanf(file, "%lu", &pages) != 1)
        _exit(1);
    fclose(file);
    if (pages > PAGES_MAX)
        _exit(0); /* a sanitizer's, which would not get its own */
    rlim_t most = pages * (rlim_t)sysconf(_SC_PAGESIZE) + LEFT_BYTES;
    struct store *store;
    if (setrlimit(RLIMIT_AS, &(struct rlimit){most, most}) != 0 ||
        store_create(&store, &(struct store_options){.dir = dir}) != TRP_RESOURCE_EXHAUSTED)
        _exit(2);
    _exit(strstr(trp_last_error(), "ulimit -v") ? 0 : 3);
}

static void expect_of_a_child(void (*work)(const char *dir), const char *dir)
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        work(dir);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void a_map_that_is_full_refuses_and_goes_on(void **state)
{
    struct fixture *fixture = *state;
    expect_of_a_child(fill_a_small_map, fixture->store);
}

static void a_map_that_does_not_fit_says_what_to_do(void **state)
{
    struct fixture *fixture = *state;
    expect_of_a_child(open_without_addresses, fixture->store);
    assert_int_equal(items_of(fixture->store), 0);
}

/* ---- what is synced ------------------------------------------------------------------------- */

static void pages_are_on_the_disk_before_the_store_says_that_they_are(void **state)
{
    struct fixture *fixture = *state;
    fill_and_die(fixture->store, OTHER_ITEMS);
    disk.synced[0] = '\0';
    struct store *store;
    struct store_options options = {.dir = fixture->store, .durability = TRP_DURABLE_SYSTEM};
    assert_int_equal(store_create(&store, &options), TRP_OK);
    const char *data = strstr(disk.synced, "data.mdb "), *mark = strstr(disk.synced, "STATE ");
    assert_non_null(mark);
    assert_non_null(data);
    assert_true(data < mark);
    store_destroy(store);
}

static void the_name_of_a_new_store_is_durable(void **state)
{
    struct fixture *fixture = *state;
    disk.synced[0] = '\0';
    store_destroy(fill(fixture->store, 1, TRP_DURABLE_SYSTEM));
    const char *parent = strrchr(fixture->dir, '/') + 1;
    assert_int_equal(strncmp(disk.synced, parent, strlen(parent)), 0);
}

/* ---- killed and interrupted ----------------------------------------------------------------- */

static void restore_anew(const struct fixture *fixture)
{
    if (trp_replay_restore(fixture->checkpoint, fixture->store, false) != TRP_OK)
        _exit(1);
}

static void restore_over(const struct fixture *fixture)
{
    if (trp_replay_restore(fixture->checkpoint, fixture->store, true) != TRP_OK)
        _exit(1);
}

static void make_and_stop(const struct fixture *fixture)
{
    store_destroy(fill(fixture->store, OTHER_ITEMS, TRP_DURABLE_PROCESS));
}

/* Kills a child that does `work` at its `number`th step; false: it came to its end. */
static bool killed_at(const struct fixture *fixture, int number,
                      void (*work)(const struct fixture *fixture))
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        disk.steps_left = number;
        work(fixture);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status))
        assert_int_equal(WEXITSTATUS(status), 0);
    return WIFSIGNALED(status);
}

/* Wherever the work is killed, both a server and a restore take what is left. `before`: items of
 * the store that was there; 0: there was none. */
static void check_all_kills(struct fixture *fixture, void (*work)(const struct fixture *fixture),
                            uint64_t before)
{
    bool killed = true;
    for (int number = 1; killed; number++) {
        for (int restores = 0; restores < 2; restores++) {
            if (before > 0)
                store_destroy(fill(fixture->store, before, TRP_DURABLE_PROCESS));
            killed = killed_at(fixture, number, work);
            assert_true(killed || number > 5);
            if (restores && trp_replay_restore(fixture->checkpoint, fixture->store, true) != TRP_OK)
                fail_msg("step %d: %s", number, trp_last_error());
            size_t count = items_of(fixture->store);
            if (restores)
                assert_int_equal(count, ITEMS);
            else if (work != make_and_stop)
                assert_true(count == ITEMS || (killed && count == before));
            assert_false(has(fixture->store, "data.mdb.restore"));
            fixture_erase(fixture->store);
        }
    }
}

static void a_restore_may_be_killed_anywhere(void **state)
{
    check_all_kills(*state, restore_anew, 0);
}

static void a_restore_over_a_store_may_be_killed_anywhere(void **state)
{
    check_all_kills(*state, restore_over, OTHER_ITEMS);
}

static void a_new_store_may_be_killed_anywhere(void **state)
{
    check_all_kills(*state, make_and_stop, 0);
}

static bool stop_at_once(void *arg, uint64_t done, uint64_t total)
{
    (void)total;
    return done < *(uint64_t *)arg;
}

static void a_restore_that_is_ended_leaves_nothing(void **state)
{
    struct fixture *fixture = *state;
    for (uint64_t end = 1; end < 1 << 23; end = end * 16) {
        trp_replay_watch(stop_at_once, &end);
        trp_status status = trp_replay_restore(fixture->checkpoint, fixture->store, false);
        trp_replay_watch(NULL, NULL);
        assert_true(status == (end < 1 << 20 ? TRP_CANCELLED : TRP_OK) || end == 1 << 20);
        assert_int_equal(access(fixture->store, F_OK) == 0, status == TRP_OK);
        fixture_erase(fixture->store);
    }
    store_destroy(fill(fixture->store, OTHER_ITEMS, TRP_DURABLE_PROCESS));
    uint64_t end = 1;
    trp_replay_watch(stop_at_once, &end);
    assert_int_equal(trp_replay_restore(fixture->checkpoint, fixture->store, true), TRP_CANCELLED);
    trp_replay_watch(NULL, NULL);
    assert_false(has(fixture->store, "data.mdb.restore"));
    assert_int_equal(items_of(fixture->store), OTHER_ITEMS);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_restore_copies_every_byte),
        CASE(a_store_takes_blocks_of_its_own_before_it_writes),
        CASE(a_store_opens_on_a_full_disk),
        CASE(a_stopped_store_can_be_changed_on_a_disk_that_filled_up),
        CASE(a_killed_store_can_be_changed_on_a_disk_that_filled_up),
        CASE(a_restored_store_can_be_changed_on_a_disk_that_filled_up),
        CASE(a_hole_at_the_end_is_no_room_on_a_full_disk),
        CASE(data_is_as_long_as_the_blocks_that_it_has),
        CASE(a_map_that_is_full_refuses_and_goes_on),
        CASE(a_map_that_does_not_fit_says_what_to_do),
        CASE(pages_are_on_the_disk_before_the_store_says_that_they_are),
        CASE(the_name_of_a_new_store_is_durable),
        CASE(a_restore_may_be_killed_anywhere),
        CASE(a_restore_over_a_store_may_be_killed_anywhere),
        CASE(a_new_store_may_be_killed_anywhere),
        CASE(a_restore_that_is_ended_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
