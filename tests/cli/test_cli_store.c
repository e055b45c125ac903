/* `troupe replay` about the store as a whole: checkpoints, restore, verify, one with many items. */
#include "cli_tools.h"

#include <ftw.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "replay/engine/limits.h"

/* Makes a checkpoint; its path. Caller frees. */
static char *checkpoint(struct desk *desk, const char *target)
{
    assert_troupe(desk, 0, "replay checkpoint %s", target);
    char *path = scene_read(&desk->at, "out");
    path[strcspn(path, "\n")] = '\0';
    assert_true(path[0] == '/');
    return path;
}

static void checkpoint_and_verify(struct desk *desk, const char *target)
{
    char *path = checkpoint(desk, target);
    assert_troupe(desk, 0, "replay checkpoints %s -o json", target);
    cJSON *json = desk_json(desk);
    const cJSON *first = cJSON_GetArrayItem(cJSON_GetObjectItem(json, "checkpoints"), 0);
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(first, "path")), path);
    const cJSON *table = cJSON_GetArrayItem(cJSON_GetObjectItem(first, "tables"), 0);
    assert_true(json_at(table, "size") == 5);
    assert_true(json_at(cJSON_GetObjectItem(table, "limiter"), "inserts") == 5);
    assert_null(cJSON_GetObjectItem(table, "bytes")); /* which it does not say */
    cJSON_Delete(json);
    assert_troupe(desk, 0, "replay checkpoints %s", target);
    assert_file_contains(&desk->at, "out", path);
    assert_troupe(desk, 0, "replay verify %s", target);
    assert_file_contains(&desk->at, "out", "5 items, 10 chunks");
    assert_file_contains(&desk->at, "out", "all whole");
    assert_troupe(desk, 0, "replay verify %s -o json", path);
    json = desk_json(desk);
    assert_true(json_at(json, "items") == 5 && json_at(json, "damaged") == 0);
    cJSON_Delete(json);
    free(path);
}

static void checkpoints_are_made_live_and_stopped(void **state)
{
    live_and_stopped(*state, checkpoint_and_verify);
}

static void no_checkpoint_is_nothing_found(void **state)
{
    struct desk *desk = *state;
    desk_serve(desk, tables);
    assert_troupe(desk, 3, "replay checkpoints %s", desk->address);
    assert_one_error(desk, "has no checkpoints");
    desk_stop(desk);
    assert_troupe(desk, 3, "replay restore store other");
    assert_one_error(desk, "no checkpoint");
    assert_troupe(desk, 3, "replay serve --dir=other --restore=latest");
    assert_one_error(desk, "other/checkpoints");
    assert_troupe(desk, 1, "replay serve --dir=no/where");
    assert_one_error(desk, "no/where: there is no directory no: make it first\n");
    assert_troupe(desk, 1, "replay ls .");
    assert_one_error(desk, ". is no replay store\n");
}

/* A store does not keep how often its items were sampled, where no table has a limit on that. */
static void items_whose_samples_are_not_known_are_not_among_those_of_few(void **state)
{
    struct desk *desk = *state;
    desk_serve(desk, tables);
    desk_write_items(desk, "items.jsonl");
    assert_troupe(desk, 0, "replay load %s items.jsonl", desk->address);
    assert_troupe(desk, 0, "replay items %s t --sort=oldest --max-sampled=0 -o json",
                  desk->address);
    assert_keys(desk, "1 2 3 4 5 ");
    desk_stop(desk);
    assert_troupe(desk, 3, "replay delete store t --max-sampled=100 --yes");
    assert_one_error(desk, "no item of table t matches");
    assert_troupe(desk, 0, "replay items store t --sort=oldest --min-sampled=0 -o json");
    assert_keys(desk, "1 2 3 4 5 ");
}

/* As that of another user's run. A link to itself cannot be looked at by root either. */
static void a_store_that_cannot_be_looked_at_is_not_taken_for_none(void **state)
{
    struct desk *desk = *state;
    char *run = scene_path(&desk->at, "run"), *store = scene_path(&desk->at, "run/replay");
    assert_int_equal(mkdir(run, 0700), 0);
    assert_int_equal(symlink("replay", store), 0);
    assert_troupe(desk, 2, "replay ls run");
    assert_one_error(desk, "run/replay: cannot open: ");
    free(store);
    free(run);
}

static void a_checkpoint_is_restored(void **state)
{
    struct desk *desk = *state;
    desk_serve(desk, tables);
    desk_write_items(desk, "items.jsonl");
    assert_troupe(desk, 0, "replay load %s items.jsonl", desk->address);
    char *path = checkpoint(desk, desk->address);
    assert_troupe(desk, 0, "replay reset %s t --yes", desk->address);
    desk_stop(desk);
    assert_troupe(desk, 1, "replay restore %s store", path);
    assert_one_error(desk, "--force");
    assert_troupe(desk, 1, "replay restore %s other --table 'name=t max_size=3'", path);
    assert_one_error(desk, "max_size=3 would remove 2 of them; with --shrink");
    assert_troupe(desk, 3, "replay restore %s other --table name=z", path);
    assert_one_error(desk, "no table z; it has: t u");
    assert_troupe(desk, 2, "replay restore %s other --table 'name=t max_size=no'", path);
    char *other = scene_path(&desk->at, "other");
    assert_int_not_equal(access(other, F_OK), 0);
    free(other);
    assert_troupe(desk, 1, "replay restore %s no/where", path);
    assert_troupe(desk, 0, "replay restore %s other --shrink --table 'name=t max_size=3'", path);
    assert_file_contains(&desk->at, "out", "t: max_size: 1000000 -> 3");
    assert_file_contains(&desk->at, "out", "t: 2 items were removed");
    assert_file_contains(&desk->at, "out", " was, altered as said above\n");
    assert_troupe(desk, 0, "replay items other t --sort=oldest -o json");
    assert_keys(desk, "3 4 5 ");
    assert_troupe(desk, 0, "replay restore latest store --force -o json");
    assert_file_contains(&desk->at, "out", path);
    desk_serve(desk, "--restore=latest --force");
    assert_troupe(desk, 0, "replay items %s t --sort=oldest -o json", desk->address);
    assert_keys(desk, "1 2 3 4 5 ");
    desk_stop(desk);
    free(path);
}

static void latest_is_looked_for_where_the_server_puts_them(void **state)
{
    struct desk *desk = *state;
    char *flags = xasprintf("%s --checkpoint-dir=%s/kept", tables, desk->at.dir);
    desk_serve(desk, flags);
    desk_write_items(desk, "items.jsonl");
    assert_troupe(desk, 0, "replay load %s items.jsonl", desk->address);
    char *path = checkpoint(desk, desk->address);
    desk_stop(desk);
    assert_troupe(desk, 3, "replay restore latest other");
    assert_one_error(desk, "other/checkpoints; --checkpoint-dir says");
    assert_troupe(desk, 0, "replay restore latest other --checkpoint-dir=kept");
    assert_file_contains(&desk->at, "out", path);
    char *data = xasprintf("%s/data.mdb", path);
    assert_int_equal(truncate(data, 5000), 0);
    assert_troupe(desk, 4, "replay restore %s third", path);
    assert_one_error(desk, "is damaged: data.mdb has 5000 bytes of");
    assert_one_error(desk, "nothing was restored: take another one");
    char *third = scene_path(&desk->at, "third");
    assert_int_not_equal(access(third, F_OK), 0);
    free(third);
    free(data);
    free(path);
    free(flags);
}

/* As a supervisor starts it, again and again. */
static void a_start_that_restores_what_is_missing_can_be_repeated(void **state)
{
    struct desk *desk = *state;
    char *store = scene_path(&desk->at, "store");
    char *flags = xasprintf("--table name=t --restore=latest --if-missing --checkpoint-dir=%s/kept",
                            desk->at.dir);
    desk_serve(desk, flags); /* there is nothing at all */
    desk_write_items(desk, "items.jsonl");
    assert_troupe(desk, 0, "replay load %s items.jsonl", desk->address);
    free(checkpoint(desk, desk->address));
    assert_troupe(desk, 0, "replay delete %s t 1", desk->address);
    desk_stop(desk);
    desk_serve(desk, flags); /* a store is there */
    assert_troupe(desk, 0, "replay items %s t --sort=oldest -o json", desk->address);
    assert_keys(desk, "2 3 4 5 ");
    desk_stop(desk);
    nftw(store, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    desk_serve(desk, flags); /* a checkpoint is there */
    assert_troupe(desk, 0, "replay items %s t --sort=oldest -o json", desk->address);
    assert_keys(desk, "1 2 3 4 5 ");
    desk_stop(desk);
    assert_troupe(desk, 3, "replay serve --dir=other --restore=none --if-missing");
    assert_troupe(desk, 2, "replay serve --dir=other --if-missing");
    assert_troupe(desk, 2, "replay serve --dir=other --restore=latest --if-missing --force");
    free(store);
    free(flags);
}

static void assert_served_with(struct desk *desk, const char *table, const char *options)
{
    desk_serve(desk, table);
    assert_troupe(desk, 0, "replay info %s t -o json", desk->address);
    assert_file_contains(&desk->at, "out", options);
}

static void options_that_are_not_named_are_those_of_the_store(void **state)
{
    struct desk *desk = *state;
    desk_serve(desk, "--table 'name=t sampler=lifo max_size=7 limiter=min_size(3)'");
    desk_stop(desk);
    assert_served_with(desk, "--table name=t",
                       "sampler=lifo remover=fifo max_size=7 limiter=min_size(3)");
    desk_stop(desk);
    assert_served_with(desk, "--table 'name=t max_size=9'",
                       "sampler=lifo remover=fifo max_size=9 limiter=min_size(3)");
    assert_troupe(desk, 0, "replay alter %s 'name=t max_size=11'", desk->address);
    desk_stop(desk);
    assert_served_with(desk, "--table 'name=t max_size=9'",
                       "sampler=lifo remover=fifo max_size=11 limiter=min_size(3)");
    desk_stop(desk);
}

static void checkpoints_are_removed_by_name_and_number(void **state)
{
    struct desk *desk = *state;
    desk_serve(desk, tables);
    free(checkpoint(desk, desk->address));
    char *second = checkpoint(desk, desk->address);
    free(checkpoint(desk, desk->address));
    assert_troupe(desk, 2, "replay checkpoints %s --remove=%s", desk->address, second);
    assert_one_error(desk, "--yes");
    assert_troupe(desk, 3, "replay checkpoints %s --remove=none --yes", desk->address);
    assert_one_error(desk, "has no checkpoint none");
    assert_troupe(desk, 0, "replay checkpoints %s --remove=%s --yes", desk->address, second);
    assert_file_contains(&desk->at, "out", "removed ");
    assert_int_not_equal(access(second, F_OK), 0);
    assert_troupe(desk, 0, "replay checkpoint %s --keep=1", desk->address);
    assert_troupe(desk, 0, "replay checkpoints %s -o json", desk->address);
    cJSON *json = desk_json(desk);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(json, "checkpoints")), 1);
    cJSON_Delete(json);
    desk_stop(desk);
    for (int i = 0; i < 4; i++) /* nobody said how many a stopped store keeps */
        free(checkpoint(desk, "store"));
    assert_troupe(desk, 0, "replay checkpoints store --keep=2 --yes -o json");
    json = desk_json(desk);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(json, "paths")), 3);
    cJSON_Delete(json);
    free(second);
}

/* Whoever sorts names sees them in the order in which they were made, within a second, too. */
static void the_name_of_a_checkpoint_that_went_is_not_given_again(void **state)
{
    struct desk *desk = *state;
    desk_serve(desk, tables);
    desk_stop(desk);
    char *before = checkpoint(desk, "store");
    for (int i = 0; i < 4; i++) {
        assert_troupe(desk, 0, "replay checkpoint store --keep=1");
        char *path = scene_read(&desk->at, "out");
        path[strcspn(path, "\n")] = '\0';
        assert_true(strcmp(before, path) < 0);
        free(before);
        before = path;
    }
    free(before);
}

static const uint8_t floats[8] = {0, 0, 0xc0, 0x3f, 0, 0, 0x20, 0x40}; /* 1.5, 2.5 */

/* Somewhere in the bytes of an item, or of all of them. */
static void damage(struct desk *desk, const char *name, const uint8_t pattern[8], bool all)
{
    char *path = scene_path(&desk->at, name);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    off_t size = lseek(fd, 0, SEEK_END);
    uint8_t *bytes = xmalloc((size_t)size);
    assert_int_equal(pread(fd, bytes, (size_t)size, 0), size);
    const uint8_t *at = bytes;
    unsigned count = 0;
    while ((all || count == 0) &&
           (at = memmem(at, (size_t)(bytes + size - at), pattern, 8)) != NULL) {
        assert_int_equal(pwrite(fd, "!", 1, at - bytes), 1);
        at++;
        count++;
    }
    assert_in_range(count, 1, 5);
    close(fd);
    free(bytes);
    free(path);
}

/* A test is no terminal: nothing is drawn unless it is asked for. */
static void how_far_long_work_is_is_told_when_asked(void **state)
{
    struct desk *desk = *state;
    desk_serve(desk, tables);
    desk_write_items(desk, "items.jsonl");
    const char *lines[] = {"load store items.jsonl", "dump store t x.npz", "verify store",
                           "checkpoint store", "restore latest store --force"};
    desk_stop(desk);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        assert_troupe(desk, 0, "replay %s", lines[i]);
        char *quiet = scene_read(&desk->at, "err");
        assert_string_equal(quiet, "");
        free(quiet);
        assert_troupe(desk, 0, "replay %s --progress", lines[i]);
        char *told = scene_read(&desk->at, "err");
        assert_true(strncmp(told, lines[i], 4) == 0 && strstr(told, " a second"));
        free(told);
    }
}

/* Of the five items; it is told. */
static void expect_one_damaged(struct desk *desk, const char *target)
{
    int damaged = 0;
    for (int key = 1; key <= 5; key++) {
        int status = troupe(desk, "replay peek %s t %d", target, key);
        assert_true(status == 0 || status == 4);
        damaged += status == 4;
        if (status == 4)
            assert_file_contains(&desk->at, "err", "table t, key ");
    }
    assert_int_equal(damaged, 1);
}

static void damage_is_found_and_told_by_the_status(void **state)
{
    struct desk *desk = *state;
    desk_serve(desk, tables);
    desk_write_items(desk, "items.jsonl");
    assert_troupe(desk, 0, "replay load %s items.jsonl", desk->address);
    desk_stop(desk);
    damage(desk, "store/data.mdb", floats, false);
    assert_troupe(desk, 4, "replay verify store");
    assert_file_contains(&desk->at, "out", "table t, key ");
    assert_file_contains(&desk->at, "out", "1 DAMAGED (`troupe replay serve --verify` drops");
    assert_troupe(desk, 4, "replay verify store -o json");
    cJSON *json = desk_json(desk);
    assert_true(json_at(json, "damaged") == 1);
    cJSON_Delete(json);
    assert_troupe(desk, 4, "replay dump store t x.jsonl");
    assert_file_contains(&desk->at, "out", "4 items in x.jsonl");
    assert_file_contains(&desk->at, "err", "1 damaged item was left out, such as table t, key ");
    expect_one_damaged(desk, "store");
    desk_serve(desk, "--verify");
    assert_troupe(desk, 0, "replay info %s t", desk->address);
    assert_file_contains(&desk->at, "out", "size      4 of");
    desk_stop(desk);
}

/* Of keys 3 to 5, the second of which is damaged. */
static void expect_others_of_keys(struct desk *desk, const char *target)
{
    static const char told[] = "1 damaged item was left out";
    assert_troupe(desk, 4, "replay items %s t --key 5 --key 4 --key 3", target);
    assert_file_contains(&desk->at, "out", "2 of 4 items");
    assert_file_contains(&desk->at, "err", "1 damaged item was left out, such as table t, key 4\n");
    assert_troupe(desk, 4, "replay items %s t --key 4 --key 3 -o json", target);
    assert_file_contains(&desk->at, "out", "\"damaged_keys\":\t[\"4\"]");
    assert_troupe(desk, 4, "replay items %s t --key 4", target);
    assert_file_contains(&desk->at, "err",
                         "table t, key 4: its item is damaged, and was taken out");
    assert_troupe(desk, 4, "replay dump %s t z.jsonl --key 4 --key 5 --key 3", target);
    assert_file_contains(&desk->at, "out", "2 items in z.jsonl");
    assert_file_contains(&desk->at, "err", told);
    assert_troupe(desk, 4, "replay dump %s t z.jsonl --key 4", target);
    assert_file_contains(&desk->at, "out", "0 items in z.jsonl");
    assert_file_contains(&desk->at, "err", told);
}

/* Its priority: table and key can be told. The server starts, and has the others. */
static void an_item_whose_record_is_damaged_is_told_and_the_others_are_served(void **state)
{
    static const uint8_t priority[8] = {0, 0, 0, 0, 0, 0, 0x10, 0x40}; /* 4 */
    struct desk *desk = *state;
    desk_serve(desk, tables);
    desk_write_items(desk, "items.jsonl");
    assert_troupe(desk, 0, "replay load %s items.jsonl", desk->address);
    desk_stop(desk);
    damage(desk, "store/data.mdb", priority, true);
    assert_troupe(desk, 4, "replay verify store");
    assert_file_contains(&desk->at, "out", "table t, key 4: its record is damaged\n");
    for (int life = 0; life < 2; life++) {
        assert_troupe(desk, 4, "replay dump store t x.jsonl");
        assert_file_contains(&desk->at, "out", "4 items in x.jsonl");
        assert_file_contains(&desk->at, "err", "1 damaged item was left out");
        assert_troupe(desk, 4, "replay peek store t 4");
        assert_file_contains(&desk->at, "err", "table t, key 4: ");
        expect_others_of_keys(desk, "store");
        desk_serve(desk, tables);
        assert_troupe(desk, 4, "replay dump %s t y.jsonl", desk->address);
        assert_file_contains(&desk->at, "out", "4 items in y.jsonl");
        assert_troupe(desk, 4, "replay peek %s t 4", desk->address);
        assert_file_contains(&desk->at, "err", "table t, key 4: ");
        assert_troupe(desk, 0, "replay peek %s t 3", desk->address);
        expect_others_of_keys(desk, desk->address);
        assert_troupe(desk, 4, "replay verify %s", desk->address);
        desk_stop(desk);
        assert_troupe(desk, 4, "replay verify store");
    }
    desk_serve(desk, "--verify");
    assert_troupe(desk, 0, "replay dump %s t y.jsonl", desk->address);
    desk_stop(desk);
    assert_troupe(desk, 0, "replay verify store");
}

/* Of such a record there is enough to know its table, and no item. */
static void a_dump_that_lacks_what_was_damaged_says_so(void **state)
{
    static const uint8_t version[8] = {0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11};
    struct desk *desk = *state;
    desk_serve(desk, "--table=name=t");
    char *text = xstrdup("");
    for (int i = 1; i <= 3; i++) {
        char *longer = xasprintf("%s{\"table\":\"t\",\"key\":\"%d\",\"priority\":1,\"policy_"
                                 "version\":\"%llu\",\"columns\""
                                 ":[{\"dtype\":\"uint8\",\"shape\":[1],\"data\":\"AQ==\"}]}\n",
                                 text, i, i == 2 ? 0x1122334455667788ULL : 0);
        free(text);
        text = longer;
    }
    desk_write(desk, "items.jsonl", text);
    free(text);
    assert_troupe(desk, 0, "replay load %s items.jsonl", desk->address);
    desk_stop(desk);
    damage(desk, "store/data.mdb", version, true);
    assert_troupe(desk, 4, "replay dump store t x.jsonl");
    assert_file_contains(&desk->at, "out", "2 items in x.jsonl");
    assert_file_contains(&desk->at, "err", "1 damaged item was left out");
    desk_serve(desk, "--table=name=t --verify"); /* drops it for good */
    assert_troupe(desk, 0, "replay dump %s t x.jsonl", desk->address);
    desk_stop(desk);
}

static void who_reads_a_damaged_item_of_a_server_is_told_and_it_goes(void **state)
{
    static const char *const reads[] = {"peek %s t 1", "sample %s t -n 999", "dump %s t x.jsonl"};
    struct desk *desk = *state;
    desk_serve(desk, "--table=name=t");
    desk_write_items(desk, "items.jsonl");
    assert_troupe(desk, 0, "replay load %s items.jsonl", desk->address);
    desk_stop(desk);
    damage(desk, "store/data.mdb", floats, true);
    desk_serve(desk, "--table=name=t");
    for (size_t i = 0; i < sizeof reads / sizeof *reads; i++) {
        char *line = xasprintf(reads[i], desk->address);
        assert_troupe(desk, 4, "replay %s", line);
        assert_file_contains(&desk->at, "err", "table t, key ");
        free(line);
    }
    assert_file_contains(&desk->at, "out", "0 items in x.jsonl");
    assert_file_contains(&desk->at, "err", "3 damaged items were left out, such as table t, key ");
    assert_troupe(desk, 0, "replay info %s t", desk->address);
    assert_file_contains(&desk->at, "out", "size      0 of");
    desk_stop(desk);
}

static int entry_is_private(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)kind, (void)at;
    if (info->st_mode & 077)
        fail_msg("%s has mode %o", path, (unsigned)info->st_mode);
    return 0;
}

static void assert_private(const struct desk *desk, const char *name)
{
    char *path = scene_path(&desk->at, name);
    assert_int_equal(nftw(path, entry_is_private, 16, FTW_PHYS), 0);
    free(path);
}

static void what_a_server_makes_is_its_owners_alone(void **state)
{
    struct desk *desk = *state;
    char *flags = xasprintf("--table name=t --listen=unix:%s/socket --checkpoint-dir=%s/kept",
                            desk->at.dir, desk->at.dir);
    mode_t before = umask(0);
    desk_serve(desk, flags);
    desk_write_items(desk, "items.jsonl");
    assert_troupe(desk, 0, "replay load %s items.jsonl", desk->address);
    assert_troupe(desk, 0, "replay checkpoint %s", desk->address);
    char *leases = scene_path(&desk->at, "store/LEASES");
    assert_int_equal(access(leases, F_OK), 0);
    free(leases);
    assert_private(desk, "store");
    assert_private(desk, "kept");
    assert_private(desk, "socket");
    desk_stop(desk);
    assert_troupe(desk, 0, "replay restore latest other --checkpoint-dir=kept");
    umask(022);
    assert_troupe(desk, 0, "replay restore latest third --checkpoint-dir=kept");
    umask(before);
    assert_private(desk, "store");
    assert_private(desk, "other");
    assert_private(desk, "third");
    free(flags);
}

/* A checkpoint whose copy takes long enough to be interrupted: a lot of nothing behind it. */
static void checkpoint_make_long(const char *path)
{
    static const long long bytes = 1LL << 32;
    char *data = xasprintf("%s/data.mdb", path), *info = xasprintf("%s/CHECKPOINT", path);
    char *text = read_whole(info), *line = strstr(text, "\nbytes ");
    assert_int_equal(truncate(data, bytes), 0);
    FILE *file = fopen(info, "we");
    assert_non_null(file);
    fprintf(file, "%.*s\nbytes %lld%s", (int)(line - text), text, bytes, strchr(line + 1, '\n'));
    fclose(file);
    free(text);
    free(info);
    free(data);
}

/* Sends `number` as soon as it copies; its end. */
static int interrupt_restore(struct desk *desk, const char *dir, int number, const char *line)
{
    const char *words[WORDS_MAX + 1];
    char *copy = xasprintf("%s/%s/data.mdb.restore", desk->at.dir, dir), *text = xstrdup(line);
    split(text, words);
    scene_start(&desk->at, words);
    struct deadline deadline = deadline_in_ms(&clock_monotonic, PATIENCE_MS);
    while (access(copy, F_OK) != 0)
        look_again_soon(deadline, "the copy's beginning");
    kill(desk->at.pid, number);
    free(text);
    free(copy);
    return scene_wait(&desk->at);
}

static void an_interrupted_restore_leaves_nothing_and_a_killed_one_nothing_for_long(void **state)
{
    struct desk *desk = *state;
    desk_serve(desk, tables);
    char *path = checkpoint(desk, desk->address), *whole = checkpoint(desk, desk->address);
    desk_stop(desk);
    checkpoint_make_long(path);
    char *other = scene_path(&desk->at, "other"), *line;
    line = xasprintf("replay restore %s other", path);
    assert_int_equal(interrupt_restore(desk, "other", SIGINT, line), 1000 + SIGINT);
    assert_int_not_equal(access(other, F_OK), 0);
    free(line);
    line = xasprintf("replay serve --dir=%s --restore=%s", other, path);
    assert_int_equal(interrupt_restore(desk, "other", SIGTERM, line), 1);
    assert_one_error(desk, "interrupted");
    assert_int_not_equal(access(other, F_OK), 0);
    assert_int_equal(interrupt_restore(desk, "other", SIGKILL, line), 1000 + SIGKILL);
    free(line);
    line = xasprintf("replay restore %s store --force", path);
    assert_int_equal(interrupt_restore(desk, "store", SIGKILL, line), 1000 + SIGKILL);
    free(line);
    static const char *const rests[] = {"store/data.mdb.restore", "other/data.mdb.restore"};
    desk_serve(desk, tables);
    desk_stop(desk);
    assert_troupe(desk, 0, "replay restore %s other", whole);
    for (size_t i = 0; i < 2; i++) {
        char *rest = scene_path(&desk->at, rests[i]);
        assert_int_not_equal(access(rest, F_OK), 0);
        free(rest);
    }
    free(whole);
    free(other);
    free(path);
}

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif

/* As batch systems set it; a file system has far more than that. */
static void a_store_lives_with_little_address_space(void **state)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    (void)state;
    skip(); /* they take terabytes for themselves */
#else
    struct desk *desk = *state;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    desk_serve(desk, tables);
    desk_write_items(desk, "items.jsonl");
    assert_troupe(desk, 0, "replay load %s items.jsonl", desk->address);
    desk_stop(desk);
    assert_int_equal(setrlimit(RLIMIT_AS, &(struct rlimit){3LL << 30, before.rlim_max}), 0);
    assert_troupe(desk, 0, "replay items store t --sort=oldest -o json");
    assert_keys(desk, "1 2 3 4 5 ");
    desk_serve(desk, tables);
    free(checkpoint(desk, desk->address));
    desk_stop(desk);
    assert_troupe(desk, 0, "replay delete store t 1");
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
#endif
}

/* Nor does it begin what it could not end: gRPC waits for threads that did not start. */
static void too_little_address_space_is_told_by_how_much_it_takes(void **state)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    (void)state;
    skip(); /* they take terabytes for themselves */
#else
    static const rlim_t limits[] = {64 << 20, 200 << 20};
    struct desk *desk = *state;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        assert_int_equal(setrlimit(RLIMIT_AS, &(struct rlimit){limits[i], before.rlim_max}), 0);
        assert_troupe(desk, 1, "replay serve --dir=store %s", tables);
        assert_one_error(desk, " MiB: raise `ulimit -v`");
        assert_troupe(desk, 1, "replay ls 127.0.0.1:1");
        assert_one_error(desk, " MiB: raise `ulimit -v`");
        assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    }
#endif
}

/* Items 1 to `count` of table t, to be loaded. */
static void write_many_items(struct desk *desk, const char *name, int count)
{
    char *path = scene_path(&desk->at, name);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fputs("{\"troupe_dump\":1,\"table\":\"t\",\"options\":\"name=t\",\"signature\":\"\"}\n", file);
    for (int key = 1; key <= count; key++)
        fprintf(file,
                "{\"table\":\"t\",\"key\":\"%d\",\"priority\":1,\"times_sampled\":0,"
                "\"inserted_at_ns\":0,\"policy_version\":\"0\",\"columns\":[{\"dtype\":\"uint8\","
                "\"shape\":[1],\"squeezed\":false,\"data\":\"AQ==\"}]}\n",
                key);
    assert_int_equal(fclose(file), 0);
    free(path);
}

/* A server that has just started has only some of them in memory. */
static void items_of_a_large_store_are_changed_by_key_before_all_are_in_memory(void **state)
{
    enum { COUNT = OPEN_INDEX_STEPS * INDEX_STEP_ITEMS + 60000 };
    struct desk *desk = *state;
    desk_serve(desk, "--table name=t");
    write_many_items(desk, "items.jsonl", COUNT);
    assert_troupe(desk, 0, "replay load %s items.jsonl", desk->address);
    desk_stop(desk);
    assert_troupe(desk, 0, "replay set-priority store t %d=7", COUNT);
    assert_troupe(desk, 0, "replay delete store t %d", COUNT - 1);
    desk_serve(desk, "");
    assert_troupe(desk, 0, "replay peek %s t %d", desk->address, COUNT);
    assert_file_contains(&desk->at, "out", "priority 7 ");
    desk_stop(desk);
    desk_serve(desk, "");
    assert_troupe(desk, 3, "replay delete %s t %d", desk->address, COUNT - 1);
    assert_troupe(desk, 0, "replay delete %s t %d", desk->address, COUNT);
    desk_stop(desk);
}

static void a_checkpoint_is_named_as_a_shell_takes_it(void **state)
{
    struct desk *desk = *state;
    desk_serve(desk, "--table name=t");
    char *path = checkpoint(desk, desk->address), *link = scene_path(&desk->at, "a place");
    assert_int_equal(symlink(path, link), 0);
    desk_stop(desk);
    assert_troupe(desk, 1, "replay serve '--dir=%s'", link);
    char *command = xasprintf("restore it first (troupe replay restore '%s' DIR)", link);
    assert_one_error(desk, command);
    free(command);
    free(link);
    free(path);
}

/* As on a full disk: the store has its pages, a new file none. */
static void a_server_that_cannot_leave_its_address_says_where_it_is(void **state)
{
    struct desk *desk = *state;
    desk_serve(desk, "--table name=t");
    desk_stop(desk);
    char *path = scene_path(&desk->at, "store/ADDRESS");
    assert_int_equal(mkdir(path, 0700), 0);
    desk_serve(desk, "");
    char *words = xasprintf("use the address itself address=%s path=", desk->address);
    scene_await(desk->server, "err", words);
    desk_stop(desk);
    free(words);
    free(path);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, desk_setup, desk_teardown)
    const struct CMUnitTest tests[] = {
        TEST(checkpoints_are_made_live_and_stopped),
        TEST(no_checkpoint_is_nothing_found),
        TEST(items_whose_samples_are_not_known_are_not_among_those_of_few),
        TEST(a_store_that_cannot_be_looked_at_is_not_taken_for_none),
        TEST(a_checkpoint_is_restored),
        TEST(latest_is_looked_for_where_the_server_puts_them),
        TEST(checkpoints_are_removed_by_name_and_number),
        TEST(the_name_of_a_checkpoint_that_went_is_not_given_again),
        TEST(how_far_long_work_is_is_told_when_asked),
        TEST(damage_is_found_and_told_by_the_status),
        TEST(an_item_whose_record_is_damaged_is_told_and_the_others_are_served),
        TEST(a_dump_that_lacks_what_was_damaged_says_so),
        TEST(who_reads_a_damaged_item_of_a_server_is_told_and_it_goes),
        TEST(what_a_server_makes_is_its_owners_alone),
        TEST(an_interrupted_restore_leaves_nothing_and_a_killed_one_nothing_for_long),
        TEST(a_store_lives_with_little_address_space),
        TEST(too_little_address_space_is_told_by_how_much_it_takes),
        TEST(a_start_that_restores_what_is_missing_can_be_repeated),
        TEST(options_that_are_not_named_are_those_of_the_store),
        TEST(items_of_a_large_store_are_changed_by_key_before_all_are_in_memory),
        TEST(a_checkpoint_is_named_as_a_shell_takes_it),
        TEST(a_server_that_cannot_leave_its_address_says_where_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
