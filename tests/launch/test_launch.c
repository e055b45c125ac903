/* The launcher with real processes: tests/launch/launch_program.c in the scenarios of its nodes. */
#include "launch_tools.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "launch/limits.h"

/* The program with --run-dir=run and a scenario; `flag` NULL: none. */
static int run_scenario(struct scene *scene, const char *scenario, const char *flag)
{
    const char *argv[] = {LAUNCH_PROGRAM, "--run-dir=run", flag ? flag : "--seed=1",
                          "--",           scenario,        NULL};
    return scene_run(scene, argv);
}

static void start_scenario(struct scene *scene, const char *scenario, const char *flag)
{
    const char *argv[] = {LAUNCH_PROGRAM, "--run-dir=run", flag ? flag : "--seed=1",
                          "--",           scenario,        NULL};
    scene_start(scene, argv);
}

/* The same as the foreground of a terminal of its own: what is written to the descriptor is typed
 * there. */
static int start_at_terminal(struct scene *scene, const char *scenario)
{
    int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(terminal >= 0);
    assert_int_equal(grantpt(terminal), 0);
    assert_int_equal(unlockpt(terminal), 0);
    const char *argv[] = {LAUNCH_PROGRAM, "--run-dir=run", "--", scenario, NULL};
    scene_start_at(scene, argv, ptsname(terminal));
    return terminal;
}

static void assert_events_in_order(const struct scene *scene, const char *const *events)
{
    char *text = scene_read(scene, "run/events");
    const char *at = text;
    for (; *events; events++) {
        at = strstr(at, *events);
        if (!at)
            fail_msg("'%s' is missing or too early in:\n%s", *events, text);
    }
    free(text);
}

/* The process id in the line of RUN_DIR/events that begins with `event`. */
static pid_t pid_of_event(const struct scene *scene, const char *event)
{
    char *text = scene_read(scene, "run/events");
    const char *at = strstr(text, event);
    assert_non_null(at);
    pid_t pid = (pid_t)strtol(at + strlen(event), NULL, 10);
    free(text);
    assert_true(pid > 1);
    return pid;
}

static void await_three_running(const struct scene *scene)
{
    scene_await(scene, "run/events", "base/0 runs");
    scene_await(scene, "run/events", "user/0 runs");
    scene_await(scene, "run/events", "user/1 runs");
}

/* ---- ends -------------------------------------------------------------------------------- */

static void a_program_ends_with_its_last_user(void **state)
{
    struct scene *scene = *state;
    assert_int_equal(run_scenario(scene, "done", NULL), 0);
    assert_file_contains(scene, "out", "launch_program: done: every node that no other uses");
    assert_file_contains(scene, "run/events", "base/0 stops");
}

static void threads_end_like_processes(void **state)
{
    struct scene *scene = *state;
    assert_int_equal(run_scenario(scene, "done", "--launch=threads"), 0);
    assert_file_contains(scene, "out", "launch_program: done: every node that no other uses");
    assert_file_contains(scene, "run/events", "base/0 stops");
}

static void a_node_can_stop_the_program(void **state)
{
    struct scene *scene = *state;
    assert_int_equal(run_scenario(scene, "asks", NULL), 0);
    assert_file_contains(scene, "out", "done: user/0: enough");
}

static void a_node_can_stop_the_program_as_failed(void **state)
{
    struct scene *scene = *state;
    assert_int_equal(run_scenario(scene, "asks_failure", NULL), 1);
    assert_last_line(scene, "err", "failed: user/0: it is no use");
}

static void users_stop_before_what_they_use(void **state)
{
    struct scene *scene = *state;
    static const char *const users_first[] = {"user/0 stops", "base/0 stops", NULL};
    assert_int_equal(run_scenario(scene, "asks", NULL), 0);
    assert_events_in_order(scene, users_first);
}

static void the_time_limit_ends_a_program(void **state)
{
    struct scene *scene = *state;
    assert_int_equal(run_scenario(scene, "wait", "--max-seconds=0.3"), 0);
    assert_file_contains(scene, "out", "done: 0.3 seconds are over");
}

/* ---- failures ---------------------------------------------------------------------------- */

static void a_failed_body_is_named_in_the_last_line(void **state)
{
    struct scene *scene = *state;
    assert_int_equal(run_scenario(scene, "fails", NULL), 1);
    assert_last_line(scene, "err", "failed: user/1: the dog ate it; log: run/logs/user-1.log");
    assert_file_contains(scene, "err", "  | a last word");
    assert_file_contains(scene, "run/logs/user-1.log", "a last word\n");
}

/* The second one's process is the first to end. */
static void the_first_failure_is_the_one_that_is_announced(void **state)
{
    struct scene *scene = *state;
    const char *argv[] = {LAUNCH_PROGRAM, "--run-dir=run", "--grace=0.1", "--log-level=debug",
                          "--",           "lingers",       NULL};
    assert_int_equal(scene_run(scene, argv), 1);
    assert_file_contains(scene, "err", "user/0 failed: the first dog ate it: stopping the others");
    assert_last_line(scene, "err", "failed: user/0: the first dog ate it; log: ");
}

static void a_failed_thread_is_named_in_the_last_line(void **state)
{
    struct scene *scene = *state;
    assert_int_equal(run_scenario(scene, "fails", "--launch=threads"), 1);
    assert_last_line(scene, "err", "failed: user/1: the dog ate it; log: run/logs/user-1.log");
}

static void an_exit_is_a_failure_with_its_status(void **state)
{
    struct scene *scene = *state;
    assert_int_equal(run_scenario(scene, "exit", NULL), 1);
    assert_last_line(scene, "err", "failed: user/1: it exited with status 3");
}

static void a_crash_is_reported_as_such(void **state)
{
    struct scene *scene = *state;
    assert_int_equal(run_scenario(scene, "segv", NULL), 1);
    assert_last_line(scene, "err",
                     "failed: base/0: it was killed by signal 11 (Segmentation fault)");
}

static void an_abort_is_reported_as_such(void **state)
{
    struct scene *scene = *state;
    assert_int_equal(run_scenario(scene, "abort", NULL), 1);
    assert_last_line(scene, "err", "failed: user/1: it was killed by signal 6 (Aborted)");
}

static void a_killed_node_is_reported_as_such(void **state)
{
    struct scene *scene = *state;
    start_scenario(scene, "wait", NULL);
    await_three_running(scene);
    kill(pid_of_event(scene, "base/0 runs"), SIGKILL);
    assert_int_equal(scene_wait(scene), 1);
    assert_last_line(scene, "err", "failed: base/0: it was killed by signal 9 (Killed)");
}

static void a_replay_told_to_stop_from_outside_is_a_failure(void **state)
{
    static const int signals[] = {SIGTERM, SIGINT};
    struct scene *scene = *state;
    for (size_t i = 0; i < 2; i++) {
        scene_empty(scene);
        start_scenario(scene, "wait_with_replay", NULL);
        await_three_running(scene);
        scene_await(scene, "run/addresses", "store/0 ");
        kill(pid_of_node(scene, "store/0"), signals[i]);
        assert_int_equal(scene_wait(scene), 1);
        assert_last_line(scene, "err",
                         i == 0 ? "failed: store/0: it was told to stop by signal 15 (Terminated) "
                                  "from outside"
                                : "failed: store/0: it was told to stop by signal 2 (Interrupt) "
                                  "from outside");
    }
}

static void a_node_told_to_stop_from_outside_is_a_failure(void **state)
{
    struct scene *scene = *state;
    start_scenario(scene, "wait", NULL);
    await_three_running(scene);
    kill(pid_of_event(scene, "user/1 runs"), SIGTERM);
    assert_int_equal(scene_wait(scene), 1);
    assert_last_line(scene, "err",
                     "failed: user/1: it was told to stop by signal 15 (Terminated) from outside");
    assert_file_contains(scene, "run/logs/user-1.log", "signal from outside signal=Terminated");
}

/* As a service manager stops a program: every process of it at once. */
static void everybody_told_to_stop_from_outside_is_a_stop(void **state)
{
    struct scene *scene = *state;
    start_scenario(scene, "wait", NULL);
    await_three_running(scene);
    pid_t nodes[] = {pid_of_event(scene, "base/0 runs"), pid_of_event(scene, "user/0 runs"),
                     pid_of_event(scene, "user/1 runs")};
    kill(scene->pid, SIGTERM);
    for (size_t i = 0; i < 3; i++)
        kill(nodes[i], SIGTERM);
    assert_int_equal(scene_wait(scene), 128 + SIGTERM);
    assert_last_line(scene, "err", "stopped by signal 15 (Terminated); go on with: ");
    char *text = scene_read(scene, "err");
    assert_null(strstr(text, "while stopping"));
    free(text);
}

/* The user is the first to fail, and the base says only when it is stopped that it broke. */
static void peers_of_a_failed_node_are_not_blamed(void **state)
{
    struct scene *scene = *state;
    assert_int_equal(run_scenario(scene, "complains", NULL), 1);
    assert_last_line(scene, "err", "failed: base/0: the base broke");
}

static void a_node_that_failed_by_itself_is_blamed(void **state)
{
    struct scene *scene = *state;
    assert_int_equal(run_scenario(scene, "breaks_first", NULL), 1);
    assert_last_line(scene, "err", "failed: user/0: a user's words");
}

/* The base ends well and never serves: nothing but the users' dialling can end the program, and a
 * dial that is told nothing takes 60 s, which is more than PATIENCE_MS. */
static void a_peer_that_is_gone_is_named_at_once(void **state)
{
    struct scene *scene = *state;
    for (size_t i = 0; i < 2; i++) {
        scene_empty(scene);
        assert_int_equal(run_scenario(scene, "leaves", launch_modes[i]), 1);
        assert_last_line(scene, "err", ": base/0 cannot be reached: it has ended; log: ");
    }
}

static void a_server_in_threads_outlives_its_callers(void **state)
{
    struct scene *scene = *state;
    assert_int_equal(run_scenario(scene, "served_then_fails", "--launch=threads"), 1);
    assert_last_line(scene, "err", "failed: base/0: the base broke");
}

/* Its callers have 0.3 s. */
static void run_broken_server(struct scene *scene, const char *scenario)
{
    const char *argv[] = {
        LAUNCH_PROGRAM, "--run-dir=run", "--launch=threads", "--grace=0.3", "--", scenario, NULL};
    assert_int_equal(scene_run(scene, argv), 1);
    assert_last_line(scene, "err", "failed: base/0: the base broke");
}

static void a_server_is_not_withdrawn_from_callers_that_do_not_stop(void **state)
{
    struct scene *scene = *state;
    run_broken_server(scene, "served_to_the_deaf");
    assert_file_contains(scene, "run/logs/base-0.log", "did not stop calling this node within 0.3");
}

/* The second user calls while the server is withdrawn from the first one, and fails before the
 * server has ended. What the first one says in the end is not the last line. */
static void who_calls_a_server_that_failed_is_not_blamed_for_it(void **state)
{
    struct scene *scene = *state;
    static const char *const scenarios[] = {"served_to_the_late", "withdrawn_from_the_late"};
    for (size_t i = 0; i < 2; i++) {
        scene_empty(scene);
        run_broken_server(scene, scenarios[i]);
        assert_file_contains(scene, "err", "base/0 failed: the base broke: stopping the others");
    }
}

static void a_wait_for_a_peer_tells_what_is_known_of_it(void **state)
{
    struct scene *scene = *state;
    static const char *const rows[][2] = {
        {"waits_for_silent", "waiting for base/0: it has started, but published no address"},
        {"waits_for_late", "waiting for base/0: its process has not started"},
    };
    for (size_t i = 0; i < 2; i++) {
        scene_empty(scene);
        start_scenario(scene, rows[i][0], NULL);
        scene_await(scene, "run/events", "user/0 runs");
        if (i == 0)
            scene_await(scene, "out", "here, but silent");
        kill(scene->pid, SIGTERM);
        assert_int_equal(scene_wait(scene), 128 + SIGTERM);
        assert_file_contains(scene, "run/logs/user-0.log", rows[i][1]);
    }
}

static void an_edge_that_was_not_declared_is_refused(void **state)
{
    struct scene *scene = *state;
    assert_int_equal(run_scenario(scene, "undeclared", NULL), 1);
    assert_last_line(scene, "err", "has no edge to node 5 of base");
}

static void a_graph_that_differs_in_a_child_is_refused(void **state)
{
    struct scene *scene = *state;
    assert_int_equal(run_scenario(scene, "differs", NULL), 1);
    assert_last_line(scene, "err", "it has another graph or build than the launcher");
}

/* ---- calls ------------------------------------------------------------------------------- */

static void nodes_call_each_other_between_processes(void **state)
{
    struct scene *scene = *state;
    assert_int_equal(run_scenario(scene, "serve", NULL), 0);
    assert_file_contains(scene, "run/events", "user/0 called");
    assert_file_contains(scene, "run/events", "user/1 called");
    assert_file_contains(scene, "run/metrics.csv", "user/0,version,42,42,1\n");
}

static void a_metrics_file_that_is_full_makes_way(void **state)
{
    struct scene *scene = *state;
    const char *mkdirs[] = {"/bin/mkdir", "-p", "run", NULL};
    assert_int_equal(scene_run(scene, mkdirs), 0);
    char *csv = scene_path(scene, "run/metrics.csv"), *old = xasprintf("%s.1", csv);
    int fd = open(csv, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    assert_int_equal(ftruncate(fd, METRICS_FILE_BYTES_MAX - 1), 0);
    close(fd);
    assert_int_equal(run_scenario(scene, "serve", "--launch=threads"), 0);
    struct stat info;
    assert_int_equal(stat(old, &info), 0);
    assert_in_range(info.st_size, METRICS_FILE_BYTES_MAX, METRICS_FILE_BYTES_MAX + 4096);
    char *text = scene_read(scene, "run/metrics.csv");
    assert_memory_equal(text, "time,node,", strlen("time,node,"));
    free(text);
    free(old);
    free(csv);
}

static void nodes_call_each_other_between_threads(void **state)
{
    struct scene *scene = *state;
    assert_int_equal(run_scenario(scene, "serve", "--launch=threads"), 0);
    assert_file_contains(scene, "run/events", "user/1 called");
}

static void a_long_run_directory_still_has_sockets(void **state)
{
    struct scene *scene = *state;
    const char *argv[] = {LAUNCH_PROGRAM,
                          "--run-dir=a-directory-with-a-name-that-is-much-too-long-for-the-path-of-"
                          "a-unix-socket-which-has-107-bytes-at-most",
                          "--", "serve", NULL};
    assert_int_equal(scene_run(scene, argv), 0);
}

/* ---- stops ------------------------------------------------------------------------------- */

static void interrupts_stop_in_order_and_show_in_the_status(void **state)
{
    static const int signals[] = {SIGINT, SIGTERM};
    struct scene *scene = *state;
    for (size_t i = 0; i < 2; i++) {
        scene_empty(scene);
        start_scenario(scene, "wait", NULL);
        await_three_running(scene);
        kill(scene->pid, signals[i]);
        assert_int_equal(scene_wait(scene), 128 + signals[i]);
        static const char *const order[] = {"user/0 stops", "base/0 stops", NULL};
        assert_events_in_order(scene, order);
        static const char *const other_order[] = {"user/1 stops", "base/0 stops", NULL};
        assert_events_in_order(scene, other_order);
        assert_last_line(scene, "err", "go on with: ");
    }
}

/* A terminal sends its signals to the whole foreground group, and the kernel is their sender. */
static void an_interrupt_at_the_terminal_is_a_clean_stop(void **state)
{
    struct scene *scene = *state;
    int terminal = start_at_terminal(scene, "wait");
    await_three_running(scene);
    assert_int_equal(write(terminal, "\003", 1), 1);
    assert_int_equal(scene_wait(scene), 128 + SIGINT);
    close(terminal);
    assert_last_line(scene, "err", "stopped by signal 2 (Interrupt); go on with: ");
    char *text = scene_read(scene, "err");
    assert_null(strstr(text, "while stopping"));
    free(text);
}

/* In the moment in which it is in the launcher's group. The launcher ignores what the test sends,
 * all the time. */
static void a_signal_of_a_terminal_hits_no_node_that_is_just_started(void **state)
{
    struct scene *scene = *state;
    for (int i = 0; i < 4; i++) {
        scene_empty(scene);
        signal(SIGINT, SIG_IGN); /* which a child inherits */
        int terminal = start_at_terminal(scene, "done");
        signal(SIGINT, SIG_DFL);
        int status = 0;
        struct deadline deadline = patience();
        while (waitpid(scene->pid, &status, WNOHANG) == 0 &&
               !deadline_passed(deadline, &clock_monotonic))
            kill(-scene->pid, SIGINT);
        scene->pid = 0;
        close(terminal);
        if (status != 0) {
            char *text = scene_read(scene, "err");
            fail_msg("it ended with %d:\n%s", status, text);
        }
    }
}

/* The signal waits when the program begins, as one does that comes before the launcher looks: a
 * shell sends it to itself, and becomes the program. */
static void an_interrupt_before_nodes_are_started_starts_none(void **state)
{
    struct scene *scene = *state;
    sigset_t interrupt, before;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    for (size_t i = 0; i < 2; i++) {
        char *command = xasprintf("kill -INT $$; exec %s --run-dir=run %s -- wait", LAUNCH_PROGRAM,
                                  launch_modes[i]);
        const char *argv[] = {"/bin/sh", "-c", command, NULL};
        scene_empty(scene);
        sigprocmask(SIG_BLOCK, &interrupt, &before); /* a child has our mask */
        scene_start(scene, argv);
        sigprocmask(SIG_SETMASK, &before, NULL);
        free(command);
        assert_int_equal(scene_wait(scene), 128 + SIGINT);
        assert_last_line(scene, "err", "stopped by signal 2 (Interrupt); go on with: ");
        assert_file_contains(scene, "run/config.json", "launch_program");
        char *log = scene_read(scene, "run/logs/base-0.log");
        assert_string_equal(log, "");
        free(log);
    }
}

static void await_state(pid_t pid, bool stopped)
{
    struct deadline deadline = patience();
    while ((process_state(pid) == 'T') != stopped)
        look_again_soon(deadline, stopped ? "a process to be stopped" : "it to go on");
}

static void a_run_can_be_suspended_and_continued(void **state)
{
    struct scene *scene = *state;
    int terminal = start_at_terminal(scene, "wait");
    await_three_running(scene);
    pid_t base = pid_of_event(scene, "base/0 runs"), user = pid_of_event(scene, "user/0 runs");
    assert_int_equal(write(terminal, "\032", 1), 1);
    await_state(scene->pid, true);
    await_state(base, true);
    await_state(user, true);
    kill(scene->pid, SIGCONT);
    await_state(base, false);
    await_state(user, false);
    kill(scene->pid, SIGTERM);
    assert_int_equal(scene_wait(scene), 128 + SIGTERM);
    close(terminal);
    assert_file_contains(scene, "run/events", "base/0 stops");
}

/* Suspended for half as long as it may run, it ends that much later. */
static void suspended_time_does_not_count(void **state)
{
    struct scene *scene = *state;
    enum { RUN_MS = 1000, SUSPENDED_MS = 500 };
    int64_t start_ns = clock_now_ns(&clock_monotonic);
    start_scenario(scene, "wait", "--max-seconds=1");
    scene_await(scene, "out", "nodes as processes");
    kill(scene->pid, SIGTSTP);
    await_state(scene->pid, true);
    struct deadline deadline = deadline_in_ms(&clock_monotonic, SUSPENDED_MS);
    while (!deadline_passed(deadline, &clock_monotonic))
        poll(NULL, 0, 5);
    kill(scene->pid, SIGCONT);
    assert_int_equal(scene_wait(scene), 0);
    int64_t passed_ns = clock_now_ns(&clock_monotonic) - start_ns;
    assert_true(passed_ns >= (RUN_MS + SUSPENDED_MS) * INT64_C(1000000));
    assert_file_contains(scene, "out", "done: 1 second is over");
}

static void a_node_that_does_not_stop_is_killed_and_named(void **state)
{
    struct scene *scene = *state;
    assert_int_equal(run_scenario(scene, "asks_and_ignores", "--grace=1"), 1);
    assert_last_line(scene, "err", "failed: user/0: it did not stop within 1 s and was killed");
    assert_file_contains(scene, "run/events", "base/0 stops");
}

static void a_thread_that_does_not_stop_is_named(void **state)
{
    struct scene *scene = *state;
    const char *argv[] = {LAUNCH_PROGRAM,
                          "--run-dir=run",
                          "--launch=threads",
                          "--grace=0.3",
                          "--",
                          "asks_and_ignores",
                          NULL};
    assert_int_equal(scene_run(scene, argv), 1);
    assert_last_line(scene, "err", "failed: user/0: it did not stop within 0.3 s");
}

static void a_stopped_process_is_killed(void **state)
{
    struct scene *scene = *state;
    start_scenario(scene, "wait", "--grace=0.3");
    await_three_running(scene);
    kill(pid_of_event(scene, "user/0 runs"), SIGSTOP);
    kill(scene->pid, SIGTERM);
    assert_int_equal(scene_wait(scene), 128 + SIGTERM);
    assert_file_contains(scene, "err", "user/0 while stopping: it did not stop within 0.3 s");
}

/* The first one comes twice, as timeout and others send it; two different ones wait side by side.
 */
static void a_second_signal_kills_at_once_unless_it_is_the_first(void **state)
{
    static const int twice[] = {SIGSTOP, SIGINT, SIGTERM, SIGCONT};
    struct scene *scene = *state;
    start_scenario(scene, "ignores", "--grace=1000");
    await_three_running(scene);
    for (size_t i = 0; i < sizeof twice / sizeof twice[0]; i++)
        kill(scene->pid, twice[i]);
    struct deadline deadline = patience();
    while (count_in(scene, "err", "again: killing the nodes") == 0 &&
           !deadline_passed(deadline, &clock_monotonic))
        kill(scene->pid, SIGINT);
    assert_int_equal(scene_wait(scene), 128 + SIGINT);
    assert_file_contains(scene, "err", "Interrupt: stopping the nodes; once more kills them");
    assert_int_equal(count_in(scene, "err", "Terminated"), 0);
}

static void nodes_do_not_outlive_a_killed_launcher(void **state)
{
    struct scene *scene = *state;
    static const char *const scenarios[] = {"wait", "ignores"};
    for (size_t i = 0; i < 2; i++) {
        scene_empty(scene);
        start_scenario(scene, scenarios[i], "--grace=1000");
        await_three_running(scene);
        pid_t nodes[] = {pid_of_event(scene, "base/0 runs"), pid_of_event(scene, "user/0 runs"),
                         pid_of_event(scene, "user/1 runs")};
        kill(scene->pid, SIGKILL);
        assert_int_equal(scene_wait(scene), 1000 + SIGKILL);
        struct deadline deadline = deadline_in_ms(&clock_monotonic, 2000);
        for (size_t node = 0; node < 3; node++)
            while (process_lives(nodes[node]))
                look_again_soon(deadline, "the nodes' end");
    }
}

/* ---- output ------------------------------------------------------------------------------ */

static void every_node_has_a_log_of_its_own(void **state)
{
    struct scene *scene = *state;
    for (size_t i = 0; i < 2; i++) {
        scene_empty(scene);
        assert_int_equal(run_scenario(scene, "logs", launch_modes[i]), 0);
        assert_file_contains(scene, "run/logs/user-0.log", "this is number=0\n");
        assert_file_contains(scene, "run/logs/user-0.log", "its thread logs number=0\n");
        assert_int_equal(count_in(scene, "run/logs/user-0.log", "number="), 2);
        assert_file_contains(scene, "run/logs/user-1.log", "this is number=1\n");
        assert_file_contains(scene, "run/logs/user-1.log", "its thread logs number=1\n");
        assert_int_equal(count_in(scene, "run/logs/user-1.log", "number="), 2);
        assert_int_equal(count_in(scene, "run/logs/base-0.log", "number="), 0);
        assert_int_equal(count_in(scene, "err", "number="), 0);
    }
}

static void the_terminal_has_warnings_of_nodes_or_what_it_is_told_to_have(void **state)
{
    struct scene *scene = *state;
    for (size_t i = 0; i < 2; i++) {
        scene_empty(scene);
        assert_int_equal(run_scenario(scene, "warns", launch_modes[i]), 0);
        assert_int_equal(count_in(scene, "err", "number="), 2);
        assert_int_equal(count_in(scene, "err", " this is number="), 2);
        assert_file_contains(scene, "err", "2026 said, not logged\n");
        assert_file_contains(scene, "run/logs/user-0.log", "its thread logs number=0\n");
        scene_empty(scene);
        const char *argv[] = {LAUNCH_PROGRAM,
                              "--run-dir=run",
                              launch_modes[i],
                              "--log-level=info",
                              "--",
                              "logs",
                              NULL};
        assert_int_equal(scene_run(scene, argv), 0);
        assert_int_equal(count_in(scene, "err", "number="), 4);
        assert_file_contains(scene, "err", "this is number=0\n");
        assert_file_contains(scene, "err", "its thread logs number=1\n");
    }
}

static void long_lines_arrive_whole(void **state)
{
    struct scene *scene = *state;
    assert_int_equal(run_scenario(scene, "long_lines", NULL), 0);
    char *log = scene_read(scene, "run/logs/user-0.log");
    size_t dots = 0;
    for (const char *c = log; *c; c++) /* not those of a time */
        dots += *c == '.' && (c[1] == '.' || c[1] == 'E' || c[1] == '\n');
    assert_int_equal(dots, 2 << 20);
    assert_contains(log, "END\n");
    assert_contains(log, "unfinished\n");
    free(log);
    assert_file_contains(scene, "out", "user/0: unfinished\n");
}

/* ---- directories ------------------------------------------------------------------------- */

/* Nor is anything prepared for it, and nobody is told to resume it. */
static void the_directory_of_a_running_run_is_nobody_elses(void **state)
{
    struct scene *scene = *state;
    start_scenario(scene, "wait", NULL);
    await_three_running(scene);
    char *dir = scene_path(scene, "run");
    struct scene other = {.pid = 0};
    snprintf(other.dir, sizeof other.dir, "/tmp/troupe-test-XXXXXX");
    assert_non_null(mkdtemp(other.dir));
    char *owner = xasprintf("%s: a run is going on here (process %d)", dir, scene->pid);
    static const char *const flags[] = {"--run-dir", "--resume"};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        const char *argv[] = {LAUNCH_PROGRAM, flags[i], dir, "--", "prepares", NULL};
        assert_int_equal(scene_run(&other, argv), 2);
        assert_last_line(&other, "err", owner);
        assert_int_equal(count_in(&other, "out", "prepared"), 0);
    }
    nftw(other.dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    free(owner);
    free(dir);
    kill(scene->pid, SIGTERM);
    assert_int_equal(scene_wait(scene), 128 + SIGTERM);
}

/* Though it is looked at before what the program prepares, too. */
static void what_a_resume_differs_in_is_told_once(void **state)
{
    struct scene *scene = *state;
    assert_int_equal(run_scenario(scene, "prepares_learners", NULL), 0);
    const char *away[] = {"/bin/rm", "-r", "first", NULL};
    assert_int_equal(scene_run(scene, away), 0);
    const char *argv[] = {
        LAUNCH_PROGRAM,      "--resume", "--run-dir=run", "--set=first.prefetch=3", "--",
        "prepares_learners", NULL};
    assert_int_equal(scene_run(scene, argv), 0);
    assert_int_equal(count_in(scene, "err", "resumed with first.prefetch=3, it was 2"), 1);
}

/* Who has just taken it has not written anything yet. */
static void who_holds_a_run_directory_is_named(void **state)
{
    struct scene *scene = *state;
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    assert_int_equal(run_scenario(scene, "done", NULL), 0);
    char *path = scene_path(scene, "run/lock"),
         *holder = xasprintf("a run is going on here (process %d)", (int)getpid());
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(fcntl(fd, F_SETLK, &all), 0);
    const char *argv[] = {LAUNCH_PROGRAM, "--resume", "--run-dir=run", "--", "done", NULL};
    assert_int_equal(scene_run(scene, argv), 2);
    assert_last_line(scene, "err", holder);
    close(fd);
    assert_int_equal(scene_run(scene, argv), 0);
    free(holder);
    free(path);
}

static void learners_of_one_program_begin_differently(void **state)
{
    struct scene *scene = *state;
    assert_int_equal(run_scenario(scene, "learners", "--launch=threads"), 0);
    assert_file_contains(scene, "out", "done: user/0: their parameters differ");
}

/* False: it is not open. The event that was waited for is there a moment before its file is closed.
 */
static bool descriptor_leads_to(pid_t pid, int fd, char *target, size_t size)
{
    char path[64];
    struct deadline deadline = patience();
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
    for (;;) {
        ssize_t length = readlink(path, target, size - 1);
        if (length < 0)
            return false;
        target[length] = '\0';
        if (!strstr(target, "/run/events"))
            return true;
        look_again_soon(deadline, "the file of an event to be closed");
    }
}

static void a_child_has_four_descriptors_of_ours(void **state)
{
    struct scene *scene = *state;
    start_scenario(scene, "wait", NULL);
    await_three_running(scene);
    char target[256];
    pid_t pid = pid_of_event(scene, "user/1 runs");
    for (int fd = 0; fd < 4; fd++)
        assert_true(descriptor_leads_to(pid, fd, target, sizeof target));
    /* What it opened itself: epoll, eventfd, signalfd, the lock that says that it runs; nothing
     * that leads to other nodes. */
    for (int fd = 4; fd < 64; fd++)
        if (descriptor_leads_to(pid, fd, target, sizeof target) &&
            strncmp(target, "anon_inode:", 11) != 0 && !strstr(target, "/run/nodes"))
            fail_msg("descriptor %d is %s", fd, target);
    kill(scene->pid, SIGTERM);
    assert_int_equal(scene_wait(scene), 128 + SIGTERM);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(a_program_ends_with_its_last_user),
        TEST(threads_end_like_processes),
        TEST(a_node_can_stop_the_program),
        TEST(a_node_can_stop_the_program_as_failed),
        TEST(users_stop_before_what_they_use),
        TEST(the_time_limit_ends_a_program),
        TEST(a_failed_body_is_named_in_the_last_line),
        TEST(the_first_failure_is_the_one_that_is_announced),
        TEST(a_failed_thread_is_named_in_the_last_line),
        TEST(an_exit_is_a_failure_with_its_status),
        TEST(a_crash_is_reported_as_such),
        TEST(an_abort_is_reported_as_such),
        TEST(a_killed_node_is_reported_as_such),
        TEST(a_replay_told_to_stop_from_outside_is_a_failure),
        TEST(a_node_told_to_stop_from_outside_is_a_failure),
        TEST(everybody_told_to_stop_from_outside_is_a_stop),
        TEST(peers_of_a_failed_node_are_not_blamed),
        TEST(a_node_that_failed_by_itself_is_blamed),
        TEST(a_peer_that_is_gone_is_named_at_once),
        TEST(a_server_in_threads_outlives_its_callers),
        TEST(a_server_is_not_withdrawn_from_callers_that_do_not_stop),
        TEST(who_calls_a_server_that_failed_is_not_blamed_for_it),
        TEST(a_wait_for_a_peer_tells_what_is_known_of_it),
        TEST(an_edge_that_was_not_declared_is_refused),
        TEST(a_graph_that_differs_in_a_child_is_refused),
        TEST(nodes_call_each_other_between_processes),
        TEST(a_metrics_file_that_is_full_makes_way),
        TEST(nodes_call_each_other_between_threads),
        TEST(a_long_run_directory_still_has_sockets),
        TEST(interrupts_stop_in_order_and_show_in_the_status),
        TEST(an_interrupt_at_the_terminal_is_a_clean_stop),
        TEST(a_signal_of_a_terminal_hits_no_node_that_is_just_started),
        TEST(an_interrupt_before_nodes_are_started_starts_none),
        TEST(a_run_can_be_suspended_and_continued),
        TEST(suspended_time_does_not_count),
        TEST(a_node_that_does_not_stop_is_killed_and_named),
        TEST(a_thread_that_does_not_stop_is_named),
        TEST(a_stopped_process_is_killed),
        TEST(a_second_signal_kills_at_once_unless_it_is_the_first),
        TEST(nodes_do_not_outlive_a_killed_launcher),
        TEST(every_node_has_a_log_of_its_own),
        TEST(the_terminal_has_warnings_of_nodes_or_what_it_is_told_to_have),
        TEST(long_lines_arrive_whole),
        TEST(the_directory_of_a_running_run_is_nobody_elses),
        TEST(what_a_resume_differs_in_is_told_once),
        TEST(who_holds_a_run_directory_is_named),
        TEST(learners_of_one_program_begin_differently),
        TEST(a_child_has_four_descriptors_of_ours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
