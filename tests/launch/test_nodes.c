/* The built-in nodes in whole runs, with real processes: tests/launch/nodes_program.c in its
 * scenarios. */
#include "launch/limits.h"
#include "launch_tools.h"

static int run_scenario(struct scene *scene, const char *scenario, const char *flag1,
                        const char *flag2)
{
    const char *argv[] = {NODES_PROGRAM, "--run-dir=run", flag1, flag2, "--", scenario, NULL};
    return scene_run(scene, argv);
}

static void make_file(const struct scene *scene, const char *name)
{
    char *path = scene_path(scene, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    assert_true(fd >= 0);
    close(fd);
    free(path);
}

/* ---- numbers ----------------------------------------------------------------------------- */

static void a_reward_that_is_no_number_ends_the_run_and_stays_out_of_the_store(void **state)
{
    struct scene *scene = *state;
    for (size_t i = 0; i < 2; i++) {
        scene_empty(scene);
        assert_int_equal(run_scenario(scene, "pays_nan", "--target-return=1.5", launch_modes[i]),
                         1);
        assert_last_line(scene, "err", "/0: Coin: the reward of copy ");
        assert_last_line(scene, "err", " is nan at step 1 of its episode: not a finite number");
        const char *resume[] = {
            NODES_PROGRAM, "--resume", "--run-dir=run", "--target-return=0.9", "--", "plays", NULL};
        assert_int_equal(scene_run(scene, resume), 0);
        assert_file_contains(scene, "out", " +- 0.00 over 40 fresh episodes");
    }
}

static void gradients_and_waits_are_reported(void **state)
{
    static const char *const rows[] = {"learner/0,grad_norm,", "learner/0,wait_seconds,",
                                       "actor/0,blocked_seconds,"};
    struct scene *scene = *state;
    const char *argv[] = {NODES_PROGRAM, "--run-dir=run", "--launch=threads", "--", "plays", NULL};
    scene_start(scene, argv);
    for (size_t i = 0; i < 3; i++)
        scene_await(scene, "run/metrics.csv", rows[i]);
    make_file(scene, "lose-it");
    assert_int_equal(scene_wait(scene), 1);
}

static void the_items_of_all_tables_are_counted(void **state)
{
    struct scene *scene = *state;
    const char *argv[] = {NODES_PROGRAM, "--run-dir=run", "--", "fills_tables", NULL};
    scene_start(scene, argv);
    scene_await(scene, "run/metrics.csv", "store/0,items,6,");
    kill(scene->pid, SIGTERM);
    assert_int_equal(scene_wait(scene), 128 + SIGTERM);
}

/* A server's messages have 64 MiB at most. */
static void parameters_of_100_mib_reach_another_process(void **state)
{
    struct scene *scene = *state;
    assert_int_equal(run_scenario(scene, "gives_large", "--seed=1", "--seed=1"), 0);
    assert_file_contains(scene, "out", "large versions were taken");
}

static void what_own_nodes_report_is_in_the_line(void **state)
{
    struct scene *scene = *state;
    for (size_t i = 0; i < 2; i++) {
        scene_empty(scene);
        const char *argv[] = {NODES_PROGRAM, "--run-dir=run", launch_modes[i],
                              "--",          "fills_tables",  NULL};
        scene_start(scene, argv);
        scene_await(scene, "out", "  counter: index 0.5  lines_read 1234\n");
        kill(scene->pid, SIGTERM);
        assert_int_equal(scene_wait(scene), 128 + SIGTERM);
    }
}

/* ---- failures ---------------------------------------------------------------------------- */

static void a_checkpoint_that_cannot_be_written_is_told_whatever_failed_first(void **state)
{
    struct scene *scene = *state;
    const char *argv[] = {NODES_PROGRAM, "--run-dir=run", "--set=learner.checkpoint_every_s=100000",
                          "--",          "plays",         NULL};
    scene_start(scene, argv);
    scene_await(scene, "run/metrics.csv", "learner/0,loss,");
    char *dir = scene_path(scene, "run/learner"), *away = scene_path(scene, "away");
    assert_int_equal(rename(dir, away), 0);
    make_file(scene, "run/learner");
    make_file(scene, "lose-it");
    assert_int_equal(scene_wait(scene), 1);
    assert_last_line(scene, "err", "/0: the coin is lost; log: run/logs/");
    assert_file_contains(scene, "err",
                         "\nlearner/0 while stopping: the last checkpoint was not written");
    assert_file_contains(scene, "run/logs/learner-0.log",
                         "Z error learner/0 failed reason=the last checkpoint was not written");
    free(away);
    free(dir);
}

/* One calls while the learner is withdrawn, and fails before the learner has ended. */
static void a_learner_that_fails_is_named_and_not_who_calls_it_then(void **state)
{
    struct scene *scene = *state;
    const char *argv[] = {NODES_PROGRAM,
                          "--run-dir=run",
                          "--launch=threads",
                          "--grace=0.3",
                          "--set=learner.checkpoint_every_s=1",
                          "--",
                          "fails_to_the_deaf",
                          NULL};
    assert_int_equal(scene_run(scene, argv), 1);
    assert_file_contains(scene, "err", "coin: learner/0 failed: ");
    assert_last_line(scene, "err", "coin: failed: learner/0: ");
}

static void an_actor_that_failed_is_started_again_as_often_as_it_may(void **state)
{
    struct scene *scene = *state;
    for (size_t i = 0; i < 2; i++) {
        scene_empty(scene);
        const char *argv[] = {NODES_PROGRAM,
                              "--run-dir=run",
                              launch_modes[i],
                              "--set=actor.max_episodes=100",
                              "--set=actor.restarts=1",
                              "--",
                              "stumbles",
                              NULL};
        assert_int_equal(scene_run(scene, argv), 0);
        assert_file_contains(scene, "out", "actor/0: 100 episodes done");
        assert_file_contains(scene, "err",
                             "actor/0 failed: the coin rolls away: it is started again; log: ");
        assert_file_contains(scene, "out",
                             "failed 1 time, began again 1 time: the coin rolls away");
        scene_empty(scene);
        assert_int_equal(run_scenario(scene, "stumbles", launch_modes[i], "--seed=1"), 1);
        assert_last_line(scene, "err", "actor/0: the coin rolls away; log: run/logs/");
    }
}

/* The learner, which nobody else uses, is not stopped meanwhile. */
static void an_actor_that_is_alone_is_waited_for_until_it_has_begun_again(void **state)
{
    struct scene *scene = *state;
    for (size_t i = 0; i < 2; i++) {
        scene_empty(scene);
        const char *argv[] = {NODES_PROGRAM,
                              "--run-dir=run",
                              launch_modes[i],
                              "--max-steps=200",
                              "--set=actor.restarts=1",
                              "--",
                              "stumbles_alone",
                              NULL};
        assert_int_equal(scene_run(scene, argv), 0);
        assert_file_contains(scene, "out", "done: learner/0: 200 learner steps done");
    }
}

static void an_actor_of_a_deterministic_run_does_not_begin_again(void **state)
{
    struct scene *scene = *state;
    const char *argv[] = {NODES_PROGRAM,
                          "--run-dir=run",
                          "--launch=threads",
                          "--deterministic",
                          "--set=actor.restarts=1",
                          "--",
                          "stumbles",
                          NULL};
    assert_int_equal(scene_run(scene, argv), 1);
    assert_last_line(scene, "err", "actor/0: the coin rolls away; log: run/logs/");
}

static void a_thread_that_calls_exit_does_not_end_the_run_as_done(void **state)
{
    struct scene *scene = *state;
    assert_int_equal(run_scenario(scene, "exits", "--launch=threads", "--seed=1"), 1);
    /* Its other threads may still say something. */
    assert_file_contains(scene, "err",
                         "/0: it called exit(0), which ends every node of this process");
}

static int open_nodes(const struct scene *scene)
{
    char *path = scene_path(scene, "run/nodes");
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    assert_true(fd >= 0);
    free(path);
    return fd;
}

/* The processes of the run's nodes are those that hold a byte of run/nodes each. */
static void assert_held(const struct scene *scene, int node)
{
    char path[64], arguments[256] = "";
    struct flock byte = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = node, .l_len = 1};
    int fd = open_nodes(scene);
    assert_int_equal(fcntl(fd, F_GETLK, &byte), 0);
    close(fd);
    assert_int_equal(byte.l_type, F_WRLCK);
    snprintf(path, sizeof path, "/proc/%d/cmdline", (int)byte.l_pid);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    size_t size = fread(arguments, 1, sizeof arguments, file);
    fclose(file);
    assert_non_null(memmem(arguments, size, "--node=", 7));
}

static void a_resume_waits_for_the_nodes_of_a_killed_launcher(void **state)
{
    struct scene *scene = *state;
    const char *argv[] = {NODES_PROGRAM, "--run-dir=run", "--", "plays", NULL};
    const char *resume[] = {NODES_PROGRAM, "--resume", "--run-dir=run", "--target-return=0.9", "--",
                            "plays",       NULL};
    scene_start(scene, argv);
    scene_await(scene, "run/metrics.csv", "learner/0,loss,");
    for (int node = 0; node < 6; node++)
        assert_held(scene, node);
    kill(scene->pid, SIGKILL);
    assert_int_equal(scene_wait(scene), 1000 + SIGKILL);
    assert_int_equal(scene_run(scene, resume), 0);
}

static void a_node_that_does_not_end_is_named_to_who_resumes(void **state)
{
    struct scene *scene = *state;
    const char *resume[] = {NODES_PROGRAM,         "--resume", "--run-dir=run", "--grace=0.1",
                            "--target-return=0.9", "--",       "plays",         NULL};
    assert_int_equal(run_scenario(scene, "plays", "--target-return=0.9", "--launch=threads"), 0);
    struct flock learner = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1, .l_len = 1};
    int fd = open_nodes(scene);
    assert_int_equal(fcntl(fd, F_SETLK, &learner), 0);
    assert_int_equal(scene_run(scene, resume), 2);
    char *failure = xasprintf("run: learner/0 of the life before still runs after 0.1 s "
                              "(process %d)",
                              (int)getpid());
    assert_last_line(scene, "err", failure);
    assert_file_contains(scene, "err", ": waits for learner/0 of the life before to end (process ");
    free(failure);
    close(fd);
}

static void a_short_life_forgets_no_steps(void **state)
{
    struct scene *scene = *state;
    assert_int_equal(run_scenario(scene, "plays", "--max-steps=50", "--launch=threads"), 0);
    double actors = summed_up(scene, "out", " actor steps"),
           learner = summed_up(scene, "out", " learner steps");
    assert_true(actors > 0);
    assert_true(learner > 0);
    const char *resume[] = {NODES_PROGRAM, "--resume", "--run-dir=run", "--max-seconds=0.001", "--",
                            "plays",       NULL};
    assert_int_equal(scene_run(scene, resume), 0);
    assert_true(summed_up(scene, "out", " actor steps") >= actors);
    assert_true(summed_up(scene, "out", " learner steps in all lives") >= learner);
}

/* It is killed before its first checkpoint: the next life begins anew. */
static void a_life_without_a_checkpoint_counts_in_no_total(void **state)
{
    struct scene *scene = *state;
    const char *argv[] = {NODES_PROGRAM, "--run-dir=run", "--set=learner.checkpoint_every_s=100000",
                          "--",          "plays",         NULL};
    const char *resume[] = {NODES_PROGRAM, "--resume", "--run-dir=run", "--max-steps=7", "--",
                            "plays",       NULL};
    const char *again[] = {NODES_PROGRAM, "--resume", "--run-dir=run", "--max-steps=9", "--",
                           "plays",       NULL};
    scene_start(scene, argv);
    struct deadline deadline = patience();
    while (value_of(scene, "learner/0", "learner_steps") < 100)
        look_again_soon(deadline, "steps");
    kill(pid_of_node(scene, "learner/0"), SIGKILL);
    assert_int_equal(scene_wait(scene), 1);
    assert_true(summed_up(scene, "err", " learner steps") >= 100);
    assert_int_equal(scene_run(scene, resume), 0);
    assert_int_equal(summed_up(scene, "out", " learner steps in all lives"), 7);
    assert_int_equal(scene_run(scene, again), 0);
    assert_int_equal(summed_up(scene, "out", " learner steps in all lives"), 9);
}

/* ---- sockets ----------------------------------------------------------------------------- */

/* Learners of gaia have longer paths than all others. */
static void gaia_has_sockets_where_paths_are_nearly_too_long(void **state)
{
    struct scene *scene = *state;
    const size_t room = 107 - strlen("/evaluator-0.sock") - strlen("//sockets");
    char *dir = xasprintf("--run-dir=%0*d", (int)(room - strlen(scene->dir)), 0);
    const char *argv[] = {NODES_PROGRAM,
                          dir,
                          "--set=learner.count=2",
                          "--set=learner.mode=gaia",
                          "--set=learner.max_steps=20",
                          "--",
                          "plays",
                          NULL};
    int status = scene_run(scene, argv);
    free(dir);
    if (status != 0) {
        char *text = scene_read(scene, "err");
        fail_msg("it ended with %d:\n%s", status, text);
    }
}

static void nobody_leaves_a_socket_behind(void **state)
{
    struct scene *scene = *state;
    const char *argv[] = {NODES_PROGRAM,
                          "--run-dir=run",
                          "--set=learner.count=2",
                          "--set=learner.mode=gaia",
                          "--",
                          "plays",
                          NULL};
    scene_start(scene, argv);
    scene_await(scene, "run/metrics.csv", "learner/1,learner_steps,");
    kill(pid_of_node(scene, "learner/1"), SIGKILL);
    assert_int_equal(scene_wait(scene), 1);
    char *sockets = scene_path(scene, "run/sockets");
    if (rmdir(sockets) != 0)
        fail_msg("%s: %s", sockets, strerror(errno));
    free(sockets);
}

/* ---- what is printed and logged ---------------------------------------------------------- */

static void printed_commands_can_be_pasted_into_a_shell(void **state)
{
    struct scene *scene = *state;
    char *dir = scene_path(scene, "a place"), *program = scene_path(scene, "a place/coin");
    assert_int_equal(mkdir(dir, 0777), 0);
    assert_int_equal(symlink(NODES_PROGRAM, program), 0);
    const char *argv[] = {program, "--run-dir=a run", "--target-return=0.9", "--", "plays", NULL};
    assert_int_equal(scene_run(scene, argv), 0);
    char *try = xasprintf(
        "  try them:       '%s' eval --params='a run/params.safetensors' -- plays", program);
    assert_file_contains(scene, "out", try);
    assert_file_contains(scene, "out", "look inside: troupe replay ls 'unix:");
    free(try);
    free(program);
    free(dir);
}

/* Runs the command that the run before printed for its parameters, whose end is `expected`. */
static void try_parameters(struct scene *scene, const char *expected)
{
    char *text = scene_read(scene, "out"), *command = strstr(text, "  try them:       ");
    assert_non_null(command);
    command += strlen("  try them:       ");
    command[strcspn(command, "\n")] = '\0';
    char *tail = strstr(command, " --set");
    assert_non_null(tail);
    assert_string_equal(tail, expected);
    const char *again[] = {"/bin/sh", "-c", command, NULL};
    assert_int_equal(scene_run(scene, again), 0);
    free(text);
}

/* Or the graph would not be one: actors and learners of another environment. */
static void the_command_that_tries_parameters_has_the_environment_of_all(void **state)
{
    struct scene *scene = *state;
    const char *argv[] = {NODES_PROGRAM,
                          "--run-dir=run",
                          "--set=learner.max_steps=20",
                          "--set=actor.env=CartPole-v1",
                          "--set=collector.env=CartPole-v1",
                          "--set=evaluator.env=CartPole-v1",
                          "--set=examiner.env=CartPole-v1",
                          "--",
                          "plays",
                          NULL};
    assert_int_equal(scene_run(scene, argv), 0);
    try_parameters(scene, " --set=actor.env=CartPole-v1 --set=collector.env=CartPole-v1 "
                          "--set=evaluator.env=CartPole-v1 --set=examiner.env=CartPole-v1 "
                          "-- plays");
}

/* The policy is that of an agent, and none of the learner. */
static void the_command_that_tries_parameters_sets_what_is_tried_only(void **state)
{
    struct scene *scene = *state;
    const char *argv[] = {NODES_PROGRAM,
                          "--run-dir=run",
                          "--target-return=0.9",
                          "--set=learner.checkpoint_every_s=7",
                          "--set=agent.hidden=24",
                          "--set=evaluator.episodes=50",
                          "--set=evaluator.device=ref",
                          "--",
                          "plays",
                          NULL};
    assert_int_equal(scene_run(scene, argv), 0);
    try_parameters(scene, " --set=agent.hidden=24 --set=evaluator.device=ref -- plays");
}

/* Every line of a node's log begins with a time. */
static void assert_stamped(const struct scene *scene, const char *log)
{
    char *text = scene_read(scene, log), *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) && *line;) {
        int year, month, day, hour, minute, second, ms, length = 0;
        sscanf(line, "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ %n", &year, &month, &day, &hour, &minute,
               &second, &ms, &length);
        if (length != 25)
            fail_msg("'%s' begins with no time", line);
    }
    free(text);
}

static void a_log_tells_when_its_node_began_served_and_ended(void **state)
{
    static const char *const addresses[] = {"replay/0 serves address=unix:/",
                                            "learner/0 serves address=in-process"};
    struct scene *scene = *state;
    for (size_t i = 0; i < 2; i++) {
        scene_empty(scene);
        assert_int_equal(run_scenario(scene, "plays", "--target-return=0.9", launch_modes[i]), 0);
        const char *replay = "run/logs/replay-0.log", *actor = "run/logs/actor-0.log";
        assert_stamped(scene, replay);
        assert_stamped(scene, actor);
        assert_file_contains(scene, actor, "Z info  actor/0 started kind=actor as=");
        assert_file_contains(scene, actor, "Z info  actor/0 ended\n");
        assert_file_contains(scene, i ? "run/logs/learner-0.log" : replay, addresses[i]);
    }
}

static void a_log_that_grows_is_cut_while_its_node_runs(void **state)
{
    struct scene *scene = *state;
    for (size_t i = 0; i < 2; i++) {
        scene_empty(scene);
        const char *mkdirs[] = {"/bin/mkdir", "-p", "run/logs", NULL};
        assert_int_equal(scene_run(scene, mkdirs), 0);
        char *log = scene_path(scene, "run/logs/actor-0.log"), *old = xasprintf("%s.1", log);
        make_file(scene, "run/logs/actor-0.log");
        assert_int_equal(truncate(log, LOG_FILE_BYTES_MAX - 1000), 0);
        const char *argv[] = {NODES_PROGRAM, "--run-dir=run", launch_modes[i], "--", "talks", NULL};
        scene_start(scene, argv);
        struct deadline deadline = deadline_in_ms(&clock_monotonic, PATIENCE_MS);
        while (access(old, F_OK) != 0)
            look_again_soon(deadline, "the log to be cut");
        make_file(scene, "lose-it");
        assert_int_equal(scene_wait(scene), 1);
        assert_file_contains(scene, "run/logs/actor-0.log", "actor/0 ");
        free(old);
        free(log);
    }
}

/* ---- chance ------------------------------------------------------------------------------ */

/* The first number that `node` drew. */
static void first_draw(const struct scene *scene, const char *node, char draw[17])
{
    char *text = scene_read(scene, "draws"), *begin = xasprintf("%s ", node);
    const char *at = strstr(text, begin);
    if (!at)
        fail_msg("%s drew nothing:\n%s", node, text);
    snprintf(draw, 17, "%s", at + strlen(begin));
    free(begin);
    free(text);
}

static void run_deterministic(struct scene *scene)
{
    const char *argv[] = {NODES_PROGRAM,
                          "--run-dir=run",
                          "--launch=threads",
                          "--deterministic",
                          "--seed=3",
                          "--max-steps=200",
                          "--",
                          "draws",
                          NULL};
    scene_empty(scene);
    assert_int_equal(scene_run(scene, argv), 0);
}

/* What `troupe replay ls` says of the size of the only table. */
static uint64_t items_of(struct scene *scene)
{
    const char *argv[] = {TROUPE_CLI, "replay", "ls", "run/replay", "-o", "json", NULL};
    assert_int_equal(scene_run(scene, argv), 0);
    char *text = scene_read(scene, "out");
    const char *size = strstr(text, "\"size\":");
    assert_non_null(size);
    uint64_t items = strtoull(size + strlen("\"size\":"), NULL, 10);
    free(text);
    return items;
}

static void groups_of_the_same_kind_draw_numbers_of_their_own(void **state)
{
    static const char *const nodes[] = {"actor/0", "collector/0", "evaluator/0", "examiner/0"};
    struct scene *scene = *state;
    char draws[4][17];
    run_deterministic(scene);
    for (size_t i = 0; i < 4; i++) {
        first_draw(scene, nodes[i], draws[i]);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(draws[i], draws[k]);
    }
}

static void groups_of_the_same_kind_give_their_items_keys_of_their_own(void **state)
{
    struct scene *scene = *state;
    run_deterministic(scene);
    char *text = scene_read(scene, "out");
    const char *at = strstr(text, " s, ");
    assert_non_null(at);
    uint64_t steps = strtoull(at + strlen(" s, "), NULL, 10);
    free(text);
    assert_true(steps > 100);
    assert_true(items_of(scene) > steps * 3 / 4); /* a step is an item; with shared keys half one */
}

static void deterministic_runs_of_several_groups_repeat(void **state)
{
    struct scene *scene = *state;
    run_deterministic(scene);
    char *first = scene_read(scene, "draws");
    run_deterministic(scene);
    char *second = scene_read(scene, "draws");
    assert_string_equal(first, second);
    free(first);
    free(second);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(a_reward_that_is_no_number_ends_the_run_and_stays_out_of_the_store),
        TEST(gradients_and_waits_are_reported),
        TEST(the_items_of_all_tables_are_counted),
        TEST(parameters_of_100_mib_reach_another_process),
        TEST(what_own_nodes_report_is_in_the_line),
        TEST(a_checkpoint_that_cannot_be_written_is_told_whatever_failed_first),
        TEST(a_learner_that_fails_is_named_and_not_who_calls_it_then),
        TEST(an_actor_that_failed_is_started_again_as_often_as_it_may),
        TEST(an_actor_that_is_alone_is_waited_for_until_it_has_begun_again),
        TEST(an_actor_of_a_deterministic_run_does_not_begin_again),
        TEST(a_thread_that_calls_exit_does_not_end_the_run_as_done),
        TEST(a_resume_waits_for_the_nodes_of_a_killed_launcher),
        TEST(a_node_that_does_not_end_is_named_to_who_resumes),
        TEST(a_short_life_forgets_no_steps),
        TEST(a_life_without_a_checkpoint_counts_in_no_total),
        TEST(gaia_has_sockets_where_paths_are_nearly_too_long),
        TEST(nobody_leaves_a_socket_behind),
        TEST(printed_commands_can_be_pasted_into_a_shell),
        TEST(the_command_that_tries_parameters_sets_what_is_tried_only),
        TEST(the_command_that_tries_parameters_has_the_environment_of_all),
        TEST(a_log_tells_when_its_node_began_served_and_ended),
        TEST(a_log_that_grows_is_cut_while_its_node_runs),
        TEST(groups_of_the_same_kind_draw_numbers_of_their_own),
        TEST(groups_of_the_same_kind_give_their_items_keys_of_their_own),
        TEST(deterministic_runs_of_several_groups_repeat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
