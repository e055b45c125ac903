/* The examples as a user runs them: they learn, their parameters can be tried, and a deterministic
 * run is repeated bit for bit. */
#include "launch_tools.h"

static void assert_same_file(const struct scene *scene, const char *a, const char *b, bool same)
{
    char *path_a = scene_path(scene, a), *path_b = scene_path(scene, b);
    const char *argv[] = {"/usr/bin/cmp", path_a, path_b, NULL};
    struct scene other = *scene;
    assert_int_equal(scene_run(&other, argv), same ? 0 : 1);
    free(path_a);
    free(path_b);
}

static void run_deterministic(struct scene *scene, const char *run_dir, const char *seed)
{
    const char *argv[] = {
        DQN_CARTPOLE, "--launch=threads", "--deterministic", run_dir, seed, "--max-steps=120",
        NULL};
    assert_int_equal(scene_run(scene, argv), 0);
    assert_file_contains(scene, "out", "done: learner/0: 120 learner steps done");
}

#define PARAMS     "/learner/learner-00000000000000000120.safetensors"
#define PARAMS_200 "/learner/learner-00000000000000000200.safetensors"
#define PARAMS_280 "/learner/learner-00000000000000000280.safetensors"

static void deterministic_runs_repeat_bit_for_bit(void **state)
{
    struct scene *scene = *state;
    run_deterministic(scene, "--run-dir=a", "--seed=5");
    run_deterministic(scene, "--run-dir=b", "--seed=5");
    assert_same_file(scene, "a" PARAMS, "b" PARAMS, true);
    assert_same_file(scene, "a/evaluator.csv", "b/evaluator.csv", true);
}

static void another_seed_is_another_run(void **state)
{
    struct scene *scene = *state;
    run_deterministic(scene, "--run-dir=a", "--seed=5");
    run_deterministic(scene, "--run-dir=b", "--seed=6");
    assert_same_file(scene, "a" PARAMS, "b" PARAMS, false);
}

static void resume_deterministic(struct scene *scene, const char *run_dir, const char *max_steps)
{
    const char *argv[] = {
        DQN_CARTPOLE, "--launch=threads", "--deterministic", "--resume", run_dir, max_steps, NULL};
    assert_int_equal(scene_run(scene, argv), 0);
}

static void deterministic_resumes_repeat_bit_for_bit(void **state)
{
    struct scene *scene = *state;
    run_deterministic(scene, "--run-dir=a", "--seed=5");
    const char *copy[] = {"/bin/cp", "-r", "a", "b", NULL};
    assert_int_equal(scene_run(scene, copy), 0);
    resume_deterministic(scene, "--run-dir=a", "--max-steps=200");
    resume_deterministic(scene, "--run-dir=b", "--max-steps=200");
    assert_same_file(scene, "a" PARAMS_200, "b" PARAMS_200, true);
    resume_deterministic(scene, "--run-dir=a", "--max-steps=280");
    resume_deterministic(scene, "--run-dir=b", "--max-steps=280");
    assert_same_file(scene, "a" PARAMS_280, "b" PARAMS_280, true);
    assert_same_file(scene, "a/evaluator.csv", "b/evaluator.csv", true);
}

/* The text behind "graph_hash" in the config of a run; caller frees. */
static char *graph_hash(const struct scene *scene, const char *config)
{
    char *text = scene_read(scene, config);
    const char *at = strstr(text, "\"graph_hash\":");
    assert_non_null(at);
    char *hash = xstrdup(at);
    hash[strcspn(hash, "\n")] = '\0';
    free(text);
    return hash;
}

static void threads_and_processes_run_one_graph(void **state)
{
    struct scene *scene = *state;
    const char *threads[] = {CATCH, "--launch=threads", "--run-dir=a", "--max-steps=1", NULL};
    const char *processes[] = {CATCH, "--launch=processes", "--run-dir=b", "--max-steps=1", NULL};
    assert_int_equal(scene_run(scene, threads), 0);
    assert_int_equal(scene_run(scene, processes), 0);
    char *a = graph_hash(scene, "a/config.json"), *b = graph_hash(scene, "b/config.json");
    assert_string_equal(a, b);
    free(a);
    free(b);
}

static void catch_is_learned_and_can_be_evaluated(void **state)
{
    struct scene *scene = *state;
    const char *learn[] = {CATCH, "--run-dir=run", "--seed=1", "--max-seconds=60", NULL};
    assert_int_equal(scene_run(scene, learn), 0);
    assert_file_contains(scene, "out", "the target of 0.8 is reached");
    const char *eval[] = {CATCH, "eval", "--params=run/params.safetensors", "--seed=9", NULL};
    assert_int_equal(scene_run(scene, eval), 0);
    assert_file_contains(scene, "out", "over 100 episodes");
    char *text = scene_read(scene, "out");
    double mean = strtod(strstr(text, "mean return ") + strlen("mean return "), NULL);
    assert_true(mean >= 0.7);
    free(text);
}

static void eval_refuses_what_is_no_parameters(void **state)
{
    struct scene *scene = *state;
    const char *argv[] = {CATCH, "eval", "--params=/etc/passwd", NULL};
    assert_int_equal(scene_run(scene, argv), 1);
    assert_last_line(scene, "err", "catch: eval: /etc/passwd");
    const char *nothing[] = {CATCH, "eval", "--params=nowhere", NULL};
    assert_int_equal(scene_run(scene, nothing), 1);
    assert_last_line(scene, "err", "catch: eval: nowhere");
}

static void a_launch_file_is_compiled_and_run(void **state)
{
    struct scene *scene = *state;
    setenv("CC", COMPILER, 1); /* with this build's sanitizers, if any */
    const char *argv[] = {TROUPE_CLI, "launch", SOURCE_DIR "/examples/catch.c", "--", "graph", "--",
                          "3",        NULL};
    assert_int_equal(scene_run(scene, argv), 0);
    assert_file_contains(scene, "out", "actor         3 nodes");
}

static void a_launch_file_that_does_not_compile_is_shown(void **state)
{
    struct scene *scene = *state;
    char *path = scene_path(scene, "bad.c");
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fputs("int main(void) { return undeclared; }\n", file);
    fclose(file);
    const char *argv[] = {TROUPE_CLI, "launch", "bad.c", NULL};
    assert_int_equal(scene_run(scene, argv), 1);
    assert_file_contains(scene, "err", "undeclared");
    const char *missing[] = {TROUPE_CLI, "launch", "missing.c", NULL};
    assert_int_equal(scene_run(scene, missing), 1);
    assert_last_line(scene, "err", "missing.c: No such file or directory");
    const char *none[] = {TROUPE_CLI, "launch", NULL};
    assert_int_equal(scene_run(scene, none), 2);
    free(path);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(deterministic_runs_repeat_bit_for_bit),
        TEST(another_seed_is_another_run),
        TEST(deterministic_resumes_repeat_bit_for_bit),
        TEST(threads_and_processes_run_one_graph),
        TEST(catch_is_learned_and_can_be_evaluated),
        TEST(eval_refuses_what_is_no_parameters),
        TEST(a_launch_file_is_compiled_and_run),
        TEST(a_launch_file_that_does_not_compile_is_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
