/* What a user types and is told: run directories, resuming, flags, graphs that are wrong. With
 * tests/launch/launch_program.c. */
#include "launch_tools.h"

#include <sys/stat.h>

/* The program with --run-dir=run and a scenario; `flag` NULL: none. */
static int run_scenario(struct scene *scene, const char *scenario, const char *flag)
{
    const char *argv[] = {LAUNCH_PROGRAM, "--run-dir=run", flag ? flag : "--seed=1",
                          "--",           scenario,        NULL};
    return scene_run(scene, argv);
}

/* ---- run directories --------------------------------------------------------------------- */

static void a_run_directory_is_not_used_twice(void **state)
{
    struct scene *scene = *state;
    assert_int_equal(run_scenario(scene, "done", NULL), 0);
    assert_int_equal(run_scenario(scene, "done", NULL), 2);
    assert_last_line(scene, "err", "there is a run in it already; --resume goes on with it");
    const char *argv[] = {LAUNCH_PROGRAM, "--resume", "run", "--", "done", NULL};
    assert_int_equal(scene_run(scene, argv), 0);
    const char *equal[] = {LAUNCH_PROGRAM, "--resume=run", "--", "done", NULL};
    assert_int_equal(scene_run(scene, equal), 0);
}

/* The last one named was resumed, whichever was meant. */
static void a_resume_of_two_directories_is_wrong_usage(void **state)
{
    struct scene *scene = *state;
    assert_int_equal(run_scenario(scene, "done", NULL), 0);
    const char *before[] = {LAUNCH_PROGRAM, "--run-dir=run", "--resume=other", "--", "done", NULL};
    const char *after[] = {LAUNCH_PROGRAM, "--resume=other", "--run-dir=run", "--", "done", NULL};
    const char *same[] = {LAUNCH_PROGRAM, "--resume=run", "--run-dir=run", "--", "done", NULL};
    assert_int_equal(scene_run(scene, before), 2);
    assert_last_line(scene, "err",
                     "--run-dir=run, but --resume names other: leave one of them out");
    assert_int_equal(scene_run(scene, after), 2);
    assert_last_line(scene, "err",
                     "--run-dir=run, but --resume names other: leave one of them out");
    assert_int_equal(scene_run(scene, same), 0);
    assert_file_contains(scene, "out", "resumed, in run");
}

/* Who may write where sockets are may answer for a node. */
static void sockets_are_in_the_run_directory_itself(void **state)
{
    struct scene *scene = *state;
    const char *prepare[] = {"/bin/sh", "-c",
                             "mkdir -m 755 run elsewhere && ln -s ../elsewhere run/sockets", NULL};
    assert_int_equal(scene_run(scene, prepare), 0);
    assert_int_equal(run_scenario(scene, "done", NULL), 2);
    assert_last_line(scene, "err",
                     "run/sockets: it is a link or a file, and has to be a directory");
    struct stat info;
    char *path = scene_path(scene, "elsewhere");
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0755); /* left alone */
    free(path);
}

/* What user/0 was given in the last life of a run. */
static uint64_t last_seed(const struct scene *scene, const char *dir)
{
    char *name = xasprintf("%s/events", dir), *text = scene_read(scene, name);
    const char *last = NULL, *event = "user/0 seed ";
    for (const char *at = text; (at = strstr(at, event)); at++)
        last = at + strlen(event);
    assert_non_null(last);
    uint64_t seed = strtoull(last, NULL, 10);
    free(text);
    free(name);
    return seed;
}

static uint64_t resume_seed(struct scene *scene, const char *dir, const char *mode)
{
    const char *argv[] = {LAUNCH_PROGRAM, "--resume", dir, mode, "--", "seed", NULL};
    assert_int_equal(scene_run(scene, argv), 0);
    return last_seed(scene, dir);
}

static void a_resumed_run_draws_other_numbers_that_follow_from_its_seed(void **state)
{
    struct scene *scene = *state;
    assert_int_equal(run_scenario(scene, "seed", "--seed=7"), 0);
    assert_int_equal(last_seed(scene, "run"), 7);
    const char *copy[] = {"/bin/cp", "-r", "run", "copy", NULL};
    assert_int_equal(scene_run(scene, copy), 0);
    uint64_t second = resume_seed(scene, "run", "--launch=processes");
    uint64_t third = resume_seed(scene, "run", "--launch=processes");
    assert_true(second != 7 && third != 7 && second != third);
    assert_true(resume_seed(scene, "copy", "--launch=threads") == second);
    assert_true(resume_seed(scene, "copy", "--launch=threads") == third);
    assert_file_contains(scene, "run/config.json", "\"seed\":\t\"7\"");
    assert_file_contains(scene, "run/config.json", "\"life\":\t\"2\"");
}

static void nothing_to_resume_is_wrong_usage(void **state)
{
    struct scene *scene = *state;
    const char *argv[] = {LAUNCH_PROGRAM, "--resume", "--run-dir=nowhere", "--", "done", NULL};
    assert_int_equal(scene_run(scene, argv), 2);
    assert_last_line(scene, "err",
                     "nowhere: there is no run to resume: start one without --resume, or name "
                     "its directory with --resume=DIR");
    const char *latest[] = {LAUNCH_PROGRAM, "--resume", "--", "done", NULL};
    assert_int_equal(scene_run(scene, latest), 2);
    assert_last_line(scene, "err",
                     "runs/latest: there is no run to resume: start one without --resume, or name "
                     "its directory with --resume=DIR");
}

static void a_run_without_a_directory_gets_a_new_one(void **state)
{
    struct scene *scene = *state;
    const char *argv[] = {LAUNCH_PROGRAM, "--", "done", NULL};
    assert_int_equal(scene_run(scene, argv), 0);
    assert_int_equal(scene_run(scene, argv), 0);
    assert_file_contains(scene, "runs/latest/config.json", "\"name\":\t\"launch_program\"");
}

static void the_latest_run_is_known_wherever_it_is(void **state)
{
    struct scene *scene = *state;
    const char *first[] = {LAUNCH_PROGRAM, "--", "done", NULL};
    assert_int_equal(scene_run(scene, first), 0);
    assert_int_equal(run_scenario(scene, "done", "--seed=77"), 0);
    assert_file_contains(scene, "runs/latest/config.json", "\"seed\":\t\"77\"");
    const char *resume[] = {LAUNCH_PROGRAM, "--resume", "--", "done", NULL};
    assert_int_equal(scene_run(scene, resume), 0);
    assert_file_contains(scene, "out", "seed 77, resumed, in run");
}

/* Where the run was that has just ended; caller frees. */
static char *run_directory(const struct scene *scene)
{
    char *text = scene_read(scene, "out"), *at = strstr(text, "  run directory:  ");
    assert_non_null(at);
    at += strlen("  run directory:  ");
    char *dir = xasprintf("%.*s", (int)strcspn(at, "\n"), at);
    free(text);
    return dir;
}

/* The runs of the program itself are named, newest first. */
static void the_latest_run_may_be_of_another_program(void **state)
{
    struct scene *scene = *state;
    const char *first[] = {LAUNCH_PROGRAM, "--", "done", NULL};
    const char *resume[] = {LAUNCH_PROGRAM, "--resume", "--", "done", NULL};
    const char *other[] = {"/bin/sh", "-c",
                           "mkdir runs/other && ln -sfn other runs/latest && "
                           "echo '{\"name\": \"other\", \"options\": {}}' >runs/other/config.json",
                           NULL};
    char *dirs[2];
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(scene_run(scene, first), 0);
        dirs[i] = run_directory(scene);
    }
    assert_int_equal(scene_run(scene, other), 0);
    for (size_t i = 2; i-- > 0;) {
        char *words = xasprintf("a run of program 'other', not of 'launch_program': --resume=%s "
                                "names the newest run of 'launch_program'",
                                dirs[i]);
        char *path = scene_path(scene, dirs[i]), *away = scene_path(scene, i ? "one" : "two");
        assert_int_equal(scene_run(scene, resume), 2);
        assert_last_line(scene, "err", words);
        assert_int_equal(rename(path, away), 0);
        free(away);
        free(path);
        free(words);
        free(dirs[i]);
    }
    assert_int_equal(scene_run(scene, resume), 2);
    assert_last_line(scene, "err", "not of 'launch_program': --resume=DIR names another run");
}

/* A pipe, which somebody else may have put there, has no other end. */
static void what_lies_in_place_of_a_configuration_is_not_waited_for(void **state)
{
    struct scene *scene = *state;
    const char *first[] = {LAUNCH_PROGRAM, "--", "done", NULL};
    const char *latest[] = {LAUNCH_PROGRAM, "--resume", "--", "done", NULL};
    const char *named[] = {LAUNCH_PROGRAM, "--resume=runs/launch_program-pipe", "--", "done", NULL};
    const char *others[] = {"/bin/sh", "-c",
                            "mkdir runs/other runs/launch_program-pipe && "
                            "mkfifo runs/launch_program-pipe/config.json && "
                            "echo '{\"name\": \"other\", \"options\": {}}' "
                            ">runs/other/config.json && ln -sfn other runs/latest",
                            NULL};
    assert_int_equal(scene_run(scene, first), 0);
    assert_int_equal(scene_run(scene, others), 0);
    assert_int_equal(scene_run(scene, latest), 2);
    assert_last_line(scene, "err", " names the newest run of 'launch_program'");
    assert_int_equal(scene_run(scene, named), 2);
    assert_last_line(scene, "err", "config.json: it is a pipe or a device, and has to be a file");
}

static void a_given_directory_makes_no_other(void **state)
{
    struct scene *scene = *state;
    assert_int_equal(run_scenario(scene, "done", "--seed=77"), 0);
    char *path = scene_path(scene, "runs");
    assert_int_equal(access(path, F_OK), -1);
    free(path);
}

/* ---- hints, limits, usage ---------------------------------------------------------------- */

/* The text after "go on with: " is a shell command; caller frees. */
static char *resume_hint(const struct scene *scene)
{
    char *text = scene_read(scene, "err"), *at = strstr(text, "go on with:");
    assert_non_null(at);
    at += strlen("go on with:");
    at[strcspn(at, "\n")] = '\0';
    char *command = xstrdup(at);
    free(text);
    return command;
}

static void the_hint_after_a_stop_or_failure_repeats_the_run(void **state)
{
    struct scene *scene = *state;
    static const char *const scenarios[] = {"fails", "wait"};
    for (size_t i = 0; i < 2; i++) {
        scene_empty(scene);
        const char *argv[] = {LAUNCH_PROGRAM,
                              "--run-dir=a run",
                              "--launch=threads",
                              "--grace",
                              "7.5",
                              "--",
                              scenarios[i],
                              "it's",
                              NULL};
        scene_start(scene, argv);
        if (i == 1) {
            scene_await(scene, "a run/events", "user/1 runs");
            kill(scene->pid, SIGTERM);
        }
        assert_int_equal(scene_wait(scene), i == 0 ? 1 : 128 + SIGTERM);
        char *command = resume_hint(scene);
        assert_contains(command, "--launch=threads --grace=7.5 -- ");
        const char *again[] = {"/bin/bash", "-c", command, NULL};
        scene_start(scene, again);
        scene_await(scene, "out", "resumed, in a run");
        if (i == 1)
            kill(scene->pid, SIGTERM);
        assert_int_equal(scene_wait(scene), i == 0 ? 1 : 128 + SIGTERM);
        char *same = resume_hint(scene);
        assert_string_equal(same, command);
        free(same);
        free(command);
    }
}

static void who_fails_alone_stops_no_others(void **state)
{
    struct scene *scene = *state;
    for (size_t i = 0; i < 2; i++) {
        scene_empty(scene);
        assert_int_equal(run_scenario(scene, "alone", launch_modes[i]), 1);
        assert_last_line(scene, "err", "failed: user/0: it ate its own homework; log: ");
        char *text = scene_read(scene, "err");
        assert_null(strstr(text, "the others"));
        free(text);
    }
}

static void too_few_descriptors_are_an_error_with_numbers(void **state)
{
    struct scene *scene = *state;
    char *command = xasprintf("ulimit -n 64; exec %s --run-dir=run -- many", LAUNCH_PROGRAM);
    const char *argv[] = {"/bin/bash", "-c", command, NULL};
    assert_int_equal(scene_run(scene, argv), 2);
    free(command);
    assert_last_line(scene, "err",
                     "201 nodes need 836 open files in the launcher, and the hard limit is 64");
}

/* As on a full disk: neither the launcher nor what it runs ends of it, and it is said. */
static void files_that_may_not_grow_do_not_end_a_run(void **state)
{
    struct scene *scene = *state;
    for (size_t i = 0; i < 2; i++) {
        scene_empty(scene);
        char *command =
            xasprintf("mkdir -p run/logs; truncate -s 64K run/logs/user-0.log "
                      "run/metrics.csv; ulimit -f 64; exec %s --run-dir=run %s -- serve",
                      LAUNCH_PROGRAM, launch_modes[i]);
        const char *argv[] = {"/bin/bash", "-c", command, NULL};
        assert_int_equal(scene_run(scene, argv), 0);
        free(command);
        assert_file_contains(scene, "err", "metrics cannot be written path=");
        assert_file_contains(scene, "err", "run/metrics.csv reason=File too large");
    }
}

struct usage {
    const char *flag, *words;
};

static void wrong_usage_is_one_line_and_status_2(void **state)
{
    struct scene *scene = *state;
    static const struct usage rows[] = {
        {"--seed=abc", "--seed=abc: not a whole number"},
        {"--seed=-1", "--seed=-1: not a whole number"},
        {"--launch=boat", "--launch=boat: use processes or threads"},
        {"--max-seconds=x", "--max-seconds=x: not a number of seconds"},
        {"--grace=1e300", "--grace=1e300: not a number of seconds"},
        {"--log-level=loud", "--log-level=loud: use debug, info, warn or error"},
        {"--deterministic", "--deterministic needs --launch=threads"},
        {"--params=x", "--params, --episodes, --stochastic, --returns and --record go with"},
        {"--format=dot", "--format goes with graph"},
        {"--max-steps=5", "--max-steps: the program has no learner"},
        {"--target-return=5", "--target-return: the program has no evaluator"},
        {"dance", "'dance': use graph, eval or no word"},
        {"eval", "eval needs --params=FILE"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *argv[] = {LAUNCH_PROGRAM, rows[i].flag, "--", "done", NULL};
        assert_int_equal(scene_run(scene, argv), 2);
        char *text = scene_read(scene, "err");
        assert_contains(text, rows[i].words);
        assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
        free(text);
    }
}

static void an_unknown_flag_is_one_line_that_says_what_to_do(void **state)
{
    struct scene *scene = *state;
    static const struct usage rows[] = {
        {"--frobnicate", "launch_program: there is no option --frobnicate (--help lists them)\n"},
        {"--optons=x", "launch_program: there is no option --optons; did you mean 'options'? "
                       "(--help lists them)\n"},
        {"-x", "launch_program: there is no option -x (--help lists them)\n"},
        {"-xyz", "launch_program: there is no option -x (--help lists them)\n"},
        {"--deterministic=1", "launch_program: --deterministic takes no value\n"},
        {"--seed", "launch_program: --seed: its value is missing\n"},
        {"--max", "launch_program: there is no option --max; did you mean 'max-seconds'? "
                  "(--help lists them)\n"}, /* or max-steps */
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *argv[] = {LAUNCH_PROGRAM, rows[i].flag, NULL};
        assert_int_equal(scene_run(scene, argv), 2);
        char *text = scene_read(scene, "err");
        assert_string_equal(text, rows[i].words);
        free(text);
    }
}

static void what_is_behind_an_unknown_flag_is_not_taken_for_it(void **state)
{
    struct scene *scene = *state;
    static const struct usage rows[] = {
        {"--frobnicate", "launch_program: there is no option --frobnicate (--help lists them)\n"},
        {"-x", "launch_program: there is no option -x (--help lists them)\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *argv[] = {LAUNCH_PROGRAM, rows[i].flag, "-V", NULL};
        assert_int_equal(scene_run(scene, argv), 2);
        char *text = scene_read(scene, "err");
        assert_string_equal(text, rows[i].words);
        free(text);
    }
}

static void a_program_without_options_says_so(void **state)
{
    struct scene *scene = *state;
    const char *argv[] = {LAUNCH_PROGRAM, "--options", "--", "sleepers", NULL};
    assert_int_equal(scene_run(scene, argv), 0);
    assert_file_contains(scene, "out", " has no options\n");
}

/* Where they stand first, as everywhere. */
static void help_and_version_are_asked_for_by_letters_too(void **state)
{
    struct scene *scene = *state;
    static const struct usage rows[] = {{"-h", "Usage: launch_program [OPTION...] [graph|eval] "},
                                        {"--help", "  -h, --help "},
                                        {"-V", "troupe "},
                                        {"--version", "troupe "}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *argv[] = {LAUNCH_PROGRAM, "--seed=1", rows[i].flag, NULL};
        assert_int_equal(scene_run(scene, argv), 0);
        assert_file_contains(scene, "out", rows[i].words);
    }
}

static void wrong_graphs_are_one_line_and_status_2(void **state)
{
    struct scene *scene = *state;
    static const struct usage rows[] = {
        {"twice", "launch_program: node 'base': this name is used twice\n"},
        {"unused", "launch_program: node 'lost': .uses[0] is not a node of this program\n"},
        {"refuses", "launch_program: build has nothing to build\n"},
        {"reads_none",
         "launch_program: 'reads_none': the program takes no such argument after --\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(run_scenario(scene, rows[i].flag, NULL), 2);
        char *text = scene_read(scene, "err");
        assert_string_equal(text, rows[i].words);
        free(text);
    }
}

static void a_run_is_prepared_once_when_all_that_was_given_is_right(void **state)
{
    struct scene *scene = *state;
    static const struct {
        const char *words[3];
        int status;
    } rows[] = {
        {{"--help"}, 0},
        {{"--options"}, 0},
        {{"graph"}, 0},
        {{"--frobnicate"}, 2},
        {{"--seed=abc"}, 2},
        {{"--set=user.speed=1"}, 2},
        {{"eval", "--params=none"}, 2},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *argv[] = {LAUNCH_PROGRAM, rows[i].words[0], rows[i].words[1], NULL, NULL, NULL};
        const char **end = argv + (rows[i].words[1] ? 3 : 2);
        *end++ = "--", *end = "prepares";
        assert_int_equal(scene_run(scene, argv), rows[i].status);
        assert_int_equal(count_in(scene, "out", "prepared"), 0);
    }
    assert_int_equal(run_scenario(scene, "cannot_prepare", NULL), 2);
    assert_file_contains(scene, "out", "prepared by nobody\n");
    assert_last_line(scene, "err", "launch_program: there is no data");
    for (size_t i = 0; i < 2; i++) {
        scene_empty(scene);
        const char *argv[] = {LAUNCH_PROGRAM,
                              "--run-dir=run",
                              launch_modes[i],
                              "--log-level=info",
                              "--",
                              "prepares",
                              NULL};
        assert_int_equal(scene_run(scene, argv), 0);
        assert_int_equal(count_in(scene, "out", "prepared by a run\n"), 1);
        assert_file_contains(scene, "first/config.json", "first");
        /* The run before it had a level of its own. */
        assert_int_equal(count_in(scene, "err", "number="), 4);
    }
}

/* To prepare may take minutes, and all of it would be for nothing. */
static void nothing_is_prepared_for_a_run_that_is_refused(void **state)
{
    struct scene *scene = *state;
    static const struct {
        const char *flag, *words;
    } rows[] = {
        {"--set=first.device=cuda:15", "first': .device is cuda:15"},
        {"--set=replay.address=0.0.0.0:0", "replay 'replay': "},
        {"--run-dir=", "the name of the run directory is empty"},
        {"--run-dir=run", "there is a run in it already; --resume goes on with it"},
        {"--resume=nowhere", "nowhere: there is no run to resume"},
        {"--resume=run", "--resume=DIR names another run"},
    };
    const char *other[] = {
        "/bin/sh", "-c",
        "mkdir run && echo '{\"name\": \"other\", \"options\": {}}' >run/config.json", NULL};
    assert_int_equal(scene_run(scene, other), 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *argv[] = {LAUNCH_PROGRAM, rows[i].flag, "--", "prepares_learners", NULL};
        assert_int_equal(scene_run(scene, argv), 2);
        assert_last_line(scene, "err", rows[i].words);
        assert_int_equal(count_in(scene, "out", "prepared"), 0);
    }
}

/* They are looked for afterwards. */
static void files_that_nodes_read_may_be_prepared(void **state)
{
    struct scene *scene = *state;
    const char *argv[] = {LAUNCH_PROGRAM, "--run-dir=run",     "--set=replay.restore=missing",
                          "--",           "prepares_learners", NULL};
    assert_int_equal(scene_run(scene, argv), 2);
    assert_int_equal(count_in(scene, "out", "prepared by a run\n"), 1);
    assert_last_line(scene, "err", "replay 'replay': .restore is missing: ");
}

/* Lines that begin with an option; explanations are further to the right. */
static size_t options_in(const struct scene *scene, const char *name)
{
    char *text = scene_read(scene, name);
    size_t count = 0;
    for (const char *line = text; *line;) {
        size_t indent = strspn(line, " ");
        count += (indent == 2 || indent == 6) && line[indent] == '-';
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
    free(text);
    return count;
}

static void what_a_command_cannot_print_is_a_failure(void **state)
{
    static const char *const commands[] = {"graph", "--options"};
    struct scene *scene = *state;
    for (size_t i = 0; i < 2; i++) {
        char *command = xasprintf("exec %s %s -- done >/dev/full", LAUNCH_PROGRAM, commands[i]);
        const char *argv[] = {"/bin/sh", "-c", command, NULL};
        assert_int_equal(scene_run(scene, argv), 1);
        free(command);
        assert_last_line(scene, "err", "could not be written to standard output");
    }
}

static void help_names_every_option(void **state)
{
    struct scene *scene = *state;
    static const char *const flags[] = {"--help", "-h"};
    static const char *const options[] = {
        "--launch=MODE ",   "--run-dir=DIR ",     "--resume[=DIR] ",    "--seed=N ",
        "--deterministic ", "--log-level=LEVEL ", "--max-seconds=S ",   "--max-steps=N ",
        "--grace=S ",       "--format=FORMAT ",   "--target-return=R ", "--params=FILE ",
        "--episodes=N ",    "-h, --help ",        "-V, --version ",     "--set=NAME=VALUE ",
        "--config=FILE ",   "--options[=TEXT] ",  "--stochastic ",      "--returns=FILE ",
        "--record=FILE ",   "--device=NAME ",
    };
    enum { OPTIONS = sizeof options / sizeof options[0] };
    for (size_t k = 0; k < 2; k++) {
        const char *argv[] = {LAUNCH_PROGRAM, flags[k], NULL};
        assert_int_equal(scene_run(scene, argv), 0);
        for (size_t i = 0; i < OPTIONS; i++)
            assert_file_contains(scene, "out", options[i]);
        assert_int_equal(options_in(scene, "out"), OPTIONS); /* none of which is not above */
        assert_file_contains(scene, "out", "[graph|eval] [-- ARGS]");
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(a_run_directory_is_not_used_twice),
        TEST(a_resume_of_two_directories_is_wrong_usage),
        TEST(sockets_are_in_the_run_directory_itself),
        TEST(a_resumed_run_draws_other_numbers_that_follow_from_its_seed),
        TEST(nothing_to_resume_is_wrong_usage),
        TEST(a_run_without_a_directory_gets_a_new_one),
        TEST(the_latest_run_is_known_wherever_it_is),
        TEST(the_latest_run_may_be_of_another_program),
        TEST(what_lies_in_place_of_a_configuration_is_not_waited_for),
        TEST(a_given_directory_makes_no_other),
        TEST(the_hint_after_a_stop_or_failure_repeats_the_run),
        TEST(who_fails_alone_stops_no_others),
        TEST(too_few_descriptors_are_an_error_with_numbers),
        TEST(files_that_may_not_grow_do_not_end_a_run),
        TEST(wrong_usage_is_one_line_and_status_2),
        TEST(an_unknown_flag_is_one_line_that_says_what_to_do),
        TEST(what_is_behind_an_unknown_flag_is_not_taken_for_it),
        TEST(a_program_without_options_says_so),
        TEST(help_and_version_are_asked_for_by_letters_too),
        TEST(wrong_graphs_are_one_line_and_status_2),
        TEST(a_run_is_prepared_once_when_all_that_was_given_is_right),
        TEST(nothing_is_prepared_for_a_run_that_is_refused),
        TEST(files_that_nodes_read_may_be_prepared),
        TEST(what_a_command_cannot_print_is_a_failure),
        TEST(help_names_every_option),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
