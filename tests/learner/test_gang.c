/* Who is in which generation of a group of learners, and what a failure means. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/rendezvous.h>
#include "core/alloc.h"
#include "core/thread.h"

enum { MEMBERS = 4, PATIENCE_MS = 10000 };

static trp_gang *gang_of(uint32_t count, trp_gang_options options)
{
    options.name = "learner";
    options.count = count;
    return trp_gang_create(&options);
}

static trp_status announce(trp_gang *gang, uint32_t index)
{
    char address[16];
    snprintf(address, sizeof address, "home:%u", index);
    trp_rendezvous *member = trp_gang_member(gang, index);
    return member->impl->announce(member, address);
}

static trp_status next(trp_gang *gang, uint32_t index, uint64_t after, int64_t timeout_ms,
                       trp_generation *generation)
{
    trp_rendezvous *member = trp_gang_member(gang, index);
    return member->impl->next(member, after, timeout_ms, generation);
}

static void call_broken(trp_gang *gang, uint32_t index, uint64_t number)
{
    trp_rendezvous *member = trp_gang_member(gang, index);
    member->impl->broken(member, number, "a wire was cut");
}

/* All of `count` come, and are in the first generation. */
static trp_gang *running(uint32_t count, trp_gang_options options)
{
    trp_gang *gang = gang_of(count, options);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(announce(gang, i), TRP_OK);
    assert_int_equal(trp_gang_newest(gang), options.last_number + 1);
    return gang;
}

static void comes_again(trp_gang *gang, uint32_t index)
{
    trp_gang_expect(gang, index);
    assert_int_equal(announce(gang, index), TRP_OK);
}

/* Member `index` is in generation `number` with these, in this order. */
static void check_generation(trp_gang *gang, uint32_t index, uint64_t number, const char *members)
{
    trp_generation generation;
    assert_int_equal(next(gang, index, number - 1, 0, &generation), TRP_OK);
    assert_int_equal(generation.number, number);
    assert_int_equal(generation.size, strlen(members));
    assert_int_equal(generation.first, number == 1);
    bool found = false;
    for (uint32_t i = 0; i < generation.size; i++) {
        char address[16];
        snprintf(address, sizeof address, "home:%c", members[i]);
        assert_int_equal(generation.members[i], members[i] - '0');
        assert_string_equal(generation.addresses[i], address);
        found = found || (generation.members[i] == index && generation.rank == i);
    }
    assert_true(found);
}

static void check_waits(trp_gang *gang, uint32_t index, uint64_t after)
{
    trp_generation generation;
    assert_int_equal(next(gang, index, after, 0, &generation), TRP_DEADLINE_EXCEEDED);
}

static void check_refused(trp_gang *gang, uint32_t index, uint64_t after, const char *words)
{
    trp_generation generation;
    assert_int_equal(next(gang, index, after, 0, &generation), TRP_UNAVAILABLE);
    assert_non_null(strstr(trp_last_error(), words));
}

static void the_first_generation_begins_when_all_have_come(void **state)
{
    (void)state;
    trp_gang *gang = gang_of(3, (trp_gang_options){0});
    assert_int_equal(announce(gang, 2), TRP_OK);
    assert_int_equal(announce(gang, 0), TRP_OK);
    check_waits(gang, 0, 0);
    assert_non_null(strstr(trp_last_error(), "learner/0"));
    assert_non_null(strstr(trp_last_error(), "2 of 3 are there, 1 expected"));
    assert_int_equal(announce(gang, 1), TRP_OK);
    for (uint32_t i = 0; i < 3; i++)
        check_generation(gang, i, 1, "012");
    check_waits(gang, 1, 1);
    trp_gang_destroy(gang);
}

static void numbers_go_on_where_the_last_life_ended(void **state)
{
    (void)state;
    trp_gang *gang = running(2, (trp_gang_options){.last_number = 41});
    trp_generation generation;
    assert_int_equal(next(gang, 1, 0, 0, &generation), TRP_OK);
    assert_int_equal(generation.number, 42);
    assert_true(generation.first);
    trp_gang_left(gang, 1, "it died");
    check_generation(gang, 0, 43, "0");
    trp_gang_destroy(gang);
}

static void nonces_differ(void **state)
{
    (void)state;
    trp_gang *gang = running(2, (trp_gang_options){0});
    trp_generation first, second;
    assert_int_equal(next(gang, 0, 0, 0, &first), TRP_OK);
    trp_gang_left(gang, 1, "it died");
    assert_int_equal(next(gang, 0, 1, 0, &second), TRP_OK);
    assert_true(first.nonce != second.nonce);
    trp_gang_destroy(gang);
}

static void survivors_of_a_death_go_on_at_once(void **state)
{
    (void)state;
    trp_gang *gang = running(3, (trp_gang_options){.silence_ms = 1});
    const trp_rendezvous *member = trp_gang_member(gang, 2);
    assert_int_equal(member->impl->newest(member), 1);
    trp_gang_left(gang, 0, "it was killed");
    assert_int_equal(member->impl->newest(member), 2); /* before it notices by itself */
    call_broken(gang, 1, 1);                           /* of the old one: nothing */
    check_generation(gang, 1, 2, "12");
    check_generation(gang, 2, 2, "12");
    trp_generation generation;
    assert_int_equal(next(gang, 1, 2, 20, &generation), TRP_DEADLINE_EXCEEDED);
    assert_false(trp_gang_lost(gang, 2));
    trp_gang_destroy(gang);
}

static void who_comes_back_is_the_youngest(void **state)
{
    (void)state;
    trp_gang *gang = running(3, (trp_gang_options){0});
    trp_gang_left(gang, 0, "it was killed");
    check_generation(gang, 2, 2, "12");
    trp_gang_expect(gang, 0);
    check_waits(gang, 2, 2);
    assert_int_equal(announce(gang, 0), TRP_OK);
    check_generation(gang, 0, 3, "120");
    check_generation(gang, 2, 3, "120");
    trp_gang_left(gang, 1, "it was killed");
    check_generation(gang, 0, 4, "20");
    trp_gang_destroy(gang);
}

static void a_broken_generation_ends_when_all_have_left_it(void **state)
{
    (void)state;
    trp_gang *gang = running(3, (trp_gang_options){.silence_ms = PATIENCE_MS});
    call_broken(gang, 1, 1);
    check_waits(gang, 1, 1);
    call_broken(gang, 0, 1);
    check_waits(gang, 0, 1);
    assert_int_equal(trp_gang_newest(gang), 1);
    call_broken(gang, 2, 1);
    check_generation(gang, 0, 2, "012");
    assert_false(trp_gang_lost(gang, 2));
    trp_gang_destroy(gang);
}

static void who_is_silent_is_left_out(void **state)
{
    (void)state;
    trp_gang *gang = running(3, (trp_gang_options){.silence_ms = 20});
    call_broken(gang, 2, 1);
    call_broken(gang, 1, 1);
    trp_generation generation;
    assert_int_equal(next(gang, 1, 1, PATIENCE_MS, &generation), TRP_OK);
    check_generation(gang, 2, 2, "12");
    assert_true(trp_gang_lost(gang, 0));
    assert_false(trp_gang_lost(gang, 1));
    check_refused(gang, 0, 1, "taken for lost");
    trp_gang_left(gang, 0, "it was killed"); /* which changes nothing for the others */
    check_waits(gang, 1, 2);
    comes_again(gang, 0);
    check_generation(gang, 0, 3, "120");
    trp_gang_destroy(gang);
}

/* As whoever watches members by the clock does. */
static void silence_is_seen_without_anybody_waiting(void **state)
{
    (void)state;
    trp_gang *gang = running(2, (trp_gang_options){.silence_ms = 1});
    call_broken(gang, 0, 1);
    while (!trp_gang_lost(gang, 1))
        assert_int_equal(trp_gang_check(gang), TRP_OK);
    assert_int_equal(trp_gang_newest(gang), 2);
    trp_gang_destroy(gang);
}

static void nobody_is_silent_while_everything_is_suspended(void **state)
{
    (void)state;
    enum { SILENCE_MS = 20 };
    trp_generation generation;
    trp_gang *gang = running(2, (trp_gang_options){.silence_ms = SILENCE_MS});
    trp_gang_put_off(gang, INT64_C(60000000000)); /* of what there is not */
    call_broken(gang, 0, 1);
    trp_gang_put_off(gang, INT64_C(60000000000));
    assert_int_equal(next(gang, 0, 1, 3 * SILENCE_MS, &generation), TRP_DEADLINE_EXCEEDED);
    assert_false(trp_gang_lost(gang, 1));
    trp_gang_destroy(gang);

    gang = gang_of(2, (trp_gang_options){.start_ms = SILENCE_MS});
    assert_int_equal(announce(gang, 0), TRP_OK);
    trp_gang_put_off(gang, INT64_C(60000000000));
    assert_int_equal(next(gang, 0, 0, 3 * SILENCE_MS, &generation), TRP_DEADLINE_EXCEEDED);
    assert_false(trp_gang_lost(gang, 1));
    trp_gang_destroy(gang);
}

static void who_never_comes_is_left_out(void **state)
{
    (void)state;
    trp_gang *gang = gang_of(2, (trp_gang_options){.start_ms = 20});
    assert_int_equal(announce(gang, 1), TRP_OK);
    trp_generation generation;
    assert_int_equal(next(gang, 1, 0, PATIENCE_MS, &generation), TRP_OK);
    check_generation(gang, 1, 1, "1");
    assert_true(trp_gang_lost(gang, 0));
    assert_int_equal(announce(gang, 0), TRP_UNAVAILABLE);
    assert_non_null(strstr(trp_last_error(), "came too late"));
    trp_gang_destroy(gang);
}

static void fewer_than_the_least_end_the_group(void **state)
{
    (void)state;
    trp_gang *gang = running(3, (trp_gang_options){.least = 2});
    trp_gang_left(gang, 1, "it was killed");
    check_generation(gang, 0, 2, "02");
    assert_int_equal(trp_gang_check(gang), TRP_OK);
    trp_gang_left(gang, 0, "it was killed, too");
    check_refused(gang, 2, 2, "1 of 3 members of learner are left, it needs 2");
    assert_non_null(strstr(trp_last_error(), "learner/0: it was killed, too"));
    assert_int_equal(trp_gang_check(gang), TRP_UNAVAILABLE);
    trp_gang_destroy(gang);
}

static void the_least_is_waited_for(void **state)
{
    (void)state;
    trp_gang *gang = running(3, (trp_gang_options){.least = 2});
    trp_gang_expect(gang, 2); /* it was killed, and is started again */
    check_generation(gang, 0, 2, "01");
    trp_gang_left(gang, 1, "it was killed");
    assert_int_equal(trp_gang_check(gang), TRP_OK);
    check_waits(gang, 0, 2);
    assert_int_equal(announce(gang, 2), TRP_OK);
    check_generation(gang, 0, 3, "02");
    trp_gang_destroy(gang);
}

static void a_group_without_its_state_ends(void **state)
{
    (void)state;
    trp_gang *gang = running(2, (trp_gang_options){0});
    trp_gang_left(gang, 1, "it was killed");
    trp_gang_expect(gang, 1);
    trp_gang_left(gang, 0, "it was killed");
    assert_int_equal(announce(gang, 1), TRP_UNAVAILABLE);
    assert_non_null(strstr(trp_last_error(), "every member of learner that knew what it had"));
    trp_gang_destroy(gang);
}

static void a_group_whose_state_is_elsewhere_goes_on(void **state)
{
    (void)state;
    trp_gang *gang = running(2, (trp_gang_options){.keeps_nothing = true});
    trp_gang_expect(gang, 0);
    trp_gang_expect(gang, 1);
    assert_int_equal(trp_gang_check(gang), TRP_OK);
    assert_int_equal(announce(gang, 1), TRP_OK);
    assert_int_equal(announce(gang, 0), TRP_OK);
    check_generation(gang, 0, 4, "10");
    trp_gang_destroy(gang);
}

static void a_failure_may_end_the_group(void **state)
{
    (void)state;
    trp_gang *gang = running(3, (trp_gang_options){.stop_on_failure = true});
    trp_gang_left(gang, 2, NULL); /* well */
    check_generation(gang, 0, 2, "01");
    trp_gang_left(gang, 1, "no space left");
    check_refused(gang, 0, 2, "learner/1: no space left");
    trp_gang_destroy(gang);
}

static void a_silent_member_may_end_the_group(void **state)
{
    (void)state;
    trp_gang *gang = running(2, (trp_gang_options){.stop_on_failure = true, .silence_ms = 1});
    call_broken(gang, 0, 1);
    trp_generation generation;
    assert_int_equal(next(gang, 0, 1, PATIENCE_MS, &generation), TRP_UNAVAILABLE);
    assert_non_null(strstr(trp_last_error(), "learner/1 said nothing of a broken generation"));
    trp_gang_destroy(gang);
}

static void what_breaks_again_and_again_ends_the_group(void **state)
{
    (void)state;
    trp_gang *gang = running(2, (trp_gang_options){0});
    uint64_t number = 1;
    while (trp_gang_check(gang) == TRP_OK) {
        assert_true(number < 20);
        call_broken(gang, 0, number);
        call_broken(gang, 1, number);
        number++;
    }
    assert_int_equal(number, 7); /* six were tried */
    check_refused(gang, 0, number, "every member is there, the last one because: a wire was cut");
    trp_gang_destroy(gang);
}

/* ---- threads ------------------------------------------------------------------------------- */

struct walker {
    trp_gang *gang;
    uint32_t index;
    uint64_t last;
    struct thread thread;
};

/* Goes from one generation to the next until the group ends. */
static void walk(void *arg)
{
    struct walker *walker = arg;
    trp_generation generation = {.number = 0};
    if (announce(walker->gang, walker->index) != TRP_OK)
        return;
    while (next(walker->gang, walker->index, walker->last, PATIENCE_MS, &generation) == TRP_OK) {
        assert_true(generation.number > walker->last);
        assert_int_equal(generation.members[generation.rank], walker->index);
        walker->last = generation.number;
        call_broken(walker->gang, walker->index, generation.number);
    }
}

static void threads_meet_until_the_group_ends(void **state)
{
    (void)state;
    trp_gang *gang = gang_of(MEMBERS, (trp_gang_options){0});
    struct walker walkers[MEMBERS];
    for (uint32_t i = 0; i < MEMBERS; i++) {
        walkers[i] = (struct walker){.gang = gang, .index = i};
        assert_int_equal(thread_start(&walkers[i].thread, "walker", walk, &walkers[i]), TRP_OK);
    }
    for (uint32_t i = 0; i < MEMBERS; i++) {
        thread_stop(&walkers[i].thread);
        assert_int_equal(walkers[i].last, 6);
    }
    trp_gang_destroy(gang);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_generation_begins_when_all_have_come),
        cmocka_unit_test(numbers_go_on_where_the_last_life_ended),
        cmocka_unit_test(nonces_differ),
        cmocka_unit_test(survivors_of_a_death_go_on_at_once),
        cmocka_unit_test(who_comes_back_is_the_youngest),
        cmocka_unit_test(a_broken_generation_ends_when_all_have_left_it),
        cmocka_unit_test(who_is_silent_is_left_out),
        cmocka_unit_test(silence_is_seen_without_anybody_waiting),
        cmocka_unit_test(nobody_is_silent_while_everything_is_suspended),
        cmocka_unit_test(who_never_comes_is_left_out),
        cmocka_unit_test(fewer_than_the_least_end_the_group),
        cmocka_unit_test(the_least_is_waited_for),
        cmocka_unit_test(a_group_without_its_state_ends),
        cmocka_unit_test(a_group_whose_state_is_elsewhere_goes_on),
        cmocka_unit_test(a_failure_may_end_the_group),
        cmocka_unit_test(a_silent_member_may_end_the_group),
        cmocka_unit_test(what_breaks_again_and_again_ends_the_group),
        cmocka_unit_test(threads_meet_until_the_group_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
