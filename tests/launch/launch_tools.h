/* Runs a program as a user would and looks at what comes of it. For tests of the launcher. */
#ifndef TRP_TESTS_LAUNCH_TOOLS_H
#define TRP_TESTS_LAUNCH_TOOLS_H

#include "tests/core/patience.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/alloc.h"

static const char *const launch_modes[2] = {"--launch=processes", "--launch=threads"};

/* A test's own directory, with what a program prints. */
struct scene {
    char dir[64];
    pid_t pid; /* of the program that runs; 0: none */
};

static inline int remove_entry(const char *path, const struct stat *info, int type, struct FTW *ftw)
{
    (void)info;
    (void)type;
    (void)ftw;
    return remove(path);
}

static inline int scene_setup(void **state)
{
    struct scene *scene = xcalloc(1, sizeof *scene);
    snprintf(scene->dir, sizeof scene->dir, "/tmp/troupe-test-XXXXXX");
    assert_non_null(mkdtemp(scene->dir));
    *state = scene;
    return 0;
}

static inline int scene_teardown(void **state)
{
    struct scene *scene = *state;
    if (scene->pid > 0) {
        kill(scene->pid, SIGKILL);
        waitpid(scene->pid, NULL, 0);
    }
    nftw(scene->dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    free(scene);
    return 0;
}

/* For the next run of the same test: nothing is there. */
static inline void scene_empty(const struct scene *scene)
{
    nftw(scene->dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    assert_int_equal(mkdir(scene->dir, 0700), 0);
}

/* "DIR/NAME"; caller frees. */
static inline char *scene_path(const struct scene *scene, const char *name)
{
    return xasprintf("%s/%s", scene->dir, name);
}

/* The whole file, "" when there is none. Caller frees. */
static inline char *read_whole(const char *path)
{
    FILE *file = fopen(path, "re");
    size_t size = 0, capacity = 1 << 16;
    char *text = xcalloc(1, capacity);
    while (file && !feof(file)) {
        if (capacity - size < 4096)
            text = xrealloc(text, capacity *= 2);
        size += fread(text + size, 1, capacity - size - 1, file);
        text[size] = '\0';
    }
    if (file)
        fclose(file);
    return text;
}

static inline char *scene_read(const struct scene *scene, const char *name)
{
    char *path = scene_path(scene, name);
    char *text = read_whole(path);
    free(path);
    return text;
}

/* Starts `argv` (NULL-ended) with DIR as working directory and its output in DIR/out, DIR/err. Its
 * input is `terminal`, in whose session it leads; NULL: nothing. */
static inline void scene_start_at(struct scene *scene, const char *const *argv,
                                  const char *terminal)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    if (terminal)
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
    char *out = scene_path(scene, "out"), *err = scene_path(scene, "err");
    int flags = O_WRONLY | O_CREAT | O_TRUNC | O_APPEND;
    posix_spawn_file_actions_addchdir_np(&actions, scene->dir);
    posix_spawn_file_actions_addopen(&actions, 0, terminal ? terminal : "/dev/null", O_RDWR, 0);
    posix_spawn_file_actions_addopen(&actions, 1, out, flags, 0666);
    posix_spawn_file_actions_addopen(&actions, 2, err, flags, 0666);
    int rc = posix_spawn(&scene->pid, argv[0], &actions, &attributes,
                         (char *const *)(uintptr_t)argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    free(out);
    free(err);
    if (rc != 0)
        fail_msg("%s: %s", argv[0], strerror(rc));
}

static inline void scene_start(struct scene *scene, const char *const *argv)
{
    scene_start_at(scene, argv, NULL);
}

/* Waits for the end: the exit status, or 1000 + the signal that killed it. */
static inline int scene_wait(struct scene *scene)
{
    struct deadline deadline = patience();
    int status;
    while (waitpid(scene->pid, &status, WNOHANG) == 0)
        look_again_soon(deadline, "the program's end");
    scene->pid = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static inline int scene_run(struct scene *scene, const char *const *argv)
{
    scene_start(scene, argv);
    return scene_wait(scene);
}

/* Waits until the file has `text`. */
static inline void scene_await(const struct scene *scene, const char *name, const char *text)
{
    struct deadline deadline = patience();
    for (;;) {
        char *now = scene_read(scene, name);
        bool found = strstr(now, text) != NULL;
        if (!found && deadline_passed(deadline, &clock_monotonic))
            fprintf(stderr, "%s\n", now); /* all of it */
        free(now);
        if (found)
            return;
        look_again_soon(deadline, text);
    }
}

/* The last value of a metric that a node reported; 0: none yet. */
static inline double value_of(const struct scene *scene, const char *node, const char *metric)
{
    char *text = scene_read(scene, "run/metrics.csv");
    char *pattern = xasprintf(",%s,%s,", node, metric);
    double value = 0;
    for (const char *at = text; (at = strstr(at, pattern));)
        value = strtod(at += strlen(pattern), NULL);
    free(pattern);
    free(text);
    return value;
}

/* All of it: what cmocka prints is cut off. */
static inline void assert_contains(const char *text, const char *part)
{
    if (strstr(text, part))
        return;
    fprintf(stderr, "%s\n", text);
    fail_msg("'%s' is not in what is above", part);
}

static inline void assert_file_lacks(const struct scene *scene, const char *name, const char *part)
{
    char *text = scene_read(scene, name);
    if (strstr(text, part)) {
        fprintf(stderr, "%s\n", text);
        fail_msg("'%s' is in what is above", part);
    }
    free(text);
}

static inline void assert_file_contains(const struct scene *scene, const char *name,
                                        const char *part)
{
    char *text = scene_read(scene, name);
    assert_contains(text, part);
    free(text);
}

/* How often `part` is in a file. */
static inline size_t count_in(const struct scene *scene, const char *name, const char *part)
{
    char *text = scene_read(scene, name);
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, part)); at++)
        count++;
    free(text);
    return count;
}

/* The last line of a file; caller frees. */
static inline char *last_line(const struct scene *scene, const char *name)
{
    char *text = scene_read(scene, name);
    size_t size = strlen(text);
    while (size > 0 && text[size - 1] == '\n')
        text[--size] = '\0';
    char *newline = strrchr(text, '\n');
    char *line = xstrdup(newline ? newline + 1 : text);
    free(text);
    return line;
}

static inline void assert_last_line(const struct scene *scene, const char *name, const char *part)
{
    char *line = last_line(scene, name);
    if (!strstr(line, part)) {
        char *text = scene_read(scene, name);
        fail_msg("'%s' is not in the last line of:\n%s", part, text);
    }
    free(line);
}

/* The number before `words` in the last lines of a run. */
static inline double summed_up(const struct scene *scene, const char *file, const char *words)
{
    char *text = scene_read(scene, file), *line = strstr(text, "  time: ");
    assert_non_null(line);
    char *at = strstr(line, words);
    if (!at)
        fail_msg("'%s' is not in:\n%s", words, text);
    while (at[-1] >= '0' && at[-1] <= '9')
        at--;
    double value = strtod(at, NULL);
    free(text);
    return value;
}

/* The letter of its state as in ps; 0: there is no such process. */
static inline char process_state(pid_t pid)
{
    char path[64], line[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    if (!fgets(line, sizeof line, file))
        line[0] = '\0';
    fclose(file);
    const char *state = strrchr(line, ')');
    return state && state[1] ? state[2] : 0;
}

static inline bool process_lives(pid_t pid)
{
    /* A zombie nobody reaps (no init in a container) is dead too. */
    char state = process_state(pid);
    return state && state != 'Z' && state != 'X';
}

/* The process of `node` among the launcher's children: a node of the library writes no events. */
static inline pid_t pid_of_node(const struct scene *scene, const char *node)
{
    char path[64], arguments[4096];
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", scene->pid, scene->pid);
    FILE *children = fopen(path, "re");
    assert_non_null(children);
    char *flag = xasprintf("--node=%s", node);
    int pid, found = 0;
    while (!found && fscanf(children, "%d", &pid) == 1) {
        snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
        FILE *file = fopen(path, "re");
        size_t size = file ? fread(arguments, 1, sizeof arguments, file) : 0;
        if (file)
            fclose(file);
        if (memmem(arguments, size, flag, strlen(flag) + 1))
            found = pid;
    }
    fclose(children);
    free(flag);
    assert_true(found > 1);
    return found;
}

#endif
