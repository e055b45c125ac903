/* The launcher: starts the nodes, passes on what they say, and ends when the last one has ended. It
 * is one thread around an event loop and never waits for a node, a terminal or a network; it uses
 * no gRPC, so it can be trusted to be there when something else is not. */
#include "run.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/buffer.h"
#include "core/log.h"
#include "core/option_table.h"
#include "core/printable.h"
#include "core/status.h"
#include "core/words.h"
#include "core/limits.h"
#include "devices.h"
#include "limits.h"
#include "places.h"
#include "settings.h"

enum { TICK_MS = 20, LOOP_WAIT_MS = 20, PROGRESS_EVERY_MS = 1000, OUTPUT_DRAIN_MS = 2000 };

struct run_node *run_node(struct run *run, const struct node_group *group, uint32_t index)
{
    assert(index < group->count);
    return &run->nodes[group->first + index];
}

/* ---- what happens to nodes --------------------------------------------------------------- */

/* A log tells by itself what ran, where it served and how it ended: what the launcher knows of a
 * node is written there, and not shown. */
static void TRP_PRINTF(4, 5) note(const struct run *run, const struct run_node *node,
                                  trp_log_level level, const char *format, ...)
{
    char text[LOG_LINE_BYTES_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    int fd;
    if (run_dir_open_log(run->dir.path, node->group, node->index, &fd) != TRP_OK)
        return; /* whoever keeps the log says so */
    log_to(fd, level, node->name, "%s", text);
    close(fd);
}

void run_node_started(struct run *run, struct run_node *node, pid_t pid)
{
    node->running = true;
    node->started_ns = clock_now_ns(&clock_monotonic);
    run->running++;
    const char *env = node->group->env, *device = devices_name(node->group);
    char *gpus = devices_visible(node->group, node->index, NULL);
    note(run, node, TRP_INFO, "started kind=%s as=%s pid=%d%s%s%s%s%s%s",
         node_kind_word(node->group->kind), launch_mode_word(run->options->mode), (int)pid,
         env ? " env=" : "", env ? env : "", device ? " device=" : "", device ? device : "",
         gpus ? " gpus=" : "", gpus ? gpus : "");
    free(gpus);
}

/* `addresses` is what scripts read to find the servers of a run. */
static void write_addresses(struct run *run)
{
    struct buffer text = {0};
    for (uint32_t i = 0; i < run->program->node_count; i++) {
        const struct run_node *node = &run->nodes[i];
        if (!node->address || !node->running || strcmp(node->address, IN_PROCESS) == 0)
            continue;
        char *line = xasprintf("%s%s %s", text.size ? "\n" : "", node->name, node->address);
        buffer_append(&text, text_bytes(line));
        free(line);
    }
    bool written = run_dir_write(&run->dir, "addresses", buffer_text(&text)) == TRP_OK;
    if (!written && !run->unlisted)
        output_print(run->output, STDERR_FILENO, "%s: servers are not listed: %s",
                     run->program->name, trp_last_error());
    run->unlisted = !written;
    buffer_cleanup(&text);
}

/* How a user calls the command-line tool, as a shell takes it: as in "troupe launch FILE --", which
 * is argv[0] of what that started, or the one beside the program, as in a build tree, or the
 * installed one. Caller frees. */
static char *tool_path(const struct run *run)
{
    const char *program = run->options->program;
    const char *launch = launch_options_by_tool(run->options) ? strstr(program, " launch ") : NULL;
    if (launch)
        return xasprintf("%.*s", (int)(launch - program), program);
    const char *slash = strrchr(program, '/');
    char *beside = xasprintf("%.*stroupe", slash ? (int)(slash - program + 1) : 0, program);
    char *tool = shell_word(slash && access(beside, X_OK) == 0 ? beside : "troupe");
    free(beside);
    return tool;
}

void run_node_serves(struct run *run, struct run_node *node, const char *address)
{
    free(node->address);
    node->address = xstrdup(address);
    node->serves_ns = clock_now_ns(&clock_monotonic);
    write_addresses(run);
    links_update(run);
    note(run, node, TRP_INFO, "serves address=%s", address);
    if (node->group->kind != NODE_REPLAY)
        return;
    char *tool = tool_path(run), *target = shell_word(address);
    output_print(run->output, STDOUT_FILENO, "%s serves; look inside: %s replay ls %s", node->name,
                 tool, target);
    free(target);
    free(tool);
}

void run_node_printed(struct run *run, struct run_node *node, int fd, const char *line, size_t size)
{
    char *kept = node->last_lines[node->line_count++ % LAST_LINES_MAX];
    size_t length = size < LAST_LINE_BYTES_MAX - 1 ? size : LAST_LINE_BYTES_MAX - 1;
    memcpy(kept, line, length);
    kept[length] = '\0';
    trp_log_level level;
    bool is_logged = fd == STDERR_FILENO && log_line_level(line, size, &level);
    if (is_logged && level < run->options->shown_level)
        return;
    /* Every user of a node that failed complains of it in much the same words. */
    if (fd == STDERR_FILENO && run_failed_use(run, node))
        return;
    char prefix[NODE_NAME_BYTES_MAX + 2];
    snprintf(prefix, sizeof prefix, "%s:", node->name);
    output_line(run->output, fd, prefix, line, size);
}

void run_node_ended(struct run *run, struct run_node *node, const char *failure)
{
    if (!node->running)
        return;
    node->running = false;
    run->running--;
    if (failure)
        run_node_failed(run, node, TRP_INTERNAL, failure);
    if (node->failed)
        note(run, node, TRP_ERROR, "failed reason=%s", node->failure);
    else
        note(run, node, TRP_INFO, "ended");
    run_node_is_gone(run, node);
}

void run_node_is_gone(struct run *run, struct run_node *node)
{
    bool fails = node->failed && !gangs_go_on(run, node);
    write_addresses(run);
    links_update(run);
    if (!fails)
        return;
    const struct run_node *first = run_first_failure(run); /* its process may still be there */
    if (run->phase == RUNNING && run->running + run->paused > 0)
        output_print(run->output, STDERR_FILENO,
                     "%s: %s failed: %s: stopping the others; what they say of it is in %s/logs",
                     run->program->name, first->name, first->failure, run->dir.shown_path);
    char *reason = xasprintf("%s failed", first->name);
    run_stop(run, false, reason);
    free(reason);
}

/* ---- signals ----------------------------------------------------------------------------- */

/* A suspended run is suspended whole: nodes that went on alone would be held back by pipes that
 * nobody reads. Returns when it is continued; the time between does not count. */
static void suspend(struct run *run)
{
    int64_t since_ns = clock_now_ns(&clock_monotonic);
    if (run->target->suspend && run->state)
        run->target->suspend(run, true);
    raise(SIGSTOP);
    if (run->target->suspend && run->state)
        run->target->suspend(run, false);
    int64_t gone_ns = clock_now_ns(&clock_monotonic) - since_ns;
    run->started_ns += gone_ns;
    run->continued_ns = since_ns + gone_ns;
    run->level_deadline = deadline_put_off(run->level_deadline, gone_ns);
    run->stop_deadline = deadline_put_off(run->stop_deadline, gone_ns);
    gangs_put_off(run, gone_ns);
}

static void run_signals_ready(struct watch *watch)
{
    struct run *run = watch->owner;
    struct signalfd_siginfo info;
    if (read(watch->fd, &info, sizeof info) != sizeof info)
        return;
    if (info.ssi_signo == SIGCHLD)
        run->child_ended = true;
    else if (info.ssi_signo == SIGTSTP)
        suspend(run);
    else
        run_stop_by_signal(run, (int)info.ssi_signo);
}

static bool is_ignored(int signal)
{
    struct sigaction action;
    return sigaction(signal, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

/* From here on they wait for watch_signals(). Those that were ignored before stay so (nohup, a
 * shell's background job). */
static sigset_t hold_signals(void)
{
    static const int wanted[] = {SIGINT, SIGHUP, SIGTERM, SIGQUIT, SIGTSTP};
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        if (wanted[i] == SIGTERM || !is_ignored(wanted[i]))
            sigaddset(&set, wanted[i]);
    /* An ignored SIGCHLD would have the kernel reap our children before we ask how they ended. */
    signal(SIGCHLD, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is a full disk */
    sigprocmask(SIG_BLOCK, &set, NULL);
    return set;
}

static trp_status watch_signals(struct run *run)
{
    sigset_t set = hold_signals();
    run->signals =
        (struct watch){signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK), run_signals_ready, run, 0};
    if (run->signals.fd < 0)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "signalfd: %s", strerror(errno));
    return loop_add(&run->loop, &run->signals);
}

/* ---- descriptors ------------------------------------------------------------------------- */

/* Standard descriptors that are closed would be taken by the next open(). */
static void fill_standard_descriptors(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

/* Of learners that are threads of this process: each has two connections to each other one, with
 * both ends here, and a few files beside them; twice in gaia, for those of a site. Learners of
 * other modes have none. */
static rlim_t count_connections(const trp_program *program)
{
    rlim_t ends = 0;
    for (size_t i = 0; i < program->group_count; i++) {
        const struct node_group *group = program->groups[i];
        uint32_t mode = group_is_gang(group) ? group->options.learner.mode : TRP_LEARNERS_SERVER;
        bool alone = mode == TRP_LEARNERS_SERVER || mode == TRP_LEARNERS_HOGWILD ||
                     mode == TRP_LEARNERS_DOGWILD;
        rlim_t each = alone ? 0 : 2 * (rlim_t)(group->count - 1) + 8;
        ends += group->count * each * (mode == TRP_LEARNERS_GAIA ? 2 : 1);
    }
    return ends;
}

/* Raises the limit of open files to what is allowed, for us and for the children, who inherit it.
 */
static trp_status raise_descriptor_limit(const struct run *run)
{
    /* Per process: a control socket, two pipes and a log file; while it is started two ends of each
     * pipe. Per thread: a log file. Besides: the standard three, loop, signals, lock, files,
     * libraries. */
    rlim_t need = 32 + 4 * (rlim_t)run->program->node_count;
    bool threads = run->options->mode == LAUNCH_THREADS;
    if (threads)
        need = 64 + (rlim_t)run->program->node_count + count_connections(run->program);
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return trp_fail(TRP_INTERNAL, "getrlimit: %s", strerror(errno));
    if (limit.rlim_max < need)
        return trp_fail(TRP_RESOURCE_EXHAUSTED,
                        "%u nodes need %llu open files in %s, and the hard limit is "
                        "%llu: raise it (ulimit -Hn)%s or start fewer nodes",
                        run->program->node_count, (unsigned long long)need,
                        threads ? "one process" : "the launcher",
                        (unsigned long long)limit.rlim_max,
                        threads ? ", start them as processes" : "");
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        return trp_fail(TRP_INTERNAL, "setrlimit: %s", strerror(errno));
    return TRP_OK;
}

/* ---- the run ----------------------------------------------------------------------------- */

static void check_time(struct run *run)
{
    double seconds = (double)(clock_now_ns(&clock_monotonic) - run->started_ns) / 1e9;
    if (run->options->max_seconds <= 0 || seconds < run->options->max_seconds)
        return;
    char reason[64];
    snprintf(reason, sizeof reason, "%g %s over", run->options->max_seconds,
             run->options->max_seconds == 1 ? "second is" : "seconds are");
    run_stop(run, true, reason);
}

static void tick(struct run *run)
{
    if (!run->child_ended && !deadline_passed(run->next_tick, &clock_monotonic))
        return;
    run->next_tick = deadline_in_ms(&clock_monotonic, TICK_MS);
    if (run->target->tick)
        run->target->tick(run);
    gangs_tick(run);
    restarts_tick(run);
    check_time(run);
    run_stop_tick(run);
    for (uint32_t i = 0; i < run->link_count; i++)
        if (run->links[i]->pending) {
            links_update(run);
            break;
        }
    if (!run->embedded && output_broken(run->output, STDOUT_FILENO) && run->signals_seen == 0)
        run_stop_by_signal(run, SIGPIPE);
    if (!deadline_passed(run->next_progress, &clock_monotonic))
        return;
    run_progress_tick(run);
    run->next_progress = deadline_in_ms(&clock_monotonic, PROGRESS_EVERY_MS);
}

void run_nodes(struct run *run)
{
    loop_turn(&run->loop, 0); /* a signal may have come before there is anything to stop */
    if (run->phase == RUNNING && run->target->start(run) != TRP_OK)
        run_fail(run, trp_last_error());
    links_update(run);
    run->next_progress = deadline_in_ms(&clock_monotonic, PROGRESS_EVERY_MS);
    while ((run->running > 0 || run->paused > 0) && !run->abandoned) {
        loop_turn(&run->loop, LOOP_WAIT_MS);
        tick(run);
    }
    run_stop_tick(run);
    run_progress_end(run);
}

/* A user who sets one expects that it does something. */
static void print_idle_options(const struct run *run)
{
    struct option_set *sets = option_sets_create(run->program);
    for (struct option_set *set = sets; set->name; set++)
        for (size_t i = 0; i < set->table->count; i++) {
            const trp_option *option = &set->table->options[i];
            if (!option_is_idle(set->table, option, set->options))
                continue;
            char *value = option_value(option, set->options), *needs = option_needs(option);
            output_print(run->output, STDERR_FILENO, "%s: nobody reads %s.%s=%s; it needs %s",
                         run->program->name, set->name, option->name, value, needs);
            free(needs);
            free(value);
        }
    option_sets_destroy(sets);
}

/* Less comes of these than one might expect. */
static void print_remarks(const struct run *run)
{
    char *reason = devices_auto_reason(run->program);
    if (reason)
        output_print(run->output, STDERR_FILENO, "%s: device auto is the CPU: %s",
                     run->program->name, reason);
    free(reason);
    for (size_t i = 0; i < run->program->group_count; i++) {
        char *remark = learner_remark(run->program->groups[i]);
        if (remark)
            output_print(run->output, STDERR_FILENO, "%s: %s", run->program->name, remark);
        free(remark);
    }
    print_idle_options(run);
}

static void print_start(const struct run *run)
{
    output_print(run->output, STDOUT_FILENO, "%s: %u node%s as %s, seed %llu%s, in %s",
                 run->program->name, run->program->node_count, plural(run->program->node_count),
                 launch_mode_word(run->options->mode), (unsigned long long)run->options->seed,
                 run->options->resume ? ", resumed" : "", run->dir.shown_path);
    print_remarks(run);
}

/* Every stream of a run is drawn from its seed, so a life that began with it again would explore
 * as the one before it did, and number its items alike. Two resumes of one copy are alike. */
static uint64_t seed_of_life(uint64_t seed, uint64_t life)
{
    if (life == 0)
        return seed;
    trp_rng rng;
    trp_rng_init(&rng, seed, ~life); /* far from the streams that nodes use */
    return trp_rng_u64(&rng);
}

uint64_t run_node_seed(const struct run *run, const struct run_node *node)
{
    uint64_t seed = run->seed;
    for (uint32_t i = 0; i < node->restarts; i++)
        seed = seed_of_life(seed, UINT64_MAX / 2 + i); /* no run is resumed so often */
    return seed;
}

/* The user's own function may take minutes: all that can be refused is refused before it, and
 * signals end it, which hold_signals() would keep from it. */
static trp_status prepare_by_user(const struct run *run)
{
    if (!run->program->prepare || run->embedded)
        return TRP_OK;
    TRP_TRY(run_dir_check(run->options, run->program));
    TRP_TRY(run->program->prepare());
    log_set_shown(run->options->shown_level); /* a trp_run() in it has its own */
    return TRP_OK;
}

trp_status run_prepare(struct run *run, int argc, char **argv)
{
    if (!run->embedded)
        fill_standard_descriptors();
    TRP_TRY(gangs_check(run));
    TRP_TRY(devices_are_there(run->program));
    TRP_TRY(addresses_are_right(run->program));
    TRP_TRY(raise_descriptor_limit(run));
    TRP_TRY(prepare_by_user(run)); /* it may make files that nodes read */
    TRP_TRY(places_are_there(run->program, run->options->resume));
    if (!run->options->seed_set)
        run->options->seed = trp_rng_entropy() >> 32; /* short enough to type */
    /* A new directory is that of a run that can be resumed, or is not there; who resumes may wait
     * for nodes of the life before, and be tired of it. */
    if (!run->embedded && !run->options->resume)
        hold_signals();
    TRP_TRY(run_dir_open(&run->dir, run->options, run->program));
    if (!run->embedded || !run->options->run_dir) /* who names it may move it afterwards */
        run_dir_point_latest(&run->dir);
    run->seed = seed_of_life(run->options->seed, run->dir.life);
    TRP_TRY(run_dir_write_config(&run->dir, run->options, run->program, argc, argv));
    TRP_TRY(loop_init(&run->loop));
    if (!run->embedded)
        TRP_TRY(watch_signals(run));
    TRP_TRY(output_create(&run->output, run->embedded && !run->options->verbose));
    run->nodes = xcalloc(run->program->node_count, sizeof *run->nodes);
    for (uint32_t i = 0; i < run->program->node_count; i++) {
        struct run_node *node = &run->nodes[i];
        node->number = i;
        node->group = program_node(run->program, i, &node->index);
        snprintf(node->name, sizeof node->name, "%s/%u", node->group->name, node->index);
    }
    TRP_TRY(gangs_create(run));
    run->started_ns = clock_now_ns(&clock_monotonic);
    run->progress = run_progress_create(run);
    return TRP_OK;
}

void run_cleanup(struct run *run)
{
    if (run->state)
        run->target->finish(run);
    while (run->link_count > 0)
        link_destroy(run->links[run->link_count - 1]);
    gangs_destroy(run);
    for (uint32_t i = 0; run->nodes && i < run->program->node_count; i++) {
        free(run->nodes[i].address);
        free(run->nodes[i].failure);
        free(run->nodes[i].excuse);
    }
    run_progress_destroy(run->progress);
    output_destroy(run->output, OUTPUT_DRAIN_MS);
    loop_remove(&run->loop, &run->signals);
    loop_cleanup(&run->loop);
    run_dir_close(&run->dir);
    free(run->nodes);
    free(run->links);
    free(run->reason);
    free(run->error);
}

void run_init(struct run *run, trp_program *program, struct launch_options *options)
{
    *run = (struct run){
        .program = program,
        .options = options,
        .target = options->mode == LAUNCH_THREADS ? &threads_target : &processes_target,
        .loop.epoll_fd = -1,
        .signals.fd = -1,
        .dir.lock_fd = -1,
    };
}

void run_abandon(struct run *run, int exit_status)
{
    output_destroy(run->output, OUTPUT_DRAIN_MS);
    _exit(exit_status);
}

int run_program(trp_program *program, struct launch_options *options, int argc, char **argv)
{
    struct run run;
    run_init(&run, program, options);
    int exit_status = PROGRAM_REFUSED;
    if (run_prepare(&run, argc, argv) == TRP_OK) {
        print_start(&run);
        run_nodes(&run);
        if (run.abandoned)
            log_set_shown(LOG_SHOWS_NONE); /* threads that go on have logs; the last line is ours */
        exit_status = summary_print(&run);
    } else {
        print_text(stderr, "%s: %s\n", program->name, trp_last_error());
    }
    if (run.abandoned)
        run_abandon(&run, exit_status);
    run_cleanup(&run);
    return exit_status;
}
