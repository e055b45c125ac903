/* Two learners on one vector, of which one is killed or stopped: the real example, in processes. */
#include "learners.h"

static void a3c_start(struct scene *scene, const char *launch, const char *more)
{
    const char *argv[] = {A3C, "--run-dir=run", "--seed=1", launch, more, NULL};
    scene_start(scene, argv);
}

/* One is killed, wherever it is in a step; the other one goes on, and the first is there again. */
static void check_killed(struct scene *scene, uint32_t index)
{
    uint64_t generation = last_generation(scene);
    double steps = reported(scene, 1 - index, "learner_steps");
    pid_t pid = pid_of(scene, index), other = pid_of(scene, 1 - index);
    assert_int_equal(kill(pid, SIGKILL), 0);
    await_restart(scene, index, pid);
    await_generation(scene, generation + 2); /* of the survivor alone, and of both */
    await_steps(scene, 1 - index, steps + 1000);
    await_steps(scene, index, steps + 1000); /* steps are counted together */
    assert_int_equal(pid_of(scene, 1 - index), other);
}

static void who_is_killed_comes_back_and_others_go_on(void **state)
{
    struct scene *scene = *state;
    a3c_start(scene, "--launch=processes", "--set=evaluator.target_return=0");
    await_steps(scene, 1, 1000);
    check_killed(scene, 0); /* the one whose memory it was, which publishes */
    check_killed(scene, 0); /* now the other one does */
    check_killed(scene, 1); /* which is this */
    kill(scene->pid, SIGINT);
    assert_int_equal(scene_wait(scene), 128 + SIGINT);
    assert_file_contains(scene, "err", "learner/0:      failed 2 times, began again 2 times");
    assert_file_contains(scene, "err", "learner/1:      failed 1 time, began again 1 time");
}

/* The one that publishes: without it there would be no versions and no checkpoints. */
static void who_hangs_for_long_is_left_out_and_comes_back(void **state)
{
    struct scene *scene = *state;
    const char *argv[] = {A3C,
                          "--run-dir=run",
                          "--seed=1",
                          "--launch=processes",
                          "--set=evaluator.target_return=0",
                          "--set=learner.collective_timeout_ms=1500",
                          NULL};
    scene_start(scene, argv);
    await_steps(scene, 1, 1000);
    for (uint32_t index = 0; index < 2; index++) {
        uint64_t generation = last_generation(scene);
        pid_t pid = pid_of(scene, index);
        double version = reported(scene, 1 - index, "version");
        assert_int_equal(kill(pid, SIGSTOP), 0);
        await_restart(scene, index, pid);
        await_generation(scene, generation + 2);
        double steps = reported(scene, 1 - index, "learner_steps");
        await_steps(scene, index, steps + 1000);
        assert_true(reported(scene, 1 - index, "version") > version);
    }
    kill(scene->pid, SIGINT);
    assert_int_equal(scene_wait(scene), 128 + SIGINT);
    assert_file_contains(scene, "run/logs/learner-1.log", "learner/0 has made no step for 1.5 s");
    assert_file_contains(scene, "err", "learner/0:      failed 1 time, began again 1 time");
}

/* Nobody waits for it, so nobody minds, for a while. */
static void who_hangs_is_not_missed(void **state)
{
    struct scene *scene = *state;
    const char *argv[] = {A3C,
                          "--run-dir=run",
                          "--seed=1",
                          "--launch=processes",
                          "--set=evaluator.target_return=0",
                          "--set=learner.collective_timeout_ms=600000",
                          NULL};
    scene_start(scene, argv);
    await_steps(scene, 0, 1000);
    await_steps(scene, 1, 1000);
    pid_t pid = pid_of(scene, 1);
    double steps = reported(scene, 0, "learner_steps");
    assert_int_equal(kill(pid, SIGSTOP), 0);
    await_steps(scene, 0, steps + 4000);
    assert_int_equal(kill(pid, SIGCONT), 0);
    await_steps(scene, 1, steps + 4000);
    assert_int_equal(last_generation(scene), 1);
    kill(scene->pid, SIGINT);
    assert_int_equal(scene_wait(scene), 128 + SIGINT);
}

static void the_target_is_reached_in_processes_and_threads(void **state)
{
    struct scene *scene = *state;
    for (uint32_t i = 0; i < 2; i++) {
        a3c_start(scene, launch_modes[i], "--log-level=info");
        assert_int_equal(scene_wait(scene), 0);
        assert_file_contains(scene, "out", "the target of 475 is reached");
        assert_file_contains(scene, "run/logs/learner-1.log", "learner shares its vectors");
        scene_empty(scene);
    }
}

/* ---- dogwild ----------------------------------------------------------------------------------
 */

static void dogwild_start(struct scene *scene, const char *launch, const char *target,
                          const char *timeout)
{
    const char *argv[] = {A3C,    "--run-dir=run", "--seed=1", "--set=learner.mode=dogwild",
                          launch, target,          timeout,    NULL};
    scene_start(scene, argv);
}

/* Those who only hear of each other's steps: rank 0, whose numbers the others follow, and one that
 * follows. */
static void dogwild_goes_on_without_who_is_killed(void **state)
{
    struct scene *scene = *state;
    dogwild_start(scene, "--launch=processes", "--set=evaluator.target_return=0", NULL);
    await_steps(scene, 1, 1000);
    check_killed(scene, 0);
    check_killed(scene, 0);
    check_killed(scene, 1);
    kill(scene->pid, SIGINT);
    assert_int_equal(scene_wait(scene), 128 + SIGINT);
    assert_file_contains(scene, "err", "learner/0:      failed 2 times, began again 2 times");
    assert_file_contains(scene, "err", "learner/1:      failed 1 time, began again 1 time");
}

static void dogwild_goes_on_without_who_hangs(void **state)
{
    struct scene *scene = *state;
    dogwild_start(scene, "--launch=processes", "--set=evaluator.target_return=0",
                  "--set=learner.collective_timeout_ms=1500");
    await_steps(scene, 1, 1000);
    for (uint32_t index = 0; index < 2; index++) {
        uint64_t generation = last_generation(scene);
        pid_t pid = pid_of(scene, index);
        double version = reported(scene, 1 - index, "version");
        assert_int_equal(kill(pid, SIGSTOP), 0);
        await_restart(scene, index, pid);
        await_generation(scene, generation + 2);
        double steps = reported(scene, 1 - index, "learner_steps");
        await_steps(scene, index, steps + 1000);
        assert_true(reported(scene, 1 - index, "version") > version);
    }
    kill(scene->pid, SIGINT);
    assert_int_equal(scene_wait(scene), 128 + SIGINT);
    assert_file_contains(scene, "run/logs/learner-1.log",
                         "learner/0 has streamed no step for 1.5 s");
}

/* The third hears of the first alone, which is who misses the second. */
static void dogwild_loses_nobody_but_who_hangs(void **state)
{
    struct scene *scene = *state;
    const char *argv[] = {A3C,
                          "--run-dir=run",
                          "--set=learner.mode=dogwild",
                          "--set=learner.count=3",
                          "--set=evaluator.target_return=0",
                          "--set=learner.collective_timeout_ms=1500",
                          NULL};
    scene_start(scene, argv);
    await_steps(scene, 2, 500);
    pid_t pid = pid_of(scene, 1);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    await_restart(scene, 1, pid);
    kill(scene->pid, SIGINT);
    scene_wait(scene);
    assert_file_contains(scene, "err", "generation 2 of learner: learner/0, learner/2");
    assert_file_contains(scene, "err", "learner/1:      failed 1 time, began again 1 time");
}

static void dogwild_reaches_the_target_in_processes_and_threads(void **state)
{
    struct scene *scene = *state;
    for (uint32_t i = 0; i < 2; i++) {
        dogwild_start(scene, launch_modes[i], "--log-level=info", NULL);
        assert_int_equal(scene_wait(scene), 0);
        assert_file_contains(scene, "out", "the target of 475 is reached");
        assert_file_contains(scene, "run/logs/learner-1.log", "streams ended deltas=");
        double version = reported(scene, 0, "version");
        assert_true(version > 0 && version < 1 << 20); /* of the first generation */
        scene_empty(scene);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(who_is_killed_comes_back_and_others_go_on, scene_setup,
                                        scene_teardown),
        cmocka_unit_test_setup_teardown(who_hangs_is_not_missed, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(who_hangs_for_long_is_left_out_and_comes_back, scene_setup,
                                        scene_teardown),
        cmocka_unit_test_setup_teardown(the_target_is_reached_in_processes_and_threads, scene_setup,
                                        scene_teardown),
        cmocka_unit_test_setup_teardown(dogwild_goes_on_without_who_is_killed, scene_setup,
                                        scene_teardown),
        cmocka_unit_test_setup_teardown(dogwild_goes_on_without_who_hangs, scene_setup,
                                        scene_teardown),
        cmocka_unit_test_setup_teardown(dogwild_loses_nobody_but_who_hangs, scene_setup,
                                        scene_teardown),
        cmocka_unit_test_setup_teardown(dogwild_reaches_the_target_in_processes_and_threads,
                                        scene_setup, scene_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
