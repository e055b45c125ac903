/* A program whose output goes to a file on a disk, or to a pipe, that has no room. */
#include "launch_tools.h"

#include "tests/core/private_mounts.h"

/* Nobody went away, and there may be room again. Lines are written in their order: what a node says
 * comes after the launcher's first ones. */
static void a_full_disk_under_the_output_does_not_stop_the_program(void **state)
{
    struct scene *scene = *state;
    char *disk = scene_path(scene, "disk");
    assert_int_equal(mkdir(disk, 0700), 0);
    mount_memory(disk, 0, "size=64k");
    char *command = xasprintf("head -c 64K /dev/zero >disk/rest; exec %s --run-dir=run -- wait "
                              ">>disk/out",
                              LAUNCH_PROGRAM);
    const char *argv[] = {"/bin/bash", "-c", command, NULL};
    scene_start(scene, argv);
    scene_await(scene, "err", "a last word");
    scene_await(scene, "run/events", "base/0 runs");
    char *rest = scene_path(scene, "disk/rest");
    assert_int_equal(unlink(rest), 0);
    assert_int_equal(kill(scene->pid, SIGTERM), 0);
    assert_int_equal(scene_wait(scene), 128 + SIGTERM);
    assert_file_contains(scene, "disk/out", " lost: no space; see the log files]\n");
    umount2(disk, MNT_DETACH);
    free(rest);
    free(command);
    free(disk);
}

/* As who started it may have made it; waiting for room in it is no failure. */
static void a_full_pipe_that_does_not_wait_does_not_stop_the_program(void **state)
{
    struct scene *scene = *state;
    char *path = scene_path(scene, "pipe");
    assert_int_equal(mkfifo(path, 0600), 0);
    int fd = open(path, O_RDWR | O_NONBLOCK); /* which the program has, too */
    assert_true(fd >= 0);
    while (write(fd, path, 1) == 1)
        continue;
    assert_int_equal(errno, EAGAIN);
    char *command =
        xasprintf("exec %s --run-dir=run --max-seconds=1 -- wait >&%d", LAUNCH_PROGRAM, fd);
    const char *argv[] = {"/bin/bash", "-c", command, NULL};
    assert_int_equal(scene_run(scene, argv), 0);
    free(command);
    free(path);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_full_disk_under_the_output_does_not_stop_the_program,
                                        scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(a_full_pipe_that_does_not_wait_does_not_stop_the_program,
                                        scene_setup, scene_teardown),
    };
    return cmocka_run_group_tests(tests, private_mounts, NULL);
}
