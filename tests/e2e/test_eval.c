/* What becomes of evaluations: the best parameters stay, and `eval` says and writes what saved ones
 * are worth. With the real example. */
#include "core/words.h"
#include "tests/launch/launch_tools.h"

#include <dirent.h>
#include <math.h>
#include <zip.h>

enum { EPISODES = 40 };

/* The one file of best parameters; caller frees. */
static char *best_file(const struct scene *scene)
{
    char *dir = scene_path(scene, "run/evaluator"), *found = NULL;
    DIR *open = opendir(dir);
    assert_non_null(open);
    for (const struct dirent *entry; (entry = readdir(open));) {
        if (entry->d_name[0] == '.')
            continue;
        if (found)
            fail_msg("%s and %s are kept", found, entry->d_name);
        found = xasprintf("%s/%s", dir, entry->d_name);
    }
    closedir(open);
    free(dir);
    assert_non_null(found);
    return found;
}

/* The number that `text` begins with, which nobody wrote as 0.59999999999999998. */
static double shortest_number(const char *text)
{
    char *end, digits[DECIMAL_BYTES];
    double value = strtod(text, &end);
    double_decimal(value, digits);
    assert_int_equal(end - text, strlen(digits));
    assert_memory_equal(text, digits, strlen(digits));
    return value;
}

static double return_of(const char *path)
{
    const char *number = strstr(path, "/return_");
    assert_non_null(number);
    return shortest_number(number + strlen("/return_"));
}

/* The largest mean of evaluator.csv, and the actors' steps of its last row. Evaluations that
 * confirm a target have a row, too. */
static double best_row(const struct scene *scene, unsigned long *acted)
{
    char *text = scene_read(scene, "run/evaluator.csv");
    double best = -INFINITY;
    unsigned long version, steps;
    for (const char *line = strchr(text, '\n'); line && line[1]; line = strchr(line + 1, '\n')) {
        unsigned episodes;
        int before = 0;
        assert_int_equal(
            sscanf(line, "\n%lu,%lu,%lu,%u,%n", &version, &steps, acted, &episodes, &before), 4);
        double mean = shortest_number(line + before);
        if (episodes == 1000)
            best = fmax(best, mean);
    }
    free(text);
    return best;
}

static void catch_is_learned(struct scene *scene)
{
    const char *argv[] = {CATCH, "--run-dir=run", "--launch=threads", "--seed=1", NULL};
    if (scene_run(scene, argv) != 0) {
        char *text = scene_read(scene, "err");
        fail_msg("%s", text);
    }
}

static void the_best_parameters_stay_and_a_resumed_run_goes_on_with_them(void **state)
{
    struct scene *scene = *state;
    catch_is_learned(scene);
    unsigned long acted = 0;
    char *first = best_file(scene);
    assert_true(return_of(first) == best_row(scene, &acted));
    const char *argv[] = {CATCH,
                          "--run-dir=run",
                          "--launch=threads",
                          "--resume",
                          "--target-return=2",
                          "--max-steps=100000",
                          "--max-seconds=1",
                          NULL};
    scene_run(scene, argv);
    char *second = best_file(scene);
    assert_true(return_of(second) >= return_of(first));
    assert_true(return_of(second) == best_row(scene, &acted));
    assert_true(acted > 0); /* the first run's, if no others */
    free(first);
    free(second);
}

/* An array of an archive without its header, which says `words`. Caller frees. */
static void *array_of(const struct scene *scene, const char *file, const char *name,
                      const char *words, size_t bytes)
{
    char *path = scene_path(scene, file);
    zip_t *zip = zip_open(path, ZIP_RDONLY, NULL);
    assert_non_null(zip);
    zip_file_t *array = zip_fopen(zip, name, 0);
    if (!array)
        fail_msg("no %s in %s", name, path);
    char header[256], *data = xmalloc(bytes + 1);
    assert_int_equal(zip_fread(array, header, sizeof header), sizeof header);
    header[255] = '\0';
    if (!strstr(header + 10, words))
        fail_msg("%s is not in %s", words, header + 10);
    assert_int_equal(zip_fread(array, data, bytes + 1), bytes);
    zip_fclose(array);
    zip_discard(zip);
    free(path);
    return data;
}

static void check_returns(const struct scene *scene)
{
    char *said = scene_read(scene, "out");
    const char *line = strstr(said, "mean return ");
    assert_non_null(line);
    double *returns = array_of(scene, "r.npz", "returns.npy",
                               "'<f8', 'fortran_order': False, "
                               "'shape': (40,)",
                               EPISODES * sizeof *returns);
    double sum = 0;
    for (size_t i = 0; i < EPISODES; i++)
        sum += returns[i];
    assert_float_equal(strtod(line + strlen("mean return "), NULL), sum / EPISODES, 0.005);
    assert_non_null(strstr(said, "\npercentiles: 5 % "));
    free(returns);
    free(said);
}

/* Ten rows of balls: nine steps, and the last row is the final observation. */
static void check_record(const struct scene *scene)
{
    float *rewards =
        array_of(scene, "e.npz", "reward.npy", "'<f4', 'fortran_order': False, 'shape': (10,)", 40);
    int32_t *actions =
        array_of(scene, "e.npz", "action.npy", "'<i4', 'fortran_order': False, 'shape': (10,)", 40);
    float *boards = array_of(scene, "e.npz", "observation.npy", "'shape': (10,50,)", 2000);
    for (size_t row = 0; row < 10; row++) {
        assert_true(row == 8 ? fabsf(rewards[row]) == 1 : rewards[row] == 0);
        assert_in_range(actions[row], 0, 2);
        size_t squares = 0;
        for (size_t i = 0; i < 50; i++)
            squares += boards[row * 50 + i] == 1;
        assert_in_range(squares, 1, 2); /* the paddle, and the ball where it is not caught */
    }
    free(rewards);
    free(actions);
    free(boards);
}

static void eval_writes_returns_and_an_episode_for_numpy(void **state)
{
    struct scene *scene = *state;
    catch_is_learned(scene);
    const char *argv[] = {CATCH,
                          "eval",
                          "--params=run/params.safetensors",
                          "--episodes=40",
                          "--seed=3",
                          "--returns=r.npz",
                          "--record=e.npz",
                          NULL};
    assert_int_equal(scene_run(scene, argv), 0);
    check_returns(scene);
    check_record(scene);
    argv[3] = "--episodes=1"; /* has neither an error nor percentiles */
    assert_int_equal(scene_run(scene, argv), 0);
    assert_file_contains(scene, "out", " in one episode\nreturns: ");
    const char *nowhere[] = {CATCH, "eval", "--params=run/params.safetensors",
                             "--returns=no/such/r.npz", NULL};
    assert_int_equal(scene_run(scene, nowhere), 2);
    assert_file_contains(scene, "err", "no/such/r.npz: No such file or directory\n");
    const char *of_run[] = {CATCH, "eval", "--params=run", NULL};
    assert_int_equal(scene_run(scene, of_run), 2);
    assert_file_contains(scene, "err", "--params=run is a directory: name a file of it, such as");
    nowhere[3] = "--record=run";
    assert_int_equal(scene_run(scene, nowhere), 2);
    assert_file_contains(scene, "err", "catch: eval: run: Is a directory\n");
}

/* As on a disk that filled up while they were played. */
static void a_mean_that_cannot_be_said_is_a_failure(void **state)
{
    struct scene *scene = *state;
    catch_is_learned(scene);
    char *command =
        xasprintf("exec %s eval --episodes=2 --params=run/params.safetensors >/dev/full", CATCH);
    const char *argv[] = {"/bin/sh", "-c", command, NULL};
    assert_int_equal(scene_run(scene, argv), 1);
    free(command);
    assert_last_line(scene, "err", "could not be written to standard output");
}

static void a_mean_is_said_though_its_returns_cannot_be_written(void **state)
{
    struct scene *scene = *state;
    catch_is_learned(scene);
    char *command = xasprintf("trap '' XFSZ; ulimit -f 1; exec %s eval --episodes=20000 "
                              "--params=run/params.safetensors --returns=r.npz "
                              "--stochastic --set=agent.epsilon_end=0.5",
                              CATCH);
    const char *argv[] = {"/bin/bash", "-c", command, NULL};
    assert_int_equal(scene_run(scene, argv), 1);
    free(command);
    assert_file_contains(scene, "out", "\nmean return ");
    char *out = scene_read(scene, "out");
    assert_null(strstr(out, "returns: "));
    free(out);
    assert_file_contains(scene, "err", "catch: eval: r.npz: ");
}

static double mean_of(struct scene *scene, const char *flag)
{
    const char *argv[] = {CATCH,
                          "eval",
                          "--params=run/params.safetensors",
                          "--episodes=1000",
                          "--seed=3",
                          "--set=agent.epsilon_end=1",
                          flag,
                          NULL};
    assert_int_equal(scene_run(scene, argv), 0);
    char *said = scene_read(scene, "out");
    double mean = strtod(strstr(said, "mean return ") + strlen("mean return "), NULL);
    free(said);
    return mean;
}

static void a_stochastic_policy_explores_as_at_the_end_of_its_schedule(void **state)
{
    struct scene *scene = *state;
    catch_is_learned(scene);
    assert_true(mean_of(scene, NULL) > 0.8);
    assert_true(mean_of(scene, "--stochastic") < 0);
    assert_file_contains(scene, "out", "params.safetensors, stochastic\n");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(the_best_parameters_stay_and_a_resumed_run_goes_on_with_them),
        TEST(eval_writes_returns_and_an_episode_for_numpy),
        TEST(a_mean_that_cannot_be_said_is_a_failure),
        TEST(a_mean_is_said_though_its_returns_cannot_be_written),
        TEST(a_stochastic_policy_explores_as_at_the_end_of_its_schedule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
