/* Learners of several sites together, by Gaia's rule: whole ones, in threads of this process. */
#include <math.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/log.h>
#include "learner/modes/gaia_sites.h"
#include "tests/core/captured.h"
#include "tests/core/patience.h"
#include "tests/learner/group_fixture.h"

static const trp_optimizer sgd = {.kind = TRP_SGD, .learning_rate = 0.25};

/* Of a number in a step: gradient_of() is from -8 to 8. */
static const double LARGEST_MOVE = 2;

static struct run *run_gaia(uint32_t members, const char *sites, double significance,
                            uint32_t slack)
{
    const struct plan plan = {.members = members,
                              .steps = 12,
                              .optimizer = sgd,
                              .mode = "gaia",
                              .sites = sites,
                              .significance = significance,
                              .site_slack = slack};
    struct run *run = run_all(&plan);
    for (uint32_t member = 0; member < members; member++)
        if (run->members[member].status != TRP_OK)
            fail_msg("member %u: %s", member, run->members[member].words);
    return run;
}

/* All that moves is sent: sites make the mean of all learners after every step, as local SGD. */
static void learners_with_no_threshold_go_on_from_their_mean(void **state)
{
    static const struct {
        uint32_t members;
        const char *sites;
    } rows[] = {{1, "a"}, {2, "a,b"}, {2, "a,a"}, {4, "a,b,a,b"}, {4, "a,b,c,d"}};
    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        const struct plan plan = {.members = rows[k].members,
                                  .steps = 12,
                                  .optimizer = sgd,
                                  .mode = "local_sgd",
                                  .local_steps = 1};
        struct run *local = run_all(&plan);
        struct run *run = run_gaia(rows[k].members, rows[k].sites, 0, 0);
        for (uint32_t member = 0; member < rows[k].members; member++) {
            assert_int_equal(run->members[member].counters.steps, 12);
            for (size_t i = 0; i < NUMBERS; i++)
                assert_float_equal(run->members[member].params[i], local->members[0].params[i],
                                   1e-4);
        }
        run_free(local);
        run_free(run);
    }
}

/* What is unsent is little of the way. */
static void sites_that_compress_come_to_where_they_would_without(void **state)
{
    static const trp_compression_options kinds[] = {
        {.kind = "none"},    {.kind = "bf16"},
        {.kind = "f16"},     {.kind = "top-k", .ratio = 0.25},
        {.kind = "one-bit"}, {.kind = "qsgd", .bits = 8}};
    (void)state;
    struct plan plan = {.members = 2,
                        .steps = 40,
                        .optimizer = {.kind = TRP_SGD, .learning_rate = 0.0625},
                        .constant = true,
                        .mode = "gaia",
                        .columns = 4096,
                        .sites = "a,b"};
    struct run *alone = run_alone(&plan);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        plan.compression = kinds[k];
        struct run *run = run_all(&plan);
        double away = 0, way = 0;
        for (uint32_t member = 0; member < 2; member++) {
            if (run->members[member].status != TRP_OK)
                fail_msg("%s: %s", kinds[k].kind, run->members[member].words);
            for (size_t i = 0; i < 4096; i++) {
                double end = (double)alone->members[0].params[i];
                away += fabs(end - (double)run->members[member].params[i]) / 2;
                way += fabs(end - ((double)(i * 5 % 11) - 5)) / 2;
            }
        }
        assert_true(away < way / 8);
        run_free(run);
    }
    run_free(alone);
}

/* Members of one site have the same bits; sites that tell each other nothing have not. */
static void sites_that_tell_nothing_differ_and_their_members_do_not(void **state)
{
    (void)state;
    struct run *run = run_gaia(4, "a,b,a,b", 1e9, 0);
    for (uint32_t member = 0; member < 2; member++)
        assert_memory_equal(run->members[member].params, run->members[member + 2].params,
                            NUMBERS * sizeof(float));
    assert_memory_not_equal(run->members[0].params, run->members[1].params,
                            NUMBERS * sizeof(float));
    run_free(run);
}

enum { WATCHED = 7 }; /* the number whose beginnings and gradients members keep */

/* What site a, one learner, or b, which has two, begins a step with: all that it did itself, and
 * what the other one did `slack` steps before the last one, and before that. */
static double begins_by_the_rule(const struct run *run, bool is_b, uint64_t step, uint32_t slack)
{
    const struct member *members = run->members;
    double value = WATCHED * 5 % 11 - 5;
    for (uint64_t i = 1; i < step; i++) {
        double a = (double)members[0].gradients[i];
        double b = ((double)members[1].gradients[i] + (double)members[2].gradients[i]) / 2;
        value -= 0.25 / 2 * (is_b ? b : a);
        if (i + slack < step)
            value -= 0.25 / 2 * (is_b ? a : b);
    }
    return value;
}

/* In turns there are no barriers. */
static void slack_delays_what_other_sites_sent(void **state)
{
    (void)state;
    for (uint32_t slack = 0; slack < 6; slack++) {
        const struct plan plan = {.members = 3,
                                  .steps = 12,
                                  .optimizer = sgd,
                                  .mode = "gaia",
                                  .sites = "a,b,b",
                                  .site_slack = slack,
                                  .turns = true};
        struct run *run = run_all(&plan);
        for (uint32_t member = 0; member < 3; member++) {
            const struct member *each = &run->members[member];
            if (each->status != TRP_OK)
                fail_msg("member %u: %s", member, each->words);
            assert_int_equal(each->counters.steps, 12);
            for (uint64_t step = 1; step <= 12; step++)
                assert_float_equal(each->began_with[step],
                                   begins_by_the_rule(run, member > 0, step, slack), 1e-4);
        }
        assert_memory_equal(run->members[1].params, run->members[2].params,
                            NUMBERS * sizeof(float));
        run_free(run);
    }
}

/* What is on its way between sites when all leave is no failure: no step is undone and made again.
 * Long vectors, as each step's are on their way for a while. */
static void who_leaves_with_slack_breaks_nothing(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 4 * 3; i++) {
        const struct plan plan = {.members = 3,
                                  .steps = i % 2 == 0 ? 6 : STEPS_MAX,
                                  .columns = 100000,
                                  .optimizer = sgd,
                                  .mode = "gaia",
                                  .sites = "a,b,c",
                                  .site_slack = 1 + i % 3,
                                  .stops = {.member = i % 3, .step = i % 2 == 0 ? 0 : 3}};
        struct run *run = run_all(&plan);
        for (uint32_t member = 0; member < plan.members; member++) {
            const struct member *each = &run->members[member];
            if (each->status != TRP_OK)
                fail_msg("member %u: %s", member, each->words);
            assert_int_equal(each->counters.steps, run->members[0].counters.steps);
            /* Clocks count when they are decided about. Who is to stop may bring none. */
            assert_true(each->batches <= each->counters.steps + plan.site_slack / 2);
        }
        run_free(run);
    }
}

/* Its clocks are steps of all, so it ends at the same one. */
static void a_site_whose_batches_ended_ends_with_the_others(void **state)
{
    (void)state;
    for (uint32_t slack = 0; slack < 4; slack++) {
        struct captured captured;
        trp_log_set_level(TRP_WARN);
        capture_begin(&captured);
        struct run *run = run_all(&(struct plan){.members = 2,
                                                 .steps = 12,
                                                 .optimizer = sgd,
                                                 .mode = "gaia",
                                                 .sites = "a,b",
                                                 .site_slack = slack,
                                                 .ends_at = {0, 4}});
        capture_end(&captured);
        trp_log_set_level(TRP_ERROR);
        assert_int_equal(captured_count(&captured, "is broken"), 0);
        for (uint32_t member = 0; member < 2; member++) {
            assert_int_equal(run->members[member].status, TRP_OK);
            assert_int_equal(run->members[member].counters.steps, 12);
        }
        run_free(run);
    }
}

/* The others meet with a new member: it does, too, at the same clock. */
static void a_site_without_a_batch_leaves_with_the_others(void **state)
{
    (void)state;
    struct captured captured;
    struct plan plan = {.members = 3,
                        .steps = 60,
                        .optimizer = sgd,
                        .mode = "gaia",
                        .sites = "a,b,c",
                        .ends_at = {0, 0, 8},
                        .dies = {.member = 1, .step = 5, .place = AFTER_READY}};
    plan.joined = trp_stop_create();
    plan.halfway = trp_stop_create();
    struct run *run = run_start(&plan);
    member_join(run, 1);
    member_free(&run->members[1]);
    assert_true(trp_stop_wait(plan.halfway, 20000));
    trp_log_set_level(TRP_WARN);
    capture_begin(&captured);
    trp_gang_expect(run->gang, 1);
    member_start(run, 1, 1);
    for (uint32_t i = 0; i < 3; i++)
        member_join(run, i);
    capture_end(&captured);
    trp_log_set_level(TRP_ERROR);
    assert_int_equal(captured_count(&captured, "is broken"), 0);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(run->members[i].status, TRP_OK);
        assert_int_equal(run->members[i].counters.steps, 60);
    }
    run_free(run);
    trp_stop_destroy(plan.joined);
    trp_stop_destroy(plan.halfway);
}

/* One at a time goes on; whoever waits for another gives its turn away. */
static void learners_in_turns_repeat_bit_for_bit(void **state)
{
    (void)state;
    for (uint32_t slack = 0; slack < 4; slack += 3) {
        struct run *runs[2];
        for (uint32_t i = 0; i < 2; i++) {
            runs[i] = run_all(&(struct plan){.members = 3,
                                             .steps = 12,
                                             .columns = 100000,
                                             .optimizer = sgd,
                                             .mode = "gaia",
                                             .sites = "a,b,b",
                                             .significance = 0.1,
                                             .site_slack = slack,
                                             .turns = true});
            for (uint32_t member = 0; member < 3; member++)
                if (runs[i]->members[member].status != TRP_OK)
                    fail_msg("member %u: %s", member, runs[i]->members[member].words);
        }
        for (uint32_t member = 0; member < 3; member++)
            check_same(&runs[0]->members[member], &runs[1]->members[member]);
        run_free(runs[0]);
        run_free(runs[1]);
    }
}

/* What is said at each clock is counted, too. */
static void bytes_are_those_that_were_sent(void **state)
{
    enum { SITES_HERE = 2, STEPS = 12, BITS = (NUMBERS + 31) / 32 };
    (void)state;
    struct captured captured;
    size_t moved = 0;
    const struct plan plan = {.members = SITES_HERE,
                              .steps = STEPS,
                              .optimizer = sgd,
                              .mode = "gaia",
                              .sites = "a,b",
                              .constant = true};
    for (size_t i = 0; i < NUMBERS; i++)
        moved += gradient_of(&plan, 0, i) != 0;
    assert_true(moved > BITS);
    size_t words = (moved + BITS + 31) / 32 * 32;
    size_t said = (GAIA_SAYS + SITES_HERE) * sizeof(uint64_t);
    char *line =
        xasprintf(" bytes=%zu whole_vectors_are=%zu barriers=0\n",
                  STEPS * (said + words * sizeof(uint32_t)), STEPS * NUMBERS * sizeof(float));
    trp_log_set_level(TRP_INFO);
    capture_begin(&captured);
    run_free(run_all(&plan));
    capture_end(&captured);
    trp_log_set_level(TRP_ERROR);
    if (captured_count(&captured, line) != SITES_HERE)
        fail_msg("'%s' is not in: %s", line, captured.text);
    free(line);
}

/* ---- the selective barrier ------------------------------------------------------------------ */

enum { LATE_STEPS = 24, LATE_SLACK = 4, LATE_HALF = LATE_SLACK / 2, LATE_TRIES = 20 };

static _Atomic uint64_t asked; /* the batch that site a asked for last */

/* Site b has its first one when a has ended all clocks that it can without b, and is in one more.
 */
static uint32_t rows_of_a_late_site(uint32_t member, uint64_t step)
{
    struct deadline deadline = patience();
    if (member == 0)
        atomic_store(&asked, step);
    while (member == 1 && atomic_load(&asked) < 1 + LATE_HALF)
        look_again_soon(deadline, "the other site");
    return ROWS;
}

/* Of how many clocks a had b's steps as clock `clock` began: each moves number 7 by as much. */
static uint64_t heard_of_b(const struct member *a, uint64_t clock)
{
    const float moved = a->began_with[clock + 1] - ((7 * 5) % 11 - 5);
    const float by_one = -gradient_of(a->plan, 0, 7) * 0.25F / 2;
    return (uint64_t)(moved / by_one) - clock;
}

/* By the log's lines of both sites, which say the same. */
static uint64_t barriers_in(const struct captured *captured)
{
    static const char words[] = " barriers=";
    const char *first = strstr(captured->text, words);
    const char *second = first ? strstr(first + 1, words) : NULL;
    assert_non_null(second);
    uint64_t barriers = strtoull(first + strlen(words), NULL, 10);
    assert_int_equal(strtoull(second + strlen(words), NULL, 10), barriers);
    return barriers;
}

/* How many barriers site a waited at, of those that were raised. */
static uint64_t waits_at_barriers(void)
{
    struct captured captured;
    uint64_t waits = 0;
    atomic_store(&asked, 0);
    trp_log_set_level(TRP_INFO);
    capture_begin(&captured);
    struct run *run = run_all(&(struct plan){.members = 2,
                                             .steps = LATE_STEPS,
                                             .optimizer = sgd,
                                             .constant = true,
                                             .mode = "gaia",
                                             .sites = "a,b",
                                             .site_slack = LATE_SLACK,
                                             .rows_of = rows_of_a_late_site});
    capture_end(&captured);
    trp_log_set_level(TRP_ERROR);
    for (uint32_t member = 0; member < 2; member++)
        assert_int_equal(run->members[member].counters.steps, LATE_STEPS);
    for (uint64_t clock = LATE_HALF + 1; clock < LATE_STEPS; clock++) {
        uint64_t heard = heard_of_b(&run->members[0], clock);
        assert_in_range(heard, clock < LATE_SLACK ? 0 : clock - LATE_SLACK, clock - LATE_HALF);
        waits += heard == clock - LATE_HALF;
    }
    /* That of a run's last clocks is before no step. */
    assert_in_range(barriers_in(&captured), waits, waits + LATE_HALF + 1);
    run_free(run);
    return waits;
}

/* What a said half the slack ago is not with b: it raises the barrier, at which it waits for all
 * that b said until then; at other clocks it goes on with what is as old as the slack. On a busy
 * machine b may be there before a has looked. */
static void a_site_that_is_ahead_of_another_waits_for_it_at_the_barrier(void **state)
{
    (void)state;
    uint64_t waits = 0;
    for (int i = 0; i < LATE_TRIES && waits == 0; i++)
        waits = waits_at_barriers();
    assert_true(waits > 0);
}

/* ---- failures -------------------------------------------------------------------------------- */

static void others_go_on_without_the_dead(void **state)
{
    (void)state;
    for (uint32_t member = 0; member < 3; member++)
        for (uint32_t slack = 0; slack < 3; slack += 2) {
            struct plan plan = {.members = 3,
                                .steps = 12,
                                .optimizer = sgd,
                                .mode = "gaia",
                                .sites = "a,b,b",
                                .site_slack = slack,
                                .dies = {.member = member, .step = 5, .place = AFTER_READY}};
            struct run *run = run_all(&plan);
            for (uint32_t other = 0; other < 3; other++)
                if (other != member && run->members[other].status != TRP_OK)
                    fail_msg("member %u: %s", other, run->members[other].words);
            assert_int_equal(run->members[member].status, TRP_INTERNAL);
            run_free(run);
        }
}

/* Whoever has memory in common needs no connection while all is there as it is looked for: such a
 * run may be over before anybody hears that they are cut. */
static void check_was_broken(const struct run *run, const struct captured *captured)
{
    const struct plan *plan = &run->plan;
    if (captured_count(captured, "is broken") > 0 || !plan->no_share)
        return;
    for (uint32_t i = 0; i < plan->members; i++)
        print_message("member %u: status %d, %d steps, %s\n", i, run->members[i].status,
                      (int)run->members[i].counters.steps,
                      run->members[i].words ? run->members[i].words : "no words");
    fail_msg("nothing is broken: member %u at moment %d of step %d, slack %u; the log: '%s'",
             plan->breaks.member, (int)plan->breaks.place, (int)plan->breaks.step, plan->site_slack,
             captured->text);
}

/* Without slack the one with most steps has all that sites sent; with it, what was on its way is
 * lost, and no more. */
static void check_break(enum moment place, uint32_t slack, bool no_share)
{
    struct plan plan = {.members = 3,
                        .steps = 12,
                        .optimizer = sgd,
                        .second = true,
                        .constant = true,
                        .mode = "gaia",
                        .sites = "a,b,b",
                        .no_share = no_share,
                        .cuts = true};
    struct run *smooth = run_all(&plan);
    struct captured captured;
    plan.site_slack = slack;
    plan.breaks.member = (slack / 2 + place) % 3;
    plan.breaks.step = 5;
    plan.breaks.place = place;
    trp_log_set_level(TRP_WARN);
    capture_begin(&captured);
    struct run *run = run_all(&plan);
    capture_end(&captured);
    trp_log_set_level(TRP_ERROR);
    check_was_broken(run, &captured);
    if (slack == 0)
        check_all(run, &smooth->members[0]);
    for (uint32_t i = 0; i < 3; i++) {
        if (run->members[i].status != TRP_OK)
            fail_msg("member %u: %s", i, run->members[i].words);
        assert_int_equal(run->members[i].counters.steps, 12);
        for (size_t k = 0; k < NUMBERS; k++)
            assert_float_equal(run->members[i].params[k], smooth->members[0].params[k],
                               slack * LARGEST_MOVE);
    }
    run_free(run);
    run_free(smooth);
}

/* Nobody is lost: all go on from the one with most steps. */
static void a_generation_that_breaks_leaves_no_trace(void **state)
{
    (void)state;
    for (enum moment place = BEFORE_READY; place <= AT_THE_END; place++)
        for (uint32_t slack = 0; slack < 6; slack += 2) {
            check_break(place, slack, true);
            check_break(place, slack, false);
        }
}

/* Other sites would never hear of it, and its own steps go on from it. */
static void a_step_to_no_number_is_refused_by_its_vector(void **state)
{
    (void)state;
    static const trp_optimizer grows = {.kind = TRP_SGD, .learning_rate = 1e6F, .weight_decay = 1};
    const struct plan plan = {
        .members = 2, .steps = 12, .optimizer = grows, .mode = "gaia", .sites = "a,b"};
    struct run *run = run_all(&plan);
    bool named = false;
    for (uint32_t member = 0; member < 2; member++) {
        assert_int_not_equal(run->members[member].status, TRP_OK);
        const char *words = strstr(run->members[member].words, "gaia: 'params': number ");
        named |= words && strstr(words, "inf in step ");
    }
    assert_true(named);
    run_free(run);
}

static void a_member_without_a_site_is_refused(void **state)
{
    (void)state;
    struct plan plan = {.members = 2, .steps = 2, .optimizer = sgd, .mode = "gaia", .sites = "a"};
    struct run *run = run_all(&plan);
    assert_int_equal(run->members[1].status, TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(run->members[1].words, "sites are 'a', which has none for learner/1"));
    run_free(run);
}

/* Three are in the group, two in a site, and two are the firsts of theirs. */
static void circles_share_no_memory_where_the_group_does_not(void **state)
{
    (void)state;
    for (unsigned no_share = 0; no_share < 2; no_share++) {
        struct captured captured;
        trp_log_set_level(TRP_INFO);
        capture_begin(&captured);
        struct run *run = run_all(&(struct plan){.members = 3,
                                                 .steps = 2,
                                                 .optimizer = sgd,
                                                 .mode = "gaia",
                                                 .sites = "a,b,b",
                                                 .no_share = no_share == 1});
        capture_end(&captured);
        trp_log_set_level(TRP_ERROR);
        for (uint32_t member = 0; member < 3; member++)
            assert_int_equal(run->members[member].status, TRP_OK);
        run_free(run);
        assert_int_equal(captured_count(&captured, "lanes group=learner generation"), 3);
        assert_int_equal(captured_count(&captured, "lanes group=learner.site generation"), 2);
        assert_int_equal(captured_count(&captured, "lanes group=learner.sites generation"), 2);
        assert_int_equal(captured_count(&captured, " shared_memory=0 "), no_share * (3 + 2 + 2));
    }
}

static void numbers_out_of_range_are_refused_by_name(void **state)
{
    static const struct {
        double significance;
        uint32_t site_slack;
        const char *words;
    } rows[] = {{-0.5, 0, "significance is -0.5"},
                {(double)NAN, 0, "significance is "},
                {2e9, 0, "significance is 2e+09"},
                {0, 65, "site_slack is 65"},
                {0, UINT32_MAX, "site_slack is 4294967295"}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct run *run = run_all(&(struct plan){.members = 1,
                                                 .steps = 2,
                                                 .optimizer = sgd,
                                                 .mode = "gaia",
                                                 .sites = "a",
                                                 .significance = rows[i].significance,
                                                 .site_slack = rows[i].site_slack});
        assert_int_equal(run->members[0].status, TRP_INVALID_ARGUMENT);
        assert_non_null(strstr(run->members[0].words, rows[i].words));
        run_free(run);
    }
}

int main(void)
{
    trp_log_set_level(TRP_ERROR);
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(learners_with_no_threshold_go_on_from_their_mean),
        cmocka_unit_test(sites_that_compress_come_to_where_they_would_without),
        cmocka_unit_test(sites_that_tell_nothing_differ_and_their_members_do_not),
        cmocka_unit_test(slack_delays_what_other_sites_sent),
        cmocka_unit_test(who_leaves_with_slack_breaks_nothing),
        cmocka_unit_test(a_site_whose_batches_ended_ends_with_the_others),
        cmocka_unit_test(a_site_without_a_batch_leaves_with_the_others),
        cmocka_unit_test(learners_in_turns_repeat_bit_for_bit),
        cmocka_unit_test(bytes_are_those_that_were_sent),
        cmocka_unit_test(a_site_that_is_ahead_of_another_waits_for_it_at_the_barrier),
        cmocka_unit_test(others_go_on_without_the_dead),
        cmocka_unit_test(a_generation_that_breaks_leaves_no_trace),
        cmocka_unit_test(a_step_to_no_number_is_refused_by_its_vector),
        cmocka_unit_test(a_member_without_a_site_is_refused),
        cmocka_unit_test(circles_share_no_memory_where_the_group_does_not),
        cmocka_unit_test(numbers_out_of_range_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
