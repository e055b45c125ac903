/* The network of tests does what its script says, and nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/learner/scripted.h"

enum { ENDPOINTS = 3, HEARD_MAX = 4096 };

/* Whoever acts sends its next number to all others, and whoever hears one writes it down. */
struct talk {
    struct scripted *net;
    uint32_t next[ENDPOINTS];
    char heard[ENDPOINTS][HEARD_MAX];
};

static void say_next(void *context, uint32_t self)
{
    struct talk *talk = context;
    uint32_t number = talk->next[self]++;
    for (uint32_t other = 0; other < ENDPOINTS; other++)
        if (other != self)
            scripted_send(talk->net, self, other, &number, sizeof number);
}

static void write_down(void *context, uint32_t self, uint32_t from, const void *bytes, size_t size)
{
    struct talk *talk = context;
    uint32_t number;
    assert_int_equal(size, sizeof number);
    memcpy(&number, bytes, sizeof number);
    size_t length = strlen(talk->heard[self]);
    snprintf(talk->heard[self] + length, HEARD_MAX - length, "%u:%u ", from, number);
}

static void forget_all(void *context, uint32_t self)
{
    struct talk *talk = context;
    talk->heard[self][0] = '\0';
}

static const struct scripted_impl talking = {
    .act = say_next, .hear = write_down, .begin = forget_all};

static void talk_begin(struct talk *talk)
{
    memset(talk, 0, sizeof *talk);
    talk->net = scripted_create(ENDPOINTS, &talking, talk);
}

static void check_heard(const char *script, uint32_t endpoint, const char *heard)
{
    struct talk talk;
    talk_begin(&talk);
    scripted_play(talk.net, script);
    assert_string_equal(talk.heard[endpoint], heard);
    scripted_destroy(talk.net);
}

static void messages_arrive_when_the_script_says(void **state)
{
    (void)state;
    check_heard("0 0 1", 2, "");
    check_heard("0 0 1 1>2 0>2", 2, "1:0 0:0 ");
    check_heard("0 0 0 0>2#2 0>2 0>2", 2, "0:2 0:0 0:1 "); /* past the others */
    check_heard("0 0 0+2 0>2 0>2", 2, "0:0 0:0 0:1 ");     /* twice */
    check_heard("0 0 0-2 0>2", 2, "0:1 ");                 /* lost */
    check_heard("0 1 0 *", 2, "0:0 1:0 0:1 ");
    check_heard("0 2! 0>2 2^ 0 0>2", 2, "0:1 "); /* who is dead hears nothing */
    check_heard("0 0>2 0 2! 2^ 0>2", 2, "0:1 "); /* and begins with nothing */
    check_heard("0 0! 0>2", 2, "0:0 ");          /* what was sent is on its way */
}

static void links_take_their_time(void **state)
{
    (void)state;
    struct talk talk;
    talk_begin(&talk);
    scripted_delay(talk.net, 0, SCRIPTED_ANY, 3);
    scripted_play(talk.net, "0 . 1 .");
    assert_string_equal(talk.heard[2], "1:0 ");
    scripted_play(talk.net, ".");
    assert_string_equal(talk.heard[2], "1:0 0:0 ");
    assert_int_equal(scripted_time(talk.net), 3);
    assert_int_equal(scripted_on_their_way(talk.net), 0);
    assert_int_equal(scripted_sent(talk.net, 0, SCRIPTED_ANY).messages, 2);
    assert_int_equal(scripted_sent(talk.net, SCRIPTED_ANY, 2).bytes, 2 * sizeof(uint32_t));
    scripted_destroy(talk.net);
}

/* Whatever was drawn is a script: played again it is the same to everybody, to the event. */
static void what_is_drawn_can_be_played_again(void **state)
{
    static const struct scripted_odds odds = {.acts = 40, .lost = 10, .twice = 10, .ahead = 30};
    (void)state;
    uint32_t seen[SCRIPTED_BEGINS + 1] = {0};
    for (uint64_t seed = 0; seed < 8; seed++) {
        struct talk first, second;
        trp_rng rng;
        size_t count, again;
        trp_rng_init(&rng, seed, 0);
        talk_begin(&first);
        talk_begin(&second);
        for (uint32_t i = 0; i < 300; i++) {
            scripted_draw(first.net, &rng, &odds);
            if (i == 150)
                scripted_play(first.net, "1!");
            if (i == 200)
                scripted_play(first.net, "1^ . *");
        }
        char *story = scripted_story(first.net);
        scripted_play(second.net, story);
        const struct scripted_event *events = scripted_events(first.net, &count);
        const struct scripted_event *others = scripted_events(second.net, &again);
        assert_int_equal(count, again);
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(events[i].kind, others[i].kind);
            assert_int_equal(events[i].message, others[i].message);
            seen[events[i].kind]++;
        }
        for (uint32_t i = 0; i < ENDPOINTS; i++)
            assert_string_equal(first.heard[i], second.heard[i]);
        free(story);
        scripted_destroy(first.net);
        scripted_destroy(second.net);
    }
    for (uint32_t kind = 0; kind <= SCRIPTED_BEGINS; kind++)
        assert_true(seen[kind] > 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_arrive_when_the_script_says),
        cmocka_unit_test(links_take_their_time),
        cmocka_unit_test(what_is_drawn_can_be_played_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
