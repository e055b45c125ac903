/* Parameter servers that are killed or hang while learners learn on them: the real example, in
 * processes. */
#include "learners.h"

static void servers_start(struct scene *scene, const char *const *more)
{
    const char *argv[16] = {
        PS,           "--run-dir=run",      "--seed=1",
        "--grace=20", "--launch=processes", "--set=learner.collective_timeout_ms=3000"};
    size_t count = 6;
    while (*more)
        argv[count++] = *more++;
    scene_start(scene, argv);
}

#define START(...) servers_start(scene, (const char *const[]){__VA_ARGS__, NULL})

static pid_t pid_of_server(const struct scene *scene, uint32_t index)
{
    char *name = xasprintf("run/logs/server-%u.log", index);
    pid_t pid = pid_in(scene, name);
    free(name);
    return pid;
}

static void await_server_restart(struct scene *scene, uint32_t index, pid_t pid)
{
    struct deadline deadline = patience();
    while (pid_of_server(scene, index) == pid)
        look_again_soon(deadline, "a server that is started again");
}

static void await_more_steps(struct scene *scene)
{
    await_steps(scene, 0, reported(scene, 0, "learner_steps") + 50);
    await_steps(scene, 1, reported(scene, 0, "learner_steps") + 50);
}

static void kill_server(struct scene *scene, uint32_t index)
{
    pid_t pid = pid_of_server(scene, index);
    double steps = reported(scene, 0, "learner_steps");
    assert_int_equal(kill(pid, SIGKILL), 0);
    await_server_restart(scene, index, pid);
    await_steps(scene, 0, steps + 50);
    await_steps(scene, 1, steps + 50);
}

/* What each server says in the end: pushes, and the bound that held. */
static void check_bound(const struct scene *scene, uint32_t index)
{
    char *out = scene_read(scene, "out");
    char *pattern = xasprintf("server/%u: ", index);
    unsigned long long pushes = 0, behind = 99, slack = 0;
    for (const char *at = out; (at = strstr(at, pattern)); at++)
        if (sscanf(at + strlen(pattern),
                   "%llu pushes; no learner read more than %llu clocks ahead of the slowest, its "
                   "slack is %llu",
                   &pushes, &behind, &slack) == 3)
            break;
    assert_true(pushes > 100);
    assert_int_equal(slack, 3);
    assert_true(behind <= slack);
    free(pattern);
    free(out);
}

static void the_target_is_reached_though_servers_are_killed(void **state)
{
    struct scene *scene = *state;
    START("--set=evaluator.target_return=195", "--set=agent.learning_rate=1e-3");
    pid_t evaluator = await_pid(scene, "run/logs/evaluator-0.log");
    assert_int_equal(kill(evaluator, SIGSTOP), 0); /* it does not find out before */
    await_steps(scene, 0, 50);
    kill_server(scene, 0);
    kill_server(scene, 1);
    kill_server(scene, 0);
    assert_int_equal(kill(evaluator, SIGCONT), 0);
    assert_int_equal(scene_wait(scene), 0);
    assert_file_contains(scene, "out", "the target of 195 is reached");
    assert_file_contains(scene, "out", "server/0:       failed 2 times, began again 2 times");
    assert_file_contains(
        scene, "err", "server/0 failed: it was killed by signal 9 (Killed): it is started again");
    check_bound(scene, 0);
    check_bound(scene, 1);
}

static void on_one_host_memory_is_shared_or_not_as_is_said(void **state)
{
    struct scene *scene = *state;
    START("--set=learner.max_steps=200");
    assert_int_equal(scene_wait(scene), 0);
    assert_file_contains(scene, "run/logs/learner-0.log", "memory=shared");
    scene_empty(scene);
    START("--set=learner.max_steps=200", "--set=server.no_share=true");
    assert_int_equal(scene_wait(scene), 0);
    assert_file_contains(scene, "run/logs/learner-0.log", "memory=sent");
}

/* Learners do not wait for it until their timeout, which is far longer than a test may take. */
static void a_server_that_may_not_come_back_is_named_at_once(void **state)
{
    struct scene *scene = *state;
    START("--set=evaluator.target_return=0", "--set=server.restarts=0",
          "--set=learner.collective_timeout_ms=600000", "--grace=600");
    await_steps(scene, 0, 20);
    kill(pid_of_server(scene, 1), SIGKILL);
    assert_int_equal(scene_wait(scene), 1);
    assert_last_line(scene, "err", "failed: server/1: it was killed by signal 9 (Killed)");
    for (uint32_t i = 0; i < 2; i++) {
        char *name = xasprintf("run/logs/learner-%u.log", i), *log = scene_read(scene, name);
        assert_null(strstr(log, "which did not answer in time"));
        free(log);
        free(name);
    }
}

static void a_server_that_hangs_is_started_again(void **state)
{
    struct scene *scene = *state;
    START("--set=evaluator.target_return=0");
    for (uint32_t index = 0; index < 2; index++) {
        await_steps(scene, 0, reported(scene, 0, "learner_steps") + 20);
        pid_t pid = pid_of_server(scene, index);
        assert_int_equal(kill(pid, SIGSTOP), 0);
        await_server_restart(scene, index, pid);
        await_more_steps(scene);
    }
    kill(scene->pid, SIGINT);
    assert_int_equal(scene_wait(scene), 128 + SIGINT);
    assert_file_contains(scene, "err", "it has not answered learner/");
    char *err = scene_read(scene, "err");
    assert_null(strstr(err, "learner/0 failed"));
    assert_null(strstr(err, "learner/1 failed"));
    free(err);
}

/* All of it is, for longer than learners wait for a server. */
static void a_run_that_was_suspended_goes_on(void **state)
{
    struct scene *scene = *state;
    START("--set=evaluator.target_return=0", "--set=learner.collective_timeout_ms=2000");
    for (uint32_t i = 0; i < 2; i++) {
        await_steps(scene, 0, reported(scene, 0, "learner_steps") + 20);
        assert_int_equal(kill(scene->pid, SIGTSTP), 0);
        siginfo_t info;
        assert_int_equal(waitid(P_PID, (id_t)scene->pid, &info, WSTOPPED), 0);
        let_pass(i == 0 ? 1000 : 4000);
        assert_int_equal(kill(scene->pid, SIGCONT), 0);
        await_more_steps(scene);
    }
    kill(scene->pid, SIGINT);
    assert_int_equal(scene_wait(scene), 128 + SIGINT);
    char *err = scene_read(scene, "err");
    assert_null(strstr(err, " failed"));
    assert_null(strstr(err, "goes on without"));
    free(err);
}

static void a_server_that_hangs_and_may_not_come_back_is_named(void **state)
{
    struct scene *scene = *state;
    START("--set=evaluator.target_return=0", "--set=server.restarts=0", "--grace=2");
    await_steps(scene, 0, 20);
    kill(pid_of_server(scene, 1), SIGSTOP);
    assert_int_equal(scene_wait(scene), 1);
    assert_last_line(scene, "err", "failed: server/1: it has not answered learner/");
}

/* Whoever joins at it fails of them, and so would all others. */
static void damaged_files_of_a_server_end_the_program(void **state)
{
    struct scene *scene = *state;
    START("--set=evaluator.target_return=0", "--set=learner.max_steps=50");
    assert_int_equal(scene_wait(scene), 0);
    char *path = scene_path(scene, "run/server.0/params.safetensors");
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, -1, SEEK_END), 0);
    int last = fgetc(file);
    assert_int_equal(fseek(file, -1, SEEK_END), 0);
    fputc(last ^ 1, file);
    fclose(file);
    START("--set=evaluator.target_return=0", "--resume", "--set=learner.restarts=1000000");
    assert_int_equal(scene_wait(scene), 1);
    assert_last_line(scene, "err", "run/server.0/params.safetensors is damaged: ");
    assert_file_contains(scene, "err", "  once mended:");
    assert_file_contains(scene, "err", " failed 2 times, began again 1 time: ");
    free(path);
}

/* They begin again, and reach no server. */
static void steps_that_were_made_are_counted_when_nobody_reaches_a_server(void **state)
{
    struct scene *scene = *state;
    START("--set=evaluator.target_return=0", "--set=learner.restarts=1", "--grace=1",
          "--set=server.restarts=0", "--set=learner.collective_timeout_ms=500");
    await_steps(scene, 0, 20);
    await_steps(scene, 1, 20);
    pid_t pids[] = {pid_of(scene, 0), pid_of(scene, 1)};
    assert_int_equal(kill(pid_of_server(scene, 0), SIGSTOP), 0);
    for (size_t i = 0; i < 2; i++)
        kill(pids[i], SIGKILL);
    assert_int_equal(scene_wait(scene), 1);
    assert_true(summed_up(scene, "err", " learner steps") >= 20);
    char *err = scene_read(scene, "err");
    assert_null(strstr(err, "(0 of 0)")); /* a last checkpoint of nothing is no loss */
    free(err);
}

static void a_learner_that_is_killed_comes_back(void **state)
{
    struct scene *scene = *state;
    START("--set=evaluator.target_return=0");
    await_steps(scene, 1, 20);
    for (uint32_t index = 0; index < 2; index++) {
        double steps = reported(scene, 1 - index, "learner_steps");
        pid_t pid = pid_of(scene, index);
        kill(pid, SIGKILL);
        await_restart(scene, index, pid);
        await_steps(scene, 1 - index, steps + 50);
        await_steps(scene, index, steps + 50);
    }
    kill(scene->pid, SIGINT);
    assert_int_equal(scene_wait(scene), 128 + SIGINT);
}

/* How many pushes a server has answered, as it says in the end. */
static uint64_t pushes_of(const struct scene *scene, uint32_t index)
{
    char *pattern = xasprintf("server/%u: ", index), *out = scene_read(scene, "out");
    uint64_t pushes = 0;
    for (const char *at = out; (at = strstr(at, pattern)) && pushes == 0; at++)
        if (strstr(at, " pushes; "))
            pushes = strtoull(at + strlen(pattern), NULL, 10);
    free(pattern);
    free(out);
    return pushes;
}

/* A learner that is killed in a step may have pushed its half to one server alone. Each of the
 * three lives, the one that is killed and those that are stopped, may have pushed once more than it
 * has told. */
static void check_steps(const struct scene *scene)
{
    uint64_t steps = (uint64_t)summed_up(scene, "err", " learner steps");
    uint64_t pushes[] = {pushes_of(scene, 0), pushes_of(scene, 1)};
    assert_true(steps > 100);
    assert_in_range(pushes[0], steps, steps + 3);
    assert_in_range(pushes[1], pushes[0] - 3, pushes[0] + 1);
}

/* Where nobody waits for another, each push is a step, of whom it ever is. */
static void who_is_killed_costs_the_others_no_step(void **state)
{
    struct scene *scene = *state;
    static const char *const rules[][3] = {
        {"--set=server.rule=softsync", "--set=agent.optimizer=adam", "--set=server.softness=1"},
        {"--set=server.rule=dynsgd", "--set=agent.optimizer=sgd", "--set=agent.learning_rate=0.05"},
    };
    for (size_t i = 0; i < 2; i++) {
        START("--set=evaluator.target_return=0", rules[i][0], rules[i][1], rules[i][2]);
        await_steps(scene, 1, 20);
        pid_t pid = pid_of(scene, 0);
        assert_int_equal(kill(pid, SIGKILL), 0);
        await_steps(scene, 1, reported(scene, 1, "learner_steps") + 50);
        await_restart(scene, 0, pid);
        await_steps(scene, 0, reported(scene, 1, "learner_steps") + 50);
        kill(scene->pid, SIGINT);
        assert_int_equal(scene_wait(scene), 128 + SIGINT);
        assert_file_contains(scene, "err", "learner/0 failed: it was killed by signal 9 (Killed)");
        char *err = scene_read(scene, "err");
        assert_null(strstr(err, "learner/1 failed"));
        free(err);
        check_steps(scene);
        scene_empty(scene);
    }
}

/* Servers have what they learned. */
static void all_learners_may_be_killed_at_once(void **state)
{
    struct scene *scene = *state;
    START("--set=evaluator.target_return=0");
    await_steps(scene, 0, 50);
    double steps = reported(scene, 0, "learner_steps");
    pid_t pids[] = {pid_of(scene, 0), pid_of(scene, 1)};
    for (uint32_t index = 0; index < 2; index++)
        assert_int_equal(kill(pids[index], SIGSTOP), 0); /* none sees the other one's end */
    for (uint32_t index = 0; index < 2; index++)
        assert_int_equal(kill(pids[index], SIGKILL), 0);
    for (uint32_t index = 0; index < 2; index++)
        await_restart(scene, index, pids[index]);
    for (uint32_t index = 0; index < 2; index++)
        await_steps(scene, index, steps + 50);
    kill(scene->pid, SIGINT);
    assert_int_equal(scene_wait(scene), 128 + SIGINT);
}

/* With a rule under which nobody waits for it, too. */
static void who_hangs_is_left_out_and_comes_back(void **state)
{
    struct scene *scene = *state;
    static const char *const rules[] = {"--set=server.rule=async", "--set=server.rule=sync"};
    for (uint32_t i = 0; i < 2; i++) {
        START("--set=evaluator.target_return=0", "--set=learner.collective_timeout_ms=1500",
              rules[i]);
        await_steps(scene, 1, 20);
        pid_t pid = pid_of(scene, 0); /* the one that publishes */
        assert_int_equal(kill(pid, SIGSTOP), 0);
        await_restart(scene, 0, pid);
        await_steps(scene, 0, reported(scene, 1, "learner_steps") + 50);
        assert_file_contains(scene, "err", "the other learners of learner waited 1.5 s for it");
        kill(scene->pid, SIGINT);
        assert_int_equal(scene_wait(scene), 128 + SIGINT);
        scene_empty(scene);
    }
}

/* The one that is gone for good is silent, too, and comes before it. */
static void who_hangs_is_missed_though_another_is_gone(void **state)
{
    struct scene *scene = *state;
    START("--set=evaluator.target_return=0", "--set=learner.count=3", "--set=learner.restarts=0",
          "--set=learner.collective_timeout_ms=4000", "--set=server.rule=async");
    await_steps(scene, 2, 20);
    assert_int_equal(kill(pid_of(scene, 0), SIGKILL), 0);
    await_generation(scene, 2);
    await_steps(scene, 2, reported(scene, 2, "learner_steps") + 50);
    assert_int_equal(kill(pid_of(scene, 1), SIGSTOP), 0);
    scene_await(scene, "err", "generation 3 of learner: learner/2\n");
    kill(scene->pid, SIGINT);
    assert_int_equal(scene_wait(scene), 128 + SIGINT);
}

/* It leads, nobody has batches, and so nobody pushes. */
static void who_hangs_before_there_is_data_is_missed(void **state)
{
    struct scene *scene = *state;
    START("--set=evaluator.target_return=0", "--set=agent.replay_size=10000000",
          "--set=agent.min_replay_size=10000000", "--set=learner.collective_timeout_ms=1000");
    await_generation(scene, 1);
    scene_await(scene, "run/logs/learner-0.log", "learner joined server=server/1");
    scene_await(scene, "run/logs/learner-1.log", "learner joined server=server/1");
    assert_int_equal(kill(pid_of(scene, 0), SIGSTOP), 0);
    await_generation(scene, 2);
    kill(scene->pid, SIGINT);
    assert_int_equal(scene_wait(scene), 128 + SIGINT);
    assert_file_contains(scene, "err", "the other learners of learner waited 1 s for it");
}

/* Those who wait say so: nobody is lost. */
static void who_waits_for_data_is_not_missed(void **state)
{
    struct scene *scene = *state;
    START("--set=evaluator.target_return=0", "--set=agent.replay_size=10000000",
          "--set=agent.min_replay_size=10000000", "--set=learner.collective_timeout_ms=1000",
          "--max-seconds=8");
    assert_int_equal(scene_wait(scene), 0);
    assert_int_equal(last_generation(scene), 1);
}

static void a_run_goes_on_where_its_servers_were(void **state)
{
    struct scene *scene = *state;
    static const char *const modes[] = {"--launch=processes", "--launch=threads"};
    for (uint32_t i = 0; i < 2; i++) {
        char *limit = xasprintf("--set=learner.max_steps=%u", 200 * (i + 1));
        START(limit, modes[i], "--set=evaluator.target_return=0",
              i > 0 ? "--resume" : "--log-level=info");
        assert_int_equal(scene_wait(scene), 0);
        free(limit);
    }
    double steps = summed_up(scene, "out", " learner steps"); /* both may have begun one more */
    assert_true(steps >= 400 && steps < 410);
    check_bound(scene, 0);
    check_bound(scene, 1);
}

/* Actors that a limiter holds back end with inserts that wait, which is as it should be. */
static void inserts_that_wait_at_the_end_are_no_warning(void **state)
{
    struct scene *scene = *state;
    START("--set=learner.max_steps=50", "--set=evaluator.target_return=0");
    assert_int_equal(scene_wait(scene), 0);
    assert_file_contains(scene, "run/logs/replay-0.log", " ended");
    char *err = scene_read(scene, "err");
    assert_null(strstr(err, "dropped"));
    free(err);
}

/* Their files are for so many. */
static void other_counts_than_servers_have_are_refused_before_the_start(void **state)
{
    struct scene *scene = *state;
    START("--set=learner.max_steps=20", "--set=evaluator.target_return=0");
    assert_int_equal(scene_wait(scene), 0);
    START("--set=learner.max_steps=40", "--set=evaluator.target_return=0", "--resume",
          "--set=learner.count=3");
    assert_int_equal(scene_wait(scene), 2);
    assert_file_contains(scene, "err", "learner.count is 3, was 2");
    const char *away[] = {"/bin/rm", "-r", "run/server.0", "run/server.1", NULL};
    assert_int_equal(scene_run(scene, away), 0); /* then no server has any */
    START("--set=learner.max_steps=40", "--set=evaluator.target_return=0", "--resume",
          "--set=learner.count=3");
    assert_int_equal(scene_wait(scene), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(the_target_is_reached_though_servers_are_killed),
        TEST(on_one_host_memory_is_shared_or_not_as_is_said),
        TEST(a_server_that_may_not_come_back_is_named_at_once),
        TEST(a_server_that_hangs_is_started_again),
        TEST(a_run_that_was_suspended_goes_on),
        TEST(a_server_that_hangs_and_may_not_come_back_is_named),
        TEST(damaged_files_of_a_server_end_the_program),
        TEST(steps_that_were_made_are_counted_when_nobody_reaches_a_server),
        TEST(a_learner_that_is_killed_comes_back),
        TEST(who_is_killed_costs_the_others_no_step),
        TEST(all_learners_may_be_killed_at_once),
        TEST(who_hangs_is_left_out_and_comes_back),
        TEST(who_hangs_is_missed_though_another_is_gone),
        TEST(who_hangs_before_there_is_data_is_missed),
        TEST(who_waits_for_data_is_not_missed),
        TEST(a_run_goes_on_where_its_servers_were),
        TEST(inserts_that_wait_at_the_end_are_no_warning),
        TEST(other_counts_than_servers_have_are_refused_before_the_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
