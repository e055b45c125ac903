/* A program whose output goes to who does not read it, or to a disk that has no room. */
#include "launch_tools.h"

#include "tests/core/private_mounts.h"

/* A program whose disk `name`, a directory, is full; `arguments`, and where its output goes. */
static void start_on_a_full_disk(struct scene *scene, const char *name, const char *arguments)
{
    char *disk = scene_path(scene, name);
    mount_memory(disk, 0, "size=64k");
    char *command = xasprintf("head -c 64K /dev/zero >%s/rest; exec %s --run-dir=run %s", name,
                              LAUNCH_PROGRAM, arguments);
    const char *argv[] = {"/bin/bash", "-c", command, NULL};
    scene_start(scene, argv);
    free(command);
    free(disk);
}

/* And the program ends. */
static void end_with_room_again(struct scene *scene, const char *name)
{
    char *disk = scene_path(scene, name), *rest = xasprintf("%s/rest", disk);
    scene_await(scene, "run/events", "base/0 runs");
    assert_int_equal(unlink(rest), 0);
    assert_int_equal(kill(scene->pid, SIGTERM), 0);
    assert_int_equal(scene_wait(scene), 128 + SIGTERM);
    free(rest);
    free(disk);
}

static void make_dir(const struct scene *scene, const char *name)
{
    char *path = scene_path(scene, name);
    assert_int_equal(mkdir(path, 0700), 0);
    free(path);
}

static void leave_disk(const struct scene *scene, const char *name)
{
    char *path = scene_path(scene, name);
    umount2(path, MNT_DETACH);
    free(path);
}

/* Nobody went away, and there may be room again. Lines are written in their order: what a node says
 * comes after the launcher's first ones. */
static void a_full_disk_under_the_output_does_not_stop_the_program(void **state)
{
    struct scene *scene = *state;
    make_dir(scene, "disk");
    start_on_a_full_disk(scene, "disk", "-- wait >>disk/out");
    scene_await(scene, "err", "a last word");
    end_with_room_again(scene, "disk");
    assert_file_contains(scene, "disk/out", " lost: no space; see the log files]\n");
    leave_disk(scene, "disk");
}

static void output_that_was_lost_to_the_end_is_told_beside_it(void **state)
{
    struct scene *scene = *state;
    char *command = xasprintf("exec %s --run-dir=run -- done >/dev/full", LAUNCH_PROGRAM);
    const char *argv[] = {"/bin/bash", "-c", command, NULL};
    assert_int_equal(scene_run(scene, argv), 0);
    assert_file_contains(scene, "err", " of output lost: no space]\n");
    free(command);
}

/* What a node says comes after its log had no room, and when there is some again. */
static void a_log_goes_on_when_its_disk_has_room_again(void **state)
{
    struct scene *scene = *state;
    make_dir(scene, "run");
    make_dir(scene, "run/logs");
    start_on_a_full_disk(scene, "run/logs", "--log-level=debug -- wait");
    scene_await(scene, "err", "user/1: lines of its log are lost: ");
    end_with_room_again(scene, "run/logs");
    assert_file_contains(scene, "run/logs/user-1.log", "\n[lines of this log are lost]\n20");
    assert_int_equal(count_in(scene, "err", "user/1: lines of its log are lost"), 1);
    leave_disk(scene, "run/logs");
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

static void a_closed_terminal_stops_the_program(void **state)
{
    struct scene *scene = *state;
    char *command =
        xasprintf("%s --run-dir=run -- wait | until [ \"$(grep -sc ' runs' run/events)\" "
                  "= 3 ]; do sleep 0.02; done; echo ${PIPESTATUS[0]}",
                  LAUNCH_PROGRAM);
    const char *argv[] = {"/bin/bash", "-c", command, NULL};
    assert_int_equal(scene_run(scene, argv), 0);
    free(command);
    assert_last_line(scene, "out", "141");
    assert_file_contains(scene, "run/events", "base/0 stops");
}

static void a_terminal_that_takes_nothing_does_not_hold_the_nodes(void **state)
{
    struct scene *scene = *state;
    /* Two megabytes for a pipe of 64 KiB that nobody reads: the node ends all the same. */
    char *command =
        xasprintf("mkfifo pipe; exec 3<>pipe; %s --run-dir=run -- long_lines >&3", LAUNCH_PROGRAM);
    const char *argv[] = {"/bin/bash", "-c", command, NULL};
    assert_int_equal(scene_run(scene, argv), 0);
    free(command);
    assert_file_contains(scene, "run/logs/user-0.log", "unfinished\n");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_full_disk_under_the_output_does_not_stop_the_program),
        TEST(output_that_was_lost_to_the_end_is_told_beside_it),
        TEST(a_log_goes_on_when_its_disk_has_room_again),
        TEST(a_full_pipe_that_does_not_wait_does_not_stop_the_program),
        TEST(a_closed_terminal_stops_the_program),
        TEST(a_terminal_that_takes_nothing_does_not_hold_the_nodes),
    };
    return cmocka_run_group_tests(tests, private_mounts, NULL);
}
