/* Programs with more than one group of a kind: two of actors, two evaluators. */
#include "launch_tools.h"

/* The last value that `node` reported; fails when it reported none. */
static double last_value(const struct scene *scene, const char *node, const char *metric)
{
    char *text = scene_read(scene, "run/metrics.csv"),
         *pattern = xasprintf(",%s,%s,", node, metric);
    const char *last = NULL;
    for (const char *at = text; (at = strstr(at, pattern));)
        last = at += strlen(pattern);
    if (!last)
        fail_msg("no '%s' in:\n%s", pattern, text);
    double value = strtod(last, NULL);
    free(pattern);
    free(text);
    return value;
}

static void every_group_of_actors_acts_and_is_counted(void **state)
{
    struct scene *scene = *state;
    const char *argv[] = {LAUNCH_PROGRAM,
                          "--run-dir=run",
                          "--launch=threads",
                          "--deterministic",
                          "--max-steps=100",
                          "--seed=1",
                          "--",
                          "groups",
                          NULL};
    assert_int_equal(scene_run(scene, argv), 0);
    static const char *const actors[] = {"left/0", "right/0", "right/1"};
    enum { TOLD_EVERY = 64 }; /* steps, in a deterministic run */
    double sum = 0;
    for (size_t i = 0; i < 3; i++) {
        double steps = last_value(scene, actors[i], "actor_steps");
        assert_true(steps > TOLD_EVERY);
        sum += steps;
    }
    double told = last_value(scene, "learner/0", "total_actor_steps");
    assert_true(told <= sum);
    assert_true(told >= sum - 3 * TOLD_EVERY);
}

/* The last row of RUN_DIR/NAME.csv, which is what the node reported last. */
static void assert_evaluated(const struct scene *scene, const char *name, unsigned episodes)
{
    char *path = xasprintf("run/%s.csv", name), *node = xasprintf("%s/0", name);
    char *row = last_line(scene, path);
    unsigned played;
    double mean;
    if (sscanf(row, "%*u,%*u,%*u,%u,%lf,", &played, &mean) != 2)
        fail_msg("no evaluation in %s: %s", path, row);
    assert_int_equal(played, episodes);
    assert_float_equal(last_value(scene, node, "eval_return"), mean, 1e-6);
    free(row);
    free(node);
    free(path);
}

static void every_evaluator_evaluates_as_it_was_told(void **state)
{
    struct scene *scene = *state;
    const char *argv[] = {LAUNCH_PROGRAM,
                          "--run-dir=run",
                          "--launch=threads",
                          "--deterministic",
                          "--max-steps=100",
                          "--seed=1",
                          "--",
                          "groups",
                          NULL};
    assert_int_equal(scene_run(scene, argv), 0);
    assert_evaluated(scene, "first", 10);
    assert_evaluated(scene, "second", 20);
}

static void the_evaluator_that_reaches_its_target_ends_the_program(void **state)
{
    struct scene *scene = *state;
    for (size_t i = 0; i < 2; i++) {
        scene_empty(scene);
        const char *argv[] = {LAUNCH_PROGRAM, "--run-dir=run", launch_modes[i],
                              "--",           "targets",       NULL};
        assert_int_equal(scene_run(scene, argv), 0);
        assert_file_contains(scene, "out", "done: second/0: version ");
        assert_file_contains(scene, "out", "the target of -2 is reached");
        char *params = scene_read(scene, "run/params.safetensors");
        assert_true(params[0] != '\0');
        free(params);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(every_group_of_actors_acts_and_is_counted),
        TEST(every_evaluator_evaluates_as_it_was_told),
        TEST(the_evaluator_that_reaches_its_target_ends_the_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
