/* An evaluator whose run directory has no room for parameters, in whole runs. */
#include "launch_tools.h"

#include <dirent.h>

#include "tests/core/private_mounts.h"

/* Less than the network of HIDDEN, and more than all else there. */
#define ROOM   "size=192k"
#define HIDDEN "--set=agent.hidden=256,256"

/* What is large without it lies elsewhere. */
static void make_small_run(const struct scene *scene)
{
    static const char *const names[] = {"replay", "learner"};
    char *run = scene_path(scene, "run");
    assert_int_equal(mkdir(run, 0700), 0);
    mount_memory(run, 0, ROOM);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *there = scene_path(scene, names[i]), *here = xasprintf("%s/%s", run, names[i]);
        assert_int_equal(mkdir(there, 0700), 0);
        assert_int_equal(symlink(there, here), 0);
        free(there);
        free(here);
    }
    free(run);
}

static int small_run_setup(void **state)
{
    scene_setup(state);
    make_small_run(*state);
    return 0;
}

static int small_run_teardown(void **state)
{
    const struct scene *scene = *state;
    char *run = scene_path(scene, "run");
    umount2(run, MNT_DETACH);
    free(run);
    return scene_teardown(state);
}

static size_t files_in(const struct scene *scene, const char *name)
{
    char *path = scene_path(scene, name);
    DIR *dir = opendir(path);
    size_t count = 0;
    for (const struct dirent *entry; dir && (entry = readdir(dir));)
        count += entry->d_name[0] != '.';
    if (dir)
        closedir(dir);
    free(path);
    return count;
}

/* The target is one that all parameters reach. */
static void a_full_disk_is_said_and_the_next_evaluation_tries_again(void **state)
{
    struct scene *scene = *state;
    char *run = scene_path(scene, "run");
    const char *argv[] = {NORMALIZING_PROGRAM, "--run-dir=run", HIDDEN, "--", "easy", NULL};
    scene_start(scene, argv);
    scene_await(scene, "run/metrics.csv", ",evaluator/0,eval_return,");
    scene_await(scene, "err", "parameters among the best are not kept version=");
    scene_await(scene, "err", "the target is reached by parameters that are not kept");
    assert_file_contains(scene, "err", strerror(ENOSPC));
    assert_int_equal(files_in(scene, "run/evaluator"), 0);
    assert_true(count_in(scene, "run/evaluator.csv", "\n") >= 3);
    mount_memory(run, MS_REMOUNT, "size=16m");
    assert_int_equal(scene_wait(scene), 0);
    assert_int_equal(count_in(scene, "err", "parameters among the best are not kept"), 1);
    assert_file_contains(scene, "out", "the target of -1e+09 is reached");
    /* None, where there was room again in the middle of the evaluation that reached the target. */
    assert_in_range(files_in(scene, "run/evaluator"), 0, 1);
    free(run);
    char *params = scene_path(scene, "run/params.safetensors");
    assert_int_equal(access(params, F_OK), 0);
    free(params);
}

/* A file of a file system that has no page left. */
static void make_full_file(const struct scene *scene, const char *path)
{
    static const char page[4096];
    char *full = scene_path(scene, "full"), *rows = xasprintf("%s/rows", full);
    char *rest = xasprintf("%s/rest", full);
    assert_int_equal(mkdir(full, 0700), 0);
    mount_memory(full, 0, "size=4k");
    for (size_t i = 0; i < 3; i++) {
        FILE *file = fopen(i == 0 ? path : i == 1 ? rows : rest, "we");
        assert_non_null(file);
        if (i == 2)
            assert_int_equal(fwrite(page, sizeof page, 1, file), 1);
        assert_int_equal(fclose(file), 0);
    }
    assert_int_equal(mount(rows, path, NULL, MS_BIND, NULL), 0);
    free(rest);
    free(rows);
    free(full);
}

static void rows_without_room_are_said_once_to_be_lost(void **state)
{
    struct scene *scene = *state;
    char *run = scene_path(scene, "run"), *path = scene_path(scene, "run/evaluator.csv");
    char *full = scene_path(scene, "full");
    assert_int_equal(mkdir(run, 0700), 0);
    make_full_file(scene, path);
    const char *argv[] = {NORMALIZING_PROGRAM, "--run-dir=run", "--", "easy", NULL};
    assert_int_equal(scene_run(scene, argv), 0);
    char *words = xasprintf("evaluator.csv reason=%s", strerror(ENOSPC));
    assert_int_equal(count_in(scene, "err", "a row is lost path="), 1); /* of two */
    assert_file_contains(scene, "err", words);
    umount2(path, MNT_DETACH);
    umount2(full, MNT_DETACH);
    free(words);
    free(full);
    free(path);
    free(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_full_disk_is_said_and_the_next_evaluation_tries_again,
                                        small_run_setup, small_run_teardown),
        cmocka_unit_test_setup_teardown(rows_without_room_are_said_once_to_be_lost, scene_setup,
                                        scene_teardown),
    };
    return cmocka_run_group_tests(tests, private_mounts, NULL);
}
