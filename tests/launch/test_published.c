/* Critic and actor in one vector of the learner, of which actors, evaluators and files of
 * parameters have the actor alone: whole runs of tests/launch/critic_program.c. */
#include "launch_tools.h"

#include <inttypes.h>

#include <troupe/checkpoint.h>
#include <troupe/learner.h>

enum { TENSORS = 6, ACTOR = 16 + 16 + 256 + 16 + 16 + 16, CRITIC = 32 + 16 + 256 + 16 + 16 + 16 };

static void run(struct scene *scene, const char *mode, const char *how, const char *until)
{
    const char *argv[] = {CRITIC_PROGRAM, "--run-dir=run", mode, how, until, NULL};
    if (scene_run(scene, argv) != 0) {
        char *err = scene_read(scene, "err");
        fail_msg("%s", err);
    }
}

/* The file that the evaluator saved: the actor's tensors under the names of its layers. */
static void check_saved(const struct scene *scene)
{
    static const char *const names[TENSORS] = {"body.0.weight", "body.0.bias", "body.1.weight",
                                               "body.1.bias",   "head.weight", "head.bias"};
    static const uint64_t inputs[TENSORS] = {1, 0, 16, 0, 16, 0};
    char *path = scene_path(scene, "run/params.safetensors");
    trp_checkpoint *saved;
    assert_int_equal(trp_checkpoint_read(&saved, path), TRP_OK);
    size_t count = trp_checkpoint_tensor_count(saved), found = 0;
    assert_int_equal(count, TENSORS + 1); /* and the statistics */
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < TENSORS; k++) {
            const trp_checkpoint_tensor *tensor = trp_checkpoint_tensor_at(saved, i);
            if (strcmp(tensor->name, names[k]) != 0)
                continue;
            assert_int_equal(tensor->shape[1], inputs[k]);
            found++;
        }
    assert_int_equal(found, TENSORS);
    trp_checkpoint_destroy(saved);
    free(path);
}

/* Learner steps of the newest checkpoint, which has both networks. */
static uint64_t check_checkpoint(const struct scene *scene, char **path)
{
    char *dir = scene_path(scene, "run/learner");
    trp_checkpoint *checkpoint;
    float params[CRITIC + ACTOR];
    uint64_t steps;
    assert_int_equal(trp_learner_checkpoint_find(dir, path), TRP_OK);
    assert_int_equal(trp_checkpoint_read(&checkpoint, *path), TRP_OK);
    assert_int_equal(
        trp_checkpoint_get(checkpoint, "params", TRP_CHECKPOINT_F32, CRITIC + ACTOR, params),
        TRP_OK);
    assert_int_equal(trp_checkpoint_get(checkpoint, "learner.steps", TRP_CHECKPOINT_U64, 1, &steps),
                     TRP_OK);
    trp_checkpoint_destroy(checkpoint);
    free(dir);
    return steps;
}

/* What a file's parameters play on the very same episodes. */
static char *play(struct scene *scene, const char *path)
{
    char *params = xasprintf("--params=%s", path);
    const char *argv[] = {CRITIC_PROGRAM, "eval", params, "--seed=3", "--episodes=20", NULL};
    if (scene_run(scene, argv) != 0) {
        char *err = scene_read(scene, "err");
        fail_msg("%s", err);
    }
    free(params);
    return scene_read(scene, "out");
}

static void actors_evaluators_and_files_have_the_part_that_is_published(void **state)
{
    struct scene *scene = *state;
    for (size_t i = 0; i < 2; i++) {
        char *before, *after;
        scene_empty(scene);
        run(scene, launch_modes[i], "--seed=1", "--max-steps=400");
        uint64_t steps = check_checkpoint(scene, &before);
        free(play(scene, before));
        run(scene, launch_modes[i], "--resume", "--max-steps=600");
        assert_true(check_checkpoint(scene, &after) > steps);
        run(scene, launch_modes[i], "--resume", "--max-steps=1000000");
        check_saved(scene);
        free(before);
        free(after);
    }
}

/* The return that `eval` printed: "mean return X +- ...". */
static double mean_return(char *text)
{
    char *at = strstr(text, "mean return ");
    assert_non_null(at);
    double value = strtod(at + strlen("mean return "), NULL);
    free(text);
    return value;
}

static void a_checkpoint_plays_as_its_actor_does(void **state)
{
    struct scene *scene = *state;
    run(scene, "--launch=threads", "--seed=1", NULL);
    char *saved = scene_path(scene, "run/params.safetensors"), *checkpoint;
    check_checkpoint(scene, &checkpoint);
    double best = mean_return(play(scene, saved)), last = mean_return(play(scene, checkpoint));
    /* An action that has nothing to do with the number costs 1/3 a step: -6.7. */
    assert_true(best > -1);
    assert_true(last > -2);
    free(checkpoint);
    free(saved);
}

static void a_policy_of_another_network_is_refused_by_name(void **state)
{
    static const struct {
        const char *mode, *words;
    } rows[] = {
        {"wider", "parameters, the policy's network has"},
        {"renamed", "has body.0.weight [16][1] at 0 (16 by 1, 1 by 16) where the policy's network "
                    "has trunk.weight [16][1] at 0"},
    };
    struct scene *scene = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        scene_empty(scene);
        const char *argv[] = {CRITIC_PROGRAM, "--run-dir=run", "--launch=threads",
                              "--",           rows[i].mode,    NULL};
        assert_int_equal(scene_run(scene, argv), 1);
        assert_file_contains(scene, "err", rows[i].words);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(actors_evaluators_and_files_have_the_part_that_is_published),
        TEST(a_checkpoint_plays_as_its_actor_does),
        TEST(a_policy_of_another_network_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
