/* Whole learners on one vector, as threads that meet in a gang: what they count and publish
 * together, who saves, and what becomes of it when that one goes. The updater adds one to every
 * number in each step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/checkpoint.h>
#include <troupe/learner.h>
#include <troupe/log.h>
#include <troupe/params.h>
#include <troupe/rendezvous.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "core/thread.h"
#include "tests/core/patience.h"

enum { COUNT = 2000, LEARNERS = 3 };

/* ---- a group, as its members see it ---------------------------------------------------------- */

struct group;

struct member {
    struct group *group;
    uint32_t index;
    uint64_t last; /* this many steps of its own, then it leaves; 0: it goes on */
    trp_stop *stop;
    trp_learner *learner;
    struct thread thread;
    trp_status status;
    trp_learner_counters ended;
};

struct group {
    char dir[32];
    trp_gang *gang;
    const char *mode;
    uint32_t timeout_ms;
    struct mutex mutex;
    struct cond changed;
    uint32_t begun; /* learners that have begun their first step */
    bool sleeps;    /* the first one, in its second step, until it is taken for lost */
    struct member members[LEARNERS];
};

/* No learner is done before all have begun. */
static void await_all(struct group *group)
{
    mutex_lock(&group->mutex);
    group->begun++;
    cond_broadcast(&group->changed);
    while (group->begun < LEARNERS)
        cond_wait(&group->changed, &group->mutex, DEADLINE_NEVER);
    mutex_unlock(&group->mutex);
}

static void sleep_until_lost(struct group *group)
{
    struct deadline deadline = deadline_in_ms(&clock_monotonic, PATIENCE_MS);
    while (trp_gang_check(group->gang) == TRP_OK && !trp_gang_lost(group->gang, 0))
        look_again_soon(deadline, "the first one to be taken for lost");
}

/* ---- an updater ------------------------------------------------------------------------------ */

struct adding {
    trp_updater base;
    struct group *group;
    trp_stop *stop; /* requested by the step that is the `last` of this learner */
    uint64_t steps, last;
    float start;
};

static void adding_init(trp_updater *updater, trp_rng *rng, float *const *vectors)
{
    (void)rng;
    for (size_t i = 0; i < COUNT; i++)
        vectors[0][i] = ((struct adding *)updater)->start;
}

static trp_status adding_step(trp_updater *updater, const trp_update *update)
{
    struct adding *adding = (struct adding *)updater;
    for (size_t i = 0; i < COUNT; i++)
        update->grads[0][i] = -1;
    if (++adding->steps == 1)
        await_all(adding->group);
    if (adding->steps == 2 && adding->start == 0 && adding->group->sleeps)
        sleep_until_lost(adding->group);
    if (adding->steps == adding->last)
        trp_stop_request(adding->stop);
    return trp_update_apply(update, 0);
}

static trp_updater *adding_create(struct group *group, trp_stop *stop, uint64_t last, float start)
{
    static const trp_updater_impl impl = {.init = adding_init, .step = adding_step};
    struct adding *adding = xcalloc(1, sizeof *adding);
    *adding = (struct adding){.group = group, .stop = stop, .last = last, .start = start};
    adding->base.impl = &impl;
    adding->base.vector_count = 1;
    adding->base.vectors[0] = (trp_vector_spec){.name = "params",
                                                .count = COUNT,
                                                .learned = true,
                                                .optimizer = {.kind = TRP_SGD, .learning_rate = 1}};
    return &adding->base;
}

/* ---- a group --------------------------------------------------------------------------------- */

static void member_run(void *arg)
{
    struct member *member = arg;
    member->status = trp_learner_run(member->learner);
    member->ended = trp_learner_read(member->learner);
    trp_gang_left(member->group->gang, member->index,
                  member->status == TRP_OK ? NULL : trp_last_error());
}

/* Each begins with numbers of its own; those of the first one count. */
static void member_start(struct group *group, uint32_t index, uint64_t max_steps, bool resume)
{
    struct member *member = &group->members[index];
    member->group = group;
    member->index = index;
    member->stop = trp_stop_create();
    trp_learner_loop_options options = {
        .updater = adding_create(group, member->stop, member->last, 1000 * (float)index),
        .stop = member->stop,
        .publish_every = 2,
        .checkpoint_dir = group->dir,
        .checkpoint_every_s = 3600,
        .checkpoint_every_steps = 50,
        .resume = resume,
        .max_steps = max_steps,
        .group = {.rendezvous = trp_gang_member(group->gang, index),
                  .mode = group->mode,
                  .timeout_ms = group->timeout_ms}};
    if (trp_learner_create(&member->learner, &options) != TRP_OK)
        fail_msg("%s", trp_last_error());
    assert_int_equal(thread_start(&member->thread, "learner", member_run, member), TRP_OK);
}

static void member_join(struct member *member)
{
    thread_stop(&member->thread);
    if (member->status != TRP_OK)
        fail_msg("learner %u failed", member->index);
}

static void member_end(struct member *member)
{
    trp_learner_destroy(member->learner);
    trp_stop_destroy(member->stop);
    *member = (struct member){0};
}

static void group_run(struct group *group, uint64_t max_steps, bool resume)
{
    group->begun = 0;
    group->gang = trp_gang_create(&(trp_gang_options){.name = "learner", .count = LEARNERS});
    for (uint32_t i = 0; i < LEARNERS; i++)
        member_start(group, i, max_steps, resume);
    for (uint32_t i = 0; i < LEARNERS; i++)
        member_join(&group->members[i]);
}

static void group_end(struct group *group)
{
    for (uint32_t i = 0; i < LEARNERS; i++)
        member_end(&group->members[i]);
    trp_gang_destroy(group->gang);
}

/* What the newest checkpoint says. */
static void assert_saved(const struct group *group, uint64_t least, uint64_t most)
{
    char *path;
    trp_checkpoint *checkpoint;
    uint64_t saved;
    float params[COUNT];
    assert_int_equal(trp_learner_checkpoint_find(group->dir, &path), TRP_OK);
    assert_int_equal(trp_checkpoint_read(&checkpoint, path), TRP_OK);
    assert_int_equal(trp_checkpoint_get(checkpoint, "learner.steps", TRP_CHECKPOINT_U64, 1, &saved),
                     TRP_OK);
    assert_in_range(saved, least, most);
    assert_int_equal(trp_checkpoint_get(checkpoint, "params.steps", TRP_CHECKPOINT_U64, 1, &saved),
                     TRP_OK);
    assert_in_range(saved, least, most + LEARNERS - 1); /* those of others count later */
    assert_int_equal(trp_checkpoint_get(checkpoint, "params", TRP_CHECKPOINT_F32, COUNT, params),
                     TRP_OK);
    for (size_t i = 0; i < COUNT; i++)
        if (!(params[i] > 0 && params[i] <= (float)saved)) /* some may be lost */
            fail_msg("number %zu is %g after %llu phases", i, (double)params[i],
                     (unsigned long long)saved);
    trp_checkpoint_destroy(checkpoint);
    free(path);
}

static int setup(void **state)
{
    struct group *group = xcalloc(1, sizeof *group);
    mutex_init(&group->mutex);
    cond_init(&group->changed);
    group->mode = "hogwild";
    strcpy(group->dir, "/tmp/test_hogwild.XXXXXX");
    *state = group;
    return mkdtemp(group->dir) ? 0 : -1;
}

static int teardown(void **state)
{
    struct group *group = *state;
    char command[64];
    cond_cleanup(&group->changed);
    mutex_cleanup(&group->mutex);
    snprintf(command, sizeof command, "rm -rf %s", group->dir);
    free(group);
    return system(command);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void steps_and_numbers_are_those_of_all_together(void **state)
{
    struct group *group = *state;
    enum { STEPS = 600 };
    group_run(group, STEPS, false);
    uint64_t most = 0, saved = 0;
    for (uint32_t i = 0; i < LEARNERS; i++) {
        const trp_learner_counters *ended = &group->members[i].ended;
        assert_true(ended->finished);
        assert_in_range(ended->steps, STEPS, STEPS + LEARNERS - 1);
        most = ended->steps > most ? ended->steps : most;
        saved += ended->checkpoints;
    }
    assert_true(most >= STEPS);
    assert_in_range(saved, 1, STEPS / 50 + LEARNERS);
    for (uint32_t i = 1; i < LEARNERS; i++) /* who ends last may lead by then */
        assert_in_range(group->members[i].ended.checkpoints, 0, 1);
    assert_saved(group, STEPS, STEPS + LEARNERS - 1);
    group_end(group);
}

static void a_resumed_group_goes_on_where_it_was(void **state)
{
    struct group *group = *state;
    group_run(group, 100, false);
    uint64_t version = group->members[0].ended.version;
    group_end(group);
    group_run(group, 300, true);
    assert_saved(group, 300, 300 + LEARNERS - 1);
    for (uint32_t i = 0; i < LEARNERS; i++) {
        assert_in_range(group->members[i].ended.resumed_from, 100, 102);
        assert_true(group->members[i].ended.version > version + (1 << 19));
    }
    group_end(group);
}

/* The second one publishes and saves when the first has left, from the same numbers on, and with
 * versions above. The first one is back and has what the others have. */
static void another_one_publishes_and_saves_when_that_one_leaves(void **state)
{
    struct group *group = *state;
    enum { FIRST = 40, AGAIN = 30 };
    group->begun = 0;
    group->gang = trp_gang_create(&(trp_gang_options){.name = "learner", .count = LEARNERS});
    group->members[0].last = FIRST;
    for (uint32_t i = 0; i < LEARNERS; i++)
        member_start(group, i, 0, false);
    member_join(&group->members[0]);
    trp_learner_counters left = group->members[0].ended;
    member_end(&group->members[0]);
    assert_true(left.checkpoints > 0);
    trp_gang_expect(group->gang, 0);
    group->members[0].last = AGAIN;
    member_start(group, 0, 0, false);
    member_join(&group->members[0]);
    assert_true(group->members[0].ended.steps > left.steps);
    for (uint32_t i = 1; i < LEARNERS; i++) {
        trp_stop_request(group->members[i].stop);
        member_join(&group->members[i]);
    }
    assert_true(group->members[1].ended.checkpoints + group->members[2].ended.checkpoints > 0);
    assert_true(group->members[0].ended.version > left.version);
    assert_saved(group, FIRST + AGAIN, UINT32_MAX);
    group_end(group);
}

/* It can neither publish nor save what the others have gone on from. */
static void check_wakes(struct group *group, const char *mode)
{
    group->mode = mode;
    group->timeout_ms = 300;
    group->sleeps = true;
    group->gang = trp_gang_create(
        &(trp_gang_options){.name = "learner", .count = LEARNERS, .silence_ms = 300});
    group->members[0].last = 100000; /* that is too many */
    for (uint32_t i = 0; i < LEARNERS; i++)
        member_start(group, i, 0, false);
    thread_stop(&group->members[0].thread);
    assert_int_equal(group->members[0].status, TRP_UNAVAILABLE);
    for (uint32_t i = 1; i < LEARNERS; i++) {
        trp_stop_request(group->members[i].stop);
        member_join(&group->members[i]);
    }
    group_end(group);
}

static void who_was_taken_for_lost_ends_when_it_wakes(void **state)
{
    check_wakes(*state, "hogwild");
}

static void who_was_taken_for_lost_among_streams_ends_when_it_wakes(void **state)
{
    check_wakes(*state, "dogwild");
}

int main(void)
{
    trp_log_set_level(TRP_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(steps_and_numbers_are_those_of_all_together, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_resumed_group_goes_on_where_it_was, setup, teardown),
        cmocka_unit_test_setup_teardown(who_was_taken_for_lost_ends_when_it_wakes, setup, teardown),
        cmocka_unit_test_setup_teardown(who_was_taken_for_lost_among_streams_ends_when_it_wakes,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(another_one_publishes_and_saves_when_that_one_leaves, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
