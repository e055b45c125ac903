/* Dogwild's streams over a network that loses, repeats and reorders what a script says, beside a
 * reference in double that replays the same script; and whole learners over real datagrams. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/log.h>
#include "tests/learner/group_fixture.h"
#include "tests/learner/web.h"

/* Integers are exact: to the bit, whatever is lost, comes twice, or late. */
static void streams_do_as_a_reference_in_double(void **state)
{
    static const char *const scripts[] = {
        "1 1>0 0>1",               /* there and back */
        "1 2 0 2>0 1>0 * 0 1 2 *", /* rank 0 steps, too */
        "1 1-0 1 1 1 *",           /* a delta is lost, and nothing is sent for it */
        "1 1+0 1>0 0>1 1 *",       /* it comes twice */
        "1 1>0 0-1 1 1 *",         /* the answer is lost */
        "1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1>0#1 1>0 0>1 1 *", /* the later one first */
    };
    (void)state;
    for (size_t s = 0; s < sizeof scripts / sizeof *scripts; s++) {
        struct web web;
        web_begin(&web, FEW);
        web.step = integer_step;
        scripted_play(web.net, scripts[s]);
        assert_as_reference(&web);
        web_end(&web);
    }
    for (uint64_t seed = 0; seed < 30; seed++) {
        const struct scripted_odds odds = {
            .acts = 30 + 2 * (uint32_t)seed % 40, .lost = 20, .twice = 20, .ahead = 40};
        struct web web;
        trp_rng rng;
        trp_rng_init(&rng, 5, seed);
        web_begin(&web, FEW);
        web.step = integer_step;
        for (size_t n = 0; n < 600; n++)
            scripted_draw(web.net, &rng, &odds);
        assert_as_reference(&web);
        assert_true(web.streams[0].counters.old > 0);
        assert_true(web.streams[1].counters.unanswered > 0);
        web_end(&web);
    }
}

/* ---- what the facts say ---------------------------------------------------------------------- */

/* Nothing is lost, though much comes twice and in other orders: no step is missing or there twice,
 * and replicas that rest become equal. */
static void replicas_without_loss_have_every_step_and_become_equal(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 10; seed++) {
        const struct scripted_odds odds = {.acts = 15, .twice = 20, .ahead = 50};
        struct web web;
        trp_rng rng;
        double sum[NUMBERS_HERE];
        uint64_t acts = 0;
        trp_rng_init(&rng, 6, seed);
        web_begin(&web, NUMBERS_HERE);
        scripted_play(web.net, "1 2 3 *"); /* all have what rank 0 has */
        web.step = integer_step;
        for (size_t n = 0; n < 800; n++)
            scripted_draw(web.net, &rng, &odds);
        scripted_play(web.net, "*");
        web.step = NULL;
        scripted_play(web.net, "1 2 3 * 1 2 3 *");
        for (size_t i = 0; i < NUMBERS_HERE; i++) {
            struct web at = {.acts = {0}};
            sum[i] = (double)(i % 13);
            for (uint32_t self = 0; self < PEERS; self++)
                for (at.acts[self] = 0; at.acts[self] < web.acts[self]; at.acts[self]++)
                    sum[i] += integer_step(&at, self, i);
            assert_true((double)number_of(&web, 0, i) == sum[i]);
        }
        assert_all_equal(&web);
        for (uint32_t self = 0; self < PEERS; self++) {
            assert_int_equal(web.streams[self].counters.unanswered, 0);
            acts += web.acts[self];
        }
        assert_int_equal(web.steps[0], acts);
        assert_true(web.streams[0].counters.old > 0);
        web_end(&web);
    }
}

/* It begins at 12; noise leaves about 0.01. */
static void dropped_messages_leave_the_loss_in_its_band(void **state)
{
    static const uint32_t percents[] = {0, 10, 30, 50};
    (void)state;
    for (size_t k = 0; k < sizeof percents / sizeof *percents; k++)
        assert_true(loss_with(percents[k], &(struct compress_options){0}) < 0.06);
}

/* ---- who is there ---------------------------------------------------------------------------- */

static void who_joins_has_all_when_each_chunk_came(void **state)
{
    (void)state;
    struct web web;
    web_begin(&web, NUMBERS_HERE);
    scripted_play(web.net, "1 1>0 1>0 1-0 0>1 0>1");
    assert_false(stream_has_all(&web.streams[1]));
    for (uint32_t n = 0; n < DOGWILD_PATIENCE + 2; n++)
        scripted_play(web.net, "1");
    scripted_play(web.net, "*");
    assert_true(stream_has_all(&web.streams[1]));
    for (size_t i = 0; i < NUMBERS_HERE; i++)
        assert_true(number_of(&web, 1, i) == number_of(&web, 0, i));
    web_end(&web);
}

/* Rank 0 is gone; the next one has what it had of it, and the others' steps that it did not get. */
static void the_next_rank_0_gets_what_others_have_not_sent(void **state)
{
    (void)state;
    struct web web;
    web_begin(&web, FEW);
    scripted_play(web.net, "1 2 3 *");
    web.step = integer_step;
    scripted_play(web.net, "2 2>0 0>2 2 2"); /* the last step is not sent: an answer is awaited */
    float sent = number_of(&web, 2, 3), before = number_of(&web, 1, 3);
    web.acts[2] = 0;
    step_of(&web, 2);
    float unsent = number_of(&web, 2, 3) - sent;
    assert_true(unsent != 0);
    enter(&web.streams[1], 2, 0, 2);
    enter(&web.streams[2], 2, 1, 2);
    web.step = NULL;
    struct stream_message ask, answer;
    stream_begin_pass(&web.streams[2]);
    size_t bytes = stream_ask(&web.streams[2], &ask);
    assert_int_equal(stream_take(&web.streams[0], &ask, bytes, &answer), 0); /* it is of none */
    assert_int_equal(web.streams[0].counters.strange, 1);
    bytes = stream_take(&web.streams[1], &ask, bytes, &answer);
    assert_true(bytes > 0);
    stream_take(&web.streams[2], &answer, bytes, &ask);
    assert_true(number_of(&web, 2, 3) == number_of(&web, 1, 3));
    assert_true(number_of(&web, 1, 3) != before);
    web_end(&web);
}

/* The next generation, of the same ranks: those below `first` came later and have not got all. */
static void begin_with_newcomers(struct web *web, uint32_t first)
{
    for (uint32_t self = 0; self < PEERS; self++) {
        float own[NUMBERS_HERE];
        bool fresh = web->fresh[self] = self < first;
        for (size_t i = 0; i < web->numbers; i++)
            own[i] = -7 - (float)self;
        if (fresh)
            put_shared(web->pairs[self], own, web->numbers);
        stream_begin(&web->streams[self], &(struct stream_place){.generation = 2,
                                                                 .nonce = 78,
                                                                 .rank = self,
                                                                 .size = PEERS,
                                                                 .knows = !fresh,
                                                                 .fresh = fresh});
    }
}

/* Others hear of it alone, and of nobody else. */
static void who_is_followed_says_that_it_misses_somebody(void **state)
{
    struct web web;
    (void)state;
    web_begin(&web, NUMBERS_HERE);
    web.streams[1].misses = true; /* who is not followed is not believed */
    scripted_play(web.net, "1 2 3 *");
    for (uint32_t self = 0; self < PEERS; self++)
        assert_int_equal(web.streams[self].misses, self == 1);
    web.streams[0].misses = true;
    scripted_play(web.net, "1 2 3 *");
    for (uint32_t self = 0; self < PEERS; self++)
        assert_true(web.streams[self].misses);
    enter(&web.streams[2], 2, 2, PEERS);
    assert_false(web.streams[2].misses);
    web_end(&web);
}

/* Also with what another one, which knows as much, has not told anybody yet. */
static void the_first_rank_that_knows_is_followed(void **state)
{
    (void)state;
    for (uint32_t first = 0; first < PEERS; first++) {
        struct web web;
        float before[NUMBERS_HERE];
        web_begin(&web, NUMBERS_HERE);
        scripted_play(web.net, "1 2 3 *"); /* all have what rank 0 has */
        web.step = integer_step;
        step_of(&web, 3);
        web.step = NULL;
        for (size_t i = 0; i < NUMBERS_HERE; i++)
            before[i] = number_of(&web, 3, i);
        begin_with_newcomers(&web, first);
        scripted_play(web.net, "0 1 2 3 * 0 1 2 3 * 0 1 2 3 * 0 1 2 3 * 0 1 2 3 *");
        for (uint32_t self = 0; self < PEERS; self++) {
            assert_int_equal(web.streams[self].followed, first);
            assert_true(stream_has_all(&web.streams[self]));
        }
        for (size_t i = 0; i < NUMBERS_HERE; i++)
            assert_true(number_of(&web, 0, i) == before[i]);
        assert_all_equal(&web);
        assert_int_equal(web.streams[3].counters.refused, first * CHUNKS);
        web_end(&web);
    }
}

/* Whoever is asked first, and whatever comes twice or late, no step is lost or there twice. */
static void check_newcomers(const struct compress_options *compress)
{
    for (uint64_t seed = 0; seed < 12; seed++) {
        const struct scripted_odds odds = {.acts = 15, .twice = 20, .ahead = 50};
        struct web web;
        trp_rng rng;
        uint32_t first = 1 + (uint32_t)seed % 3;
        trp_rng_init(&rng, 7, seed);
        web_begin_as(&web, NUMBERS_HERE, compress);
        scripted_play(web.net, "1 2 3 *");
        begin_with_newcomers(&web, first);
        web.step = integer_step;
        for (size_t n = 0; n < 800; n++)
            scripted_draw(web.net, &rng, &odds);
        scripted_play(web.net, "*");
        web.step = NULL;
        for (uint32_t n = 0; n < (compress->kind == COMPRESS_NONE ? 3 : 12); n++)
            scripted_play(web.net, "0 1 2 3 *");
        for (size_t i = 0; i < NUMBERS_HERE; i++) {
            struct web at = {.acts = {0}};
            double sum = (double)(i % 13);
            for (uint32_t self = 0; self < PEERS; self++)
                for (at.acts[self] = 0; at.acts[self] < web.acts[self]; at.acts[self]++)
                    sum += integer_step(&at, self, i);
            assert_true((double)number_of(&web, first, i) == sum);
        }
        assert_all_equal(&web);
        for (uint32_t self = 0; self < PEERS; self++) {
            assert_true(web.acts[self] > 0);
            assert_int_equal(web.streams[self].counters.unanswered, 0);
        }
        web_end(&web);
    }
}

static void newcomers_that_refuse_lose_no_step(void **state)
{
    (void)state;
    check_newcomers(&(struct compress_options){0});
    for (size_t k = 0; k < EXACT_CODES; k++)
        check_newcomers(&codes[k]);
}

static void where_nobody_knows_all_hear_of_it(void **state)
{
    (void)state;
    struct web web;
    web_begin(&web, FEW);
    begin_with_newcomers(&web, PEERS);
    for (uint32_t self = 0; self < PEERS; self++)
        assert_false(stream_is_lost(&web.streams[self]));
    scripted_play(web.net, "0 1 2 3 * 0 1 2 3 * 0 1 2 3 * 0 1 2 3 *");
    for (uint32_t self = 0; self < PEERS; self++) {
        assert_true(stream_is_lost(&web.streams[self]));
        assert_false(stream_has_all(&web.streams[self]));
    }
    stream_begin(&web.streams[0], &(struct stream_place){.generation = 3, .size = 1});
    assert_true(stream_is_lost(&web.streams[0])); /* it is alone */
    web_end(&web);
}

static void what_is_no_message_changes_nothing(void **state)
{
    (void)state;
    struct web web;
    struct stream_message right, wrong, answer;
    web_begin(&web, NUMBERS_HERE);
    stream_begin_pass(&web.streams[1]);
    size_t bytes = stream_ask(&web.streams[1], &right);
    float before = number_of(&web, 0, 0);
    right.numbers[0] = 1;
    for (uint32_t k = 0; k < 11; k++) {
        wrong = right;
        size_t size = bytes;
        wrong.magic += k == 0;
        wrong.generation += k == 1;
        wrong.nonce += k == 2;
        wrong.rank = k == 3 ? PEERS : k == 4 ? 0 : wrong.rank; /* nobody; itself */
        wrong.chunk = k == 5 ? CHUNKS : k == 6 ? UINT64_MAX : wrong.chunk;
        wrong.count += k == 7;
        wrong.kind = k == 8 ? STREAM_REFUSAL + 1 : wrong.kind;
        size -= k == 9;
        wrong.numbers[1] = k == 10 ? NAN : wrong.numbers[1];
        assert_int_equal(stream_take(&web.streams[0], &wrong, size, &answer), 0);
        assert_int_equal(web.streams[0].counters.strange, k + 1);
    }
    for (size_t size = 0; size < bytes; size++)
        assert_int_equal(stream_take(&web.streams[0], &right, size, &answer), 0);
    assert_true(number_of(&web, 0, 0) == before);
    assert_true(stream_take(&web.streams[0], &right, bytes, &answer) > 0);
    assert_true(number_of(&web, 0, 0) == before + 1);
    web_end(&web);
}

/* Of as many numbers, but others. */
static void who_learns_something_else_is_not_listened_to(void **state)
{
    (void)state;
    struct web web;
    struct stream_message message, answer;
    struct stream other;
    struct stream_chunk chunk = {.count = FEW};
    shared_pair pairs[FEW / 2 + 1] = {0};
    _Atomic uint64_t steps = 0;
    web_begin(&web, FEW);
    chunk.values = pairs;
    for (uint64_t layout = LAYOUT; layout < LAYOUT + 2; layout++) {
        stream_create(&other, &chunk, 1, layout, &steps);
        enter(&other, 1, 1, PEERS);
        stream_begin_pass(&other);
        size_t bytes = stream_ask(&other, &message);
        bytes = stream_take(&web.streams[0], &message, bytes, &answer);
        assert_int_equal(bytes > 0, layout == LAYOUT);
        assert_int_equal(web.streams[0].counters.strange, layout != LAYOUT);
        stream_destroy(&other);
    }
    web_end(&web);
    web_begin_as(&web, FEW, &codes[1]); /* with a code that is as long */
    stream_create(&other, &chunk, 1, LAYOUT, &steps);
    stream_compress(&other, &codes[0]);
    enter(&other, 1, 1, PEERS);
    stream_begin_pass(&other);
    size_t coded = stream_ask(&other, &message);
    assert_int_equal(stream_take(&web.streams[0], &message, coded, &answer), 0);
    stream_destroy(&other);
    web_end(&web);
}

/* Both are finite, and their sum is not. */
static void a_delta_that_would_overflow_changes_nothing(void **state)
{
    (void)state;
    struct web web;
    struct stream_message message, answer;
    web_begin(&web, FEW);
    stream_begin_pass(&web.streams[1]);
    size_t bytes = stream_ask(&web.streams[1], &message);
    message.numbers[3] = FLT_MAX;
    assert_true(stream_take(&web.streams[0], &message, bytes, &answer) > 0);
    message.sequence++;
    assert_int_equal(stream_take(&web.streams[0], &message, bytes, &answer), 0);
    assert_int_equal(web.streams[0].counters.strange, 1);
    assert_true(number_of(&web, 0, 3) == FLT_MAX);
    message.numbers[3] = 0; /* with the number that was not taken */
    assert_true(stream_take(&web.streams[0], &message, bytes, &answer) > 0);
    web_end(&web);
}

static void so_many_answers_are_awaited_and_no_more(void **state)
{
    enum { MANY = DOGWILD_WINDOW + 10 };
    (void)state;
    struct stream stream;
    struct stream_chunk chunks[MANY];
    struct stream_message message;
    shared_pair pairs[MANY] = {0};
    _Atomic uint64_t steps = 0;
    for (size_t i = 0; i < MANY; i++)
        chunks[i] = (struct stream_chunk){.values = &pairs[i], .count = 2};
    stream_create(&stream, chunks, MANY, LAYOUT, &steps);
    enter(&stream, 1, 1, 2);
    stream_begin_pass(&stream);
    for (uint32_t n = 0; n < DOGWILD_WINDOW; n++)
        assert_int_equal(stream_ask(&stream, &message),
                         offsetof(struct stream_message, numbers) + 8);
    assert_int_equal(stream_ask(&stream, &message), 0);
    for (uint32_t n = 0; n < DOGWILD_PATIENCE + 2; n++)
        stream_begin_pass(&stream);
    for (uint32_t n = 0; n < 10; n++)
        assert_true(stream_ask(&stream, &message) > 0);
    assert_int_equal(stream.counters.unanswered, DOGWILD_WINDOW);
    assert_int_equal(stream_ask(&stream, &message), 0); /* the pass is over */
    stream_destroy(&stream);
}

/* ---- learners -------------------------------------------------------------------------------- */

static const trp_optimizer sgd = {.kind = TRP_SGD, .learning_rate = 0.001F};

static void one_learner_has_the_bits_of_one_that_is_alone(void **state)
{
    static const trp_optimizer kinds[] = {{.kind = TRP_SGD, .learning_rate = 0.5},
                                          {.kind = TRP_ADAM, .learning_rate = 0.125},
                                          {.kind = TRP_RMSPROP, .learning_rate = 0.125}};
    (void)state;
    for (size_t k = 0; k < 3; k++) {
        struct plan plan = {
            .members = 1, .steps = 12, .optimizer = kinds[k], .second = true, .mode = "dogwild"};
        struct run *run = run_all(&plan), *alone = run_alone(&plan);
        assert_int_equal(run->members[0].status, TRP_OK);
        assert_memory_equal(run->members[0].params, alone->members[0].params,
                            NUMBERS * sizeof(float));
        run_free(run);
        run_free(alone);
    }
}

/* Over datagrams of this host all end with the steps of all, and one that dies costs nobody. */
static void learners_count_their_steps_together_and_go_on_without_the_dead(void **state)
{
    (void)state;
    for (uint32_t dies = 0; dies < 2; dies++) {
        struct plan plan = {
            .members = 3, .steps = STEPS_MAX, .optimizer = sgd, .second = true, .mode = "dogwild"};
        if (dies) {
            plan.dies.member = 1;
            plan.dies.step = 1;
            plan.dies.place = BETWEEN;
        }
        struct run *run = run_all(&plan);
        for (uint32_t member = 0; member < 3; member++) {
            bool dead = dies && member == 1;
            if (!dead && run->members[member].status != TRP_OK)
                fail_msg("member %u: %s", member, run->members[member].words);
            if (!dead)
                assert_true(run->members[member].counters.steps >= STEPS_MAX);
        }
        run_free(run);
    }
}

int main(void)
{
    trp_log_set_level(TRP_ERROR);
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_do_as_a_reference_in_double),
        cmocka_unit_test(replicas_without_loss_have_every_step_and_become_equal),
        cmocka_unit_test(dropped_messages_leave_the_loss_in_its_band),
        cmocka_unit_test(who_joins_has_all_when_each_chunk_came),
        cmocka_unit_test(the_next_rank_0_gets_what_others_have_not_sent),
        cmocka_unit_test(the_first_rank_that_knows_is_followed),
        cmocka_unit_test(who_is_followed_says_that_it_misses_somebody),
        cmocka_unit_test(newcomers_that_refuse_lose_no_step),
        cmocka_unit_test(where_nobody_knows_all_hear_of_it),
        cmocka_unit_test(what_is_no_message_changes_nothing),
        cmocka_unit_test(who_learns_something_else_is_not_listened_to),
        cmocka_unit_test(a_delta_that_would_overflow_changes_nothing),
        cmocka_unit_test(so_many_answers_are_awaited_and_no_more),
        cmocka_unit_test(one_learner_has_the_bits_of_one_that_is_alone),
        cmocka_unit_test(learners_count_their_steps_together_and_go_on_without_the_dead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
