/* Which parameters of many evaluations are kept. */
#include "launch_tools.h"

#include <dirent.h>
#include <math.h>

#include <troupe/checkpoint.h>
#include "launch/best.h"

enum { MOST = 3, KEPT_MAX = 8 };

/* Parameters are one number, which is that of the evaluation. */
static void offer(const char *dir, uint32_t most, double mean, uint64_t version)
{
    float params[] = {(float)version};
    trp_params_state state = {.params = params, .count = 1, .version = version};
    assert_int_equal(best_offer(dir, most, mean, &state, NULL), TRP_OK);
}

static uint64_t version_in(const char *path)
{
    trp_checkpoint *checkpoint;
    float version;
    assert_int_equal(trp_checkpoint_read(&checkpoint, path), TRP_OK);
    assert_int_equal(trp_checkpoint_get(checkpoint, "params", TRP_CHECKPOINT_F32, 1, &version),
                     TRP_OK);
    trp_checkpoint_destroy(checkpoint);
    return (uint64_t)version;
}

/* Those and no others are there: `versions` ends at the first zero. */
static void assert_kept(const char *dir, const uint64_t *versions)
{
    size_t wanted = 0, found = 0;
    DIR *open = opendir(dir);
    assert_non_null(open);
    while (versions[wanted])
        wanted++;
    for (const struct dirent *entry; (entry = readdir(open));) {
        size_t i = 0;
        if (strncmp(entry->d_name, "return_", 7) != 0)
            continue;
        char *path = xasprintf("%s/%s", dir, entry->d_name);
        uint64_t version = version_in(path);
        while (versions[i] && versions[i] != version)
            i++;
        if (!versions[i])
            fail_msg("%s is kept, with parameters %d", entry->d_name, (int)version);
        found++;
        free(path);
    }
    closedir(open);
    assert_int_equal(found, wanted);
}

static void the_best_are_kept_in_whatever_order_they_come(void **state)
{
    static const struct {
        double mean;
        uint64_t kept[MOST + 1];
    } rows[] = {
        {-3, {1}},          {5, {1, 2}},
        {-1.5, {1, 2, 3}},  {-4, {1, 2, 3}}, /* worse than all */
        {-2, {2, 3, 5}},                     /* better than the worst, which came first */
        {-2, {2, 3, 5}},                     /* as good as the worst: the earlier one stays */
        {NAN, {2, 3, 5}},   {0, {2, 3, 8}},  /* the worst came last */
        {7, {2, 8, 9}},                      /* the worst lay between the others */
        {1e-3, {2, 9, 10}}, {6, {2, 9, 11}},
        {5.5, {9, 11, 12}}, /* what was the best goes, as three are better */
        {100, {9, 11, 13}}, {-100, {9, 11, 13}},
        {10, {9, 13, 15}}, /* as a number it is more than 7, as a word less */
    };
    char *dir = scene_path(*state, "evaluator");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        offer(dir, MOST, rows[i].mean, i + 1);
        assert_kept(dir, rows[i].kept);
    }
    free(dir);
}

static void what_is_there_counts_and_what_is_not_ours_stays(void **state)
{
    static const char foreign[] = "evaluator/return_9_version_9.txt";
    char *dir = scene_path(*state, "evaluator"), *path = scene_path(*state, foreign);
    offer(dir, 0, 1, 1);
    assert_int_equal(access(dir, F_OK), -1);
    for (uint64_t version = 1; version <= 5; version++)
        offer(dir, 5, (double)(version * 2 % 7), version); /* 2, 4, 6, 1, 3 */
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fclose(file);
    offer(dir, 3, 2.5, 6); /* fewer than before: that is worse than three, as are 2 and 1 */
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(unlink(path), 0);
    assert_kept(dir, (const uint64_t[]){2, 3, 5, 0});
    free(path);
    free(dir);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_best_are_kept_in_whatever_order_they_come),
        TEST(what_is_there_counts_and_what_is_not_ours_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
