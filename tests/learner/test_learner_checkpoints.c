/* When a learner writes checkpoints, and that each is a state between two steps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <troupe/checkpoint.h>
#include <troupe/log.h>
#include "learner/saver.h"
#include "learner_fixture.h"
#include "tests/core/captured.h"

static trp_status fail_behind_step_3(trp_updater *updater, const trp_update *update)
{
    TRP_TRY(adding_step(updater, update));
    return update->step == 3 ? trp_fail(TRP_UNAVAILABLE, "a peer of the updater is away") : TRP_OK;
}

static trp_status fail_to_collect_step_3(trp_updater *updater, const trp_update *update)
{
    (void)updater;
    return update->step == 3 ? trp_fail(TRP_UNAVAILABLE, "a device is away") : TRP_OK;
}

static void vectors_of_a_failed_step_are_not_saved(void **state)
{
    struct fixture *fixture = *state;
    start_replay(fixture);
    trp_updater_impl impls[] = {adding_impl, adding_impl};
    impls[0].step = fail_behind_step_3;
    impls[1].collect = fail_to_collect_step_3;
    for (size_t i = 0; i < 2; i++) {
        struct adding *updater = adding_create();
        updater->base.impl = &impls[i];
        trp_learner_loop_options options = loop_options(fixture, updater);
        options.max_steps = 3;
        trp_learner *learner = learner_create(&options);
        char *path = NULL;
        assert_int_equal(trp_learner_run(learner), TRP_UNAVAILABLE);
        trp_learner_destroy(learner);
        assert_int_equal(trp_learner_checkpoint_find(fixture->checkpoints, &path), TRP_NOT_FOUND);
    }
}

static trp_status stop_in_step_3(trp_updater *updater, const trp_update *update)
{
    TRP_TRY(adding_step(updater, update));
    return update->step == 3 ? trp_fail(TRP_CANCELLED, "stopped while it waited") : TRP_OK;
}

static void who_writes_checkpoints_says_that_the_last_one_is_missing(void **state)
{
    struct fixture *fixture = *state;
    start_replay(fixture);
    trp_updater_impl impl = adding_impl;
    impl.step = stop_in_step_3;
    for (unsigned writes = 0; writes < 2; writes++) {
        struct adding *updater = adding_create();
        updater->base.impl = &impl;
        updater->stop = trp_stop_create();
        updater->stop_at = 3;
        trp_learner_loop_options options = loop_options(fixture, updater);
        trp_stop *stop = options.stop = updater->stop;
        options.checkpoint_dir = writes ? fixture->checkpoints : NULL;
        trp_learner *learner = learner_create(&options);
        struct captured captured;
        trp_log_set_level(TRP_WARN);
        capture_begin(&captured);
        trp_status status = trp_learner_run(learner);
        capture_end(&captured);
        trp_log_set_level(TRP_ERROR);
        assert_int_equal(status, TRP_CANCELLED);
        assert_int_equal(captured_count(&captured, "wrote no last checkpoint"), writes);
        trp_learner_destroy(learner);
        trp_stop_destroy(stop);
    }
}

static trp_status spoil_once_saved(trp_updater *updater, const trp_update *update)
{
    struct adding *adding = (struct adding *)updater;
    char *path = NULL;
    if (adding->nan_at == 0 && trp_learner_checkpoint_find(adding->moves, &path) == TRP_OK)
        adding->nan_at = update->step;
    free(path);
    return adding_step(updater, update);
}

/* Of a run that is seconds old, too. */
static void what_was_learned_before_a_nan_is_in_a_checkpoint(void **state)
{
    struct fixture *fixture = *state;
    start_replay(fixture);
    trp_updater_impl impl = adding_impl;
    impl.step = spoil_once_saved;
    struct adding *updater = adding_create();
    updater->base.impl = &impl;
    updater->moves = fixture->checkpoints;
    trp_learner_loop_options options = loop_options(fixture, updater);
    options.checkpoint_every_s = 0;
    options.max_seconds = 30;
    trp_learner *learner = learner_create(&options);
    assert_int_equal(trp_learner_run(learner), TRP_INTERNAL);
    uint64_t steps = trp_learner_read(learner).steps;
    trp_learner_destroy(learner);
    char *path;
    assert_int_equal(trp_learner_checkpoint_find(fixture->checkpoints, &path), TRP_OK);
    free(path);
    updater = adding_create();
    options = loop_options(fixture, updater);
    options.resume = true;
    learner = learner_create(&options);
    assert_in_range(updater->steps, 1, steps);
    for (size_t i = 0; i < COUNT; i++)
        assert_float_equal(updater->params[i], (float)updater->steps, 0);
    trp_learner_destroy(learner);
}

static void the_last_checkpoint_is_of_the_last_step_whatever_is_being_written(void **state)
{
    struct fixture *fixture = *state;
    start_replay(fixture);
    trp_learner_loop_options options = loop_options(fixture, adding_create());
    options.checkpoint_every_steps = 1;
    options.max_steps = 300;
    trp_learner *learner = learner_create(&options);
    assert_int_equal(trp_learner_run(learner), TRP_OK);
    assert_in_range(trp_learner_read(learner).checkpoints, 2, 301);
    trp_learner_destroy(learner);
    char *path;
    assert_int_equal(trp_learner_checkpoint_find(fixture->checkpoints, &path), TRP_OK);
    assert_non_null(strstr(path, "00300.safetensors"));
    free(path);
    struct adding *updater = adding_create();
    options = loop_options(fixture, updater);
    options.resume = true;
    options.max_steps = 300;
    learner = learner_create(&options);
    assert_int_equal(updater->steps, 300);
    for (size_t i = 0; i < COUNT; i++)
        assert_float_equal(updater->params[i], 300, 0);
    trp_learner_destroy(learner);
}

/* Every checkpoint is a state between two steps, though steps go on while it is written. */
static void a_checkpoint_is_not_changed_by_the_steps_after_it(void **state)
{
    struct fixture *fixture = *state;
    start_replay(fixture);
    trp_learner_loop_options options = loop_options(fixture, adding_create());
    options.checkpoint_every_steps = 1;
    struct learning learning = {.learner = learner_create(&options)};
    assert_int_equal(thread_start(&learning.thread, "learner", learn, &learning), TRP_OK);
    char *path;
    uint32_t read = 0;
    while (read < 20) {
        trp_checkpoint *checkpoint;
        uint64_t steps;
        float params[COUNT];
        if (trp_learner_checkpoint_find(fixture->checkpoints, &path) != TRP_OK)
            continue;
        if (trp_checkpoint_read(&checkpoint, path) == TRP_OK) { /* else it was an old one */
            assert_int_equal(
                trp_checkpoint_get(checkpoint, "learner.steps", TRP_CHECKPOINT_U64, 1, &steps),
                TRP_OK);
            assert_int_equal(
                trp_checkpoint_get(checkpoint, "params", TRP_CHECKPOINT_F32, COUNT, params),
                TRP_OK);
            for (size_t i = 0; i < COUNT; i++)
                assert_float_equal(params[i], (float)steps, 0);
            trp_checkpoint_destroy(checkpoint);
            read++;
        }
        free(path);
    }
    trp_stop_request(fixture->stop);
    thread_stop(&learning.thread);
    assert_int_equal(learning.status, TRP_OK);
    trp_learner_destroy(learning.learner);
}

static void a_disk_that_fails_meanwhile_ends_the_run(void **state)
{
    struct fixture *fixture = *state;
    start_replay(fixture);
    struct adding *updater = adding_create();
    updater->moves = fixture->checkpoints;
    updater->moves_at = 5;
    trp_learner_loop_options options = loop_options(fixture, updater);
    options.checkpoint_every_steps = 1;
    options.max_steps = 1000000;
    trp_learner *learner = learner_create(&options);
    assert_int_equal(trp_learner_run(learner), TRP_NOT_FOUND);
    assert_non_null(strstr(trp_last_error(), "learner-0000"));
    assert_in_range(trp_learner_read(learner).steps, 5, 999999);
    trp_learner_destroy(learner);
}

static void a_life_is_saved_as_often_as_it_doubles_until_that_is_seldom(void **state)
{
    (void)state;
    static const int64_t rows[][2] = {{0, 1000},      {999, 1000},    {1000, 1000},
                                      {2000, 2000},   {4001, 4001},   {59999, 59999},
                                      {60000, 60000}, {90000, 60000}, {INT64_MAX, 60000}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(saver_interval_ms(rows[i][0]), rows[i][1]);
}

/* Its two checkpoints stay what one goes back to, in place of two of its first seconds. */
static void a_resumed_run_keeps_those_that_it_had(void **state)
{
    struct fixture *fixture = *state;
    start_replay(fixture);
    for (unsigned resumes = 0; resumes < 2; resumes++) {
        trp_learner_loop_options options = loop_options(fixture, adding_create());
        options.checkpoint_every_s = 0;
        options.resume = resumes;
        options.max_seconds = 2;
        trp_learner *learner = learner_create(&options);
        assert_int_equal(trp_learner_run(learner), TRP_OK);
        uint64_t written = trp_learner_read(learner).checkpoints;
        assert_true(resumes ? written == 1 : written > 1);
        trp_learner_destroy(learner);
    }
}

int main(void)
{
    trp_log_set_level(TRP_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_life_is_saved_as_often_as_it_doubles_until_that_is_seldom),
        WITH_FIXTURE(a_resumed_run_keeps_those_that_it_had),
        WITH_FIXTURE(vectors_of_a_failed_step_are_not_saved),
        WITH_FIXTURE(who_writes_checkpoints_says_that_the_last_one_is_missing),
        WITH_FIXTURE(what_was_learned_before_a_nan_is_in_a_checkpoint),
        WITH_FIXTURE(the_last_checkpoint_is_of_the_last_step_whatever_is_being_written),
        WITH_FIXTURE(a_checkpoint_is_not_changed_by_the_steps_after_it),
        WITH_FIXTURE(a_disk_that_fails_meanwhile_ends_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
