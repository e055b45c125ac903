/* A process per node: the same executable again, told by its arguments which node it is.
 *
 * A child is spawned, never forked: gRPC and LMDB may not be forked, and posix_spawn costs the same
 * however large the launcher is. It gets a process group of its own, no signals ignored, none
 * blocked but those of a terminal until it has begun, and exactly four descriptors. Its end is seen
 * through waitid() and nothing else, so no crash goes unnoticed; what it left behind in its process
 * group is killed before it is reaped, as the group's number is safe until then. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/file.h"
#include "child.h"
#include "devices.h"
#include "lines.h"
#include "run.h"

enum {
    READ_BYTES = 64 * 1024,
    DRAIN_READS_MAX = 64, /* 4 MiB; a pipe holds 64 KiB */
};

static const int64_t PARTIAL_LINE_NS = 200 * 1000000;

/* One of the two pipes of a process. */
struct pipe {
    struct watch watch;
    struct process *process;
    struct lines lines;
    int fd; /* ours to print on: 1 or 2 */
};

struct process {
    struct run *run;
    struct run_node *node;
    pid_t pid; /* 0: not running */
    struct process_link *link;
    struct pipe pipes[2];
    int log_fd;
    struct buffer log; /* whole lines on their way to the log file */
    bool log_failed;
};

struct processes {
    struct process *processes;
    uint32_t count;
};

static struct process *process_of(struct run *run, const struct run_node *node)
{
    struct processes *processes = run->state;
    return &processes->processes[node->number];
}

/* ---- output of a process ----------------------------------------------------------------- */

static void emit_line(void *arg, const char *line, size_t size)
{
    struct pipe *pipe = arg;
    struct process *process = pipe->process;
    buffer_append(&process->log, (trp_bytes){(const uint8_t *)line, size});
    buffer_append(&process->log, (trp_bytes){(const uint8_t *)"\n", 1});
    run_node_printed(process->run, process->node, pipe->fd, line, size);
}

/* Where lines are lost, as on a full disk, it says so once there is room again. */
static void write_log(struct process *process)
{
    static const char lost[] = "\n[lines of this log are lost]\n";
    int error = process->log_failed ? file_write(process->log_fd, lost, sizeof lost - 1) : 0;
    if (error == 0)
        error = file_write(process->log_fd, process->log.data, process->log.size);
    if (error != 0 && !process->log_failed)
        output_print(process->run->output, STDERR_FILENO, "%s: lines of its log are lost: %s",
                     process->node->name, file_errno_words(error));
    process->log_failed = error != 0;
    buffer_clear(&process->log);
    if (error == 0)
        run_dir_bound_log(process->run->dir.path, process->node->group, process->node->index,
                          process->log_fd);
}

/* True when there may be more. */
static bool read_pipe(struct pipe *pipe)
{
    char bytes[READ_BYTES];
    if (pipe->watch.fd < 0)
        return false;
    ssize_t size = read(pipe->watch.fd, bytes, sizeof bytes);
    if (size > 0) {
        lines_feed(&pipe->lines, bytes, (size_t)size, clock_now_ns(&clock_monotonic), emit_line,
                   pipe);
        write_log(pipe->process);
        return true;
    }
    if (size < 0 && (errno == EAGAIN || errno == EINTR))
        return errno == EINTR;
    loop_remove(&pipe->process->run->loop, &pipe->watch);
    return false;
}

static void pipe_ready(struct watch *watch)
{
    read_pipe(watch->owner);
}

static void flush_lines(struct process *process, int64_t age_ns)
{
    for (int i = 0; i < 2; i++)
        lines_flush(&process->pipes[i].lines, clock_now_ns(&clock_monotonic), age_ns, emit_line,
                    &process->pipes[i]);
    write_log(process);
}

/* ---- spawning ---------------------------------------------------------------------------- */

/* What a child gets; our ends are in struct process. */
struct child_ends {
    int control, out, err, null;
};

static trp_status open_pipe(struct pipe *pipe, int *child_end)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "pipe: %s", strerror(errno));
    *child_end = fds[1];
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
    pipe->watch = (struct watch){fds[0], pipe_ready, pipe, 0};
    trp_status status = loop_add(&pipe->process->run->loop, &pipe->watch);
    if (status != TRP_OK)
        loop_remove(&pipe->process->run->loop, &pipe->watch);
    return status;
}

static trp_status open_ends(struct process *process, struct child_ends *ends)
{
    TRP_TRY(run_dir_open_log(process->run->dir.path, process->node->group, process->node->index,
                             &process->log_fd));
    int pair[2];
    TRP_TRY(control_pair(pair));
    ends->control = pair[1];
    TRP_TRY(link_create(&process->link, process->run, pair[0], process->node->number, 1));
    TRP_TRY(open_pipe(&process->pipes[0], &ends->out));
    TRP_TRY(open_pipe(&process->pipes[1], &ends->err));
    ends->null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (ends->null < 0)
        return trp_fail(TRP_INTERNAL, "/dev/null: %s", strerror(errno));
    return TRP_OK;
}

static void close_ends(struct child_ends *ends)
{
    int fds[] = {ends->control, ends->out, ends->err, ends->null};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

enum { CHILD_ARGUMENTS = 16 };

/* The child's arguments: NULL-ended; the strings from 1 to *owned are to be freed. */
static char **child_arguments(const struct process *process, size_t *owned)
{
    const struct run *run = process->run;
    const struct launch_options *options = run->options;
    size_t count = 0;
    char **argv = xcalloc(CHILD_ARGUMENTS + (size_t)options->build_argc, sizeof *argv);
    argv[count++] = (char *)(uintptr_t)options->program;
    argv[count++] = xasprintf("--node=%s", process->node->name);
    argv[count++] = xasprintf("--parent=%d", getpid());
    argv[count++] = xasprintf("--run-dir=%s", run->dir.path);
    argv[count++] = xasprintf("--socket-dir=%s", run->dir.socket_dir);
    argv[count++] = xasprintf("--seed=%" PRIu64, run_node_seed(run, process->node));
    argv[count++] = xasprintf("--log-level=%s", log_level_word(options->log_level));
    if (options->resume || process->node->restarts > 0)
        argv[count++] = xstrdup("--resume");
    argv[count++] = xasprintf("--config=%s/" RUN_CONFIG, run->dir.path);
    argv[count++] = xstrdup("--");
    *owned = count;
    for (int i = 1; i < options->build_argc; i++)
        argv[count++] = options->build_argv[i];
    return argv;
}

#define VISIBLE "CUDA_VISIBLE_DEVICES"

/* Ours, with the GPUs of a node that has some of its own in `visible`, "NAME=VALUE" (NULL: it has
 * not). Caller frees the array alone. */
static char **child_environment(char *visible)
{
    size_t count = 0, kept = 0;
    while (environ[count])
        count++;
    char **copy = xcalloc(count + 2, sizeof *copy);
    for (size_t i = 0; i < count; i++)
        if (!visible || strncmp(environ[i], VISIBLE "=", strlen(VISIBLE "=")) != 0)
            copy[kept++] = environ[i];
    copy[kept] = visible;
    return copy;
}

static int spawn(pid_t *pid, const struct child_ends *ends, char **argv, char **environment)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t held, all;
    child_held_signals(&held);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    /* The launcher has 0, 1, 2 open, so no target of a dup2() is a source of a later one. */
    posix_spawn_file_actions_adddup2(&actions, ends->null, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends->out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends->err, STDERR_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends->control, CHILD_CONTROL_FD);
    posix_spawn_file_actions_addclosefrom_np(&actions, CHILD_CONTROL_FD + 1);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                              POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setsigmask(&attributes, &held);
    posix_spawnattr_setsigdefault(&attributes, &all);
    int rc = posix_spawn(pid, "/proc/self/exe", &actions, &attributes, argv, environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return rc;
}

static trp_status spawn_node(struct process *process, const struct child_ends *ends)
{
    size_t owned;
    const struct run_node *node = process->node;
    char **argv = child_arguments(process, &owned);
    char *gpus = devices_visible(node->group, node->index, getenv(VISIBLE));
    char *visible = gpus ? xasprintf(VISIBLE "=%s", gpus) : NULL;
    char **environment = child_environment(visible);
    int rc = spawn(&process->pid, ends, argv, environment);
    for (size_t i = 1; i < owned; i++)
        free(argv[i]);
    free(argv);
    free(environment);
    free(visible);
    free(gpus);
    if (rc == 0)
        return TRP_OK;
    process->pid = 0;
    return trp_fail(TRP_RESOURCE_EXHAUSTED, "%s cannot be started: %s", node->name, strerror(rc));
}

static trp_status start_process(struct process *process)
{
    struct child_ends ends = {-1, -1, -1, -1};
    trp_status status = open_ends(process, &ends);
    if (status == TRP_OK)
        status = spawn_node(process, &ends);
    close_ends(&ends);
    if (status == TRP_OK)
        run_node_started(process->run, process->node, process->pid);
    return status;
}

static trp_status processes_start(struct run *run)
{
    struct processes *processes = xcalloc(1, sizeof *processes);
    run->state = processes;
    processes->count = run->program->node_count;
    processes->processes = xcalloc(processes->count, sizeof *processes->processes);
    for (uint32_t i = 0; i < processes->count; i++) {
        struct process *process = &processes->processes[i];
        process->run = run;
        process->node = &run->nodes[i];
        process->log_fd = -1;
        for (int k = 0; k < 2; k++)
            process->pipes[k] =
                (struct pipe){.watch.fd = -1, .process = process, .fd = STDOUT_FILENO + k};
    }
    for (uint32_t i = 0; i < processes->count; i++)
        TRP_TRY(start_process(&processes->processes[i]));
    return TRP_OK;
}

/* In place of one that has ended. */
static trp_status processes_restart(struct run *run, struct run_node *node)
{
    struct process *process = process_of(run, node);
    link_destroy(process->link);
    process->link = NULL;
    fd_close(process->log_fd);
    process->log_fd = -1;
    process->log_failed = false;
    return start_process(process);
}

/* ---- the end of a process ---------------------------------------------------------------- */

/* Words for an exit that is none we asked for; NULL: it is as it should be. Caller frees. */
static char *describe_exit(const struct process *process, int status)
{
    const struct run_node *node = process->node;
    bool asked = node->stop_requested || process->run->stop_decided;
    int signal = status - 128;
    if (signal == SIGTERM || signal == SIGINT || signal == SIGHUP)
        return asked ? NULL
                     : xasprintf("it was told to stop by signal %d (%s) from outside", signal,
                                 strsignal(signal));
    if (status != 0)
        return xasprintf("it exited with status %d", status);
    /* A node of one's own may end when its body has; the others end with the program. */
    if (asked || node->group->kind == NODE_OWN)
        return NULL;
    return xstrdup("it ended though the program goes on");
}

/* Words for how a process ended; NULL: as it should. Caller frees. */
static char *describe_end(const struct process *process, const siginfo_t *info)
{
    const struct run_node *node = process->node;
    if (node->killed)
        return NULL; /* by us, who said why: stop.c, gangs.c */
    if (info->si_code == CLD_EXITED)
        return describe_exit(process, info->si_status);
    if (info->si_status == SIGTERM && node->stop_requested)
        return NULL; /* before it could catch it */
    return xasprintf("it was killed by signal %d (%s)%s", info->si_status,
                     strsignal(info->si_status),
                     info->si_code == CLD_DUMPED ? ", core dumped" : "");
}

static void end_process(struct process *process, const siginfo_t *info)
{
    kill(-process->pid, SIGKILL);
    siginfo_t reaped;
    waitid(P_PID, (id_t)process->pid, &reaped, WEXITED | WNOHANG);
    process->pid = 0;
    link_drain(process->link);
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < DRAIN_READS_MAX && read_pipe(&process->pipes[i]); k++)
            ;
    flush_lines(process, 0);
    for (int i = 0; i < 2; i++)
        loop_remove(&process->run->loop, &process->pipes[i].watch);
    loop_remove(&process->run->loop, &process->link->watch);
    char *failure = describe_end(process, info);
    run_node_ended(process->run, process->node, failure);
    free(failure);
}

static void processes_tick(struct run *run)
{
    struct processes *processes = run->state;
    for (uint32_t i = 0; i < processes->count; i++) {
        struct process *process = &processes->processes[i];
        if (process->pid == 0)
            continue;
        flush_lines(process, PARTIAL_LINE_NS);
        if (!run->child_ended)
            continue;
        siginfo_t info = {.si_pid = 0};
        int rc = waitid(P_PID, (id_t)process->pid, &info, WEXITED | WNOHANG | WNOWAIT);
        if (rc == 0 && info.si_pid == process->pid)
            end_process(process, &info);
    }
    run->child_ended = false;
}

/* ---- stop -------------------------------------------------------------------------------- */

static void processes_stop(struct run *run, struct run_node *node)
{
    const struct process *process = process_of(run, node);
    if (process->pid > 0)
        kill(process->pid, SIGTERM);
}

static void processes_kill(struct run *run, struct run_node *node)
{
    const struct process *process = process_of(run, node);
    if (process->pid > 0)
        kill(-process->pid, SIGKILL);
}

static void processes_suspend(struct run *run, bool on)
{
    const struct processes *processes = run->state;
    for (uint32_t i = 0; i < processes->count; i++)
        if (processes->processes[i].pid > 0)
            kill(-processes->processes[i].pid, on ? SIGSTOP : SIGCONT);
}

static void processes_finish(struct run *run)
{
    struct processes *processes = run->state;
    for (uint32_t i = 0; i < processes->count; i++) {
        struct process *process = &processes->processes[i];
        for (int k = 0; k < 2; k++) {
            loop_remove(&run->loop, &process->pipes[k].watch);
            buffer_cleanup(&process->pipes[k].lines.partial);
        }
        if (process->log_fd >= 0)
            close(process->log_fd);
        buffer_cleanup(&process->log);
    }
    free(processes->processes);
    free(processes);
    run->state = NULL;
}

const struct launch_target processes_target = {
    .start = processes_start,
    .stop = processes_stop,
    .kill = processes_kill,
    .suspend = processes_suspend,
    .restart = processes_restart,
    .tick = processes_tick,
    .finish = processes_finish,
};
