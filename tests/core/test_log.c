/* The log: its lines, whose they are, where they go; what is printed escaped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "core/limits.h"
#include "core/log.h"
#include "core/printable.h"
#include "core/thread.h"

/* Takes "2026-11-22T17:14:37.123Z " off a line, which has to begin with the time of now. */
static void cut_stamp(char *line)
{
    struct tm utc = {0};
    int length = 0, ms = -1;
    if (line[0] == '\0')
        return;
    const char *point = strptime(line, "%Y-%m-%dT%H:%M:%S", &utc);
    assert_non_null(point);
    assert_int_equal(sscanf(point, ".%3dZ %n", &ms, &length), 1);
    assert_int_equal(length, strlen(".123Z "));
    int64_t ago_ms = clock_wall_ns() / 1000000 - ((int64_t)timegm(&utc) * 1000 + ms);
    assert_true(ago_ms >= 0 && ago_ms < 60000);
    memmove(line, point + length, strlen(point + length) + 1);
}

/* What `level` and `text` write to standard error, behind the time. */
static void log_into(char *line, size_t size, trp_log_level level, const char *text)
{
    int ends[2];
    int before = dup(STDERR_FILENO);
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    trp_log(level, "%s", text);
    dup2(before, STDERR_FILENO);
    close(before);
    close(ends[1]);
    ssize_t got = read(ends[0], line, size - 1);
    assert_true(got >= 0);
    line[got] = 0;
    close(ends[0]);
    assert_true(got <= LOG_LINE_BYTES_MAX);
    cut_stamp(line);
}

static void an_event_is_one_line_with_level_and_node(void **state)
{
    (void)state;
    char line[2 * LOG_LINE_BYTES_MAX];
    log_into(line, sizeof line, TRP_WARN, "two\nlines \033[2J");
    assert_string_equal(line, "warn  two\\x0alines \\x1b[2J\n");
    trp_log_set_node("actor/3");
    log_into(line, sizeof line, TRP_ERROR, "x=1");
    assert_string_equal(line, "error actor/3 x=1\n");
    trp_log_set_node(NULL);
    log_into(line, sizeof line, TRP_DEBUG, "below the threshold");
    assert_string_equal(line, "");
    char *text = xasprintf("%06000d", 1);
    log_into(line, sizeof line, TRP_INFO, text);
    size_t behind = LOG_LINE_BYTES_MAX - 1 - strlen("2026-11-22T17:14:37.123Z ");
    assert_int_equal(strlen(line), behind);
    assert_int_equal(line[behind - 1], '\n');
    free(text);
}

static void what_moves_a_cursor_is_printed_escaped(void **state)
{
    (void)state;
    static const struct {
        const char *text, *printed;
    } rows[] = {
        {"plain \\ 'text' \303\274 \360\237\230\200", "plain \\ 'text' \303\274 \360\237\230\200"},
        {"\033[31m\t\177", "\\x1b[31m\\x09\\x7f"},
        {"\302\233\302\240", "\\u{9b}\302\240"}, /* C1, and the first one behind */
        {"\342\200\256\342\201\246\342\200\217", "\\u{202e}\\u{2066}\\u{200f}"},
        {"\377\303\355\240\200", "\\xff\\xc3\\xed\\xa0\\x80"}, /* no UTF-8 */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        trp_bytes bytes = {(const uint8_t *)rows[i].text, strlen(rows[i].text)};
        char *text = printable(bytes), cut[8];
        assert_string_equal(text, rows[i].printed);
        size_t size = printable_copy(cut, sizeof cut, bytes);
        assert_int_equal(size, strlen(cut));
        assert_int_equal(strncmp(text, cut, size), 0);
        free(text);
    }
}

static void a_printed_line_is_one_whatever_is_in_it(void **state)
{
    (void)state;
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    print_text(out, "\n%s\n\n", "\na\n");
    print_text(out, "\n");
    print_text(out, "%s", "\n");
    fclose(out);
    assert_string_equal(text, "\n\\x0aa\\x0a\n\n\n\\x0a");
    free(text);
}

static void log_as_it_is(void *arg)
{
    (void)arg;
    trp_log(TRP_INFO, "from a thread");
}

static void a_thread_logs_where_the_one_that_started_it_does(void **state)
{
    (void)state;
    int ends[2];
    char line[128] = "";
    assert_int_equal(pipe(ends), 0);
    trp_log_set_node("actor/3");
    log_set_sink(ends[1]);
    struct thread thread = {.running = false};
    assert_int_equal(thread_start(&thread, "logs", log_as_it_is, NULL), TRP_OK);
    log_set_sink(-1);
    trp_log_set_node(NULL);
    thread_stop(&thread);
    close(ends[1]);
    assert_true(read(ends[0], line, sizeof line - 1) > 0);
    close(ends[0]);
    cut_stamp(line);
    assert_string_equal(line, "info  actor/3 from a thread\n");
}

static void what_is_kept_elsewhere_is_shown_from_a_level_on(void **state)
{
    (void)state;
    int ends[2];
    char line[256], kept[256];
    assert_int_equal(pipe(ends), 0);
    log_set_shown(TRP_WARN);
    log_into(line, sizeof line, TRP_INFO, "nobody else has it");
    assert_string_equal(line, "info  nobody else has it\n");
    log_set_sink(ends[1]);
    log_into(line, sizeof line, TRP_INFO, "a");
    assert_string_equal(line, "");
    log_into(line, sizeof line, TRP_WARN, "b");
    assert_string_equal(line, "warn  b\n");
    log_set_shown(LOG_SHOWS_NONE);
    log_into(line, sizeof line, TRP_ERROR, "b");
    assert_string_equal(line, "");
    log_set_shown(TRP_DEBUG);
    log_into(line, sizeof line, TRP_INFO, "c");
    assert_string_equal(line, "info  c\n");
    log_set_sink(-1);
    ssize_t size = read(ends[0], kept, sizeof kept - 1);
    assert_int_equal(size, 4 * strlen("2026-11-22T17:14:37.123Z info  a\n"));
    close(ends[0]);
    close(ends[1]);
}

static void the_level_of_a_logged_line_is_known(void **state)
{
    (void)state;
    int ends[2];
    char line[256];
    trp_log_level level = TRP_ERROR;
    assert_int_equal(pipe(ends), 0);
    for (int each = TRP_INFO; each <= TRP_ERROR; each++) {
        log_to(ends[1], (trp_log_level)each, "actor/3", "x");
        ssize_t size = read(ends[0], line, sizeof line);
        assert_true(size > 0);
        assert_true(log_line_level(line, (size_t)size - 1, &level));
        assert_int_equal(level, each);
        for (size_t cut = 0; cut <= 30; cut++)
            assert_int_equal(log_line_level(line, cut, &level), each != TRP_ERROR && cut == 30);
    }
    const char *const others[] = {"", "info x", "2026-11-22T17:14:37.123Z loud x",
                                  "2026-11-22 17:14:37.123Z info x"};
    for (size_t i = 0; i < 4; i++)
        assert_false(log_line_level(others[i], strlen(others[i]), &level));
    close(ends[0]);
    close(ends[1]);
}

static void levels_have_words(void **state)
{
    (void)state;
    trp_log_level level;
    assert_int_equal(trp_log_level_parse("warn", &level), TRP_OK);
    assert_int_equal(level, TRP_WARN);
    assert_int_equal(trp_log_level_parse("loud", &level), TRP_INVALID_ARGUMENT);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_event_is_one_line_with_level_and_node),
        cmocka_unit_test(what_moves_a_cursor_is_printed_escaped),
        cmocka_unit_test(a_printed_line_is_one_whatever_is_in_it),
        cmocka_unit_test(a_thread_logs_where_the_one_that_started_it_does),
        cmocka_unit_test(what_is_kept_elsewhere_is_shown_from_a_level_on),
        cmocka_unit_test(the_level_of_a_logged_line_is_known),
        cmocka_unit_test(levels_have_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
