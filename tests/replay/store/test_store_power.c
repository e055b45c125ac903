/* Power loss, at any instant: what a `system` store acknowledged is there, exactly, and it opens.
 *
 * This file defines the calls that write and sync, so that LMDB's and the store's come here first:
 * they are kept in order, with their bytes, while a store lives two lives. Then the power goes at
 * places of that record: what was synced is on the disk; of everything else some subset is, whole
 * or in sectors or pages of its own choice; a name that was not synced may be missing. The files
 * that result are opened and compared with the groups that had been acknowledged. */
#include "store_script.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "core/thread.h"

enum {
    GROUPS = 150, /* in each life */
    CUTS = 100,   /* in them, about */
    EDGE = 20,
    EDGE_SUBSETS = 2,
    FILES_MAX = 8, /* LOCK, STATE, FORMAT, data.mdb */
    STORE_BYTES = 6 << 20,
    SECTOR_BYTES = 512, /* is written whole or not at all */
    FILE_PAGE_BYTES = 4096,
};

enum kind { OP_NAME, OP_WRITE, OP_EXTEND, OP_PUNCH, OP_SYNC, OP_SYNC_ONE, OP_SYNC_NAMES, OP_ACK };

struct op {
    enum kind kind;
    unsigned file;
    uint8_t *bytes;
    size_t offset, size; /* OP_SYNC_ONE: offset is the op's number */
};

struct file {
    char *name;
    ino_t inode;
};

/* ---- the recorder --------------------------------------------------------------------------- */

static struct {
    bool on;
    char dir[128];
    struct mutex mutex; /* the store's helper writes, too */
    struct file files[FILES_MAX];
    unsigned file_count;
    struct op *ops;
    size_t count;
} record;

static size_t op_push(struct op op)
{
    size_t number = record.count++;
    if ((number & (number + 1)) == 0)
        record.ops = xrealloc(record.ops, 2 * (number + 1) * sizeof *record.ops);
    record.ops[number] = op;
    return number;
}

/* Which of the store's files; FILES_MAX: none, FILES_MAX + 1: the directory itself. */
static unsigned file_find(int fd)
{
    char link[64], path[256];
    struct stat info;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t got = readlink(link, path, sizeof path - 1);
    size_t length = strlen(record.dir);
    if (got < (ssize_t)length || memcmp(path, record.dir, length) != 0 || fstat(fd, &info) != 0)
        return FILES_MAX;
    path[got] = '\0';
    if (path[length] == '\0')
        return FILES_MAX + 1;
    for (unsigned index = 0; index < record.file_count; index++)
        if (record.files[index].inode == info.st_ino)
            return index;
    if (record.file_count == FILES_MAX)
        abort();
    record.files[record.file_count] = (struct file){xstrdup(path + length + 1), info.st_ino};
    op_push((struct op){.kind = OP_NAME, .file = record.file_count});
    return record.file_count++;
}

static size_t recorded(enum kind kind, int fd, const void *bytes, size_t offset, size_t size)
{
    size_t number = SIZE_MAX;
    if (!record.on)
        return number;
    mutex_lock(&record.mutex);
    struct op op = {.kind = kind, .file = file_find(fd), .offset = offset, .size = size};
    if (op.file < FILES_MAX) {
        if (bytes)
            op.bytes = memcpy(xmalloc(size + 1), bytes, size);
        number = op_push(op);
    } else if (kind == OP_SYNC && op.file == FILES_MAX + 1) {
        op_push((struct op){.kind = OP_SYNC_NAMES});
    }
    mutex_unlock(&record.mutex);
    return number;
}

/* A write through a descriptor that syncs is durable when it returns. */
static void recorded_end(int fd, size_t number)
{
    if (number == SIZE_MAX || !(fcntl(fd, F_GETFL) & O_DSYNC))
        return;
    mutex_lock(&record.mutex);
    op_push((struct op){.kind = OP_SYNC_ONE, .file = record.ops[number].file, .offset = number});
    mutex_unlock(&record.mutex);
}

#pragma GCC visibility push(default) /* LMDB is to find them */

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t offset)
{
    size_t number = recorded(OP_WRITE, fd, bytes, (size_t)offset, size);
    ssize_t put = syscall(SYS_pwrite64, fd, bytes, size, offset);
    recorded_end(fd, number);
    return put;
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    uint8_t *bytes = NULL;
    size_t size = 0;
    off_t offset = lseek(fd, 0, SEEK_CUR);
    if (!record.on || offset < 0)
        return syscall(SYS_writev, fd, parts, count);
    for (int part = 0; part < count; part++) {
        bytes = xrealloc(bytes, size + parts[part].iov_len + 1);
        memcpy(bytes + size, parts[part].iov_base, parts[part].iov_len);
        size += parts[part].iov_len;
    }
    size_t number = recorded(OP_WRITE, fd, bytes, (size_t)offset, size);
    free(bytes);
    ssize_t put = syscall(SYS_writev, fd, parts, count);
    recorded_end(fd, number);
    return put;
}

int fdatasync(int fd)
{
    int result = (int)syscall(SYS_fdatasync, fd);
    recorded(OP_SYNC, fd, NULL, 0, 0);
    return result;
}

int fsync(int fd)
{
    int result = (int)syscall(SYS_fsync, fd);
    recorded(OP_SYNC, fd, NULL, 0, 0);
    return result;
}

int posix_fallocate(int fd, off_t offset, off_t size)
{
    recorded(OP_EXTEND, fd, NULL, (size_t)offset, (size_t)size);
    return syscall(SYS_fallocate, fd, 0, offset, size) == 0 ? 0 : errno;
}

int fallocate(int fd, int mode, off_t offset, off_t size)
{
    recorded(OP_PUNCH, fd, NULL, (size_t)offset, (size_t)size);
    return (int)syscall(SYS_fallocate, fd, mode, offset, size);
}

/* What would be missed is not done. */
int ftruncate(int fd, off_t size)
{
    (void)fd;
    (void)size;
    abort();
}

#pragma GCC visibility pop

/* ---- two lives ------------------------------------------------------------------------------ */

static void acknowledge(void)
{
    mutex_lock(&record.mutex);
    op_push((struct op){.kind = OP_ACK});
    mutex_unlock(&record.mutex);
}

static struct store *store_open(const char *dir, struct loaded *loaded)
{
    struct store *store;
    struct store_options options = {.dir = dir,
                                    .durability = TRP_DURABLE_SYSTEM,
                                    .max_bytes = STORE_BYTES,
                                    .cache_bytes = 10000};
    *loaded = (struct loaded){0};
    static uint64_t opened;
    if (store_create(&store, &options) != TRP_OK ||
        (++opened % 2 ? load_in_pieces(store, loaded, opened) : load_all(store, loaded)) != TRP_OK)
        fail_msg("%s", trp_last_error());
    return store;
}

static void state_init(struct state *state)
{
    *state = (struct state){.table = {.id = 1}, .items_max = 250, .size_max = 20000};
}

static void live(const char *dir, struct state *state, uint64_t life)
{
    struct loaded loaded;
    struct store *store = store_open(dir, &loaded);
    if (life == 0) {
        assert_int_equal(store_table_put(store, "t", "name=t", (trp_bytes){0}), 1);
        assert_int_equal(store_commit(store), TRP_OK);
        acknowledge();
    }
    assert_int_equal(loaded.count, state->count);
    for (size_t index = 0; index < loaded.count; index++)
        state->items[index].item = loaded.items[index];
    for (uint64_t group = life * GROUPS; group < (life + 1) * GROUPS; group++) {
        do_group(state, 1, group, store);
        assert_int_equal(store_commit(store), TRP_OK);
        acknowledge();
        if (group % 3 == 0)
            store_idle(store);
    }
    for (size_t index = 0; index < state->count; index++)
        store_item_destroy(store, state->items[index].item);
    free(loaded.items);
    free(loaded.tables);
    store_destroy(store);
}

/* ---- a disk --------------------------------------------------------------------------------- */

struct image {
    uint8_t *bytes;
    size_t size;
    bool named; /* the name is on the disk */
};

struct disk {
    struct image files[FILES_MAX];
    size_t *pending; /* numbers of ops that were not synced */
    size_t pending_count;
    uint64_t acknowledged;
};

static void image_extend(struct image *image, size_t size)
{
    if (size <= image->size)
        return;
    image->bytes = xrealloc(image->bytes, size);
    memset(image->bytes + image->size, 0, size - image->size);
    image->size = size;
}

/* Bytes [from, to) of what the op does. */
static void image_apply(struct image *image, const struct op *op, size_t from, size_t to)
{
    if (op->kind == OP_NAME) {
        image->named = true;
        return;
    }
    if (op->kind != OP_PUNCH)
        image_extend(image, op->offset + to);
    if (op->kind == OP_WRITE)
        memcpy(image->bytes + op->offset + from, op->bytes + from, to - from);
    else if (op->kind == OP_PUNCH && op->offset + to <= image->size)
        memset(image->bytes + op->offset + from, 0, to - from);
}

/* Which of the pending ops the one at `number` makes durable. */
static bool op_syncs(const struct op *sync, size_t pending)
{
    const struct op *op = &record.ops[pending];
    if (sync->kind == OP_SYNC_NAMES)
        return op->kind == OP_NAME;
    if (sync->kind == OP_SYNC_ONE)
        return pending == sync->offset;
    return sync->kind == OP_SYNC && op->kind != OP_NAME && op->file == sync->file;
}

static void disk_step(struct disk *disk, size_t number)
{
    const struct op *op = &record.ops[number];
    if (op->kind < OP_SYNC) {
        disk->pending[disk->pending_count++] = number;
        return;
    }
    disk->acknowledged += op->kind == OP_ACK;
    size_t kept = 0;
    for (size_t index = 0; index < disk->pending_count; index++) {
        size_t pending = disk->pending[index];
        if (op_syncs(op, pending))
            image_apply(&disk->files[record.ops[pending].file], &record.ops[pending], 0,
                        record.ops[pending].size);
        else
            disk->pending[kept++] = pending;
    }
    disk->pending_count = kept;
}

/* Does a part of an unsynced op, or all of it, get to the disk? */
static void op_survives(struct image *image, const struct op *op, struct draws *draws)
{
    uint64_t how = draw(draws, 4);
    if (how == 0)
        return;
    size_t unit = how == 1 ? SECTOR_BYTES : FILE_PAGE_BYTES;
    if (how == 3 || op->kind == OP_NAME)
        unit = op->size + 1;
    for (size_t from = 0, to; from < op->size + 1; from = to) {
        to = from + unit - (op->offset + from) % unit; /* where the disk's units are */
        if (how == 3 || op->kind == OP_NAME)
            to = op->size + 1;
        size_t end = to < op->size ? to : op->size;
        if ((how == 3 || draw(draws, 2) == 0) && (end > from || op->kind == OP_NAME))
            image_apply(image, op, from, end);
    }
}

static void image_write(const char *dir, const char *name, const struct image *image)
{
    char *path = fixture_path(dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, image->bytes, image->size), image->size);
    close(fd);
    free(path);
}

/* What is on the disk when it comes back. */
static void disk_write(const struct disk *disk, const char *dir, struct draws *draws)
{
    struct image files[FILES_MAX] = {0};
    for (unsigned file = 0; file < record.file_count; file++) {
        files[file].named = disk->files[file].named;
        image_extend(&files[file], disk->files[file].size);
        if (files[file].size > 0)
            memcpy(files[file].bytes, disk->files[file].bytes, files[file].size);
    }
    for (size_t index = 0; index < disk->pending_count; index++) {
        const struct op *op = &record.ops[disk->pending[index]];
        op_survives(&files[op->file], op, draws);
    }
    for (unsigned file = 0; file < record.file_count; file++) {
        if (files[file].named)
            image_write(dir, record.files[file].name, &files[file]);
        free(files[file].bytes);
    }
}

/* ---- after it ------------------------------------------------------------------------------- */

/* The groups that were acknowledged, or one more, and the store can be used. */
static void check_store(const char *dir, const struct state *before, uint64_t acknowledged)
{
    struct loaded loaded;
    struct store *store = store_open(dir, &loaded);
    struct state *state = memcpy(xmalloc(sizeof *state), before, sizeof *state);
    size_t tables;
    store_tables(store, &tables);
    if (acknowledged == 0 && tables == 0) {
        assert_int_equal(loaded.count, 0);
        assert_int_equal(store_table_put(store, "t", "name=t", (trp_bytes){0}), 1);
    } else if (!state_matches(store, &loaded, state)) {
        do_group(state, 1, acknowledged - 1, NULL);
        assert_true(state_matches(store, &loaded, state));
    }
    for (size_t index = 0; index < loaded.count; index++)
        state->items[index].item = loaded.items[index];
    do_group(state, 2, acknowledged, store);
    assert_int_equal(store_commit(store), TRP_OK);
    for (size_t index = 0; index < state->count; index++)
        store_item_destroy(store, state->items[index].item);
    free(loaded.items);
    free(loaded.tables);
    store_destroy(store);
    store = store_open(dir, &loaded);
    assert_true(state_matches(store, &loaded, state));
    loaded_cleanup(store, &loaded);
    store_destroy(store);
    free(state);
}

/* `made`: ops of the creation, which are many and alike but for its beginning and its end. */
static unsigned cuts_here(struct draws *draws, size_t number, size_t made)
{
    if (number < EDGE || (number < made && made - number < EDGE))
        return EDGE_SUBSETS;
    if (number < made)
        return draw(draws, made) < CUTS / 8;
    return draw(draws, record.count - made) < CUTS;
}

static void power_goes(const char *dir)
{
    struct disk disk = {.pending = xcalloc(record.count + 1, sizeof *disk.pending)};
    struct state *state = xcalloc(1, sizeof *state);
    struct draws draws = {11};
    uint64_t done = 0;
    size_t made = 0, cuts = 0;
    state_init(state);
    while (record.ops[made].kind != OP_ACK)
        made++;
    for (size_t number = 0; number < record.count; number++) {
        disk_step(&disk, number);
        while (done + 1 < disk.acknowledged) /* the first is the table */
            do_group(state, 1, done++, NULL);
        for (unsigned left = cuts_here(&draws, number, made); left > 0; left--) {
            struct draws subset = {number * 1000003 + left};
            disk_write(&disk, dir, &subset);
            check_store(dir, state, disk.acknowledged);
            fixture_erase(dir);
            assert_int_equal(mkdir(dir, 0777), 0);
            cuts++;
        }
    }
    assert_int_equal(done, 2 * GROUPS);
    assert_true(cuts > CUTS / 2);
    for (unsigned file = 0; file < FILES_MAX; file++)
        free(disk.files[file].bytes);
    free(disk.pending);
    free(state);
}

static void what_was_acknowledged_survives_the_power(void **test_state)
{
    (void)test_state;
    char *dir = fixture_dir("/dev/shm"); /* syncs thousands of times */
    char *after = fixture_dir("/dev/shm");
    struct state *state = xcalloc(1, sizeof *state);
    state_init(state);
    mutex_init(&record.mutex);
    snprintf(record.dir, sizeof record.dir, "%s", dir);
    record.on = true;
    live(dir, state, 0);
    live(dir, state, 1);
    record.on = false;
    free(state);
    power_goes(after);
    for (size_t number = 0; number < record.count; number++)
        free(record.ops[number].bytes);
    for (unsigned file = 0; file < record.file_count; file++)
        free(record.files[file].name);
    free(record.ops);
    mutex_cleanup(&record.mutex);
    fixture_remove(dir);
    fixture_remove(after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_acknowledged_survives_the_power),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
