/* `troupe launch FILE.c -- ARGS`: compiles a launch file and becomes the program.
 *
 * The compiler gets its flags from pkg-config, which is pointed at the library that belongs to this
 * very executable, installed or in a build tree. The program is removed before it runs: the open
 * file is enough, also for its children, which are started from /proc/self/exe. So nothing is left
 * behind, whatever ends it, and nothing stale can be run: signals wait until what the compiler made
 * is removed, and the compiler, which does not wait, ends at once. */
#include "cli.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/buffer.h"
#include "core/words.h"

enum { PKG_CONFIG_OUTPUT_MAX = 1 << 16 };

struct launch {
    const char *file;
    char *pc_dir;    /* where our troupe.pc is */
    char *prefix;    /* of the installation; NULL: a build tree */
    sigset_t unheld; /* the signal mask of this process and of those it starts */
};

/* A NULL-ended list of strings that it owns. */
struct words {
    char **words;
    size_t count;
};

static void words_add(struct words *words, char *word)
{
    words->words = xrealloc(words->words, (words->count + 2) * sizeof *words->words);
    words->words[words->count++] = word;
    words->words[words->count] = NULL;
}

static void words_cleanup(struct words *words)
{
    for (size_t i = 0; i < words->count; i++)
        free(words->words[i]);
    free(words->words);
}

/* Words as pkg-config prints them: a backslash keeps the next character. */
static void words_split(struct words *words, const char *text)
{
    struct buffer word = {0};
    bool inside = false;
    for (;; text++) {
        bool end = *text == '\0' || isspace((unsigned char)*text);
        if (end && inside) {
            buffer_append(&word, (trp_bytes){(const uint8_t *)"", 1});
            words_add(words, xstrdup((const char *)word.data));
            buffer_clear(&word);
            inside = false;
        }
        if (*text == '\0')
            break;
        if (end)
            continue;
        if (*text == '\\' && text[1])
            text++;
        buffer_append(&word, (trp_bytes){(const uint8_t *)text, 1});
        inside = true;
    }
    buffer_cleanup(&word);
}

/* ---- running other programs -------------------------------------------------------------- */

static trp_status wait_for(pid_t pid, const char *name)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return trp_fail(TRP_INTERNAL, "%s: %s", name, strerror(errno));
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return TRP_OK;
    return trp_fail(TRP_FAILED_PRECONDITION, "%s failed", name);
}

/* Runs `argv` to its end; `out` NULL or gets at most PKG_CONFIG_OUTPUT_MAX bytes of its output. */
static trp_status run(const struct launch *launch, char **argv, struct buffer *out)
{
    int fds[2] = {-1, -1};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigmask(&attributes, &launch->unheld);
    if (out && pipe2(fds, O_CLOEXEC) == 0)
        posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
    pid_t pid;
    int rc = posix_spawnp(&pid, argv[0], &actions, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    if (fds[1] >= 0)
        close(fds[1]);
    for (ssize_t size = 1;
         rc == 0 && fds[0] >= 0 && size > 0 && out->size < PKG_CONFIG_OUTPUT_MAX;) {
        size = read(fds[0], buffer_reserve(out, 4096), 4096);
        out->size += size > 0 ? (size_t)size : 0;
    }
    if (fds[0] >= 0)
        close(fds[0]);
    if (rc != 0)
        return trp_fail(TRP_NOT_FOUND, "%s: %s", argv[0], strerror(rc));
    return wait_for(pid, argv[0]);
}

/* ---- the compiler's command line --------------------------------------------------------- */

/* Where the library of this executable is described. */
static trp_status find_library(struct launch *launch)
{
    char path[4096];
    ssize_t size = readlink("/proc/self/exe", path, sizeof path - 1);
    if (size < 0)
        return trp_fail(TRP_INTERNAL, "/proc/self/exe: %s", strerror(errno));
    path[size] = '\0';
    *strrchr(path, '/') = '\0';
    char *in_build_tree = xasprintf("%s/troupe-uninstalled.pc", path);
    bool built = access(in_build_tree, R_OK) == 0;
    free(in_build_tree);
    launch->prefix = built ? NULL : xasprintf("%s/..", path);
    launch->pc_dir = built ? xstrdup(path) : xasprintf("%s/../" TROUPE_LIBDIR "/pkgconfig", path);
    return TRP_OK;
}

/* pkg-config splits values at blanks, unless a backslash is before them. Caller frees. */
static char *escape_blanks(const char *text)
{
    struct buffer out = {0};
    for (; *text; text++) {
        if (isspace((unsigned char)*text) || *text == '\\')
            buffer_append(&out, (trp_bytes){(const uint8_t *)"\\", 1});
        buffer_append(&out, (trp_bytes){(const uint8_t *)text, 1});
    }
    buffer_append(&out, (trp_bytes){(const uint8_t *)"", 1});
    return (char *)out.data;
}

/* Appends what pkg-config prints for troupe with these flags. */
static trp_status ask_pkg_config(const struct launch *launch, const char *flag1, const char *flag2,
                                 struct words *words)
{
    const char *before = getenv("PKG_CONFIG_PATH");
    char *search = xasprintf("%s%s%s", launch->pc_dir, before ? ":" : "", before ? before : "");
    setenv("PKG_CONFIG_PATH", search, 1);
    free(search);
    struct words argv = {0};
    struct buffer out = {0};
    words_add(&argv, xstrdup("pkg-config"));
    if (launch->prefix) {
        char *prefix = escape_blanks(launch->prefix);
        words_add(&argv, xasprintf("--define-variable=prefix=%s", prefix));
        free(prefix);
    }
    words_add(&argv, xstrdup(flag1));
    if (flag2)
        words_add(&argv, xstrdup(flag2));
    words_add(&argv, xstrdup("troupe"));
    trp_status status = run(launch, argv.words, &out);
    if (status == TRP_OK) {
        buffer_append(&out, (trp_bytes){(const uint8_t *)"", 1});
        words_split(words, (const char *)out.data);
    }
    buffer_cleanup(&out);
    words_cleanup(&argv);
    return status;
}

static trp_status compile(const struct launch *launch, const char *program)
{
    const char *compiler = getenv("CC");
    struct words argv = {0}, libdir = {0};
    words_split(&argv, compiler && compiler[0] ? compiler : "cc");
    static const char *const flags[] = {"-std=gnu11", "-O2", "-g", "-Wall", "-o"};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        words_add(&argv, xstrdup(flags[i]));
    words_add(&argv, xstrdup(program));
    words_add(&argv, xstrdup(launch->file));
    trp_status status = ask_pkg_config(launch, "--cflags", "--libs", &argv);
    if (status == TRP_OK)
        status = ask_pkg_config(launch, "--variable=libdir", NULL, &libdir);
    if (status == TRP_OK) {
        for (size_t i = 0; i < libdir.count; i++)
            words_add(&argv, xasprintf("-Wl,-rpath,%s", libdir.words[i]));
        status = run(launch, argv.words, NULL);
    }
    words_cleanup(&libdir);
    words_cleanup(&argv);
    return status;
}

/* ---- becoming the program ---------------------------------------------------------------- */

/* Compiles into a directory of its own and gives the open, already removed program. */
static trp_status compile_and_open(const struct launch *launch, int *fd)
{
    const char *base = getenv("TMPDIR");
    char *dir = xasprintf("%s/troupe-launch-XXXXXX", base && base[0] ? base : "/tmp");
    if (!mkdtemp(dir)) {
        trp_status status = trp_fail(TRP_INTERNAL, "%s: %s", dir, strerror(errno));
        free(dir);
        return status;
    }
    char *program = xasprintf("%s/program", dir);
    trp_status status = compile(launch, program);
    if (status == TRP_OK) {
        *fd = open(program, O_RDONLY | O_CLOEXEC);
        if (*fd < 0)
            status = trp_fail(TRP_INTERNAL, "%s: %s", program, strerror(errno));
    }
    unlink(program);
    rmdir(dir);
    free(program);
    free(dir);
    return status;
}

static trp_status make_program(struct launch *launch, int *fd)
{
    static const int held[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof held / sizeof held[0]; i++)
        sigaddset(&set, held[i]);
    sigprocmask(SIG_BLOCK, &set, &launch->unheld);
    trp_status status = compile_and_open(launch, fd);
    sigprocmask(SIG_SETMASK, &launch->unheld, NULL);
    return status;
}

/* Only returns when that fails. argv[0] is what a user types to start the same program again. */
static trp_status become(const struct launch *launch, int fd, int argc, char **argv)
{
    char **program_argv = xcalloc((size_t)argc + 2, sizeof *program_argv);
    char *tool = shell_word(program_invocation_name), *file = shell_word(launch->file);
    program_argv[0] = xasprintf("%s launch %s --", tool, file);
    for (int i = 0; i < argc; i++)
        program_argv[i + 1] = argv[i];
    fexecve(fd, program_argv, environ);
    int error = errno;
    free(program_argv[0]);
    free(program_argv);
    free(tool);
    free(file);
    return trp_fail(TRP_INTERNAL, "the program cannot be started: %s", strerror(error));
}

static int separator_missing(const struct cli_call *call, const char *text)
{
    char *tool = shell_word(program_invocation_name), *file = shell_word(call->words[0]);
    char *word = shell_word(text);
    int status = cli_wrong(call->name, "'%s' goes to the program, after --: %s launch %s -- %s",
                           text, tool, file, word);
    free(word);
    free(file);
    free(tool);
    return status;
}

int launch_command(const struct cli_call *call)
{
    struct launch launch = {.file = call->words[0]};
    char **argv = call->words + 2;
    int fd = -1, argc = (int)call->word_count - 2;
    if (call->word_count > 1 && strcmp(call->words[1], "--") != 0)
        return separator_missing(call, call->words[1]);
    trp_status status = TRP_OK;
    if (access(launch.file, R_OK) != 0)
        status = trp_fail(TRP_FAILED_PRECONDITION, "%s: %s", launch.file, strerror(errno));
    if (status == TRP_OK)
        status = find_library(&launch);
    if (status == TRP_OK)
        status = make_program(&launch, &fd);
    if (status == TRP_OK)
        status = become(&launch, fd, argc > 0 ? argc : 0, argv);
    free(launch.pc_dir);
    free(launch.prefix);
    cli_failed(call->name, status);
    return EXIT_FAILED;
}
