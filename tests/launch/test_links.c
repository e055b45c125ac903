/* Links, and pipes, in a run directory where the program makes files of its own, left there by
 * mistake or on purpose: what they lead to is left alone, and they are named. */
#include <sys/socket.h>
#include <sys/un.h>

#include "launch_tools.h"

static const char link_words[] = "it is a link, which may lead anywhere: remove it";

/* Makes a link at `name` to DIR/elsewhere, which is there or not. */
static void place_link(struct scene *scene, const char *name, const char *elsewhere)
{
    scene_empty(scene);
    char *script = xasprintf("mkdir -p \"$(dirname %s)\" && %s && ln -s \"$PWD/elsewhere\" %s",
                             name, elsewhere, name);
    const char *prepare[] = {"/bin/sh", "-c", script, NULL};
    assert_int_equal(scene_run(scene, prepare), 0);
    free(script);
}

static const char as_file[] = "echo keep this >elsewhere", as_nothing[] = "true",
                  as_directory[] = "mkdir elsewhere";

/* A file is what it was, nothing is still nothing, and a directory is empty. */
static void check_elsewhere(const struct scene *scene, const char *name, const char *elsewhere)
{
    char *path = scene_path(scene, "elsewhere");
    char *text = elsewhere == as_file ? read_whole(path) : xstrdup("keep this\n");
    bool there = access(path, F_OK) == 0;
    if (there != (elsewhere != as_nothing) || strcmp(text, "keep this\n") != 0 ||
        (elsewhere == as_directory && rmdir(path) != 0))
        fail_msg("%s: what it leads to was written to", name);
    free(text);
    free(path);
}

/* Of a program that is run with such a link. `refuses`: it does not begin, or fails of it. */
static void check_link(struct scene *scene, const char *const *argv, const char *name, bool refuses)
{
    const char *const elsewheres[] = {as_file, as_nothing};
    for (size_t i = 0; i < 2; i++) {
        place_link(scene, name, elsewheres[i]);
        int code = scene_run(scene, argv);
        if (refuses != (code != 0))
            fail_msg("with a link at %s it ends with %d", name, code);
        check_elsewhere(scene, name, elsewheres[i]);
    }
}

static void check_named(const struct scene *scene, const char *file, const char *name)
{
    assert_file_contains(scene, file, name);
    assert_file_contains(scene, file, link_words);
}

static void a_run_does_not_begin_where_a_link_is_in_its_way(void **state)
{
    static const char *const names[] = {"run/lock", "run/.config.json.new"};
    const char *argv[] = {LAUNCH_PROGRAM, "--run-dir=run", "--", "done", NULL};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        check_link(*state, argv, names[i], true);
        check_named(*state, "err", names[i]);
    }
    place_link(*state, "run/logs", as_directory);
    assert_int_equal(scene_run(*state, argv), 2);
    check_named(*state, "err", "run/logs");
    check_elsewhere(*state, "run/logs", as_directory);
}

/* Nor are those removed that it leads to. */
static void no_sockets_are_where_a_link_leads_to(void **state)
{
    struct scene *scene = *state;
    const char *argv[] = {LAUNCH_PROGRAM, "--run-dir=run", "--", "done", NULL};
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    place_link(scene, "run/sockets", as_directory);
    char *path = scene_path(scene, "elsewhere/base-0.sock");
    snprintf(name.sun_path, sizeof name.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof name), 0);
    assert_int_equal(scene_run(scene, argv), 2);
    assert_file_contains(scene, "err", "run/sockets: it is a link or a file");
    assert_int_equal(unlink(path), 0);
    close(fd);
    free(path);
}

static void a_node_does_not_log_through_a_link(void **state)
{
    for (size_t i = 0; i < 2; i++) {
        const char *argv[] = {LAUNCH_PROGRAM, "--run-dir=run", launch_modes[i], "--", "done", NULL};
        check_link(*state, argv, "run/logs/user-0.log", true);
        check_named(*state, "err", "run/logs/user-0.log");
    }
}

/* The run goes on without what would be there, but for a resume, which would not know who still
 * runs. */
static void what_a_run_can_do_without_is_not_written_through_a_link(void **state)
{
    static const char *const names[] = {"run/metrics.csv", "run/nodes", "run/.addresses.new"};
    struct scene *scene = *state;
    const char *argv[] = {LAUNCH_PROGRAM, "--run-dir=run", "--", "serve", NULL};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        check_link(scene, argv, names[i], false);
        assert_file_contains(scene, i == 1 ? "run/logs/base-0.log" : "err", link_words);
    }
    const char *prepare[] = {"/bin/sh", "-c", "ln -sf ../elsewhere run/nodes", NULL};
    assert_int_equal(scene_run(scene, prepare), 0);
    const char *resume[] = {LAUNCH_PROGRAM, "--resume", "run", "--", "serve", NULL};
    assert_int_equal(scene_run(scene, resume), 2);
    check_named(scene, "err", "run/nodes");
}

/* Learner, replay and evaluator. */
static void what_nodes_keep_is_not_written_through_a_link(void **state)
{
    static const char *const names[] = {"run/replay/LOCK", "run/replay/data.mdb",
                                        "run/params.safetensors.tmp"};
    const char *argv[] = {NODES_PROGRAM,
                          "--run-dir=run",
                          "--launch=threads",
                          "--target-return=0.9",
                          "--seed=1",
                          "--set=evaluator.best=2",
                          "--",
                          "plays",
                          NULL};
    struct scene *scene = *state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        check_link(scene, argv, names[i], true);
        check_named(scene, "err", names[i]);
    }
    place_link(scene, "run/evaluator", as_directory);
    assert_int_equal(scene_run(scene, argv), 1);
    check_named(scene, "err", "run/evaluator");
    check_elsewhere(scene, "run/evaluator", as_directory);
    check_link(scene, argv, "run/evaluator.csv", false);
}

static void place_pipe(struct scene *scene, const char *name)
{
    scene_empty(scene);
    char *script = xasprintf("mkdir -p \"$(dirname %s)\" && mkfifo %s", name, name);
    const char *prepare[] = {"/bin/sh", "-c", script, NULL};
    assert_int_equal(scene_run(scene, prepare), 0);
    free(script);
}

static void nobody_waits_for_the_other_end_of_a_pipe(void **state)
{
    static const char *const needed[] = {"run/lock", "run/.config.json.new", "run/logs/user-0.log"},
                             *const others[] = {"run/metrics.csv", "run/.addresses.new"};
    struct scene *scene = *state;
    const char *argv[] = {LAUNCH_PROGRAM, "--run-dir=run", "--", "serve", NULL};
    const char *words = "it is a pipe or a device, and has to be a file: remove it";
    for (size_t i = 0; i < 5; i++) {
        bool stops = i < 3;
        const char *name = stops ? needed[i] : others[i - 3];
        place_pipe(scene, name);
        assert_int_equal(scene_run(scene, argv) != 0, stops);
        assert_file_contains(scene, "err", name);
        assert_file_contains(scene, "err", words);
    }
    const char *learns[] = {LAUNCH_PROGRAM, "--run-dir=run", "--set=first.count=2",
                            "--",           "learners",      NULL};
    place_pipe(scene, "run/generations");
    assert_int_equal(scene_run(scene, learns), 2);
    assert_file_contains(scene, "err", "run/generations: it is a pipe");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(a_run_does_not_begin_where_a_link_is_in_its_way),
        TEST(no_sockets_are_where_a_link_leads_to),
        TEST(a_node_does_not_log_through_a_link),
        TEST(what_a_run_can_do_without_is_not_written_through_a_link),
        TEST(what_nodes_keep_is_not_written_through_a_link),
        TEST(nobody_waits_for_the_other_end_of_a_pipe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
