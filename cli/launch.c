/* `troupe launch FILE... -- ARGS`: compiles a launch file and becomes the program. Of a .proto file
 * protoc-c makes code in the directory where everything is made; .c files find its header there.
 *
 * The compiler gets its flags from pkg-config, which is pointed at the library that belongs to this
 * very executable, installed or in a build tree. The program is removed before it runs: the open
 * file is enough, also for its children, which are started from /proc/self/exe. So nothing is left
 * behind, whatever ends it, and nothing stale can be run: signals wait until what the compiler made
 * is removed, and the compiler, which does not wait, ends at once. */
#include "cli.h"

#include <ctype.h>
#include <dirent.h>
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
    char *const *files; /* .c and .proto */
    size_t file_count;
    char *dir;       /* where everything is made */
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
            words_add(words, xstrdup(buffer_text(&word)));
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
            buffer_append(&out, text_bytes("\\"));
        buffer_append(&out, (trp_bytes){(const uint8_t *)text, 1});
    }
    return buffer_text(&out);
}

/* Runs it with the library's directory before all others; the program gets the user's list. */
static trp_status run_pkg_config(const struct launch *launch, char **argv, struct buffer *out)
{
    static const char name[] = "PKG_CONFIG_PATH";
    char *before = getenv(name) ? xstrdup(getenv(name)) : NULL;
    char *search = xasprintf("%s%s%s", launch->pc_dir, before ? ":" : "", before ? before : "");
    setenv(name, search, 1);
    trp_status status = run(launch, argv, out);
    if (before)
        setenv(name, before, 1);
    else
        unsetenv(name);
    free(search);
    free(before);
    return status;
}

/* Appends what pkg-config prints for troupe with this flag. */
static trp_status ask_pkg_config(const struct launch *launch, const char *flag, struct words *words)
{
    struct words argv = {0};
    struct buffer out = {0};
    words_add(&argv, xstrdup("pkg-config"));
    if (launch->prefix) {
        char *prefix = escape_blanks(launch->prefix);
        words_add(&argv, xasprintf("--define-variable=prefix=%s", prefix));
        free(prefix);
    }
    words_add(&argv, xstrdup(flag));
    words_add(&argv, xstrdup("troupe"));
    trp_status status = run_pkg_config(launch, argv.words, &out);
    if (status == TRP_OK)
        words_split(words, buffer_text(&out));
    buffer_cleanup(&out);
    words_cleanup(&argv);
    return status;
}

static bool ends_with(const char *text, const char *end)
{
    size_t size = strlen(text), end_size = strlen(end);
    return size > end_size && strcmp(text + size - end_size, end) == 0;
}

/* ---- the steps --------------------------------------------------------------------------- */

/* Runs the words, which it frees, and says of a failure which file and step it is of. */
static trp_status run_step(const struct launch *launch, struct words *argv, const char *file)
{
    trp_status status = run(launch, argv->words, NULL);
    if (status != TRP_OK)
        status = trp_fail(status, "%s: %s", file, trp_last_error());
    words_cleanup(argv);
    return status;
}

/* The path of the code that protoc-c makes of a file; caller frees. */
static char *generated_file(const struct launch *launch, const char *proto)
{
    const char *name = strrchr(proto, '/') ? strrchr(proto, '/') + 1 : proto;
    return xasprintf("%s/%.*s.pb-c.c", launch->dir, (int)(strlen(name) - strlen(".proto")), name);
}

static trp_status generate(const struct launch *launch, const char *proto)
{
    char *made = generated_file(launch, proto);
    bool twice = access(made, F_OK) == 0;
    free(made);
    if (twice)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: another .proto file has this name", proto);
    struct words argv = {0};
    const char *slash = strrchr(proto, '/');
    words_add(&argv, xstrdup("protoc-c"));
    words_add(&argv, xasprintf("--c_out=%s", launch->dir));
    words_add(&argv, slash ? xasprintf("-I%.*s/", (int)(slash - proto), proto) : xstrdup("-I."));
    words_add(&argv, xstrdup(proto));
    return run_step(launch, &argv, proto);
}

/* The compiler, and what every one of its commands begins with. */
static void begin_compiler(struct words *argv)
{
    const char *compiler = getenv("CC");
    words_split(argv, compiler && compiler[0] ? compiler : "cc");
    static const char *const flags[] = {"-std=gnu11", "-O2", "-g", "-Wall"};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        words_add(argv, xstrdup(flags[i]));
}

static char *object_file(const struct launch *launch, size_t index)
{
    return xasprintf("%s/%zu.o", launch->dir, index);
}

static trp_status compile(const struct launch *launch, const struct words *cflags, size_t index)
{
    const char *file = launch->files[index];
    struct words argv = {0};
    begin_compiler(&argv);
    for (size_t i = 0; i < cflags->count; i++)
        words_add(&argv, xstrdup(cflags->words[i]));
    words_add(&argv, xasprintf("-I%s", launch->dir));
    words_add(&argv, xstrdup("-c"));
    words_add(&argv, xstrdup("-o"));
    words_add(&argv, object_file(launch, index));
    words_add(&argv, ends_with(file, ".proto") ? generated_file(launch, file) : xstrdup(file));
    return run_step(launch, &argv, file);
}

static trp_status compile_all(const struct launch *launch)
{
    struct words cflags = {0};
    trp_status status = ask_pkg_config(launch, "--cflags", &cflags);
    for (size_t i = 0; i < launch->file_count && status == TRP_OK; i++)
        if (ends_with(launch->files[i], ".proto"))
            status = generate(launch, launch->files[i]);
    for (size_t i = 0; i < launch->file_count && status == TRP_OK; i++)
        status = compile(launch, &cflags, i);
    words_cleanup(&cflags);
    return status;
}

static trp_status link_program(const struct launch *launch, const char *program)
{
    struct words argv = {0}, libdir = {0};
    begin_compiler(&argv);
    words_add(&argv, xstrdup("-o"));
    words_add(&argv, xstrdup(program));
    for (size_t i = 0; i < launch->file_count; i++)
        words_add(&argv, object_file(launch, i));
    trp_status status = ask_pkg_config(launch, "--libs", &argv);
    if (status == TRP_OK)
        status = ask_pkg_config(launch, "--variable=libdir", &libdir);
    for (size_t i = 0; i < libdir.count; i++)
        words_add(&argv, xasprintf("-Wl,-rpath,%s", libdir.words[i]));
    words_add(&argv, xstrdup("-pthread")); /* what many a launch file wants beside the library */
    words_add(&argv, xstrdup("-lm"));
    words_cleanup(&libdir);
    if (status == TRP_OK)
        return run_step(launch, &argv, "the program");
    words_cleanup(&argv);
    return status;
}

/* ---- becoming the program ---------------------------------------------------------------- */

/* With what is in it: nothing but files. */
static void remove_dir(const char *path)
{
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        unlinkat(dirfd(dir), entry->d_name, 0);
    if (dir)
        closedir(dir);
    rmdir(path);
}

/* Compiles into a directory of its own and gives the open, already removed program. */
static trp_status compile_and_open(struct launch *launch, int *fd)
{
    const char *base = getenv("TMPDIR");
    launch->dir = xasprintf("%s/troupe-launch-XXXXXX", base && base[0] ? base : "/tmp");
    if (!mkdtemp(launch->dir))
        return trp_fail(TRP_INTERNAL, "%s: %s", launch->dir, strerror(errno));
    char *program = xasprintf("%s/program", launch->dir);
    trp_status status = compile_all(launch);
    if (status == TRP_OK)
        status = link_program(launch, program);
    if (status == TRP_OK) {
        *fd = open(program, O_RDONLY | O_CLOEXEC);
        if (*fd < 0)
            status = trp_fail(TRP_INTERNAL, "%s: %s", program, strerror(errno));
    }
    remove_dir(launch->dir);
    free(program);
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

/* "troupe launch a.c b.proto --", as a shell takes it; caller frees. */
static char *command_words(char *const *files, size_t count)
{
    struct buffer out = {0};
    char *tool = shell_word(program_invocation_name);
    buffer_append(&out, text_bytes(tool));
    buffer_append(&out, text_bytes(" launch "));
    free(tool);
    for (size_t i = 0; i < count; i++) {
        char *file = shell_word(files[i]);
        buffer_append(&out, text_bytes(file));
        buffer_append(&out, text_bytes(" "));
        free(file);
    }
    buffer_append(&out, text_bytes("--"));
    return buffer_text(&out);
}

/* Only returns when that fails. argv[0] is what a user types to start the same program again. */
static trp_status become(const struct launch *launch, int fd, int argc, char **argv)
{
    char **program_argv = xcalloc((size_t)argc + 2, sizeof *program_argv);
    program_argv[0] = command_words(launch->files, launch->file_count);
    for (int i = 0; i < argc; i++)
        program_argv[i + 1] = argv[i];
    fexecve(fd, program_argv, environ);
    int error = errno;
    free(program_argv[0]);
    free(program_argv);
    return trp_fail(TRP_INTERNAL, "the program cannot be started: %s", strerror(error));
}

static bool is_source(const char *word)
{
    return ends_with(word, ".c") || ends_with(word, ".proto");
}

static int separator_missing(const struct cli_call *call, size_t files)
{
    char *command = command_words(call->words, files), *word = shell_word(call->words[files]);
    int status = cli_wrong(call->name, "'%s' goes to the program, after --: %s %s",
                           call->words[files], command, word);
    free(word);
    free(command);
    return status;
}

static bool has_c_file(const struct launch *launch)
{
    for (size_t i = 0; i < launch->file_count; i++)
        if (!ends_with(launch->files[i], ".proto"))
            return true;
    return false;
}

int launch_command(const struct cli_call *call)
{
    struct launch launch = {.files = call->words, .file_count = 1};
    while (launch.file_count < call->word_count && is_source(call->words[launch.file_count]))
        launch.file_count++;
    char **argv = call->words + launch.file_count + 1;
    int fd = -1, argc = (int)(call->word_count - launch.file_count) - 1;
    if (argc >= 0 && strcmp(argv[-1], "--") != 0)
        return separator_missing(call, launch.file_count);
    if (!is_source(launch.files[0]))
        return cli_wrong(call->name,
                         "'%s' is no .c or .proto file (a program is started by itself)",
                         launch.files[0]);
    if (!has_c_file(&launch))
        return cli_wrong(call->name, "FILE.c is missing: of a .proto file alone comes no program");
    for (size_t i = 0; i < launch.file_count; i++)
        if (access(launch.files[i], R_OK) != 0)
            return cli_wrong(call->name, "%s: %s", launch.files[i], strerror(errno));
    trp_status status = find_library(&launch);
    if (status == TRP_OK)
        status = make_program(&launch, &fd);
    if (status == TRP_OK)
        status = become(&launch, fd, argc > 0 ? argc : 0, argv);
    free(launch.dir);
    free(launch.pc_dir);
    free(launch.prefix);
    cli_failed(call->name, status);
    return EXIT_FAILED;
}
