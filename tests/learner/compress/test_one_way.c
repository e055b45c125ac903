/* Gradients that go compressed one way, as to parameter servers: what came and what was kept is
 * what was summed up, codes are as long as the formulas say, and what is no code is refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/alloc.h"
#include "learner/compress/compress.h"

enum { VECTOR = 3 * 512 + 100, SUMS = 24, ROWS = 6, COLUMNS = 128 };

/* A matrix, between numbers that are of none. */
static const trp_net_tensor matrix = {.rank = 2,
                                      .offset = 512,
                                      .count = ROWS * COLUMNS,
                                      .axis_count = 2,
                                      .axes = {{ROWS, COLUMNS}, {COLUMNS, 1}}};

/* Of 11 bits, more than bf16 has. */
static float integer_at(uint64_t sum, size_t i)
{
    return (float)((i * 7919 + sum * 1299709) % 2039) - 1019;
}

static struct compressor *one_way(enum compression kind, size_t lo, size_t hi)
{
    const struct compress_options options = {.kind = kind, .ratio = 0.05, .bits = 4};
    return compressor_create_one_way(&options, lo, hi, &matrix, 1);
}

/* Sums of integers that go in ranges of the vector; the largest number that is lost. */
static double lost_of(enum compression kind, const size_t *cuts, size_t ranges)
{
    double got[VECTOR] = {0}, most = 0;
    struct compressor *each[3];
    for (size_t k = 0; k < ranges; k++)
        each[k] = one_way(kind, cuts[k], cuts[k + 1]);
    for (uint64_t sum = 0; sum < SUMS; sum++)
        for (size_t k = 0; k < ranges; k++) {
            float grads[VECTOR], values[VECTOR];
            size_t count = cuts[k + 1] - cuts[k];
            for (size_t i = 0; i < count; i++)
                grads[i] = integer_at(sum, cuts[k] + i);
            struct compress_code code = compressor_encode(each[k], grads);
            assert_int_equal(code.kind, kind);
            assert_int_equal(compress_decode(&code, values, count), TRP_OK);
            for (size_t i = 0; i < count; i++)
                got[cuts[k] + i] += (double)values[i] - (double)grads[i];
        }
    for (size_t k = 0; k < ranges; k++) {
        float rest[VECTOR] = {0};
        compressor_add_rest(each[k], rest);
        compressor_destroy(each[k]);
        for (size_t i = cuts[k]; i < cuts[k + 1]; i++)
            most = fmax(most, fabs(got[i] + (double)rest[i - cuts[k]]));
    }
    return most;
}

static void what_came_and_what_was_kept_are_the_gradients(void **state)
{
    static const size_t whole[] = {0, VECTOR}, three[] = {0, 528, 1200, VECTOR};
    (void)state;
    const enum compression exact[] = {COMPRESS_BF16, COMPRESS_F16, COMPRESS_TOP_K};
    for (size_t k = 0; k < sizeof exact / sizeof *exact; k++) {
        assert_true(lost_of(exact[k], whole, 1) == 0);
        assert_true(lost_of(exact[k], three, 3) == 0);
    }
    assert_true(lost_of(COMPRESS_ONE_BIT, whole, 1) < 0.1); /* of sums of 12000 */
    assert_true(lost_of(COMPRESS_ONE_BIT, three, 3) < 0.1);
}

/* QSGD keeps nothing: the mean of what comes is the gradient (Alistarh et al. 2017). */
static void levels_are_right_on_average(void **state)
{
    enum { TIMES = 4000 };
    (void)state;
    double sums[64] = {0};
    float grads[64], values[64];
    double norm2 = 0;
    struct compressor *c = one_way(COMPRESS_QSGD, 0, 64);
    for (size_t i = 0; i < 64; i++) {
        grads[i] = integer_at(3, i);
        norm2 += (double)grads[i] * (double)grads[i];
    }
    for (size_t n = 0; n < TIMES; n++) {
        struct compress_code code = compressor_encode(c, grads);
        assert_int_equal(compress_decode(&code, values, 64), TRP_OK);
        for (size_t i = 0; i < 64; i++)
            sums[i] += (double)values[i];
    }
    /* The variance of a number is below (norm / 7)^2 / 4: five times that of the mean. */
    for (size_t i = 0; i < 64; i++)
        assert_float_equal(sums[i] / TIMES, (double)grads[i],
                           5 * sqrt(norm2) / 7 / 2 / sqrt(TIMES));
    compressor_destroy(c);
}

static void codes_are_as_long_as_the_formulas_say(void **state)
{
    static const struct {
        enum compression kind;
        size_t lo, hi, words, runs;
    } rows[] = {
        {COMPRESS_BF16, 0, VECTOR, VECTOR / 2, 2},      /* two in a word; 512 three times, 100 */
        {COMPRESS_F16, 3, 10, 4, 1},                    /* of the odd one half is empty */
        {COMPRESS_TOP_K, 0, VECTOR, 2 * 82, 0},         /* ceil(0.05 * 1636) places and numbers */
        {COMPRESS_QSGD, 0, VECTOR, 4 + 3 * 64 + 13, 2}, /* norms; eight in a word */
        /* Rows of the matrix are its columns in memory: 16 + 2; 6 * (4 + 2); 12 + 2. */
        {COMPRESS_ONE_BIT, 0, VECTOR, 18 + 36 + 14, 3},
        /* 50 numbers of the first row, 70 of the second. */
        {COMPRESS_ONE_BIT, 512 + 78, 512 + 198, 2 + 2 + 2 + 3, 2},
    };
    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        float grads[VECTOR];
        for (size_t i = 0; i < VECTOR; i++)
            grads[i] = integer_at(0, i);
        struct compressor *c = one_way(rows[k].kind, rows[k].lo, rows[k].hi);
        struct compress_code code = compressor_encode(c, grads);
        assert_int_equal(code.word_count, rows[k].words);
        assert_int_equal(code.run_words, 2 * rows[k].runs);
        compressor_destroy(c);
    }
}

/* A column of equal numbers is exact, whatever is in the others (Seide et al. 2014). */
static void a_column_of_equal_numbers_is_exact(void **state)
{
    (void)state;
    float grads[VECTOR], values[VECTOR];
    struct compressor *c = one_way(COMPRESS_ONE_BIT, 0, VECTOR);
    for (size_t i = 0; i < VECTOR; i++)
        grads[i] = i / COLUMNS == 6 ? -3.7F : integer_at(0, i);
    struct compress_code code = compressor_encode(c, grads);
    assert_int_equal(compress_decode(&code, values, VECTOR), TRP_OK);
    for (size_t i = 6 * COLUMNS; i < 7 * COLUMNS; i++)
        assert_true(values[i] == -3.7F);
    compressor_destroy(c);
}

static void powersgd_does_not_go_one_way(void **state)
{
    (void)state;
    assert_null(one_way(COMPRESS_POWERSGD, 0, VECTOR));
}

/* ---- what is no code ------------------------------------------------------------------------- */

static void assert_no_code(struct compress_code code, size_t count, const char *why)
{
    float values[256];
    assert_true(count <= 256);
    assert_int_equal(compress_decode(&code, values, count), TRP_INVALID_ARGUMENT);
    if (!strstr(trp_last_error(), why))
        fail_msg("'%s' does not say '%s'", trp_last_error(), why);
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void places_that_are_none_are_refused(void **state)
{
    (void)state;
    uint32_t words[] = {3, 7, bits_of(1), bits_of(-2)};
    struct compress_code code = {.kind = COMPRESS_TOP_K, .words = words, .word_count = 4};
    float values[8];
    assert_int_equal(compress_decode(&code, values, 8), TRP_OK);
    assert_true(values[3] == 1 && values[7] == -2 && values[0] == 0);
    assert_no_code(code, 7, "has number 7 of 7");
    assert_no_code(code, 1, "are no code top-k of 1 numbers");
    code.word_count = 3;
    assert_no_code(code, 8, "3 words and 0 of runs are no code top-k");
    code.word_count = 4;
    words[0] = 7; /* twice */
    assert_no_code(code, 8, "has number 7 of 8, behind number 8");
    words[0] = UINT32_MAX;
    assert_no_code(code, 8, "has number 4294967295 of 8");
    words[0] = 0;
    words[3] = bits_of(NAN);
    assert_no_code(code, 8, "top-k has a number at 7 that is not finite");
}

static void lengths_that_do_not_fit_are_refused(void **state)
{
    static const uint32_t wrong[][2] = {{64, 1},         {64, 3},  {0, 2},
                                        {64, 0},         {128, 2}, {UINT32_MAX, UINT32_MAX},
                                        {UINT32_MAX, 1}, {1, 128}, {1, UINT32_MAX}};
    (void)state;
    uint32_t words[8] = {0}, right[] = {64, 2};
    float values[128];
    struct compress_code code = {
        .kind = COMPRESS_ONE_BIT, .runs = right, .run_words = 2, .words = words, .word_count = 8};
    assert_int_equal(compress_decode(&code, values, 128), TRP_OK);
    assert_no_code(code, 127, "are no code one-bit of 127 numbers");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        code.runs = wrong[i];
        assert_no_code(code, 128, "are no code one-bit of 128 numbers");
    }
    code.runs = right;
    code.run_words = 1;
    assert_no_code(code, 128, "are no code");
    code.run_words = 2;
    code.word_count = 7;
    assert_no_code(code, 128, "7 words");
    const enum compression none[] = {COMPRESS_NONE, COMPRESS_POWERSGD};
    for (size_t i = 0; i < 2; i++) {
        code.kind = none[i];
        assert_no_code(code, 128, "are no code");
    }
}

static void scales_and_numbers_that_are_not_finite_are_refused(void **state)
{
    (void)state;
    uint32_t words[33] = {0}, runs[] = {128, 1};
    struct compress_code code = {.runs = runs, .run_words = 2, .words = words};
    const float unfit[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < 3; i++) {
        code.kind = COMPRESS_ONE_BIT;
        code.word_count = 6;
        words[1] = bits_of(unfit[i]); /* of no number, as all signs are positive */
        memset(words + 2, 0xff, 16);
        assert_no_code(code, 128, "one-bit has a scale at 1 that is not finite");
        memset(words, 0, sizeof words);
        code.kind = COMPRESS_QSGD;
        code.bits = 8;
        code.word_count = 33;
        words[0] = bits_of(unfit[i]);
        assert_no_code(code, 128, "qsgd has a scale at 0 that is not finite");
        words[0] = 0;
        code.kind = COMPRESS_BF16;
        code.word_count = 32;
        runs[0] = 64;
        words[9] = bits_of(unfit[i]);
        assert_no_code(code, 64, "bf16 has a number at 0 that is not finite");
        runs[0] = 128;
        memset(words, 0, sizeof words);
    }
    code.kind = COMPRESS_QSGD;
    for (uint32_t bits = 0; bits < 40; bits = bits == 1 ? 9 : bits + 1) {
        code.bits = bits;
        assert_no_code(code, 128, "qsgd of 128 numbers");
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_came_and_what_was_kept_are_the_gradients),
        cmocka_unit_test(levels_are_right_on_average),
        cmocka_unit_test(codes_are_as_long_as_the_formulas_say),
        cmocka_unit_test(a_column_of_equal_numbers_is_exact),
        cmocka_unit_test(powersgd_does_not_go_one_way),
        cmocka_unit_test(places_that_are_none_are_refused),
        cmocka_unit_test(lengths_that_do_not_fit_are_refused),
        cmocka_unit_test(scales_and_numbers_that_are_not_finite_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
