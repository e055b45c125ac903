/* Option tables: every type, both ends of every range, what is refused and in which words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/hash.h"
#include "core/option_table.h"

typedef struct {
    bool flag;
    int32_t small;
    uint32_t count;
    int64_t wide;
    uint64_t total;
    float rate;
    double share;
    const char *label;
    uint32_t widths[3];
    uint32_t kind;
    float clip;
    uint32_t unlisted;
} all_options;

#define ROW(member, ...)                                                                           \
    {                                                                                              \
        TRP_OPTION(all_options, member), __VA_ARGS__                                               \
    }

static const char *const kinds[] = {"red", "green", "blue", NULL};
static const trp_option rows[] = {
    ROW(flag, .help = "a flag"),
    ROW(small, .fallback = "-5", .min = -10, .max = 10, .help = "small"),
    ROW(count, .fallback = "20", .min = 1, .max = 1000, .unit = "steps", .help = "counts"),
    ROW(wide, .needs = "label=no*|some", .help = "any"),
    ROW(total, .fallback = "7", .min = 1, .max = INFINITY, .needs = "clip!=0|10", .help = "many"),
    ROW(rate, .fallback = "0.1", .max = 1, .help = "a float"),
    ROW(share, .needs = "kind=green|blue", .help = "a double"),
    ROW(label, .fallback = "none", .help = "a text"),
    ROW(widths, .fallback = "64,32", .max = 4096, .help = "a list"),
    ROW(kind, .choices = kinds, .help = "a choice"),
    ROW(clip, .fallback = "10", .max = 100, .negative_is_zero = true, .help = "may be 0 in C"),
};
static const trp_option_table table = TRP_OPTION_TABLE("mine", rows, all_options);

struct fixture {
    all_options options; /* the defaults */
};

static int setup(void **state)
{
    struct fixture *fixture = xcalloc(1, sizeof *fixture);
    trp_options_resolve(&table, NULL, &fixture->options);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    trp_options_cleanup(&table, &fixture->options);
    free(fixture);
    return 0;
}

static void assert_value(const all_options *options, const char *name, const char *value)
{
    char *text = option_value(option_find(&table, name), options);
    assert_string_equal(text, value);
    free(text);
}

/* ---- defaults ---------------------------------------------------------------------------- */

static void zeros_become_defaults(void **state)
{
    struct fixture *fixture = *state;
    const struct {
        const char *name, *value;
    } defaults[] = {
        {"flag", "false"}, {"small", "-5"},     {"count", "20"}, {"wide", "0"},
        {"total", "7"},    {"rate", "0.1"},     {"share", "0"},  {"label", "none"},
        {"kind", "red"},   {"widths", "64,32"}, {"clip", "10"},
    };
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) {
        assert_value(&fixture->options, defaults[i].name, defaults[i].value);
        char *text = option_default(option_find(&table, defaults[i].name));
        assert_string_equal(text, defaults[i].value);
        free(text);
    }
    assert_true(fixture->options.rate == 0.1F);
    assert_int_equal(trp_options_check(&table, &fixture->options), TRP_OK);
}

static void what_is_given_in_c_is_kept(void **state)
{
    (void)state;
    const all_options given = {.flag = true,
                               .small = 3,
                               .count = 5,
                               .wide = INT64_MIN,
                               .total = UINT64_MAX,
                               .rate = 0.3F,
                               .share = 1.0 / 3,
                               .label = "a b",
                               .widths = {8, 0, 9},
                               .kind = 2,
                               .clip = -1,
                               .unlisted = 9};
    all_options options = {.unlisted = 4};
    trp_options_resolve(&table, &given, &options);
    assert_true(options.flag);
    assert_int_equal(options.small, 3);
    assert_int_equal(options.count, 5);
    assert_true(options.wide == INT64_MIN && options.total == UINT64_MAX);
    assert_true(options.rate == 0.3F && options.share == 1.0 / 3);
    assert_string_equal(options.label, "a b");
    assert_ptr_not_equal(options.label, given.label);
    assert_int_equal(options.widths[0], 8);
    assert_int_equal(options.widths[2], 0); /* behind the end */
    assert_int_equal(options.kind, 2);
    assert_true(options.clip == 0);
    assert_int_equal(options.unlisted, 4);
    trp_options_cleanup(&table, &options);
    assert_null(options.label);
}

/* ---- setting ----------------------------------------------------------------------------- */

static void every_type_is_set_from_its_text(void **state)
{
    struct fixture *fixture = *state;
    const struct {
        const char *name, *value, *text; /* NULL: the same */
    } sets[] = {
        {"flag", "true", NULL},
        {"flag", "false", NULL},
        {"small", "-10", NULL},
        {"small", "0", NULL},
        {"count", "1000", NULL},
        {"count", "1e2", "100"},
        {"wide", "-9223372036854775807", NULL},
        {"wide", "9223372036854775807", NULL},
        {"total", "18446744073709551615", NULL},
        {"rate", "0", NULL},
        {"rate", "0.6", NULL},
        {"rate", "1e-8", "1e-08"},
        {"share", "-0.1", NULL},
        {"share", "1e300", "1e+300"},
        {"share", "0.30000000000000004", NULL},
        {"label", "", NULL},
        {"label", "a=b, c", NULL},
        {"widths", "4096,1,2", NULL},
        {"widths", "", NULL},
        {"kind", "blue", NULL},
        {"kind", "red", NULL},
        {"clip", "0", NULL},
    };
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        assert_int_equal(trp_options_set(&table, &fixture->options, sets[i].name, sets[i].value),
                         TRP_OK);
        assert_value(&fixture->options, sets[i].name, sets[i].text ? sets[i].text : sets[i].value);
    }
    assert_true(fixture->options.share == 0.30000000000000004);
}

static void both_ends_of_a_range_are_values_where_a_float_rounds_them_to_its_outside(void **state)
{
    (void)state;
    static const trp_option ends[] = {ROW(rate, .min = 1e-6, .max = 1e30, .help = "a float")};
    const trp_option_table floats = TRP_OPTION_TABLE("floats", ends, all_options);
    all_options options = {0};
    assert_true((double)1e-6F < 1e-6 && (double)1e30F > 1e30);
    assert_int_equal(trp_options_set(&floats, &options, "rate", "1e-6"), TRP_OK);
    assert_int_equal(trp_options_set(&floats, &options, "rate", "1e30"), TRP_OK);
    assert_int_equal(trp_options_set(&floats, &options, "rate", "1.01e30"), TRP_INVALID_ARGUMENT);
    assert_int_equal(trp_options_set(&floats, &options, "rate", "0.99e-6"), TRP_INVALID_ARGUMENT);
}

static void wrong_values_are_refused_with_what_is_allowed(void **state)
{
    struct fixture *fixture = *state;
    const struct {
        const char *name, *value, *words;
    } sets[] = {
        {"flag", "1", "flag is 1, must be true or false"},
        {"flag", "", "flag is '', must be true or false"},
        {"small", "11", "small is 11, must be a whole number in [-10, 10]"},
        {"small", "1.5", "small is 1.5, must be a whole number in [-10, 10]"},
        {"count", "0", "count is 0, must be a whole number of steps in [1, 1000]"},
        {"count", "1001", "must be a whole number of steps in [1, 1000]"},
        {"count", "five", "count is five, must be a whole number of steps"},
        {"count", "-1", "must be a whole number"},
        {"count", "4294967297", "must be a whole number"},
        {"count", "0x10", "must be a whole number"},
        {"count", " 5", "must be a whole number"},
        {"count", "5 ", "must be a whole number"},
        {"count", "99999999999999999999", "must be a whole number"},
        {"count", "true", "must be a whole number"},
        {"wide", "9223372036854775808", "wide is 9223372036854775808, must be a whole number"},
        {"total", "0", "total is 0, must be a whole number, at least 1"},
        {"total", "18446744073709551616", "must be a whole number, at least 1"},
        {"rate", "1.1", "rate is 1.1, must be a number in [0, 1]"},
        {"rate", "-0.1", "must be a number in [0, 1]"},
        {"rate", "nan", "must be a number in [0, 1]"},
        {"share", "inf", "share is inf, must be a number"},
        {"share", "1e999", "must be a number"},
        {"share", "0x1p3", "must be a number"},
        {"widths", "64,32,16,8",
         "widths is 64,32,16,8, must be at most 3 whole numbers in [1, 4096]"},
        {"widths", "64,0", "must be at most 3 whole numbers in [1, 4096]"},
        {"widths", "64,", "must be at most 3"},
        {"widths", ",64", "must be at most 3"},
        {"widths", "4097", "must be at most 3"},
        {"widths", "64 32", "must be at most 3"},
        {"kind", "pink", "kind is pink, must be red, green or blue"},
        {"kind", "1", "kind is 1, must be red, green or blue"},
    };
    uint64_t before = options_hash(HASH_BYTES_EMPTY, &table, &fixture->options);
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        assert_int_equal(trp_options_set(&table, &fixture->options, sets[i].name, sets[i].value),
                         TRP_INVALID_ARGUMENT);
        if (!strstr(trp_last_error(), sets[i].words))
            fail_msg("'%s' is not in '%s'", sets[i].words, trp_last_error());
    }
    assert_true(options_hash(HASH_BYTES_EMPTY, &table, &fixture->options) == before);
}

static void an_unknown_name_is_told_the_nearest_one(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(trp_options_set(&table, &fixture->options, "conut", "5"),
                     TRP_INVALID_ARGUMENT);
    assert_string_equal(trp_last_error(), "mine has no option 'conut'; did you mean 'count'?");
    assert_int_equal(trp_options_set(&table, &fixture->options, "unlisted", "5"),
                     TRP_INVALID_ARGUMENT);
    assert_string_equal(trp_last_error(), "mine has no option 'unlisted'");
    assert_null(option_find(&table, "conut"));
}

/* ---- checking and hashing ---------------------------------------------------------------- */

static void a_check_names_the_option_its_value_and_its_range(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.rate = NAN;
    assert_int_equal(trp_options_check(&table, &fixture->options), TRP_INVALID_ARGUMENT);
    assert_string_equal(trp_last_error(), "rate is nan, must be a number in [0, 1]");
    fixture->options.rate = 1;
    fixture->options.share = INFINITY;
    assert_int_equal(trp_options_check(&table, &fixture->options), TRP_INVALID_ARGUMENT);
    assert_string_equal(trp_last_error(), "share is inf, must be a number");
    fixture->options.share = 0;
    fixture->options.widths[1] = 5000;
    assert_int_equal(trp_options_check(&table, &fixture->options), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "widths is 64,5000, must be at most 3"));
    fixture->options.widths[1] = 0;
    fixture->options.kind = 3;
    assert_int_equal(trp_options_check(&table, &fixture->options), TRP_INVALID_ARGUMENT);
    assert_string_equal(trp_last_error(), "kind is 3, must be red, green or blue");
}

static void every_option_changes_the_hash(void **state)
{
    struct fixture *fixture = *state;
    const char *const others[] = {"true", "1", "1",     "1",    "1", "0.10000001",
                                  "1",    "x", "64,33", "blue", "0"};
    for (size_t i = 0; i < table.count; i++) {
        uint64_t before = options_hash(HASH_BYTES_EMPTY, &table, &fixture->options);
        assert_int_equal(trp_options_set(&table, &fixture->options, rows[i].name, others[i]),
                         TRP_OK);
        assert_true(options_hash(HASH_BYTES_EMPTY, &table, &fixture->options) != before);
    }
}

static void an_option_that_nobody_reads_is_idle_unless_it_is_its_default(void **state)
{
    struct fixture *fixture = *state;
    const trp_option *share = option_find(&table, "share"), *rate = option_find(&table, "rate");
    const struct {
        const char *kind, *share;
        bool idle;
    } cases[] = {{"red", "0", false},
                 {"red", "0.5", true},
                 {"green", "0.5", false},
                 {"blue", "0.5", false},
                 {"green", "0", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(trp_options_set(&table, &fixture->options, "kind", cases[i].kind), TRP_OK);
        assert_int_equal(trp_options_set(&table, &fixture->options, "share", cases[i].share),
                         TRP_OK);
        assert_int_equal(option_is_idle(&table, share, &fixture->options), cases[i].idle);
    }
    fixture->options.rate = 0.5f;
    assert_false(option_is_idle(&table, rate, &fixture->options));
    assert_null(option_needs(rate));
    const char *const labels[] = {"none", "no", "some", "somebody", "n", "a no"};
    const trp_option *wide = option_find(&table, "wide");
    fixture->options.wide = 1;
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(trp_options_set(&table, &fixture->options, "label", labels[i]), TRP_OK);
        assert_int_equal(option_is_idle(&table, wide, &fixture->options), i >= 3);
    }
    char *needs = option_needs(share);
    assert_string_equal(needs, "kind=green or blue");
    free(needs);
}

static void an_option_is_idle_where_another_one_has_a_value_that_it_must_not_have(void **state)
{
    struct fixture *fixture = *state;
    const trp_option *total = option_find(&table, "total");
    const char *const clips[] = {"0", "10", "1", "100", "0.5"};
    fixture->options.total = 8;
    for (size_t i = 0; i < sizeof clips / sizeof *clips; i++) {
        assert_int_equal(trp_options_set(&table, &fixture->options, "clip", clips[i]), TRP_OK);
        assert_int_equal(option_is_idle(&table, total, &fixture->options), i < 2);
    }
    char *needs = option_needs(total);
    assert_string_equal(needs, "clip other than 0 or 10");
    free(needs);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(zeros_become_defaults),
        TEST(what_is_given_in_c_is_kept),
        TEST(every_type_is_set_from_its_text),
        TEST(both_ends_of_a_range_are_values_where_a_float_rounds_them_to_its_outside),
        TEST(wrong_values_are_refused_with_what_is_allowed),
        TEST(an_unknown_name_is_told_the_nearest_one),
        TEST(a_check_names_the_option_its_value_and_its_range),
        TEST(every_option_changes_the_hash),
        TEST(an_option_that_nobody_reads_is_idle_unless_it_is_its_default),
        TEST(an_option_is_idle_where_another_one_has_a_value_that_it_must_not_have),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
