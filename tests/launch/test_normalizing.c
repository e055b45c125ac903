/* Statistics of four actors in a learner's checkpoint against one pass over what their environments
 * showed, in whole runs: tests/launch/normalizing_program.c. */
#include "launch_tools.h"

#include <math.h>

#include <troupe/checkpoint.h>
#include <troupe/learner.h>
#include <troupe/params.h>

enum { ACTORS = 4, WIDTH = 3, ROW = 3 };

static const double discount = 0.9;

static void await_seen(const struct scene *scene, const char *name, size_t rows)
{
    struct deadline deadline = patience();
    char *path = scene_path(scene, name);
    struct stat info = {0};
    while (stat(path, &info) != 0 || (size_t)info.st_size < rows * ROW * sizeof(float))
        look_again_soon(deadline, path);
    free(path);
}

/* Every actor has shown so many rows, and reported most of them: it does every 50. */
static void await_rows(const struct scene *scene, size_t rows)
{
    for (size_t actor = 0; actor < ACTORS; actor++) {
        char *name = xasprintf("seen.actor-%zu", actor);
        await_seen(scene, name, rows);
        free(name);
    }
}

/* `resume` may be a repetition of `mode`. */
static void run_for(struct scene *scene, const char *mode, const char *resume, const char *how,
                    size_t rows)
{
    const char *argv[] = {NORMALIZING_PROGRAM, "--run-dir=run", mode, resume, "--", how, NULL};
    scene_start(scene, argv);
    await_rows(scene, rows);
    kill(scene->pid, SIGTERM);
    assert_int_equal(scene_wait(scene), 128 + SIGTERM);
}

static char *checkpoint_path(const struct scene *scene)
{
    char *dir = scene_path(scene, "run/learner"), *path;
    assert_int_equal(trp_learner_checkpoint_find(dir, &path), TRP_OK);
    free(dir);
    return path;
}

/* The statistics of a client, whose name is `line`, in the newest checkpoint, which has those of so
 * many clients: evaluators report nothing. */
static void read_line(const struct scene *scene, const char *line, size_t clients,
                      trp_moments got[WIDTH])
{
    char *path = checkpoint_path(scene);
    trp_checkpoint *checkpoint;
    assert_int_equal(trp_checkpoint_read(&checkpoint, path), TRP_OK);
    const char *names = trp_checkpoint_note_get(checkpoint, "clients");
    assert_non_null(names);
    const char *at = strstr(names, line);
    assert_non_null(at);
    size_t row = 0, rows = 0;
    for (const char *c = names; *c; c++) {
        rows += *c == '\n';
        row += *c == '\n' && c < at;
    }
    assert_int_equal(rows, clients);
    trp_moments all[ACTORS][WIDTH];
    assert_int_equal(trp_checkpoint_get(checkpoint, "learner.client_statistics", TRP_CHECKPOINT_F64,
                                        clients * WIDTH * 3, all),
                     TRP_OK);
    memcpy(got, all[row], sizeof all[row]);
    trp_checkpoint_destroy(checkpoint);
    free(path);
}

static void read_client(const struct scene *scene, size_t index, trp_moments got[WIDTH])
{
    char *line = xasprintf("actor/%zu\n", index);
    read_line(scene, line, ACTORS, got);
    free(line);
}

/* ---- one pass over what was shown ------------------------------------------------------------
 */

struct pass {
    long double count[WIDTH], sum[WIDTH], squares[WIDTH]; /* squares: about `about` */
    long double about[WIDTH];
};

static void pass_add(struct pass *pass, size_t element, double number)
{
    long double apart = (long double)number - pass->about[element];
    pass->count[element]++;
    pass->sum[element] += apart;
    pass->squares[element] += apart * apart;
}

/* The first `observations` and `rewards` of what a node showed. */
static void pass_over(struct pass *pass, const struct scene *scene, const char *name,
                      double observations, double rewards)
{
    char *path = scene_path(scene, name);
    FILE *file = fopen(path, "rbe");
    assert_non_null(file);
    double sum = 0;
    float row[ROW];
    while ((observations > 0 || rewards > 0) && fread(row, sizeof row, 1, file) == 1) {
        for (size_t i = 0; i < 2 && observations > 0; i++)
            pass_add(pass, i, (double)row[i]);
        observations--;
        sum = isnan(row[2]) ? 0 : discount * sum + (double)row[2];
        if (isnan(row[2]) || rewards <= 0)
            continue;
        pass_add(pass, 2, sum);
        rewards--;
    }
    assert_true(observations <= 0 && rewards <= 0); /* no more was counted than was shown */
    fclose(file);
    free(path);
}

/* 10 000 is rounded by 1e-12 in a double, and the deviation from it is 1 (a spread of 0.01 about 0
 * is rounded much less): errors of n = 10^4 numbers add up to 1e-8 of the mean's deviation and of
 * the squares at worst. */
static void assert_pass(const trp_moments got[WIDTH], const struct pass *pass)
{
    for (size_t i = 0; i < WIDTH; i++) {
        double count = (double)pass->count[i];
        double apart = (double)(pass->sum[i] / pass->count[i]);
        double squares = (double)(pass->squares[i] - pass->sum[i] * pass->sum[i] / pass->count[i]);
        assert_true(count > 20);
        assert_float_equal(got[i].count, count, 0);
        assert_float_equal(got[i].mean, (double)pass->about[i] + apart, 1e-8);
        assert_float_equal(got[i].squares, squares, 1e-8 * squares);
    }
}

static struct pass pass_begin(void)
{
    return (struct pass){.about = {10000, 0, 0}};
}

static void seen_name(char name[32], const char *kind, size_t actor)
{
    snprintf(name, 32, "%s.actor-%zu", kind, actor);
}

/* ---- runs --------------------------------------------------------------------------------------
 */

/* What `kind` of files says of the numbers from `before` on; all actors, into `whole`. */
static void check_actors(const struct scene *scene, const trp_moments before[ACTORS][WIDTH],
                         trp_moments after[ACTORS][WIDTH])
{
    struct pass whole = pass_begin();
    for (size_t actor = 0; actor < ACTORS; actor++) {
        struct pass pass = pass_begin();
        char first[32], seen[32];
        seen_name(first, "first", actor);
        seen_name(seen, "seen", actor);
        read_client(scene, actor, after[actor]);
        double observations = after[actor][0].count, rewards = after[actor][2].count;
        if (before) {
            observations -= before[actor][0].count;
            rewards -= before[actor][2].count;
            pass_over(&pass, scene, first, before[actor][0].count, before[actor][2].count);
            pass_over(&whole, scene, first, before[actor][0].count, before[actor][2].count);
        }
        pass_over(&pass, scene, seen, observations, rewards);
        pass_over(&whole, scene, seen, observations, rewards);
        assert_pass(after[actor], &pass);
    }
    char *path = checkpoint_path(scene);
    trp_moments *merged;
    size_t count;
    assert_int_equal(trp_params_load_statistics(path, &merged, &count), TRP_OK);
    assert_int_equal(count, WIDTH);
    assert_pass(merged, &whole);
    free(merged);
    free(path);
}

/* What was shown so far is of the first life. */
static void keep_seen(const struct scene *scene)
{
    for (size_t actor = 0; actor < ACTORS; actor++) {
        char name[32];
        seen_name(name, "seen", actor);
        char *from = scene_path(scene, name);
        seen_name(name, "first", actor);
        char *to = scene_path(scene, name);
        assert_int_equal(rename(from, to), 0);
        free(from);
        free(to);
    }
}

static void check_lives(struct scene *scene, const char *how)
{
    for (size_t i = 0; i < 2; i++) {
        trp_moments before[ACTORS][WIDTH], after[ACTORS][WIDTH];
        scene_empty(scene);
        run_for(scene, launch_modes[i], launch_modes[i], how, 500);
        check_actors(scene, NULL, before);
        keep_seen(scene);
        run_for(scene, launch_modes[i], "--resume", how, 500);
        check_actors(scene, (const trp_moments(*)[WIDTH])before, after);
        for (size_t actor = 0; actor < ACTORS; actor++)
            assert_true(after[actor][0].count > before[actor][0].count);
    }
}

static void four_actors_know_what_one_pass_knows_also_after_a_resume(void **state)
{
    check_lives(*state, "direct");
}

/* The cache's first life knows nothing of them, nor does its second. */
static void what_a_cache_passes_on_is_lost_and_doubled_nowhere(void **state)
{
    check_lives(*state, "cached");
}

/* Its second life begins with what its first one reported: nothing of that is lost, and nothing
 * counts twice. The evaluator has played by then, and what it saw is nobody's. */
static void an_actor_that_was_killed_goes_on_with_what_it_reported(void **state)
{
    struct scene *scene = *state;
    trp_moments before[ACTORS][WIDTH], after[ACTORS][WIDTH];
    const char *argv[] = {NORMALIZING_PROGRAM, "--run-dir=run", NULL};
    scene_start(scene, argv);
    await_rows(scene, 300);
    await_seen(scene, "seen.evaluator-0", 50);
    kill(pid_of_node(scene, "actor/2"), SIGKILL);
    assert_int_equal(scene_wait(scene), 1);
    assert_last_line(scene, "err", "failed: actor/2: it was killed by signal 9");
    check_actors(scene, NULL, before);
    keep_seen(scene);
    run_for(scene, "--launch=processes", "--resume", "direct", 300);
    check_actors(scene, (const trp_moments(*)[WIDTH])before, after);
    assert_true(after[2][0].count > before[2][0].count);
}

static void a_learner_that_acts_knows_what_one_pass_knows(void **state)
{
    struct scene *scene = *state;
    for (size_t i = 0; i < 2; i++) {
        struct pass pass = pass_begin();
        trp_moments got[WIDTH];
        scene_empty(scene);
        const char *argv[] = {
            NORMALIZING_PROGRAM, "--run-dir=run", launch_modes[i], "--", "rollout", NULL};
        scene_start(scene, argv);
        await_seen(scene, "seen.learner-0", 300);
        kill(scene->pid, SIGTERM);
        assert_int_equal(scene_wait(scene), 128 + SIGTERM);
        read_line(scene, "learner/0\n", 1, got);
        pass_over(&pass, scene, "seen.learner-0", got[0].count, got[2].count);
        assert_pass(got, &pass);
        assert_true(got[0].count > 200);
    }
}

static void run_deterministic(struct scene *scene)
{
    const char *argv[] = {NORMALIZING_PROGRAM,
                          "--run-dir=run",
                          "--launch=threads",
                          "--deterministic",
                          "--max-steps=500",
                          "--seed=3",
                          NULL};
    assert_int_equal(scene_run(scene, argv), 0);
}

static void saved_parameters_are_played_with_their_statistics(void **state)
{
    struct scene *scene = *state;
    run_deterministic(scene);
    char *path = checkpoint_path(scene);
    char *params = xasprintf("--params=%s", path);
    const char *play[] = {NORMALIZING_PROGRAM, "eval", params, "--seed=3", NULL};
    assert_int_equal(scene_run(scene, play), 0);
    assert_file_contains(scene, "out", "mean return ");

    char *bare = scene_path(scene, "bare"), *without = xasprintf("--params=%s", bare);
    trp_checkpoint *checkpoint;
    assert_int_equal(trp_checkpoint_read(&checkpoint, path), TRP_OK);
    for (size_t i = 0; i < trp_checkpoint_tensor_count(checkpoint); i++) {
        const trp_checkpoint_tensor *tensor = trp_checkpoint_tensor_at(checkpoint, i);
        if (strcmp(tensor->name, "params") == 0)
            assert_int_equal(trp_checkpoint_write(bare, tensor, 1, NULL, 0), TRP_OK);
    }
    trp_checkpoint_destroy(checkpoint);
    const char *refused[] = {NORMALIZING_PROGRAM, "eval", without, NULL};
    assert_int_equal(scene_run(scene, refused), 2);
    assert_file_contains(scene, "err", "bare has no statistics, but Drift?");
    free(without);
    free(bare);
    free(params);
    free(path);
}

static void deterministic_runs_repeat_their_statistics(void **state)
{
    struct scene *scene = *state;
    trp_moments got[2][ACTORS][WIDTH];
    for (size_t i = 0; i < 2; i++) {
        scene_empty(scene);
        run_deterministic(scene);
        for (size_t actor = 0; actor < ACTORS; actor++)
            read_client(scene, actor, got[i][actor]);
    }
    assert_memory_equal(got[0], got[1], sizeof got[0]);
}

static void actors_with_different_wrappers_are_refused_by_name(void **state)
{
    struct scene *scene = *state;
    const char *argv[] = {
        NORMALIZING_PROGRAM, "--run-dir=run", "--launch=threads", "--", "differ", NULL};
    assert_int_equal(scene_run(scene, argv), 2);
    assert_file_contains(scene, "err",
                         "actor 'collector': its environment 'Drift?normalize_observation=10' "
                         "normalises 2 numbers, but 'Drift?");
}

static void a_version_without_statistics_is_not_what_reaches_the_target(void **state)
{
    struct scene *scene = *state;
    for (size_t i = 0; i < 2; i++) {
        scene_empty(scene);
        const char *argv[] = {
            NORMALIZING_PROGRAM, "--run-dir=run", launch_modes[i], "--", "easy", NULL};
        assert_int_equal(scene_run(scene, argv), 0);
        assert_file_contains(scene, "out", "the target of -1e+09 is reached");
        char *path = scene_path(scene, "run/params.safetensors");
        trp_moments *statistics;
        size_t count;
        assert_int_equal(trp_params_load_statistics(path, &statistics, &count), TRP_OK);
        assert_int_equal(count, WIDTH);
        free(statistics);
        free(path);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(four_actors_know_what_one_pass_knows_also_after_a_resume),
        TEST(what_a_cache_passes_on_is_lost_and_doubled_nowhere),
        TEST(an_actor_that_was_killed_goes_on_with_what_it_reported),
        TEST(a_learner_that_acts_knows_what_one_pass_knows),
        TEST(saved_parameters_are_played_with_their_statistics),
        TEST(deterministic_runs_repeat_their_statistics),
        TEST(actors_with_different_wrappers_are_refused_by_name),
        TEST(a_version_without_statistics_is_not_what_reaches_the_target),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
