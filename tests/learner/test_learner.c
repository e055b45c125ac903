/* The learner's loop and its checkpoints, around an updater small enough to predict: it adds 1 to
 * every parameter a step and gives an item of value x the priority x + 2. */
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <troupe/log.h>
#include "core/clock.h"
#include "learner/limits.h"
#include "learner/save.h"
#include "learner/update.h"
#include "params.pb-c.h"
#include "tests/core/captured.h"
#include "learner_fixture.h"

static Troupe__PullReply *pull(trp_learner *learner, const char *client, uint64_t steps)
{
    Troupe__PullRequest request = TROUPE__PULL_REQUEST__INIT;
    request.client = (char *)client;
    request.steps = steps;
    ProtobufCMessage *reply = NULL;
    assert_int_equal(trp_call(trp_learner_service(learner), "Pull", &request.base, &reply, NULL),
                     TRP_OK);
    return (Troupe__PullReply *)reply;
}

static void reply_free(Troupe__PullReply *reply)
{
    protobuf_c_message_free_unpacked(&reply->base, NULL);
}

/* ---- the loop ------------------------------------------------------------------------------ */

static void a_learner_steps_until_max_steps(void **state)
{
    struct fixture *fixture = *state;
    start_replay(fixture);
    struct adding *updater = adding_create();
    trp_learner_loop_options options = loop_options(fixture, updater);
    options.max_steps = 25;
    options.publish_every = 10;
    trp_learner *learner = learner_create(&options);
    assert_int_equal(trp_learner_run(learner), TRP_OK);
    trp_learner_counters counters = trp_learner_read(learner);
    assert_int_equal(counters.steps, 25);
    assert_true(counters.finished);
    assert_int_equal(counters.version, 3); /* at the start, after 10 and after 20 steps */
    assert_int_equal(counters.checkpoints, 1);
    assert_int_equal(counters.metric_count, 2);
    assert_string_equal(counters.metrics[0].name, "grad_norm");
    assert_float_equal(counters.metrics[0].value, sqrt(COUNT), 1e-6);
    assert_string_equal(counters.metrics[1].name, "loss");
    assert_float_equal(counters.metrics[1].value, 25, 0);
    assert_float_equal(updater->params[COUNT - 1], 25, 0);
    assert_true(updater->seen > 0);
    trp_learner_destroy(learner);
}

static void the_service_has_parameters_before_the_first_step(void **state)
{
    struct fixture *fixture = *state;
    struct adding *updater = adding_create();
    trp_learner_loop_options options = loop_options(fixture, updater);
    trp_learner *learner = learner_create(&options);
    Troupe__PullReply *reply = pull(learner, "actor/0", 5);
    assert_int_equal(reply->version, 1);
    assert_int_equal(reply->params.len, COUNT * sizeof(float));
    assert_int_equal(trp_learner_read(learner).actor_steps, 5);
    reply_free(reply);
    trp_learner_destroy(learner);
}

static void published_versions_carry_the_parameters_of_their_step(void **state)
{
    struct fixture *fixture = *state;
    start_replay(fixture);
    struct adding *updater = adding_create();
    trp_learner_loop_options options = loop_options(fixture, updater);
    options.max_steps = 7;
    options.publish_every = 1;
    trp_learner *learner = learner_create(&options);
    assert_int_equal(trp_learner_run(learner), TRP_OK);
    Troupe__PullReply *reply = pull(learner, "", 0);
    assert_int_equal(reply->version, 8);
    assert_int_equal(reply->learner_steps, 7);
    float first;
    memcpy(&first, reply->params.data, sizeof first);
    assert_float_equal(first, 7, 0);
    reply_free(reply);
    trp_learner_destroy(learner);
}

/* How many items the learner has given a priority, which is that of their own value. */
static size_t updated_items(struct fixture *fixture)
{
    trp_sampler *sampler;
    assert_int_equal(trp_sampler_create(&sampler, fixture->channel,
                                        &(trp_sampler_options){.table = "t",
                                                               .columns = columns,
                                                               .column_count = 1,
                                                               .batch_size = 256}),
                     TRP_OK);
    trp_batch batch;
    assert_int_equal(trp_sampler_next(sampler, &batch, 10000), TRP_OK);
    const float *values = batch.columns[0];
    bool updated[ITEMS] = {false};
    for (uint32_t row = 0; row < batch.rows; row++) {
        size_t item = (size_t)values[row];
        assert_true(item < ITEMS);
        updated[item] = batch.priorities[row] != 1; /* that of its insert */
        if (updated[item])
            assert_float_equal(batch.priorities[row], (double)values[row] + 2, 0);
    }
    trp_sampler_destroy(sampler);
    size_t count = 0;
    for (size_t i = 0; i < ITEMS; i++)
        count += updated[i];
    return count;
}

static void new_priorities_reach_the_table(void **state)
{
    struct fixture *fixture = *state;
    start_replay(fixture);
    struct adding *updater = adding_create();
    trp_learner_loop_options options = loop_options(fixture, updater);
    options.max_steps = 50;
    trp_learner *learner = learner_create(&options);
    assert_int_equal(trp_learner_run(learner), TRP_OK);
    assert_int_equal(trp_learner_read(learner).skipped_priorities, 0);
    trp_learner_destroy(learner);

    /* Of 16 items 200 draws miss few, and what was drawn is drawn more often then. */
    assert_in_range(updated_items(fixture), ITEMS / 2, ITEMS);
}

static void priorities_that_come_a_step_later_reach_the_table(void **state)
{
    struct fixture *fixture = *state;
    start_replay(fixture);
    struct adding *updater = adding_create();
    updater->base.impl = &adding_later_impl;
    trp_learner_loop_options options = loop_options(fixture, updater);
    options.max_steps = 50;
    options.publish_every = 1000;
    trp_learner *learner = learner_create(&options);
    assert_int_equal(trp_learner_run(learner), TRP_OK);
    assert_int_equal(updater->collected_later, 49);
    trp_learner_destroy(learner);
    assert_in_range(updated_items(fixture), ITEMS / 2, ITEMS);
}

static void a_stop_ends_the_run_with_a_checkpoint(void **state)
{
    struct fixture *fixture = *state;
    start_replay(fixture);
    struct adding *updater = adding_create();
    updater->stop = fixture->stop;
    updater->stop_at = 12;
    trp_learner_loop_options options = loop_options(fixture, updater);
    trp_learner *learner = learner_create(&options);
    assert_int_equal(trp_learner_run(learner), TRP_OK);
    assert_int_equal(trp_learner_read(learner).steps, 12);
    assert_false(trp_learner_read(learner).finished);
    trp_learner_destroy(learner);
    char *path;
    assert_int_equal(trp_learner_checkpoint_find(fixture->checkpoints, &path), TRP_OK);
    assert_non_null(strstr(path, "00012.safetensors"));
    free(path);
}

static void a_failing_step_ends_the_run_with_its_status(void **state)
{
    struct fixture *fixture = *state;
    start_replay(fixture);
    struct adding *updater = adding_create();
    updater->fail_at = 3;
    trp_learner_loop_options options = loop_options(fixture, updater);
    trp_learner *learner = learner_create(&options);
    assert_int_equal(trp_learner_run(learner), TRP_INTERNAL);
    assert_string_equal(trp_last_error(), "adding: step 3 fails");
    assert_int_equal(trp_learner_read(learner).steps, 2);
    trp_learner_destroy(learner);
}

static void a_gradient_that_is_not_finite_ends_the_run_or_is_left_out(void **state)
{
    struct fixture *fixture = *state;
    start_replay(fixture);
    struct adding *updater = adding_create();
    updater->nan_at = 3;
    trp_learner_loop_options options = loop_options(fixture, updater);
    options.max_steps = 5;
    trp_learner *learner = learner_create(&options);
    assert_int_equal(trp_learner_run(learner), TRP_INTERNAL);
    assert_string_equal(trp_last_error(),
                        "the gradient of 'params' is not finite in step 3: number "
                        "5 of 32 is nan: all that it was made of is finite");
    assert_float_equal(updater->params[0], 2, 0);
    trp_learner_destroy(learner);

    updater = adding_create();
    updater->nan_at = 3;
    updater->base.vectors[0].optimizer.skip_not_finite = true;
    options = loop_options(fixture, updater);
    options.checkpoint_dir = NULL;
    options.max_steps = 5;
    learner = learner_create(&options);
    assert_int_equal(trp_learner_run(learner), TRP_OK);
    assert_int_equal(trp_learner_read(learner).left_out, 1);
    assert_float_equal(updater->params[5], 4, 0);
    trp_learner_destroy(learner);
}

/* Fails as `create` does, with words of it in the message. */
static void assert_fails(struct fixture *fixture, struct adding *updater, trp_status expected,
                         const char *words)
{
    trp_learner_loop_options options = loop_options(fixture, updater);
    trp_learner *learner;
    assert_int_equal(trp_learner_create(&learner, &options), expected);
    assert_null(learner);
    assert_non_null(strstr(trp_last_error(), words));
}

static void assert_refused(struct fixture *fixture, struct adding *updater, const char *words)
{
    assert_fails(fixture, updater, TRP_INVALID_ARGUMENT, words);
}

static void a_batch_size_beyond_memory_is_refused(void **state)
{
    struct adding *updater = adding_create();
    const trp_tensor_spec huge = {
        .name = "huge", .dtype = TRP_UINT8, .rank = 1, .shape = {1 << 30}};
    trp_columns_add(&updater->base.sources[0].columns, NULL, &huge);
    updater->base.sources[0].batch_size = UINT32_MAX;
    assert_fails(*state, updater, TRP_RESOURCE_EXHAUSTED,
                 "learner: batch_size 4294967295 makes batches of 46116");
}

static void what_an_updater_declares_is_checked(void **state)
{
    struct fixture *fixture = *state;
    struct adding *updater = adding_create();
    updater->base.vectors[0].name = "weights";
    assert_refused(fixture, updater, "no vector is called 'params'");
    updater = adding_create();
    updater->base.vectors[1] = updater->base.vectors[0];
    updater->base.vector_count = 2;
    assert_refused(fixture, updater, "two vectors are called 'params'");
    updater = adding_create();
    updater->base.vectors[0].optimizer.momentum = 2;
    assert_refused(fixture, updater, "params: the optimizer's momentum is 2");
    updater = adding_create();
    updater->base.source_count = 0;
    assert_refused(fixture, updater, "1 batch sources, the updater reads 0");
    updater = adding_create();
    updater->base.source_count = 1000;
    assert_refused(fixture, updater, "the updater reads 1000");
}

/* ---- a server that is away ----------------------------------------------------------------- */

static void await_steps(const struct learning *learning, uint64_t steps)
{
    struct deadline deadline = deadline_in_ms(&clock_monotonic, 30000);
    while (trp_learner_read(learning->learner).steps < steps &&
           !deadline_passed(deadline, &clock_monotonic))
        poll(NULL, 0, 1);
    if (trp_learner_read(learning->learner).steps < steps)
        fail_msg("no step %" PRIu64 " within 30 s: %s", steps, learning->error);
}

/* Until no batch that was made ahead is left. */
static uint64_t await_standstill(const struct learning *learning)
{
    uint64_t steps, before = UINT64_MAX;
    while ((steps = trp_learner_read(learning->learner).steps) != before) {
        assert_true(steps < 100000000); /* of a server that is not there */
        before = steps;
        poll(NULL, 0, 100);
    }
    return steps;
}

static void a_learner_goes_on_when_its_replay_server_is_back(void **state)
{
    struct fixture *fixture = *state;
    char *address = xasprintf("unix:%s/socket", fixture->dir);
    start_server(fixture, address);
    assert_int_equal(trp_replay_server_start(fixture->server), TRP_OK);
    assert_int_equal(trp_channel_create(&fixture->channel, address, NULL), TRP_OK);
    write_items(fixture);
    trp_learner_loop_options options = loop_options(fixture, adding_create());
    struct learning learning = {.learner = learner_create(&options)};
    assert_int_equal(thread_start(&learning.thread, "learner", learn, &learning), TRP_OK);
    await_steps(&learning, 20);
    trp_replay_server_destroy(fixture->server);
    fixture->server = NULL;
    uint64_t steps = await_standstill(&learning);

    start_server(fixture, address);
    assert_int_equal(trp_replay_server_start(fixture->server), TRP_OK);
    await_steps(&learning, steps + 50);
    trp_stop_request(fixture->stop);
    thread_stop(&learning.thread);
    assert_int_equal(learning.status, TRP_OK);
    assert_int_equal(trp_learner_read(learning.learner).checkpoints, 1);
    trp_learner_destroy(learning.learner);
    assert_in_range(updated_items(fixture), ITEMS / 2, ITEMS);
    free(address);
}

/* ---- resuming ------------------------------------------------------------------------------ */

static void run_to(struct fixture *fixture, uint64_t max_steps, bool resume, struct adding *updater)
{
    trp_learner_loop_options options = loop_options(fixture, updater);
    options.max_steps = max_steps;
    options.resume = resume;
    trp_learner *learner = learner_create(&options);
    assert_int_equal(trp_learner_run(learner), TRP_OK);
    reply_free(pull(learner, "actor/0", 100 * max_steps));
    trp_learner_destroy(learner);
}

static void a_resumed_learner_goes_on_where_it_was(void **state)
{
    struct fixture *fixture = *state;
    start_replay(fixture);
    run_to(fixture, 30, false, adding_create());

    struct adding *updater = adding_create();
    trp_learner_loop_options options = loop_options(fixture, updater);
    options.resume = true;
    options.max_steps = 50;
    trp_learner *learner = learner_create(&options);
    assert_int_equal(updater->steps, 30);
    assert_float_equal(updater->params[0], 30, 0);
    trp_learner_counters counters = trp_learner_read(learner);
    assert_int_equal(counters.steps, 30);
    assert_int_equal(counters.resumed_from, 30);
    assert_true(counters.version > LEARNER_VERSION_GAP); /* no number is used twice */
    Troupe__PullReply *reply = pull(learner, "", 0);
    assert_int_equal(reply->version, counters.version);
    reply_free(reply);
    assert_int_equal(trp_learner_run(learner), TRP_OK);
    assert_int_equal(trp_learner_read(learner).steps, 50);
    assert_float_equal(updater->params[0], 50, 0);
    trp_learner_destroy(learner);
}

static void counts_of_actors_are_part_of_a_checkpoint(void **state)
{
    struct fixture *fixture = *state;
    struct adding *updater = adding_create();
    trp_learner_loop_options options = loop_options(fixture, updater);
    trp_learner *learner = learner_create(&options);
    reply_free(pull(learner, "actor/0", 100));
    reply_free(pull(learner, "actor/1", 11));
    trp_stop_request(fixture->stop);
    assert_int_equal(trp_learner_run(learner), TRP_OK);
    trp_learner_destroy(learner);

    options = loop_options(fixture, adding_create());
    options.resume = true;
    learner = learner_create(&options);
    assert_int_equal(trp_learner_read(learner).actor_steps, 111);
    Troupe__PullReply *reply = pull(learner, "actor/0", 0);
    assert_int_equal(reply->client_steps, 100);
    assert_int_equal(reply->total_steps, 111);
    reply_free(reply);
    trp_learner_destroy(learner);
}

static void resuming_without_a_checkpoint_starts_anew_and_says_so(void **state)
{
    struct fixture *fixture = *state;
    struct captured captured;
    trp_learner_loop_options options = loop_options(fixture, adding_create());
    options.resume = true;
    trp_log_set_level(TRP_WARN);
    capture_begin(&captured);
    trp_learner *learner = learner_create(&options);
    capture_end(&captured);
    trp_log_set_level(TRP_ERROR);
    assert_int_equal(captured_count(&captured, "learner begins anew: there is no checkpoint"), 1);
    assert_int_equal(captured_count(&captured, options.checkpoint_dir), 1);
    assert_int_equal(trp_learner_read(learner).steps, 0);
    assert_int_equal(trp_learner_read(learner).version, 1);
    trp_learner_destroy(learner);
}

static void another_runs_checkpoints_are_not_overwritten(void **state)
{
    struct fixture *fixture = *state;
    trp_stop_request(fixture->stop);
    run_to(fixture, 0, false, adding_create());
    trp_learner_loop_options options = loop_options(fixture, adding_create());
    trp_learner *learner;
    assert_int_equal(trp_learner_create(&learner, &options), TRP_FAILED_PRECONDITION);
    assert_null(learner);
    assert_non_null(strstr(trp_last_error(), fixture->checkpoints));
}

static void a_checkpoint_of_another_network_is_refused(void **state)
{
    struct fixture *fixture = *state;
    trp_stop_request(fixture->stop);
    run_to(fixture, 0, false, adding_create());
    struct adding *updater = adding_create();
    updater->base.vectors[0].count = COUNT - 1;
    trp_learner_loop_options options = loop_options(fixture, updater);
    options.resume = true;
    trp_learner *learner;
    assert_int_equal(trp_learner_create(&learner, &options), TRP_FAILED_PRECONDITION);
}

static void a_directory_that_cannot_be_made_is_named(void **state)
{
    struct fixture *fixture = *state;
    trp_learner_loop_options options = loop_options(fixture, adding_create());
    options.checkpoint_dir = "/proc/no/such";
    trp_learner *learner;
    assert_int_equal(trp_learner_create(&learner, &options), TRP_FAILED_PRECONDITION);
    assert_non_null(strstr(trp_last_error(), "/proc/no/such"));
}

static void resume_needs_a_directory(void **state)
{
    struct fixture *fixture = *state;
    trp_learner_loop_options options = loop_options(fixture, adding_create());
    options.checkpoint_dir = NULL;
    options.resume = true;
    trp_learner *learner;
    assert_int_equal(trp_learner_create(&learner, &options), TRP_INVALID_ARGUMENT);
}

/* ---- turns --------------------------------------------------------------------------------- */

struct turn {
    struct turns *turns;
    struct fixture *fixture;
    struct adding *updater;
    trp_status status;
    uint64_t steps;
};

static void learn_in_turns(void *arg)
{
    struct turn *turn = arg;
    turns_join(turn->turns, 0);
    trp_learner_loop_options options = loop_options(turn->fixture, turn->updater);
    options.max_steps = 20;
    trp_learner *learner = learner_create(&options);
    turn->status = trp_learner_run(learner);
    turn->steps = trp_learner_read(learner).steps;
    trp_learner_destroy(learner);
    turns_leave();
}

static void a_learner_that_joined_turns_passes_them_on(void **state)
{
    struct fixture *fixture = *state;
    start_replay(fixture);
    struct turn turn = {.turns = turns_create(2), .fixture = fixture, .updater = adding_create()};
    struct thread thread = {0};
    assert_int_equal(thread_start(&thread, "learner", learn_in_turns, &turn), TRP_OK);
    turns_join(turn.turns, 1);
    for (int i = 0; i < 5; i++)
        turns_pass(); /* would hang if the learner kept its turn */
    turns_leave();
    thread_stop(&thread);
    turns_destroy(turn.turns);
    assert_int_equal(turn.status, TRP_OK);
    assert_int_equal(turn.steps, 20);
}

int main(void)
{
    trp_log_set_level(TRP_ERROR); /* damaged files below are on purpose */
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(the_service_has_parameters_before_the_first_step),
        WITH_FIXTURE(counts_of_actors_are_part_of_a_checkpoint),
        WITH_FIXTURE(resuming_without_a_checkpoint_starts_anew_and_says_so),
        WITH_FIXTURE(another_runs_checkpoints_are_not_overwritten),
        WITH_FIXTURE(a_checkpoint_of_another_network_is_refused),
        WITH_FIXTURE(a_directory_that_cannot_be_made_is_named),
        WITH_FIXTURE(resume_needs_a_directory),
        WITH_FIXTURE(a_learner_steps_until_max_steps),
        WITH_FIXTURE(published_versions_carry_the_parameters_of_their_step),
        WITH_FIXTURE(new_priorities_reach_the_table),
        WITH_FIXTURE(a_stop_ends_the_run_with_a_checkpoint),
        WITH_FIXTURE(a_failing_step_ends_the_run_with_its_status),
        WITH_FIXTURE(a_gradient_that_is_not_finite_ends_the_run_or_is_left_out),
        WITH_FIXTURE(a_batch_size_beyond_memory_is_refused),
        WITH_FIXTURE(what_an_updater_declares_is_checked),
        WITH_FIXTURE(priorities_that_come_a_step_later_reach_the_table),
        WITH_FIXTURE(a_learner_goes_on_when_its_replay_server_is_back),
        WITH_FIXTURE(a_resumed_learner_goes_on_where_it_was),
        WITH_FIXTURE(a_learner_that_joined_turns_passes_them_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
