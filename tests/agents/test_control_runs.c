/* Whole runs of agents of continuous actions, tests/agents/control_program.c: as threads and
 * processes, with one actor and two, and in turns, which repeat bit for bit. */
#include "tests/launch/launch_tools.h"

#include <math.h>

#include <troupe/checkpoint.h>
#include "core/alloc.h"

enum { STEPS = 200 };

static const char *const agents[] = {"d4pg", "mpo", "sac", "td3"};
enum { RUNS = 2 * sizeof agents / sizeof *agents };
static const char *const actors[] = {"1", "2"};

static void run(struct scene *scene, const char *mode, const char *how, const char *run_dir,
                const char *seed, const char *agent, const char *count)
{
    const char *argv[] = {CONTROL_PROGRAM, mode, how, run_dir, seed, "--", agent, count, NULL};
    if (scene_run(scene, argv) != 0) {
        char *err = scene_read(scene, "err");
        fail_msg("%s", err);
    }
    assert_file_contains(scene, "out", "done: learner/0: 200 learner steps done");
}

/* A vector of the checkpoint at the end; caller frees. */
static float *learned(const struct scene *scene, const char *run_dir, const char *vector,
                      size_t *count)
{
    char *name = xasprintf("%s/learner/learner-%020d.safetensors", run_dir, STEPS);
    char *path = scene_path(scene, name);
    trp_checkpoint *checkpoint;
    assert_int_equal(trp_checkpoint_read(&checkpoint, path), TRP_OK);
    float *values = NULL;
    for (size_t i = 0; i < trp_checkpoint_tensor_count(checkpoint); i++) {
        const trp_checkpoint_tensor *tensor = trp_checkpoint_tensor_at(checkpoint, i);
        if (strcmp(tensor->name, vector) != 0)
            continue;
        *count = tensor->shape[0];
        values = xmemdup(tensor->data, *count * sizeof *values);
    }
    assert_non_null(values);
    trp_checkpoint_destroy(checkpoint);
    free(path);
    free(name);
    return values;
}

static void assert_same(const struct scene *scene, const char *a, const char *b, bool same)
{
    static const char *const vectors[] = {"params", "critics", "target_critics"};
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        size_t count, other_count;
        float *values = learned(scene, a, vectors[i], &count);
        float *others = learned(scene, b, vectors[i], &other_count);
        assert_int_equal(count, other_count);
        assert_int_equal(memcmp(values, others, count * sizeof *values) == 0, same);
        free(values);
        free(others);
    }
}

static void runs_in_turns_repeat_bit_for_bit(void **state)
{
    struct scene *scene = *state;
    for (size_t i = 0; i < RUNS; i++) {
        const char *agent = agents[i / 2], *count = actors[i % 2];
        const struct {
            const char *dir, *seed;
        } turns[] = {{"a", "--seed=3"}, {"b", "--seed=3"}, {"c", "--seed=4"}};
        char *dirs[3];
        for (size_t k = 0; k < 3; k++) {
            dirs[k] = xasprintf("%s-%s-%s", agent, count, turns[k].dir);
            char *option = xasprintf("--run-dir=%s", dirs[k]);
            run(scene, "--launch=threads", "--deterministic", option, turns[k].seed, agent, count);
            free(option);
        }
        assert_same(scene, dirs[0], dirs[1], true);
        assert_same(scene, dirs[0], dirs[2], false);
        for (size_t k = 0; k < 3; k++)
            free(dirs[k]);
    }
}

static void run_all(struct scene *scene, const char *mode)
{
    for (size_t i = 0; i < RUNS; i++) {
        char *dir = xasprintf("%s-%s", agents[i / 2], actors[i % 2]);
        char *option = xasprintf("--run-dir=%s", dir);
        size_t count;
        run(scene, mode, "--grace=20", option, "--seed=3", agents[i / 2], actors[i % 2]);
        float *params = learned(scene, dir, "params", &count);
        for (size_t k = 0; k < count; k++)
            assert_true(isfinite(params[k]));
        free(params);
        free(option);
        free(dir);
    }
}

static void runs_as_threads_end(void **state)
{
    run_all(*state, "--launch=threads");
}

static void runs_as_processes_end(void **state)
{
    run_all(*state, "--launch=processes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(runs_in_turns_repeat_bit_for_bit, scene_setup,
                                        scene_teardown),
        cmocka_unit_test_setup_teardown(runs_as_threads_end, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(runs_as_processes_end, scene_setup, scene_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
