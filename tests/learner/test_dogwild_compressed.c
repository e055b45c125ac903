/* Dogwild's streams whose deltas go compressed, over a network that does as a script says, beside a
 * reference in double that replays the same script. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/learner/web.h"

static void compressed_streams_do_as_a_reference_in_double(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 10 * EXACT_CODES; seed++) {
        const struct scripted_odds odds = {
            .acts = 30 + 2 * (uint32_t)seed % 40, .lost = 20, .twice = 20, .ahead = 40};
        struct web web;
        trp_rng rng;
        trp_rng_init(&rng, 15, seed);
        web_begin_as(&web, FEW, &codes[seed % EXACT_CODES]);
        web.step = long_step;
        for (size_t n = 0; n < 600; n++)
            scripted_draw(web.net, &rng, &odds);
        assert_as_reference(&web);
        assert_true(web.streams[0].counters.old > 0);
        web_end(&web);
    }
}

/* What a code has not got is of later deltas: once all rest nothing is missing, or there twice. */
static void compressed_replicas_have_every_step(void **state)
{
    (void)state;
    for (size_t k = 0; k < CODES; k++) {
        const struct scripted_odds odds = {.acts = 15, .twice = 20, .ahead = 50};
        struct web web;
        trp_rng rng;
        trp_rng_init(&rng, 16, k);
        web_begin_as(&web, NUMBERS_HERE, &codes[k]);
        scripted_play(web.net, "1 2 3 *");
        web.step = long_step;
        for (size_t n = 0; n < 800; n++)
            scripted_draw(web.net, &rng, &odds);
        web.step = NULL;
        for (size_t n = 0; n < 40; n++)
            scripted_play(web.net, "* 1 2 3 *");
        for (size_t i = 0; i < NUMBERS_HERE; i++) {
            struct web at = {.acts = {0}};
            double sum = (double)(i % 13), moved = 1;
            for (uint32_t self = 0; self < PEERS; self++)
                for (at.acts[self] = 0; at.acts[self] < web.acts[self]; at.acts[self]++) {
                    sum += long_step(&at, self, i);
                    moved += fabs(long_step(&at, self, i));
                }
            double slack = k < EXACT_CODES ? 0 : 0.01 * moved;
            assert_true(fabs((double)number_of(&web, 0, i) - sum) <= slack);
        }
        if (k < EXACT_CODES)
            assert_all_equal(&web);
        web_end(&web);
    }
}

/* A delta of 256 numbers and its answer, which goes as it is. */
static void deltas_have_as_many_bytes_as_the_formulas_say(void **state)
{
    static const size_t bytes[CODES] = {512, 512, 8 * 77, 8 + 32, 4 + 208};
    const size_t head = offsetof(struct stream_message, numbers);
    (void)state;
    for (size_t k = 0; k < CODES; k++) {
        struct web web;
        struct stream_message message, answer;
        web_begin_as(&web, DOGWILD_NUMBERS, &codes[k]);
        web.step = long_step;
        step_of(&web, 1);
        stream_begin_pass(&web.streams[1]);
        assert_int_equal(stream_ask(&web.streams[1], &message), head + bytes[k]);
        assert_int_equal(stream_take(&web.streams[0], &message, head + bytes[k], &answer),
                         head + 4 * DOGWILD_NUMBERS);
        assert_int_equal(web.streams[1].counters.bytes, head + bytes[k]);
        message.sequence++; /* which is of so many words, and no others */
        assert_int_equal(stream_take(&web.streams[0], &message, head + bytes[k] - 4, &answer), 0);
        memset(message.numbers, 0xff, sizeof message.numbers); /* nor of numbers that are none */
        stream_take(&web.streams[0], &message, head + bytes[k], &answer);
        assert_int_equal(web.streams[0].counters.strange, k == 1 ? 1 : 2); /* f16 has them */
        web_end(&web);
    }
}

static void dropped_deltas_leave_the_loss_in_its_band(void **state)
{
    (void)state;
    for (size_t k = 0; k < CODES; k++)
        assert_true(loss_with(30, &codes[k]) < 0.06);
}

/* As target networks, whose learner may have moved them meanwhile. */
static void numbers_that_nobody_learns_come_whole(void **state)
{
    (void)state;
    struct stream streams[2];
    struct stream_message message, answer;
    shared_pair pairs[2][FEW / 2 + 1] = {0};
    _Atomic uint64_t steps[2] = {0};
    float numbers[2][FEW + 1];
    for (uint32_t rank = 0; rank < 2; rank++) {
        const struct stream_chunk chunk = {.values = pairs[rank], .count = FEW, .once = true};
        stream_create(&streams[rank], &chunk, 1, LAYOUT, &steps[rank]);
        stream_compress(&streams[rank], &codes[0]);
        enter(&streams[rank], 1, rank, 2);
        for (size_t i = 0; i < FEW; i++)
            numbers[rank][i] = (float)(i * 1000003 + rank * 70001);
        put_shared(pairs[rank], numbers[rank], FEW);
    }
    stream_begin_pass(&streams[1]);
    size_t bytes = stream_ask(&streams[1], &message);
    bytes = stream_take(&streams[0], &message, bytes, &answer);
    stream_take(&streams[1], &answer, bytes, &message);
    load_shared(pairs[1], numbers[1], FEW);
    assert_memory_equal(numbers[1], numbers[0], FEW * sizeof(float));
    for (uint32_t rank = 0; rank < 2; rank++)
        stream_destroy(&streams[rank]);
}

enum { WORKERS = 3, ROUNDED = 2 * DOGWILD_NUMBERS, PASSES = 1024 };
static const struct compress_options coarse = {.kind = COMPRESS_QSGD, .bits = 3};

/* Words of the next delta. */
static size_t next_delta(struct stream *stream, struct stream_message *message)
{
    size_t bytes = stream_ask(stream, message);
    assert_true(bytes > 0);
    return (bytes - offsetof(struct stream_message, numbers)) / sizeof(float);
}

/* Each pass of a learner rounds the same numbers, of two chunks; the sums of what others make of
 * them. */
static void round_often(uint32_t rank, const float *numbers, struct stream_message *messages,
                        double *sums)
{
    static const float zeros[ROUNDED];
    shared_pair pairs[ROUNDED / 2] = {0};
    struct stream_chunk chunks[2] = {
        {.values = pairs, .count = DOGWILD_NUMBERS},
        {.values = pairs + DOGWILD_NUMBERS / 2, .count = DOGWILD_NUMBERS}};
    struct stream stream;
    _Atomic uint64_t steps = 0;
    stream_create(&stream, chunks, 2, LAYOUT, &steps);
    stream_compress(&stream, &coarse);
    for (uint64_t n = 0; n < PASSES; n++) {
        put_shared(pairs, zeros, ROUNDED);
        stream_begin(&stream, &(struct stream_place){
                                  .generation = n, .rank = rank, .size = WORKERS, .fresh = true});
        put_shared(pairs, numbers, ROUNDED);
        stream_begin_pass(&stream);
        for (size_t k = 0; k < 2; k++) {
            struct stream_message *message = &messages[2 * n + k];
            float decoded[DOGWILD_NUMBERS];
            uint32_t words[DOGWILD_NUMBERS];
            size_t count = next_delta(&stream, message);
            memcpy(words, message->numbers, count * sizeof *words);
            assert_int_equal(compress_loose_decode(&coarse, words, count, decoded, DOGWILD_NUMBERS),
                             TRP_OK);
            for (size_t i = 0; i < DOGWILD_NUMBERS; i++)
                sums[message->chunk * DOGWILD_NUMBERS + i] += (double)decoded[i];
        }
    }
    stream_destroy(&stream);
}

/* Those of a chunk and a rank would err the same way each time, and with them the mean. */
static void no_delta_is_rounded_as_another_one(void **state)
{
    (void)state;
    enum { ALIKE = 64 }; /* numbers that are the same in both chunks */
    static struct stream_message messages[WORKERS][2 * PASSES];
    float numbers[ROUNDED];
    double sums[WORKERS][ROUNDED] = {{0}}, norm = 0;
    for (size_t i = 0; i < ROUNDED; i++) {
        numbers[i] = (float)(i % ALIKE) - 20;
        norm += i < DOGWILD_NUMBERS ? pow((double)numbers[i], 2) : 0;
    }
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        round_often(rank, numbers, messages[rank], sums[rank]);
        for (size_t i = 0; i < ROUNDED; i++) /* of 3 levels; 5 standard deviations at most */
            assert_true(fabs(sums[rank][i] / PASSES - (double)numbers[i]) <
                        5 * sqrt(norm) / 3 / 2 / sqrt(PASSES));
    }
    for (size_t a = 0; a < WORKERS * 16; a++)
        for (size_t b = 0; b < a; b++)
            assert_memory_not_equal(messages[a % WORKERS][a / WORKERS].numbers,
                                    messages[b % WORKERS][b / WORKERS].numbers, 16 * sizeof(float));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compressed_streams_do_as_a_reference_in_double),
        cmocka_unit_test(compressed_replicas_have_every_step),
        cmocka_unit_test(deltas_have_as_many_bytes_as_the_formulas_say),
        cmocka_unit_test(dropped_deltas_leave_the_loss_in_its_band),
        cmocka_unit_test(numbers_that_nobody_learns_come_whole),
        cmocka_unit_test(no_delta_is_rounded_as_another_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
