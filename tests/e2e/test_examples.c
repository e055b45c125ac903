/* The examples as a user runs them: they learn, their parameters can be tried, and a deterministic
 * run is repeated bit for bit. */
#include "tests/cli/cli_tools.h"

#include <dirent.h>
#include <inttypes.h>

#include <troupe/checkpoint.h>
#include "core/hash.h"

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
    char *text = scene_read(scene, "err");
    assert_null(strstr(text, "not confirmed")); /* as always: nobody has to be told */
    free(text);
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

/* What a learner of this machine's instruction set arrives at: kernels of another width add in
 * another order. */
static uint64_t learned_bits(void)
{
    if (__builtin_cpu_supports("avx512f"))
        return UINT64_C(0xdf08138da6372492);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return UINT64_C(0x029b2955db9b4d79);
    return UINT64_C(0xdfdeb14cf4f92efa);
}

static void dqn_learns_the_same_bits_as_ever(void **state)
{
    struct scene *scene = *state;
    const char *argv[] = {DQN_CARTPOLE, "--launch=threads", "--deterministic", "--run-dir=a",
                          "--seed=5",   "--max-steps=2000", "--grace=60",      NULL};
    assert_int_equal(scene_run(scene, argv), 0);
    char *path = scene_path(scene, "a/learner/learner-00000000000000002000.safetensors");
    trp_checkpoint *checkpoint;
    assert_int_equal(trp_checkpoint_read(&checkpoint, path), TRP_OK);
    float params[4624];
    assert_int_equal(trp_checkpoint_get(checkpoint, "params", TRP_CHECKPOINT_F32, 4624, params),
                     TRP_OK);
    uint64_t bits = hash_bytes(HASH_BYTES_EMPTY, params, sizeof params);
    if (bits != learned_bits())
        fail_msg("the parameters are %016" PRIx64 ", were %016" PRIx64, bits, learned_bits());
    trp_checkpoint_destroy(checkpoint);
    free(path);
}

static int is_log(const struct dirent *entry)
{
    return strstr(entry->d_name, ".log") != NULL;
}

/* Whether a node of the group reported the metric: one that was stopped at once may not have. */
static bool group_reports(const char *csv, const char *group, const char *metric)
{
    char *begin = xasprintf(",%s/", group), *end = xasprintf(",%s,", metric);
    bool found = false;
    for (const char *at = csv; !found && (at = strstr(at, begin));) {
        at += strlen(begin);
        found = strncmp(at + strspn(at, "0123456789"), end, strlen(end)) == 0;
    }
    free(begin);
    free(end);
    return found;
}

/* What the directory of a run says that ran in it: the files of logs/, by name, each with the
 * metrics of its node's group. Caller frees. */
static char *what_ran(const struct scene *scene, const char *run_dir)
{
    static const char *const metrics[] = {"items", "learner_steps", "actor_steps", "epsilon"};
    char *logs = xasprintf("%s/%s/logs", scene->dir, run_dir);
    char *csv_name = xasprintf("%s/metrics.csv", run_dir), *csv = scene_read(scene, csv_name);
    struct dirent **entries;
    int count = scandir(logs, &entries, is_log, alphasort);
    assert_true(count > 0);
    char *text = xstrdup("");
    for (int i = 0; i < count; i++) {
        char *longer = xasprintf("%s%s:", text, entries[i]->d_name);
        *strrchr(entries[i]->d_name, '-') = '\0';
        for (size_t k = 0; k < sizeof metrics / sizeof metrics[0]; k++) {
            free(text);
            text = longer;
            bool reports = group_reports(csv, entries[i]->d_name, metrics[k]);
            longer = xasprintf("%s%s%s", text, reports ? " " : "", reports ? metrics[k] : "");
        }
        free(text);
        text = xasprintf("%s\n", longer);
        free(longer);
        free(entries[i]);
    }
    free(entries);
    free(csv);
    free(csv_name);
    free(logs);
    return text;
}

static void threads_and_processes_run_the_same_nodes(void **state)
{
    struct scene *scene = *state;
    const char *threads[] = {DQN_CARTPOLE, "--launch=threads", "--run-dir=a", "--max-steps=50",
                             NULL};
    const char *processes[] = {DQN_CARTPOLE, "--launch=processes", "--run-dir=b", "--max-steps=50",
                               NULL};
    assert_int_equal(scene_run(scene, threads), 0);
    assert_int_equal(scene_run(scene, processes), 0);
    char *a = what_ran(scene, "a"), *b = what_ran(scene, "b");
    assert_string_equal(a, b);
    assert_string_equal(a, "actor-0.log: actor_steps epsilon\n"
                           "actor-1.log: actor_steps epsilon\n"
                           "actor-2.log: actor_steps epsilon\n"
                           "actor-3.log: actor_steps epsilon\n"
                           "evaluator-0.log:\n"
                           "learner-0.log: learner_steps\n"
                           "replay-0.log: items\n");
    free(a);
    free(b);
}

static void catch_is_learned_and_can_be_evaluated(void **state)
{
    struct scene *scene = *state;
    const char *learn[] = {CATCH, "--run-dir=run", "--seed=1", "--max-seconds=60", NULL};
    assert_int_equal(scene_run(scene, learn), 0);
    assert_file_contains(scene, "out", "fresh episodes, played to confirm its first ");
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
    assert_int_equal(scene_run(scene, argv), 2);
    assert_last_line(scene, "err", "catch: eval: /etc/passwd");
    const char *nothing[] = {CATCH, "eval", "--params=nowhere", NULL};
    assert_int_equal(scene_run(scene, nothing), 2);
    assert_last_line(scene, "err", "catch: eval: nowhere");
}

static void words_that_nobody_reads_are_refused_by_name(void **state)
{
    struct scene *scene = *state;
    const char *none[] = {DQN_CARTPOLE, "--run-dir=run", "--", "fast", NULL};
    assert_int_equal(scene_run(scene, none), 2);
    assert_last_line(scene, "err",
                     "dqn_cartpole: 'fast': the program takes no such argument after --");
    const char *more[] = {CATCH, "graph", "--", "3", "4", NULL};
    assert_int_equal(scene_run(scene, more), 2);
    assert_last_line(scene, "err", "catch: '4': the program takes no such argument after --");
    char *run = scene_path(scene, "run");
    assert_int_equal(access(run, F_OK), -1);
    free(run);
}

static void a_launch_file_is_compiled_and_run(void **state)
{
    struct scene *scene = *state;
    setenv("CC", COMPILER, 1); /* with this build's sanitizers, if any */
    const char *argv[] = {TROUPE_CLI, "launch", SOURCE_DIR "/examples/catch.c", "--", "graph", "--",
                          "3",        NULL};
    assert_int_equal(scene_run(scene, argv), 0);
    assert_file_contains(scene, "out", "actor         3 nodes");
    const char *help[] = {TROUPE_CLI, "launch", SOURCE_DIR "/examples/catch.c",
                          "--",       "--help", NULL};
    assert_int_equal(scene_run(scene, help), 0);
    assert_file_contains(scene, "out", "Usage: troupe launch FILE.c -- [OPTION...] [graph|eval]");
    const char *run[] = {TROUPE_CLI, "launch",        SOURCE_DIR "/examples/catch.c",
                         "--",       "--run-dir=run", "--max-steps=1",
                         NULL};
    assert_int_equal(scene_run(scene, run), 0);
    assert_file_contains(scene, "out", "look inside: " TROUPE_CLI " replay ls unix:");
    assert_file_contains(scene, "out",
                         TROUPE_CLI " launch " SOURCE_DIR "/examples/catch.c -- eval --params=");
}

static int is_left_by_launch(const struct dirent *entry)
{
    return strncmp(entry->d_name, "troupe-launch-", 14) == 0;
}

static void an_interrupted_compiler_leaves_nothing_behind(void **state)
{
    struct scene *scene = *state;
    char *compiler = scene_path(scene, "interrupted-cc");
    FILE *file = fopen(compiler, "we");
    assert_non_null(file);
    fputs("#!/bin/sh\necho half >\"$(dirname \"$0\")/ran\"\nkill -INT $PPID\nexit 1\n", file);
    fclose(file);
    assert_int_equal(chmod(compiler, 0700), 0);
    setenv("CC", compiler, 1);
    setenv("TMPDIR", scene->dir, 1);
    const char *argv[] = {TROUPE_CLI, "launch", SOURCE_DIR "/examples/catch.c", NULL};
    int status = scene_run(scene, argv);
    unsetenv("TMPDIR");
    free(compiler);
    assert_int_equal(status, 1000 + SIGINT);
    assert_file_contains(scene, "ran", "half");
    struct dirent **entries;
    assert_int_equal(scandir(scene->dir, &entries, is_left_by_launch, alphasort), 0);
    free(entries);
}

static void h_means_help_in_the_tool_too(void **state)
{
    struct scene *scene = *state;
    const char *argv[] = {TROUPE_CLI, "launch", "-h", NULL};
    assert_int_equal(scene_run(scene, argv), 0);
    assert_file_contains(scene, "out", "Compiles a launch file");
    const char *wrong[] = {TROUPE_CLI, "replay", "ls", "--frob", NULL};
    assert_int_equal(scene_run(scene, wrong), 2);
    assert_last_line(scene, "err", "(--help lists them)");
}

static void flags_of_the_program_go_after_two_dashes(void **state)
{
    struct scene *scene = *state;
    const char *argv[] = {TROUPE_CLI, "launch", "my catch.c", "--max-steps=1", NULL};
    assert_int_equal(scene_run(scene, argv), 2);
    assert_last_line(scene, "err",
                     "'--max-steps=1' goes to the program, after --: " TROUPE_CLI
                     " launch 'my catch.c' -- --max-steps=1");
}

static void a_launch_file_that_does_not_compile_is_shown(void **state)
{
    struct scene *scene = *state;
    char *path = scene_path(scene, "bad.c");
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fputs("int main(void) { return undeclared; }\n", file);
    fclose(file);
    setenv("CC", COMPILER, 1);
    const char *argv[] = {TROUPE_CLI, "launch", "bad.c", NULL};
    assert_int_equal(scene_run(scene, argv), 1);
    assert_file_contains(scene, "err", "undeclared");
    const char *missing[] = {TROUPE_CLI, "launch", "missing.c", NULL};
    assert_int_equal(scene_run(scene, missing), 2);
    assert_last_line(scene, "err", "missing.c: No such file or directory");
    const char *none[] = {TROUPE_CLI, "launch", NULL};
    assert_int_equal(scene_run(scene, none), 2);
    const char *proto[] = {TROUPE_CLI, "launch", "said.proto", NULL};
    assert_int_equal(scene_run(scene, proto), 2);
    assert_last_line(scene, "err", "FILE.c is missing: of a .proto file alone comes no program");
    free(path);
}

static void write_source(const struct scene *scene, const char *name, const char *text)
{
    char *path = scene_path(scene, name);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    free(path);
}

static void a_launch_file_may_be_several_files(void **state)
{
    struct scene *scene = *state;
    setenv("CC", COMPILER, 1);
    write_source(scene, "said.proto",
                 "syntax = \"proto3\"; package said; message Word { string text = 1; }");
    write_source(scene, "word.c",
                 "#include \"said.pb-c.h\"\n"
                 "const char *word(void) { return said__word__descriptor.name; }\n");
    write_source(scene, "main.c",
                 "#include <math.h>\n#include <stdio.h>\nconst char *word(void);\n"
                 "int main(int argc, char **argv) { printf(\"%s %.1f %s\\n\", word(), "
                 "floor(argc + 0.5), argv[0]); return 0; }\n");
    const char *argv[] = {TROUPE_CLI, "launch", "main.c", "word.c", "said.proto", "--", "x", NULL};
    assert_int_equal(scene_run(scene, argv), 0);
    assert_file_contains(scene, "out",
                         "said.Word 2.0 " TROUPE_CLI " launch main.c word.c said.proto --");
}

static void what_does_not_compile_is_named_with_its_step(void **state)
{
    struct scene *scene = *state;
    setenv("CC", COMPILER, 1);
    write_source(scene, "main.c", "int other(void); int main(void) { return other(); }\n");
    write_source(scene, "bad.c", "int other(void) { return undeclared; }\n");
    write_source(scene, "bad.proto", "syntax = \"proto3\"; message { }");
    char *dir = scene_path(scene, "inner");
    assert_int_equal(mkdir(dir, 0700), 0);
    free(dir);
    write_source(scene, "a.proto", "syntax = \"proto3\"; message A { }");
    write_source(scene, "inner/a.proto", "syntax = \"proto3\"; message B { }");
    const struct {
        const char *files[3], *words;
        int status;
    } rows[] = {
        {{"main.c", "bad.c"}, "bad.c: ", 1},
        {{"main.c", "bad.proto"}, "bad.proto: protoc-c failed", 1},
        {{"main.c"}, "the program: ", 1},
        {{"main.c", "lost.c"}, "lost.c: No such file", 2},
        {{"main.c", "a.proto", "inner/a.proto"},
         "inner/a.proto: another .proto file has this name",
         1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *argv[] = {TROUPE_CLI,       "launch",         rows[i].files[0],
                              rows[i].files[1], rows[i].files[2], NULL};
        assert_int_equal(scene_run(scene, argv), rows[i].status);
        assert_last_line(scene, "err", rows[i].words);
    }
}

static void the_replay_client_inserts_samples_and_updates(void **state)
{
    struct desk *desk = *state;
    desk_serve(desk, "--table 'name=x sampler=prioritized(0.6) limiter=min_size(1000)'");
    const char *argv[] = {REPLAY_CLIENT, desk->address, NULL};
    assert_int_equal(scene_run(&desk->at, argv), 0);
    assert_file_contains(&desk->at, "out", "4999 transitions are stored");
    assert_file_contains(&desk->at, "out", "20 batches of 256 sampled");
    desk_stop(desk);
    assert_troupe(desk, 0, "replay items store x --min-priority=1.0001 -n1");
    assert_file_contains(&desk->at, "out", "1 of "); /* 4999 had priority 1 */
}

static void the_replay_client_says_soon_that_nobody_listens(void **state)
{
    struct desk *desk = *state;
    char *address = xasprintf("unix:%s/nobody", desk->at.dir);
    const char *argv[] = {REPLAY_CLIENT, address, NULL};
    int64_t began_ns = clock_now_ns(&clock_monotonic);
    assert_int_equal(scene_run(&desk->at, argv), 1);
    assert_true(clock_now_ns(&clock_monotonic) - began_ns < 20 * INT64_C(1000000000)); /* not 30 */
    char *words =
        xasprintf("at %s: the peer did not come up within 3000 ms: No such file", address);
    assert_last_line(&desk->at, "err", words);
    free(words);
    free(address);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(deterministic_runs_repeat_bit_for_bit),
        TEST(another_seed_is_another_run),
        TEST(dqn_learns_the_same_bits_as_ever),
        TEST(deterministic_resumes_repeat_bit_for_bit),
        TEST(threads_and_processes_run_the_same_nodes),
        TEST(catch_is_learned_and_can_be_evaluated),
        cmocka_unit_test_setup_teardown(the_replay_client_inserts_samples_and_updates, desk_setup,
                                        desk_teardown),
        cmocka_unit_test_setup_teardown(the_replay_client_says_soon_that_nobody_listens, desk_setup,
                                        desk_teardown),
        TEST(eval_refuses_what_is_no_parameters),
        TEST(words_that_nobody_reads_are_refused_by_name),
        TEST(a_launch_file_is_compiled_and_run),
        TEST(an_interrupted_compiler_leaves_nothing_behind),
        TEST(h_means_help_in_the_tool_too),
        TEST(flags_of_the_program_go_after_two_dashes),
        TEST(a_launch_file_that_does_not_compile_is_shown),
        TEST(a_launch_file_may_be_several_files),
        TEST(what_does_not_compile_is_named_with_its_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
