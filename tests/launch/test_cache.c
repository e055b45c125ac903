/* A cache of parameters between a learner and its actors while one of them is stopped or killed:
 * real runs of tests/launch/normalizing_program.c. */
#include "launch_tools.h"

static void await_value(const struct scene *scene, const char *node, const char *metric,
                        double least)
{
    struct deadline deadline = patience();
    while (value_of(scene, node, metric) < least)
        look_again_soon(deadline, metric);
}

static void cached_start(struct scene *scene, const char *const *more)
{
    const char *argv[16] = {NORMALIZING_PROGRAM, "--run-dir=run", "--grace=20"};
    size_t count = 3;
    while (*more)
        argv[count++] = *more++;
    argv[count++] = "--";
    argv[count] = "cached";
    scene_start(scene, argv);
}

#define START(...) cached_start(scene, (const char *const[]){__VA_ARGS__, NULL})

static void end_run(struct scene *scene)
{
    kill(scene->pid, SIGTERM);
    assert_int_equal(scene_wait(scene), 128 + SIGTERM);
}

static void actors_know_how_old_what_the_cache_has_is(void **state)
{
    struct scene *scene = *state;
    START("--launch=processes", "--set=agent.samples_per_insert=0",
          "--set=actor.sync_every_items=0"); /* they act all the while */
    await_value(scene, "cache/0", "params_version", 2);
    pid_t learner = pid_of_node(scene, "learner/0");
    assert_int_equal(kill(learner, SIGSTOP), 0);
    await_value(scene, "actor/1", "params_age_s", 1.5); /* the cache answers all the while */
    double version = value_of(scene, "cache/0", "params_version");
    assert_int_equal(kill(learner, SIGCONT), 0);
    await_value(scene, "cache/0", "params_version", version + 2);
    await_value(scene, "actor/1", "actor_steps", value_of(scene, "actor/1", "actor_steps") + 50);
    end_run(scene);
}

static void a_cache_follows_whoever_publishes(void **state)
{
    struct scene *scene = *state;
    START("--launch=processes", "--set=learner.count=2", "--set=learner.on_failure=continue",
          "--set=learner.collective_timeout_ms=1500", "--set=agent.samples_per_insert=0",
          "--set=actor.sync_every_items=0");
    await_value(scene, "cache/0", "params_version", 2);
    double version = value_of(scene, "cache/0", "params_version");
    kill(pid_of_node(scene, "learner/0"), SIGKILL);
    await_value(scene, "cache/0", "params_version", version + (1 << 20)); /* of another learner */
    double steps = value_of(scene, "learner/1", "total_actor_steps");
    await_value(scene, "learner/1", "total_actor_steps", steps + 100); /* it hears of them */
    end_run(scene);
}

static void a_cache_that_is_killed_is_named(void **state)
{
    struct scene *scene = *state;
    START("--launch=processes");
    await_value(scene, "cache/0", "params_version", 2);
    kill(pid_of_node(scene, "cache/0"), SIGKILL);
    assert_int_equal(scene_wait(scene), 1);
    assert_last_line(scene, "err", "failed: cache/0: it was killed by signal 9");
}

static void a_deterministic_run_refuses_a_cache(void **state)
{
    struct scene *scene = *state;
    START("--launch=threads", "--deterministic", "--max-steps=100");
    assert_int_equal(scene_wait(scene), 2);
    assert_file_contains(scene, "err", "cache 'cache': a deterministic run has none");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(actors_know_how_old_what_the_cache_has_is),
        TEST(a_cache_follows_whoever_publishes),
        TEST(a_cache_that_is_killed_is_named),
        TEST(a_deterministic_run_refuses_a_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
