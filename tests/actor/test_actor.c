/* The environment loop, around a policy and an adder that record, and a task small
 * enough to predict: it observes the number of steps so far, terminates after its action's number
 * of steps, and pays 1 a step. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/actor.h>
#include <troupe/log.h>
#include "core/alloc.h"
#include "core/thread.h"
#include <troupe/publisher.h>
#include "params.pb-c.h"

enum { COUNT = 16, KEPT = 4096 };

/* ---- the task ------------------------------------------------------------------------------ */

struct walk {
    int64_t steps;
    int64_t start; /* drawn, so that seeds show; exact as a float */
};

static trp_status walk_reset(void *state, trp_rng *rng)
{
    struct walk *walk = state;
    *walk = (struct walk){.start = (int64_t)trp_rng_below(rng, 1 << 24)};
    return TRP_OK;
}

static trp_status walk_step(void *state, trp_rng *rng, const void *action, trp_env_outcome *outcome)
{
    (void)rng;
    struct walk *walk = state;
    int32_t length;
    memcpy(&length, action, sizeof length);
    if (length == 9)
        return trp_fail(TRP_INTERNAL, "walk: broken");
    walk->steps++;
    outcome->reward = 1;
    outcome->terminated = walk->steps >= length;
    return TRP_OK;
}

static void walk_observe(const void *state, void *const *observations)
{
    const struct walk *walk = state;
    float values[2] = {(float)walk->steps, (float)walk->start};
    memcpy(observations[0], values, sizeof values);
}

static const trp_env_impl walk_impl = {
    .spec = {.name = "Walk",
             .observations = {{.name = "o", .dtype = TRP_FLOAT32, .rank = 1, .shape = {2}}},
             .action_kind = TRP_ACTION_DISCRETE,
             .action_count = 10,
             .max_episode_steps = 5},
    .state_bytes = sizeof(struct walk),
    .reset = walk_reset,
    .step = walk_step,
    .observe = walk_observe,
};

/* The same with everything optional: a mask (lengths above steps + 2), a discount, infos. */
static trp_status strict_walk_step(void *state, trp_rng *rng, const void *action,
                                   trp_env_outcome *outcome)
{
    TRP_TRY(walk_step(state, rng, action, outcome));
    outcome->discount = 0.5F;
    outcome->infos[0] = outcome->infos[1] = (double)((const struct walk *)state)->steps;
    if (outcome->infos[1] == 2)
        outcome->infos[1] = NAN;
    return TRP_OK;
}

static void strict_walk_mask(const void *state, bool *allowed)
{
    for (int64_t i = 3 + ((const struct walk *)state)->steps; i < 9; i++)
        allowed[i] = true;
}

/* ---- a policy that always answers `action`, or each row's copy number + 1 ---------------------
 */

struct constant {
    trp_policy base;
    int32_t action; /* 0: copy number + 1 */
    uint32_t *loads;
    uint64_t *last_steps;
    bool obedient; /* the first that is allowed */
};

static int32_t first_allowed(const trp_act *act, uint32_t row)
{
    const bool *mask = act->mask + (size_t)row * 10;
    return (int32_t)((const bool *)memchr(mask, true, 10) - mask);
}

static trp_status constant_act(trp_policy *base, const trp_act *act)
{
    struct constant *policy = (struct constant *)base;
    int32_t *actions = act->actions;
    assert_null(act->extras);
    for (uint32_t row = 0; row < act->rows; row++)
        actions[row] = policy->obedient ? first_allowed(act, row)
                       : policy->action ? policy->action
                                        : (int32_t)row + 1;
    if (policy->last_steps)
        *policy->last_steps = act->steps;
    return TRP_OK;
}

static trp_status constant_load(trp_policy *base, const float *params, size_t count)
{
    (void)params;
    struct constant *policy = (struct constant *)base;
    assert_int_equal(count, COUNT);
    if (policy->loads)
        ++*policy->loads;
    return TRP_OK;
}

static size_t constant_metrics(const trp_policy *base, uint64_t steps, trp_metric *metrics)
{
    (void)base;
    metrics[0] = (trp_metric){"boldness", steps >= 10 ? 0.25 : 1};
    return 1;
}

static void constant_destroy(trp_policy *base)
{
    free(base);
}

static const trp_policy_impl constant_impl = {.act = constant_act,
                                              .load = constant_load,
                                              .metrics = constant_metrics,
                                              .destroy = constant_destroy};

static struct constant *constant_create(int32_t action)
{
    struct constant *policy = xcalloc(1, sizeof *policy);
    policy->base.impl = &constant_impl;
    policy->action = action;
    return policy;
}

/* ---- a policy that remembers ---------------------------------------------------------------- */

enum { SLOTS = 4 };

/* Counts the steps of each slot's episode, which is what Walk shows, too; the count before the step
 * is its extra. Its episodes end after slot + 2 steps. */
struct counting {
    trp_policy base;
    float steps[SLOTS];
};

static trp_status counting_act(trp_policy *base, const trp_act *act)
{
    struct counting *policy = (struct counting *)base;
    const float(*seen)[2] = act->observations[0];
    float *extra = act->extras[0];
    for (uint32_t row = 0; row < act->rows; row++) {
        uint32_t slot = act->slots[row];
        int32_t length = (int32_t)slot + 2;
        if (act->first[row])
            policy->steps[slot] = 0;
        assert_float_equal(act->rewards[row], act->first[row] ? 0 : 1, 0);
        assert_int_equal(((const int32_t *)act->last_actions)[row], act->first[row] ? 0 : length);
        assert_float_equal(seen[row][0], policy->steps[slot], 0);
        extra[row] = policy->steps[slot]++;
        ((int32_t *)act->actions)[row] = length;
    }
    return TRP_OK;
}

static const trp_policy_impl counting_impl = {
    .act = counting_act, .load = constant_load, .destroy = constant_destroy};

static trp_policy *counting_create(void)
{
    struct counting *policy = xcalloc(1, sizeof *policy);
    policy->base.impl = &counting_impl;
    trp_columns_add(&policy->base.extras, "core", &(trp_tensor_spec){.dtype = TRP_FLOAT32});
    return &policy->base;
}

/* ---- an adder that records ----------------------------------------------------------------- */

struct record {
    uint16_t first, last; /* no padding: records are compared as bytes */
    uint32_t copy;
    float observation[2]; /* the first one, or the next one */
    float reward, discount;
    float extra, unused;
    uint64_t version;
};

struct recording {
    struct record records[KEPT];
    size_t count;
    uint64_t reseeded;
    trp_status push_status; /* of the pushes from push_fails_from on */
    uint64_t pushes, push_fails_from, push_recovers_at;
    trp_stop *stop;            /* requested by push `stop_at` */
    uint64_t stop_at, push_ms; /* push_ms: what the last push or flush might take */
};

struct recorder {
    trp_adder base;
    bool extra; /* steps have one, a float */
    struct recording *recording;
};

static struct record *next_record(trp_adder *base)
{
    struct recording *recording = ((struct recorder *)base)->recording;
    assert_true(recording->count < KEPT);
    return &recording->records[recording->count++];
}

static void recorder_first(trp_adder *base, uint32_t copy, const void *const *observations)
{
    struct record *record = next_record(base);
    *record = (struct record){.first = true, .copy = copy};
    memcpy(record->observation, observations[0], sizeof record->observation);
}

static void recorder_add(trp_adder *base, uint32_t copy, const trp_transition *transition)
{
    struct record *record = next_record(base);
    *record = (struct record){.copy = copy,
                              .last = transition->last,
                              .reward = transition->reward,
                              .discount = transition->discount,
                              .version = transition->version};
    memcpy(record->observation, transition->next_observations[0], sizeof record->observation);
    record->extra = ((struct recorder *)base)->extra ? *(const float *)transition->extras[0] : 0;
}

static trp_status recorder_push(trp_adder *base, int64_t timeout_ms)
{
    struct recording *recording = ((struct recorder *)base)->recording;
    recording->push_ms = (uint64_t)timeout_ms;
    recording->pushes++;
    if (recording->stop && recording->pushes == recording->stop_at)
        trp_stop_request(recording->stop);
    bool fails = recording->push_fails_from && recording->pushes >= recording->push_fails_from &&
                 (!recording->push_recovers_at || recording->pushes < recording->push_recovers_at);
    return fails ? trp_fail(recording->push_status, "recorder: push fails") : TRP_OK;
}

static uint64_t recorder_items(const trp_adder *base)
{
    return ((const struct recorder *)base)->recording->count;
}

static void recorder_reseed(trp_adder *base, uint64_t seed)
{
    ((struct recorder *)base)->recording->reseeded = seed;
}

static void recorder_destroy(trp_adder *base)
{
    free(base);
}

static const trp_adder_impl recorder_impl = {.first = recorder_first,
                                             .add = recorder_add,
                                             .push = recorder_push,
                                             .flush = recorder_push,
                                             .items = recorder_items,
                                             .reseed = recorder_reseed,
                                             .destroy = recorder_destroy};

/* ---- fixture ------------------------------------------------------------------------------- */

struct fixture {
    trp_publisher *publisher;
    trp_stop *stop;
    struct recording recording;
    uint32_t loads;
    uint64_t last_steps;
};

static void publish(struct fixture *fixture, uint64_t version)
{
    float params[COUNT] = {0};
    trp_publisher_publish(fixture->publisher, params, version, 0);
}

static int setup(void **state)
{
    struct fixture *fixture = xcalloc(1, sizeof *fixture);
    fixture->publisher = trp_publisher_create(COUNT);
    fixture->stop = trp_stop_create();
    publish(fixture, 1);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    trp_publisher_destroy(fixture->publisher);
    trp_stop_destroy(fixture->stop);
    free(fixture);
    return 0;
}

static trp_actor_loop_options loop_options(struct fixture *fixture, int32_t action, uint32_t copies)
{
    trp_env *env;
    assert_int_equal(trp_env_create(&env, "Walk", &(trp_env_options){.count = copies, .seed = 7}),
                     TRP_OK);
    struct constant *policy = constant_create(action);
    policy->loads = &fixture->loads;
    policy->last_steps = &fixture->last_steps;
    struct recorder *recorder = xcalloc(1, sizeof *recorder);
    recorder->base.impl = &recorder_impl;
    recorder->recording = &fixture->recording;
    return (trp_actor_loop_options){.name = "actor/0",
                                    .env = env,
                                    .policy = &policy->base,
                                    .adder = &recorder->base,
                                    .params = trp_publisher_service(fixture->publisher),
                                    .stop = fixture->stop,
                                    .seed = 3,
                                    .pull_every_steps = 1,
                                    .max_steps = 12};
}

static trp_actor_counters run(const trp_actor_loop_options *options, trp_status wanted)
{
    trp_actor *actor;
    assert_int_equal(trp_actor_create(&actor, options), TRP_OK);
    assert_int_equal(trp_actor_run(actor), wanted);
    trp_actor_counters counters = trp_actor_read(actor);
    trp_actor_destroy(actor);
    return counters;
}

/* ---- the loop ------------------------------------------------------------------------------ */

static void episodes_reach_the_adder_step_by_step(void **state)
{
    struct fixture *fixture = *state;
    trp_actor_loop_options options = loop_options(fixture, 3, 1);
    options.max_steps = 4;
    run(&options, TRP_OK);
    const struct record wanted[] = {
        {.first = true, .observation = {0}},
        {.observation = {1}, .reward = 1, .discount = 1, .version = 1},
        {.observation = {2}, .reward = 1, .discount = 1, .version = 1},
        {.observation = {3}, .reward = 1, .discount = 0, .version = 1, .last = true},
        {.first = true, .observation = {0}},
        {.observation = {1}, .reward = 1, .discount = 1, .version = 1},
    };
    assert_int_equal(fixture->recording.count, sizeof wanted / sizeof *wanted);
    for (size_t i = 0; i < fixture->recording.count; i++) {
        const struct record *got = &fixture->recording.records[i];
        assert_int_equal(got->first, wanted[i].first);
        assert_int_equal(got->last, wanted[i].last);
        assert_float_equal(got->observation[0], wanted[i].observation[0], 0);
        assert_float_equal(got->reward, wanted[i].reward, 0);
        assert_float_equal(got->discount, wanted[i].discount, 0);
        assert_int_equal(got->version, wanted[i].version);
    }
}

static void what_a_policy_remembers_ends_with_the_episode(void **state)
{
    struct fixture *fixture = *state;
    trp_actor_loop_options options = loop_options(fixture, 1, SLOTS);
    trp_policy_destroy(options.policy);
    options.policy = counting_create();
    ((struct recorder *)options.adder)->extra = true;
    options.max_steps = 12 * SLOTS;
    run(&options, TRP_OK);
    size_t steps = 0;
    for (size_t i = 0; i < fixture->recording.count; i++) {
        const struct record *record = &fixture->recording.records[i];
        if (record->first)
            continue;
        assert_float_equal(record->extra + 1, record->observation[0], 0);
        steps++;
    }
    assert_int_equal(steps, 12 * SLOTS);
}

static void evaluation_resets_what_a_policy_remembers(void **state)
{
    (void)state;
    trp_policy *policy = counting_create();
    trp_evaluation result;
    trp_evaluate_options options = {.env = "Walk", .episodes = 4 * SLOTS, .copies = SLOTS};
    assert_int_equal(trp_evaluate(policy, &options, &result), TRP_OK);
    assert_float_equal(result.mean, (2 + 3 + 4 + 5) / 4., 0); /* the act itself asserts more */
    trp_policy_destroy(policy);
}

static void a_truncated_episode_keeps_its_discount(void **state)
{
    struct fixture *fixture = *state;
    trp_actor_loop_options options = loop_options(fixture, 8, 1); /* longer than the limit, 5 */
    options.max_steps = 5;
    run(&options, TRP_OK);
    const struct record *end = &fixture->recording.records[5];
    assert_true(end->last);
    assert_float_equal(end->discount, 1, 0);
    assert_float_equal(end->observation[0], 5, 0); /* the final one, not the next episode's first */
}

static void copies_keep_their_own_episodes(void **state)
{
    struct fixture *fixture = *state;
    trp_actor_loop_options options = loop_options(fixture, 0, 3); /* copy i ends after i + 1 */
    trp_actor_counters counters = run(&options, TRP_OK);
    assert_int_equal(counters.steps, 12);
    assert_int_equal(counters.episodes, 4 + 2 + 1);
    float expected[3] = {0};
    for (size_t i = 0; i < fixture->recording.count; i++) {
        const struct record *got = &fixture->recording.records[i];
        assert_true(got->copy < 3);
        expected[got->copy] = got->first ? 0 : expected[got->copy] + 1;
        assert_float_equal(got->observation[0], expected[got->copy], 0);
        assert_int_equal(got->last, !got->first && expected[got->copy] == (float)got->copy + 1);
    }
}

static void counters_tell_what_happened(void **state)
{
    struct fixture *fixture = *state;
    trp_actor_loop_options options = loop_options(fixture, 4, 1);
    trp_actor_counters counters = run(&options, TRP_OK);
    assert_int_equal(counters.steps, 12);
    assert_int_equal(counters.episodes, 3);
    assert_int_equal(counters.total_steps, 12);
    assert_int_equal(counters.version, 1);
    assert_float_equal(counters.last_return, 4, 0);
    assert_float_equal(counters.mean_return, 4, 0);
    assert_int_equal(counters.metric_count, 1);
    assert_string_equal(counters.metrics[0].name, "boldness");
    assert_float_equal(counters.metrics[0].value, 0.25, 0);
    assert_true(counters.finished);
    assert_int_equal(trp_publisher_totals(fixture->publisher).steps, 12);
    assert_int_equal(trp_publisher_totals(fixture->publisher).episodes, 3);
}

static void masks_discounts_and_infos_reach_who_is_concerned(void **state)
{
    struct fixture *fixture = *state;
    trp_actor_loop_options options = loop_options(fixture, 3, 2);
    ((struct constant *)options.policy)->obedient = true;
    trp_env_destroy(options.env);
    assert_int_equal(trp_env_create(&options.env, "StrictWalk", &(trp_env_options){.count = 2}),
                     TRP_OK);
    trp_actor_counters counters = run(&options, TRP_OK);
    assert_int_equal(counters.episodes, 2); /* none ends before the time limit */
    const struct record *records = fixture->recording.records;
    for (size_t i = 2; i < fixture->recording.count; i++)
        assert_true(records[i].first || records[i].discount == 0.5F);
    assert_int_equal(counters.metric_count, 3);
    assert_string_equal(counters.metrics[1].name, "place");
    assert_float_equal(counters.metrics[1].value, 5, 0);
    assert_float_equal(counters.metrics[2].value, (1 + 3 + 4 + 5) / 4.0, 0);
}

static void returns_are_not_a_number_before_the_first_episode(void **state)
{
    struct fixture *fixture = *state;
    trp_actor_loop_options options = loop_options(fixture, 4, 1);
    options.max_steps = 2;
    trp_actor_counters counters = run(&options, TRP_OK);
    assert_true(isnan(counters.last_return));
    assert_true(isnan(counters.mean_return));
}

static void items_carry_the_version_that_chose_them(void **state)
{
    struct fixture *fixture = *state;
    publish(fixture, 41);
    trp_actor_loop_options options = loop_options(fixture, 3, 1);
    trp_actor_counters counters = run(&options, TRP_OK);
    assert_int_equal(counters.version, 41);
    for (size_t i = 0; i < fixture->recording.count; i++)
        if (!fixture->recording.records[i].first)
            assert_int_equal(fixture->recording.records[i].version, 41);
}

static void parameters_are_loaded_once_per_version(void **state)
{
    struct fixture *fixture = *state;
    trp_actor_loop_options options = loop_options(fixture, 3, 1);
    run(&options, TRP_OK);
    assert_int_equal(fixture->loads, 1);
}

static void schedules_see_the_steps_of_all_actors(void **state)
{
    struct fixture *fixture = *state;
    trp_client_counts other = {.name = "actor/1", .steps = 1000};
    assert_int_equal(trp_publisher_restore(fixture->publisher, &other), TRP_OK);
    trp_actor_loop_options options = loop_options(fixture, 3, 1);
    options.max_steps = 1012;
    trp_actor_counters counters = run(&options, TRP_OK);
    assert_int_equal(counters.steps, 12);
    assert_int_equal(fixture->last_steps, 1011); /* before the last one */
}

static void between_pulls_own_steps_are_counted(void **state)
{
    struct fixture *fixture = *state;
    trp_actor_loop_options options = loop_options(fixture, 3, 1);
    options.pull_every_steps = 10;
    options.max_steps = 10;
    run(&options, TRP_OK);
    assert_int_equal(fixture->last_steps, 9);
}

static void later_lives_go_on_and_draw_other_numbers(void **state)
{
    struct fixture *fixture = *state;
    enum { LIVES = 3 };
    float starts[LIVES];
    uint64_t seeds[LIVES];
    for (uint32_t life = 0; life < LIVES; life++) {
        trp_actor_loop_options options = loop_options(fixture, 3, 1);
        options.max_steps = 12 + 8 * life;
        fixture->recording.count = 0;
        trp_actor_counters counters = run(&options, TRP_OK);
        assert_int_equal(counters.steps, life == 0 ? 12 : 8);
        assert_int_equal(counters.total_steps, options.max_steps);
        starts[life] = fixture->recording.records[0].observation[1];
        seeds[life] = fixture->recording.reseeded; /* 0 in the first: as it was made */
        for (uint32_t earlier = 0; earlier < life; earlier++) {
            assert_true(starts[life] != starts[earlier]);
            assert_true(seeds[life] != seeds[earlier]);
        }
    }
    assert_int_equal(seeds[0], 0);
}

static void an_actor_ends_behind_its_last_episode_of_all_its_lives(void **state)
{
    struct fixture *fixture = *state;
    for (uint32_t life = 0; life < 2; life++) {
        trp_actor_loop_options options = loop_options(fixture, 3, 1);
        options.max_steps = 0;
        options.max_episodes = 4 + 3 * life;
        trp_actor_counters counters = run(&options, TRP_OK);
        assert_true(counters.finished);
        assert_int_equal(counters.earlier_episodes, life == 0 ? 0 : 4);
        assert_int_equal(counters.episodes, life == 0 ? 4 : 3);
        assert_int_equal(counters.steps, 3 * counters.episodes);
    }
}

static void equal_seeds_repeat_a_run(void **state)
{
    struct fixture *fixture = *state;
    trp_actor_loop_options options = loop_options(fixture, 3, 2);
    run(&options, TRP_OK);
    struct recording *first = xcalloc(1, sizeof *first);
    *first = fixture->recording;
    void *again;
    assert_int_equal(setup(&again), 0);
    struct fixture *other = again;
    options = loop_options(other, 3, 2);
    run(&options, TRP_OK);
    assert_int_equal(other->recording.count, first->count);
    assert_memory_equal(other->recording.records, first->records,
                        first->count * sizeof *first->records);
    free(first);
    teardown(&again);
}

/* ---- the replay table and failures --------------------------------------------------------- */

static void a_table_that_holds_back_is_waited_for(void **state)
{
    struct fixture *fixture = *state;
    fixture->recording.push_status = TRP_DEADLINE_EXCEEDED;
    fixture->recording.push_fails_from = 3;
    fixture->recording.push_recovers_at = 10;
    trp_actor_loop_options options = loop_options(fixture, 3, 1);
    trp_actor_counters counters = run(&options, TRP_OK);
    assert_int_equal(counters.steps, 12);
    assert_true(counters.blocked_ns > 0 && fixture->recording.push_ms == 2000);
}

static void a_stop_ends_the_wait_for_the_table(void **state)
{
    struct fixture *fixture = *state;
    fixture->recording.push_status = TRP_DEADLINE_EXCEEDED;
    fixture->recording.push_fails_from = 3;
    fixture->recording.stop = fixture->stop;
    fixture->recording.stop_at = 6;
    trp_actor_loop_options options = loop_options(fixture, 3, 1);
    trp_actor_counters counters = run(&options, TRP_OK);
    assert_int_equal(counters.steps, 3);
    assert_true(!counters.finished && fixture->recording.push_ms == 50);
}

static void a_server_that_stays_away_ends_the_run(void **state)
{
    struct fixture *fixture = *state;
    fixture->recording.push_status = TRP_UNAVAILABLE;
    fixture->recording.push_fails_from = 2;
    trp_actor_loop_options options = loop_options(fixture, 3, 1);
    options.replay_give_up_ms = 1;
    trp_actor_counters counters = run(&options, TRP_UNAVAILABLE);
    assert_int_equal(counters.steps, 2);
    assert_string_equal(trp_last_error(), "recorder: push fails");
}

static void a_server_that_comes_back_is_forgiven(void **state)
{
    struct fixture *fixture = *state;
    fixture->recording.push_status = TRP_UNAVAILABLE;
    fixture->recording.push_fails_from = 2;
    fixture->recording.push_recovers_at = 4;
    trp_actor_loop_options options = loop_options(fixture, 3, 1);
    assert_int_equal(run(&options, TRP_OK).steps, 12);
}

static void other_failures_of_the_table_end_the_run(void **state)
{
    struct fixture *fixture = *state;
    fixture->recording.push_status = TRP_INVALID_ARGUMENT;
    fixture->recording.push_fails_from = 2;
    trp_actor_loop_options options = loop_options(fixture, 3, 1);
    run(&options, TRP_INVALID_ARGUMENT);
}

static void a_failing_environment_ends_the_run(void **state)
{
    struct fixture *fixture = *state;
    trp_actor_loop_options options = loop_options(fixture, 9, 1);
    run(&options, TRP_INTERNAL);
    assert_string_equal(trp_last_error(), "walk: broken");
}

static void an_actor_without_service_or_adder_just_acts(void **state)
{
    struct fixture *fixture = *state;
    trp_actor_loop_options options = loop_options(fixture, 3, 1);
    trp_adder_destroy(options.adder);
    options.adder = NULL;
    options.params = NULL;
    trp_actor_counters counters = run(&options, TRP_OK);
    assert_int_equal(counters.steps, 12);
    assert_int_equal(counters.version, 0);
    assert_int_equal(fixture->loads, 0);
}

/* ---- turns --------------------------------------------------------------------------------- */

struct turn {
    struct turns *turns;
    struct fixture *fixture;
    trp_status status;
};

static void act_in_turns(void *arg)
{
    struct turn *turn = arg;
    turns_join(turn->turns, 0);
    trp_actor_loop_options options = loop_options(turn->fixture, 3, 1);
    trp_actor *actor;
    turn->status = trp_actor_create(&actor, &options);
    if (turn->status == TRP_OK)
        turn->status = trp_actor_run(actor);
    trp_actor_destroy(actor);
    turns_leave();
}

static void an_actor_that_joined_turns_steps_once_a_turn(void **state)
{
    struct fixture *fixture = *state;
    struct turn turn = {.turns = turns_create(2), .fixture = fixture};
    fixture->recording.stop = fixture->stop;
    fixture->recording.stop_at = 4;
    struct thread thread = {0};
    assert_int_equal(thread_start(&thread, "actor", act_in_turns, &turn), TRP_OK);
    turns_join(turn.turns, 1);
    for (uint64_t pushes = 1; pushes <= 3; pushes++) {
        assert_int_equal(fixture->recording.pushes, pushes);
        turns_pass();
    }
    turns_leave();
    thread_stop(&thread);
    turns_destroy(turn.turns);
    assert_int_equal(turn.status, TRP_OK);
}

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    trp_log_set_level(TRP_ERROR); /* failures below are on purpose */
    static trp_env_impl strict;
    strict = walk_impl;
    strict.spec.name = "StrictWalk";
    strict.spec.infos[0] = (trp_env_info){"place", TRP_INFO_LAST};
    strict.spec.infos[1] = (trp_env_info){"mean_place", TRP_INFO_MEAN};
    strict.step = strict_walk_step;
    strict.mask = strict_walk_mask;
    if (trp_env_register(&walk_impl) != TRP_OK || trp_env_register(&strict) != TRP_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(episodes_reach_the_adder_step_by_step),
        WITH_FIXTURE(a_truncated_episode_keeps_its_discount),
        WITH_FIXTURE(what_a_policy_remembers_ends_with_the_episode),
        WITH_FIXTURE(evaluation_resets_what_a_policy_remembers),
        WITH_FIXTURE(copies_keep_their_own_episodes),
        WITH_FIXTURE(counters_tell_what_happened),
        WITH_FIXTURE(masks_discounts_and_infos_reach_who_is_concerned),
        WITH_FIXTURE(returns_are_not_a_number_before_the_first_episode),
        WITH_FIXTURE(items_carry_the_version_that_chose_them),
        WITH_FIXTURE(parameters_are_loaded_once_per_version),
        WITH_FIXTURE(schedules_see_the_steps_of_all_actors),
        WITH_FIXTURE(between_pulls_own_steps_are_counted),
        WITH_FIXTURE(later_lives_go_on_and_draw_other_numbers),
        WITH_FIXTURE(an_actor_ends_behind_its_last_episode_of_all_its_lives),
        WITH_FIXTURE(equal_seeds_repeat_a_run),
        WITH_FIXTURE(a_table_that_holds_back_is_waited_for),
        WITH_FIXTURE(a_stop_ends_the_wait_for_the_table),
        WITH_FIXTURE(a_server_that_stays_away_ends_the_run),
        WITH_FIXTURE(a_server_that_comes_back_is_forgiven),
        WITH_FIXTURE(other_failures_of_the_table_end_the_run),
        WITH_FIXTURE(a_failing_environment_ends_the_run),
        WITH_FIXTURE(an_actor_without_service_or_adder_just_acts),
        WITH_FIXTURE(an_actor_that_joined_turns_steps_once_a_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
