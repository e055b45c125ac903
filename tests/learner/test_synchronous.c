/* Learners that step alike, by their rule: N learners with batches of b are to the bit one learner
 * with batches of N * b, whatever becomes final first, and whoever is lost. */
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "core/boot.h"
#include "core/clock.h"
#include "learner/limits.h"
#include "learner/modes/weighing.h"
#include "tests/learner/group_fixture.h"

static const trp_optimizer adam = {.kind = TRP_ADAM, .learning_rate = 0.125};
static const trp_optimizer clipped = {.kind = TRP_ADAM, .learning_rate = 0.125, .max_norm = 1};

static void check_is_alone(const struct plan *plan)
{
    struct run *group = run_all(plan), *alone = run_alone(plan);
    check_all(group, &alone->members[0]);
    run_free(group);
    run_free(alone);
}

static void a_group_is_one_learner_with_the_batches_of_all(void **state)
{
    (void)state;
    for (uint32_t members = 1; members <= 4; members++)
        check_is_alone(
            &(struct plan){.members = members, .steps = 6, .optimizer = adam, .second = true});
    check_is_alone(&(struct plan){.members = 2, .steps = 6, .optimizer = clipped});
}

static void buckets_of_any_size_in_any_order_of_readiness(void **state)
{
    (void)state;
    const size_t sizes[] = {64, 192, 1024, 2048, 4096, 1 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (uint32_t columns = 1; columns <= 1009; columns += 336)
            check_is_alone(&(struct plan){.members = 2,
                                          .steps = 4,
                                          .columns = columns,
                                          .optimizer = adam,
                                          .bucket_bytes = sizes[i],
                                          .shuffled = true});
}

static uint32_t few_of_one(uint32_t member, uint64_t step)
{
    return member == 1 && step % 2 == 0 ? 2 : ROWS;
}

/* The mean over rows: a learner with few of them counts less. */
static void few_rows_count_less(void **state)
{
    (void)state;
    struct plan plan = {.members = 2,
                        .steps = 2,
                        .optimizer = {.kind = TRP_SGD, .learning_rate = 1},
                        .rows_of = few_of_one};
    struct run *run = run_all(&plan);
    for (size_t i = 0; i < NUMBERS; i++) {
        float expected = (float)(i * 5 % 11) - 5;
        for (uint64_t step = 1; step <= 2; step++) {
            float sums[2] = {0, 0}, rows = 0;
            for (uint32_t member = 0; member < 2; member++) {
                uint32_t count = few_of_one(member, step);
                for (uint32_t row = 0; row < count; row++)
                    sums[member] +=
                        gradient_of(&plan, (float)(((step - 1) * 2 + member) * ROWS + row), i);
                rows += (float)count;
            }
            /* To the bit where the rows are a power of two, as in step 1. */
            expected -= (sums[0] + sums[1]) / rows;
        }
        for (uint32_t member = 0; member < 2; member++)
            assert_float_equal(run->members[member].params[i], expected, 1e-6);
    }
    assert_memory_equal(run->members[0].params, run->members[1].params, NUMBERS * sizeof(float));
    run_free(run);
}

/* Its batches have ended: it takes part without one, and has what the others' updaters did. */
static void who_has_no_batch_takes_part_without(void **state)
{
    (void)state;
    struct plan plan = {
        .members = 3, .steps = 8, .optimizer = adam, .second = true, .ends_at = {[1] = 4}};
    struct run *run = run_all(&plan);
    check_all(run, &run->members[0]);
    assert_int_equal(run->members[1].batches, 3);
    assert_int_equal(run->members[0].batches, 8);
    run_free(run);
    plan.steps = 0;
    for (uint32_t i = 0; i < 3; i++)
        plan.ends_at[i] = 3 + i;
    run = run_all(&plan);
    run->plan.steps = 4; /* as long as anybody has one */
    check_all(run, &run->members[2]);
    run_free(run);
}

static void what_is_not_finite_is_refused_by_all(void **state)
{
    (void)state;
    struct plan plan = {.members = 3,
                        .steps = 8,
                        .optimizer = adam,
                        .second = true,
                        .odd = {.member = 1, .step = 4}};
    for (int watched = 0; watched < 2; watched++) {
        if (watched) {
            plan.odd.step = 0;
            plan.watched.member = 2;
            plan.watched.step = 4;
        }
        struct run *run = run_all(&plan);
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(run->members[i].status, TRP_INTERNAL);
            assert_int_equal(run->members[i].counters.steps, 3);
            assert_non_null(strstr(run->members[i].words,
                                   watched ? "of step 4 is inf"
                                           : "the gradient of 'params' is not finite in step 4: "
                                             "number 7 of 1000 is nan"));
        }
        run_free(run);
    }
}

static void what_is_not_finite_is_left_out_by_all(void **state)
{
    (void)state;
    struct plan plan = {
        .members = 3, .steps = 6, .optimizer = adam, .odd = {.member = 1, .step = 4}};
    plan.optimizer.skip_not_finite = true;
    struct run *run = run_all(&plan);
    check_all(run, &run->members[0]);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(run->members[i].counters.left_out, 1);
    run_free(run);
}

static void all_stop_after_the_same_step(void **state)
{
    (void)state;
    struct run *run =
        run_all(&(struct plan){.members = 3, .optimizer = adam, .stops = {.member = 2, .step = 5}});
    uint64_t steps = run->members[2].counters.steps;
    assert_in_range(steps, 5, 6);
    run->plan.steps = steps;
    check_all(run, &run->members[0]);
    run_free(run);
}

static void who_is_stopped_without_a_batch_takes_part_in_the_last_round(void **state)
{
    (void)state;
    static const char *const modes[] = {"synchronous", "sharded", "local_sgd", "gossip"};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        struct run *run = run_all(&(struct plan){.mode = modes[i],
                                                 .members = 3,
                                                 .optimizer = adam,
                                                 .cancels = true,
                                                 .stops = {.member = 2, .step = 5}});
        for (uint32_t k = 0; k < 3; k++) {
            assert_int_equal(run->members[k].status, TRP_OK);
            assert_int_equal(run->members[k].counters.steps, run->members[0].counters.steps);
        }
        run_free(run);
    }
}

/* ---- members that are lost ------------------------------------------------------------------- */

/* All rows have the same gradient: what is learned does not depend on whose batches there were,
 * but a step that counts twice, or half, shows. */
static struct plan losing(enum moment place, uint32_t member, uint64_t step)
{
    struct plan plan = {
        .members = 3, .steps = 8, .optimizer = adam, .second = true, .constant = true};
    plan.dies.member = member;
    plan.dies.step = step;
    plan.dies.place = place;
    return plan;
}

static void a_member_that_is_lost_leaves_no_trace(void **state)
{
    (void)state;
    for (enum moment place = AT_BATCH; place <= AT_THE_END; place++)
        for (uint32_t member = 0; member < 3; member += 2) {
            struct plan plan = losing(place, member, 4);
            struct run *run = run_all(&plan), *alone = run_alone(&plan);
            uint64_t batches = 0;
            assert_int_not_equal(run->members[member].status, TRP_OK);
            for (uint32_t i = 0; i < 3; i++) {
                if (i == member)
                    continue;
                if (run->members[i].status != TRP_OK)
                    fail_msg("member %u: %s", i, run->members[i].words);
                assert_int_equal(run->members[i].counters.steps, 8);
                assert_int_equal(run->members[i].counters.size, 2);
                assert_int_equal(run->members[i].counted, 8);
                check_same(&run->members[i], &alone->members[0]);
                for (uint64_t step = 6; step <= 8; step++)
                    batches += run->members[i].seen[step];
            }
            assert_int_equal(batches, 3 * 3); /* as many as three made */
            run_free(run);
            run_free(alone);
        }
}

static void a_new_member_gets_the_state(void **state)
{
    (void)state;
    struct plan plan = losing(BETWEEN, 1, 3);
    plan.steps = 60;
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

static void await_generation(trp_gang *gang, uint64_t number)
{
    struct deadline patience = deadline_in_ms(&clock_monotonic, 20000);
    while (trp_gang_newest(gang) < number && !deadline_passed(patience, &clock_monotonic))
        poll(NULL, 0, 1);
    assert_true(trp_gang_newest(gang) >= number);
}

/* Nobody is there who could be connected to, or whose memory could be read. */
static void announce_in_vain(const struct run *run, uint32_t index)
{
    char boot[BOOT_ID_BYTES], memory[BOOT_ID_BYTES + 64];
    boot_id_read(boot);
    snprintf(memory, sizeof memory, "memory:%s:%d:0:here", boot, INT32_MAX);
    bool shares = strcmp(run->plan.mode, "hogwild") == 0;
    trp_rendezvous *member = trp_gang_member(run->gang, index);
    assert_int_equal(member->impl->announce(member, shares ? memory : "127.0.0.1:1"), TRP_OK);
}

/* Two learned something. The second is killed and begins again; the first is, once both are in a
 * generation, and begins again; and then the second is, who had no state yet. */
static struct run *run_of_a_newcomer(const char *mode, const char *checkpoints)
{
    struct run *run = xcalloc(1, sizeof *run);
    run->plan = (struct plan){.members = 2,
                              .steps = 60,
                              .optimizer = adam,
                              .mode = mode,
                              .checkpoints = checkpoints,
                              .resume = checkpoints};
    run->gang = trp_gang_create(&(trp_gang_options){.name = "learner", .count = 2});
    run->stops[0] = trp_stop_create();
    announce_in_vain(run, 0);
    announce_in_vain(run, 1);
    trp_gang_expect(run->gang, 1);
    announce_in_vain(run, 1);
    trp_gang_expect(run->gang, 0);
    member_start(run, 0, 1);
    await_generation(run->gang, 5);
    trp_gang_left(run->gang, 1, "it was killed");
    member_join(run, 0);
    return run;
}

static void new_members_among_themselves_do_not_begin_anew(void **state)
{
    (void)state;
    static const char *const modes[] = {"synchronous", "sharded", "local_sgd", "hogwild",
                                        "dogwild"};
    for (size_t i = 0; i < 5; i++) {
        struct run *run = run_of_a_newcomer(modes[i], NULL);
        assert_int_not_equal(run->members[0].status, TRP_OK);
        assert_non_null(strstr(run->members[0].words, "is gone"));
        assert_int_equal(run->members[0].counters.steps, 0);
        run_free(run);
    }
}

/* A checkpoint, in a directory that does not say which generations there were. */
static void versions_go_on_though_generations_are_counted_anew(void **state)
{
    (void)state;
    char dir[] = "/tmp/test_counted_anew.XXXXXX", command[64];
    assert_non_null(mkdtemp(dir));
    struct plan plan = {.members = 2, .steps = 10, .optimizer = adam, .checkpoints = dir};
    uint64_t version = 0;
    for (int life = 0; life < 3; life++) {
        struct run *run = run_all(&plan);
        uint64_t reached = run->members[0].counters.version;
        assert_true(life == 0 || reached > version + LEARNER_VERSION_GAP);
        assert_true(reached < version + 2 * (uint64_t)LEARNER_VERSION_GAP);
        version = reached;
        plan.resume = true;
        plan.steps += 10;
        run_free(run);
    }
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

/* With numbers that were not used since. */
static void new_members_among_themselves_go_back_to_the_checkpoint(void **state)
{
    (void)state;
    static const char *const modes[] = {"synchronous", "sharded", "local_sgd", "hogwild",
                                        "dogwild"};
    for (size_t i = 0; i < 5; i++) {
        char dir[] = "/tmp/test_newcomers.XXXXXX", command[64];
        assert_non_null(mkdtemp(dir));
        run_free(run_all(&(struct plan){
            .members = 2, .steps = 20, .optimizer = adam, .mode = modes[i], .checkpoints = dir}));
        struct run *run = run_of_a_newcomer(modes[i], dir);
        if (run->members[0].status != TRP_OK)
            fail_msg("%s: %s", modes[i], run->members[0].words);
        assert_true(run->members[0].counters.resumed_from >= 20); /* local_sgd: a few more */
        assert_true(run->members[0].counters.steps >= 60);
        /* The generations 1 to 4 may each have published so many. */
        assert_true(run->members[0].counters.version > 4 * (uint64_t)LEARNER_VERSION_GAP);
        run_free(run);
        snprintf(command, sizeof command, "rm -rf %s", dir);
        assert_int_equal(system(command), 0);
    }
}

/* Of a member whose first generation is over once it knows of it. */
struct short_lived {
    trp_rendezvous base;
    trp_gang *gang;
    trp_rendezvous *own;
};

static struct short_lived *short_lived_of(const trp_rendezvous *base)
{
    return (struct short_lived *)(uintptr_t)base;
}

static trp_status short_announce(trp_rendezvous *base, const char *address)
{
    trp_rendezvous *own = short_lived_of(base)->own;
    return own->impl->announce(own, address);
}

static trp_status short_next(trp_rendezvous *base, uint64_t after, int64_t timeout_ms,
                             trp_generation *generation)
{
    trp_rendezvous *own = short_lived_of(base)->own;
    trp_status status = own->impl->next(own, after, timeout_ms, generation);
    if (status == TRP_OK && generation->number == 1)
        trp_gang_left(short_lived_of(base)->gang, 1, "it was killed");
    return status;
}

static uint64_t short_newest(const trp_rendezvous *base)
{
    const trp_rendezvous *own = short_lived_of(base)->own;
    return own->impl->newest(own);
}

static void short_broken(trp_rendezvous *base, uint64_t number, const char *why)
{
    trp_rendezvous *own = short_lived_of(base)->own;
    own->impl->broken(own, number, why);
}

/* The other one announced itself and is gone before it connected: nobody waits until it is late. */
static void a_generation_may_be_over_before_it_began(void **state)
{
    (void)state;
    static const trp_rendezvous_impl impl = {.announce = short_announce,
                                             .next = short_next,
                                             .newest = short_newest,
                                             .broken = short_broken};
    trp_gang *gang = trp_gang_create(&(trp_gang_options){.name = "learner", .count = 2});
    trp_rendezvous *other = trp_gang_member(gang, 1);
    struct short_lived rendezvous = {{&impl}, gang, trp_gang_member(gang, 0)};
    struct learners learners;
    const struct learners_options options = {
        .name = "learner", .rendezvous = &rendezvous.base, .timeout_ms = 30000};
    int64_t since_ns = clock_now_ns(&clock_monotonic);
    assert_int_equal(other->impl->announce(other, "127.0.0.1:1"), TRP_OK);
    assert_int_equal(learners_create(&learners, &options), TRP_OK);
    assert_int_equal(learners_meet(&learners, 1), TRP_OK);
    assert_int_equal(learners.generation, 2);
    assert_int_equal(learners.size, 1);
    assert_true(clock_now_ns(&clock_monotonic) - since_ns < INT64_C(10000000000));
    learners_destroy(&learners);
    trp_gang_destroy(gang);
}

/* Of a member that hears of the second generation once it has called the first one broken: others
 * are told sooner. */
struct late_news {
    trp_rendezvous base;
    const char **addresses; /* of both members */
    uint32_t rank;
    uint64_t newest;
    struct learners learners;
    trp_status status;
    struct thread thread;
};

static struct late_news *late_news_of(const trp_rendezvous *base)
{
    return (struct late_news *)(uintptr_t)base;
}

static trp_status late_announce(trp_rendezvous *base, const char *address)
{
    late_news_of(base)->addresses[late_news_of(base)->rank] = address;
    return TRP_OK;
}

static trp_status late_next(trp_rendezvous *base, uint64_t after, int64_t timeout_ms,
                            trp_generation *generation)
{
    static const uint32_t members[2] = {0, 1};
    const struct late_news *news = late_news_of(base);
    (void)timeout_ms;
    if (news->newest <= after)
        return trp_fail(TRP_UNAVAILABLE, "there is no other generation");
    *generation = (trp_generation){.number = news->newest,
                                   .nonce = 1,
                                   .rank = news->rank,
                                   .size = 2,
                                   .addresses = news->addresses,
                                   .members = members};
    return TRP_OK;
}

static uint64_t late_newest(const trp_rendezvous *base)
{
    return late_news_of(base)->newest;
}

static void late_broken(trp_rendezvous *base, uint64_t number, const char *why)
{
    (void)number;
    (void)why;
    late_news_of(base)->newest = 2;
}

static void meet_on_thread(void *arg)
{
    struct late_news *news = arg;
    news->status = learners_meet(&news->learners, 1);
}

static void who_hears_of_the_next_generation_from_another_member_goes_on_to_it(void **state)
{
    (void)state;
    static const trp_rendezvous_impl impl = {
        .announce = late_announce, .next = late_next, .newest = late_newest, .broken = late_broken};
    const char *addresses[2];
    struct late_news news[2];
    for (uint32_t i = 0; i < 2; i++) {
        news[i] = (struct late_news){
            .base = {&impl}, .addresses = addresses, .rank = i, .newest = i == 0 ? 2 : 1};
        const struct learners_options options = {
            .name = "learner", .rendezvous = &news[i].base, .timeout_ms = 3000};
        assert_int_equal(learners_create(&news[i].learners, &options), TRP_OK);
    }
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(thread_start(&news[i].thread, "member", meet_on_thread, &news[i]), TRP_OK);
    for (uint32_t i = 0; i < 2; i++)
        thread_stop(&news[i].thread);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(news[i].status, TRP_OK);
        assert_int_equal(news[i].learners.generation, 2);
        learners_destroy(&news[i].learners);
    }
}

/* Nobody is lost: the same members try the step again, those who had finished it with the state
 * that it came to. */
static void a_generation_that_breaks_leaves_no_trace(void **state)
{
    (void)state;
    for (enum moment place = BEFORE_READY; place <= AT_THE_END; place++)
        for (uint32_t member = 0; member < 3; member++) {
            struct plan plan = {.members = 3,
                                .steps = 8,
                                .optimizer = adam,
                                .second = true,
                                .constant = true,
                                .bucket_bytes = 512,
                                .breaks = {.member = member, .step = 4, .place = place}};
            struct run *run = run_all(&plan), *alone = run_alone(&plan);
            check_all(run, &alone->members[0]);
            run_free(run);
            run_free(alone);
        }
}

static void phases_may_vary(void **state)
{
    (void)state;
    struct plan plan = {.members = 3,
                        .steps = 8,
                        .optimizer = adam,
                        .varies = true,
                        .asks = true,
                        .ends_at = {[2] = 5}};
    struct run *run = run_all(&plan);
    check_all(run, &run->members[1]);
    run_free(run);
}

static void the_largest_is_that_of_all(void **state)
{
    (void)state;
    struct plan plan = {
        .members = 3, .steps = 8, .optimizer = adam, .asks = true, .ends_at = {[1] = 5}};
    struct run *run = run_all(&plan);
    for (uint64_t step = 1; step <= 8; step++) {
        double largest = -INFINITY;
        for (uint32_t i = 0; i < 3; i++)
            if (i != 1 || step < 5)
                largest = fmax(largest, (double)((step * (i + 3)) % 7) - 5);
        for (uint32_t i = 0; i < 3; i++)
            if (i != 1 || step < 5)
                assert_true(run->members[i].largest[step] == largest);
    }
    run_free(run);
}

/* Of n ranks together: the vector, with its head, 2 (n - 1) times; small things, which go by
 * doubling, n log2 n times: four words of each rank, and of sharded state two numbers of the head
 * and three words of each rank. */
static void a_step_sends_what_the_formula_says(void **state)
{
    (void)state;
    for (uint64_t n = 2, doublings = 1; n <= 4; n *= 2, doublings++)
        for (int sharded = 0; sharded < 2; sharded++) {
            struct plan plan = {.members = (uint32_t)n,
                                .steps = 6,
                                .columns = 1 << 14,
                                .optimizer = adam,
                                .mode = sharded ? "sharded" : "synchronous"};
            struct run *run = run_all(&plan);
            uint64_t vector = ((1 << 14) + HEAD_NUMBERS) * sizeof(float);
            uint64_t small = 4 * n * sizeof(uint64_t), bytes = 0;
            if (sharded)
                small += 2 * sizeof(float) + 3 * n * sizeof(uint64_t);
            for (uint32_t i = 0; i < n; i++)
                bytes += run->members[i].sent[5].bytes_sent - run->members[i].sent[4].bytes_sent;
            assert_int_equal(bytes, 2 * (n - 1) * vector + n * doublings * small);
            run_free(run);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_group_is_one_learner_with_the_batches_of_all),
        cmocka_unit_test(buckets_of_any_size_in_any_order_of_readiness),
        cmocka_unit_test(few_rows_count_less),
        cmocka_unit_test(who_has_no_batch_takes_part_without),
        cmocka_unit_test(what_is_not_finite_is_refused_by_all),
        cmocka_unit_test(what_is_not_finite_is_left_out_by_all),
        cmocka_unit_test(all_stop_after_the_same_step),
        cmocka_unit_test(who_is_stopped_without_a_batch_takes_part_in_the_last_round),
        cmocka_unit_test(a_member_that_is_lost_leaves_no_trace),
        cmocka_unit_test(a_new_member_gets_the_state),
        cmocka_unit_test(new_members_among_themselves_do_not_begin_anew),
        cmocka_unit_test(new_members_among_themselves_go_back_to_the_checkpoint),
        cmocka_unit_test(versions_go_on_though_generations_are_counted_anew),
        cmocka_unit_test(a_generation_may_be_over_before_it_began),
        cmocka_unit_test(who_hears_of_the_next_generation_from_another_member_goes_on_to_it),
        cmocka_unit_test(a_generation_that_breaks_leaves_no_trace),
        cmocka_unit_test(phases_may_vary),
        cmocka_unit_test(the_largest_is_that_of_all),
        cmocka_unit_test(a_step_sends_what_the_formula_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
