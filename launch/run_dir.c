/* A run leaves everything it made in one directory, so two runs never share a file by accident, and
 * --resume needs nothing but the path. A lock on a file of ours tells a running run from one that
 * was killed: the kernel drops it with the launcher, and knows whose it is. */
#include "run_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "core/file.h"
#include "core/status.h"
#include "core/words.h"
#include "config.h"
#include "limits.h"
#include "orphans.h"

static trp_status path_error(const char *path, int error)
{
    return trp_fail(file_errno_status(error, TRP_INTERNAL), "%s: %s", path,
                    file_errno_words(error));
}

/* mkdir -p */
static trp_status make_dirs(const char *path)
{
    char *copy = xstrdup(path);
    trp_status status = TRP_OK;
    for (char *slash = strchr(copy + 1, '/'); slash && status == TRP_OK;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(copy, 0777) != 0 && errno != EEXIST)
            status = path_error(copy, errno);
        *slash = '/';
    }
    if (status == TRP_OK && mkdir(copy, 0777) != 0 && errno != EEXIST)
        status = path_error(copy, errno);
    free(copy);
    return status;
}

static const char *runs_dir(void)
{
    const char *dir = getenv("TROUPE_RUNS");
    return dir && dir[0] ? dir : "runs";
}

/* A directory nobody had: runs/NAME-20250131-235959, or the same with -2, -3, ... */
static trp_status make_unique(const char *name, char **out)
{
    const char *runs = runs_dir();
    TRP_TRY(make_dirs(runs));
    time_t now = (time_t)(clock_wall_ns() / 1000000000);
    struct tm local;
    char date[32];
    localtime_r(&now, &local);
    strftime(date, sizeof date, "%Y%m%d-%H%M%S", &local);
    for (int i = 1; i <= 1000; i++) {
        char *base = i == 1 ? xasprintf("%s-%s", name, date) : xasprintf("%s-%s-%d", name, date, i);
        char *path = xasprintf("%s/%s", runs, base);
        int rc = mkdir(path, 0777);
        int error = errno;
        free(base);
        if (rc == 0) {
            *out = path;
            return TRP_OK;
        }
        free(path);
        if (error != EEXIST)
            return path_error(runs, error);
    }
    return trp_fail(TRP_ALREADY_EXISTS, "%s has 1000 runs of this second", runs);
}

static bool file_exists(const char *dir, const char *name)
{
    char *path = xasprintf("%s/%s", dir, name);
    bool exists = access(path, F_OK) == 0;
    free(path);
    return exists;
}

/* ---- lock -------------------------------------------------------------------------------- */

/* Asks the kernel who holds it: what the file says may be of the life before. */
static trp_status lock_taken(const char *dir, const struct flock *held)
{
    if (held->l_pid <= 0) /* a process of another container, or this one */
        return trp_fail(TRP_FAILED_PRECONDITION, "%s: a run is going on here", dir);
    return trp_fail(TRP_FAILED_PRECONDITION, "%s: a run is going on here (process %d)", dir,
                    (int)held->l_pid);
}

/* Takes nothing. Of this process it sees none: that is seen when the lock is taken. */
static trp_status check_nobody_runs(const char *dir)
{
    struct flock held = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char *path = xasprintf("%s/lock", dir);
    int fd = own_file_open(path, O_RDONLY, 0);
    bool taken = fd >= 0 && fcntl(fd, F_GETLK, &held) == 0 && held.l_type != F_UNLCK;
    fd_close(fd);
    free(path);
    return taken ? lock_taken(dir, &held) : TRP_OK;
}

/* That lock tells no two runs of one process apart, and is lost when one of them closes the file;
 * this one names nobody. */
static trp_status take_own_lock(const struct run_dir *dir, const char *path)
{
    if (flock(dir->lock_fd, LOCK_EX | LOCK_NB) == 0)
        return TRP_OK;
    static const struct flock unknown;
    return errno == EWOULDBLOCK ? lock_taken(dir->path, &unknown) : path_error(path, errno);
}

static trp_status take_lock(struct run_dir *dir)
{
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET}, held;
    char *path = xasprintf("%s/lock", dir->path);
    trp_status status = TRP_OK;
    dir->lock_fd = own_file_open(path, O_RDWR | O_CREAT, 0666);
    if (dir->lock_fd < 0)
        status = path_error(path, errno);
    while (status == TRP_OK && fcntl(dir->lock_fd, F_SETLK, &all) != 0) {
        bool taken = errno == EAGAIN || errno == EACCES;
        held = all;
        if (!taken || fcntl(dir->lock_fd, F_GETLK, &held) != 0)
            status = path_error(path, errno);
        else if (held.l_type != F_UNLCK)
            status = lock_taken(dir->path, &held);
    }
    if (status == TRP_OK)
        status = take_own_lock(dir, path);
    free(path);
    if (status == TRP_OK || dir->lock_fd < 0)
        return status;
    close(dir->lock_fd);
    dir->lock_fd = -1;
    return status;
}

/* ---- logs and sockets -------------------------------------------------------------------- */

char *run_dir_log_path(const char *dir, const struct node_group *group, uint32_t index)
{
    return xasprintf("%s/logs/%s-%u.log", dir, group->name, index);
}

trp_status run_dir_open_log(const char *dir, const struct node_group *group, uint32_t index,
                            int *fd)
{
    char *path = run_dir_log_path(dir, group, index);
    trp_status status = TRP_OK;
    *fd = own_file_open(path, O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (*fd < 0)
        status = path_error(path, errno);
    free(path);
    if (status == TRP_OK)
        run_dir_bound_log(dir, group, index, *fd);
    return status;
}

void run_dir_bound_log(const char *dir, const struct node_group *group, uint32_t index, int fd)
{
    struct stat info;
    if (fstat(fd, &info) != 0 || info.st_size < LOG_FILE_BYTES_MAX)
        return;
    char *path = run_dir_log_path(dir, group, index), *old = xasprintf("%s.1", path);
    int fresh = -1;
    if (rename(path, old) == 0)
        fresh = own_file_open(path, O_WRONLY | O_CREAT | O_APPEND, 0666);
    /* Threads that are writing do not notice. */
    if (fresh < 0 || dup3(fresh, fd, O_CLOEXEC) < 0)
        trp_log(TRP_WARN, "a log grows beyond its limit path=%s reason=%s", path, strerror(errno));
    if (fresh >= 0)
        close(fresh);
    free(old);
    free(path);
}

char *run_dir_socket_path(const char *socket_dir, const struct node_group *group, uint32_t index)
{
    return xasprintf("%s/%s-%u.sock", socket_dir, group->name, index);
}

char *run_dir_ring_path(const char *socket_dir, const struct node_group *group, uint32_t index)
{
    return xasprintf("%s/%s-%u.ring", socket_dir, group->name, index);
}

/* A ring's is as long as a socket's. */
static size_t longest_socket_path(const char *socket_dir, const trp_program *program)
{
    size_t longest = 0;
    for (size_t i = 0; i < program->group_count; i++) {
        const struct node_group *group = program->groups[i];
        char *path = run_dir_socket_path(socket_dir, group, group->count - 1);
        size_t bytes = strlen(path) + (group_is_gang(group) ? TRP_LEARNER_PATH_MORE : 0);
        longest = bytes > longest ? bytes : longest;
        free(path);
    }
    return longest;
}

static trp_status make_temporary_socket_dir(struct run_dir *dir)
{
    const char *base = getenv("XDG_RUNTIME_DIR");
    if (!base || strlen(base) > 32 || access(base, W_OK) != 0)
        base = "/tmp";
    dir->socket_dir = xasprintf("%s/troupe-XXXXXX", base);
    if (!mkdtemp(dir->socket_dir))
        return path_error(dir->socket_dir, errno);
    dir->socket_dir_is_temporary = true;
    return TRP_OK;
}

/* Whoever may write there may be anybody for the nodes: it is a directory, not a link to one
 * elsewhere, and its owner's alone. */
static trp_status keep_to_owner(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && (errno == ELOOP || errno == ENOTDIR))
        return trp_fail(TRP_FAILED_PRECONDITION,
                        "%s: it is a link or a file, and has to be a directory of this run", path);
    trp_status status = fd < 0 || fchmod(fd, 0700) != 0 ? path_error(path, errno) : TRP_OK;
    if (fd >= 0)
        close(fd);
    return status;
}

/* Unix sockets live in the run directory when their paths fit into sun_path. */
static trp_status make_socket_dir(struct run_dir *dir, const trp_program *program)
{
    dir->socket_dir = xasprintf("%s/sockets", dir->path);
    if (longest_socket_path(dir->socket_dir, program) >=
        sizeof((struct sockaddr_un *)NULL)->sun_path) {
        free(dir->socket_dir);
        dir->socket_dir = NULL;
        return make_temporary_socket_dir(dir);
    }
    if (mkdir(dir->socket_dir, 0700) != 0 && errno != EEXIST)
        return path_error(dir->socket_dir, errno);
    return keep_to_owner(dir->socket_dir);
}

/* ---- config ------------------------------------------------------------------------------ */

/* The newest run of `program` that has its name there; NULL: there is none. Caller frees. */
static char *newest_run_of(const char *program)
{
    DIR *entries = opendir(runs_dir());
    const struct dirent *entry;
    struct stat info;
    int64_t newest_ns = 0;
    size_t length = strlen(program);
    char *newest = NULL;
    while (entries && (entry = readdir(entries))) {
        if (strncmp(entry->d_name, program, length) != 0 || entry->d_name[length] != '-')
            continue;
        struct config config;
        char *dir = xasprintf("%s/%s", runs_dir(), entry->d_name);
        char *path = xasprintf("%s/" RUN_CONFIG, dir);
        bool fits = config_read_own(&config, path, program) == TRP_OK && stat(path, &info) == 0;
        int64_t ns = fits ? info.st_mtim.tv_sec * INT64_C(1000000000) + info.st_mtim.tv_nsec : 0;
        config_cleanup(&config);
        free(path);
        if (ns > newest_ns) {
            free(newest);
            newest = dir;
            newest_ns = ns;
        } else {
            free(dir);
        }
    }
    if (entries)
        closedir(entries);
    return newest;
}

/* The latest run may be any program's. */
static trp_status other_program(const char *program)
{
    char *kept = error_keep(), *newest = newest_run_of(program);
    char *dir = newest ? shell_word(newest) : NULL;
    if (dir)
        trp_fail(TRP_FAILED_PRECONDITION, "%s: --resume=%s names the newest run of '%s'", kept, dir,
                 program);
    else
        trp_fail(TRP_FAILED_PRECONDITION, "%s: --resume=DIR names another run", kept);
    free(dir);
    free(newest);
    free(kept);
    return TRP_FAILED_PRECONDITION;
}

/* Checks that the run in `dir` may go on as this program and takes over its seed; this life is the
 * next one. */
static trp_status read_config(struct run_dir *dir, struct launch_options *options,
                              const trp_program *program)
{
    struct config config;
    char *path = xasprintf("%s/" RUN_CONFIG, dir->path);
    trp_status status = config_read_own(&config, path, program->name);
    if (status == TRP_NOT_FOUND)
        status = trp_fail(TRP_NOT_FOUND, "%s: there is no run to resume (%s)", dir->path,
                          trp_last_error());
    else if (status == TRP_FAILED_PRECONDITION)
        status = other_program(program->name);
    if (status == TRP_OK && !options->seed_set)
        status = config_u64(&config, "seed", &options->seed);
    if (status == TRP_OK)
        status = config_u64(&config, "life", &dir->life);
    if (status == TRP_OK && dir->life > INT64_MAX)
        status = trp_fail(TRP_DATA_LOSS, "%s: no run had so many lives", path);
    if (status == TRP_OK)
        status = config_compare(&config, program);
    dir->life++;
    config_cleanup(&config);
    free(path);
    return status;
}

/* The configuration of the life before stays beside the new one. */
static void leave_config(const struct run_dir *dir, const trp_program *program)
{
    struct config config;
    char *path = xasprintf("%s/" RUN_CONFIG, dir->path);
    char *kept = xasprintf("%s/config-%" PRIu64 ".json", dir->path, dir->life - 1);
    if (config_read_own(&config, path, program->name) == TRP_OK)
        config_tell_changes(&config, program);
    config_cleanup(&config);
    if (link(path, kept) != 0 && errno != EEXIST)
        trp_log(TRP_WARN, "%s is not kept: %s", path, strerror(errno));
    free(kept);
    free(path);
}

trp_status run_dir_write_config(const struct run_dir *dir, const struct launch_options *options,
                                const trp_program *program, int argc, char **argv)
{
    if (dir->life > 0)
        leave_config(dir, program);
    char *text = config_text(program, options,
                             &(struct config_facts){dir->life, clock_wall_ns() / 1000000000,
                                                    dir->socket_dir, argc, argv});
    trp_status status = run_dir_keep(dir, RUN_CONFIG, text);
    free(text);
    return status;
}

/* EINVAL: this file system syncs nothing. */
static bool stream_sync(FILE *file)
{
    return fflush(file) == 0 && (fsync(fileno(file)) == 0 || errno == EINVAL);
}

static trp_status replace_text(const struct run_dir *dir, const char *name, const char *text,
                               bool lasts)
{
    char *path = xasprintf("%s/%s", dir->path, name);
    char *fresh = xasprintf("%s/.%s.new", dir->path, name);
    trp_status status = TRP_OK;
    FILE *file = own_file_stream(fresh, "w");
    bool failed =
        !file || fputs(text, file) < 0 || fputc('\n', file) < 0 || (lasts && !stream_sync(file));
    if (file && fclose(file) != 0)
        failed = true;
    if (failed || rename(fresh, path) != 0 || (lasts && (errno = dir_sync(dir->path)) != 0)) {
        status = path_error(errno == ELOOP || errno == ENXIO ? fresh : path, errno);
        if (file)
            unlink(fresh);
    }
    free(fresh);
    free(path);
    return status;
}

trp_status run_dir_write(const struct run_dir *dir, const char *name, const char *text)
{
    return replace_text(dir, name, text, false);
}

trp_status run_dir_keep(const struct run_dir *dir, const char *name, const char *text)
{
    return replace_text(dir, name, text, true);
}

/* ---- open and close ---------------------------------------------------------------------- */

/* The path that is given, or the latest, and may be opened; NULL: a new one. Caller frees, also on
 * failure. */
static trp_status given_path(const struct launch_options *options, char **path)
{
    *path = NULL;
    if (!options->run_dir && !options->resume)
        return TRP_OK;
    if (options->run_dir && options->run_dir[0] == '\0')
        return trp_fail(TRP_INVALID_ARGUMENT, "the name of the run directory is empty");
    *path = options->run_dir ? xstrdup(options->run_dir) : xasprintf("%s/latest", runs_dir());
    TRP_TRY(check_nobody_runs(*path));
    if (options->resume && file_exists(*path, "config.json"))
        return TRP_OK;
    if (options->resume)
        return trp_fail(TRP_NOT_FOUND,
                        "%s: there is no run to resume: start one without --resume, or name its "
                        "directory with --resume=DIR",
                        *path);
    if (file_exists(*path, RUN_CONFIG))
        return trp_fail(TRP_ALREADY_EXISTS,
                        "%s: there is a run in it already; --resume goes on with it", *path);
    return TRP_OK;
}

/* The path to open, which is there then. Caller frees. */
static trp_status choose_path(const struct launch_options *options, const char *name, char **path)
{
    TRP_TRY(given_path(options, path));
    if (!*path)
        return make_unique(name, path);
    return options->resume ? TRP_OK : make_dirs(*path);
}

static void set_shown_path(struct run_dir *dir)
{
    char *here = realpath(".", NULL);
    size_t length = here ? strlen(here) : 0;
    bool inside = length > 1 && strncmp(dir->path, here, length) == 0 && dir->path[length] == '/';
    dir->shown_path = xstrdup(inside ? dir->path + length + 1 : dir->path);
    free(here);
}

trp_status run_dir_check(const struct launch_options *options, const trp_program *program)
{
    struct launch_options taken = *options; /* it would have the run's seed */
    struct run_dir dir = {.lock_fd = -1};
    trp_status status = given_path(options, &dir.path);
    if (status == TRP_OK && options->resume)
        status = read_config(&dir, &taken, program);
    free(dir.path);
    return status;
}

trp_status run_dir_open(struct run_dir *dir, struct launch_options *options,
                        const trp_program *program)
{
    *dir = (struct run_dir){.lock_fd = -1};
    char *path = NULL, *logs = NULL;
    int error;
    trp_status status = choose_path(options, program->name, &path);
    if (status != TRP_OK)
        goto out;
    dir->path = realpath(path, NULL);
    if (!dir->path) {
        status = path_error(path, errno);
        goto out;
    }
    set_shown_path(dir);
    if ((status = take_lock(dir)) != TRP_OK)
        goto out;
    if (options->resume && (status = read_config(dir, options, program)) != TRP_OK)
        goto out;
    if (options->resume &&
        (status = orphans_await(dir->path, program, (int64_t)(options->grace_seconds * 1000))) !=
            TRP_OK)
        goto out;
    logs = xasprintf("%s/logs", dir->path);
    if ((error = own_dir_make(logs, 0777)) != 0) {
        status = path_error(logs, error);
        goto out;
    }
    status = make_socket_dir(dir, program);
out:
    free(logs);
    free(path);
    return status;
}

void run_dir_point_latest(const struct run_dir *dir)
{
    const char *runs = runs_dir(), *name = strrchr(dir->path, '/') + 1;
    char *link = xasprintf("%s/latest", runs);
    char *fresh = xasprintf("%s/.latest-%ld", runs, (long)getpid());
    char *real = realpath(runs, NULL);
    size_t length = real ? strlen(real) : 0;
    bool inside = real && strncmp(dir->path, real, length) == 0 && dir->path + length + 1 == name;
    if (symlink(inside ? name : dir->path, fresh) == 0 && rename(fresh, link) != 0)
        unlink(fresh);
    free(real);
    free(fresh);
    free(link);
}

/* All that are there: nodes that were killed left theirs, also those that only they know of. */
static void remove_sockets(const struct run_dir *dir)
{
    int fd = open(dir->socket_dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *entries = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *entry;
    struct stat info;
    while (entries && (entry = readdir(entries)))
        if (fstatat(fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(info.st_mode))
            unlinkat(fd, entry->d_name, 0);
    if (entries)
        closedir(entries); /* and the descriptor */
    else
        fd_close(fd);
    if (dir->socket_dir_is_temporary)
        rmdir(dir->socket_dir);
}

void run_dir_close(struct run_dir *dir)
{
    /* Without the lock the sockets may be another run's. */
    if (dir->socket_dir && dir->lock_fd >= 0)
        remove_sockets(dir);
    if (dir->lock_fd >= 0)
        close(dir->lock_fd);
    free(dir->socket_dir);
    free(dir->shown_path);
    free(dir->path);
    *dir = (struct run_dir){.lock_fd = -1};
}
