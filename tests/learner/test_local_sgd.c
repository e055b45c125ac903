/* Learners that step by themselves and go on from their mean, by the rule: in double, one after the
 * other, from the same batches. */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/learner/group_fixture.h"

static const trp_optimizer sgd = {.kind = TRP_SGD, .learning_rate = 1};

/* What a member has at number `i` after so many steps, by the rule. `batches`: how many each makes.
 */
static double by_the_rule(const struct plan *plan, size_t i, const uint64_t *batches)
{
    double x[MEMBERS_MAX], last = (double)(i * 5 % 11) - 5, average = 0;
    uint32_t made[MEMBERS_MAX] = {0};
    for (uint32_t member = 0; member < plan->members; member++)
        x[member] = last;
    for (uint64_t step = 1; step <= plan->steps; step++) {
        double sum = 0, all = 0;
        for (uint32_t member = 0; member < plan->members; member++) {
            if (step > batches[member])
                continue;
            double gradient = 0;
            for (uint32_t row = 0; row < ROWS; row++) {
                uint64_t number = ((step - 1) * plan->members + member) * ROWS + row;
                gradient += (double)gradient_of(plan, (float)number, i);
            }
            x[member] -= (double)plan->optimizer.learning_rate * gradient / ROWS;
            made[member]++;
        }
        if (step % plan->local_steps != 0)
            continue;
        for (uint32_t member = 0; member < plan->members; member++) {
            sum += made[member] * x[member];
            all += made[member];
        }
        average = (double)plan->outer_momentum * average + last - sum / all;
        last -= average;
        for (uint32_t member = 0; member < plan->members; member++) {
            x[member] = last;
            made[member] = 0;
        }
    }
    return last;
}

static void check_rule(const struct plan *plan, const uint64_t *batches, double tolerance)
{
    struct run *run = run_all(plan);
    for (uint32_t member = 0; member < plan->members; member++) {
        assert_int_equal(run->members[member].status, TRP_OK);
        assert_int_equal(run->members[member].counters.steps, plan->steps);
        for (size_t i = 0; i < NUMBERS; i++)
            assert_float_equal(run->members[member].params[i], by_the_rule(plan, i, batches),
                               tolerance);
        assert_memory_equal(run->members[member].params, run->members[0].params,
                            NUMBERS * sizeof(float));
    }
    run_free(run);
}

static const uint64_t all_of_them[MEMBERS_MAX] = {STEPS_MAX, STEPS_MAX, STEPS_MAX, STEPS_MAX};

/* Stich 2019: sums of quarters are exact, so this is to the bit with a power of two of members. */
static void learners_go_on_from_their_mean(void **state)
{
    (void)state;
    for (uint32_t members = 1; members <= 4; members++)
        for (uint32_t every = 1; every <= 4; every++)
            check_rule(&(struct plan){.members = members,
                                      .steps = 3 * every,
                                      .optimizer = sgd,
                                      .mode = "local_sgd",
                                      .local_steps = every},
                       all_of_them, members == 3 ? 1e-4 : 0);
}

/* With a mean after every step it is the synchronous step. */
static void a_mean_after_every_step_is_the_synchronous_step(void **state)
{
    (void)state;
    struct plan plan = {.members = 4, .steps = 6, .optimizer = sgd};
    struct run *synchronous = run_all(&plan);
    plan.mode = "local_sgd";
    plan.local_steps = 1;
    struct run *local = run_all(&plan);
    assert_memory_equal(local->members[2].params, synchronous->members[0].params,
                        NUMBERS * sizeof(float));
    run_free(local);
    run_free(synchronous);
}

static void slow_momentum_moves_the_mean(void **state)
{
    (void)state;
    for (uint32_t every = 1; every <= 3; every++)
        check_rule(&(struct plan){.members = 3,
                                  .steps = 4 * every,
                                  .optimizer = {.kind = TRP_SGD, .learning_rate = 0.125},
                                  .mode = "local_sgd",
                                  .local_steps = every,
                                  .outer_momentum = 0.5F},
                   all_of_them, 1e-4);
}

/* One whose batches have ended counts for nothing, and has what the others learn. */
static void who_has_no_batch_counts_for_nothing(void **state)
{
    (void)state;
    const uint64_t batches[MEMBERS_MAX] = {STEPS_MAX, 3, STEPS_MAX};
    check_rule(&(struct plan){.members = 3,
                              .steps = 9,
                              .optimizer = sgd,
                              .mode = "local_sgd",
                              .local_steps = 3,
                              .ends_at = {[1] = 4}},
               batches, 1e-4);
}

/* The steps since the last mean are lost with it, and the others go on together. */
static void who_is_lost_costs_the_steps_since_the_last_mean(void **state)
{
    (void)state;
    for (enum moment place = AT_BATCH; place <= AT_THE_END; place++) {
        struct plan plan = {.members = 3,
                            .steps = 12,
                            .optimizer = sgd,
                            .second = true,
                            .mode = "local_sgd",
                            .local_steps = 3,
                            .dies = {.member = 1, .step = 5, .place = place}};
        struct run *run = run_all(&plan);
        assert_true(run->members[1].status != TRP_OK);
        for (uint32_t member = 0; member < 3; member += 2) {
            assert_int_equal(run->members[member].status, TRP_OK);
            assert_int_equal(run->members[member].counters.steps, 12);
        }
        assert_memory_equal(run->members[0].params, run->members[2].params,
                            NUMBERS * sizeof(float));
        assert_memory_equal(run->members[0].target, run->members[2].target,
                            NUMBERS * sizeof(float));
        run_free(run);
    }
}

/* Nobody is lost, but the steps since the last mean: all make them again, whoever was in the mean
 * already. */
static void a_generation_that_breaks_leaves_no_trace(void **state)
{
    (void)state;
    for (enum moment place = BEFORE_READY; place <= AT_THE_END; place++)
        for (uint32_t step = 5; step <= 6; step++) {
            struct plan plan = {.members = 4,
                                .steps = 12,
                                .optimizer = sgd,
                                .second = true,
                                .constant = true,
                                .mode = "local_sgd",
                                .local_steps = 3};
            struct run *smooth = run_all(&plan);
            plan.breaks.member = step % 4;
            plan.breaks.step = step;
            plan.breaks.place = place;
            struct run *run = run_all(&plan);
            assert_true(run->members[step % 4].has_broken);
            check_all(run, &smooth->members[0]);
            run_free(run);
            run_free(smooth);
        }
}

/* Between two means nothing is sent: an allreduce of the vector, and what is said before it. */
static void a_mean_is_all_that_is_sent(void **state)
{
    (void)state;
    struct plan plan = {
        .members = 2, .steps = 16, .optimizer = sgd, .mode = "local_sgd", .local_steps = 8};
    struct run *run = run_all(&plan);
    const trp_collective_counters *sent = run->members[0].sent;
    assert_int_equal(sent[1].bytes_sent, sent[8].bytes_sent); /* as each step ended */
    assert_int_equal(sent[9].bytes_sent, sent[16].bytes_sent);
    /* Of 2 ranks each sends half of the vector twice, in ranges that begin at 32 numbers, and its
     * words. */
    uint64_t mean = sent[9].bytes_sent - sent[8].bytes_sent;
    assert_in_range(mean, NUMBERS * sizeof(float), NUMBERS * sizeof(float) + 256);
    run_free(run);
}

/* Ways that are sent whole are as good as values: quarters and eighths of integers are exact. */
static void ways_that_are_sent_whole_make_the_mean(void **state)
{
    (void)state;
    for (uint32_t members = 1; members <= 4; members++)
        for (uint32_t slow = 0; slow < 2; slow++)
            check_rule(&(struct plan){.members = members,
                                      .steps = 9,
                                      .optimizer = {.kind = TRP_SGD, .learning_rate = 0.125},
                                      .mode = "local_sgd",
                                      .local_steps = 3,
                                      .outer_momentum = slow ? 0.5F : 0,
                                      .compression = {.kind = "top-k", .ratio = 1}},
                       all_of_them, 1e-4);
}

/* Qsparse-local-SGD (Basu et al. 2019): what a code has not got goes to the next mean, so that
 * gradients that do not depend on where a learner is end where they would without a code, but for
 * what is still to be sent. All have the same bits. */
static void what_a_mean_has_not_got_the_next_one_has(void **state)
{
    static const trp_compression_options codes[] = {
        {.kind = "bf16"}, {.kind = "f16"}, {.kind = "one-bit"}, {.kind = "top-k", .ratio = 0.25}};
    (void)state;
    for (size_t k = 0; k < sizeof codes / sizeof *codes; k++) {
        struct plan plan = {.members = 2,
                            .steps = 16,
                            .optimizer = {.kind = TRP_SGD, .learning_rate = 0.125},
                            .mode = "local_sgd",
                            .local_steps = 2,
                            .constant = true};
        struct run *plain = run_all(&plan);
        plan.compression = codes[k];
        struct run *run = run_all(&plan);
        double away = 0, way = 0;
        for (size_t i = 0; i < NUMBERS; i++) {
            double first = (double)(i * 5 % 11) - 5, end = (double)plain->members[0].params[i];
            away += fabs(end - (double)run->members[0].params[i]);
            way += fabs(end - first);
        }
        assert_true(away < way / 4); /* of eight means one may be missing */
        assert_memory_equal(run->members[0].params, run->members[1].params,
                            NUMBERS * sizeof(float));
        assert_true(run->members[0].sent[16].bytes_sent < plain->members[0].sent[16].bytes_sent);
        run_free(plain);
        run_free(run);
    }
}

/* The vector in the checkpoint of a step. */
static void read_checkpoint(const char *dir, uint64_t steps, float params[NUMBERS])
{
    uint64_t saved;
    trp_checkpoint *checkpoint;
    char *path = xasprintf("%s/learner-%020" PRIu64 ".safetensors", dir, steps);
    if (trp_checkpoint_read(&checkpoint, path) != TRP_OK)
        fail_msg("%s", trp_last_error());
    assert_int_equal(trp_checkpoint_get(checkpoint, "learner.steps", TRP_CHECKPOINT_U64, 1, &saved),
                     TRP_OK);
    assert_int_equal(saved, steps);
    assert_int_equal(trp_checkpoint_get(checkpoint, "params", TRP_CHECKPOINT_F32, NUMBERS, params),
                     TRP_OK);
    trp_checkpoint_destroy(checkpoint);
    free(path);
}

/* Due in the middle of a period: of all, once they have met in the mean. */
static void a_checkpoint_has_the_mean_of_local_sgd(void **state)
{
    (void)state;
    char dir[] = "/tmp/test_local_sgd.XXXXXX";
    assert_non_null(mkdtemp(dir));
    struct plan plan = {.members = 2,
                        .steps = 16,
                        .optimizer = sgd,
                        .mode = "local_sgd",
                        .local_steps = 4,
                        .checkpoints = dir,
                        .checkpoint_every = 6};
    struct run *run = run_all(&plan);
    assert_int_equal(run->members[0].status, TRP_OK);
    assert_int_equal(run->members[0].counters.checkpoints, 3); /* and one at the end */
    for (plan.steps = 8; plan.steps <= 16; plan.steps += 8) {
        float params[NUMBERS];
        read_checkpoint(dir, plan.steps, params);
        for (size_t i = 0; i < NUMBERS; i++)
            assert_float_equal(params[i], by_the_rule(&plan, i, all_of_them), 0);
    }
    run_free(run);
    char *command = xasprintf("rm -rf %s", dir);
    assert_int_equal(system(command), 0);
    free(command);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(learners_go_on_from_their_mean),
        cmocka_unit_test(a_mean_after_every_step_is_the_synchronous_step),
        cmocka_unit_test(slow_momentum_moves_the_mean),
        cmocka_unit_test(who_has_no_batch_counts_for_nothing),
        cmocka_unit_test(who_is_lost_costs_the_steps_since_the_last_mean),
        cmocka_unit_test(a_generation_that_breaks_leaves_no_trace),
        cmocka_unit_test(a_mean_is_all_that_is_sent),
        cmocka_unit_test(ways_that_are_sent_whole_make_the_mean),
        cmocka_unit_test(what_a_mean_has_not_got_the_next_one_has),
        cmocka_unit_test(a_checkpoint_has_the_mean_of_local_sgd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
