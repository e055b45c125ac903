/* Actors and the learner whose parameters they act with: what they do while it is silent, and how
 * they keep pace with it. The publisher is a real one; the adder counts steps as items, and plays
 * the learner that is made of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/actor.h>
#include <troupe/log.h>
#include <troupe/publisher.h>
#include "core/alloc.h"
#include "core/thread.h"
#include "params.pb-c.h"

enum { COUNT = 4, STEPS_MAX = 4096, WAIT_MS = 20000, MAX_AGE_MS = 30 };

struct play {
    trp_publisher *publisher;
    trp_stop *stop;
    uint64_t version; /* published last */
    uint64_t versions[STEPS_MAX];
    uint64_t steps;
    uint64_t every;   /* items of a version */
    uint64_t stop_at; /* the flush that stops; 0: none */
    uint64_t flushes;
    float loaded;          /* the first parameter */
    bool publishes;        /* a version with every step */
    uint64_t silent_after; /* steps; 0: never */
    bool stood_still;      /* while it was silent */
    bool without_params;
    /* The service in front of the publisher. */
    Troupe__Params_Service service;
    struct mutex mutex;
    struct cond changed;
    bool silent;        /* calls are not answered */
    bool waited;        /* one was not */
    uint64_t speak_at;  /* the step that ends it */
    trp_status failure; /* of every call, when set */
};

static void publish(struct play *play)
{
    float params[COUNT] = {(float)++play->version};
    trp_publisher_publish(play->publisher, params, play->version, play->version);
}

/* ---- a service that can be silent ------------------------------------------------------------ */

static void play_pull(Troupe__Params_Service *service, const Troupe__PullRequest *request,
                      Troupe__PullReply_Closure closure, void *closure_data)
{
    struct play *play =
        (struct play *)(void *)((uint8_t *)service - offsetof(struct play, service));
    struct deadline deadline = deadline_in_ms(&clock_monotonic, WAIT_MS);
    bool in_time = true;
    mutex_lock(&play->mutex);
    play->waited |= play->silent;
    cond_broadcast(&play->changed);
    while (play->silent && in_time)
        in_time = cond_wait(&play->changed, &play->mutex, deadline);
    trp_status failure = in_time ? play->failure : TRP_INTERNAL;
    mutex_unlock(&play->mutex);
    if (failure != TRP_OK) {
        trp_fail(failure, "play: no parameters");
        closure(NULL, closure_data);
        return;
    }
    Troupe__Params_Service *real =
        (Troupe__Params_Service *)(void *)trp_publisher_service(play->publisher);
    real->pull(real, request, closure, closure_data);
}

static const Troupe__Params_Service play_service = TROUPE__PARAMS__INIT(play_);

/* ---- the adder ------------------------------------------------------------------------------- */

struct play_adder {
    trp_adder base;
    struct play *play;
};

static void play_first(trp_adder *base, uint32_t copy, const void *const *observations)
{
    (void)base, (void)copy, (void)observations;
}

/* Falls silent after the first step, until a call has waited and speak_at steps are done. */
static void play_add(trp_adder *base, uint32_t copy, const trp_transition *transition)
{
    (void)copy;
    struct play *play = ((struct play_adder *)base)->play;
    mutex_lock(&play->mutex);
    assert_true(play->steps < STEPS_MAX || play->silent_after > 0);
    play->versions[play->steps++ % STEPS_MAX] = transition->version;
    play->silent |= play->steps == play->silent_after;
    mutex_unlock(&play->mutex);
    if (play->publishes)
        publish(play);
    if (play->speak_at == 0)
        return;
    mutex_lock(&play->mutex);
    play->silent = play->steps < play->speak_at;
    while (play->steps == play->speak_at - 1 && !play->waited)
        if (!cond_wait(&play->changed, &play->mutex, deadline_in_ms(&clock_monotonic, WAIT_MS)))
            fail_msg("nobody asked for parameters");
    if (play->steps == play->speak_at)
        publish(play);
    cond_broadcast(&play->changed);
    mutex_unlock(&play->mutex);
}

static trp_status play_push(trp_adder *base, int64_t timeout_ms)
{
    (void)base, (void)timeout_ms;
    return TRP_OK;
}

/* The learner has all items now. */
static trp_status play_flush(trp_adder *base, int64_t timeout_ms)
{
    (void)timeout_ms;
    struct play *play = ((struct play_adder *)base)->play;
    if (++play->flushes == play->stop_at)
        trp_stop_request(play->stop);
    if (play->every > 0 && play->steps >= play->version * play->every)
        publish(play);
    return TRP_OK;
}

static uint64_t play_items(const trp_adder *base)
{
    return ((const struct play_adder *)base)->play->steps;
}

static void play_destroy(trp_adder *base)
{
    free(base);
}

static const trp_adder_impl adder_impl = {.first = play_first,
                                          .add = play_add,
                                          .push = play_push,
                                          .flush = play_flush,
                                          .items = play_items,
                                          .destroy = play_destroy};

/* ---- the policy ------------------------------------------------------------------------------ */

struct play_policy {
    trp_policy base;
    struct play *play;
};

static trp_status play_act(trp_policy *base, const trp_act *act)
{
    (void)base;
    memset(act->actions, 0, act->rows * sizeof(int32_t));
    return TRP_OK;
}

static trp_status play_load(trp_policy *base, const float *params, size_t count)
{
    assert_int_equal(count, COUNT);
    ((struct play_policy *)base)->play->loaded = params[0];
    return TRP_OK;
}

static void play_policy_destroy(trp_policy *base)
{
    free(base);
}

static const trp_policy_impl policy_impl = {
    .act = play_act, .load = play_load, .destroy = play_policy_destroy};

/* ---- plays ----------------------------------------------------------------------------------- */

static int setup(void **state)
{
    struct play *play = xcalloc(1, sizeof *play);
    play->publisher = trp_publisher_create(COUNT);
    play->stop = trp_stop_create();
    play->service = play_service;
    mutex_init(&play->mutex);
    cond_init(&play->changed);
    publish(play);
    *state = play;
    return 0;
}

static int teardown(void **state)
{
    struct play *play = *state;
    trp_publisher_destroy(play->publisher);
    trp_stop_destroy(play->stop);
    mutex_cleanup(&play->mutex);
    cond_cleanup(&play->changed);
    free(play);
    return 0;
}

static trp_actor_counters run(struct play *play, trp_actor_loop_options options, trp_status wanted)
{
    struct play_adder *adder = xcalloc(1, sizeof *adder);
    struct play_policy *policy = xcalloc(1, sizeof *policy);
    adder->base.impl = &adder_impl;
    policy->base.impl = &policy_impl;
    adder->play = policy->play = play;
    options.name = "actor/0";
    options.policy = &policy->base;
    options.adder = &adder->base;
    options.params = play->without_params ? NULL : &play->service.base;
    options.stop = play->stop;
    assert_int_equal(trp_env_create(&options.env, "Catch", &(trp_env_options){.count = 1}), TRP_OK);
    trp_actor *actor;
    trp_actor_counters counters = {0};
    trp_status status = trp_actor_create(&actor, &options);
    if (status == TRP_OK) {
        status = trp_actor_run(actor);
        counters = trp_actor_read(actor);
        trp_actor_destroy(actor);
    }
    assert_int_equal(status, wanted);
    return counters;
}

static void acting_goes_on_while_the_learner_is_silent(void **state)
{
    struct play *play = *state;
    play->speak_at = 1000;
    trp_actor_counters counters =
        run(play, (trp_actor_loop_options){.pull_every_steps = 1, .max_steps = 2000}, TRP_OK);
    assert_int_equal(counters.steps, 2000);
    for (size_t i = 0; i < 1000; i++)
        assert_int_equal(play->versions[i], 1);
    assert_int_equal(counters.version, 2);
    assert_float_equal(play->loaded, 2, 0);
}

static void a_learner_that_fails_for_good_ends_the_run(void **state)
{
    struct play *play = *state;
    play->failure = TRP_PERMISSION_DENIED;
    run(play, (trp_actor_loop_options){.max_steps = 10}, TRP_PERMISSION_DENIED);
    assert_string_equal(trp_last_error(), "play: no parameters");
}

static void an_actor_waits_for_the_version_that_its_items_make(void **state)
{
    struct play *play = *state;
    play->every = 7;
    run(play, (trp_actor_loop_options){.sync_every_items = 7, .max_steps = 70}, TRP_OK);
    for (uint64_t i = 0; i < 70; i++)
        assert_int_equal(play->versions[i], 1 + i / 7);
}

static void an_actor_is_at_most_max_lag_versions_ahead(void **state)
{
    struct play *play = *state;
    play->every = 7;
    run(play, (trp_actor_loop_options){.sync_every_items = 7, .max_lag = 2, .max_steps = 70},
        TRP_OK);
    for (uint64_t i = 0; i < 70; i++)
        assert_int_equal(play->versions[i], i < 14 ? 1 : i / 7 - 1);
}

static void a_stop_ends_the_wait_for_a_version(void **state)
{
    struct play *play = *state;
    play->stop_at = 3;
    trp_actor_counters counters =
        run(play, (trp_actor_loop_options){.sync_every_items = 7, .max_steps = 70}, TRP_OK);
    assert_int_equal(counters.steps, 7);
    assert_false(counters.finished);
}

static void an_actor_that_bounds_it_is_at_most_max_lag_versions_behind(void **state)
{
    struct play *play = *state;
    play->publishes = true;
    trp_actor_counters counters =
        run(play, (trp_actor_loop_options){.max_lag = 3, .pull_every_ms = 1000000, .max_steps = 70},
            TRP_OK);
    for (uint64_t i = 0; i < 70; i++)
        assert_in_range(play->versions[i], i > 3 ? i + 1 - 3 : 1, i + 1);
    assert_true(play->versions[69] > 60);
    assert_in_range(counters.params_lag, 1, 4);
}

static void without_a_bound_it_acts_with_what_it_has_between_pulls(void **state)
{
    struct play *play = *state;
    play->publishes = true;
    run(play, (trp_actor_loop_options){.pull_every_ms = 1000000, .max_steps = 70}, TRP_OK);
    for (uint64_t i = 0; i < 70; i++)
        assert_int_equal(play->versions[i], 1);
}

/* Silent for as long as the actor goes on: it must not. */
static void keep_silent(void *arg)
{
    struct play *play = arg;
    uint64_t steps = 0;
    mutex_lock(&play->mutex);
    while (!play->waited)
        cond_wait(&play->changed, &play->mutex, deadline_in_ms(&clock_monotonic, WAIT_MS));
    struct deadline stale = deadline_in_ms(&clock_monotonic, 10 * MAX_AGE_MS);
    while (cond_wait(&play->changed, &play->mutex, stale))
        continue;
    steps = play->steps;
    stale = deadline_in_ms(&clock_monotonic, MAX_AGE_MS);
    while (cond_wait(&play->changed, &play->mutex, stale))
        continue;
    play->stood_still = steps == play->steps;
    play->silent = false;
    cond_broadcast(&play->changed);
    mutex_unlock(&play->mutex);
}

static void an_actor_waits_rather_than_act_without_news_for_too_long(void **state)
{
    struct play *play = *state;
    struct thread thread = {0};
    play->silent_after = 5;
    assert_int_equal(thread_start(&thread, "silence", keep_silent, play), TRP_OK);
    trp_actor_counters counters =
        run(play,
            (trp_actor_loop_options){
                .max_age_s = MAX_AGE_MS / 1e3, .pull_every_steps = 1, .max_steps = 1000000},
            TRP_OK);
    thread_stop(&thread);
    assert_true(play->stood_still);
    assert_true(counters.stale_ns >= MAX_AGE_MS * UINT64_C(1000000));
}

static void a_bound_without_parameters_is_refused(void **state)
{
    struct play *play = *state;
    play->without_params = true;
    run(play, (trp_actor_loop_options){.max_lag = 2}, TRP_INVALID_ARGUMENT);
    assert_string_equal(trp_last_error(), "actor: max_lag needs parameters");
    run(play, (trp_actor_loop_options){.max_age_s = 2}, TRP_INVALID_ARGUMENT);
    assert_string_equal(trp_last_error(), "actor: max_age_s needs parameters");
}

#define WITH_PLAY(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    trp_log_set_level(TRP_ERROR);
    const struct CMUnitTest tests[] = {
        WITH_PLAY(acting_goes_on_while_the_learner_is_silent),
        WITH_PLAY(a_learner_that_fails_for_good_ends_the_run),
        WITH_PLAY(an_actor_waits_for_the_version_that_its_items_make),
        WITH_PLAY(an_actor_is_at_most_max_lag_versions_ahead),
        WITH_PLAY(a_stop_ends_the_wait_for_a_version),
        WITH_PLAY(an_actor_that_bounds_it_is_at_most_max_lag_versions_behind),
        WITH_PLAY(without_a_bound_it_acts_with_what_it_has_between_pulls),
        WITH_PLAY(an_actor_waits_rather_than_act_without_news_for_too_long),
        WITH_PLAY(a_bound_without_parameters_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
