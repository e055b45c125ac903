/* Table options as text: what parses, what does not and why, and that the text of options parses
 * back to them. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <troupe/replay.h>
#include <troupe/rng.h>
#include "core/alloc.h"

static trp_table_options *parse(const char *line)
{
    trp_table_options *options = NULL;
    trp_status status = trp_table_options_parse(line, &options);
    if (status != TRP_OK)
        print_message("%s: %s\n", line, trp_last_error());
    assert_int_equal(status, TRP_OK);
    return options;
}

static bool selectors_equal(trp_selector a, trp_selector b)
{
    return a.kind == b.kind && (a.kind != TRP_PRIORITIZED || a.exponent == b.exponent);
}

static void assert_options_equal(const trp_table_options *a, const trp_table_options *b)
{
    assert_string_equal(a->name, b->name);
    assert_true(selectors_equal(a->sampler, b->sampler));
    assert_true(selectors_equal(a->remover, b->remover));
    assert_int_equal(a->max_size, b->max_size);
    assert_int_equal(a->max_times_sampled, b->max_times_sampled);
    assert_true(a->max_bytes == b->max_bytes);
    assert_string_equal(a->insert_on_sample ? a->insert_on_sample : "",
                        b->insert_on_sample ? b->insert_on_sample : "");
    assert_int_equal(a->no_replacement, b->no_replacement);
    assert_true(a->seed == b->seed);
    assert_true(a->limiter.samples_per_insert == b->limiter.samples_per_insert);
    assert_int_equal(a->limiter.min_size, b->limiter.min_size);
    assert_true(a->limiter.min_diff == b->limiter.min_diff);
    assert_true(a->limiter.max_diff == b->limiter.max_diff);
}

/* ---- good lines -------------------------------------------------------------------------- */

static void a_full_line_gives_all_options(void **state)
{
    (void)state;
    trp_table_options *options =
        parse("name=x sampler=prioritized(0.6) remover=lifo max_size=100000 "
              "limiter=samples_per_insert(8,1000,100.5) max_times_sampled=3");
    assert_string_equal(options->name, "x");
    assert_int_equal(options->sampler.kind, TRP_PRIORITIZED);
    assert_true(options->sampler.exponent == 0.6);
    assert_int_equal(options->remover.kind, TRP_LIFO);
    assert_true(options->remover_set);
    assert_int_equal(options->max_size, 100000);
    assert_int_equal(options->max_times_sampled, 3);
    assert_true(options->limiter.samples_per_insert == 8);
    assert_int_equal(options->limiter.min_size, 1000);
    assert_true(options->limiter.min_diff == 7899.5);
    assert_true(options->limiter.max_diff == 8100.5);
    assert_int_equal(options->signature.size, 0);
    trp_table_options_destroy(options);
}

static void a_name_alone_gives_the_defaults(void **state)
{
    (void)state;
    trp_table_options *options = parse("  name=a=b(c \t\n");
    assert_string_equal(options->name, "a=b(c");
    assert_int_equal(options->sampler.kind, TRP_UNIFORM);
    assert_int_equal(options->remover.kind, TRP_FIFO);
    assert_int_equal(options->max_size, 1000000);
    assert_int_equal(options->max_times_sampled, 0);
    assert_int_equal(options->limiter.min_size, 1);
    assert_true(options->limiter.max_diff == DBL_MAX);
    trp_table_options_destroy(options);
}

static void every_selector_has_its_word(void **state)
{
    (void)state;
    const struct {
        const char *word;
        trp_selector selector;
    } rows[] = {
        {"fifo", {TRP_FIFO, 0}},         {"lifo", {TRP_LIFO, 0}},
        {"uniform", {TRP_UNIFORM, 0}},   {"prioritized(0)", {TRP_PRIORITIZED, 0}},
        {"max_heap", {TRP_MAX_HEAP, 0}}, {"prioritized( 1.5e0 )", {TRP_PRIORITIZED, 1.5}},
        {"min_heap", {TRP_MIN_HEAP, 0}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char line[128];
        snprintf(line, sizeof line, "remover=%s name=t sampler=%s", rows[i].word, rows[i].word);
        trp_table_options *options = parse(line);
        assert_true(selectors_equal(options->sampler, rows[i].selector));
        assert_true(selectors_equal(options->remover, rows[i].selector));
        trp_table_options_destroy(options);
    }
}

static void every_limiter_has_its_form(void **state)
{
    (void)state;
    const struct {
        const char *word;
        trp_rate_limiter limiter;
    } rows[] = {
        {"min_size(7)", {1, 7, -DBL_MAX, DBL_MAX}},
        {"queue(9)", {1, 1, 0, 9}},
        {"stack(9)", {1, 1, 0, 9}},
        {"samples_per_insert(2, 2, 4.0)", {2, 2, 0, 8}},
        {"samples_per_insert(0.5,10,1)", {0.5, 10, 4, 6}},
        {"rate(4,5,-1.5,7)", {4, 5, -1.5, 7}},
        {"rate(0.1,1,-inf,inf)", {0.1, 1, -DBL_MAX, DBL_MAX}},
        {"rate( 1 , 1 , 3 , 3 )", {1, 1, 3, 3}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char line[128];
        snprintf(line, sizeof line, "name=t limiter=%s max_size=5", rows[i].word);
        trp_table_options *options = parse(line);
        const trp_rate_limiter *a = &options->limiter, *b = &rows[i].limiter;
        assert_true(a->samples_per_insert == b->samples_per_insert);
        assert_int_equal(a->min_size, b->min_size);
        assert_true(a->min_diff == b->min_diff);
        assert_true(a->max_diff == b->max_diff);
        assert_int_equal(options->max_size, 5);
        trp_table_options_destroy(options);
    }
}

/* ---- bad lines --------------------------------------------------------------------------- */

static const struct {
    const char *line, *word, *remedy; /* both are in the message */
} bad_lines[] = {
    {"", "", "name=... is missing"},
    {"sampler=fifo", "sampler=fifo", "name=... is missing"},
    {"name=", "name=", "needs a name"},
    {"name=t name=u", "name=u", "name is given twice"},
    {"name=t limiter=queue(1) limiter=queue(1)", "limiter=queue(1)", "given twice"},
    {"name=t colour=red", "'colour=red'", "max_times_sampled="},
    {"name=t fifo", "'fifo'", "sampler="},
    {"name=t sampler", "'sampler'", "sampler="},
    {"name=t Sampler=fifo", "'Sampler=fifo'", "sampler="},
    {"name=t sampler=", "sampler=", "fifo lifo uniform prioritized(EXPONENT) max_heap"},
    {"name=t sampler=heap", "sampler=heap", "max_heap min_heap"},
    {"name=t remover=fif", "remover=fif", "fifo lifo"},
    {"name=t sampler=fifo()", "sampler=fifo()", "takes no numbers"},
    {"name=t sampler=fifo(1)", "sampler=fifo(1)", "takes no numbers"},
    {"name=t sampler=prioritized", "sampler=prioritized", "prioritized(EXPONENT)"},
    {"name=t sampler=prioritized()", "'' is no finite number", "prioritized(EXPONENT)"},
    {"name=t sampler=prioritized(0.6", "sampler=prioritized(0.6", "')'"},
    {"name=t sampler=prioritized(0.6)x", "prioritized(0.6)x", "')'"},
    {"name=t sampler=prioritized(1,2)", "2 numbers where 1", "prioritized(EXPONENT)"},
    {"name=t sampler=prioritized(a)", "'a' is no finite number", "prioritized(EXPONENT)"},
    {"name=t sampler=prioritized(nan)", "'nan' is no finite number", "usage"},
    {"name=t sampler=prioritized(inf)", "'inf' is no finite number", "usage"},
    {"name=t sampler=prioritized(1e999)", "'1e999' is no finite number", "usage"},
    {"name=t sampler=prioritized(-1)", "prioritized(-1)", "must not be negative"},
    {"name=t max_size=0", "max_size=0", "from 1 to 2147483647"},
    {"name=t max_size=-1", "max_size=-1", "from 1 to"},
    {"name=t max_size=1e6", "max_size=1e6", "whole number"},
    {"name=t max_size=", "max_size=", "whole number"},
    {"name=t max_size=+5", "max_size=+5", "whole number"},
    {"name=t max_size=2147483648", "max_size=2147483648", "from 1 to 2147483647"},
    {"name=t max_size=2G", "max_size=2G", "from 1 to 2147483647"},
    {"name=t max_size=K", "max_size=K", "whole number"},
    {"name=t max_bytes=8589934592G", "max_bytes=8589934592G", "whole number"},
    {"name=t max_size=99999999999999999999", "max_size=99999999999999999999", "from 1 to"},
    {"name=t max_times_sampled=-1", "max_times_sampled=-1", "from 0 (no limit)"},
    {"name=t max_times_sampled=2147483648", "max_times_sampled=2147483648", "2147483647"},
    {"name=t limiter=min_size", "limiter=min_size", "min_size(N)"},
    {"name=t limiter=min_size(0)", "'0' is no whole number of at least 1", "min_size(N)"},
    {"name=t limiter=min_size(1.5)", "'1.5' is no whole number", "min_size(N)"},
    {"name=t limiter=queue(0)", "'0' is no whole number", "queue(N)"},
    {"name=t limiter=stack(-2)", "'-2' is no whole number", "stack(N)"},
    {"name=t limiter=fast(1)", "limiter=fast(1)", "rate(SPI,MIN_SIZE,MIN_DIFF,MAX_DIFF)"},
    {"name=t limiter=samples_per_insert(0,1,5)", "(0,1,5)", "SPI must be above 0"},
    {"name=t limiter=samples_per_insert(-1,1,5)", "(-1,1,5)", "SPI must be above 0"},
    {"name=t limiter=samples_per_insert(8,1,7.9)", "(8,1,7.9)", "at least max(1, SPI) = 8"},
    {"name=t limiter=samples_per_insert(0.5,1,0.9)", "0.9", "at least max(1, SPI) = 1"},
    {"name=t limiter=samples_per_insert(8,0,8)", "'0' is no whole number", "MIN_SIZE"},
    {"name=t limiter=samples_per_insert(8,1,inf)", "'inf' is no finite number", "usage"},
    {"name=t limiter=samples_per_insert(8,1)", "2 numbers where 3", "ERROR_BUFFER"},
    {"name=t limiter=rate(1,1,2,1)", "rate(1,1,2,1)", "MIN_DIFF is above MAX_DIFF"},
    {"name=t limiter=rate(1,1,inf,-inf)", "(1,1,inf,-inf)", "MIN_DIFF is above"},
    {"name=t limiter=rate(0,1,1,2)", "rate(0,1,1,2)", "SPI must be above 0"},
    {"name=t limiter=rate(inf,1,1,2)", "'inf' is no finite number", "usage"},
    {"name=t limiter=rate(1,1,nan,2)", "'nan' is neither", "inf or -inf"},
    {"name=t signature=/nonexistent/file", "/nonexistent/file", "No such file"},
    {"name=t signature=/tmp", "signature=/tmp", "Is a directory"},
    {"name=t signature=/dev/null", "/dev/null", "empty"},
    {"name=t signature=/dev/zero", "/dev/zero", "larger than 1048576"},
    {"name=a\x01z", "name", "control character"},
    {"name=a\xff", "name", "not UTF-8"},
};

static void wrong_lines_are_refused_with_the_word_and_the_remedy(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_lines / sizeof bad_lines[0]; i++) {
        trp_table_options *options = (trp_table_options *)1;
        trp_status status = trp_table_options_parse(bad_lines[i].line, &options);
        const char *message = trp_last_error();
        bool named = strstr(message, bad_lines[i].word) && strstr(message, bad_lines[i].remedy);
        if (status != TRP_INVALID_ARGUMENT || !named)
            print_message("line '%s' gave: %s\n", bad_lines[i].line, message);
        assert_int_equal(status, TRP_INVALID_ARGUMENT);
        assert_true(named);
        assert_null(options);
    }
}

static void a_name_is_bounded_and_utf8(void **state)
{
    (void)state;
    const struct {
        const char *name;
        bool good;
    } rows[] = {
        {"\xc3\xa4", true},
        {"\xe2\x82\xac", true},
        {"\xf0\x9f\x8e\xad", true},
        {"\xc0\xaf", false},
        {"\xe0\x80\x80", false},
        {"\xed\xa0\x80", false},
        {"\xf4\x90\x80\x80", false},
        {"\xf0\x80\x80\x80", false},
        {"\x80", false},
        {"\xe2\x82", false},
        {"\xf8\x88\x80\x80", false},
        {"a b", true},
        {" ", true},
        {"a\tb", false},
        {"\xc2\x85", false}, /* C1 */
        {"\xc2\xa0", true},
        {"", false},
        {NULL, false},
        {"\x7f", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        trp_status status = trp_table_options_check(&(trp_table_options){.name = rows[i].name});
        assert_int_equal(status, rows[i].good ? TRP_OK : TRP_INVALID_ARGUMENT);
    }
    char name[257] = {0};
    memset(name, 'n', 255);
    assert_int_equal(trp_table_options_check(&(trp_table_options){.name = name}), TRP_OK);
    name[255] = 'n';
    assert_int_equal(trp_table_options_check(&(trp_table_options){.name = name}),
                     TRP_INVALID_ARGUMENT);
    for (size_t at = 0; at < 4; at++) { /* is told whole characters of */
        memset(name, 'n', sizeof name - 1);
        memcpy(name + 28 + at, "\xf0\x9f\x8e\xad", 4);
        assert_int_equal(trp_table_options_check(&(trp_table_options){.name = name}),
                         TRP_INVALID_ARGUMENT);
        assert_null(strstr(trp_last_error(), "\\x")); /* how half a one is shown */
    }
}

static void a_name_of_any_letters_has_a_line(void **state)
{
    (void)state;
    static const char *const names[] = {"a b", " ",        "\"", "\"a\"",  "a\"b",
                                        "\\",  "a \\\" b", "#",  "a=b,c(", "all"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        trp_table_options options = {.name = names[i], .insert_on_sample = "x y", .seed = 7};
        char *line = trp_table_options_format(&options);
        trp_table_options *again = parse(line);
        assert_string_equal(again->name, names[i]);
        assert_string_equal(again->insert_on_sample, "x y");
        assert_int_equal(again->seed, 7);
        trp_table_options_destroy(again);
        free(line);
    }
    static const struct {
        const char *line, *words;
    } rows[] = {
        {"name=\"a b", "its quotes are not closed"},
        {"name=\"a b\\\"", "its quotes are not closed"},
        {"name=a b", "'b': unknown"},
        {"x max_size=5", "(a table is named by name=x, "},
        {"name=\"\"", "needs a name"},
        {"name=x max_size=\"1 0\"", "not a whole number"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        trp_table_options *options;
        assert_int_equal(trp_table_options_parse(rows[i].line, &options), TRP_INVALID_ARGUMENT);
        assert_non_null(strstr(trp_last_error(), rows[i].words));
    }
}

/* ---- options from C ---------------------------------------------------------------------- */

static void options_that_no_table_can_have_are_refused(void **state)
{
    (void)state;
    const trp_table_options rows[] = {
        {.name = "t", .sampler = {(trp_selector_kind)17, 0}},
        {.name = "t", .sampler = {TRP_PRIORITIZED, NAN}},
        {.name = "t", .sampler = {TRP_PRIORITIZED, -1}},
        {.name = "t", .remover = {TRP_PRIORITIZED, INFINITY}, .remover_set = true},
        {.name = "t", .max_size = -1},
        {.name = "t", .max_size = INT64_MAX},
        {.name = "t", .max_times_sampled = -1},
        {.name = "t", .limiter = trp_limiter_min_size(0)},
        {.name = "t", .limiter = trp_limiter_queue(0)},
        {.name = "t", .limiter = trp_limiter_samples_per_insert(0, 1, 5)},
        {.name = "t", .limiter = trp_limiter_samples_per_insert(1, 0, 5)},
        {.name = "t", .limiter = trp_limiter_samples_per_insert(4, 1, 3)},
        {.name = "t", .limiter = trp_limiter_samples_per_insert(NAN, 1, 3)},
        {.name = "t", .limiter = trp_limiter_samples_per_insert(1, 1, NAN)},
        {.name = "t", .limiter = {.samples_per_insert = 8}},
        {.name = "t", .limiter = {.samples_per_insert = -1, .min_size = 1}},
        {.name = "t", .limiter = {1, 1, 2, 1}},
        {.name = "t", .limiter = {1, 1, NAN, 1}},
        {.name = "t", .signature = {(const uint8_t *)"x", (1 << 20) + 1}},
        /* No protobuf; a string; a scalar, a named tuple and a dict with names that are no UTF-8.
         */
        {.name = "t", .signature = {(const uint8_t *)"\xff\xff\xff", 3}},
        {.name = "t", .signature = {(const uint8_t *)"\x6a\x01x", 3}},
        {.name = "t", .signature = {(const uint8_t *)"\x8a\x02\x03\x0a\x01\xff", 6}},
        {.name = "t", .signature = {(const uint8_t *)"\xb2\x03\x03\x0a\x01\xff", 6}},
        {.name = "t",
         .signature = {(const uint8_t *)"\xaa\x03\x08\x0a\x06\x0a\x01\xff\x8a\x02\x00", 11}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(trp_table_options_check(&rows[i]), TRP_INVALID_ARGUMENT);
        assert_non_null(strstr(trp_last_error(), "table 't'"));
    }
}

static void a_copy_is_deep_and_has_the_defaults_filled_in(void **state)
{
    (void)state;
    char name[] = "deep";
    uint8_t signature[] = {0x8a, 0x02, 0}; /* a TensorSpec that says nothing */
    trp_table_options options = {.name = name, .signature = {signature, 3}};
    assert_int_equal(trp_table_options_check(&options), TRP_OK);
    trp_table_options *copy = trp_table_options_copy(&options);
    name[0] = 'x';
    signature[0] = 9;
    assert_string_equal(copy->name, "deep");
    assert_int_equal(copy->signature.size, 3);
    assert_int_equal(copy->signature.data[0], 0x8a);
    assert_int_equal(copy->remover.kind, TRP_FIFO);
    assert_int_equal(copy->max_size, 1000000);
    assert_true(copy->limiter.samples_per_insert == 1);
    trp_table_options_destroy(copy);
    trp_table_options_destroy(NULL);
}

static void a_signature_is_read_from_its_file(void **state)
{
    (void)state;
    char dir[] = "/tmp/troupe-options-XXXXXX";
    assert_non_null(mkdtemp(dir));
    char *path = xasprintf("%s/signature", dir);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    const uint8_t bytes[] = {0x8a, 0x02, 2, 0x12, 0}; /* a scalar */
    assert_int_equal(fwrite(bytes, 1, sizeof bytes, file), sizeof bytes);
    assert_int_equal(fclose(file), 0);
    char *line = xasprintf("name=t signature=%s", path);
    trp_table_options *options = parse(line);
    assert_int_equal(options->signature.size, sizeof bytes);
    assert_memory_equal(options->signature.data, bytes, sizeof bytes);
    trp_table_options_destroy(options);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
    free(line);
    free(path);
}

/* ---- text -------------------------------------------------------------------------------- */

static void the_text_is_the_simplest_that_means_the_same(void **state)
{
    (void)state;
    const struct {
        const char *line, *text; /* text NULL: the same */
    } rows[] = {
        {"name=t", "name=t sampler=uniform remover=fifo max_size=1000000 limiter=min_size(1)"},
        {"name=t sampler=prioritized(0.6) remover=lifo max_size=5 limiter=queue(4) "
         "max_times_sampled=1",
         NULL},
        {"name=t sampler=max_heap remover=min_heap max_size=1 limiter=samples_per_insert(0.1,7,3)",
         NULL},
        {"name=t sampler=lifo remover=fifo max_size=1 limiter=rate(1,1,-inf,5)", NULL},
        {"name=t sampler=lifo remover=fifo max_size=1 limiter=rate(1,3,-inf,inf)",
         "name=t sampler=lifo remover=fifo max_size=1 limiter=min_size(3)"},
        {"name=t sampler=lifo remover=fifo max_size=1 limiter=stack(3)",
         "name=t sampler=lifo remover=fifo max_size=1 limiter=queue(3)"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        trp_table_options *options = parse(rows[i].line);
        char *text = trp_table_options_format(options);
        assert_string_equal(text, rows[i].text ? rows[i].text : rows[i].line);
        free(text);
        trp_table_options_destroy(options);
    }
}

static double random_real(trp_rng *rng)
{
    switch (trp_rng_below(rng, 4)) {
    case 0:
        return (double)trp_rng_below(rng, 100);
    case 1:
        return trp_rng_double(rng);
    case 2:
        return pow(10, trp_rng_double(rng) * 600 - 300);
    default:
        return (double)trp_rng_below(rng, 1000) / 10;
    }
}

static trp_rate_limiter random_limiter(trp_rng *rng)
{
    int64_t size = 1 + (int64_t)trp_rng_below(rng, 1 + (trp_rng_u64(rng) >> 2));
    if (trp_rng_below(rng, 3) == 0)
        return trp_limiter_min_size(size);
    if (trp_rng_below(rng, 3) == 0)
        return trp_limiter_queue(size);
    if (trp_rng_below(rng, 2) == 0)
        return trp_limiter_samples_per_insert(random_real(rng), size, random_real(rng));
    double min = trp_rng_below(rng, 4) ? random_real(rng) : -DBL_MAX;
    double max = trp_rng_below(rng, 4) ? min + random_real(rng) : DBL_MAX;
    return (trp_rate_limiter){random_real(rng), size, min, max};
}

static void the_text_of_any_options_parses_back_to_them(void **state)
{
    (void)state;
    trp_rng rng;
    trp_rng_init(&rng, 1, 0);
    int checked = 0;
    for (int i = 0; i < 20000; i++) {
        trp_table_options options = {
            .name = "t",
            .sampler = {(trp_selector_kind)trp_rng_below(&rng, 6), random_real(&rng)},
            .remover = {(trp_selector_kind)trp_rng_below(&rng, 6), random_real(&rng)},
            .remover_set = true,
            .max_size = 1 + (int64_t)trp_rng_below(&rng, INT32_MAX),
            .max_times_sampled = (int32_t)trp_rng_below(&rng, 3),
            .limiter = random_limiter(&rng),
        };
        if (trp_table_options_check(&options) != TRP_OK)
            continue;
        checked++;
        char *text = trp_table_options_format(&options);
        trp_table_options *back = parse(text);
        assert_options_equal(&options, back);
        trp_table_options_destroy(back);
        free(text);
    }
    assert_true(checked > 10000);
}

static void what_reverb_has_not_is_in_the_line_too(void **state)
{
    static const struct {
        const char *line, *wrong; /* wrong: NULL, or a part of what is said */
    } rows[] = {
        {"name=t max_bytes=5000 insert_on_sample=u replacement=no seed=77", NULL},
        {"name=t max_bytes=0 insert_on_sample= replacement=yes seed=0", NULL},
        {"name=t max_bytes=-1", "max_bytes=-1"},
        {"name=t seed=x", "seed=x"},
        {"name=t replacement=maybe", "neither yes nor no"},
        {"name=t insert_on_sample=t", "another table"},
        {"name=t sampler=fifo replacement=no", "sampler that draws"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        trp_table_options *options, *again;
        trp_status status = trp_table_options_parse(rows[i].line, &options);
        assert_int_equal(status, rows[i].wrong ? TRP_INVALID_ARGUMENT : TRP_OK);
        if (rows[i].wrong) {
            assert_non_null(strstr(trp_last_error(), rows[i].wrong));
            continue;
        }
        char *line = trp_table_options_format(options);
        again = parse(line);
        assert_options_equal(options, again);
        assert_int_equal(again->max_bytes, i == 0 ? 5000 : 0);
        assert_int_equal(again->seed, i == 0 ? 77 : 0);
        trp_table_options_destroy(again);
        trp_table_options_destroy(options);
        free(line);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_reverb_has_not_is_in_the_line_too),
        cmocka_unit_test(a_full_line_gives_all_options),
        cmocka_unit_test(a_name_alone_gives_the_defaults),
        cmocka_unit_test(every_selector_has_its_word),
        cmocka_unit_test(every_limiter_has_its_form),
        cmocka_unit_test(wrong_lines_are_refused_with_the_word_and_the_remedy),
        cmocka_unit_test(a_name_is_bounded_and_utf8),
        cmocka_unit_test(a_name_of_any_letters_has_a_line),
        cmocka_unit_test(options_that_no_table_can_have_are_refused),
        cmocka_unit_test(a_copy_is_deep_and_has_the_defaults_filled_in),
        cmocka_unit_test(a_signature_is_read_from_its_file),
        cmocka_unit_test(the_text_is_the_simplest_that_means_the_same),
        cmocka_unit_test(the_text_of_any_options_parses_back_to_them),
    };
    return cmocka_run_group_tests_name("table_options", tests, NULL, NULL);
}
