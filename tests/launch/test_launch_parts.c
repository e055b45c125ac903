/* Parts of the launcher that need no processes: cutting lines, folding metrics, control messages,
 * and who is blamed for a failure. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "launch/control.h"
#include "launch/lines.h"
#include "launch/metrics.h"
#include "launch/run.h"
#include "launch/limits.h"

/* ---- lines ------------------------------------------------------------------------------- */

static void collect(void *arg, const char *line, size_t size)
{
    struct buffer *all = arg;
    buffer_append(all, (trp_bytes){(const uint8_t *)"<", 1});
    buffer_append(all, (trp_bytes){(const uint8_t *)line, size});
    buffer_append(all, (trp_bytes){(const uint8_t *)">", 1});
}

static void feed(struct lines *lines, const char *text, int64_t now_ns, struct buffer *all)
{
    lines_feed(lines, text, strlen(text), now_ns, collect, all);
}

static void assert_collected(struct buffer *all, const char *expected)
{
    buffer_append(all, (trp_bytes){(const uint8_t *)"", 1});
    assert_string_equal(all->data, expected);
    buffer_cleanup(all);
    *all = (struct buffer){0};
}

static void only_whole_lines_are_passed_on(void **state)
{
    (void)state;
    struct lines lines = {.since_ns = 0};
    struct buffer all = {0};
    feed(&lines, "one\ntw", 0, &all);
    feed(&lines, "o\n\nthr", 0, &all);
    assert_collected(&all, "<one><two><>");
    feed(&lines, "ee\n", 0, &all);
    assert_collected(&all, "<three>");
    buffer_cleanup(&lines.partial);
}

static void an_unfinished_line_is_passed_on_when_it_is_old(void **state)
{
    (void)state;
    struct lines lines = {.since_ns = 0};
    struct buffer all = {0};
    feed(&lines, "50%", 1000, &all);
    feed(&lines, "..", 1500, &all);
    lines_flush(&lines, 1999, 1000, collect, &all);
    assert_collected(&all, "");
    lines_flush(&lines, 2000, 1000, collect, &all);
    assert_collected(&all, "<50%..>");
    lines_flush(&lines, 9000, 1000, collect, &all);
    assert_collected(&all, "");
    buffer_cleanup(&lines.partial);
}

static void a_line_without_end_is_passed_on_in_pieces(void **state)
{
    (void)state;
    struct lines lines = {.since_ns = 0};
    struct buffer all = {0};
    size_t size = 2 * NODE_LINE_BYTES_MAX + 5;
    char *text = xmalloc(size);
    memset(text, 'x', size);
    lines_feed(&lines, text, size, 0, collect, &all);
    free(text);
    assert_int_equal(all.size, 2 * (NODE_LINE_BYTES_MAX + 2));
    assert_int_equal(lines.partial.size, 5);
    buffer_cleanup(&lines.partial);
    buffer_cleanup(&all);
}

/* ---- logs -------------------------------------------------------------------------------- */

static off_t size_of(const char *dir, const char *name)
{
    struct stat info;
    char *path = xasprintf("%s/%s", dir, name);
    off_t size = stat(path, &info) == 0 ? info.st_size : -1;
    free(path);
    return size;
}

static void a_log_makes_room_for_itself(void **state)
{
    (void)state;
    struct node_group group = {.name = (char *)(uintptr_t) "user", .count = 1};
    char dir[] = "/tmp/troupe-test-XXXXXX", logs[64];
    assert_non_null(mkdtemp(dir));
    snprintf(logs, sizeof logs, "%s/logs", dir);
    assert_int_equal(mkdir(logs, 0700), 0);
    int fd;
    assert_int_equal(run_dir_open_log(dir, &group, 0, &fd), TRP_OK);
    assert_int_equal(ftruncate(fd, LOG_FILE_BYTES_MAX - 1), 0);
    run_dir_bound_log(dir, &group, 0, fd);
    assert_int_equal(size_of(logs, "user-0.log"), LOG_FILE_BYTES_MAX - 1);
    for (int i = 0; i < 2; i++) { /* the second time in place of what the first kept */
        assert_int_equal(ftruncate(fd, LOG_FILE_BYTES_MAX + i), 0);
        run_dir_bound_log(dir, &group, 0, fd);
        assert_int_equal(size_of(logs, "user-0.log.1"), LOG_FILE_BYTES_MAX + i);
        assert_int_equal(write(fd, "on\n", 3), 3);
        assert_int_equal(size_of(logs, "user-0.log"), 3);
    }
    close(fd);
    static const char *const names[] = {"logs/user-0.log", "logs/user-0.log.1", "logs", ""};
    for (size_t i = 0; i < 4; i++) {
        char *path = xasprintf("%s/%s", dir, names[i]);
        assert_int_equal(remove(path), 0);
        free(path);
    }
}

/* ---- metrics ----------------------------------------------------------------------------- */

static void values_are_folded_until_they_are_taken(void **state)
{
    (void)state;
    struct metrics metrics = {.count = 0};
    metrics_set(&metrics, "return", 1);
    metrics_set(&metrics, "return", 3);
    struct metric *metric = metrics_get(&metrics, "return");
    assert_true(metric->last == 3 && metric->sum == 4 && metric->count == 2);
    metric_taken(metric);
    assert_true(metric->last == 3 && metric->sum == 0 && metric->count == 0);
    double value = 0;
    assert_true(metrics_last(&metrics, "return", &value));
    assert_true(value == 3);
    assert_false(metrics_last(&metrics, "other", &value));
}

static void names_that_are_no_words_are_dropped(void **state)
{
    (void)state;
    struct metrics metrics = {.count = 0};
    static const char *const names[] = {
        "\x1b[2J", "tab\there", "\xff",
        "",        "two words", "a,b",
        "line\n",  "quote\"",   "a-name-of-more-than-31-characters"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_null(metrics_get(&metrics, names[i]));
    for (int i = 0; i < METRICS_MAX; i++) {
        char *name = xasprintf("m%d", i);
        assert_non_null(metrics_get(&metrics, name));
        free(name);
    }
    assert_null(metrics_get(&metrics, "one-too-many"));
    assert_non_null(metrics_get(&metrics, "m0"));
}

/* ---- control ----------------------------------------------------------------------------- */

static int pair_setup(void **state)
{
    int *fds = xcalloc(2, sizeof *fds);
    assert_int_equal(control_pair(fds), TRP_OK);
    *state = fds;
    return 0;
}

static int pair_teardown(void **state)
{
    int *fds = *state;
    for (int i = 0; i < 2; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    free(fds);
    return 0;
}

static void messages_arrive_as_they_were_sent(void **state)
{
    int *fds = *state;
    struct control_message message;
    assert_int_equal(control_receive(fds[1], &message), TRP_DEADLINE_EXCEEDED);
    assert_int_equal(control_send(fds[0], 0, CONTROL_FAILED, 7, "%d a b\nc", 5), TRP_OK);
    assert_int_equal(control_send(fds[0], 0, CONTROL_DONE, 8, "-"), TRP_OK);
    assert_int_equal(control_receive(fds[1], &message), TRP_OK);
    assert_int_equal(message.verb, CONTROL_FAILED);
    assert_int_equal(message.node, 7);
    assert_string_equal(message.rest, "5 a b\nc");
    assert_int_equal(control_receive(fds[1], &message), TRP_OK);
    assert_int_equal(message.verb, CONTROL_DONE);
}

static void what_was_sent_before_the_end_is_still_read(void **state)
{
    int *fds = *state;
    struct control_message message;
    assert_int_equal(control_send(fds[0], 0, CONTROL_DONE, 1, "-"), TRP_OK);
    close(fds[0]);
    fds[0] = -1;
    assert_int_equal(control_receive(fds[1], &message), TRP_OK);
    assert_int_equal(control_receive(fds[1], &message), TRP_UNAVAILABLE);
    assert_int_equal(control_send(fds[1], 0, CONTROL_STOP, 1, "-"), TRP_UNAVAILABLE);
}

static void last_words_are_heard_though_the_speaker_did_not_listen(void **state)
{
    int *fds = *state;
    struct control_message message;
    assert_int_equal(control_send(fds[1], 0, CONTROL_STOP, 1, "-"), TRP_OK);
    assert_int_equal(control_send(fds[0], 0, CONTROL_FAILED, 1, "9 the dog ate it"), TRP_OK);
    close(fds[0]); /* with a packet that it has not read */
    fds[0] = -1;
    assert_int_equal(control_receive(fds[1], &message), TRP_OK);
    assert_int_equal(message.verb, CONTROL_FAILED);
    assert_string_equal(message.rest, "9 the dog ate it");
    assert_int_equal(control_receive(fds[1], &message), TRP_UNAVAILABLE);
}

static void a_reader_that_is_slow_does_not_hold_the_sender(void **state)
{
    int *fds = *state;
    trp_status status = TRP_OK;
    for (int i = 0; i < 1000000 && status == TRP_OK; i++)
        status = control_send(fds[0], 0, CONTROL_REPORT, 0, "x 1 1 1");
    assert_int_equal(status, TRP_DEADLINE_EXCEEDED);
}

static void long_text_is_cut_and_garbage_is_refused(void **state)
{
    int *fds = *state;
    struct control_message message;
    char text[2 * CONTROL_MESSAGE_BYTES_MAX];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_int_equal(control_send(fds[0], 0, CONTROL_FAILED, 1, "5 %s", text), TRP_OK);
    assert_int_equal(control_receive(fds[1], &message), TRP_OK);
    assert_int_equal(strlen(message.rest), CONTROL_MESSAGE_BYTES_MAX - 1 - strlen("failed 1 "));
    static const char *const wrong[] = {"x", "done", "done x -", "dance 1 -", "done 99999 -"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_true(send(fds[0], wrong[i], strlen(wrong[i]), 0) > 0);
        assert_int_equal(control_receive(fds[1], &message), TRP_INVALID_ARGUMENT);
    }
}

/* ---- blame ------------------------------------------------------------------------------- */

static trp_status run_nothing(trp_context *context, const void *arg)
{
    (void)context;
    (void)arg;
    return TRP_OK;
}

/* base <- middle <- user, and a stranger. */
static int chain_setup(void **state)
{
    struct run *run = xcalloc(1, sizeof *run);
    run->program = trp_program_create("chain");
    trp_node used = {0};
    static const char *const names[] = {"base", "middle", "user", "stranger"};
    for (size_t i = 0; i < 4; i++) {
        size_t uses = i == 1 || i == 2;
        used =
            trp_add_node(run->program, names[i],
                         &(trp_node_options){.run = run_nothing, .uses = &used, .use_count = uses});
    }
    assert_int_equal(program_check(run->program), TRP_OK);
    run->nodes = xcalloc(4, sizeof *run->nodes);
    for (uint32_t i = 0; i < 4; i++)
        run->nodes[i] = (struct run_node){.group = run->program->groups[i], .number = i};
    *state = run;
    return 0;
}

static int chain_teardown(void **state)
{
    struct run *run = *state;
    for (uint32_t i = 0; i < 4; i++)
        free(run->nodes[i].failure);
    free(run->nodes);
    trp_program_destroy(run->program);
    free(run);
    return 0;
}

static void nobody_is_blamed_for_nothing(void **state)
{
    assert_null(run_first_failure(*state));
}

static void blame_follows_the_edges(void **state)
{
    struct run *run = *state;
    run_node_failed(run, &run->nodes[2], TRP_UNAVAILABLE, "the middle is gone");
    assert_ptr_equal(run_first_failure(run), &run->nodes[2]);
    run_node_failed(run, &run->nodes[1], TRP_DEADLINE_EXCEEDED, "the base does not answer");
    assert_ptr_equal(run_first_failure(run), &run->nodes[1]);
    run_node_failed(run, &run->nodes[0], TRP_INTERNAL, "it was killed by signal 11");
    assert_ptr_equal(run_first_failure(run), &run->nodes[0]);
}

static void a_failure_of_its_own_is_not_handed_on(void **state)
{
    struct run *run = *state;
    run_node_failed(run, &run->nodes[2], TRP_INVALID_ARGUMENT, "a bad number");
    run_node_failed(run, &run->nodes[1], TRP_INTERNAL, "later");
    assert_ptr_equal(run_first_failure(run), &run->nodes[2]);
}

static void nodes_that_are_not_used_are_not_blamed(void **state)
{
    struct run *run = *state;
    run_node_failed(run, &run->nodes[2], TRP_UNAVAILABLE, "somebody is gone");
    run_node_failed(run, &run->nodes[3], TRP_INTERNAL, "a stranger's trouble");
    assert_ptr_equal(run_first_failure(run), &run->nodes[2]);
}

static void the_first_word_of_a_node_counts(void **state)
{
    struct run *run = *state;
    run_node_failed(run, &run->nodes[0], TRP_DATA_LOSS, "what it said");
    run_node_failed(run, &run->nodes[0], TRP_INTERNAL, "it exited with status 1");
    assert_string_equal(run_first_failure(run)->failure, "what it said");
}

#define PAIR_TEST(name)  cmocka_unit_test_setup_teardown(name, pair_setup, pair_teardown)
#define CHAIN_TEST(name) cmocka_unit_test_setup_teardown(name, chain_setup, chain_teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_whole_lines_are_passed_on),
        cmocka_unit_test(an_unfinished_line_is_passed_on_when_it_is_old),
        cmocka_unit_test(a_line_without_end_is_passed_on_in_pieces),
        cmocka_unit_test(a_log_makes_room_for_itself),
        cmocka_unit_test(values_are_folded_until_they_are_taken),
        cmocka_unit_test(names_that_are_no_words_are_dropped),
        PAIR_TEST(messages_arrive_as_they_were_sent),
        PAIR_TEST(what_was_sent_before_the_end_is_still_read),
        PAIR_TEST(last_words_are_heard_though_the_speaker_did_not_listen),
        PAIR_TEST(a_reader_that_is_slow_does_not_hold_the_sender),
        PAIR_TEST(long_text_is_cut_and_garbage_is_refused),
        CHAIN_TEST(nobody_is_blamed_for_nothing),
        CHAIN_TEST(blame_follows_the_edges),
        CHAIN_TEST(a_failure_of_its_own_is_not_handed_on),
        CHAIN_TEST(nodes_that_are_not_used_are_not_blamed),
        CHAIN_TEST(the_first_word_of_a_node_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
