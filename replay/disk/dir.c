/* A directory is guarded by flock on a file of ours, which the kernel lets go when the owner dies
 * however it dies. The facts that are needed before LMDB may look at its file lie in small files of
 * their own: after a crash of the host, data.mdb can hold anything.
 *
 * A creation, or a restore into a new directory, writes STATE "make" first and FORMAT last, when
 * data.mdb is whole and synced. So where FORMAT is, data must be; and where only "make" is, there
 * never was any, and it starts over.
 *
 * LOCK and STATE are rewritten in place and never grow, so that a full file system does not keep a
 * store from opening. One sector is written whole or not at all. */
#include "disk.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <troupe/log.h>
#include "core/alloc.h"
#include "core/boot.h"
#include "core/file.h"
#include "core/words.h"
#include "limits.h"
#include "replay/wire/limits.h"

static const char format_line[] = "troupe replay store\n";
static const char *const durability_names[] = {"process", "memory", "system"};

enum { SMALL_FILE_BYTES = 128 };

trp_status store_errno(int error, const char *path, const char *what)
{
    return trp_fail(file_errno_status(error, TRP_UNAVAILABLE), "replay store %s: cannot %s: %s",
                    path, what, file_errno_words(error));
}

/* ---- small files ---------------------------------------------------------------------------- */

static char *dir_file(const struct store_dir *dir, const char *name)
{
    return xasprintf("%s/%s", dir->path, name);
}

/* Text of at most SMALL_FILE_BYTES - 1 bytes; false with errno. */
static bool small_file_read(int fd, char text[SMALL_FILE_BYTES])
{
    ssize_t got = pread(fd, text, SMALL_FILE_BYTES - 1, 0);
    text[got > 0 ? got : 0] = '\0';
    return got >= 0;
}

static bool small_file_write(int fd, const char *text, bool sync)
{
    char block[SMALL_FILE_BYTES];
    memset(block, '\n', sizeof block);
    memcpy(block, text, strnlen(text, sizeof block));
    ssize_t put = pwrite(fd, block, sizeof block, 0);
    if (put >= 0 && put != (ssize_t)sizeof block)
        errno = ENOSPC;
    return put == (ssize_t)sizeof block && (!sync || fdatasync(fd) == 0);
}

/* Reads NAME; *missing when there is none. */
static trp_status dir_read(const struct store_dir *dir, const char *name,
                           char text[SMALL_FILE_BYTES], bool *missing)
{
    char *path = dir_file(dir, name);
    int fd = own_file_open(path, O_RDONLY, 0);
    *missing = fd < 0 && errno == ENOENT;
    text[0] = '\0';
    trp_status status = TRP_OK;
    if (fd < 0 ? !*missing : !small_file_read(fd, text))
        status = store_errno(errno, path, "read");
    fd_close(fd);
    free(path);
    return status;
}

static trp_status dir_write(const struct store_dir *dir, const char *name, const char *text,
                            bool sync)
{
    char *path = dir_file(dir, name);
    int fd = own_file_open(path, O_RDWR | O_CREAT, STORE_FILE_MODE);
    trp_status status = TRP_OK;
    if (fd < 0 || !small_file_write(fd, text, sync))
        status = store_errno(errno, path, "write");
    fd_close(fd);
    free(path);
    return status;
}

int store_path_make(const char *path)
{
    if (mkdir(path, STORE_DIR_MODE) != 0)
        return errno;
    int error = name_sync(path);
    return error == EACCES ? 0 : error; /* one that we may not read cannot be synced by us */
}

FILE *store_path_write(const char *path)
{
    int fd = own_file_open(path, O_WRONLY | O_CREAT | O_TRUNC, STORE_FILE_MODE);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (fd >= 0 && !file)
        close(fd);
    return file;
}

static trp_status store_dir_sync(const struct store_dir *dir)
{
    int error = dir_sync(dir->path);
    return error == 0 ? TRP_OK : store_errno(error, dir->path, "sync");
}

/* ---- whose is it ---------------------------------------------------------------------------- */

static bool left_by_creation(const char *name, bool making)
{
    static const char *const names[] = {
        ".", "..", "LOCK", "checkpoints", "data.mdb.restore", "STATE", "FORMAT", "data.mdb"};
    for (size_t index = 0; index < (making ? 8 : 5); index++) {
        if (strcmp(name, names[index]) == 0)
            return true;
    }
    return false;
}

/* Empty but for what an interrupted creation or restore of ours leaves behind. */
static trp_status dir_check_empty(const struct store_dir *dir, bool making)
{
    DIR *entries = opendir(dir->path);
    if (!entries)
        return store_errno(errno, dir->path, "open");
    trp_status status = TRP_OK;
    for (struct dirent *entry = readdir(entries); entry && status == TRP_OK;
         entry = readdir(entries)) {
        const char *name = entry->d_name;
        if (!left_by_creation(name, making))
            status =
                trp_fail(TRP_FAILED_PRECONDITION,
                         "%s is no replay store: it has %s but no FORMAT; give an empty or new "
                         "directory",
                         dir->path, name);
    }
    closedir(entries);
    return status;
}

static trp_status format_write(const struct store_dir *dir)
{
    char text[SMALL_FILE_BYTES];
    snprintf(text, sizeof text, "%sformat %d\n", format_line, STORE_FORMAT);
    return dir_write(dir, "FORMAT", text, true);
}

/* `before`: it is the format before ours. */
static trp_status format_compare(const struct store_dir *dir, const char *text, bool *before)
{
    int format = 0;
    const char *number = text + sizeof format_line - 1;
    if (strncmp(text, format_line, sizeof format_line - 1) != 0)
        return trp_fail(TRP_FAILED_PRECONDITION, "%s is no replay store: foreign FORMAT",
                        dir->path);
    bool known = sscanf(number, "format %d", &format) == 1;
    *before = known && format == STORE_FORMAT_BEFORE;
    if (known && (*before || format == STORE_FORMAT))
        return TRP_OK;
    return trp_fail(TRP_FAILED_PRECONDITION,
                    "replay store %s has %.*s, this program reads formats %d and %d: dump it "
                    "with the version that wrote it, or begin anew in another directory",
                    dir->path, (int)strcspn(number, "\n"), number, STORE_FORMAT_BEFORE,
                    STORE_FORMAT);
}

/* STATE of a creation that did not get to its end; or, before a data.mdb, to its first byte. */
static trp_status dir_check_making(const struct store_dir *dir, bool *making)
{
    char text[SMALL_FILE_BYTES];
    bool missing;
    TRP_TRY(dir_read(dir, "STATE", text, &missing));
    *making = strncmp(text, "make ", 5) == 0 ||
              (!missing && text[0] == '\0' && access(dir->data_path, F_OK) != 0);
    return TRP_OK;
}

static trp_status dir_check_format(struct store_dir *dir)
{
    char text[SMALL_FILE_BYTES];
    bool missing, making;
    TRP_TRY(dir_check_making(dir, &making));
    TRP_TRY(dir_read(dir, "FORMAT", text, &missing));
    missing = missing || (making && text[0] == '\0');
    if (missing && dir->read_only)
        return trp_fail(TRP_FAILED_PRECONDITION, "%s is no replay store", dir->path);
    if (missing) {
        TRP_TRY(dir_check_empty(dir, making));
        dir->fresh = true;
        return TRP_OK;
    }
    return format_compare(dir, text, &dir->before);
}

/* Who has it open in this life of the host; with the file, if it is `known`. */
static void open_text(const struct store_dir *dir, trp_durability durability, bool known,
                      char text[SMALL_FILE_BYTES])
{
    char boot[BOOT_ID_BYTES], file[SMALL_FILE_BYTES] = "";
    struct stat info;
    boot_id_read(boot);
    if (known && stat(dir->data_path, &info) == 0)
        snprintf(file, sizeof file, " %llx-%llx", (unsigned long long)info.st_dev,
                 (unsigned long long)info.st_ino);
    if (snprintf(text, SMALL_FILE_BYTES, "open %s %s%s", durability_names[durability],
                 boot[0] ? boot : "unknown", file) >= SMALL_FILE_BYTES)
        text[0] = '\0';
}

static trp_status dir_check_state(struct store_dir *dir)
{
    char text[SMALL_FILE_BYTES], expected[SMALL_FILE_BYTES];
    bool missing, open = false;
    if (dir->fresh)
        return TRP_OK;
    TRP_TRY(dir_read(dir, "STATE", text, &missing));
    dir->another = strstr(text, " another\n") != NULL;
    if (missing || strncmp(text, "clean ", 6) == 0 ||
        strncmp(text, "make ", 5) == 0) /* with FORMAT: whole, synced, and not written since */
        return TRP_OK;
    text[strcspn(text, "\n")] = '\0';
    for (unsigned durability = TRP_DURABLE_PROCESS; durability <= TRP_DURABLE_SYSTEM;
         durability++) {
        open_text(dir, durability, true, expected);
        dir->killed |= strcmp(text, expected) == 0;
        open_text(dir, durability, false, expected);
        open |= strncmp(text, expected, strlen(expected)) == 0;
    }
    dir->suspect = !open && strncmp(text, "open system ", 12) != 0;
    return TRP_OK;
}

/* To write to a checkpoint would make it something else. */
static trp_status dir_check_checkpoint(const struct store_dir *dir)
{
    char *path = dir_file(dir, "CHECKPOINT");
    bool checkpoint = access(path, F_OK) == 0;
    free(path);
    if (!checkpoint || dir->read_only)
        return TRP_OK;
    char *word = shell_word(dir->path);
    trp_status status = trp_fail(
        TRP_FAILED_PRECONDITION,
        "%s is a checkpoint: restore it first (troupe replay restore %s DIR)", dir->path, word);
    free(word);
    return status;
}

/* Before the directory is made: it will be where the one above it is. */
static trp_status dir_check_memory(const struct store_dir *dir)
{
    struct statfs fs;
    char *copy = xstrdup(dir->path);
    bool known = statfs(dir->path, &fs) == 0 || statfs(dirname(copy), &fs) == 0;
    free(copy);
    if (!known || fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC)
        return TRP_OK; /* of what cannot be looked at, making it tells */
    return trp_fail(TRP_FAILED_PRECONDITION,
                    "replay store %s: durability memory needs a directory on tmpfs, such as "
                    "/dev/shm",
                    dir->path);
}

/* ---- who has it ----------------------------------------------------------------------------- */

static trp_status dir_busy(const struct store_dir *dir, int fd)
{
    char text[SMALL_FILE_BYTES];
    bool readers = flock(fd, LOCK_SH | LOCK_NB) == 0;
    if (readers || !small_file_read(fd, text) || strncmp(text, "pid ", 4) != 0)
        return trp_fail(TRP_FAILED_PRECONDITION,
                        "replay store %s is being read by another process; try again", dir->path);
    return trp_fail(TRP_FAILED_PRECONDITION, "replay store %s is in use by %.*s", dir->path,
                    (int)strcspn(text, "\n"), text);
}

static trp_status dir_lock(struct store_dir *dir)
{
    char *path = dir_file(dir, "LOCK");
    int flags = dir->read_only ? O_RDONLY : O_RDWR | O_CREAT;
    int fd = own_file_open(path, flags, STORE_FILE_MODE);
    struct stat info;
    trp_status status = TRP_OK;
    if (fd < 0) {
        /* Nobody can have a store without LOCK open; what it lacks is said by the checks. */
        if (!(dir->read_only && errno == ENOENT))
            status = store_errno(errno, path, "open");
        goto out;
    }
    if (flock(fd, (dir->read_only ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0) {
        status = errno == EWOULDBLOCK ? dir_busy(dir, fd) : store_errno(errno, path, "lock");
        goto out;
    }
    if (fstat(fd, &info) != 0 || info.st_nlink == 0) { /* a lock that nobody else would find */
        status = trp_fail(TRP_FAILED_PRECONDITION,
                          "replay store %s was taken away meanwhile; try again", dir->path);
        goto out;
    }
    if (!dir->read_only) {
        char text[SMALL_FILE_BYTES];
        snprintf(text, sizeof text, "pid %d\n", (int)getpid());
        if (!small_file_write(fd, text, false)) {
            status = store_errno(errno, path, "write");
            goto out;
        }
    }
    dir->lock_fd = fd;
out:
    if (status != TRP_OK && fd >= 0)
        close(fd);
    free(path);
    return status;
}

/* It is not made, too: where a disk is not mounted, or a name is wrong, that would hide it. */
static trp_status dir_lacks_parent(const struct store_dir *dir)
{
    char *copy = xstrdup(dir->path);
    trp_status status = trp_fail(TRP_FAILED_PRECONDITION,
                                 "replay store %s: there is no directory %s: make it first",
                                 dir->path, dirname(copy));
    free(copy);
    return status;
}

static trp_status dir_make(struct store_dir *dir)
{
    int error = dir->read_only ? EEXIST : store_path_make(dir->path);
    dir->made = error == 0;
    if (error == ENOENT)
        return dir_lacks_parent(dir);
    if (error != 0 && error != EEXIST)
        return store_errno(error, dir->path, "make");
    struct stat info;
    if (stat(dir->path, &info) != 0)
        return store_errno(errno, dir->path, "open");
    if (!S_ISDIR(info.st_mode))
        return store_errno(ENOTDIR, dir->path, "open");
    /* LMDB would go where a link leads, into another store perhaps, whose LOCK is not ours. */
    if (!dir->read_only && lstat(dir->data_path, &info) == 0 && S_ISLNK(info.st_mode))
        return store_errno(ELOOP, dir->data_path, "open");
    return TRP_OK;
}

static trp_status dir_take(struct store_dir *dir, trp_durability durability)
{
    if (durability == TRP_DURABLE_MEMORY && !dir->read_only)
        TRP_TRY(dir_check_memory(dir));
    TRP_TRY(dir_make(dir));
    TRP_TRY(dir_lock(dir));
    TRP_TRY(dir_check_format(dir));
    TRP_TRY(dir_check_state(dir));
    TRP_TRY(dir_check_checkpoint(dir));
    if (!dir->read_only && unlink(dir->copy_path) != 0 && errno != ENOENT)
        return store_errno(errno, dir->copy_path, "remove half a restore");
    return TRP_OK;
}

trp_status store_dir_open(struct store_dir *dir, const char *path, trp_durability durability,
                          bool read_only)
{
    *dir = (struct store_dir){.path = xstrdup(path), .lock_fd = -1, .read_only = read_only};
    dir->data_path = dir_file(dir, "data.mdb");
    dir->copy_path = dir_file(dir, "data.mdb.restore");
    trp_status status = dir_take(dir, durability);
    if (status != TRP_OK)
        store_dir_close(dir);
    return status;
}

trp_status store_dir_make_begin(struct store_dir *dir)
{
    assert(dir->fresh && !dir->read_only);
    TRP_TRY(dir_write(dir, "STATE", dir->another ? "make another\n" : "make \n", true));
    TRP_TRY(store_dir_sync(dir));
    if (unlink(dir->data_path) != 0 && errno != ENOENT)
        return store_errno(errno, dir->data_path, "remove half a creation");
    return TRP_OK;
}

trp_status store_dir_make_end(struct store_dir *dir)
{
    TRP_TRY(store_dir_sync(dir)); /* data.mdb has its name before FORMAT says so */
    TRP_TRY(format_write(dir));
    TRP_TRY(store_dir_sync(dir));
    dir->fresh = false;
    return TRP_OK;
}

trp_status store_dir_upgrade(struct store_dir *dir)
{
    if (!dir->before)
        return TRP_OK;
    TRP_TRY(format_write(dir));
    trp_log(TRP_INFO, "replay store %s had format %d and has %d now: older versions cannot open it",
            dir->path, STORE_FORMAT_BEFORE, STORE_FORMAT);
    dir->before = false;
    return TRP_OK;
}

trp_status store_dir_mark(struct store_dir *dir, trp_durability durability, bool clean)
{
    assert(!dir->read_only);
    char text[SMALL_FILE_BYTES];
    open_text(dir, durability, false, text);
    char *line = xasprintf("%s%s", clean ? "clean" : "open", text + strlen("open"));
    trp_status status = dir_write(dir, "STATE", line, true);
    free(line);
    return status == TRP_OK ? store_dir_sync(dir) : status;
}

trp_status store_dir_known(struct store_dir *dir, trp_durability durability)
{
    char text[SMALL_FILE_BYTES];
    open_text(dir, durability, true, text);
    return dir_write(dir, "STATE", text, false);
}

trp_status store_format_check(const char *path)
{
    struct store_dir dir = {.path = (char *)path};
    char text[SMALL_FILE_BYTES];
    bool missing;
    TRP_TRY(dir_read(&dir, "FORMAT", text, &missing));
    if (missing)
        return trp_fail(TRP_FAILED_PRECONDITION, "%s is no replay store", path);
    return format_compare(&dir, text, &dir.before);
}

trp_status store_dir_finish(const char *path, bool another)
{
    struct store_dir dir = {.path = (char *)path};
    TRP_TRY(store_dir_sync(&dir));
    TRP_TRY(format_write(&dir));
    TRP_TRY(dir_write(&dir, "STATE", another ? "clean another\n" : "clean copy\n", true));
    return store_dir_sync(&dir);
}

void store_dir_abandon(struct store_dir *dir)
{
    static const char *const names[] = {"STATE", "LOCK"};
    unlink(dir->copy_path);
    for (size_t i = 0; dir->made && i < sizeof names / sizeof *names; i++) {
        char *path = dir_file(dir, names[i]);
        unlink(path);
        free(path);
    }
    if (dir->made)
        rmdir(dir->path);
    store_dir_close(dir);
}

void store_dir_close(struct store_dir *dir)
{
    fd_close(dir->lock_fd);
    free(dir->path);
    free(dir->data_path);
    free(dir->copy_path);
    *dir = (struct store_dir){.lock_fd = -1};
}

trp_status store_dir_capacity(const struct store_dir *dir, uint64_t *bytes, uint64_t *map_bytes)
{
    struct statvfs fs;
    if (statvfs(dir->path, &fs) != 0)
        return store_errno(errno, dir->path, "statvfs");
    uint64_t total = (uint64_t)fs.f_blocks * fs.f_frsize;
    struct rlimit limit;
    if (total == 0 || total > STORE_MAP_BYTES_MAX) /* 0: a tmpfs without a limit */
        total = STORE_MAP_BYTES_MAX;
    uint64_t map = total > STORE_MAP_BYTES_MAX / STORE_MAP_GROWTH ? STORE_MAP_BYTES_MAX
                                                                  : total * STORE_MAP_GROWTH;
    if (map < STORE_MAP_BYTES_MIN)
        map = STORE_MAP_BYTES_MIN;
    /* Beyond this limit the kernel does not say no, it sends SIGXFSZ. */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < map)
        map = limit.rlim_cur;
    /* Others map it, too: what sends chunks from their pages, a checkpoint that is made. */
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur / 4 < map)
        map = limit.rlim_cur / 4;
    *bytes = total < map ? total : map;
    *map_bytes = map;
    return TRP_OK;
}
