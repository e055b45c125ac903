/* The built-in nodes in whole runs, with real processes: tests/nodes_program.c in its scenarios. */
#include "launch_tools.h"

static int run_scenario(struct scene *scene, const char *scenario, const char *flag1,
                        const char *flag2)
{
    const char *argv[] = {NODES_PROGRAM, "--run-dir=run", flag1, flag2, "--", scenario, NULL};
    return scene_run(scene, argv);
}

/* Takes away what an earlier run of the test left. */
static void scene_empty(const struct scene *scene)
{
    static const char *const names[] = {"run", "draws"};
    for (size_t i = 0; i < 2; i++) {
        char *path = scene_path(scene, names[i]);
        nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
        free(path);
    }
}

/* ---- numbers ----------------------------------------------------------------------------- */

static void a_reward_that_is_no_number_ends_the_run_and_stays_out_of_the_store(void **state)
{
    struct scene *scene = *state;
    static const char *const modes[] = {"--launch=processes", "--launch=threads"};
    for (size_t i = 0; i < 2; i++) {
        scene_empty(scene);
        assert_int_equal(run_scenario(scene, "pays_nan", "--target-return=1.5", modes[i]), 1);
        assert_last_line(scene, "err", "/0: Coin: the reward of copy ");
        assert_last_line(scene, "err", " is nan at step 1 of its episode: not a finite number");
        const char *resume[] = {
            NODES_PROGRAM, "--resume", "--run-dir=run", "--target-return=0.9", "--", "plays", NULL};
        assert_int_equal(scene_run(scene, resume), 0);
        assert_file_contains(scene, "out", " +- 0.00 over 40 fresh episodes");
    }
}

/* ---- chance ------------------------------------------------------------------------------ */

/* The first number that `node` drew. */
static void first_draw(const struct scene *scene, const char *node, char draw[17])
{
    char *text = scene_read(scene, "draws"), *begin = xasprintf("%s ", node);
    const char *at = strstr(text, begin);
    if (!at)
        fail_msg("%s drew nothing:\n%s", node, text);
    snprintf(draw, 17, "%s", at + strlen(begin));
    free(begin);
    free(text);
}

static void run_deterministic(struct scene *scene)
{
    const char *argv[] = {NODES_PROGRAM,
                          "--run-dir=run",
                          "--launch=threads",
                          "--deterministic",
                          "--seed=3",
                          "--max-steps=200",
                          "--",
                          "draws",
                          NULL};
    scene_empty(scene);
    assert_int_equal(scene_run(scene, argv), 0);
}

/* What `troupe replay ls` says of the size of the only table. */
static uint64_t items_of(struct scene *scene)
{
    const char *argv[] = {TROUPE_CLI, "replay", "ls", "run/replay", "-o", "json", NULL};
    assert_int_equal(scene_run(scene, argv), 0);
    char *text = scene_read(scene, "out");
    const char *size = strstr(text, "\"size\":");
    assert_non_null(size);
    uint64_t items = strtoull(size + strlen("\"size\":"), NULL, 10);
    free(text);
    return items;
}

static void groups_of_the_same_kind_draw_numbers_of_their_own(void **state)
{
    static const char *const nodes[] = {"actor/0", "collector/0", "evaluator/0", "examiner/0"};
    struct scene *scene = *state;
    char draws[4][17];
    run_deterministic(scene);
    for (size_t i = 0; i < 4; i++) {
        first_draw(scene, nodes[i], draws[i]);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(draws[i], draws[k]);
    }
}

static void groups_of_the_same_kind_give_their_items_keys_of_their_own(void **state)
{
    struct scene *scene = *state;
    run_deterministic(scene);
    char *text = scene_read(scene, "out");
    const char *at = strstr(text, " s, ");
    assert_non_null(at);
    uint64_t steps = strtoull(at + strlen(" s, "), NULL, 10);
    free(text);
    assert_true(steps > 100);
    assert_true(items_of(scene) > steps * 3 / 4); /* a step is an item; with shared keys half one */
}

static void deterministic_runs_of_several_groups_repeat(void **state)
{
    struct scene *scene = *state;
    run_deterministic(scene);
    char *first = scene_read(scene, "draws");
    run_deterministic(scene);
    char *second = scene_read(scene, "draws");
    assert_string_equal(first, second);
    free(first);
    free(second);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(a_reward_that_is_no_number_ends_the_run_and_stays_out_of_the_store),
        TEST(groups_of_the_same_kind_draw_numbers_of_their_own),
        TEST(groups_of_the_same_kind_give_their_items_keys_of_their_own),
        TEST(deterministic_runs_of_several_groups_repeat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
