/* Ranks that are processes, one of which is killed, stopped or slow in the middle of operations:
 * every other one says in time who it was. The test starts itself as the ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <troupe/collective.h>

#include "../../core/patience.h"
#include "core/alloc.h"

enum { SIZE = 3, VICTIM = 1, TIMEOUT_MS = 600, LARGE = 1200000, SMALL = 10 };

extern char **environ;

/* ---- a rank --------------------------------------------------------------------------------- */

/* Of two sites the victim is the first rank of the second one. */
static const char *const two_sites[SIZE] = {"west", "east", "east"};

static uint64_t start_operation(trp_collective *group, const char *name, float *values)
{
    if (strncmp(name, "allreduce", 9) == 0)
        return trp_collective_allreduce(group, NULL, values, LARGE, TRP_COLLECTIVE_F32,
                                        TRP_COLLECTIVE_SUM);
    if (strncmp(name, "small allreduce", 15) == 0)
        return trp_collective_allreduce(group, NULL, values, SMALL, TRP_COLLECTIVE_F32,
                                        TRP_COLLECTIVE_SUM);
    if (strcmp(name, "reduce-scatter") == 0)
        return trp_collective_reduce_scatter(group, NULL, values, LARGE, TRP_COLLECTIVE_F32,
                                             TRP_COLLECTIVE_SUM);
    if (strcmp(name, "all-gather") == 0)
        return trp_collective_all_gather(group, NULL, values, LARGE, TRP_COLLECTIVE_F32);
    if (strcmp(name, "broadcast") == 0)
        return trp_collective_broadcast(group, NULL, values, LARGE, TRP_COLLECTIVE_F32, 0);
    return trp_collective_barrier(group);
}

static const char *const operations[] = {"allreduce",         "small allreduce", "reduce-scatter",
                                         "all-gather",        "broadcast",       "barrier",
                                         "allreduce in sites"};
enum { OPERATIONS = sizeof operations / sizeof *operations };

static void say(const char *line)
{
    printf("%s\n", line);
    fflush(stdout);
}

/* Does the operation again and again until that fails, and says why. */
static int rank_main(char **arguments)
{
    uint32_t rank = (uint32_t)atoi(arguments[1]);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nobody behind */
    char *addresses[SIZE];
    for (uint32_t i = 0; i < SIZE; i++)
        addresses[i] = xasprintf("unix:%s/%u", arguments[0], i);
    trp_collective_listener *listener;
    trp_collective *group = NULL;
    trp_collective_options options = {.rank = rank,
                                      .size = SIZE,
                                      .addresses = (const char *const *)addresses,
                                      .timeout_ms = (uint32_t)atoi(arguments[3]),
                                      .no_share = strcmp(arguments[4], "sockets") == 0,
                                      .sites = strstr(arguments[2], "sites") ? two_sites : NULL,
                                      .connect_timeout_ms = PATIENCE_MS};
    trp_status status = trp_collective_listener_create(&listener, addresses[rank], false);
    if (status == TRP_OK)
        status = trp_collective_connect(&group, listener, &options);
    float *values = xcalloc(LARGE, sizeof *values);
    if (group && trp_collective_wait(group, trp_collective_barrier(group)) == TRP_OK)
        say(trp_collective_read(group).shared_ranks > 0 ? "shared memory" : "sockets");
    while (group && status == TRP_OK)
        status = trp_collective_wait(group, start_operation(group, arguments[2], values));
    char *words = xasprintf("%d %s", status, trp_last_error());
    say(words);
    trp_collective_destroy(group);
    trp_collective_listener_destroy(listener);
    return 0;
}

/* ---- the test ------------------------------------------------------------------------------- */

struct process {
    pid_t pid;
    FILE *output;
};

struct group {
    char folder[32];
    const char *lanes; /* "sockets" or "shared memory" */
    struct process ranks[SIZE];
};

static void spawn_rank(struct group *group, uint32_t rank, const char *operation,
                       uint32_t timeout_ms)
{
    int pipes[2];
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    char number[8], ms[16];
    snprintf(number, sizeof number, "%u", rank);
    snprintf(ms, sizeof ms, "%u", timeout_ms);
    char *arguments[] = {"/proc/self/exe",  "rank", group->folder,        number,
                         (char *)operation, ms,     (char *)group->lanes, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pipes[1], STDOUT_FILENO);
    assert_int_equal(
        posix_spawn(&group->ranks[rank].pid, arguments[0], &actions, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(pipes[1]);
    group->ranks[rank].output = fdopen(pipes[0], "r");
}

static void read_line(struct group *group, uint32_t rank, char line[1100])
{
    struct pollfd fd = {.fd = fileno(group->ranks[rank].output), .events = POLLIN};
    if (poll(&fd, 1, PATIENCE_MS) != 1 || !fgets(line, 1100, group->ranks[rank].output))
        fail_msg("rank %u said nothing", rank);
    line[strcspn(line, "\n")] = '\0';
}

static void start_group(struct group *group, void **state, const char *operation,
                        uint32_t timeout_ms)
{
    group->lanes = *state;
    strcpy(group->folder, "/tmp/troupe-killed-XXXXXX");
    assert_non_null(mkdtemp(group->folder));
    for (uint32_t rank = 0; rank < SIZE; rank++)
        spawn_rank(group, rank, operation, timeout_ms);
    for (uint32_t rank = 0; rank < SIZE; rank++) {
        char line[1100];
        read_line(group, rank, line);
        assert_string_equal(line, group->lanes);
    }
}

static void end_group(struct group *group)
{
    for (uint32_t rank = 0; rank < SIZE; rank++) {
        char *path = xasprintf("%s/%u", group->folder, rank);
        kill(group->ranks[rank].pid, SIGKILL);
        waitpid(group->ranks[rank].pid, NULL, 0);
        fclose(group->ranks[rank].output);
        unlink(path);
        free(path);
    }
    rmdir(group->folder);
}

/* The rank's last words, which are the same as `words` when those are there. */
static void expect_words(struct group *group, uint32_t rank, trp_status status, char words[1100])
{
    char line[1100];
    read_line(group, rank, line);
    char *end;
    assert_int_equal(strtol(line, &end, 10), status);
    if (words[0])
        assert_string_equal(end + 1, words);
    strcpy(words, end + 1);
}

static int64_t now_ms(void)
{
    return clock_now_ns(&clock_monotonic) / 1000000;
}

static void a_rank_that_is_killed_is_named_at_once(void **state)
{
    for (size_t i = 0; i < OPERATIONS; i++) {
        struct group group;
        char words[1100] = "";
        start_group(&group, state, operations[i], PATIENCE_MS);
        poll(NULL, 0, 3 * (int)i); /* anywhere in it */
        int64_t before = now_ms();
        kill(group.ranks[VICTIM].pid, SIGKILL);
        for (uint32_t rank = 0; rank < SIZE; rank++)
            if (rank != VICTIM)
                expect_words(&group, rank, TRP_UNAVAILABLE, words);
        assert_string_equal(words, "rank 1 of 3 is gone");
        assert_in_range(now_ms() - before, 0, PATIENCE_MS / 10);
        end_group(&group);
    }
}

static void a_rank_that_is_stopped_is_named_at_the_deadline(void **state)
{
    for (size_t i = 0; i < OPERATIONS; i++) {
        struct group group;
        char words[1100] = "";
        start_group(&group, state, operations[i], TIMEOUT_MS);
        poll(NULL, 0, 3 * (int)i);
        int64_t before = now_ms();
        kill(group.ranks[VICTIM].pid, SIGSTOP);
        for (uint32_t rank = 0; rank < SIZE; rank++)
            if (rank != VICTIM)
                expect_words(&group, rank, TRP_DEADLINE_EXCEEDED, words);
        if (strncmp(words, "rank 1 of 3 is waited for in operation ", 39) != 0)
            fail_msg("%s: %s", operations[i], words);
        assert_in_range(now_ms() - before, 0, 10 * TIMEOUT_MS);
        kill(group.ranks[VICTIM].pid, SIGCONT); /* it hears why the others are gone */
        expect_words(&group, VICTIM, TRP_DEADLINE_EXCEEDED, words);
        end_group(&group);
    }
}

/* It comes back before the deadline: nothing happened. */
static void a_rank_that_is_slow_is_waited_for(void **state)
{
    struct group group;
    start_group(&group, state, "allreduce", PATIENCE_MS);
    for (int i = 0; i < 5; i++) {
        kill(group.ranks[VICTIM].pid, SIGSTOP);
        poll(NULL, 0, 150);
        kill(group.ranks[VICTIM].pid, SIGCONT);
        poll(NULL, 0, 20);
    }
    struct pollfd fds[SIZE];
    for (uint32_t rank = 0; rank < SIZE; rank++)
        fds[rank] = (struct pollfd){.fd = fileno(group.ranks[rank].output), .events = POLLIN};
    assert_int_equal(poll(fds, SIZE, 0), 0); /* nobody gave up */
    end_group(&group);
}

int main(int argc, char **argv)
{
    if (argc == 7)
        return rank_main(argv + 2);
    const struct CMUnitTest tests[] = {
#define OVER(lanes)                                                                                \
    cmocka_unit_test_prestate(a_rank_that_is_killed_is_named_at_once, lanes),                      \
        cmocka_unit_test_prestate(a_rank_that_is_stopped_is_named_at_the_deadline, lanes),         \
        cmocka_unit_test_prestate(a_rank_that_is_slow_is_waited_for, lanes)
        OVER("sockets"),
        OVER("shared memory"),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
