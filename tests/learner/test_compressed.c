/* Learners whose gradients go compressed. Of a gradient that is sent whole, whatever its way, a
 * group makes to the bit the steps of one learner; so weights, losses of members, and what is not
 * finite are as without. */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "learner/modes/mode.h"
#include "tests/learner/group_fixture.h"
#include "tests/nn/late_device.h"

static const trp_optimizer adam = {.kind = TRP_ADAM, .learning_rate = 0.125};
static const trp_compression_options whole = {.kind = "top-k", .ratio = 1};

static void check_is_alone(const struct plan *plan)
{
    struct run *group = run_all(plan), *alone = run_alone(plan);
    check_all(group, &alone->members[0]);
    run_free(group);
    run_free(alone);
}

static void a_group_that_sends_everything_is_one_learner(void **state)
{
    (void)state;
    for (uint32_t members = 1; members <= 4; members++)
        check_is_alone(&(struct plan){.members = members,
                                      .steps = 6,
                                      .compression = whole,
                                      .optimizer = adam,
                                      .second = true,
                                      .shuffled = true,
                                      .bucket_bytes = 512});
}

static uint32_t few_of_one(uint32_t member, uint64_t step)
{
    return member == 1 && step % 2 == 0 ? 2 : ROWS;
}

/* Rows weigh as without compression, to the bit. */
static void few_rows_count_less(void **state)
{
    (void)state;
    struct plan plan = {.members = 3, .steps = 6, .optimizer = adam, .rows_of = few_of_one};
    plan.ends_at[2] = 4;
    struct run *plain = run_all(&plan);
    plan.compression = whole;
    struct run *compressed = run_all(&plan);
    check_all(compressed, &plain->members[0]);
    run_free(plain);
    run_free(compressed);
}

static void all_members_step_alike_with_each_compressor(void **state)
{
    (void)state;
    check_compressors("synchronous");
}

static void a_generation_that_breaks_leaves_no_trace(void **state)
{
    (void)state;
    for (enum moment place = BEFORE_READY; place <= AT_THE_END; place++) {
        struct plan plan = {.members = 3,
                            .steps = 8,
                            .compression = whole,
                            .optimizer = adam,
                            .second = true,
                            .constant = true,
                            .bucket_bytes = 512,
                            .breaks = {.member = 1, .step = 4, .place = place}};
        check_is_alone(&plan);
    }
}

/* Nothing is sent twice, also where one has finished the step and the other not: with half of the
 * numbers sent, and momentum, a run that breaks is to the bit the one that does not. */
static void rests_are_as_before_the_step_that_is_tried_again(void **state)
{
    (void)state;
    struct plan plan = {.members = 2,
                        .steps = 8,
                        .optimizer = {.kind = TRP_SGD, .learning_rate = 0.0625},
                        .compression = {.kind = "top-k", .ratio = 0.5, .momentum = 0.5},
                        .constant = true};
    struct run *smooth = run_all(&plan);
    for (uint32_t i = 0; i < 40; i++) {
        const enum moment place = i % 2 == 0 ? AT_THE_END : BEFORE_READY + i / 2 % 2;
        plan.breaks.member = 1;
        plan.breaks.step = 4;
        plan.breaks.place = place;
        struct run *broken = run_all(&plan);
        check_all(broken, &smooth->members[0]);
        run_free(broken);
    }
    run_free(smooth);
}

static void a_number_that_is_not_finite_stays_in_nobodys_rest(void **state)
{
    (void)state;
    for (size_t i = 0; i < COMPRESSION_KINDS; i++) {
        struct plan plan = {.members = 2,
                            .steps = 8,
                            .optimizer = adam,
                            .compression = {.kind = compression_kinds[i], .ratio = 0.1},
                            .odd = {.member = 1, .step = 3}};
        struct run *run = run_all(&plan);
        for (uint32_t member = 0; member < 2; member++) {
            assert_int_not_equal(run->members[member].status, TRP_OK);
            assert_non_null(strstr(run->members[member].words, "number 7 of 1000 is nan"));
        }
        run_free(run);
        plan.optimizer.skip_not_finite = true;
        run = run_all(&plan);
        check_all(run, &run->members[0]);
        assert_int_equal(run->members[0].counters.left_out, 1);
        for (size_t k = 0; k < NUMBERS; k++)
            assert_true(isfinite(run->members[0].params[k]));
        run_free(run);
    }
}

/* The mean of a member's rows in the first step. */
static double first_gradient(const struct plan *plan, uint32_t member, size_t i)
{
    double sum = 0;
    for (uint32_t row = 0; row < ROWS; row++)
        sum += (double)gradient_of(plan, (float)(member * ROWS + row), i);
    return sum / ROWS;
}

/* Of a mean of two parts each is cut to 1 / sqrt(2) of the norm, and then the mean to all of it
 * (Lin et al. 2018, 3.2). */
static void dgc_cuts_each_members_part_before_it_is_chosen_from(void **state)
{
    (void)state;
    struct plan plan = {.members = 2,
                        .steps = 1,
                        .compression = whole,
                        .optimizer = {.kind = TRP_SGD, .learning_rate = 1, .max_norm = 8}};
    struct run *run = run_all(&plan);
    check_all(run, &run->members[0]);
    double parts[2] = {0}, all = 0;
    for (size_t i = 0; i < NUMBERS; i++)
        for (uint32_t k = 0; k < 2; k++)
            parts[k] += pow(first_gradient(&plan, k, i) / 2, 2);
    double scale[2] = {8 / sqrt(2) / sqrt(parts[0]), 8 / sqrt(2) / sqrt(parts[1])};
    assert_true(scale[0] < 1 && scale[1] < 1 && fabs(scale[0] / scale[1] - 1) > 0.001);
    double mean[NUMBERS];
    for (size_t i = 0; i < NUMBERS; i++) {
        mean[i] =
            (scale[0] * first_gradient(&plan, 0, i) + scale[1] * first_gradient(&plan, 1, i)) / 2;
        all += mean[i] * mean[i];
    }
    double cut = sqrt(all) > 8 ? 8 / sqrt(all) : 1;
    for (size_t i = 0; i < NUMBERS; i++) {
        double moved = (double)(i * 5 % 11) - 5 - (double)run->members[0].params[i];
        assert_true(fabs(moved - cut * mean[i]) < 1e-5);
    }
    run_free(run);
}

/* A flag's exchange, the head's, and the two of the sum. */
static void a_step_sends_as_many_bytes_as_the_formula_says(void **state)
{
    (void)state;
    struct plan plan = {
        .members = 2, .steps = 4, .optimizer = adam, .compression = {.kind = "one-bit"}};
    struct run *run = run_all(&plan);
    check_all(run, &run->members[0]);
    const struct member *member = &run->members[0];
    /* Runs of 512 and 488 numbers: 8 bytes and a bit for each, in blocks of whole 128 bytes. */
    assert_int_equal(member->sent[3].bytes_sent - member->sent[2].bytes_sent,
                     2 * 32 + 64 + 2 * 128);
    run_free(run);
}

/* A checkpoint in the middle is a mean of all for some. */
static struct run *run_and_save(struct plan *plan)
{
    char dir[] = "/tmp/test_compressed.XXXXXX";
    assert_non_null(mkdtemp(dir));
    plan->checkpoints = dir;
    plan->checkpoint_every = 3;
    struct run *run = run_all(plan);
    char *command = xasprintf("rm -rf %s", dir);
    assert_int_equal(system(command), 0);
    free(command);
    return run;
}

static void a_device_has_what_it_sends_compressed_on_the_host(void **state)
{
    (void)state;
    const char *const modes[] = {"synchronous", "sharded", "local_sgd", "gossip"};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        struct plan plan = {.members = 2,
                            .steps = 10,
                            .optimizer = adam,
                            .mode = modes[i],
                            .local_steps = i == 2 ? 2 : 0,
                            .second = true,
                            .compression = {.kind = "top-k", .ratio = 0.25}};
        struct run *host = run_and_save(&plan);
        struct late_device *late = late_create(1);
        plan.device[1] = &late->base;
        struct run *mixed = run_and_save(&plan);
        for (uint32_t member = 0; member < 2; member++) {
            if (mixed->members[member].status != TRP_OK)
                fail_msg("%s: %s", modes[i], mixed->members[member].words);
            check_same(&mixed->members[member], &host->members[member]);
        }
        run_free(host);
        run_free(mixed);
        late_destroy(late);
    }
}

static void members_must_compress_alike(void **state)
{
    (void)state;
    trp_gang *gang =
        trp_gang_create(&(trp_gang_options){.name = "learner", .count = 2, .least = 2});
    struct plan plans[2] = {{.members = 2, .steps = 2, .optimizer = adam, .compression = whole},
                            {.members = 2, .steps = 2, .optimizer = adam, .compression = whole}};
    struct member members[2];
    uint32_t refused = 0;
    plans[1].compression.momentum = 0.5; /* nobody's operations tell */
    for (uint32_t i = 0; i < 2; i++) {
        members[i] =
            (struct member){.plan = &plans[i], .index = i, .gang = gang, .stop = trp_stop_create()};
        assert_int_equal(thread_start(&members[i].thread, "member", member_run, &members[i]),
                         TRP_OK);
    }
    for (uint32_t i = 0; i < 2; i++) {
        thread_stop(&members[i].thread);
        assert_int_not_equal(members[i].status, TRP_OK); /* the other one may be gone already */
        refused += members[i].status == TRP_FAILED_PRECONDITION;
        trp_stop_destroy(members[i].stop);
        member_free(&members[i]);
    }
    assert_true(refused > 0);
    trp_gang_destroy(gang);
}

static void other_modes_refuse_it_by_name(void **state)
{
    (void)state;
    const char *const modes[] = {"server", "hogwild"};
    struct vectors vectors = {.is_host = true};
    for (size_t i = 0; i < 2; i++) {
        struct mode *mode;
        struct mode_options options = {.name = modes[i], .compress.kind = COMPRESS_POWERSGD};
        assert_int_equal(mode_create(&mode, &vectors, &options), TRP_INVALID_ARGUMENT);
        assert_non_null(strstr(trp_last_error(), "powersgd"));
        assert_non_null(strstr(trp_last_error(), modes[i]));
    }
}

/* A mean of signs is no 0: it would move means of a dataset that lie in one run with weights. */
static void numbers_that_stay_are_refused_to_signs_alone(void **state)
{
    (void)state;
    trp_vector_spec spec = {
        .name = "params", .count = 8, .learned = true, .optimizer = adam, .fixed_count = 3};
    struct vectors vectors = {.is_host = true, .count = 1};
    vectors.each[0].spec = &spec;
    for (enum compression kind = COMPRESS_NONE; kind < COMPRESSIONS; kind++) {
        struct mode *mode;
        struct mode_options options = {.name = "synchronous", .compress.kind = kind};
        bool moves = kind == COMPRESS_ONE_BIT;
        assert_int_equal(mode_create(&mode, &vectors, &options),
                         moves ? TRP_INVALID_ARGUMENT : TRP_OK);
        if (moves)
            assert_non_null(strstr(trp_last_error(), "'params': compression is one-bit"));
        else
            mode->impl->destroy(mode);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_group_that_sends_everything_is_one_learner),
        cmocka_unit_test(few_rows_count_less),
        cmocka_unit_test(all_members_step_alike_with_each_compressor),
        cmocka_unit_test(a_generation_that_breaks_leaves_no_trace),
        cmocka_unit_test(rests_are_as_before_the_step_that_is_tried_again),
        cmocka_unit_test(a_number_that_is_not_finite_stays_in_nobodys_rest),
        cmocka_unit_test(dgc_cuts_each_members_part_before_it_is_chosen_from),
        cmocka_unit_test(a_step_sends_as_many_bytes_as_the_formula_says),
        cmocka_unit_test(a_device_has_what_it_sends_compressed_on_the_host),
        cmocka_unit_test(members_must_compress_alike),
        cmocka_unit_test(other_modes_refuse_it_by_name),
        cmocka_unit_test(numbers_that_stay_are_refused_to_signs_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
