/* Optimizer state that is shared out: to the bit the steps of learners that each have all of it,
 * with as much memory and as many bytes as the formulas say. */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/learner/group_fixture.h"

/* Rows of thirds: no sum is exact, so that its order shows. */
static const trp_optimizer rules[] = {
    {.kind = TRP_ADAM, .learning_rate = 0.01, .max_norm = 0.3},
    {.kind = TRP_ADAMW, .learning_rate = 0.01, .weight_decay = 0.1},
    {.kind = TRP_SGD, .learning_rate = 0.01, .momentum = 0.9, .max_norm = 0.1},
    {.kind = TRP_RMSPROP, .learning_rate = 0.01, .centered = true, .momentum = 0.5},
};

static void the_steps_are_those_of_whole_state(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        for (uint32_t members = 1; members <= 4; members++) {
            struct plan plan = {.members = members,
                                .steps = 6,
                                .rows = 3,
                                .optimizer = rules[i],
                                .second = true,
                                .shuffled = true,
                                .bucket_bytes = 192 + 512 * i};
            struct run *whole = run_all(&plan);
            plan.mode = "sharded";
            struct run *sharded = run_all(&plan);
            check_all(whole, &whole->members[0]);
            check_all(sharded, &whole->members[0]);
            run_free(whole);
            run_free(sharded);
        }
}

/* A rank has the state of its range of each bucket: together they have it once. */
static void each_has_a_part_of_the_state(void **state)
{
    (void)state;
    struct plan plan = {
        .members = 4, .steps = 2, .optimizer = rules[0], .mode = "sharded", .columns = 1 << 16};
    struct run *run = run_all(&plan);
    size_t numbers = 0;
    for (uint32_t i = 0; i < 4; i++) {
        numbers += run->members[i].state_numbers;
        assert_in_range(run->members[i].state_numbers, (1 << 14) - 128, (1 << 14) + 128);
    }
    assert_int_equal(numbers, 1 << 16);
    run_free(run);
}

static void layerwise_optimizers_are_refused(void **state)
{
    (void)state;
    trp_net_tensor tensor = {.name = "all", .count = 32};
    trp_vector_spec spec = {.name = "params",
                            .count = 32,
                            .learned = true,
                            .optimizer = {.kind = TRP_LAMB},
                            .tensors = &tensor,
                            .tensor_count = 1};
    trp_updater_impl impl = {0};
    trp_updater updater = {.impl = &impl, .vector_count = 1, .vectors = {spec}};
    trp_gang *gang = trp_gang_create(&(trp_gang_options){.name = "learner", .count = 1});
    struct trp_update_run run;
    const struct mode_options options = {
        .name = "sharded", .bucket_bytes = 64, .group = {.rendezvous = trp_gang_member(gang, 0)}};
    assert_int_equal(update_prepare(&run, &updater, 1), TRP_OK);
    assert_int_equal(update_use_mode(&run, &options), TRP_INVALID_ARGUMENT);
    assert_non_null(
        strstr(trp_last_error(), "learner: 'params': the optimizer lamb steps whole tensors"));
    update_cleanup(&run);
    trp_gang_destroy(gang);
}

/* ---- compressed --------------------------------------------------------------------------------
 */

/* Gradients whose sums are exact, sent whole: to the bit one learner's steps. */
static void compressed_whole_the_steps_are_one_learners(void **state)
{
    (void)state;
    for (uint32_t members = 1; members <= 4; members++) {
        struct plan plan = {.members = members,
                            .steps = 6,
                            .optimizer = {.kind = TRP_ADAM, .learning_rate = 0.125},
                            .second = true,
                            .shuffled = true,
                            .mode = "sharded",
                            .compression = {.kind = "top-k", .ratio = 1},
                            .bucket_bytes = 512};
        struct run *run = run_all(&plan), *alone = run_alone(&plan);
        check_all(run, &alone->members[0]);
        run_free(run);
        run_free(alone);
    }
}

static void members_step_alike_with_each_compressor(void **state)
{
    (void)state;
    check_compressors("sharded");
}

/* Flags, the head, the codes of one range, parts of the norm, and half of the vector. */
static void codes_go_one_way_and_parameters_whole(void **state)
{
    (void)state;
    struct plan plan = {.members = 2,
                        .steps = 4,
                        .optimizer = rules[0],
                        .mode = "sharded",
                        .columns = 1 << 15,
                        .compression = {.kind = "bf16"}};
    struct run *run = run_all(&plan);
    uint64_t bytes = 0, codes = 2 * (1 << 14), values = 4 * (1 << 14);
    for (uint32_t i = 0; i < 2; i++)
        bytes += run->members[i].sent[3].bytes_sent - run->members[i].sent[2].bytes_sent;
    assert_in_range(bytes, 2 * (codes + values), 2 * (codes + values) + 1024);
    run_free(run);
}

/* ---- checkpoints -------------------------------------------------------------------------------
 */

static int setup(void **state)
{
    char *dir = xstrdup("/tmp/test_sharded.XXXXXX");
    assert_non_null(mkdtemp(dir));
    *state = dir;
    return 0;
}

static int teardown(void **state)
{
    char *command = xasprintf("rm -rf %s", (char *)*state);
    assert_int_equal(system(command), 0);
    free(command);
    free(*state);
    return 0;
}

/* 4 steps by so many, the others by so many: rows are integers, so who makes them does not show. */
static void checkpoints_are_of_any_number_of_learners(void **state)
{
    const struct {
        uint32_t first, then;
        const char *first_mode, *then_mode;
    } rows[] = {{2, 4, "sharded", "sharded"},
                {4, 2, "sharded", "synchronous"},
                {2, 0, "sharded", NULL},
                {0, 3, NULL, "sharded"},
                {3, 2, "synchronous", "sharded"}};
    struct plan plan = {
        .steps = 8, .optimizer = rules[0], .second = true, .constant = true, .bucket_bytes = 512};
    plan.members = 1;
    struct run *alone = run_alone(&plan);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *dir = xasprintf("%s/%zu", (char *)*state, i);
        plan.checkpoints = dir;
        plan.steps = 4;
        plan.resume = false;
        plan.members = rows[i].first;
        plan.mode = rows[i].first_mode;
        struct run *first = run_all(&plan);
        assert_int_equal(first->members[0].status, TRP_OK);
        plan.steps = 8;
        plan.resume = true;
        plan.members = rows[i].then;
        plan.mode = rows[i].then_mode;
        struct run *then = run_all(&plan);
        then->plan.members = rows[i].then ? rows[i].then : 1;
        check_all(then, &alone->members[0]);
        for (uint32_t k = 0; k < then->plan.members; k++) {
            assert_int_equal(then->members[k].counters.resumed_from, 4);
            assert_int_equal(then->members[k].counters.checkpoints, k == 0);
        }
        run_free(first);
        run_free(then);
        free(dir);
    }
    run_free(alone);
}

/* What the lost one had of the state is only in the checkpoint. */
static void a_loss_goes_back_to_the_checkpoint(void **state)
{
    struct plan plan = {.members = 3,
                        .steps = 9,
                        .optimizer = rules[0],
                        .second = true,
                        .constant = true,
                        .mode = "sharded",
                        .checkpoints = *state,
                        .checkpoint_every = 3,
                        .dies = {.member = 2, .step = 5, .place = BETWEEN}};
    struct run *run = run_all(&plan), *alone = run_alone(&plan);
    for (uint32_t i = 0; i < 2; i++) {
        if (run->members[i].status != TRP_OK)
            fail_msg("member %u: %s", i, run->members[i].words);
        assert_int_equal(run->members[i].counters.steps, 9);
        assert_int_equal(run->members[i].counted, 9);
        assert_int_equal(run->members[i].seen[4], i == 0 ? 3 : 2); /* again, with more batches */
        check_same(&run->members[i], &alone->members[0]);
    }
    run_free(run);
    plan.checkpoints = NULL;
    run = run_all(&plan);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_not_equal(run->members[i].status, TRP_OK);
    assert_non_null(strstr(run->members[0].words, "there is no checkpoint to go back to"));
    run_free(run);
    run_free(alone);
}

/* What was not sent of steps that never were is of no step: a group that goes back has the bits of
 * one that was begun there. */
static void a_group_that_goes_back_has_nothing_unsent(void **state)
{
    struct plan plan = {.members = 2,
                        .steps = 9,
                        .optimizer = {.kind = TRP_SGD, .learning_rate = 0.0625},
                        .constant = true,
                        .mode = "sharded",
                        .compression = {.kind = "top-k", .ratio = 0.5},
                        .checkpoints = *state,
                        .checkpoint_every = 3,
                        .breaks = {.member = 1, .step = 5, .place = AFTER_READY}};
    struct run *broken = run_all(&plan);
    check_all(broken, &broken->members[0]);
    char *dir = xasprintf("%s/again", (char *)*state);
    plan.checkpoints = dir;
    plan.breaks.step = 0;
    plan.steps = 3;
    struct run *first = run_all(&plan);
    assert_int_equal(first->members[0].status, TRP_OK);
    plan.steps = 9;
    plan.resume = true;
    struct run *then = run_all(&plan);
    check_all(then, &then->members[0]);
    check_same(&broken->members[0], &then->members[0]);
    run_free(broken);
    run_free(first);
    run_free(then);
    free(dir);
}

/* Its checkpoint has the state that all began with. */
static void who_meets_nobody_ends_well(void **state)
{
    struct plan plan = {
        .members = 2, .steps = 9, .optimizer = rules[0], .mode = "sharded", .checkpoints = *state};
    struct run *run = xcalloc(1, sizeof *run);
    run->plan = plan;
    run->gang = trp_gang_create(&(trp_gang_options){.name = "learner", .count = plan.members});
    run->stops[0] = trp_stop_create();
    trp_stop_request(run->stops[0]);
    member_start(run, 0, 0);
    member_join(run, 0);
    if (run->members[0].status != TRP_OK)
        fail_msg("%s", run->members[0].words);
    assert_int_equal(run->members[0].counters.steps, 0);
    run_free(run);
}

/* Nobody is lost, so nothing is. */
static void a_new_member_gets_a_part_of_the_state(void **state)
{
    (void)state;
    struct plan plan = {.members = 3,
                        .steps = 60,
                        .optimizer = rules[0],
                        .second = true,
                        .constant = true,
                        .mode = "sharded",
                        .checkpoints = *state,
                        .checkpoint_every = 3,
                        .dies = {.member = 1, .step = 5, .place = BETWEEN}};
    plan.joined = trp_stop_create();
    struct run *run = run_start(&plan), *alone = run_alone(&plan);
    member_join(run, 1);
    member_free(&run->members[1]);
    trp_gang_expect(run->gang, 1);
    member_start(run, 1, 1);
    for (uint32_t i = 0; i < 3; i++)
        member_join(run, i);
    check_all(run, &alone->members[0]);
    run_free(run);
    run_free(alone);
    trp_stop_destroy(plan.joined);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_steps_are_those_of_whole_state),
        cmocka_unit_test(each_has_a_part_of_the_state),
        cmocka_unit_test(layerwise_optimizers_are_refused),
        cmocka_unit_test(compressed_whole_the_steps_are_one_learners),
        cmocka_unit_test(members_step_alike_with_each_compressor),
        cmocka_unit_test(codes_go_one_way_and_parameters_whole),
        cmocka_unit_test_setup_teardown(a_group_that_goes_back_has_nothing_unsent, setup, teardown),
        cmocka_unit_test_setup_teardown(checkpoints_are_of_any_number_of_learners, setup, teardown),
        cmocka_unit_test_setup_teardown(a_loss_goes_back_to_the_checkpoint, setup, teardown),
        cmocka_unit_test_setup_teardown(who_meets_nobody_ends_well, setup, teardown),
        cmocka_unit_test_setup_teardown(a_new_member_gets_a_part_of_the_state, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
