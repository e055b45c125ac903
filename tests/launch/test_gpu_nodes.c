/* Nodes that compute on GPUs, in whole runs with real processes. The GPUs are those of tests
 * (tests/nn/cuda/fake_gpus.c), beside the program; all above CUDA's runtime is a user's. */
#include "launch_tools.h"

/* A failure of these is the run's: everything else ends with the target that any policy reaches. */
#define TARGET "--target-return=3"

static void set_host(const char *gpus, const char *visible, const char *lost)
{
    const char *const values[][2] = {
        {"FAKE_GPUS", gpus}, {"CUDA_VISIBLE_DEVICES", visible}, {"FAKE_GPU_LOST", lost}};
    for (size_t i = 0; i < 3; i++)
        if (values[i][1])
            setenv(values[i][0], values[i][1], 1);
        else
            unsetenv(values[i][0]);
}

static void assert_logged(const struct scene *scene, const char *node, const char *words)
{
    char *path = xasprintf("run/logs/%s.log", node);
    assert_file_contains(scene, path, words);
    free(path);
}

/* By one of the actors: the target may be reached before the other one has begun. */
static void assert_actor_logged(const struct scene *scene, const char *words)
{
    char *first = scene_read(scene, "run/logs/actor-0.log");
    if (!strstr(first, words))
        assert_logged(scene, "actor-1", words);
    free(first);
}

static void each_process_sees_the_gpus_that_its_node_is_given(void **state)
{
    struct scene *scene = *state;
    set_host("4", NULL, NULL);
    const char *argv[] = {GPU_PROGRAM,
                          "--run-dir=run",
                          TARGET,
                          "--device=cuda:0",
                          "--set=learner.gpus=1",
                          "--set=actor.gpus=2-3",
                          "--set=evaluator.gpus=0",
                          NULL};
    assert_int_equal(scene_run(scene, argv), 0);
    assert_logged(scene, "learner-0", "device=cuda:0 gpus=1\n");
    assert_logged(scene, "learner-0", "device cuda:0 is Fake GPU 1,");
    assert_logged(scene, "learner-0", "learner uses device=cuda:0");
    assert_logged(scene, "actor-0", "device=cuda:0 gpus=2\n");
    assert_logged(scene, "actor-0", "device cuda:0 is Fake GPU 2,");
    assert_logged(scene, "actor-0", "actor uses device=cuda:0 memory_mib=");
    assert_logged(scene, "actor-1", "device cuda:0 is Fake GPU 3,");
    assert_logged(scene, "evaluator-0", "device cuda:0 is Fake GPU 0,");
    assert_logged(scene, "evaluator-0", "evaluator uses device=cuda:0 memory_mib=");
}

/* Numbers are of those that the launcher sees itself; a node's own device beats --device. */
static void gpus_are_counted_as_the_launcher_sees_them(void **state)
{
    struct scene *scene = *state;
    set_host("4", "3,1", NULL);
    const char *argv[] = {GPU_PROGRAM,
                          "--run-dir=run",
                          TARGET,
                          "--device=cuda:0",
                          "--set=learner.device=cpu",
                          "--set=actor.gpus=1",
                          "--set=evaluator.gpus=0",
                          NULL};
    assert_int_equal(scene_run(scene, argv), 0);
    assert_logged(scene, "actor-0", "device cuda:0 is Fake GPU 1,");
    assert_logged(scene, "actor-1", "device cuda:0 is Fake GPU 1,");
    assert_logged(scene, "evaluator-0", "device cuda:0 is Fake GPU 3,");
    assert_logged(scene, "learner-0", "device=cpu\n");
    char *text = scene_read(scene, "run/logs/learner-0.log");
    assert_null(strstr(text, "cuda:"));
    free(text);
}

/* One process has all GPUs: a node's are found by their numbers there. */
static void threads_compute_on_the_gpus_that_are_theirs(void **state)
{
    struct scene *scene = *state;
    set_host("4", NULL, NULL);
    const char *argv[] = {GPU_PROGRAM,
                          "--run-dir=run",
                          TARGET,
                          "--launch=threads",
                          "--set=evaluator.device=cuda:1",
                          "--set=evaluator.gpus=0,2",
                          "--set=evaluator.episodes=120",
                          "--set=evaluator.envs=110",
                          NULL};
    assert_int_equal(scene_run(scene, argv), 0);
    assert_logged(scene, "evaluator-0", "device=cuda:1 gpus=0,2\n");
    assert_logged(scene, "evaluator-0", "evaluator plays episodes=120 at_once=110\n");
    assert_logged(scene, "evaluator-0", "device cuda:2 is Fake GPU 2,");
    assert_logged(scene, "evaluator-0", "evaluator uses device=cuda:2");
}

/* They meet as learners that are processes do, and find that they need not send anything. */
static void learners_that_are_threads_sum_up_on_their_gpu(void **state)
{
    static const char *const nodes[] = {"learner-0", "learner-1"};
    struct scene *scene = *state;
    set_host("1", NULL, NULL);
    const char *argv[] = {GPU_PROGRAM,
                          "--run-dir=run",
                          "--launch=threads",
                          "--set=learner.device=cuda:0",
                          "--set=learner.count=2",
                          "--max-steps=40",
                          NULL};
    assert_int_equal(scene_run(scene, argv), 0);
    for (size_t i = 0; i < 2; i++) {
        assert_logged(scene, nodes[i], "learner uses device=cuda:0");
        assert_logged(scene, nodes[i],
                      "vectors of device cuda:0 are summed there group=learner ranks=2");
    }
}

/* Its options are its own business, so that nobody looks before it asks. */
static void a_node_of_ones_own_has_no_gpu_beside_its_list(void **state)
{
    static const char *const wrong[] = {"--set=own.device=cuda:2", "--set=own.device=cuda:5000"};
    struct scene *scene = *state;
    set_host("4", NULL, NULL);
    for (size_t i = 0; i < 3; i++) {
        scene_empty(scene);
        const char *argv[] = {GPU_PROGRAM,
                              "--run-dir=run",
                              "--launch=threads",
                              i < 2 ? wrong[i] : "--set=own.device=cuda:1",
                              "--set=own.gpus=2-3",
                              "--",
                              "own",
                              NULL};
        assert_int_equal(scene_run(scene, argv), i < 2);
        if (i < 2)
            assert_file_contains(scene, "err", " of 2 GPUs");
    }
}

static void more_gpus_than_there_are_is_said_before_anything_starts(void **state)
{
    struct scene *scene = *state;
    set_host("2", NULL, NULL);
    const char *argv[] = {GPU_PROGRAM, "--run-dir=run", "--device=cuda:0", "--set=actor.gpus=1-2",
                          NULL};
    assert_int_equal(scene_run(scene, argv), 2);
    assert_last_line(scene, "err",
                     "actor 'actor': .gpus is 1-2, but this host has 2 GPUs that CUDA sees "
                     "(CUDA_VISIBLE_DEVICES may hide others), counted from 0");
    char *path = scene_path(scene, "run");
    assert_int_not_equal(access(path, F_OK), 0);
    free(path);
}

static void a_gpu_that_is_not_there_is_said_once_before_anything_starts(void **state)
{
    struct scene *scene = *state;
    char *path = scene_path(scene, "run");
    set_host("0", NULL, NULL);
    for (size_t i = 0; i < 2; i++) {
        const char *argv[] = {GPU_PROGRAM, "--run-dir=run", "--device=cuda:0", launch_modes[i],
                              NULL};
        assert_int_equal(scene_run(scene, argv), 2);
        char *text = scene_read(scene, "err");
        assert_string_equal(text, "gpu_program: learner 'learner': .device is cuda:0, but this "
                                  "host has 0 GPUs that CUDA sees (CUDA_VISIBLE_DEVICES may hide "
                                  "others), counted from 0\n");
        free(text);
        assert_int_not_equal(access(path, F_OK), 0);
    }
    const char *insists[] = {GPU_PROGRAM, "--run-dir=run", "--set=evaluator.device=cuda:0", NULL};
    assert_int_equal(scene_run(scene, insists), 2);
    assert_last_line(scene, "err", "evaluator 'evaluator': .device is cuda:0, but this host has 0");
    const char *plays[] = {GPU_PROGRAM, "eval", "--params=none", "--device=cuda:0", NULL};
    assert_int_equal(scene_run(scene, plays), 2);
    assert_int_equal(count_in(scene, "err", "CUDA sees 0 GPUs"), 1);
    set_host("2", NULL, NULL);
    const char *third[] = {GPU_PROGRAM, "--run-dir=run", "--set=actor.device=cuda:2", NULL};
    assert_int_equal(scene_run(scene, third), 2);
    assert_last_line(scene, "err", "actor 'actor': .device is cuda:2, but this host has 2 GPUs");
    free(path);
}

static void gpus_of_nodes_that_compute_on_none_are_told_of(void **state)
{
    struct scene *scene = *state;
    set_host("2", NULL, NULL);
    const char *argv[] = {GPU_PROGRAM,
                          "--run-dir=run",
                          TARGET,
                          "--set=learner.gpus=0-1",
                          "--set=actor.gpus=0",
                          "--set=evaluator.device=cuda:0",
                          "--set=evaluator.gpus=1",
                          NULL};
    assert_int_equal(scene_run(scene, argv), 0);
    assert_file_contains(scene, "err",
                         "nobody reads learner.gpus=0-1; it needs device=cuda:* or auto\n");
    assert_file_contains(scene, "err", "nobody reads actor.gpus=0; it needs device=cuda:* or auto");
    assert_int_equal(count_in(scene, "err", "nobody reads"), 2);
}

static void without_a_gpu_auto_is_the_cpu_which_logs_and_once_the_terminal_say(void **state)
{
    static const char words[] =
        "device auto is the CPU: there is no device cuda:0: CUDA sees 0 GPUs";
    struct scene *scene = *state;
    set_host("0", NULL, NULL);
    const char *argv[] = {GPU_PROGRAM,     "--run-dir=run",        TARGET,
                          "--device=auto", "--set=learner.gpus=0", NULL};
    assert_int_equal(scene_run(scene, argv), 0);
    assert_logged(scene, "learner-0", words);
    assert_logged(scene, "evaluator-0", words);
    assert_actor_logged(scene, words);
    assert_int_equal(count_in(scene, "err", "device auto"), 1);
    assert_file_contains(scene, "err",
                         "gpu_program: device auto is the CPU: CUDA sees no GPU here");
}

static void a_gpu_that_is_lost_ends_the_run_by_name(void **state)
{
    static const char *const nodes[] = {"evaluator", "actor"};
    struct scene *scene = *state;
    set_host("2", NULL, "1");
    for (size_t i = 0; i < 2; i++) {
        char *device = xasprintf("--set=%s.device=cuda:0", nodes[i]);
        char *gpus = xasprintf("--set=%s.gpus=1", nodes[i]);
        scene_empty(scene);
        const char *argv[] = {GPU_PROGRAM, "--run-dir=run", device, gpus, NULL};
        assert_int_equal(scene_run(scene, argv), 1);
        assert_last_line(scene, "err", nodes[i]);
        assert_last_line(scene, "err", ": device cuda:0: "); /* whichever of them was first */
        assert_last_line(scene, "err", "an illegal memory access was encountered");
        free(device);
        free(gpus);
    }
}

/* That is no failure of the others: for them it is gone, and they are to continue. */
static void learners_continue_without_one_whose_gpu_is_lost(void **state)
{
    struct scene *scene = *state;
    set_host("2", NULL, "1");
    const char *argv[] = {GPU_PROGRAM,
                          "--run-dir=run",
                          "--max-steps=300",
                          "--set=learner.count=2",
                          "--set=learner.device=cuda:0",
                          "--set=learner.gpus=0-1",
                          "--set=learner.on_failure=continue",
                          NULL};
    assert_int_equal(scene_run(scene, argv), 0);
    assert_file_contains(scene, "out", "learner/0: 300 learner steps done");
    assert_logged(scene, "learner-0", "learner is in group=learner generation=2 rank=0 of=1");
    assert_logged(scene, "learner-1", "an illegal memory access was encountered");
}

static size_t times_logged(const struct scene *scene, const char *node, const char *words)
{
    char *path = xasprintf("run/logs/%s.log", node), *text = scene_read(scene, path);
    size_t times = 0;
    for (const char *at = text; (at = strstr(at, words)) != NULL; at++)
        times++;
    free(text);
    free(path);
    return times;
}

/* Which is lost in each of its lives: after the last one the run is over. */
static void an_actor_that_is_started_again_has_its_gpu_again(void **state)
{
    static const char gpu[] = "device cuda:0 is Fake GPU 1,";
    struct scene *scene = *state;
    set_host("2", NULL, "1");
    const char *argv[] = {
        GPU_PROGRAM,          "--run-dir=run",          "--set=actor.device=cuda:0",
        "--set=actor.gpus=1", "--set=actor.restarts=2", NULL};
    assert_int_equal(scene_run(scene, argv), 1);
    assert_last_line(scene, "err", "an illegal memory access was encountered");
    assert_file_contains(scene, "err", "it is started again; log: run/logs/actor-");
    size_t first = times_logged(scene, "actor-0", gpu),
           second = times_logged(scene, "actor-1", gpu);
    assert_int_equal(first > second ? first : second, 3);
}

/* The mean return that eval prints; caller frees. */
static char *evaluate_saved(struct scene *scene, const char *device)
{
    const char *argv[] = {GPU_PROGRAM, "eval",          "--params=run/params.safetensors",
                          "--seed=3",  "--episodes=20", device,
                          NULL};
    assert_int_equal(scene_run(scene, argv), 0);
    char *said = scene_read(scene, "err");
    assert_int_equal(strstr(said, "device cuda:0 is Fake GPU 0") != NULL,
                     strcmp(device, "--device=cuda:0") == 0);
    free(said);
    char *text = scene_read(scene, "out"), *mean = strstr(text, "mean return");
    assert_non_null(mean);
    mean = xstrdup(mean);
    free(text);
    return mean;
}

static void what_was_learned_on_a_gpu_plays_the_same_on_the_cpu(void **state)
{
    struct scene *scene = *state;
    set_host("1", NULL, NULL);
    const char *argv[] = {GPU_PROGRAM, "--run-dir=run", TARGET, "--set=learner.device=cuda:0",
                          NULL};
    assert_int_equal(scene_run(scene, argv), 0);
    char *there = evaluate_saved(scene, "--device=cuda:0"),
         *here = evaluate_saved(scene, "--device=cpu");
    assert_string_equal(here, there);
    free(here);
    free(there);
}

static void the_graph_shows_where_nodes_compute(void **state)
{
    struct scene *scene = *state;
    set_host("0", NULL, NULL); /* it is not asked */
    const char *argv[] = {GPU_PROGRAM, "graph", "--device=cuda:0", "--set=actor.gpus=4,6", NULL};
    assert_int_equal(scene_run(scene, argv), 0);
    assert_file_contains(scene, "out", "CartPole-v1  device cuda:0 of GPUs 4 | 6  uses replay");
    assert_file_contains(scene, "out", "CartPole-v1  device cuda:0  uses learner\n");
}

static void assert_refused(struct scene *scene, const char *flag1, const char *flag2,
                           const char *words)
{
    const char *argv[] = {GPU_PROGRAM, "graph", flag1, flag2, NULL};
    assert_int_equal(scene_run(scene, argv), 2);
    assert_last_line(scene, "err", words);
}

static void what_names_no_device_or_no_gpus_is_refused_by_name(void **state)
{
    static const char list[] = "it is a list of GPUs below 64, each once, such as 0,2 or 0-3";
    static const char *const lists[] = {"x",   "0,",  ",0",    "0-",
                                        "3-2", "1,1", "0-2,2", "64",
                                        "-1",  "0 1", "0;1",   "0-99999999999999999999"};
    struct scene *scene = *state;
    assert_refused(scene, "--device=gpu", "--seed=1", "--device: there is no device 'gpu'");
    assert_refused(scene, "--set=actor.device=cuda:99", "--seed=1",
                   "actor 'actor': there is no device 'cuda:99'");
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        char *set = xasprintf("--set=evaluator.gpus=%s", lists[i]);
        assert_refused(scene, set, "--seed=1", list);
        free(set);
    }
    assert_refused(scene, "--set=actor.device=cuda:1", "--set=actor.gpus=0-2",
                   "actor 'actor': .device is cuda:1, but of its GPUs 0-2 node 0 of 2 gets 1, "
                   "counted from cuda:0");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
#define SCENE(test) cmocka_unit_test_setup_teardown(test, scene_setup, scene_teardown)
        SCENE(each_process_sees_the_gpus_that_its_node_is_given),
        SCENE(gpus_are_counted_as_the_launcher_sees_them),
        SCENE(threads_compute_on_the_gpus_that_are_theirs),
        SCENE(learners_that_are_threads_sum_up_on_their_gpu),
        SCENE(a_node_of_ones_own_has_no_gpu_beside_its_list),
        SCENE(more_gpus_than_there_are_is_said_before_anything_starts),
        SCENE(a_gpu_that_is_not_there_is_said_once_before_anything_starts),
        SCENE(gpus_of_nodes_that_compute_on_none_are_told_of),
        SCENE(without_a_gpu_auto_is_the_cpu_which_logs_and_once_the_terminal_say),
        SCENE(a_gpu_that_is_lost_ends_the_run_by_name),
        SCENE(learners_continue_without_one_whose_gpu_is_lost),
        SCENE(an_actor_that_is_started_again_has_its_gpu_again),
        SCENE(what_was_learned_on_a_gpu_plays_the_same_on_the_cpu),
        SCENE(the_graph_shows_where_nodes_compute),
        SCENE(what_names_no_device_or_no_gpus_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
