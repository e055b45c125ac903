/* A part of "params" is published: what actors pull of it, what is refused by name, and what a
 * resumed learner publishes. The updater reads no batches: it adds to every number its place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/learner.h>
#include <troupe/log.h>
#include <troupe/params.h>
#include "core/alloc.h"

enum { COUNT = 64, TENSORS = 3 };

static const trp_net_tensor tensors[TENSORS] = {
    {.name = "critic", .rank = 1, .shape = {13}, .offset = 0, .count = 13},
    {.name = "actor.weight", .rank = 2, .shape = {3, 5}, .offset = 16, .count = 15},
    {.name = "actor.bias", .rank = 1, .shape = {3}, .offset = 32, .count = 3}};

static trp_status place_step(trp_updater *updater, const trp_update *update)
{
    (void)updater;
    for (size_t i = 0; i < COUNT; i++)
        update->grads[0][i] = -(float)i; /* SGD of rate 1 */
    return trp_update_apply(update, 0);
}

static trp_updater *updater_create(size_t first, size_t count)
{
    static const trp_updater_impl impl = {.step = place_step};
    trp_updater *updater = xcalloc(1, sizeof *updater);
    updater->impl = &impl;
    updater->vector_count = 2;
    updater->vectors[0] = (trp_vector_spec){.name = "params",
                                            .count = COUNT,
                                            .learned = true,
                                            .optimizer = {.kind = TRP_SGD, .learning_rate = 1},
                                            .tensors = tensors,
                                            .tensor_count = TENSORS,
                                            .published_first = first,
                                            .published_count = count};
    updater->vectors[1] = (trp_vector_spec){.name = "target", .count = COUNT};
    return updater;
}

struct fixture {
    char dir[32];
    char *checkpoints;
};

static int setup(void **state)
{
    struct fixture *fixture = xcalloc(1, sizeof *fixture);
    memcpy(fixture->dir, "/tmp/test_part.XXXXXX", sizeof "/tmp/test_part.XXXXXX");
    assert_non_null(mkdtemp(fixture->dir));
    fixture->checkpoints = xasprintf("%s/learner", fixture->dir);
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

/* ---- tests ---------------------------------------------------------------------------------- */

static void parts_that_cannot_be_published_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        size_t first, count, vector;
        const char *words;
    } rows[] = {
        {COUNT, 0, 0, "0 numbers of 'params' from 64 on"},
        {16, 49, 0, "49 numbers of 'params' from 16 on are to be published, it has 64"},
        {16, SIZE_MAX, 0, "from 16 on"},
        {12, 0, 0, "tensor 'critic' lies at 0 to 13 of 'params', of which only 12 to 64"},
        {16, 18, 0, "tensor 'actor.bias' lies at 32 to 35 of 'params', of which only 16 to 34"},
        {0, 16, 1, "a part of 'target' is to be published; actors pull 'params'"},
        {16, 0, 1, "a part of 'target'"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        trp_updater *updater = updater_create(0, 0);
        trp_learner *learner;
        updater->vectors[rows[i].vector].published_first = rows[i].first;
        updater->vectors[rows[i].vector].published_count = rows[i].count;
        assert_int_equal(
            trp_learner_create(&learner, &(trp_learner_loop_options){.updater = updater}),
            TRP_INVALID_ARGUMENT);
        if (!strstr(trp_last_error(), rows[i].words))
            fail_msg("'%s' does not say '%s'", trp_last_error(), rows[i].words);
    }
}

/* Learns up to step `steps` and checks that a client has `count` numbers from `first` on. */
static void learn_and_pull(const struct fixture *fixture, uint64_t steps, bool resume, size_t first,
                           size_t count)
{
    trp_learner *learner;
    trp_params_client *client;
    const trp_learner_loop_options options = {.updater = updater_create(16, 32),
                                              .checkpoint_dir = fixture->checkpoints,
                                              .publish_every = 1,
                                              .max_steps = steps,
                                              .resume = resume};
    assert_int_equal(trp_learner_create(&learner, &options), TRP_OK);
    assert_int_equal(
        trp_params_client_create(
            &client, &(trp_params_client_options){.service = trp_learner_service(learner)}),
        TRP_OK);
    assert_int_equal(trp_params_client_wait(client, 0), TRP_OK);
    assert_int_equal(trp_learner_run(learner), TRP_OK);
    bool newer;
    assert_int_equal(trp_params_client_pull(client, 0, 0, &newer), TRP_OK);
    assert_true(newer);
    trp_params_state state = trp_params_client_state(client);
    assert_int_equal(state.count, count);
    for (size_t i = 0; i < count; i++)
        assert_float_equal(state.params[i], (float)(steps * (first + i)), 0);
    assert_string_equal(state.layout, "actor.weight [3][5] at 0 ()\nactor.bias [3] at 16 ()\n");
    trp_params_client_destroy(client);
    trp_learner_destroy(learner);
}

static void what_is_pulled_is_the_part_also_after_a_resume(void **state)
{
    const struct fixture *fixture = *state;
    learn_and_pull(fixture, 3, false, 16, 32);
    learn_and_pull(fixture, 7, true, 16, 32);
}

static void a_checkpoint_of_another_part_is_refused_by_name(void **state)
{
    const struct fixture *fixture = *state;
    learn_and_pull(fixture, 3, false, 16, 32);
    trp_net_tensor other[TENSORS];
    memcpy(other, tensors, sizeof other);
    other[1].shape[0] = 5;
    other[1].shape[1] = 3;
    static const struct {
        size_t first, count;
        const char *words;
    } rows[] = {
        {0, 0, "is 16 32 in the checkpoint and 0 64 in this run"},
        {16, 32,
         "the checkpoint has actor.weight [3][5] at 0 () where this run has actor.weight "
         "[5][3] at 0"},
    };
    for (size_t i = 0; i < 2; i++) {
        trp_updater *updater = updater_create(rows[i].first, rows[i].count);
        trp_learner *learner;
        updater->vectors[0].tensors = other;
        assert_int_equal(
            trp_learner_create(&learner,
                               &(trp_learner_loop_options){.updater = updater,
                                                           .checkpoint_dir = fixture->checkpoints,
                                                           .resume = true}),
            TRP_FAILED_PRECONDITION);
        if (!strstr(trp_last_error(), rows[i].words))
            fail_msg("'%s' does not say '%s'", trp_last_error(), rows[i].words);
    }
}

/* ---- a policy of the part ---------------------------------------------------------------------
 */

struct keeper {
    trp_policy base;
    float params[32];
};

static trp_status keeper_load(trp_policy *base, const float *params, size_t count)
{
    memcpy(((struct keeper *)base)->params, params, count * sizeof *params);
    return TRP_OK;
}

static const trp_policy_impl keeper_impl = {.load = keeper_load};

/* Of `count` numbers, with the actor's tensors, the first of which is called `name`. */
static struct keeper keeper_of(size_t count, const char *name, trp_net_tensor actor[2])
{
    memcpy(actor, &tensors[1], 2 * sizeof *actor);
    snprintf(actor[0].name, sizeof actor[0].name, "%s", name);
    actor[0].offset -= 16;
    actor[1].offset -= 16;
    return (struct keeper){
        .base = {.impl = &keeper_impl, .tensors = actor, .tensor_count = 2, .param_count = count}};
}

static void a_checkpoint_gives_a_policy_the_part_or_says_why_not(void **state)
{
    const struct fixture *fixture = *state;
    learn_and_pull(fixture, 3, false, 16, 32);
    char *path;
    trp_net_tensor actor[2];
    assert_int_equal(trp_learner_checkpoint_find(fixture->checkpoints, &path), TRP_OK);
    struct keeper keeper = keeper_of(32, "actor.weight", actor);
    assert_int_equal(trp_params_load(path, &keeper.base, NULL), TRP_OK);
    for (size_t i = 0; i < 32; i++)
        assert_float_equal(keeper.params[i], (float)(3 * (16 + i)), 0);

    keeper = keeper_of(64, "actor.weight", actor);
    assert_int_equal(trp_params_load(path, &keeper.base, NULL), TRP_FAILED_PRECONDITION);
    assert_non_null(strstr(trp_last_error(), "has 32 parameters, the policy's network has 64"));
    keeper = keeper_of(32, "critic.weight", actor);
    assert_int_equal(trp_params_load(path, &keeper.base, NULL), TRP_FAILED_PRECONDITION);
    assert_non_null(strstr(trp_last_error(), "has actor.weight [3][5] at 0 () where the policy's "
                                             "network has critic.weight"));
    keeper = keeper_of(32, "actor.weight", actor);
    keeper.base.tensor_count = 1;
    assert_int_equal(trp_params_load(path, &keeper.base, NULL), TRP_FAILED_PRECONDITION);
    assert_non_null(strstr(trp_last_error(), "has actor.bias [3] at 16 () where the policy's "
                                             "network has no more tensor"));
    free(path);
}

static void a_file_that_publishes_what_it_does_not_have_is_damaged(void **state)
{
    const struct fixture *fixture = *state;
    static const char *const notes[] = {
        "16", "x", "16 49", "65 0", "-1 2", "18446744073709551615 18446744073709551615"};
    float params[COUNT] = {0};
    const trp_checkpoint_tensor flat = {
        .name = "params", .type = TRP_CHECKPOINT_F32, .rank = 1, .shape = {COUNT}, .data = params};
    char *path = xasprintf("%s/file", fixture->dir);
    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++) {
        const trp_checkpoint_note note = {"published", notes[i]};
        assert_int_equal(trp_checkpoint_write(path, &flat, 1, &note, 1), TRP_OK);
        struct keeper keeper = {.base.impl = &keeper_impl};
        assert_int_equal(trp_params_load(path, &keeper.base, NULL), TRP_DATA_LOSS);
        assert_non_null(strstr(trp_last_error(), notes[i]));
    }
    free(path);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    trp_log_set_level(TRP_ERROR);
    static const struct CMUnitTest tests[] = {
        TEST(parts_that_cannot_be_published_are_refused_by_name),
        TEST(what_is_pulled_is_the_part_also_after_a_resume),
        TEST(a_checkpoint_of_another_part_is_refused_by_name),
        TEST(a_checkpoint_gives_a_policy_the_part_or_says_why_not),
        TEST(a_file_that_publishes_what_it_does_not_have_is_damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
