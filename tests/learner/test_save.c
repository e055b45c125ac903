/* Files of checkpoints: which are kept, passed over, refused and removed. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <cmocka.h>

#include <troupe/learner.h>
#include "core/alloc.h"
#include "learner/save.h"
#include "learner/update.h"
#include "tests/learner/adding.h"

struct fixture {
    char dir[32];
    char *checkpoints; /* below it */
};

static int setup(void **state)
{
    struct fixture *fixture = xcalloc(1, sizeof *fixture);
    strcpy(fixture->dir, "/tmp/test_save.XXXXXX");
    assert_non_null(mkdtemp(fixture->dir));
    fixture->checkpoints = xasprintf("%s/checkpoints", fixture->dir);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    char *command = xasprintf("rm -rf %s", fixture->dir);
    assert_int_equal(system(command), 0);
    free(command);
    free(fixture->checkpoints);
    free(fixture);
    return 0;
}

static void save_at(struct fixture *fixture, trp_publisher *publisher,
                    struct trp_update_run *update, uint64_t steps)
{
    ((struct adding *)update->updater)->steps = steps;
    struct learner_progress progress = {.steps = steps, .version = 2 * steps};
    assert_int_equal(save_write(fixture->checkpoints, update, publisher, &progress), TRP_OK);
}

static bool saved(struct fixture *fixture, uint64_t steps)
{
    char *path = xasprintf("%s/learner-%020" PRIu64 ".safetensors", fixture->checkpoints, steps);
    bool exists = access(path, F_OK) == 0;
    free(path);
    return exists;
}

static void the_last_two_checkpoints_are_kept(void **state)
{
    struct fixture *fixture = *state;
    trp_publisher *publisher = trp_publisher_create(COUNT);
    struct adding *updater = adding_create();
    struct trp_update_run update;
    assert_int_equal(update_prepare(&update, &updater->base, 1), TRP_OK);
    assert_int_equal(save_prepare(fixture->checkpoints, true), TRP_OK);
    const uint64_t steps[] = {9, 10, 99, 1000};
    for (size_t i = 0; i < 4; i++)
        save_at(fixture, publisher, &update, steps[i]);
    assert_false(saved(fixture, 9));
    assert_false(saved(fixture, 10));
    assert_true(saved(fixture, 99));
    assert_true(saved(fixture, 1000));
    update_cleanup(&update);
    trp_updater_destroy(&updater->base);
    trp_publisher_destroy(publisher);
}

static void damage(struct fixture *fixture, uint64_t steps)
{
    char *path = xasprintf("%s/learner-%020" PRIu64 ".safetensors", fixture->checkpoints, steps);
    assert_int_equal(truncate(path, 100), 0);
    free(path);
}

static void a_damaged_checkpoint_is_passed_over_for_the_one_before(void **state)
{
    struct fixture *fixture = *state;
    trp_publisher *publisher = trp_publisher_create(COUNT);
    struct adding *updater = adding_create();
    struct trp_update_run update;
    assert_int_equal(update_prepare(&update, &updater->base, 1), TRP_OK);
    assert_int_equal(save_prepare(fixture->checkpoints, true), TRP_OK);
    save_at(fixture, publisher, &update, 5);
    save_at(fixture, publisher, &update, 6);
    damage(fixture, 6);
    struct learner_progress progress = {0};
    bool found = false;
    assert_int_equal(save_load(fixture->checkpoints, &update, publisher, &progress, &found),
                     TRP_OK);
    assert_true(found);
    assert_int_equal(progress.steps, 5);
    assert_int_equal(progress.version, 10);
    assert_int_equal(updater->steps, 5);
    damage(fixture, 5);
    assert_int_equal(save_load(fixture->checkpoints, &update, publisher, &progress, &found),
                     TRP_DATA_LOSS);
    update_cleanup(&update);
    trp_updater_destroy(&updater->base);
    trp_publisher_destroy(publisher);
}

static void a_checkpoint_whose_counters_would_wrap_around_is_refused(void **state)
{
    struct fixture *fixture = *state;
    trp_publisher *publisher = trp_publisher_create(COUNT);
    struct adding *updater = adding_create();
    struct trp_update_run update;
    assert_int_equal(update_prepare(&update, &updater->base, 1), TRP_OK);
    assert_int_equal(save_prepare(fixture->checkpoints, true), TRP_OK);
    const struct {
        struct learner_progress progress;
        uint64_t vector_steps;
        const char *name;
    } rows[] = {{{.steps = UINT64_MAX, .version = 1}, 1, "learner.steps"},
                {{.steps = 1, .version = UINT64_MAX}, 1, "learner.version"},
                {{.steps = 1, .version = 1}, UINT64_MAX, "params.steps"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ((trp_phases *)update.vectors.each[0].phases.here)->steps = rows[i].vector_steps;
        const struct learner_progress *progress = &rows[i].progress;
        assert_int_equal(save_write(fixture->checkpoints, &update, publisher, progress), TRP_OK);
        struct learner_progress loaded = {0};
        bool found = false;
        assert_int_equal(save_load(fixture->checkpoints, &update, publisher, &loaded, &found),
                         TRP_DATA_LOSS);
        assert_non_null(strstr(trp_last_error(), rows[i].name));
        char *path;
        assert_int_equal(trp_learner_checkpoint_find(fixture->checkpoints, &path), TRP_OK);
        assert_int_equal(unlink(path), 0);
        free(path);
    }
    update_cleanup(&update);
    trp_updater_destroy(&updater->base);
    trp_publisher_destroy(publisher);
}

/* Open for writing, as a learner has it; -1 and errno: it is not there. */
static int half_made(struct fixture *fixture, uint64_t steps, int flags)
{
    char *path =
        xasprintf("%s/learner-%020" PRIu64 ".safetensors.tmp", fixture->checkpoints, steps);
    int fd = open(path, O_WRONLY | O_CLOEXEC | flags, 0600);
    free(path);
    return fd;
}

static void what_a_killed_learner_was_writing_is_removed_and_what_one_writes_is_not(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(save_prepare(fixture->checkpoints, true), TRP_OK);
    int killed = half_made(fixture, 24, O_CREAT), living = half_made(fixture, 25, O_CREAT);
    assert_true(killed >= 0 && living >= 0);
    assert_int_equal(flock(living, LOCK_EX), 0);
    assert_int_equal(save_prepare(fixture->checkpoints, false), TRP_OK);
    assert_int_equal(half_made(fixture, 24, 0), -1);
    assert_int_equal(errno, ENOENT);
    int there = half_made(fixture, 25, 0);
    assert_true(there >= 0);
    close(killed);
    close(living);
    close(there);
}

static void no_checkpoint_is_not_found(void **state)
{
    struct fixture *fixture = *state;
    char *path;
    assert_int_equal(trp_learner_checkpoint_find(fixture->checkpoints, &path), TRP_NOT_FOUND);
    assert_int_equal(save_prepare(fixture->checkpoints, true), TRP_OK);
    assert_int_equal(trp_learner_checkpoint_find(fixture->checkpoints, &path), TRP_NOT_FOUND);
}

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(the_last_two_checkpoints_are_kept),
        WITH_FIXTURE(a_damaged_checkpoint_is_passed_over_for_the_one_before),
        WITH_FIXTURE(a_checkpoint_whose_counters_would_wrap_around_is_refused),
        WITH_FIXTURE(what_a_killed_learner_was_writing_is_removed_and_what_one_writes_is_not),
        WITH_FIXTURE(no_checkpoint_is_not_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
